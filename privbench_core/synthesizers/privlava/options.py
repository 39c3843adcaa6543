"""Public parameters of PrivLava."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privbench_core.synthesizers.options import FidelityOptions, parsed


@dataclass(frozen=True)
class Options(FidelityOptions):
    """Public parameters beside the common ones; the names of the paper where it has them.

    Attributes:
        latents: Number of latent attributes of a foreign key: the paper's Z1 and Z2.
        iterations: T of Algorithm 1.
        types: Share of all iterations in what an owned table's groups cost beside observed marginals.
        groups: Share of an iteration for marginals over groups: sizes, and pairs of latent attributes (the 4 and the 1
            of 20:4:1).
        observed: Share of observed marginals in what an owned table's groups cost (Algorithm 2, line 1).
        places: Share, in what links cost beside the former two, of the choice of a column that orders the members of a
            group.
        usefulness: λ: as many latent values as keep the average latent marginal λ-useful.
        members: Weight of an attribute of an owned table against one of a table without owner, in sharing the budget.
        links: Weight of an attribute that a foreign key may be tied to, likewise.
        profile: Share of what a table's attributes get for its profile (one-way marginals, learned domains), which also
            gets what stands for its rows: as much as one attribute, or half of the table's budget.
    """

    latents: int = 1
    iterations: int = 3
    types: float = 0.2
    groups: float = 0.2
    observed: float = 0.2
    places: float = 0.05
    usefulness: float = 1.0
    members: float = 1.5
    links: float = 0.5
    profile: float = 0.1

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """Options from a spec; every unknown name and bad value in one SpecError."""
        return parsed(
            cls(),
            given,
            shares=frozenset({"types", "groups", "observed", "places", "profile", "validation"}),
            least={"latents": 1, "iterations": 1},
        )
