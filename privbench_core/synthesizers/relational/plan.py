"""The relational synthesizer's plan: tables by any single-table method, then the links between them.

Alimohammadi et al., "Adapting Differentially Private Synthetic Data to Relational Databases", Algorithm 1. Tables are
drawn by themselves; which rows belong together is learned from noisy marginals across tables, with the degrees of both
sides as they were released. A row of a junction table is an edge with attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

from privbench_core.privacy.budget import Budget
from privbench_core.schema.tables import Schema
from privbench_core.synthesizers.contract import Plan
from privbench_core.synthesizers.options import parsed
from privbench_core.synthesizers.privbench import LinkOptions, network_plan
from privbench_core.synthesizers.relational.tables import load_table_synthesizer, table_synthesizers
from privbench_core.synthesizers.steps.learned_link import LinkFit, learned_link


@dataclass(frozen=True)
class Options(LinkOptions, LinkFit):
    """Public parameters in addition to the common ones.

    Attributes:
        tables: Name of the table synthesizer.
        gamma: Share of tables; the rest is for links. Less than in PrivBench, as all dependences across tables are
            measured by links.
    """

    SHARES: ClassVar[frozenset[str]] = LinkOptions.SHARES | {"degrees", "select"}
    gamma: float = 0.6
    tables: str = "pairwise"

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return options from a spec; every unknown name and bad value in one SpecError."""
        return parsed(cls(), given, shares=cls.SHARES, choices={"tables": table_synthesizers()})


class Relational:
    """Any single-table method, made relational. Pure (δ = 0) and GDP, if the method is."""

    name = "relational"

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`."""
        chosen = Options.parse(options)
        method = load_table_synthesizer(chosen.tables)
        learn = partial(method.steps, schema)
        link = partial(learned_link, fit=chosen)
        return replace(network_plan(self.name, schema, budget, chosen, learn, link), joints=method.joints)
