"""Rebind the literals of a public workload, so that its comparisons are as selective on the synthetic database.

**The rule.** The owner declares the text of the queries public; a workload generated from private rows is refused. For
each comparison of a column with a constant, the selectivity p on the source is estimated from the *released* noisy
one-way marginal of the column, never from the source. The new literal has that selectivity on the synthetic column.
Inputs are public text, released measurements and synthetic rows, so this is post-processing: it costs no budget.

Only the selectivity of single comparisons carries over. Conjunctions and joins are as accurate as the synthetic
database. `bind_missing` is for the owner's certificate alone: it reads the source, and its result stays internal.

==============================  =====================================================================================
comparison                      new literal
==============================  =====================================================================================
``<``, ``<=``, ``>``, ``>=``,   the literal of the nearest selectivity; unchanged where that is near enough
``BETWEEN``
``=``, ``IN``                   unchanged if the synthetic column has the value, else the value of the nearest share
a key ``=`` or ``IN``           the key of a random row, as in random workloads, because keys are regenerated
a key ``<`` and so on           the query is left out: no selectivity is released for keys
opaque text with a constant     the query is left out: synthetic text has no content
of a public table               unchanged, as the table is published unchanged
anything else                   unchanged: columns with columns, arithmetic on columns, ``<>``, ``NULL``
a placeholder (``$1``)          values of random rows, see `parameters`; hidden constants become placeholders
a statement that writes         none of its constants stays, see `writes`
==============================  =====================================================================================

For pgbench, a workload is a script for each transaction, and a shell script that runs them by their weights.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from privbench_core.errors import PublishError
from privbench_core.schema.columns import Column
from privbench_core.schema.documents import documents_to_learn
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload import Workload
from privbench_core.workload.anonymise import NOT_HIDDEN, hide_literals
from privbench_core.workload.engine import (
    PLACEHOLDERS,
    Engine,
    ResolvedQuery,
    UnansweredError,
    constant,
    is_regenerated,
    literal,
    resolve,
    with_schemas,
)
from privbench_core.workload.parameters import bind_parameters
from privbench_core.workload.values import RANGES, Distribution, Documents, ReleasedMarginal
from privbench_core.workload.writes import outline

Replacement = Callable[[Table, Column, str, Any], Any]
"""Maps a comparison (table, column, operator, literal) to the literal that takes its place, or to the same object."""
_OPERATORS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TEXT_TESTS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between, exp.Like, exp.ILike,
               exp.SimilarTo, exp.RegexpLike, exp.RegexpILike)  # fmt: skip


ReleasedMarginals = Mapping[str, Mapping[str, ReleasedMarginal]]
"""Released marginals by table and column."""


@dataclass(frozen=True)
class ReboundWorkload:
    """A workload for the synthetic database, safe to publish.

    Attributes:
        workload: The queries, in PostgreSQL's dialect, names quoted.
        rows: The cardinality of each on the synthetic database, or how many rows it writes.
        kept: Number of each query in the owner's workload, from 1.
        left_out: (number, reason) of the others.
        literals: Number of literals that were replaced in the kept queries.
        pgbench: Each kept query for pgbench, which draws new values for placeholders at every call.
    """

    workload: Workload
    rows: tuple[int, ...]
    kept: tuple[int, ...]
    left_out: tuple[tuple[int, str], ...]
    literals: int
    pgbench: tuple[str, ...]

    def to_sql(self) -> str:
        """Return the file for the bundle: each query with its cardinality, so that users can check what they load."""
        queries = zip(self.kept, self.rows, self.workload.statements, strict=True)
        return self.workload.script([f"-- query {n}: cardinality {rows:,}\n{s.annotations}" for n, rows, s in queries])


def rebind_workload(
    workload: Workload,
    schema: Schema,
    synthetic: Mapping[str, pa.Table],
    released: ReleasedMarginals,
    rng: np.random.Generator,
) -> ReboundWorkload:
    """Bind the literals of a public workload to the synthetic database; see the module for the rule.

    Args:
        workload: Queries whose text the owner declares public.
        schema: The database.
        synthetic: Rows of the synthetic database; queries that take too long on them are left out.
        released: Released marginals. A column without one keeps its literals.
        rng: Draws keys, and values inside released bins.

    Raises:
        PublishError: The workload was generated from private rows.
    """
    if workload.internal:
        raise PublishError(
            "workload: its literals are values of private rows, so it must not be published; "
            "publish one that is generated from the synthetic database, or declare your own queries public"
        )
    binder = _Binder(schema, synthetic, released, rng)
    engine, documents = Engine(synthetic), Documents(schema, synthetic)
    statements, rows, kept, left_out, scripts = [], [], [], [], []
    literals = 0
    for number, statement in enumerate(workload.statements, start=1):
        try:
            write = None
            if statement.writes:
                query = resolve(statement.sql, workload.dialect, engine.catalogue, writes=True)
                write = outline(query, schema, number, engine)
            else:
                query = engine.resolve(statement.sql, workload.dialect)
            if workload.hide_literals or write:
                hide_literals(query, engine.functions, documents)
            replaced = binder.bind(query) if write is None else 0
            bound = bind_parameters(query, schema, synthetic, documents, rng, write)
            rows.append(engine.cardinality(query) if write is None else write.rows())
        except UnansweredError as reason:
            left_out.append((number, NOT_HIDDEN if workload.hide_literals else str(reason)))
            continue
        text = with_schemas(query.tree, schema.schemas).sql(dialect="postgres")
        name = "" if workload.hide_literals else statement.name
        statements.append(replace(statement, sql=text, stated=None, name=name))
        replay = with_schemas(bound.replay, schema.schemas).sql(dialect="postgres")
        scripts.append("\n".join([*bound.variables, f"{replay};"]))
        kept.append(number)
        literals += replaced + bound.placeholders
    found = tuple(rows), tuple(kept), tuple(left_out), literals, tuple(scripts)
    return ReboundWorkload(Workload(tuple(statements)), *found)


def bind_missing(
    workload: Workload, schema: Schema, source: Mapping[str, pa.Table], synthetic: Mapping[str, pa.Table]
) -> Workload:
    """Replace the literals that rows of the source meet and no synthetic row does, such as a name that is not there.

    Each becomes the literal whose share of the synthetic rows is nearest to its own of the source's. Columns, not
    tables, are compared. Internal: the shares are those of private rows.
    """
    catalogue = {name: rows.column_names for name, rows in synthetic.items()}
    constants = Engine({})

    @cache
    def both(table: str, column: str) -> tuple[Distribution, Distribution]:
        return Distribution.of(source[table][column]), Distribution.of(synthetic[table][column])

    def replacement(table: Table, column: Column, operator: str, value: Any) -> Any:
        if operator in RANGES and not column.type.ordered:
            return value
        on_source, on_bundle = both(table.name, column.name)
        share = on_source.share(operator, value)
        return on_bundle.value_for(operator, share, value) if share and not on_bundle.share(operator, value) else value

    statements = []
    for statement in workload.statements:
        try:
            query = resolve(statement.sql, workload.dialect, catalogue)
        except UnansweredError:
            statements.append(statement)  # whoever runs it says why it fails
            continue
        changed = _replace_literals(query, schema, constants, replacement)
        statements.append(replace(statement, sql=query.tree.sql(dialect=workload.dialect)) if changed else statement)
    return replace(workload, statements=tuple(statements))


def _replace_literals(query: ResolvedQuery, schema: Schema, constants: Engine, replacement: Replacement) -> int:
    """Replace the constants that columns of private tables are compared with, in place; return how many changed."""
    changed = 0
    for node, operator, operand in list(_comparisons(query.tree)):
        found, value = query.column(node, schema), constant(operand, constants)
        if found is None or value is None or found[0].public:
            continue
        try:
            # PostgreSQL reads quoted text in the type of the column that it is compared with.
            dated = found[1].logical.calendar and isinstance(value, str)
            typed = dt.datetime.fromisoformat(value) if dated else value
            new = replacement(*found, operator, typed)
        except (ValueError, TypeError, pa.ArrowException):
            continue  # the constant does not fit the column's type; the database decides
        if new is not typed:
            operand.replace(sqlglot.parse_one(literal(new) or "NULL", read="postgres"))
            changed += new != value
    return changed


class _Binder:
    """Replaces the literals of a query."""

    def __init__(
        self, schema: Schema, synthetic: Mapping[str, pa.Table], released: ReleasedMarginals, rng: np.random.Generator
    ) -> None:
        self._schema, self._synthetic, self._released, self._rng = schema, synthetic, released, rng
        self._constants = Engine({})
        self._distributions: dict[tuple[str, str], tuple[Distribution, Distribution]] = {}

    def bind(self, query: ResolvedQuery) -> int:
        """Replace literals in place and return how many changed; raise UnansweredError if a query must be left out."""
        for test in list(query.tree.find_all(*_TEXT_TESTS)):
            self._refuse_text(test, query)
        return _replace_literals(query, self._schema, self._constants, self._value)

    def _value(self, table: Table, column: Column, operator: str, value: Any) -> Any:
        if column.name in table.key_columns:
            return self._key(table, column, operator, value)
        if column.name not in self._released.get(table.name, {}):
            return value
        if operator in RANGES and not column.type.ordered:
            return value
        released, synthetic = self._distribution(table, column)
        return synthetic.value_for(operator, released.share(operator, value), value)

    def _key(self, table: Table, column: Column, operator: str, value: Any) -> Any:
        if not is_regenerated(self._schema, table, column):
            return value
        if operator != "=":
            raise UnansweredError(f"{table.name}.{column.name}: compares a key, and keys are regenerated")
        keys = self._synthetic[table.name][column.name].drop_null()
        if not len(keys):
            raise UnansweredError(f"{table.name}.{column.name}: has no value in the synthetic database")
        return keys[int(self._rng.integers(len(keys)))].as_py()

    def _distribution(self, table: Table, column: Column) -> tuple[Distribution, Distribution]:
        """Return the column's released and synthetic distribution."""
        place = (table.name, column.name)
        if place not in self._distributions:
            rows = self._synthetic[table.name][column.name]
            released = self._released[table.name][column.name].distribution(self._rng)
            self._distributions[place] = released, Distribution.of(rows)
        return self._distributions[place]

    def _refuse_text(self, test: exp.Expr, query: ResolvedQuery) -> None:
        literals = [node for node in test.find_all(exp.Literal) if not isinstance(node.parent, PLACEHOLDERS)]
        if test.find(exp.Query) is not None or not literals:
            return
        for node in test.find_all(exp.Column):
            found = query.column(node, self._schema)
            if (
                found
                and found[1].name not in found[0].key_columns
                and is_regenerated(self._schema, *found)
                and not documents_to_learn((found[1],))
            ):
                raise UnansweredError(f"{found[0].name}.{found[1].name}: compares opaque text, which is regenerated")


