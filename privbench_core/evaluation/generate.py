"""Random workloads by the recipe of MSCN (Kipf et al., "Learned Cardinalities", CIDR 2019, section 3.5).

A query joins a random connected set of tables along foreign keys. Each table has a random number of predicates, with
one of =, < and > and the column's value in a random row as the literal. Queries without result are redrawn, and none
repeats.

Literals are values of private rows, so a workload is internal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.errors import SourceError
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload.engine import Engine, UnansweredError, literal
from privbench_core.workload.statements import Statement, Workload

_OPERATORS = ("=", "<", ">")
QUERY_SECONDS = 5.0  # seconds to count a query; slower ones are dropped


@dataclass(frozen=True)
class Recipe:
    """Parameters of a random workload.

    Attributes:
        queries: Number of queries.
        max_joins: Each query has ``min_joins`` to this many joins, as far as the keys allow.
        max_predicates: Each table has 0 to this many predicates, as far as its columns allow.
        seed: Seed of the draw.
        min_joins: See ``max_joins``.
    """

    queries: int = 200
    max_joins: int = 2
    max_predicates: int = 3
    seed: int = 0
    min_joins: int = 0


def generate_workload(
    schema: Schema, tables: Mapping[str, pa.Table], recipe: Recipe, *, engine: Engine | None = None
) -> Workload:
    """Draw a workload.

    Args:
        schema: Tables and keys.
        tables: Rows to take literals from, by table; equal rows in equal order give the same workload (unless a query
            times out on one machine and not on another).
        recipe: Parameters of the workload.
        engine: Holds ``tables`` already, and keeps the answers; None makes one.

    Returns:
        At most ``recipe.queries`` different queries with a result; fewer where the database is too small.

    Raises:
        SourceError: No table has a row.
    """
    engine = engine or Engine(tables, QUERY_SECONDS)
    draft = _QueryDraft(schema, tables, recipe, np.random.default_rng(recipe.seed))
    if not draft.filled:
        raise SourceError(f"{schema.name}: no table has a row, so no query can be drawn; give a source with rows")
    kept: dict[str, Statement] = {}
    for _ in range(20 * recipe.queries):  # small databases have few queries with a result
        sql = draft.query()
        if sql not in kept and _finds_rows(engine, sql):
            kept[sql] = Statement(sql)
        if len(kept) == recipe.queries:
            break
    return Workload(tuple(kept.values()), internal=True)


def _finds_rows(engine: Engine, sql: str) -> bool:
    try:
        return engine.cardinality(engine.resolve(sql)) > 0
    except UnansweredError:
        return False


class _QueryDraft:
    """Draws queries as text."""

    def __init__(
        self, schema: Schema, tables: Mapping[str, pa.Table], recipe: Recipe, rng: np.random.Generator
    ) -> None:
        self._schema, self._tables, self._recipe, self._rng = schema, tables, recipe, rng
        self.filled = [table.name for table in schema.tables if tables[table.name].num_rows]
        # A self-join would need aliases, which the recipe does not have.
        self._keys = [k for table in schema.tables for k in table.foreign_keys if k.child != k.parent]
        self._linked = [name for name in self.filled if any(name in {k.child, k.parent} for k in self._keys)]

    def query(self) -> str:
        least, most = self._recipe.min_joins, self._recipe.max_joins
        joins = int(self._rng.integers(least, most + 1)) if self._linked else 0
        tables = [self._one(self._linked if joins else self.filled)]
        conditions: list[str] = []
        for _ in range(joins):
            edges = [k for k in self._keys if (k.child in tables) != (k.parent in tables)]
            edges = [k for k in edges if k.child in self.filled and k.parent in self.filled]
            if not edges:
                break
            edge = edges[int(self._rng.integers(len(edges)))]
            tables.append(edge.parent if edge.child in tables else edge.child)
            conditions += _join(edge)
        for name in tables:
            conditions += self._predicates(self._schema.table(name))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"SELECT COUNT(*) FROM {', '.join(map(quote_identifier, tables))}{where}"

    def _predicates(self, table: Table) -> Iterator[str]:
        usable = [c for c in table.attributes if not c.type.opaque and c.logical.compares_alike]
        count = int(self._rng.integers(min(self._recipe.max_predicates, len(usable)) + 1))
        for position in sorted(self._rng.choice(len(usable), count, replace=False)) if count else ():
            column = usable[position]
            operator = self._one(_OPERATORS) if column.type.ordered else "="
            rows = self._tables[table.name]
            text = literal(rows[column.name][int(self._rng.integers(rows.num_rows))].as_py())
            if text is not None:
                yield f"{quote_identifier(table.name)}.{quote_identifier(column.name)} {operator} {text}"

    def _one(self, options: Any) -> str:
        return str(options[int(self._rng.integers(len(options)))])


def _join(key: ForeignKey) -> Iterator[str]:
    child, parent = quote_identifier(key.child), quote_identifier(key.parent)
    for mine, theirs in zip(key.columns, key.parent_columns, strict=True):
        yield f"{child}.{quote_identifier(mine)} = {parent}.{quote_identifier(theirs)}"
