"""Bind the placeholders of queries (``$1``) to values of the synthetic database, and let pgbench draw new ones.

A placeholder that is compared with a column, or with an expression of one, gets the value of a random row, so frequent
values are asked for often. Placeholders on the same table get values of the same row, lower and upper bounds in this
order. Patterns of LIKE get a prefix. The limit is 10, the offset 0, a unit of time is a month, and any other
placeholder '1'.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from privbench_core.backends.postgres.ddl import sql_type
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload.engine import ResolvedQuery, UnansweredError, literal
from privbench_core.workload.json_paths import Documents

DRAWS = 50
"""Rows whose values pgbench chooses from, per table of a query; chosen by hand."""

PLACEHOLDERS = (exp.Parameter, exp.Placeholder)
_TESTS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like, exp.ILike,
          exp.SimilarTo, exp.RegexpLike, exp.RegexpILike)  # fmt: skip
_LOWER, _UPPER = (exp.GT, exp.GTE), (exp.LT, exp.LTE)


@dataclass(frozen=True)
class BoundParameters:
    """What pgbench runs.

    Attributes:
        replay: The query with variables in place of its placeholders.
        variables: Lines of pgbench that set them.
        placeholders: Number of placeholders that were bound.
    """

    replay: exp.Query
    variables: tuple[str, ...]
    placeholders: int


@dataclass(frozen=True)
class _Slot:
    """A placeholder with the column that it is compared with.

    Attributes:
        operand: The node to replace.
        side: The other side of the comparison.
        node: The column in ``side``, or a JSON path that begins there.
        table: Its table.
        column: What the schema says on it, or what the path leads to.
        bound: -1 for a lower bound of ``side``, 1 for an upper bound, else 0.
        pattern: Whether the operand is a pattern of LIKE.
        qualifier: Alias or name of the table in the query.
        values: The synthetic values of the column.
    """

    operand: exp.Expr
    side: exp.Expr
    node: exp.Expr
    table: Table
    column: Column
    bound: int
    pattern: bool
    qualifier: str
    values: pa.ChunkedArray

    def filled(self, value: exp.Expr) -> exp.Expr:
        """Return the other side of the comparison with a value in place of its column."""
        return self.side.transform(lambda node: value.copy() if node == self.node else node)


def is_constant(node: exp.Expr) -> bool:
    """Return whether an expression reads no row."""
    return node.find(exp.Column, exp.Query, exp.AggFunc, exp.Window, exp.Star) is None


def operands(tree: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yield both (operand, other side) of every comparison; those of BETWEEN and of lists, in this order only."""
    for test in tree.find_all(*_TESTS):
        yield test.expression, test.this
        yield test.this, test.expression
    for between in tree.find_all(exp.Between):
        yield between.args["low"], between.this
        yield between.args["high"], between.this
    for listed in tree.find_all(exp.In):
        for item in listed.expressions:
            yield item, listed.this


def neutral(node: exp.Expr) -> exp.Expr:
    """Return a constant that fits where ``node`` is; it depends on the type and place of ``node`` only."""
    parent, text = node.parent, exp.Literal.string
    if isinstance(parent, exp.Limit | exp.Fetch | exp.Offset):
        return exp.Literal.number(0 if isinstance(parent, exp.Offset) else 10)
    if isinstance(parent, exp.TimestampTrunc | exp.DateTrunc) and node.arg_key == "unit":
        return text("MONTH")
    if isinstance(parent, exp.AtTimeZone) and node.arg_key == "zone":
        return text("UTC")
    if isinstance(node, exp.Interval):
        return exp.Interval(this=text("1 DAY"))
    if isinstance(node, exp.Cast):
        if node.to.is_type(*exp.DataType.TEMPORAL_TYPES):
            return exp.cast(text("2000-01-01"), node.to.copy())
        return exp.Interval(this=text("1 DAY")) if node.to.is_type(exp.DType.INTERVAL) else text("1")
    if isinstance(node, exp.Boolean):
        return exp.true()
    numbers = node.find(exp.Literal)
    return exp.Literal.number(1) if numbers is not None and not numbers.is_string and not _open(node) else text("1")


def bind_parameters(
    query: ResolvedQuery,
    schema: Schema,
    synthetic: Mapping[str, pa.Table],
    documents: Documents,
    rng: np.random.Generator,
) -> BoundParameters:
    """Bind the placeholders of a query in place.

    Args:
        query: The query.
        schema: The database.
        synthetic: Rows of the synthetic database.
        documents: Their JSON documents.
        rng: Draws rows.

    Raises:
        UnansweredError: A column that a placeholder is compared with has no value that a query can hold.
    """
    tree = query.tree
    _lists_as_in(tree)
    slots = [*_slots(query, schema, synthetic, documents)]
    by_alias: dict[str, list[tuple[str, _Slot]]] = defaultdict(list)
    for number, slot in enumerate(slots):
        marker = f"slot_{number}"
        by_alias[slot.qualifier].append((marker, slot))
        slot.operand.replace(exp.Placeholder(this=marker))
    once: dict[str, exp.Expr] = {}
    repeated: dict[str, exp.Expr] = {}
    variables = []
    for number, group in enumerate(by_alias.values(), start=1):
        drawn = _drawn([slot for _, slot in group], rng)
        dense = _dense([slot for _, slot in group])
        name = f"{'key' if dense else 'row'}_{number}"
        low, high = dense or (1, DRAWS)
        variables.append(f"\\set {name} random({low}, {high})")
        for (marker, slot), values in zip(group, drawn, strict=True):
            kind = "text" if slot.pattern else sql_type(slot.column, schema.schemas)
            chosen = f":{name}" if dense else f"(ARRAY[{', '.join(values)}]::{kind}[])[:{name}]"
            once[marker] = slot.filled(sqlglot.parse_one(values[0], read="postgres"))
            repeated[marker] = slot.filled(exp.Var(this=chosen))
    for node in [*tree.find_all(*PLACEHOLDERS)]:
        if node.name not in once:
            node.replace(neutral(node))
    replay = tree.copy()
    for target, filled in ((tree, once), (replay, repeated)):
        for node in [*target.find_all(exp.Placeholder)]:
            node.replace(filled[node.name])
    return BoundParameters(replay, tuple(variables), len(slots))


