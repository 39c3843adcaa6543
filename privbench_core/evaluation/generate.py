"""Random workloads by the recipe of MSCN (Kipf et al., "Learned Cardinalities", CIDR 2019, section 3.5).

A query joins a random connected set of tables along foreign keys. Each table has a random number of predicates, with
one of =, < and > and the column's value in a random row as the literal. Queries without result are redrawn, and none
repeats.

Literals are values of private rows, so a workload is internal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from privbench_core.backends.postgres.ddl import join_condition, quote_identifier
from privbench_core.errors import SourceError
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload.engine import Engine, UnansweredError, literal
from privbench_core.workload.statements import Statement, Workload

_OPERATORS = ("=", "<", ">")
QUERY_SECONDS = 5.0  # seconds to count a query; slower ones are dropped


@dataclass(frozen=True)
class Recipe:
    """Parameters of a random workload."""

    queries: int = 200
    max_joins: int = 2  # each query has ``min_joins`` to this many, as far as the keys allow
    max_predicates: int = 3  # each table has 0 to this many, as far as its columns allow
    seed: int = 0
    min_joins: int = 0


def generate_workload(
    schema: Schema, tables: Mapping[str, pa.Table], recipe: Recipe, *, engine: Engine | None = None
) -> Workload:
    """Draw at most ``recipe.queries`` different queries with a result; fewer where the database is too small.

    Equal rows in equal order give the same workload, unless a query times out on one machine and not on another. An
    ``engine`` that holds the tables already keeps the answers.

    Raises:
        SourceError: No table has a row.
    """
    filled = [table.name for table in schema.tables if tables[table.name].num_rows]
    if not filled:
        raise SourceError(f"{schema.name}: no table has rows, so no query can be generated; give a source with rows")
    engine, rng = engine or Engine(tables, QUERY_SECONDS), np.random.default_rng(recipe.seed)
    kept: dict[str, Statement] = {}
    for _ in range(20 * recipe.queries):  # small databases have few queries with a result
        sql = _query(schema, tables, filled, recipe, rng)
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


def _query(
    schema: Schema, tables: Mapping[str, pa.Table], filled: Sequence[str], recipe: Recipe, rng: np.random.Generator
) -> str:
    # A self-join would need aliases, which the recipe does not have.
    keys = [key for table in schema.tables for key in table.foreign_keys if key.child != key.parent]
    linked = [name for name in filled if any(name in {key.child, key.parent} for key in keys)]
    joins = int(rng.integers(recipe.min_joins, recipe.max_joins + 1)) if linked else 0
    joined = [_one(linked if joins else filled, rng)]
    conditions: list[str] = []
    for _ in range(joins):
        edges = [key for key in keys if (key.child in joined) != (key.parent in joined)]
        edges = [key for key in edges if key.child in filled and key.parent in filled]
        if not edges:
            break
        edge = edges[int(rng.integers(len(edges)))]
        joined.append(edge.parent if edge.child in joined else edge.child)
        conditions.append(join_condition(edge))
    for name in joined:
        conditions += _predicates(schema.table(name), tables[name], recipe.max_predicates, rng)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT COUNT(*) FROM {', '.join(map(quote_identifier, joined))}{where}"


def _predicates(table: Table, rows: pa.Table, most: int, rng: np.random.Generator) -> Iterator[str]:
    usable = [c for c in table.attributes if not c.type.opaque and c.logical.compares_alike]
    count = int(rng.integers(min(most, len(usable)) + 1))
    for position in sorted(rng.choice(len(usable), count, replace=False)) if count else ():
        column = usable[position]
        operator = _one(_OPERATORS, rng) if column.type.ordered else "="
        text = literal(rows[column.name][int(rng.integers(rows.num_rows))].as_py())
        if text is not None:
            yield f"{quote_identifier(table.name)}.{quote_identifier(column.name)} {operator} {text}"


def _one(options: Sequence[str], rng: np.random.Generator) -> str:
    return options[int(rng.integers(len(options)))]
