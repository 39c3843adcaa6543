"""Verdicts: one grade per table with the one reason that matters most, in the words of runs, reports and bundles.

A run and a bundle grade released figures, which have noise; `privbench evaluate` grades its own, which have none, by
the same rule. What released numbers say costs nothing, and may be shown and published.

Released figures are distances from the source, measured under differential privacy. A distance cannot be negative, so
pure noise looks like a distance of 0: a figure below twice its noise is shown as an upper bound only.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from privbench_core.guards import SHOWN_DEVIATIONS, TINY
from privbench_core.spec.model import FidelityPolicy

CLOSE = 0.10
"""Largest distance that is close, whatever that of shuffled columns. Chosen by hand; docs/spec.md."""
ONE_WAY, TWO_WAY, JOIN, SIZE = "one-way TVD", "two-way TVD", "join TVD", "size, relative"
_NOUNS = {ONE_WAY: "single columns", TWO_WAY: "pairs of columns", JOIN: "joined pairs", SIZE: "numbers of rows"}


@dataclass(frozen=True)
class FidelityFigure:
    """A noisy distance of the released models from the source, as a share of its maximum.

    Attributes:
        table: The table.
        metric: Its name, such as "two-way TVD".
        value: The figure, in [0, 1]; 0 where noise made it negative.
        noise: Standard deviation of its noise.
        shuffled: The same distance for the source with its columns shuffled; None for metrics of single columns.
        shuffled_noise: Standard deviation of the noise of that.
    """

    table: str
    metric: str
    value: float
    noise: float
    shuffled: float | None = None
    shuffled_noise: float = 0.0

    @classmethod
    def of(
        cls, where: tuple[str, str], distances: tuple[float, float | None], sigma: float, whole: float
    ) -> FidelityFigure:
        """Return noisy distances (the models', independent columns') as shares of ``whole``, the maximum without noise.

        Args:
            where: Table and metric.
            distances: As released; the second may be None.
            sigma: Standard deviation of the noise on each.
            whole: The distance that becomes 1.
        """
        value, shuffled = (None if d is None else min(1.0, max(0.0, d / whole)) for d in distances)
        noise = min(1.0, sigma / whole)
        return cls(*where, value or 0.0, noise, shuffled, 0.0 if shuffled is None else noise)

    def with_columns_off(self, *distances: float) -> FidelityFigure:
        """Return the figure where ``shuffled`` was measured with columns that are themselves so far off.

        Errors that have nothing to do with each other add up in squares, so the columns' are taken off in squares. What
        is left is the less certain the less it is.

        >>> str(FidelityFigure("person", "join TVD", 0.3, 0.01, 0.5, 0.01).with_columns_off(0.3, 0.0))
        '0.300 ± 0.020, columns shuffled 0.400 ± 0.025'
        """
        if self.shuffled is None:
            return self
        left = math.sqrt(max(0.0, self.shuffled**2 - sum(d * d for d in distances)))
        steep = self.shuffled / max(left, self.shuffled_noise, TINY)
        return replace(self, shuffled=left, shuffled_noise=min(1.0, self.shuffled_noise * max(1.0, steep)))

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> FidelityFigure:
        """Return the inverse of `to_dict`."""
        return cls(**{field.name: stored[field.name] for field in fields(cls)})

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able, as steps store it."""
        return asdict(self)

    @property
    def numbers(self) -> dict[str, float]:
        """The figure, half of its interval, and that of shuffled columns, by name: to be plotted over releases."""
        found = {"": self.value, ", ±": SHOWN_DEVIATIONS * self.noise, ", columns shuffled": self.shuffled}
        return {self.metric + what: round(number, 4) for what, number in found.items() if number is not None}

    @property
    def receipt(self) -> dict[str, Any]:
        """The figure for a manifest; ``value`` is None if it is not significant."""
        significant = self.value > SHOWN_DEVIATIONS * self.noise
        return {
            "metric": self.metric,
            "value": round(self.value, 4) if significant else None,
            "plus_minus": round(min(1.0, SHOWN_DEVIATIONS * self.noise), 4),
            "at_most": round(min(1.0, self.value + SHOWN_DEVIATIONS * self.noise), 4),
            "columns_shuffled": None if self.shuffled is None else round(self.shuffled, 4),
            "shuffled_plus_minus": round(min(1.0, SHOWN_DEVIATIONS * self.shuffled_noise), 4),
            "text": str(self),
        }

    def __str__(self) -> str:
        """Return the figure with its noise, and the figure of shuffled columns.

        >>> str(FidelityFigure("person", "join TVD", 0.03, 0.002, 0.21, 0.002))
        '0.030 ± 0.004, columns shuffled 0.210 ± 0.004'
        >>> str(FidelityFigure("person", "one-way TVD", 0.0, 0.02))
        'at most 0.040 (all noise)'
        """
        parts = [_with_noise(self.value, self.noise)]
        if self.shuffled is not None:
            parts.append(f"columns shuffled {_with_noise(self.shuffled, self.shuffled_noise)}")
        return ", ".join(parts)


def _with_noise(value: float, noise: float) -> str:
    if value <= SHOWN_DEVIATIONS * noise:
        return f"at most {min(1.0, value + SHOWN_DEVIATIONS * noise):.3f} (all noise)"
    return f"{value:.3f} ± {SHOWN_DEVIATIONS * noise:.3f}"


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
    Grade.FAR: "No better than with its columns shuffled, or single columns are wrong. Rely only on keys and types.",
    Grade.NOISE: "Rows say nothing about the original, not even how many there are. Rely only on keys and types.",
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
    what, error = _NOUNS.get(figure.metric, figure.metric), SHOWN_DEVIATIONS * figure.noise
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
    unsure = SHOWN_DEVIATIONS * math.hypot(figure.noise, policy.to_shuffled * figure.shuffled_noise)
    factor = "" if policy.to_shuffled == 1 else f"{policy.to_shuffled:g} times "
    against = (
        f"{factor}shuffled columns ({distance} off; shuffled: {_distance(figure.shuffled, figure.shuffled_noise)})"
    )
    if small is Grade.CLOSE:
        return small, off
    # Who is closer by less than 5% of the reference is no closer, even without noise; chosen by hand, as is 25% below.
    if figure.value < reference - max(unsure, 0.05 * reference):
        return small, f"{what} are closer than {against}"
    little = figure.value >= reference or reference - figure.value + unsure < 0.25 * reference
    if little and unsure < max(reference, figure.value):
        nothing_to_keep = reference + SHOWN_DEVIATIONS * policy.to_shuffled * figure.shuffled_noise <= CLOSE
        rough = nothing_to_keep and figure.value + error <= policy.one_way
        return Grade.ROUGH if rough else Grade.FAR, f"{what} are no closer than {against}"
    return Grade.UNKNOWN, f"noise hides whether {what} are closer than {against}"


def _distance(value: float, noise: float) -> str:
    if noise and value <= SHOWN_DEVIATIONS * noise:
        return f"at most {min(1.0, value + SHOWN_DEVIATIONS * noise):.2f}"
    return f"{value:.2f} ± {SHOWN_DEVIATIONS * noise:.2f}" if noise else f"{value:.2f}"


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
