"""Limits that figures of compared plans must keep, from a YAML file such as ``{same_plan: 0.95, time_ratio: 1.2}``.

Shares must reach their limit, ratios (the larger figure divided by the smaller, 1 where they are equal) must not pass
it. A figure that is missing because nothing was measured misses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from privbench_core.errors import SpecError, did_you_mean
from privbench_core.spec.yaml_io import read_yaml

SHARES = {
    "answered": ("queries that ran", 1.0),
    "same_plan": ("queries with the same plan", 0.9),
    "same_winner": ("choices with the same winner", 0.95),
}
"""What each share is of, and its default limit. Chosen by hand."""
RATIOS = {
    "cost_ratio": ("estimated costs, median ratio", 1.2),
    "rows_q_error": ("estimated rows, median ratio", 1.5),
    "time_ratio": ("run times, median ratio", 1.2),
}
"""What each ratio is of, and its default limit. Chosen by hand."""
DEFAULTS = {name: limit for name, (_, limit) in (SHARES | RATIOS).items()}


def read_thresholds(path: Path) -> dict[str, float]:
    """Read limits by name; those that the file leaves out have their defaults.

    Raises:
        SpecError: The file cannot be read, or has unknown names or limits out of range; all problems are named.
    """
    try:
        found, problems = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"{path.name}: cannot be read; check the path") from None
    if not isinstance(found, dict):
        raise SpecError(f"{path.name}: expected lines such as 'same_plan: 0.9'")
    for name, limit in found.items():
        number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if name not in DEFAULTS:
            problems.append(f"{name}: no such threshold; {did_you_mean(name, DEFAULTS)}")
        elif not number or not (0 <= limit <= 1 if name in SHARES else limit >= 1):
            problems.append(f"{name}: expected {'a share from 0 to 1' if name in SHARES else 'a ratio of at least 1'}")
    if problems:
        raise SpecError([f"{path.name}: {problem}" for problem in problems])
    return DEFAULTS | {name: float(limit) for name, limit in found.items()}


def missed_thresholds(figures: Mapping[str, float | None], limits: Mapping[str, float] = DEFAULTS) -> dict[str, str]:
    """Return the figures beyond their limits, by name, each in words."""
    missed = {}
    for name, limit in limits.items():
        figure = figures.get(name)
        if figure is None:
            continue
        if name in SHARES and figure < limit:
            missed[name] = f"{figure:.1%} of the {SHARES[name][0]}; at least {limit:.0%} are required"
        elif name in RATIOS and figure > limit:
            missed[name] = f"{RATIOS[name][0]} {figure:.2f}; at most {limit:.2f} is allowed"
    return missed
