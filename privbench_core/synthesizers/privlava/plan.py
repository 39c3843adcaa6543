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

from privbench_core.errors import UnsupportedBudgetError
from privbench_core.measure.latent import LatentFit
from privbench_core.measure.learned import lists_to_learn
from privbench_core.measure.lookup import LookupFit
from privbench_core.privacy.budget import Budget, Price, zero
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import Plan, Step
from privbench_core.synthesizers.prices import Prices
from privbench_core.synthesizers.privlava.options import Options
from privbench_core.synthesizers.privlava.steps import drawn_step, has_columns, root_step, types_step
from privbench_core.synthesizers.steps.assemble import refuse_impossible, whole_plan
from privbench_core.synthesizers.steps.link import lookup_step
from privbench_core.synthesizers.steps.profile import profile_step


class PrivLava:
    """Groups of children from latent attributes. zCDP only (δ > 0)."""

    name = "privlava"

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`."""
        chosen = Options.parse(options)
        if budget.delta == 0:
            raise UnsupportedBudgetError(
                "privlava: Gaussian noise has no pure form; run with delta > 0, or take another synthesizer"
            )
        refuse_impossible(schema, budget)
        total = budget.total()
        spendable = Price(total.measure, total.amount)
        core = spendable.share(1 - chosen.validation)
        prices = Prices(schema, core, chosen.members, chosen.links, chosen.profile)
        private = schema.private_tables
        learners = [table for table in private if lists_to_learn(table)]
        steps: list[Step] = []
        for table in private:
            of_delta = total.delta / len(learners) if table in learners else 0.0
            whole = not has_columns(schema, table)
            price = prices.table(table) if whole else prices.profile(table)
            steps.append(profile_step(schema, table, price.with_delta(of_delta)))
        for table in reversed(schema.sampling_order):
            if not table.public:
                steps += self._steps(schema, table, prices, chosen)
        return whole_plan(self.name, schema, budget, steps, spendable.share(chosen.validation))

    def _steps(self, schema: Schema, table: Table, prices: Prices, options: Options) -> list[Step]:
        """What is measured of a table's keys, and of its rows."""
        key, columns = table.owner_key, has_columns(schema, table)
        rest = prices.groups(table) if columns else None
        steps: list[Step] = []
        if key is not None:
            named = {field.name: getattr(options, field.name) for field in fields(LatentFit) if field.name != "pairs"}
            fit = LatentFit(**named)
            steps.append(types_step(schema, key, prices.link(key), rest, fit))
        if key is not None or rest is None:
            steps.append(drawn_step(schema, table, zero(prices.whole.measure)))
        else:
            steps.append(root_step(schema, table, rest))
        others = (other for other in table.foreign_keys if not other.owner)
        return steps + [lookup_step(schema, other, prices.link(other), LookupFit()) for other in others]
