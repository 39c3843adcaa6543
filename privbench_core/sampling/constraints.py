"""CHECK constraints over one row and functional dependencies, enforced while sampling.

DuckDB evaluates a check over the Arrow columns it names, if `enforceable_check` understands it. As in SQL, a check that
evaluates to NULL holds. Uses synthetic rows only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.arrays import Mask
from privbench_core.backends.scratch import scratch
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.row_constraints import MOVED, computed, is_missing, missing_where, moved, numbers_of
from privbench_core.guards import REDRAWING_ROUNDS, SETTLING_ROUNDS
from privbench_core.sampling.keys import group_numbers
from privbench_core.schema.checks import columns_of, enforceable_check
from privbench_core.schema.columns import Learn
from privbench_core.schema.constraints import Check, Dependency
from privbench_core.schema.row_constraints import InOrder, MissingTogether, MissingWhere, PartOfDate, RowConstraint
from privbench_core.schema.tables import Table

Arrays = Mapping[str, pa.Array]
Tree = Any  # an expression of sqlglot, whose kinds have different parts


@dataclass(frozen=True)
class RowRule:
    """A check that can be evaluated.

    Attributes:
        check: As declared in the schema.
        columns: The columns it names.
        sql: The condition in DuckDB's dialect.
    """

    check: Check
    columns: tuple[str, ...]
    sql: str

    def broken(self, columns: Arrays) -> Mask:
        """Return which rows break the check, shape (rows,); NULL does not."""
        with scratch() as connection:
            connection.register("drawn", pa.table({name: columns[name] for name in self.columns}))
            holds = f"SELECT coalesce(CAST(({self.sql}) AS BOOLEAN), true) AS holds FROM drawn"
            found = connection.sql(holds).to_arrow_table()
        return ~np.asarray(found.column("holds").to_numpy(), dtype=bool)


def row_rules(table: Table) -> tuple[RowRule, ...]:
    """Return the checks of a table that sampling enforces."""
    return tuple(rule for check in table.checks if (rule := _rule(table, check)) is not None)


def ignored_checks(table: Table) -> tuple[str, ...]:
    """Return the names of the checks that are in the DDL only."""
    return tuple(check.name for check in table.checks if _rule(table, check) is None)


@lru_cache(maxsize=1024)
def _rule(table: Table, check: Check) -> RowRule | None:
    """Return the rule of a check; None if it is more than a simple condition over columns that exist."""
    tree = enforceable_check(check.expression)
    if tree is None:
        return None
    names = {column.name for column in table.columns if not column.is_array}  # these are JSON here
    named = tuple(sorted(columns_of(tree)))
    if not named or not names.issuperset(named):
        return None
    import duckdb

    rule = RowRule(check, named, tree.transform(_plain).sql(dialect="duckdb"))

    try:
        rule.broken({name: pa.array([], table.column(name).arrow_type) for name in named})
    except duckdb.Error:
        return None
    return rule


def _plain(node: Tree) -> Tree:
    """Return the node without casts to user-defined types (enums): such values are text here."""
    from sqlglot import exp

    own = isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.USERDEFINED
    return node.this if own else node


def made_dependent(dependencies: Sequence[Dependency], columns: Arrays, free: frozenset[str]) -> dict[str, pa.Array]:
    """Return dependent columns, of those that are ``free``, with each determinant's most frequent drawn values."""
    changed: dict[str, pa.Array] = {}
    for _ in dependencies:  # a chain settles after as many rounds as it has links
        for rule in dependencies:
            now = {**columns, **changed}
            dependent = [name for name in rule.dependent if name in free]
            n = len(now[rule.determinant[0]])
            if not dependent or not n:
                continue
            given = group_numbers([now[name] for name in rule.determinant], n)
            drawn = group_numbers([_comparable(now[name]) for name in dependent], n)
            take = pa.array(_example_of_most(given, drawn))
            changed |= {name: now[name].take(take) for name in dependent}
    return changed


