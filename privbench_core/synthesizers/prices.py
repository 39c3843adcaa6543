"""How a plan's budget is divided; and, for plans of groups, shared between tables and keys by their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from privbench_core.errors import UnsupportedBudgetError
from privbench_core.measure.learned import lists_to_learn
from privbench_core.privacy.budget import Budget, Price
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.options import GroupOptions
from privbench_core.synthesizers.steps.assemble import refuse_impossible
from privbench_core.synthesizers.steps.link import determined


@dataclass(frozen=True)
class Shares:
    """What a plan's budget is first divided into.

    Attributes:
        measuring: For all that is measured.
        validation: For the fidelity figures of all tables.
        deltas: Table -> δ for learning its lists of values; 0 where it has none.
    """

    measuring: Price
    validation: Price
    deltas: Mapping[str, float]

    @classmethod
    def of(cls, schema: Schema, budget: Budget, validation: float) -> Self:
        """Divide a budget, of which a share is for validation; raises as `refuse_impossible`."""
        refuse_impossible(schema, budget)
        total = budget.total()
        spendable = Price(total.measure, total.amount)
        learners = [table.name for table in schema.private_tables if lists_to_learn(table)]
        deltas = {t.name: total.delta / len(learners) if t.name in learners else 0.0 for t in schema.private_tables}
        return cls(spendable.share(1 - validation), spendable.share(validation), deltas)


def group_shares(name: str, schema: Schema, budget: Budget, options: GroupOptions) -> tuple[Shares, Prices]:
    """Return how a synthesizer of groups, of this name, divides a budget, and what is for measuring of that.

    Raises:
        SpecError: Tables that cannot be sampled, or checks that can never hold.
        UnsupportedBudgetError: Pure privacy.
    """
    if budget.delta == 0:
        raise UnsupportedBudgetError(
            f"{name}: Gaussian noise has no pure form; run with delta > 0, or take another synthesizer"
        )
    shares = Shares.of(schema, budget, options.validation)
    return shares, Prices(schema, shares.measuring, options)


@dataclass(frozen=True)
class Prices:
    """How the budget is shared (PrivPetal, section 5).

    Attributes:
        schema: The database.
        whole: What there is to share.
        options: Weights of attributes, and the share of profiles.
    """

    schema: Schema
    whole: Price
    options: GroupOptions

    def table(self, table: Table) -> Price:
        """Of all that is measured of a table's attributes."""
        return self.whole.share(self._table(table) / self._sum)

    def profile(self, table: Table) -> Price:
        """Of that, what is for the number of rows, one-way marginals and learned domains.

        A table counts as one attribute more than it has, for its rows: with few columns these get a larger part, and
        at most half. Each list of values to learn counts as one more, which is all for the profile: a value that is not
        named is lost to every query.
        """
        return self.table(table).share(self._profile(table))

    def groups(self, table: Table) -> Price:
        """Of that, what is for its groups."""
        return self.table(table).share(1 - self._profile(table))

    def link(self, key: ForeignKey) -> Price:
        """Of sizes of groups, or of pair tables with another parent."""
        return self.whole.share(self._key(key) / self._sum)

    @cached_property
    def _sum(self) -> float:
        tables = sum(self._table(table) for table in self.schema.private_tables)
        keys = sum(self._key(key) for table in self.schema.private_tables for key in table.foreign_keys)
        return tables + keys

    def _profile(self, table: Table) -> float:
        lists, others = len(lists_to_learn(table)), 1 + len(table.attributes)
        alone = min(1 + self.options.profile * len(table.attributes), others / 2)
        return (lists + alone) / (lists + others)

    def _table(self, table: Table) -> float:
        counted = 1 + len(table.attributes) + len(lists_to_learn(table))
        return (1.0 if table.owner_key is None else self.options.members) * counted

    def _key(self, key: ForeignKey) -> float:
        parent = self.schema.table(key.parent)
        above = 1 if parent.public or determined(self.schema, key) else 1 + len(parent.attributes)
        return self.options.links * (above if key.owner else above + len(self.schema.table(key.child).attributes))
