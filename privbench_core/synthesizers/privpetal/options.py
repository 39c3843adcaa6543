"""Public parameters of PrivPetal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privbench_core.synthesizers.options import FidelityOptions, parsed


@dataclass(frozen=True)
class Options(FidelityOptions):
    """Public parameters beside the common ones; the names of the paper where it has them.

    Attributes:
        scores: Share of R-scores in what an owned table's groups cost, σ_R of Algorithm 1 (a 1 of 1:1:8).
        margins: Share of the one-way marginals of each class of group sizes, which stand for its noisy group sizes (the
            other 1); the rest is for normalised permutation marginals (the 8).
        usefulness: λ: a class of group sizes must have so many groups that the average marginal is λ-useful.
        triples: Share of the NPMs' price for marginals over three members (permutation relations of order 3).
        members: Weight of an attribute of an owned table against one of a table without owner, in sharing the budget.
        links: Weight of an attribute that a foreign key may be tied to, likewise.
        profile: Share of what an owned table's attributes get for its profile (one-way marginals, learned domains),
            which also gets what stands for its rows: as much as one attribute, or half of the table's budget.
        root_profile: Share of the budget of a table without owner for a first look at its one-way marginals; what its
            joints do not need goes to these too.
    """

    scores: float = 0.1
    margins: float = 0.1
    usefulness: float = 3.0
    triples: float = 0.05
    members: float = 1.5
    links: float = 0.5
    profile: float = 0.1
    root_profile: float = 0.5

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """Options from a spec; every unknown name and bad value in one SpecError."""
        return parsed(
            cls(), given, shares=frozenset({"scores", "margins", "triples", "profile", "root_profile", "validation"})
        )
