"""CHECK constraints over one row and functional dependencies, enforced while sampling.

DuckDB evaluates a check over the Arrow columns it names, if `enforceable_check` understands it. As in SQL, a check that
evaluates to NULL holds. Uses synthetic rows only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.backends.duckdb.connections import scratch
from privbench_core.sampling.row_groups import group_numbers
from privbench_core.schema.checks import columns_of, enforceable_check
from privbench_core.schema.constraints import Check, Dependency
from privbench_core.schema.tables import Table

Arrays = Mapping[str, pa.Array]
Mask = NDArray[np.bool_]
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
        rows = pa.table({name: columns[name] for name in self.columns})
        return ~_evaluate(f"coalesce(CAST(({self.sql}) AS BOOLEAN), true)", rows)


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


def _evaluate(sql: str, rows: pa.Table) -> Mask:
    with scratch() as connection:
        connection.register("drawn", rows)
        found = connection.sql(f"SELECT {sql} AS holds FROM drawn").to_arrow_table()
    return np.asarray(found.column("holds").to_numpy(), dtype=bool)


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
