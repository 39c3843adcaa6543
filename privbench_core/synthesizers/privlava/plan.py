"""PrivLava's plan: latent attributes along every ownership key, children first, then the tables that own nobody's rows.

Algorithm 3 of the paper: private foreign keys in an order in which the groups of a table are modelled before its rows
are grouped themselves, so that latent attributes found below are columns of the tables above. Here these keys are the
owner keys; rows refer to further parents, private or public, by what is measured between their attributes, matched to
rows that are there already (`models.lookup`): a group along such a key has rows of many units, and no unit-wise type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from privbench_core.measure.latent import LatentFit
from privbench_core.privacy.budget import Budget, zero
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import Plan, Step
from privbench_core.synthesizers.prices import GroupBudget, Prices
from privbench_core.synthesizers.privlava.options import Options
from privbench_core.synthesizers.privlava.steps import drawn_step, has_columns, root_step, types_step
from privbench_core.synthesizers.steps.assemble import whole_plan
from privbench_core.synthesizers.steps.link import lookup_step
from privbench_core.synthesizers.steps.profile import profile_step


class PrivLava:
    """Groups of children from latent attributes. zCDP only (δ > 0)."""

    name = "privlava"

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`."""
        chosen = Options.parse(options)
        shared = GroupBudget.of(self.name, schema, budget, chosen)
        prices = shared.prices
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
