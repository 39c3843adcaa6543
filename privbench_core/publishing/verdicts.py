"""Verdicts: one grade per table with the one reason that matters most, in the words of runs, reports and bundles.

A run and a bundle grade released figures, which have noise; `privbench evaluate` grades its own, which have none, by
the same rule. What released numbers say costs nothing, and may be shown and published.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from privbench_core.publishing.figures import DEVIATIONS, JOIN, ONE_WAY, SIZE, TWO_WAY, FidelityFigure
from privbench_core.spec.model import FidelityPolicy

CLOSE = 0.10
"""Largest distance that is close, whatever that of shuffled columns. Chosen by hand; docs/evaluation.md."""
_LITTLE = 0.25  # of the reference: who is closer by less, even at best, is no closer; chosen by hand
_LEAST = 0.05  # of the reference: who is closer by less is no closer, even without noise; chosen by hand
_NOUNS = {ONE_WAY: "single columns", TWO_WAY: "pairs of columns", JOIN: "joined pairs", SIZE: "numbers of rows"}


class Grade(StrEnum):
    """How close a table is, from the best to the worst."""

    CLOSE = "close"
    ROUGH = "rough"
    UNKNOWN = "not measurable"
    FAR = "far"
    NOISE = "all noise"


MEANINGS = {
    Grade.CLOSE: f"Distances are up to {CLOSE:g}. Good for development, testing and benchmarks.",
    Grade.ROUGH: "Further off, but related columns stay related. Figures of large groups hold, details do not.",
    Grade.UNKNOWN: "Noise hides how close the table is: anything between close and far.",
    Grade.FAR: "No better than a table with its columns shuffled, or single columns are wrong. Rely on keys and types.",
    Grade.NOISE: "Rows say nothing about the original, not even how many there are. Rely on keys and types.",
}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one table, on joins or on a workload.

    Attributes:
        subject: Its name.
        grade: The worst of its figures; None where there is nothing to grade.
        reason: The figure that matters most, in words without an end; "" for none.
    """

    subject: str
    grade: Grade | None
    reason: str

    @property
    def warns(self) -> bool:
        """Whether people should know before they use the table."""
        return self.grade not in {Grade.CLOSE, Grade.ROUGH, None}

    @property
    def blocks(self) -> bool:
        """Whether it stops a bundle whose owner wants that: what cannot be measured stops nothing."""
        return self.grade in {Grade.FAR, Grade.NOISE}

    def to_dict(self) -> dict[str, str | None]:
        """Return it JSON-able."""
        return {"table": self.subject, "grade": self.grade and str(self.grade), "reason": self.reason}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Verdict:
        """Return the inverse of `to_dict`."""
        return cls(stored["table"], stored["grade"] and Grade(stored["grade"]), stored["reason"])

    def __str__(self) -> str:
        """Return the verdict in one line."""
        return ": ".join(filter(None, (self.subject, self.grade and str(self.grade), self.reason)))


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return verdicts with the worst grade first, those without a grade last."""
    return sorted(verdicts, key=lambda v: -1 if v.grade is None else list(Grade).index(v.grade), reverse=True)


def judge_figures(subject: str, figures: Iterable[FidelityFigure], policy: FidelityPolicy) -> Verdict:
    """Return the verdict by some figures: the first that is worst is the reason, or of good ones the largest."""
    judged = [(*_judge(figure, policy), figure.value) for figure in figures]
    if not judged:
        return Verdict(subject, None, "no columns to compare")
    good = {Grade.CLOSE, Grade.ROUGH}
    grade, reason, _ = max(judged, key=lambda each: (list(Grade).index(each[0]), each[2] if each[0] in good else 0.0))
    return Verdict(subject, grade, reason)


def judge_tables(validated: Mapping[str, Mapping[str, Any]], policy: FidelityPolicy) -> list[Verdict]:
    """Return the verdicts on private tables by what their validate steps hold, worst first."""
    return worst_first(judge_table(table, data, policy) for table, data in validated.items())


def judge_table(table: str, validated: Mapping[str, Any], policy: FidelityPolicy) -> Verdict:
    """Return the verdict on a private table."""
    if validated["noise"]:
        return Verdict(table, Grade.NOISE, validated["noise"])
    return judge_figures(table, map(FidelityFigure.from_dict, validated["figures"]), policy)


def _judge(figure: FidelityFigure, policy: FidelityPolicy) -> tuple[Grade, str]:
    """Return the grade of a figure, and why."""
    what, error = _NOUNS.get(figure.metric, figure.metric), DEVIATIONS * figure.noise
    distance = _distance(figure.value, figure.noise)
    off = f"{what} are {distance} off"
    small = Grade.CLOSE if figure.value + error <= CLOSE else Grade.ROUGH
    too_far = figure.value - error > policy.one_way
    if figure.shuffled is None:
        if too_far:
            return Grade.FAR, f"{off}, more than {policy.one_way:g}"
        if error > policy.one_way:
            return Grade.UNKNOWN, f"noise hides how far off {what} are ({distance})"
        return small, off
    reference = policy.to_shuffled * figure.shuffled
    unsure = DEVIATIONS * math.hypot(figure.noise, policy.to_shuffled * figure.shuffled_noise)
    factor = "" if policy.to_shuffled == 1 else f"{policy.to_shuffled:g} times "
    against = f"{factor}shuffled columns ({distance} off, against {_distance(figure.shuffled, figure.shuffled_noise)})"
    if small is Grade.CLOSE:
        return small, off
    if figure.value < reference - max(unsure, _LEAST * reference):
        return small, f"{what} are closer than {against}"
    little = figure.value >= reference or reference - figure.value + unsure < _LITTLE * reference
    if little and unsure < max(reference, figure.value):
        nothing_to_keep = reference + DEVIATIONS * policy.to_shuffled * figure.shuffled_noise <= CLOSE
        rough = nothing_to_keep and figure.value + error <= policy.one_way
        return Grade.ROUGH if rough else Grade.FAR, f"{what} are no closer than {against}"
    return Grade.UNKNOWN, f"noise hides whether {what} are closer than {against}"


def _distance(value: float, noise: float) -> str:
    if noise and value <= DEVIATIONS * noise:
        return f"at most {min(1.0, value + DEVIATIONS * noise):.2f}"
    return f"{value:.2f} ± {DEVIATIONS * noise:.2f}" if noise else f"{value:.2f}"


def blocking(validated: Mapping[str, Mapping[str, Any]], policy: FidelityPolicy) -> Sequence[str]:
    """Return why a bundle must not be published: nothing, unless the policy says that figures block."""
    return [str(verdict) for verdict in judge_tables(validated, policy) if verdict.blocks] if policy.block else []


def lost_in(validated: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what noise and bounds have taken from columns, a sentence for all columns of which it is true."""
    made_up, guessed = list[tuple[float, str]](), defaultdict[str, list[str]](list)
    lines = []
    for table, data in validated.items():
        for column, text in data["guessed"].items():
            guessed[text].append(f"{table}.{column}")
        shares = {column: round(share, 2) for column, share in data["made_up"].items() if column not in data["guessed"]}
        made_up += [(share, f"{table}.{column}") for column, share in shares.items() if share > 0]
        lines += [
            f"{table}.{columns}: about {share:.0%} of the rows belong to owners that reach max_children. Further"
            " rows of these owners, if there are any, are left out: then declare a larger bound"
            for columns, share in data["at_bound"].items()
            if share > CLOSE
        ]
    if made_up:
        made_up.sort(key=lambda each: -each[0])
        named = ", ".join(f"{column} {share:.0%}" for share, column in made_up)
        lines.append(
            "Values that too few units share are replaced by made-up ones, which figures of single columns count as"
            f" one value. Share of rows: {named}"
        )
    return [*lines, *(f"{', '.join(columns)}: {text}" for text, columns in guessed.items())]
