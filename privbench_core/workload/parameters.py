"""Bind the placeholders of queries (``$1``) to values of the synthetic database, and let pgbench draw new ones.

A placeholder that is compared with a column, or with an expression of one, gets the value of a random row, so frequent
values are asked for often. Placeholders on the same table get values of the same row, lower and upper bounds in this
order. Patterns of LIKE get a prefix. The limit is 10, or 1 of a query that stands for a value, the offset 0, a unit of
time is a month, and any other placeholder '1'. What is written gets the values of whole rows, see `writes`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from privbench_core.backends.postgres import sql_type
from privbench_core.columns.opaque import length_limit
from privbench_core.columns.surrogates import random_uuids
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload.engine import PLACEHOLDERS, ResolvedQuery, UnansweredError, is_constant, literal
from privbench_core.workload.values import Documents
from privbench_core.workload.writes import ROW, SET, Write

DRAWS = 50
"""Rows whose values pgbench chooses from, per table of a query; chosen by hand."""

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

    replay: exp.Expr
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
        qualifier: Alias or name of the table in the query; of what is written, which row it is of.
        values: The synthetic values of the column.
        fresh: Number that makes the value one that no row has; 0 where any will do.
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
    fresh: int = 0

    def filled(self, value: exp.Expr) -> exp.Expr:
        """Return the other side of the comparison with a value in place of its column."""
        return self.side.transform(lambda node: value.copy() if node == self.node else node)


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
        return exp.Literal.number(0 if isinstance(parent, exp.Offset) else 1 if _is_scalar(parent.parent) else 10)
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


def _is_scalar(query: exp.Expr | None) -> bool:
    """Return whether a query stands for a single value, so that it has one row at most."""
    inside = None if query is None else query.parent
    lists = (exp.From, exp.Join, exp.In, exp.Any, exp.All, exp.Lateral, exp.Array, exp.Query)
    return isinstance(inside, exp.Subquery) and not isinstance(inside.parent, lists)


def bind_parameters(
    query: ResolvedQuery,
    schema: Schema,
    synthetic: Mapping[str, pa.Table],
    documents: Documents,
    rng: np.random.Generator,
    write: Write | None = None,
) -> BoundParameters:
    """Bind the placeholders of a query in place.

    Args:
        query: The query.
        schema: The database.
        synthetic: Rows of the synthetic database.
        documents: Their JSON documents.
        rng: Draws rows.
        write: What the query writes, if it does.

    Raises:
        UnansweredError: A column that a placeholder is compared with has no value that a query can hold, or a statement
            breaks something with all that were drawn.
    """
    tree = query.tree
    _lists_as_in(tree)
    slots = [*_slots(query, schema, synthetic, documents)]
    if write is not None:
        assigned = {id(value) for _, value, _ in write.assigned()}
        slots = [_deleted(slot, write, synthetic) for slot in slots if id(slot.operand) not in assigned]
        slots += _written(write, synthetic, slots)
    by_alias: dict[str, list[tuple[str, _Slot]]] = defaultdict(list)
    for number, slot in enumerate(slots):
        marker = f"slot_{number}"
        by_alias[slot.qualifier].append((marker, slot))
        slot.operand.replace(exp.Placeholder(this=marker))
    markers = {marker for group in by_alias.values() for marker, _ in group}
    for node in [*tree.find_all(*PLACEHOLDERS)]:
        if node.name not in markers:
            node.replace(neutral(node))
    groups = [*by_alias.values()]
    drawn = [_drawn([slot for _, slot in group], rng) for group in groups]
    tried = write is not None and write.needs_trial
    if write is not None and tried:
        tries = [write.try_with(_fill(tree.copy(), groups, drawn, draw)) for draw in range(DRAWS)]
        kept = [draw for draw, found in enumerate(tries) if found]
        kept = kept or [draw for draw, found in enumerate(tries) if found == 0]
        if not kept:
            raise UnansweredError("breaks a check or a reference with the values of every row that was tried")
        drawn = [[[values[draw] for draw in kept] for values in group] for group in drawn]
    replay, variables = _repeated(tree, groups, drawn, schema, together=tried)
    _fill(tree, groups, drawn, 0)
    return BoundParameters(replay, variables, len(slots))


_Groups = Sequence[Sequence[tuple[str, _Slot]]]
_Drawn = Sequence[Sequence[Sequence[str]]]


def _repeated(
    tree: exp.Expr, groups: _Groups, drawn: _Drawn, schema: Schema, *, together: bool
) -> tuple[exp.Expr, tuple[str, ...]]:
    """Return a query with variables of pgbench in place of its placeholders, and the lines that set them.

    Args:
        tree: The query.
        groups: Its placeholders, by the row that they are of.
        drawn: Their values.
        schema: The database.
        together: Whether the values of all rows were drawn together.
    """
    repeated: dict[str, exp.Expr] = {}
    variables: list[str] = []
    for number, (group, lists) in enumerate(zip(groups, drawn, strict=True), start=1):
        dense = None if together else _dense([slot for _, slot in group])
        name = f"{'key' if dense else 'row'}_{1 if together else number}"
        low, high = dense or (1, len(lists[0]))
        variables.append(f"\\set {name} random({low}, {high})")
        for (marker, slot), values in zip(group, lists, strict=True):
            kind = "text" if slot.pattern else sql_type(slot.column, schema.schemas)
            chosen = f":{name}" if dense else f"(ARRAY[{', '.join(values)}]::{kind}[])[:{name}]"
            if slot.fresh:
                chosen = _chosen_anew(slot, marker.removeprefix("slot_"), chosen, variables)
            repeated[marker] = slot.filled(exp.Var(this=chosen))
    replay = tree.copy()
    for node in [*replay.find_all(exp.Placeholder)]:
        node.replace(repeated[node.name])
    return replay, tuple(dict.fromkeys(variables))


def _fill(tree: exp.Expr, groups: _Groups, drawn: _Drawn, draw: int) -> exp.Expr:
    """Put the values of one draw in place of a query's placeholders, and return it."""
    filled = {
        marker: slot.filled(sqlglot.parse_one(values[draw], read="postgres"))
        for group, lists in zip(groups, drawn, strict=True)
        for (marker, slot), values in zip(group, lists, strict=True)
    }
    for node in [*tree.find_all(exp.Placeholder)]:
        node.replace(filled[node.name])
    return tree