def _lists_as_in(tree: exp.Query) -> None:
    """Write ``= ANY($1)`` as the list that PostgreSQL makes of it: IN with three placeholders."""
    for test in [*tree.find_all(exp.EQ)]:
        if isinstance(test.expression, exp.Any) and _open(test.expression) and is_constant(test.expression):
            items = [exp.Parameter(this=exp.Literal.number(1)) for _ in range(3)]
            test.replace(exp.In(this=test.this.copy(), expressions=items))


def _open(node: exp.Expr) -> bool:
    return node.find(*PLACEHOLDERS) is not None


def _slots(
    query: ResolvedQuery, schema: Schema, synthetic: Mapping[str, pa.Table], documents: Documents
) -> Iterator[_Slot]:
    for operand, side in operands(query.tree):
        columns = [*side.find_all(exp.Column)]
        if len(columns) != 1 or _open(side) or not _open(operand) or not is_constant(operand):
            continue
        found = None if side.find(exp.Query, exp.AggFunc, exp.Window) else query.column(columns[0], schema)
        if found is not None:
            test = operand.parent
            mirrored = -1 if test is not None and test.this is operand else 1
            bound = -1 if isinstance(test, _LOWER) else 1 if isinstance(test, _UPPER) else 0
            bound = {"low": -1, "high": 1}.get(operand.arg_key or "", bound * mirrored)
            table, column = found
            node, column, values = documents.leaf(query, columns[0]) or (
                columns[0], column, synthetic[table.name][column.name]
            )  # fmt: skip
            pattern = isinstance(test, exp.Like | exp.ILike) and side is node
            yield _Slot(operand, side, node, table, column, bound, pattern, columns[0].table or table.name, values)


def _drawn(group: list[_Slot], rng: np.random.Generator) -> list[list[str]]:
    """Return `DRAWS` literals for each slot on a table: values of the same rows, where no column is used twice."""
    names = {slot.column.name for slot in group}
    there = {slot.column.name: np.asarray(pc.is_valid(slot.values)) for slot in group}
    present = np.logical_and.reduce([*there.values()])
    used: Counter[str] = Counter()
    positions: dict[int, np.ndarray[Any, Any]] = {}
    values: list[list[Any]] = []
    for slot in group:
        name = slot.column.name
        occurrence, used[name] = used[name], used[name] + 1
        found = np.flatnonzero(present if present.any() else there[name])
        if not len(found):
            raise UnansweredError(f"{slot.table.name}.{name}: has no value in the synthetic database")
        if occurrence not in positions or not present.any():
            positions[occurrence] = rng.choice(found, DRAWS)
        values.append(slot.values.take(pa.array(positions[occurrence])).to_pylist())
    for name in names:
        lower = [v for v, slot in zip(values, group, strict=True) if slot.column.name == name and slot.bound < 0]
        upper = [v for v, slot in zip(values, group, strict=True) if slot.column.name == name and slot.bound > 0]
        for low, high in zip(lower, upper, strict=False):
            low[:], high[:] = zip(*map(sorted, zip(low, high, strict=True)), strict=True)
    return [_literals(slot, drawn) for slot, drawn in zip(group, values, strict=True)]


def _literals(slot: _Slot, values: list[Any]) -> list[str]:
    if slot.pattern:
        values = [_prefix(str(value)) for value in values]
    written = [literal(value) for value in values]
    found = [text for text in written if text is not None]
    if len(found) < len(written):
        raise UnansweredError(f"{slot.table.name}.{slot.column.name}: holds values that a query cannot name")
    return found


def _prefix(value: str) -> str:
    """Return a pattern of LIKE for texts that begin with the first half of ``value``."""
    half = value[: (len(value) + 1) // 2]
    return "".join(f"\\{mark}" if mark in "%_\\" else mark for mark in half) + "%"


def _dense(group: list[_Slot]) -> tuple[int, int] | None:
    """Return the range of a column of whole numbers without gaps, if it is the only one that placeholders refer to."""
    (slot, *more) = group
    column = slot.values
    if more or slot.pattern or not pa.types.is_integer(column.type):
        return None
    found = pc.min_max(column).as_py()
    low, high = found["min"], found["max"]
    return (low, high) if high - low + 1 == pc.count_distinct(column).as_py() else None
