"""Check a synthetic table range by range: one range of rows and of their owners is in memory at a time.

What holds for each row holds for all ranges if it holds for each. What compares rows (unique keys, the number of rows
of an owner) holds for all if it holds within each range and no value is in two ranges: some column of the key then has
values in each range that are all below, or all above, those of every other range. Where that cannot be shown, the whole
table is checked together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.schema.tables import Schema, Table
from privbench_core.validate.constraints import check_constraints
from privbench_core.validate.expectations import ExpectationResult, check_table, combined
from privbench_core.workers import side_by_side

Tables = Mapping[str, pa.Table]
Span = tuple[Any, Any]
Spans = Mapping[str, Span | None]


def check_whole(schema: Schema, table: Table, tables: Tables) -> list[ExpectationResult]:
    """Return the results of all expectations and constraints on a table, given the rows of all `tables_to_check`."""
    return check_table(schema, table, tables) + check_constraints(table, tables[table.name])


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
    checked = list(side_by_side(_RangeCheck(schema, table, rows), range(ranges), workers))
    together = _compared(table)
    if not all(_apart([spans for _, spans in checked], columns) for columns in together):
        return check_whole(schema, table, whole())
    return [combined(results) for results in zip(*(results for results, _ in checked), strict=True)]


@dataclass(frozen=True)
class _RangeCheck:
    schema: Schema
    table: Table
    rows: Callable[[int], Tables]

    def __call__(self, number: int) -> tuple[list[ExpectationResult], Spans]:
        tables = self.rows(number)
        mine = tables[self.table.name]
        names = {name for columns in _compared(self.table) for name in columns} & set(mine.column_names)
        return check_whole(self.schema, self.table, tables), {name: _span(mine.column(name)) for name in sorted(names)}


def _compared(table: Table) -> list[tuple[str, ...]]:
    """Return the sets of columns by which rows are compared with other rows."""
    groups = [key.columns for key in table.foreign_keys if key.owner or key.max_children is not None]
    return [table.primary_key, *table.unique, *groups, *(rule.determinant for rule in table.dependencies)]


def _span(values: pa.ChunkedArray) -> Span | None:
    """Return the least and the greatest value; None where there is none but NULL."""
    ends = pc.min_max(values).as_py()
    return None if ends["min"] is None else (ends["min"], ends["max"])


def _apart(ranges: Sequence[Spans], columns: Sequence[str]) -> bool:
    """Whether some column tells the ranges apart."""
    return any(_disjoint([spans.get(name) for spans in ranges]) for name in columns)


def _disjoint(spans: Sequence[Span | None]) -> bool:
    ordered = sorted(span for span in spans if span is not None)
    return all(one[1] < other[0] for one, other in pairwise(ordered))
