"""Limits that figures of compared plans must keep, from a YAML file such as ``{same_plan: 0.95, time_ratio: 1.2}``.

Shares must reach their limit, ratios (the larger figure divided by the smaller, 1 where they are equal) must not pass
it; run times may differ by their noise besides. A figure that is missing because nothing was measured misses nothing.
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


def read_thresholds(path: Path, defaults: Mapping[str, float] = DEFAULTS) -> dict[str, float]:
    """Read limits by name, see `check_thresholds`; SpecError if the file cannot be read."""
    try:
        found, problems = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"{path.name}: cannot be read; check the path") from None
    if not isinstance(found, dict) or problems:
        raise SpecError(
            [f"{path.name}: {p}" for p in problems] or f"{path.name}: expected lines such as 'same_plan: 0.9'"
        )
    return check_thresholds(found, defaults, f"{path.name}: ")


def check_thresholds(
    limits: Mapping[str, object], defaults: Mapping[str, float] = DEFAULTS, where: str = ""
) -> dict[str, float]:
    """Return limits by name: those that are left out have their defaults, if any.

    Raises:
        SpecError: A name is unknown, or a limit out of range; all problems are named, after ``where``.
    """
    problems, found = [], dict(defaults)
    for name, limit in limits.items():
        if name not in DEFAULTS:
            problems.append(f"{where}{name}: no such threshold; {did_you_mean(name, DEFAULTS)}")
        elif isinstance(limit, int | float) and (limit >= 1 if name in RATIOS else 0 <= limit <= 1):
            found[name] = float(limit)
        else:
            expected = "a share from 0 to 1" if name in SHARES else "a ratio of at least 1"
            problems.append(f"{where}{name}: expected {expected}")
    if problems:
        raise SpecError(problems)
    return found


def missed_thresholds(figures: Mapping[str, float | None], limits: Mapping[str, float] = DEFAULTS) -> dict[str, str]:
    """Return the figures beyond their limits, by name, each in words; "time_noise" is the noise of "time_ratio"."""
    missed = {}
    for name, stated in limits.items():
        figure = figures.get(name)
        limit = stated * (figures.get("time_noise") or 1) if name == "time_ratio" else stated
        if figure is None:
            continue
        if name in SHARES and figure < limit:
            missed[name] = f"{SHARES[name][0]}: {figure:.1%}; at least {limit:.1%} are required"
        elif name in RATIOS and figure > limit:
            missed[name] = f"{RATIOS[name][0]}: {figure:.2f}; at most {limit:.2f} is allowed"
    return missed
