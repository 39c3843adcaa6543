"""Check a synthetic table, whole or range by range: then one range of rows and of their owners is in memory at a time.

Great Expectations judges a few witnesses of all ranges: checking millions of rows takes minutes, and their frame
gigabytes. Only what fails for them is judged on all rows, to count the violations. What holds for each row holds for
all ranges if it holds for each. What compares rows (unique keys, the number of rows of an owner) holds for all if it
holds within each range and no value is in two ranges: some column of the key then has values in each range that are all
below, or all above, those of every other range. Rows of different ranges may refer to one parent off the ownership
path: how many do is counted in each range and added up. Where neither will do, the whole table is checked together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.sampling.constraints import row_rules
from privbench_core.sampling.keys import group_numbers
from privbench_core.schema.constraints import Dependency
from privbench_core.schema.tables import Schema, Table
from privbench_core.validate import (
    CHECK,
    DEPENDENCY,
    UNIQUE,
    ExpectationResult,
    integrity_suite,
    run_suite,
)
from privbench_core.validate.derived import BETWEEN, fanout_column, integrity_frame, repeated_rows, witness_frame
from privbench_core.workers import side_by_side

if TYPE_CHECKING:
    import pandas as pd

Tables = Mapping[str, pa.Table]
Rows = Callable[[int], Tables]
Results = dict[int, ExpectationResult]  # by position in the suite
Columns = tuple[str, ...]
Span = tuple[Any, Any]
_ROWS = "#rows"


@dataclass(frozen=True)
class _Range:
    """What is found in a range.

    Attributes:
        values: Witnesses of the expectations on single values, see `witness_frame`.
        repeated: For each unique key, by its position in the suite: two rows with the same key, if there are.
        constraints: Of `check_constraints`.
        spans: Least and greatest value of the columns by which rows are compared; None without a value.
        counts: Rows of each combination of values, of columns whose counts are added up.
    """

    values: pd.DataFrame
    repeated: Mapping[int, pd.DataFrame]
    constraints: Sequence[ExpectationResult]
    spans: Mapping[str, Span | None] = field(default_factory=dict)
    counts: Mapping[Columns, pa.Table] = field(default_factory=dict)


def check_whole(schema: Schema, table: Table, tables: Tables) -> list[ExpectationResult]:
    """Return the results of all expectations and constraints on a table, given the rows of all `tables_to_check`."""
    found = _examine(schema, table, tables)
    results = _hold_for_witnesses(table, [found])
    results |= _judge(schema, table, lambda _: tables, _missing(table, results), 0)
    return [*_in_order(results), *found.constraints]


def check_ranges(
    schema: Schema, table: Table, ranges: int, rows: Rows, whole: Callable[[], Tables], workers: int | None = None
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
    found, counts = list[_Range](), dict[Columns, pa.Table]()
    for each in side_by_side(partial(_examine_range, schema, table, rows), range(ranges), workers):
        found.append(replace(each, counts={}))
        counts = {columns: _added(counts.get(columns), more) for columns, more in each.counts.items()}
    if not all(
        _apart([each.spans for each in found], columns) for columns in _compared(table) if columns not in counts
    ):
        return check_whole(schema, table, whole())
    results = _hold_for_witnesses(table, found)
    if broken := _missing(table, results):
        judged = list(side_by_side(partial(_judge, schema, table, rows, broken), range(ranges), workers))
        results |= {position: _combined([each[position] for each in judged]) for position in broken}
    constraints = (_combined(same) for same in zip(*(each.constraints for each in found), strict=True))
    limits = _limits(table)
    return [
        _within(one, counts[limit[0]], limit[1]) if (limit := limits.get((one.name, one.column))) else one
        for one in (*_in_order(results), *constraints)
    ]


def check_constraints(table: Table, rows: pa.Table) -> list[ExpectationResult]:
    """Return the result of each CHECK that sampling enforces, and of each functional dependency, of a private table.

    Public tables are published unchanged, and have no results.
    """
    if table.public:
        return []
    columns = {name: rows.column(name) for name in rows.column_names}
    found = [(CHECK + rule.check.name, rule.columns, int(rule.broken(columns).sum())) for rule in row_rules(table)]
    for rule in table.dependencies:
        name = f"{DEPENDENCY}{', '.join(rule.determinant)} -> {', '.join(rule.dependent)}"
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


def _examine(schema: Schema, table: Table, tables: Tables) -> _Range:
    """Find what the rows are judged by; needs no Great Expectations, so that each process may do it."""
    asked: dict[str, set[str]] = {}
    repeats = {}
    for position, expectation in enumerate(integrity_suite(table)):
        if expectation.compares_rows:
            repeats[position] = repeated_rows(tables[table.name], expectation.columns)
        else:
            asked.setdefault(expectation.columns[0], set()).add(expectation.name)
    values = witness_frame(schema, table, tables, asked)
    return _Range(values, repeats, check_constraints(table, tables[table.name]))


def _examine_range(schema: Schema, table: Table, rows: Rows, number: int) -> _Range:
    tables = rows(number)
    mine = tables[table.name]
    names = {name for columns in _compared(table) for name in columns} & set(mine.column_names)
    counted = {columns for columns, _ in _limits(table).values() if names.issuperset(columns)}
    return replace(
        _examine(schema, table, tables),
        spans={name: _span(mine.column(name)) for name in sorted(names)},
        counts={columns: _counted(mine, columns) for columns in sorted(counted)},
    )


def _hold_for_witnesses(table: Table, found: Sequence[_Range]) -> Results:
    """Return the results of the expectations that hold for all witnesses: then they hold for all rows."""
    import pandas as pd

    suite = dict(enumerate(integrity_suite(table)))
    single = [position for position, expectation in suite.items() if not expectation.compares_rows]
    values = pd.concat([each.values for each in found], ignore_index=True)
    results = dict(zip(single, run_suite(values, [suite[p] for p in single], counted=False), strict=True))
    for position in suite.keys() - set(single):
        worst = max((each.repeated[position] for each in found), key=len)
        results[position] = run_suite(worst, [suite[position]], counted=False)[0]
    return {position: replace(result, unexpected_count=0) for position, result in results.items() if result.success}


def _judge(schema: Schema, table: Table, rows: Rows, positions: Sequence[int], number: int) -> Results:
    """Return the results of some expectations on all rows of a range, each on a frame of its own columns alone."""
    suite, tables = integrity_suite(table), rows(number)
    return {
        position: run_suite(integrity_frame(schema, table, tables, suite[position].columns), [suite[position]])[0]
        for position in positions
    }


def _missing(table: Table, results: Results) -> list[int]:
    return [position for position in range(len(integrity_suite(table))) if position not in results]


def _in_order(results: Results) -> list[ExpectationResult]:
    return [results[position] for position in sorted(results)]


def _combined(results: Sequence[ExpectationResult]) -> ExpectationResult:
    """Return the result of one expectation on all rows from the results on ranges."""
    counts = [result.unexpected_count for result in results if result.unexpected_count is not None]
    success = all(result.success for result in results)
    return replace(results[0], success=success, unexpected_count=sum(counts) if counts else None)


def _limits(table: Table) -> dict[tuple[str, str | None], tuple[Columns, int]]:
    """Return what is added up over ranges: (expectation, column) -> columns, and the most rows that may share them."""
    found: dict[tuple[str, str | None], tuple[Columns, int]] = {}
    for key in table.foreign_keys:
        if key.owner:
            continue
        if key.max_children is not None:
            found[BETWEEN, fanout_column(key)] = key.columns, key.max_children
        if len(key.columns) == 1 and key.columns in (table.primary_key, *table.unique):
            found[UNIQUE, key.columns[0]] = key.columns, 1
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


def _within(result: ExpectationResult, counts: pa.Table, most: int) -> ExpectationResult:
    """Return the result on all rows, given how many share each combination of values."""
    beyond = counts[_ROWS].filter(pc.greater(counts[_ROWS], most))
    return replace(result, success=result.success and not len(beyond), unexpected_count=pc.sum(beyond).as_py() or 0)


def _compared(table: Table) -> list[Columns]:
    """Return the sets of columns by which rows are compared with other rows."""
    groups = [key.columns for key in table.foreign_keys if key.owner or key.max_children is not None]
    return [table.primary_key, *table.unique, *groups, *(rule.determinant for rule in table.dependencies)]


def _span(values: pa.ChunkedArray) -> Span | None:
    ends = pc.min_max(values).as_py()
    return None if ends["min"] is None else (ends["min"], ends["max"])


def _apart(ranges: Sequence[Mapping[str, Span | None]], columns: Sequence[str]) -> bool:
    """Return whether the values of some column are all below, or all above, those of every other range."""
    of_columns = (sorted(span for spans in ranges if (span := spans.get(name)) is not None) for name in columns)
    return any(all(one[1] < other[0] for one, other in pairwise(spans)) for spans in of_columns)