def _comparisons(tree: exp.Expr) -> Iterator[tuple[exp.Column, str, exp.Expr]]:
    """Yield (column, operator, operand) for every comparison of a plain column."""
    for node in tree.find_all(*_OPERATORS):
        operator = _OPERATORS[type(node)]
        left, right = node.this.unnest(), node.expression.unnest()
        if isinstance(left, exp.Column):
            yield left, operator, right
        elif isinstance(right, exp.Column):
            yield right, _MIRRORED[operator], left
    for node in tree.find_all(exp.Between):
        if isinstance(node.this, exp.Column):
            yield node.this, ">=", node.args["low"]
            yield node.this, "<=", node.args["high"]
    for node in tree.find_all(exp.In):
        if isinstance(node.this, exp.Column) and not isinstance(node.parent, exp.Not):
            for item in node.expressions:
                yield node.this, "=", item


def pgbench_files(rebound: ReboundWorkload) -> dict[str, str]:
    """Return the files of a workload's replay by name: ``run.sh``, and the scripts that it runs.

    The transactions of largest weight are kept, as many as pgbench takes. Those that write are rolled back, unless
    the variable ``finish`` is COMMIT.
    """
    statements, groups = rebound.workload.statements, rebound.workload.transactions
    most, heaviest = 128, 1_000_000  # scripts that pgbench takes at a time, and a weight, which it reads as int
    kept = sorted(groups, key=lambda group: -statements[group[0]].weight)[:most]
    largest = max(statements[group[0]].weight for group in kept)
    files: dict[str, str] = {}
    options = []
    for group in sorted(kept, key=lambda group: group[0]):
        first = statements[group[0]]
        weight = first.weight
        if largest > heaviest and weight:
            weight = max(1, weight * heaviest // largest)
        name = re.sub(r"[^\w-]+", "-", f"{rebound.kept[group[0]]:03} {first.name}".strip()) + ".sql"
        body = []
        for i in group:
            body += [rebound.pgbench[i], *([f"\\sleep {statements[i].think} ms"] if statements[i].think else [])]
        end = ":finish;" if rebound.workload.writes(group) else "COMMIT;"
        files[name] = "\n".join([*(["BEGIN;", *body, end] if rebound.workload.is_block(group) else body), ""])
        options.append(f"  -f {shlex.quote(f'{name}@{weight}')}")
    head = "#!/bin/sh\n# Runs the workload with pgbench, which also reads the options given here.\n"
    if left_out := len(groups) - len(kept):
        head += f"# {left_out} transactions of least weight are left out: pgbench takes {most} scripts.\n"
    if any(statement.writes for statement in statements):
        head += "# What it writes is rolled back. On a copy of the database, -D finish=COMMIT keeps it.\n"
        options += ["  -D finish=ROLLBACK -D written=0"]
    head += 'cd "$(dirname "$0")" && exec pgbench --no-vacuum \\\n'
    return {"run.sh": head + " \\\n".join([*options, '  "$@"']) + "\n", **files}
