"""PrivSPN as published, in a sound form: binary sum and product nodes down to one histogram per column.

PrivBench (Ge et al.), section 3.3, Algorithms 2 to 5, with the replacements of ``docs/privacy.md``, section 7. It shows
what the default's leaves over several columns add; dependences are kept only as far as the splits of rows tell them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from privbench_core.measure.one_way import Marginals
from privbench_core.measure.privspn import HistogramSPN
from privbench_core.measure.profile import Network
from privbench_core.models.measured import Measured, MeasuredLeaf
from privbench_core.privacy.budget import Budget, Price
from privbench_core.schema.tables import Schema
from privbench_core.synthesizers.contract import Plan, structure_rng
from privbench_core.synthesizers.privbench import SharedOptions, conditional_link, network_plan


@dataclass(frozen=True)
class Options(SharedOptions):
    """Public parameters, by the names of the paper.

    Attributes:
        alpha, gamma1, gamma2, iterations: α, γ1, γ2 and J of Algorithms 3 to 5.
    """

    SHARES: ClassVar[frozenset[str]] = SharedOptions.SHARES | {"gamma1", "gamma2"}
    LEAST: ClassVar[Mapping[str, float]] = {**SharedOptions.LEAST, "iterations": 1}
    alpha: float = 0.1
    gamma1: float = 0.5
    gamma2: float = 0.5
    iterations: int = 2

    def histograms(self, ordered: Collection[str]) -> HistogramSPN:
        """Return the network over columns of which some are ordered."""
        return HistogramSPN(frozenset(ordered), self.alpha, self.beta, self.gamma1, self.gamma2, self.iterations)

    def network(self, table: str, ordered: Mapping[str, int]) -> Network:
        """See `SharedOptions.network`."""
        return Histograms(self.histograms(ordered), structure_rng(table))

    def identity(self) -> Mapping[str, Any]:
        """See `SharedOptions.identity`."""
        return self.histograms(()).identity()


class PrivSPN:
    """The paper's own networks. Pure (δ = 0) and zCDP (δ > 0)."""

    name = "privspn"

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`; the plan promises no joints, whatever the budget."""
        chosen = Options.parse(options)
        plan = network_plan(self.name, schema, budget, chosen, partial(chosen.learn, schema), conditional_link)
        return replace(plan, joints=False)


@dataclass(frozen=True)
class Histograms:
    """The network, with the halvings of columns that it tries."""

    network: HistogramSPN
    rng: np.random.Generator

    def has_power(self, *_: object) -> bool:
        """Return True: every leaf measures its own histogram, so there is always something to spend on."""
        return True

    def find(self, marginals: Marginals, price: Price, _: object) -> Measured:
        """See `HistogramSPN.build`; of a column by itself there is nothing but its marginal."""
        if len(marginals.one_way.counts) == 1:
            return MeasuredLeaf(marginals.improve(price))
        return self.network.build(marginals.curator, marginals.counted, price, self.rng)
