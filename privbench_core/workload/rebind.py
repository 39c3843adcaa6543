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
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.errors import PublishError
from privbench_core.schema.columns import Column
from privbench_core.schema.documents import documents_to_learn
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload.anonymise import NOT_HIDDEN, hide_literals
from privbench_core.workload.engine import (
    PLACEHOLDERS,
    TIMEOUT_SECONDS,
    Engine,
    ResolvedQuery,
    UnansweredError,
    constant,
    is_regenerated,
    literal,
    resolve,
    with_schemas,
)
from privbench_core.workload.json_paths import Documents
from privbench_core.workload.parameters import bind_parameters
from privbench_core.workload.statements import Workload
from privbench_core.workload.writes import outline

Floats = NDArray[np.float64]
Replacement = Callable[[Table, Column, str, Any], Any]
"""Maps a comparison (table, column, operator, literal) to the literal that takes its place, or to the same object."""
RANGES = ("<", "<=", ">", ">=")
_EPOCH = dt.datetime(1970, 1, 1)
_OPERATORS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TEXT_TESTS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between, exp.Like, exp.ILike,
               exp.SimilarTo, exp.RegexpLike, exp.RegexpILike)  # fmt: skip


@dataclass(frozen=True)
class ReleasedMarginal:
    """A column's one-way marginal, as released by a profile step.

    Attributes:
        discretizer: Maps values to codes and back.
        counts: Noisy counts of the codes; negative ones count as 0.
    """

    discretizer: Discretizer
    counts: Floats

    def distribution(self, rng: np.random.Generator) -> Distribution:
        """Return the marginal over values: codes in proportion to their counts, decoded like synthetic rows."""
        weights = np.maximum(self.counts, 0)
        weights = weights if weights.sum() > 0 else np.ones(len(weights))
        drawn = 50_000  # values, so shares are accurate to 1 in 50,000
        expected = np.cumsum(weights) / weights.sum() * drawn
        positions = np.searchsorted(expected, np.arange(drawn) + 0.5, side="right")
        codes: Codes = np.minimum(positions, len(weights) - 1).astype(np.int32)
        return Distribution.of(self.discretizer.decode(codes, rng))


@dataclass(frozen=True)
class Distribution:
    """The values of a column.

    Attributes:
        values: Distinct values, ascending.
        numbers: The values as numbers, shape (values,); for text, which is only compared for equality, positions.
        weights: Number of rows of each value.
        total: Number of all rows, including NULLs.
    """

    values: pa.Array
    numbers: Floats
    weights: Floats
    total: float

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Distribution:
        """Return the distribution of a column's rows."""
        counts = pc.value_counts(column.drop_null())
        order = pc.sort_indices(counts.field("values"))
        values = counts.field("values").take(order)
        return cls(values, _numbers(values), np.asarray(counts.field("counts").take(order), float), float(len(column)))

    def share(self, operator: str, value: Any) -> float:
        """Return the share of rows for which ``column operator value`` is true."""
        if operator == "=":
            position = self._position(value)
            return 0.0 if position is None or not self.total else float(self.weights[position]) / self.total
        number = _number(value)
        smaller = int(np.searchsorted(self.numbers, number, "left" if operator in {"<", ">="} else "right"))
        below = float(self.weights[:smaller].sum())
        matching = below if operator in {"<", "<="} else float(self.weights.sum()) - below
        return matching / self.total if self.total else 0.0

    def value_for(self, operator: str, share: float, value: Any) -> Any:
        """Return a literal for which ``column operator literal`` is true for about ``share`` of the rows.

        Args:
            operator: ``=`` or one of `RANGES`.
            share: The target, in [0, 1].
            value: The present literal. It is kept if it is close enough, and breaks ties.

        Returns:
            ``value``, or one of `values`.
        """
        if not len(self.values):
            return value
        if operator == "=":
            if self._position(value) is not None:
                return value
            shares, mine = self.weights / self.total, np.inf
        else:
            mine = abs(self.share(operator, value) - share)
            shares = self._shares(operator)
        off = np.abs(shares - share)
        if mine <= max(float(off.min()), 0.05 * share):  # near enough: the literal is kept
            return value
        best = np.flatnonzero(off <= off.min() + 1e-12)
        away = np.abs(self.numbers[best] - (0.0 if isinstance(value, str) else _number(value)))
        return self.values[int(best[int(np.argmin(away))])].as_py()

    def _shares(self, operator: str) -> Floats:
        """Return the share of rows for each of `values` as the literal."""
        upto = np.cumsum(self.weights)
        below = upto - self.weights
        matching = {"<": below, "<=": upto, ">": upto[-1] - upto, ">=": upto[-1] - below}[operator]
        return np.asarray(matching / self.total, np.float64)

    def _position(self, value: Any) -> int | None:
        """Return the position of a value in `values`."""
        if isinstance(value, str) or pa.types.is_string(self.values.type) or pa.types.is_boolean(self.values.type):
            found = pc.index(self.values, pa.scalar(value)).as_py() if len(self.values) else -1
            return found if found >= 0 else None
        position = int(np.searchsorted(self.numbers, _number(value)))
        return position if position < len(self.numbers) and self.numbers[position] == _number(value) else None


def _number(value: Any) -> float:
    """Return a literal as a number, like `_numbers`: microseconds since 1970 for dates and timestamps."""
    if isinstance(value, dt.datetime):
        naive = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        return (naive - _EPOCH) / dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()) / dt.timedelta(microseconds=1)
    return float(value)


def _numbers(values: pa.Array) -> Floats:
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(values.type):
        return np.asarray(values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).to_numpy(), np.float64)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        return np.asarray(pc.cast(values, pa.float64(), safe=False).to_numpy(), np.float64)
    return np.arange(len(values), dtype=np.float64)


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
    *,
    timeout: float = TIMEOUT_SECONDS,
) -> ReboundWorkload:
    """Bind the literals of a public workload to the synthetic database; see the module for the rule.

    Args:
        workload: Queries whose text the owner declares public.
        schema: The database.
        synthetic: Rows of the synthetic database.
        released: Released marginals. A column without one keeps its literals.
        rng: Draws keys, and values inside released bins.
        timeout: Time limit of a query on the synthetic database, in seconds; slower queries are left out.

    Raises:
        PublishError: The workload was generated from private rows.
    """
    if workload.internal:
        raise PublishError(
            "workload: its literals are values of private rows, so it must not be published; "
            "publish one that is generated from the synthetic database, or declare your own queries public"
        )
    binder = _Binder(schema, synthetic, released, rng)
    engine, documents = Engine(synthetic, timeout), Documents(schema, synthetic)
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