def _written(write: Write, synthetic: Mapping[str, pa.Table], compared: list[_Slot]) -> Iterator[_Slot]:
    """Yield the placeholders that are written; ``compared`` are the others."""
    rows, table = synthetic[write.table.name], write.table
    own = next((slot.qualifier for slot in compared if slot.table == table), table.name)
    for name, value, place in write.assigned():
        if isinstance(value, PLACEHOLDERS):
            side = exp.column(name, quoted=True)
            row = own if place == SET and write.keeps_values else place
            number = 3 * write.number + int(place[-1]) if place.startswith(ROW) else 3 * write.number
            fresh = number if name in write.fresh else 0
            yield _Slot(value, side, side, table, table.column(name), 0, False, row, rows[name], fresh)


def _deleted(slot: _Slot, write: Write, synthetic: Mapping[str, pa.Table]) -> _Slot:
    """Return a placeholder of DELETE without the values of rows to which others refer."""
    if not isinstance(write.tree, exp.Delete) or slot.table != write.table:
        return slot
    values = slot.values.combine_chunks()
    for key in write.restricting:
        if len(key.columns) == 1:
            referred = synthetic[key.child][key.columns[0]].combine_chunks().unique()
            found = pc.is_in(synthetic[slot.table.name][key.parent_columns[0]].combine_chunks(), referred)
            values = pc.if_else(found, pa.scalar(None, values.type), values)
    return replace(slot, values=pa.chunked_array([values]))


def _chosen_anew(slot: _Slot, number: str, chosen: str, variables: list[str]) -> str:
    """Return SQL of pgbench for a value that differs at every call, and add lines that count the calls."""
    if slot.column.type is ColumnType.UUID:
        return f"CAST(GEN_RANDOM_UUID() AS {sql_type(slot.column, ())})"
    name, base = f"new_{number}", 0 if slot.column.type is ColumnType.TEXT else _largest(slot)
    # New numbers of up to 1000 clients never meet.
    variables.append(f"\\set written :written + 1\n\\set {name} {base} + :written * 1000 + :client_id")
    if slot.column.type is not ColumnType.TEXT:
        return f":{name}"
    before = chosen.replace(f"'{slot.fresh}-", "'")  # what `_literals` puts there
    return f"LEFT(CONCAT(:{name}, '-', {before}), {length_limit(slot.column)})"


def _largest(slot: _Slot) -> int:
    return int(pc.max(slot.values).as_py() or 0)


def _lists_as_in(tree: exp.Expr) -> None:
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
    if group[0].qualifier.startswith(f"{ROW} "):
        present[:] = True  # a row that is inserted is like another one, with what that has not
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
    return [_literals(slot, drawn, rng) for slot, drawn in zip(group, values, strict=True)]


def _literals(slot: _Slot, values: list[Any], rng: np.random.Generator) -> list[str]:
    if slot.pattern:
        values = [_prefix(str(value)) for value in values]
    if slot.fresh:
        made = random_uuids(len(values), rng).to_pylist() if slot.column.type is ColumnType.UUID else values
        whole = slot.column.type is ColumnType.INTEGER
        limit = length_limit(slot.column)
        texts = [value if made is not values else f"{slot.fresh}-{value or ''}"[:limit] for value in made]
        values = [_largest(slot) + slot.fresh] * len(values) if whole else texts
    inserted = slot.qualifier.startswith(f"{ROW} ")
    written = ["NULL" if value is None and inserted else literal(value) for value in values]
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
