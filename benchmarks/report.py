"""Medians over seeds as Markdown tables, each in a file of ``benchmarks/results``."""

from __future__ import annotations

import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median, stdev

RESULTS = Path(__file__).with_name("results")
Row = Mapping[str, str | float]


def medians(rows: Sequence[Row], keys: Sequence[str]) -> list[dict[str, str | float]]:
    """One row per combination of ``keys``, in order of appearance, with the median of every other column."""
    groups: dict[tuple[str | float, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [
        dict(zip(keys, group, strict=True))
        | {name: median(float(row[name]) for row in members) for name in members[0] if name not in keys}
        for group, members in groups.items()
    ]


def with_ratios(
    rows: Sequence[Row], keys: Sequence[str], peer: str, columns: Sequence[str]
) -> list[dict[str, str | float]]:
    """Add ``<column> / <peer>``: each row's figure over that of the row with the same ``keys`` and method ``peer``."""
    of_peer = {tuple(row[key] for key in keys): row for row in rows if row["method"] == peer}
    result = []
    for row in rows:
        beside = of_peer.get(tuple(row[key] for key in keys))
        ratios = {f"{c} / {peer}": float(row[c]) / float(beside[c]) for c in columns if c in row} if beside else {}
        result.append({**row, **ratios})
    return result


def markdown(rows: Sequence[Row]) -> str:
    """A Markdown table with the columns of the rows, in order of first appearance; figures get three digits."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(columns)} |", f"|{'|'.join('---' for _ in columns)}|"]
    lines += [f"| {' | '.join(_cell(row.get(name, '')) for name in columns)} |" for row in rows]
    return "\n".join(lines)


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation, to a thousandth.

    >>> spread([0.1, 0.12]), spread([3.0]), spread([])
    ('.110 ± .014', '3.00', '')
    """
    if not values:
        return ""
    numbers = [fmean(values), *([stdev(values)] if len(values) > 1 else ())]
    return (
        " ± ".join(f"{number:.3f}" if number < 1 else f"{number:.3g}" for number in numbers)
        .removeprefix("0")
        .replace(" 0.", " .")
    )


def machine(seeds: int) -> str:
    """One line on what the figures were measured with."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pyarrow", "opendp"))
    python = ".".join(str(part) for part in sys.version_info[:3])
    runs = "1 run" if seeds == 1 else f"{seeds} runs"
    return (
        f"Medians of {runs}, {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores ({platform.machine()}),"
        f" Python {python}, {packages}."
    )


def write(name: str, text: str, folder: Path = RESULTS, command: str = "") -> Path:
    """Write what a benchmark has measured, below the command that measures it again; returns the file.

    Args:
        name: Of the benchmark, and after a slash of its part.
        text: What was measured.
        folder: For the file.
        command: The benchmark with its options, where it has some.
    """
    benchmark, _, part = name.partition("/")
    file = folder / f"{name.replace('/', '_')}.md"
    title = f"{benchmark}, {part}" if part else benchmark
    file.write_text(
        f"# {title}\n\n    python -m benchmarks {command or benchmark}\n\n{text.strip()}\n", encoding="utf-8"
    )
    return file


def _cell(value: str | float) -> str:
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
