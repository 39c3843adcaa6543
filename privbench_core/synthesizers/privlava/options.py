"""Public parameters of PrivLava."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privbench_core.synthesizers.options import GroupOptions, parsed


@dataclass(frozen=True)
class Options(GroupOptions):
    """Public parameters beside the common ones; the names of the paper where it has them.

    Attributes:
        latents: Number of latent attributes of a foreign key: the paper's Z1 and Z2.
        iterations: T of Algorithm 1.
        types: Share of all iterations in what an owned table's groups cost beside observed marginals.
        groups: Share of an iteration for marginals over groups: sizes, and pairs of latent attributes (the 4 and the 1
            of 20:4:1).
        observed: Share of observed marginals in what an owned table's groups cost (Algorithm 2, line 1), where children
            have latent attributes of their own.
        typed: Share, in what links cost beside the former two, of joints with types, where children have attributes
            alone: the rest is for joints of members.
        usefulness: λ: as many latent values as keep the average latent marginal λ-useful.
    """

    latents: int = 1
    iterations: int = 3
    types: float = 0.2
    groups: float = 0.2
    observed: float = 0.2
    typed: float = 0.2
    usefulness: float = 1.0

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """Options from a spec; every unknown name and bad value in one SpecError."""
        return parsed(
            cls(),
            given,
            shares=frozenset({"types", "groups", "observed", "typed", "profile", "validation"}),
            least={"latents": 1, "iterations": 1},
        )