def made_to_satisfy(
    table: Table,
    constraints: Sequence[RowConstraint],
    columns: Arrays,
    discretizers: Mapping[str, Discretizer],
    rng: np.random.Generator,
) -> dict[str, pa.Array]:
    """Return the attributes that constraints change, so that rows satisfy them.

    Dates are moved to hours, and days, that are columns of their own, before what follows from dates is computed. A
    value that a constraint gives is left out where it is not in the declared domain of its column.
    """
    changed: dict[str, pa.Array] = {}

    def fits(name: str, values: pa.Array) -> Mask:
        if isinstance(table.column(name).domain, Learn):
            return np.ones(len(values), dtype=bool)
        codec = discretizers[name].codec
        return ~np.isin(codec.encode(pa.chunked_array([values])), codec.outside)

    def put(name: str, made: pa.Array) -> None:
        changed[name] = pc.if_else(pa.array(fits(name, made)), made, changed.get(name, columns[name]))

    moves = [each for each in constraints if isinstance(each, PartOfDate) and each.part in MOVED]
    for move in {(each.of, MOVED[each.part]): each for each in reversed(moves)}.values():
        put(move.of, moved(table, move, {**columns, **changed}))
    for constraint in constraints:
        now = {name: changed.get(name, columns[name]) for name in constraint.columns}
        if isinstance(constraint, MissingTogether):
            changed |= _missing_together(constraint.columns, now, rng)
            continue
        if isinstance(constraint, MissingWhere):
            changed[constraint.column] = _missing_where(constraint, now, rng)
            continue
        if isinstance(constraint, InOrder):
            changed |= _in_order(table, constraint, now, fits, rng)
            continue
        put(constraint.column, computed(table, constraint, now))
    return changed


def _missing_together(names: Sequence[str], columns: Arrays, rng: np.random.Generator) -> dict[str, pa.Array]:
    """Return columns that are NULL where the first one is; where only that is not, they are those of a row with all."""
    missing = {name: is_missing(columns[name]) for name in names}
    none = missing[names[0]]
    whole = np.flatnonzero(~np.logical_or.reduce(list(missing.values())))
    take = rng.choice(whole, len(none)) if len(whole) else np.arange(len(none))
    rows = np.arange(len(none))
    return {name: columns[name].take(pa.array(np.where(missing[name], take, rows), mask=none)) for name in names[1:]}


def _missing_where(constraint: MissingWhere, columns: Arrays, rng: np.random.Generator) -> pa.Array:
    """Return a column that is NULL where it has to be, and nowhere else: there, values of other rows fill it."""
    column = columns[constraint.column]
    missing, (wanted, unknown) = is_missing(column), missing_where(constraint, columns[constraint.of])
    there = np.flatnonzero(~missing & ~unknown & ~wanted)
    rows = np.arange(len(column))
    take = np.where(missing & ~unknown & ~wanted, rng.choice(there, len(rows)), rows) if len(there) else rows
    return column.take(pa.array(take, mask=np.where(unknown, missing, wanted)))


def _in_order(
    table: Table,
    constraint: InOrder,
    columns: Arrays,
    fits: Callable[[str, pa.Array], Mask],
    rng: np.random.Generator,
) -> dict[str, pa.Array]:
    """Return two columns so that one is at most the other.

    Rows that break it exchange the later value with another row, as both columns keep their distributions then; the few
    for which no such row is found exchange their own two values. Where only one of these ``fits`` the declared domain
    of the other column, both columns get it.
    """
    names = constraint.columns
    (first, null), (last, none) = (numbers_of(table.column(name), columns[name]) for name in names)
    known = np.flatnonzero(~(null | none))
    place = np.arange(len(last))
    for _ in range(len(known) and SETTLING_ROUNDS * REDRAWING_ROUNDS):
        broken = known[first[known] > last[place[known]]]
        if not len(broken):
            break
        other = rng.choice(known, len(broken))
        once = np.unique(other, return_index=True)[1]
        one, other = broken[once], other[once]
        both = (first[one] <= last[place[other]]) & (first[other] <= last[place[one]]) & ~np.isin(other, broken)
        one, other = one[both], other[both]
        place[one], place[other] = place[other], place[one]
    ends = columns[names[1]].take(pa.array(place))
    starts = columns[names[0]]
    turned = known[first[known] > last[place[known]]]

    def exchanged(name: str, own: pa.Array, other: pa.Array) -> pa.Array:
        takes = np.zeros(len(own), dtype=bool)
        takes[turned] = fits(name, other.take(pa.array(turned)))
        return pc.if_else(pa.array(takes), other, own)

    return {names[0]: exchanged(names[0], starts, ends), names[1]: exchanged(names[1], ends, starts)}


def _comparable(values: pa.Array) -> pa.Array:
    """Return values as numbers, NULL as one more value: a determinant may determine NULL."""
    return pc.fill_null(values.dictionary_encode().indices, -1)


def _example_of_most(given: NDArray[np.int64], drawn: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, per row, a row with the most frequent ``drawn`` among the rows of its ``given``; itself for -1."""
    rows = np.arange(len(given))
    pairs, first, which, counts = np.unique(
        np.stack([given, drawn], axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    best = np.lexsort((-counts, pairs[:, 0]))  # ties go to the value with the earliest row
    leads = best[np.unique(pairs[best, 0], return_index=True)[1]]
    group = np.unique(pairs[:, 0], return_inverse=True)[1][which.ravel()]
    return np.where(given >= 0, first[leads][group], rows)
