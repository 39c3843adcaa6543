"""Verdicts on fidelity: what a table's published figures say, relative to shuffled columns and to their own noise.

Everything here is arithmetic on released numbers: it costs nothing, and may be shown and published.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from privbench_core.publishing.figures import DEVIATIONS, FidelityFigure
from privbench_core.spec.fidelity import FidelityPolicy

_CLOSE = 0.10
"""Distance below which pairs are close whatever shuffled columns are: "close" of `evaluation.verdict.DISTANCE`."""
_LITTLE = 0.25  # of the reference: who is closer by less, even at best, is called no closer; chosen by hand


class Grade(StrEnum):
    """What the released numbers say about a table."""

    GOOD = "good"
    UNKNOWN = "not measurable"
    FAR = "far"
    NOISE = "all noise"


_ORDER = (Grade.GOOD, Grade.UNKNOWN, Grade.FAR, Grade.NOISE)


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
    """Return the verdict on a private table.

    Args:
        table: Its name.
        validated: What its validate step released.
        policy: Of the spec.
    """
    if validated["noise"]:
        return TableVerdict(table, Grade.NOISE, f"all noise at this ε ({validated['noise']}); its rows say nothing")
    judged = [_judge(FidelityFigure.from_dict(figure), policy) for figure in validated["figures"]]
    worst = max((grade for grade, _ in judged), key=_ORDER.index, default=Grade.GOOD)
    why = [text for grade, text in judged if grade is worst]
    return TableVerdict(table, worst, "; ".join(why) if worst is not Grade.GOOD else "as close as its figures say")


def warnings_of(validated: Mapping[str, Mapping[str, Any]], policy: FidelityPolicy) -> list[str]:
    """Return what people should know before they use a bundle, a sentence per item.

    Args:
        validated: Table -> what its validate step released, for the private tables.
        policy: Of the spec.
    """
    found = [judge_table(table, data, policy) for table, data in validated.items()]
    lines = [str(verdict) for verdict in found if verdict.warns]
    for table, data in validated.items():
        lines += [f"{table}.{column}: {text}" for column, text in data["guessed"].items()]
        lines += [
            f"{table}.{column}: {share:.0%} of its rows have made-up values, for those that too few units share to be"
            " named; figures of single columns count them as one value"
            for column, share in data["made_up"].items()
            if share > _CLOSE and column not in data["guessed"]
        ]
        lines += [
            f"{table}.{columns}: about {share:.0%} of the rows belong to owners with as many as max_children; if they"
            " have more, those are left out: declare a larger bound"
            for columns, share in data["at_bound"].items()
            if share > _CLOSE
        ]
    return lines


def _judge(figure: FidelityFigure, policy: FidelityPolicy) -> tuple[Grade, str]:
    error = DEVIATIONS * figure.noise
    if figure.shuffled is None:
        return _judge_single(figure, error, policy.one_way)
    reference = policy.to_shuffled * figure.shuffled
    unsure = DEVIATIONS * math.hypot(figure.noise, policy.to_shuffled * figure.shuffled_noise)
    than = "shuffled columns" if policy.to_shuffled == 1 else f"{policy.to_shuffled:g} times shuffled columns"
    if figure.value + error <= _CLOSE or figure.value < reference - unsure:
        return Grade.GOOD, ""
    little = figure.value >= reference or reference - figure.value + unsure < _LITTLE * reference
    if little and unsure < max(reference, figure.value):
        return Grade.FAR, f"its {figure.metric} is no closer to the source than {than} ({figure})"
    return Grade.UNKNOWN, f"its {figure.metric} is too noisy to compare with {than} ({figure})"


def _judge_single(figure: FidelityFigure, error: float, limit: float) -> tuple[Grade, str]:
    if figure.value - error > limit:
        return Grade.FAR, f"its {figure.metric} is above {limit:g} ({figure})"
    if error > limit:
        return Grade.UNKNOWN, f"its {figure.metric} is too noisy to compare with {limit:g} ({figure})"
    return Grade.GOOD, ""


def blocking(validated: Mapping[str, Mapping[str, Any]], policy: FidelityPolicy) -> Sequence[str]:
    """Return why a bundle must not be published: nothing, unless the policy says that figures block."""
    if not policy.block:
        return []
    found = [judge_table(table, data, policy) for table, data in validated.items()]
    return [str(verdict) for verdict in found if verdict.blocks]
