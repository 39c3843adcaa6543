"""PrivSPN as published, in a sound form: binary sum and product nodes down to one histogram per column.

PrivBench (Ge et al.), section 3.3, Algorithms 2 to 5, with the replacements of ``docs/privacy.md``, section 7. It shows
what the default's leaves over several columns add; dependences are kept only as far as the splits of rows tell them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from privbench_core.marginals.measure_spn import HistogramSPN
from privbench_core.privacy.budget import Budget
from privbench_core.profiles.measure_profile import Network
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

    def network(self, _: Schema, table: str, ordered: Mapping[str, int]) -> Network:
        """See `SharedOptions.network`."""
        rates = self.alpha, self.beta, self.gamma1, self.gamma2, self.iterations
        return HistogramSPN(frozenset(ordered), *rates, rng=structure_rng(table))


class PrivSPN:
    """The paper's own networks. Pure (δ = 0) and GDP (δ > 0)."""

    name = "privspn"

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`; the plan promises no joints, whatever the budget."""
        chosen = Options.parse(options)
        plan = network_plan(self.name, schema, budget, chosen, partial(chosen.learn, schema), conditional_link)
        return replace(plan, joints=False)
