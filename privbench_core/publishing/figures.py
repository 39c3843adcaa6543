"""Published fidelity figures: distances from the source, measured under differential privacy, with their noise.

A distance cannot be negative, so pure noise looks like a distance of 0. A figure below twice its noise is therefore
shown as an upper bound only. Verdicts say what a table's figures mean, relative to shuffled columns and to their own
noise: arithmetic on released numbers, which costs nothing, and may be shown and published.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any

from privbench_core.guards import TINY
from privbench_core.spec.model import FidelityPolicy

DEVIATIONS = 2.0
"""Standard deviations of noise in an interval, about 95% of a normal distribution."""
_CLOSE = 0.10
"""Distance below which pairs are close whatever shuffled columns are: "close" of `evaluation.verdict.DISTANCE`."""
_LITTLE = 0.25  # of the reference: who is closer by less, even at best, is called no closer; chosen by hand


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
    def receipt(self) -> dict[str, Any]:
        """The figure for a manifest; ``value`` is None if it is not significant."""
        significant = self.value > DEVIATIONS * self.noise
        return {
            "metric": self.metric,
            "value": round(self.value, 4) if significant else None,
            "plus_minus": round(min(1.0, DEVIATIONS * self.noise), 4),
            "at_most": round(min(1.0, self.value + DEVIATIONS * self.noise), 4),
            "columns_shuffled": None if self.shuffled is None else round(self.shuffled, 4),
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


def fidelity_table(fidelity: Mapping[str, Any]) -> list[str]:
    """Return the lines of a Markdown table of a manifest's ``fidelity_paid_for``; none without figures."""
    rows = [
        f"| {table} | {figure['metric']} | {figure['text']} |"
        for table, figures in fidelity.items()
        for figure in figures
    ]
    return ["| table | distance | from the original |", "|---|---|---|", *rows] if rows else []


def _with_noise(value: float, noise: float) -> str:
    if value <= DEVIATIONS * noise:
        return f"at most {min(1.0, value + DEVIATIONS * noise):.3f} (all noise)"
    return f"{value:.3f} ± {DEVIATIONS * noise:.3f}"


class Grade(StrEnum):
    """What the released numbers say about a table, from the best to the worst."""

    GOOD = "good"
    UNKNOWN = "not measurable"
    FAR = "far"
    NOISE = "all noise"


@dataclass(frozen=True)
class TableVerdict:
    """The verdict on one table.

    Attributes:
        table: Its name.
        grade: The worst of its figures.
        text: Why, in a sentence without its end.
    """

    table: str
    grade: Grade
    text: str

    @property
    def warns(self) -> bool:
        """Whether people should know before they use the table."""
        return self.grade is not Grade.GOOD

    @property
    def blocks(self) -> bool:
        """Whether it stops a bundle whose owner wants that: what cannot be measured stops nothing."""
        return self.grade in {Grade.FAR, Grade.NOISE}

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.table}: {self.text}"


def judge_table(table: str, validated: Mapping[str, Any], policy: FidelityPolicy) -> TableVerdict:
    """Return the verdict on a private table."""
    if validated["noise"]:
        return TableVerdict(table, Grade.NOISE, f"all noise at this ε ({validated['noise']}); its rows say nothing")
    judged = [_judge(FidelityFigure.from_dict(figure), policy) for figure in validated["figures"]]
    worst = max((grade for grade, _ in judged), key=list(Grade).index, default=Grade.GOOD)
    why = [text for grade, text in judged if grade is worst]
    return TableVerdict(table, worst, "; ".join(why) if worst is not Grade.GOOD else "as close as its figures say")


def warnings_of(validated: Mapping[str, Mapping[str, Any]], policy: FidelityPolicy) -> list[str]:
    """Return what people should know before they use a bundle, a sentence per item."""
    found = [judge_table(table, data, policy) for table, data in validated.items()]
    lines = [str(verdict) for verdict in found if verdict.warns]
    for table, data in validated.items():
        lines += [f"{table}.{column}: {text}" for column, text in data["guessed"].items()]
        lines += [
            f"{table}.{column}: {share:.0%} of its rows have made-up values, for those that too few units share to be"
            " named; figures of single columns count them as one value"
            for column, share in data["made_up"].items()
            if round(share, 2) > 0 and column not in data["guessed"]
        ]
        lines += [
            f"{table}.{columns}: about {share:.0%} of the rows belong to owners with as many as max_children; if they"
            " have more, those are left out: declare a larger bound"
            for columns, share in data["at_bound"].items()
            if share > _CLOSE
        ]
    return lines


def _judge(figure: FidelityFigure, policy: FidelityPolicy) -> tuple[Grade, str]:
    error, limit = DEVIATIONS * figure.noise, policy.one_way
    if figure.shuffled is None:
        if figure.value - error > limit:
            return Grade.FAR, f"its {figure.metric} is above {limit:g} ({figure})"
        if error > limit:
            return Grade.UNKNOWN, f"its {figure.metric} is too noisy to compare with {limit:g} ({figure})"
        return Grade.GOOD, ""
    reference = policy.to_shuffled * figure.shuffled
    unsure = DEVIATIONS * math.hypot(figure.noise, policy.to_shuffled * figure.shuffled_noise)
    than = "shuffled columns" if policy.to_shuffled == 1 else f"{policy.to_shuffled:g} times shuffled columns"
    if figure.value + error <= _CLOSE or figure.value < reference - unsure:
        return Grade.GOOD, ""
    little = figure.value >= reference or reference - figure.value + unsure < _LITTLE * reference
    if little and unsure < max(reference, figure.value):
        return Grade.FAR, f"its {figure.metric} is no closer to the source than {than} ({figure})"
    return Grade.UNKNOWN, f"its {figure.metric} is too noisy to compare with {than} ({figure})"


def blocking(validated: Mapping[str, Mapping[str, Any]], policy: FidelityPolicy) -> Sequence[str]:
    """Return why a bundle must not be published: nothing, unless the policy says that figures block."""
    if not policy.block:
        return []
    found = [judge_table(table, data, policy) for table, data in validated.items()]
    return [str(verdict) for verdict in found if verdict.blocks]
