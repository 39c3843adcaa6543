"""Options of synthesizers, as a spec gives them, and how these divide a plan's budget between tables and keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
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
        links: Weight of an attribute that a foreign key may depend on, likewise.
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
    """Return the frozen dataclass ``default`` with the values that a spec gives; every mistake in one SpecError.

    Args:
        default: Of numbers and strings only; a whole number stays one.
        given: Name -> value.
        shares: Names whose values are strictly between 0 and 1.
        least: Name -> smallest value; 0 for the others.
        choices: Name -> values, of those that are strings.
    """
    known = {each.name: getattr(default, each.name) for each in fields(default)}  # type: ignore[arg-type]
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
class Prices:
    """The table of a plan's prices: what each of its parts may cost.

    Attributes:
        tables: Table -> of all that is measured of its rows, with a δ for learning its lists of values.
        links: Foreign key -> of what is measured along it.
        validation: For the fidelity figures of all tables.
        profile_shares: Table -> share of its profile, where the rest is for groups.
    """

    tables: Mapping[str, Price]
    links: Mapping[ForeignKey, Price]
    validation: Price
    profile_shares: Mapping[str, float] = field(default_factory=dict)

    def profile(self, table: Table) -> Price:
        """Return what is for the number of rows, one-way marginals and learned domains."""
        price = self.tables[table.name]
        return price.share(self.profile_shares[table.name]).with_delta(price.delta)

    def groups(self, table: Table) -> Price:
        """Return what is for the groups of a table."""
        return self.tables[table.name].share(1 - self.profile_shares[table.name])


def divided(schema: Schema, budget: Budget, validation: float) -> tuple[Price, Price, dict[str, float]]:
    """Return what a budget has for measuring and for fidelity figures, and the δ of each private table.

    It is an equal share where the table has lists to learn, so that lists of one table change no release of others.

    Raises:
        SpecError: Tables that cannot be sampled, or checks that can never hold.
        UnsupportedBudgetError: Lists of values to learn without a δ.
    """
    refuse_impossible(schema, budget)
    total, tables = budget.total(), schema.private_tables
    deltas = {table.name: total.delta / len(tables) if lists_to_learn(table) else 0.0 for table in tables}
    return total.share(1 - validation), total.share(validation), deltas


def group_prices(name: str, schema: Schema, budget: Budget, options: GroupOptions) -> Prices:
    """Return how a synthesizer of groups, of this name, divides a budget (PrivPetal, section 5).

    A table counts as one attribute more than it has, for its rows: with few columns these get a larger part, and at
    most half. Each list of values to learn counts as one more, which is all for the profile: a value that is not named
    is lost to every query. A link has a price for sizes of groups, or for pair tables with another parent.

    Raises:
        SpecError: Tables that cannot be sampled, or checks that can never hold.
        UnsupportedBudgetError: Pure privacy.
    """
    if budget.delta == 0:
        raise UnsupportedBudgetError(
            f"{name}: Gaussian noise has no pure form; run with delta > 0, or take another synthesizer"
        )
    measuring, validation, deltas = divided(schema, budget, options.validation)
    tables, links, profiles = dict[str, float](), dict[ForeignKey, float](), dict[str, float]()
    for table in schema.private_tables:
        own, lists = len(table.attributes), len(lists_to_learn(table))
        tables[table.name] = (1.0 if table.owner_key is None else options.members) * (1 + own + lists)
        profiles[table.name] = (lists + min(1 + options.profile * own, (1 + own) / 2)) / (lists + 1 + own)
        for key in table.foreign_keys:
            parent = schema.table(key.parent)
            above = 1 if parent.public or determined(schema, key) else 1 + len(parent.attributes)
            links[key] = options.links * (above if key.owner else above + own)
    weights = sum(tables.values()) + sum(links.values())
    return Prices(
        {name: measuring.share(weight / weights).with_delta(deltas[name]) for name, weight in tables.items()},
        {key: measuring.share(weight / weights) for key, weight in links.items()},
        validation,
        profiles,
    )
