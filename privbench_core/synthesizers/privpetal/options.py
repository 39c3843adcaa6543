"""Public parameters of PrivPetal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privbench_core.measure.groups import GroupFit
from privbench_core.synthesizers.options import GroupOptions, parsed


@dataclass(frozen=True)
class Options(GroupOptions):
    """Public parameters beside the common ones; the names of the paper where it has them.

    Attributes:
        scores: Share of R-scores in what an owned table's groups cost, σ_R of Algorithm 1 (a 1 of 1:1:8).
        margins: Share of the one-way marginals of each class of group sizes, which stand for its noisy group sizes (the
            other 1); the rest is for normalised permutation marginals (the 8).
        usefulness: λ: a class of group sizes must have so many groups that the average marginal is λ-useful.
        triples: Share of the NPMs' price for marginals over three members (permutation relations of order 3).
        root_profile: Share of the budget of a table without owner for a first look at its one-way marginals; what its
            joints do not need goes to these too.
    """

    scores: float = GroupFit.scores
    margins: float = GroupFit.margins
    usefulness: float = GroupFit.usefulness
    triples: float = GroupFit.triples
    root_profile: float = 0.5

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """Options from a spec; every unknown name and bad value in one SpecError."""
        return parsed(
            cls(), given, shares=frozenset({"scores", "margins", "triples", "profile", "root_profile", "validation"})
        )
