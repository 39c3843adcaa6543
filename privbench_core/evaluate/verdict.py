"""What a report says first: whether the synthetic database can stand in for its source, and where it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from privbench_core.evaluate.comparison import Comparison
from privbench_core.evaluate.join_figures import JoinFigures, KeyFigures
from privbench_core.evaluate.q_error import WorkloadResult
from privbench_core.evaluate.runtime import RunTimeResult
from privbench_core.evaluate.table_figures import TableFigures

CLOSE = 0.10
"""Mean 2-way and joined distances up to this count as close: on average 10% of the rows sit in another cell."""
ROUGH = 0.25
"""Up to this, shapes and large groups hold and details do not."""
CLOSE_Q_ERROR = 2.0
"""The same for the median Q-error of a workload."""
ROUGH_Q_ERROR = 5.0
"""Likewise."""


class Level(StrEnum):
    """How close, in one word."""

    CLOSE = "close"
    ROUGH = "rough"
    FAR = "far"


_MEANING = {
    Level.CLOSE: "Close: marginals and joins follow the source. Good for development, testing and benchmarks.",
    Level.ROUGH: "Rough: shapes and large groups hold, details do not. A larger ε or coarser domains would help.",
    Level.FAR: "Far: do not rely on it. Raise ε, declare coarser domains, or use a larger source.",
}
_WORSE = (Level.CLOSE, Level.ROUGH, Level.FAR)


@dataclass(frozen=True)
class Remark:
    """One sentence of a verdict.

    Attributes:
        level: How close what it is about is; None where it only informs.
        subject: Table, join or workload.
        text: The rest of the sentence.
    """

    level: Level | None
    subject: str
    text: str

    def __str__(self) -> str:
        """The sentence."""
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True)
class Verdict:
    """The verdict.

    Attributes:
        level: The worst of all tables, joins and the workload.
        summary: What that means.
        remarks: One per table, key and workload.
    """

    level: Level
    summary: str
    remarks: tuple[Remark, ...]


def judge(
    comparison: Comparison, workload: WorkloadResult | None = None, run_time: RunTimeResult | None = None
) -> Verdict:
    """Put the figures into words; the limits above are applied to the worst of them."""
    found = [_table(name, figures) for name, figures in comparison.tables.items()]
    found += [_key(name, figures) for name, figures in comparison.keys.items()]
    found += [_join(name, figures) for name, figures in comparison.joins.items()]
    if workload is not None and workload.errors is not None:
        errors = workload.errors
        level = _level(errors.percentile(50), CLOSE_Q_ERROR, ROUGH_Q_ERROR)
        made = ", generated" if workload.made_from_private_rows else ""
        text = f"Q-errors of {len(workload.answers):,} queries{made}: {errors}."
        found.append(Remark(level, "Workload", text))
    if run_time is not None and run_time.discrepancy and run_time.noise:
        text = (
            f"differs by {run_time.discrepancy['median']:.1f}% in the median; the source differs from itself by"
            f" {run_time.noise['median']:.1f}%. {run_time.same_plan:.0%} of the queries have the same plan."
        )
        found.append(Remark(None, "Run time", text))
    levels = [remark.level for remark in found if remark.level is not None]
    worst = max(levels, key=_WORSE.index, default=Level.CLOSE)
    return Verdict(worst, _MEANING[worst], tuple(found))


def _table(name: str, figures: TableFigures) -> Remark:
    pairs, single = figures.tvd(2), figures.tvd(1)
    if pairs is not None and figures.shuffled is not None:
        lost = "" if pairs < figures.shuffled else ": the correlations are lost"
        random = f"shuffled columns would be {figures.shuffled:.3f}"
        text = f"pairs of columns are {pairs:.3f} from the source; {random}{lost}."
        return Remark(_level(pairs, CLOSE, ROUGH, lost=bool(lost)), name, text)
    if single is not None:
        return Remark(_level(single, CLOSE, ROUGH), name, f"columns are {single:.3f} from the source.")
    return Remark(None, name, "has no attributes to compare.")


def _key(name: str, figures: KeyFigures) -> Remark:
    if figures.join.joint is None:
        level = _level(figures.fanout_tvd, CLOSE, ROUGH)
        return Remark(level, name, f"children per parent are {figures.fanout_tvd:.3f} from the source.")
    return _join(name, figures.join)


def _join(name: str, figures: JoinFigures) -> Remark:
    if figures.joint is None or figures.shuffled is None:
        return Remark(None, name, "has no attributes to compare.")
    lost = "" if figures.joint < figures.shuffled else ": the link is lost"
    text = f"joined pairs are {figures.joint:.3f} from the source; shuffled rows would be {figures.shuffled:.3f}{lost}."
    return Remark(_level(figures.joint, CLOSE, ROUGH, lost=bool(lost)), name, text)


def _level(value: float, close: float, rough: float, *, lost: bool = False) -> Level:
    """The level of a distance; what lost its correlations is not close, however small the distance."""
    if value <= close and not lost:
        return Level.CLOSE
    return Level.ROUGH if value <= rough else Level.FAR
