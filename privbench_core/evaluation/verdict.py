"""The verdict, first in a report: a grade per table, as a run gives them, and one for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from privbench_core.publishing.verdicts import MEANINGS, Grade, Verdict, worst_first

_Q_ERRORS = 2.0, 5.0  # largest medians that are close, and rough. Chosen by hand; docs/evaluation.md
_NAMED = 5  # of the worst, in the summary


def grade_of_q_error(median: float, *, lost: bool = False) -> Grade:
    """Return the grade of a median Q-error; ``lost`` says that shuffled columns answer better, which is never close."""
    close, rough = _Q_ERRORS
    if median <= close and not lost:
        return Grade.CLOSE
    return Grade.ROUGH if median <= rough else Grade.FAR


@dataclass(frozen=True)
class OverallVerdict:
    """The worst grade of all verdicts, who has it and what it means, and the verdicts, worst first."""

    grade: Grade
    summary: str
    verdicts: tuple[Verdict, ...]


def judge(verdicts: Iterable[Verdict]) -> OverallVerdict:
    """Return the verdict on everything: the worst grade of all."""
    ordered = tuple(worst_first(verdicts))
    worst = next((v.grade for v in ordered if v.grade is not None), Grade.CLOSE)
    graded = [v for v in ordered if v.grade is not None]
    theirs = [v.subject for v in graded if v.grade is worst]
    more = f" and {len(theirs) - _NAMED} more" if len(theirs) > _NAMED else ""
    who = "everything" if len(theirs) == len(graded) else f"{', '.join(theirs[:_NAMED])}{more}"
    return OverallVerdict(worst, f"{worst.capitalize()}: {who}. {MEANINGS[worst]}", ordered)
