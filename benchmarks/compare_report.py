"""The report of a comparison: ratios by database, figure and ε, their means, what runs cost, and verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.paired import (
    FIGURES,
    Case,
    Cell,
    Change,
    Judged,
    Pair,
    Runs,
    Side,
    change_of,
    judge,
    pairs_of,
    whole_verdict,
)
from benchmarks.report import Row, markdown

_COSTS = {"seconds": "CPU s", "peak_mb": "peak MB"}


@dataclass(frozen=True)
class Comparison:
    """Two sides.

    Attributes:
        before: A state of the code.
        after: Another one.
        cases: What the change, or the mechanism that *after* lacks, was made for.
        title: For people.
    """

    before: Side
    after: Side
    cases: Sequence[Case]
    title: str

    @property
    def off(self) -> bool:
        """Whether *after* lacks a mechanism: then what grows is its gain."""
        return self.before.code == self.after.code


def report(runs: Runs, comparison: Comparison) -> str:
    """Return the tables of a comparison as Markdown, a set for each synthesizer and δ."""
    parts = [f"# {comparison.title}"]
    for (synthesizer, delta), pairs in _settings(runs, comparison):
        parts.append(f"## {synthesizer}, δ = {delta:g}")
        parts.append("Ratios after / before, ± their standard errors; below 1 *after* is better.")
        databases = list(dict.fromkeys(pair.cell.database for pair in pairs))
        for database in databases:
            chosen = [pair for pair in pairs if pair.cell.database == database]
            seeds = len({pair.cell.seed for pair in chosen})
            parts.append(f"**{database}**, {seeds} seeds\n\n{markdown(_ratios(chosen))}")
        if len(databases) > 1:
            parts.append(f"**mean of {len(databases)} databases**\n\n{markdown(_ratios(pairs))}")
        parts.append(f"**costs of a run**\n\n{markdown(_costs(runs, comparison, pairs))}")
        judged = judge(pairs, comparison.cases, off=comparison.off)
        parts.append("\n".join(_verdict_lines(judged, comparison)))
    return "\n\n".join(parts) + "\n"


def write_json(runs: Runs, comparisons: Sequence[Comparison], file: Path) -> Path:
    """Write all comparisons with every number of theirs; returns the file."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps([_as_data(runs, each) for each in comparisons], indent=1) + "\n", encoding="utf-8")
    return file


def _settings(runs: Runs, comparison: Comparison) -> Iterator[tuple[tuple[str, float], list[Pair]]]:
    """Pairs by synthesizer and δ."""
    pairs = pairs_of(runs, comparison.before, comparison.after)
    for setting in dict.fromkeys((pair.cell.synthesizer, pair.cell.delta) for pair in pairs):
        yield setting, [pair for pair in pairs if (pair.cell.synthesizer, pair.cell.delta) == setting]


def _ratios(pairs: Sequence[Pair]) -> list[Row]:
    """A row per figure, and one of all together; a column per ε, and one of all."""
    epsilons = sorted({pair.cell.epsilon for pair in pairs})
    rows: list[Row] = []
    for name, title in {**FIGURES, "": "mean"}.items():
        of_figure = [pair for pair in pairs if name in {"", pair.figure}]
        if of_figure:
            by = {f"ε = {e:g}": [pair for pair in of_figure if pair.cell.epsilon == e] for e in epsilons}
            by |= {"all": of_figure} if len(epsilons) > 1 else {}
            rows.append({"figure": title, **{e: str(change_of(each)) if each else "" for e, each in by.items()}})
    return rows


def _costs(runs: Runs, comparison: Comparison, pairs: Sequence[Pair]) -> list[Row]:
    """Means before and after, by database, of the runs that make pairs."""
    cells: dict[str, list[Cell]] = {}
    for cell in dict.fromkeys(pair.cell for pair in pairs):
        cells.setdefault(cell.database, []).append(cell)
    return [
        {
            "database": database,
            **{
                f"{title} {when}": fmean(runs[side][cell][cost] for cell in each)
                for cost, title in _COSTS.items()
                for when, side in (("before", comparison.before), ("after", comparison.after))
            },
        }
        for database, each in cells.items()
    ]


def _verdict_lines(judged: Sequence[Judged], comparison: Comparison) -> Iterator[str]:
    subject = comparison.after.off if comparison.off else "the change"
    for each in judged:
        gain = "no runs" if each.gain is None else f"gain × {each.gain}"
        yield f"- {each.name}: {gain}: {each.verdict}"
    yield f"- **{subject}: {whole_verdict(judged)}**"


def _as_data(runs: Runs, comparison: Comparison) -> dict[str, Any]:
    return {
        "title": comparison.title,
        "before": asdict(comparison.before),
        "after": asdict(comparison.after),
        "settings": [
            {"synthesizer": synthesizer, "delta": delta, **_of_setting(runs, comparison, pairs)}
            for (synthesizer, delta), pairs in _settings(runs, comparison)
        ],
    }


def _of_setting(runs: Runs, comparison: Comparison, pairs: Sequence[Pair]) -> dict[str, Any]:
    judged = judge(pairs, comparison.cases, off=comparison.off)
    by_figure = {name: [pair for pair in pairs if pair.figure == name] for name in FIGURES}
    return {
        "cells": list(_cells(runs, comparison, pairs)),
        "mean of databases": [{"figure": name, **_change(change_of(each))} for name, each in by_figure.items() if each],
        "mean of all": _change(change_of(pairs)),
        "costs": _costs(runs, comparison, pairs),
        "verdicts": [
            {"case": each.name, "gain": each.gain and _change(each.gain), "verdict": each.verdict} for each in judged
        ],
        "verdict": whole_verdict(judged),
    }


def _cells(runs: Runs, comparison: Comparison, pairs: Sequence[Pair]) -> Iterator[dict[str, Any]]:
    """Every figure of every database and ε: its change, and what it was on either side, with the spread over seeds."""
    by_cell: dict[tuple[str, float, str], list[Pair]] = {}
    for pair in pairs:
        by_cell.setdefault((pair.cell.database, pair.cell.epsilon, pair.figure), []).append(pair)
    for (database, epsilon, figure), each in by_cell.items():
        levels = {
            when: [runs[side][pair.cell][figure] for pair in each]
            for when, side in (("before", comparison.before), ("after", comparison.after))
        }
        yield {
            "database": database,
            "epsilon": epsilon,
            "figure": figure,
            **_change(change_of(each)),
            **{when: {"mean": fmean(found), "deviation": _deviation(found)} for when, found in levels.items()},
        }


def _change(change: Change) -> dict[str, float | int | None]:
    error = None if math.isnan(change.error) else change.error
    return {"ratio": change.ratio, "log": change.log, "error": error, "pairs": change.pairs}


def _deviation(found: Sequence[float]) -> float | None:
    return stdev(found) if len(found) > 1 else None
