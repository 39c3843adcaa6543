"""PrivLava's plan: latent attributes along every ownership key, children first, then the tables that own nobody's rows.

Algorithm 3 of the paper: private foreign keys in an order in which the groups of a table are modelled before its rows
are grouped themselves, so that latent attributes found below are columns of the tables above. Here these keys are the
owner keys; rows refer to further parents, private or public, by what is measured between their attributes, matched to
rows that are there already (`models.lookup`): a group along such a key has rows of many units, and no unit-wise type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from privbench_core.measure.latent import LatentFit
from privbench_core.privacy.budget import Budget, zero
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import Plan, Step
from privbench_core.synthesizers.options import GroupOptions, parsed
from privbench_core.synthesizers.prices import Prices, group_shares
from privbench_core.synthesizers.privlava.steps import drawn_step, has_columns, root_step, types_step
from privbench_core.synthesizers.steps.assemble import whole_plan
from privbench_core.synthesizers.steps.link import lookup_step
from privbench_core.synthesizers.steps.profile import profile_step


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
        places: Share, in what links cost beside the former two, of the choice of a column that orders the members of a
            group.
        typed: Share, in what is left, of joints with types and places, where children have attributes alone: the rest
            is for joints of members.
        usefulness: λ: as many latent values as keep the average latent marginal λ-useful.
    """

    latents: int = 1
    iterations: int = 3
    types: float = 0.2
    groups: float = 0.2
    observed: float = 0.2
    places: float = 0.05
    typed: float = 0.2
    usefulness: float = 1.0

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """Options from a spec; every unknown name and bad value in one SpecError."""
        return parsed(
            cls(),
            given,
            shares=frozenset({"types", "groups", "observed", "places", "typed", "profile", "validation"}),
            least={"latents": 1, "iterations": 1},
        )


class PrivLava:
    """Groups of children from latent attributes. zCDP only (δ > 0)."""

    name = "privlava"

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`."""
        chosen = Options.parse(options)
        shared, prices = group_shares(self.name, schema, budget, chosen)
        steps: list[Step] = []
        for table in schema.private_tables:
            whole = not has_columns(schema, table)
            price = prices.table(table) if whole else prices.profile(table)
            steps.append(profile_step(schema, table, price.with_delta(shared.deltas[table.name])))
        for table in reversed(schema.sampling_order):
            if not table.public:
                steps += self._steps(schema, table, prices, chosen)
        return whole_plan(self.name, schema, budget, steps, shared.validation)

    def _steps(self, schema: Schema, table: Table, prices: Prices, options: Options) -> list[Step]:
        """What is measured of a table's keys, and of its rows."""
        key, columns = table.owner_key, has_columns(schema, table)
        rest = prices.groups(table) if columns else None
        steps: list[Step] = []
        if key is not None:
            shared = {field.name for field in fields(LatentFit)} & {field.name for field in fields(options)}
            fit = LatentFit(**{name: getattr(options, name) for name in shared})
            steps.append(types_step(schema, key, prices.link(key), rest, fit))
        if key is not None or rest is None:
            steps.append(drawn_step(schema, table, zero(prices.whole.measure)))
        else:
            steps.append(root_step(schema, table, rest))
        others = (other for other in table.foreign_keys if not other.owner)
        return steps + [lookup_step(schema, other, prices.link(other)) for other in others]
