"""Options of synthesizers, as a spec gives them, and how these divide a plan's budget between tables and keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

from privbench_core.errors import SpecError, UnsupportedBudgetError, did_you_mean
from privbench_core.privacy.budget import Budget, Price
from privbench_core.profiles.measure_domains import lists_to_learn
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.steps.assemble import refuse_impossible
from privbench_core.synthesizers.steps.link import determined

T = TypeVar("T")


@dataclass(frozen=True)
class FidelityOptions:
    """What the synthesizers that end with the stages of `assemble` have in common.

    Attributes:
        SHARES: Names of those that are strictly between 0 and 1.
        LEAST: Name -> smallest value, of those that may not be 0.
        validation: Share of the whole budget for the fidelity figures.
    """

    SHARES: ClassVar[frozenset[str]] = frozenset({"validation"})
    LEAST: ClassVar[Mapping[str, float]] = {}
    validation: float = 0.02

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return options from a spec; every unknown name and bad value in one SpecError."""
        return parsed(cls(), given, shares=cls.SHARES, least=cls.LEAST)


@dataclass(frozen=True)
class GroupOptions(FidelityOptions):
    """What the synthesizers that draw children as groups have in common.

    Attributes:
        members: Weight of an attribute of an owned table against one of a table without owner, in sharing the budget.
        links: Weight of an attribute that a foreign key may be tied to, likewise.
        profile: Share of what a table's attributes get for its profile (one-way marginals, learned domains), which also
            gets what stands for its rows: as much as one attribute, or half of the table's budget.
    """

    SHARES: ClassVar[frozenset[str]] = FidelityOptions.SHARES | {"profile"}
    members: float = 1.5
    links: float = 0.5
    profile: float = 0.1


def parsed(
    default: T,
    given: Mapping[str, Any],
    *,
    shares: frozenset[str] = frozenset(),
    least: Mapping[str, float] | None = None,
    choices: Mapping[str, tuple[str, ...]] | None = None,
) -> T:
    """The frozen dataclass ``default`` with the values that a spec gives; every mistake in one SpecError.

    Args:
        default: Of numbers and strings only; a whole number stays one.
        given: Name -> value.
        shares: Names whose values are strictly between 0 and 1.
        least: Name -> smallest value; 0 for the others.
        choices: Name -> values, of those that are strings.
    """
    known = {field.name: getattr(default, field.name) for field in fields(default)}  # type: ignore[arg-type]
    problems = [
        f"synthesizer.options.{name}: unknown; {did_you_mean(name, known)}" for name in given if name not in known
    ]
    values: dict[str, Any] = {}
    for name in known.keys() & given.keys():
        value, allowed = given[name], (choices or {}).get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        bound = (least or {}).get(name, 0)
        if allowed is not None:
            if value not in allowed:
                problems.append(f"synthesizer.options.{name}: {value!r} is not one of {', '.join(allowed)}")
        elif not number or not 0 <= value < math.inf:
            problems.append(f"synthesizer.options.{name}: {value!r} is not a number of at least 0")
        elif name in shares and not 0 < value < 1:
            problems.append(f"synthesizer.options.{name}: {value} is not a share strictly between 0 and 1")
        elif value < bound:
            problems.append(f"synthesizer.options.{name}: {value} is less than {bound:g}")
        values[name] = int(value) if isinstance(known[name], int) and number and math.isfinite(value) else value
    if problems:
        raise SpecError(sorted(problems))
    return replace(default, **values)  # type: ignore[type-var]


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
