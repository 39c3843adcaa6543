"""Check a synthetic table, whole or range by range: then one range of rows and of their owners is in memory at a time.

Expectations are checked once, on the witnesses of all ranges. What else holds for each row holds for all ranges if it
holds for each. What compares rows (unique keys, the number of rows of an owner) holds for all if it holds within each
range and no value is in two ranges: some column of the key then has values in each range that are all below, or all
above, those of every other range. Rows of different ranges may refer to one parent off the ownership path: how many do
is counted in each range and added up. Where neither will do, the whole table is checked together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.sampling.constraints import row_rules
from privbench_core.sampling.row_groups import group_numbers
from privbench_core.schema.constraints import Dependency
from privbench_core.schema.tables import Schema, Table
from privbench_core.validate.derived import fanout_column
from privbench_core.validate.expectations import (
    ExpectationResult,
    WantedWitnesses,
    Witnesses,
    check_table,
    combined,
    hold_for_witnesses,
    integrity_suite,
    judged,
    wanted_witnesses,
    witnesses,
)
from privbench_core.workers import side_by_side

Tables = Mapping[str, pa.Table]
Span = tuple[Any, Any]
Spans = Mapping[str, Span | None]
Columns = tuple[str, ...]
_ROWS = "#rows"


def check_whole(schema: Schema, table: Table, tables: Tables) -> list[ExpectationResult]:
    """Return the results of all expectations and constraints on a table, given the rows of all `tables_to_check`."""
    return check_table(schema, table, tables) + check_constraints(table, tables[table.name])


def check_constraints(table: Table, rows: pa.Table) -> list[ExpectationResult]:
    """Return the result of each CHECK that sampling enforces, and of each functional dependency, of a private table.

    Public tables are published unchanged, and have no results.
    """
    if table.public:
        return []
    columns = {name: rows.column(name) for name in rows.column_names}
    found = [
        (f"expect_check_to_hold: {rule.check.name}", rule.columns, int(rule.broken(columns).sum()))
        for rule in row_rules(table)
    ]
    for rule in table.dependencies:
        name = f"expect_functional_dependency: {', '.join(rule.determinant)} -> {', '.join(rule.dependent)}"
        found.append((name, (*rule.determinant, *rule.dependent), _dependency_violations(rule, rows)))
    return [ExpectationResult(name, ",".join(names), not broken, broken) for name, names, broken in found]


def _dependency_violations(rule: Dependency, rows: pa.Table) -> int:
    """Count rows whose dependent values differ from the first row with the same determinant; NULL counts as a value."""
    determinant = group_numbers([rows.column(name) for name in rule.determinant], rows.num_rows)
    codes = [pc.fill_null(rows.column(n).combine_chunks().dictionary_encode().indices, -1) for n in rule.dependent]
    dependent = group_numbers(codes, rows.num_rows)
    keyed = np.flatnonzero(determinant >= 0)
    _, first, group = np.unique(determinant[keyed], return_index=True, return_inverse=True)
    return int((dependent[keyed] != dependent[keyed][first][group.ravel()]).sum())


def check_ranges(
    schema: Schema,
    table: Table,
    ranges: int,
    rows: Callable[[int], Tables],
    whole: Callable[[], Tables],
    workers: int | None = None,
) -> list[ExpectationResult]:
    """Return the same results for a table in ranges.

    Args:
        schema: The database.
        table: The table to check.
        ranges: Number of its ranges.
        rows: The rows of `tables_to_check` for one range, the owners' those that its rows may refer to; picklable.
        whole: All rows of these tables.
        workers: Most processes at a time.
    """
    found, counts = list[_Checked](), dict[Columns, pa.Table]()
    for checked in side_by_side(
        partial(_check_range, schema, table, rows, wanted_witnesses(table)), range(ranges), workers
    ):
        found.append(replace(checked, counts={}))
        counts = {columns: _added(counts.get(columns), more) for columns, more in checked.counts.items()}
    spans = [checked.spans for checked in found]
    if not all(_apart(spans, columns) for columns in _compared(table) if columns not in counts):
        return check_whole(schema, table, whole())
    results = hold_for_witnesses(table, [checked.witnesses for checked in found])
    broken = [place for place in range(len(integrity_suite(table))) if place not in results]
    if broken:  # to count what breaks them
        each = list(side_by_side(partial(_judge_range, schema, table, rows, broken), range(ranges), workers))
        results |= {place: combined([judged_here[place] for judged_here in each]) for place in broken}
    limits = _limits(table)
    in_order = [results[place] for place in sorted(results)]
    return [
        _judged(one, counts[limits[where][0]], limits[where][1]) if (where := (one.name, one.column)) in limits else one
        for one in (*in_order, *(combined(of) for of in zip(*(checked.constraints for checked in found), strict=True)))
    ]


@dataclass(frozen=True)
class _Checked:
    """What is found in a range.

    Attributes:
        witnesses: See `expectations.witnesses`.
        constraints: Of `check_constraints`.
        spans: Of the columns by which rows are compared.
        counts: Rows of each combination of values, of columns whose counts are added up.
    """

    witnesses: Witnesses
    constraints: Sequence[ExpectationResult]
    spans: Spans
    counts: Mapping[Columns, pa.Table]


def _check_range(
    schema: Schema, table: Table, rows: Callable[[int], Tables], wanted: WantedWitnesses, number: int
) -> _Checked:
    tables = rows(number)
    mine = tables[table.name]
    names = {name for columns in _compared(table) for name in columns} & set(mine.column_names)
    counted = {columns for columns, _ in _limits(table).values() if names.issuperset(columns)}
    return _Checked(
        witnesses(schema, table, tables, wanted),
        check_constraints(table, mine),
        {name: _span(mine.column(name)) for name in sorted(names)},
        {columns: _counted(mine, columns) for columns in sorted(counted)},
    )


def _judge_range(
    schema: Schema, table: Table, rows: Callable[[int], Tables], places: Sequence[int], number: int
) -> dict[int, ExpectationResult]:
    """Count what breaks some expectations."""
    return judged(schema, table, rows(number), places)


def _limits(table: Table) -> dict[tuple[str, str | None], tuple[Columns, int]]:
    """Return what is added up over ranges: (expectation, column) -> columns, and the most rows that may share them."""
    found: dict[tuple[str, str | None], tuple[Columns, int]] = {}
    for key in table.foreign_keys:
        if key.owner:
            continue
        if key.max_children is not None:
            found["expect_column_values_to_be_between", fanout_column(key)] = key.columns, key.max_children
        if len(key.columns) == 1 and any(key.columns == unique for unique in (table.primary_key, *table.unique)):
            found["expect_column_values_to_be_unique", key.columns[0]] = key.columns, 1
    return found


def _counted(rows: pa.Table, columns: Columns) -> pa.Table:
    """Return the rows of each combination of values without NULL, in the column `_ROWS`."""
    counts = rows.select(list(columns)).drop_null().group_by(list(columns)).aggregate([([], "count_all")])
    return counts.rename_columns([*columns, _ROWS]).combine_chunks()  # else all is sent of which a chunk is a slice


def _added(one: pa.Table | None, other: pa.Table) -> pa.Table:
    if one is None:
        return other
    columns = [name for name in other.column_names if name != _ROWS]
    both = pa.concat_tables([one, other]).group_by(columns).aggregate([(_ROWS, "sum")])
    return both.rename_columns([*columns, _ROWS])


def _judged(result: ExpectationResult, counts: pa.Table, most: int) -> ExpectationResult:
    """Return the result on all rows, given how many share each combination of values."""
    beyond = counts[_ROWS].filter(pc.greater(counts[_ROWS], most))
    return replace(result, success=result.success and not len(beyond), unexpected_count=pc.sum(beyond).as_py() or 0)


def _compared(table: Table) -> list[Columns]:
    """Return the sets of columns by which rows are compared with other rows."""
    groups = [key.columns for key in table.foreign_keys if key.owner or key.max_children is not None]
    return [table.primary_key, *table.unique, *groups, *(rule.determinant for rule in table.dependencies)]


def _span(values: pa.ChunkedArray) -> Span | None:
    """Return the least and the greatest value; None where there is none but NULL."""
    ends = pc.min_max(values).as_py()
    return None if ends["min"] is None else (ends["min"], ends["max"])


def _apart(ranges: Sequence[Spans], columns: Sequence[str]) -> bool:
    """Return whether the values of some column are all below, or all above, those of every other range."""
    of_columns = (sorted(span for spans in ranges if (span := spans.get(name)) is not None) for name in columns)
    return any(all(one[1] < other[0] for one, other in pairwise(spans)) for spans in of_columns)
