"""Checks of a synthetic database as Great Expectations suites, built from the schema.

Checks that need a join are about the derived columns of `derived`. Results carry names and counts, never values. Great
Expectations is slow to import, so this happens only when a suite is built; its progress bars and usage reports are off.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from privbench_core.columns.opaque import length_limit
from privbench_core.schema.columns import Column, Range, Values
from privbench_core.schema.tables import Schema, Table
from privbench_core.validate.derived import (
    BETWEEN,
    IN_SET,
    LENGTHS,
    fanout_column,
    form_column,
    has_characters,
    has_form,
    integrity_frame,
    reference_column,
    row_hashes,
    type_column,
    unit_column,
    witness_frame,
)

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

_MAX_CELLS = 12_000_000  # of a frame; chosen by hand, not tuned
# Expectations on single values, and the kind of their witnesses; NULL always is one.
_ONE_BY_ONE = {
    "expect_column_values_to_not_be_null": None,
    "expect_column_values_to_be_between": BETWEEN,
    "expect_column_values_to_be_in_set": IN_SET,
    "expect_column_value_lengths_to_be_between": LENGTHS,
}


@dataclass(frozen=True)
class ExpectationResult:
    """The outcome of one expectation.

    Attributes:
        name: Great Expectations' name, such as ``expect_column_values_to_not_be_null``.
        column: Its column or columns, derived ones included; None for the whole table.
        success: Whether it holds.
        unexpected_count: Rows that violate it; None where rows cannot be counted.
    """

    name: str
    column: str | None
    success: bool
    unexpected_count: int | None


def check_table(
    schema: Schema, table: Table, tables: Mapping[str, pa.Table], *, cells: int = _MAX_CELLS
) -> list[ExpectationResult]:
    """Check one table of a synthetic database; results are in the order of `integrity_suite`.

    Args:
        schema: The database.
        table: The table to check.
        tables: Rows of all `tables_to_check`.
        cells: Maximum number of values in a frame (which takes far more memory than Arrow); one expectation's columns
            are always together.
    """
    results = hold_for_witnesses(table, witnesses(schema, table, tables))
    places = range(len(integrity_suite(table)))
    results |= judged(schema, table, tables, [place for place in places if place not in results], cells=cells)
    return [results[place] for place in places]


def judged(
    schema: Schema, table: Table, tables: Mapping[str, pa.Table], places: Sequence[int], *, cells: int = _MAX_CELLS
) -> dict[int, ExpectationResult]:
    """Return the results of some expectations by their place in the suite; arguments as in `check_table`."""
    suite = integrity_suite(table)
    needed = [frozenset(_columns(expectation)) for expectation in suite]
    width = max(1, cells // max(1, tables[table.name].num_rows))
    results: dict[int, ExpectationResult] = {}
    # Sorted, so that expectations on the same columns follow each other.
    waiting = sorted(places, key=lambda place: sorted(needed[place]))
    while waiting:
        columns, part = needed[waiting[0]], waiting[:1]
        while len(part) < len(waiting) and len(columns | needed[waiting[len(part)]]) <= width:
            columns |= needed[waiting[len(part)]]
            part.append(waiting[len(part)])
        found = _judge(schema, table, tables, columns, [suite[place] for place in part], cells)
        results |= zip(part, found, strict=True)
        waiting = waiting[len(part) :]
    return results


def witnesses(schema: Schema, table: Table, tables: Mapping[str, pa.Table]) -> pd.DataFrame:
    """Return what expectations on single values are to be checked on; of several ranges, all of these together."""
    suite, asked = integrity_suite(table), dict[str, set[str]]()
    for place in _on_single_values(suite):
        kind = _ONE_BY_ONE[suite[place].configuration.type]
        asked.setdefault(_columns(suite[place])[0], set()).update([kind] if kind else [])
    return witness_frame(schema, table, tables, asked)


def hold_for_witnesses(table: Table, frame: pd.DataFrame) -> dict[int, ExpectationResult]:
    """Return, by place in the suite, the results of expectations that hold for the witnesses of their column.

    Expectations on single values hold for all values if they hold for the witnesses. Checking millions of values takes
    minutes, and their frame gigabytes. Failed expectations are left out: their violations are still to be counted.
    """
    suite = integrity_suite(table)
    places = _on_single_values(suite)
    found = run_suite(table.name, frame, [suite[place] for place in places])
    return {place: result for place, result in zip(places, found, strict=True) if result.success}


def compared_places(table: Table) -> list[int]:
    """Return the places in the suite of the expectations that compare rows, which witnesses can't show to hold."""
    suite = integrity_suite(table)
    return sorted(set(range(len(suite))) - set(_on_single_values(suite)))


def _on_single_values(suite: Sequence[Expectation]) -> list[int]:
    return [place for place, expectation in enumerate(suite) if expectation.configuration.type in _ONE_BY_ONE]


def _judge(
    schema: Schema,
    table: Table,
    tables: Mapping[str, pa.Table],
    columns: frozenset[str],
    suite: Sequence[Expectation],
    cells: int,
) -> list[ExpectationResult]:
    """Return the results of ``suite``, whose expectations are about ``columns``, with at most ``cells`` per frame.

    More cells of the table's own columns are split into frames of some of the rows. Equal rows stay together, so what
    holds for every part holds for the whole, uniqueness included.
    """
    rows = tables[table.name]
    number = -(-rows.num_rows * len(columns) // cells)
    if number <= 1 or not columns <= set(rows.column_names):
        return run_suite(table.name, integrity_frame(schema, table, tables, columns), suite)
    compared = rows.select(sorted(columns))
    part_of = row_hashes(compared, number)
    found = []
    for part in range(number):
        here = {**tables, table.name: compared.filter(pa.array(part_of == part))}
        found.append(run_suite(table.name, integrity_frame(schema, table, here, columns), suite))
    return [combined(results) for results in zip(*found, strict=True)]


def combined(results: Sequence[ExpectationResult]) -> ExpectationResult:
    """Return the result of one expectation on all rows from the results on parts."""
    counts = [result.unexpected_count for result in results if result.unexpected_count is not None]
    success = all(result.success for result in results)
    return replace(results[0], success=success, unexpected_count=sum(counts) if counts else None)


def integrity_suite(table: Table) -> list[Expectation]:
    """Return the expectations on one synthetic table, for the frame of `integrity_frame`.

    They cover types, the lengths that SQL types allow, primary and other unique keys, NOT NULL, forms and declared
    domains (of private tables), references along every foreign key, references within one privacy unit, and at most
    ``max_children`` rows per parent.
    """
    gxe = _expectations()
    suite: list[Expectation] = [_true(gxe, type_column(c)) for c in table.columns]
    suite += [_unique(gxe, key) for key in (table.primary_key, *table.unique)]
    required = {c.name for c in table.columns if not c.nullable} | set(table.primary_key)
    required -= {name for key in table.foreign_keys if key.optional for name in key.columns} - set(table.primary_key)
    suite += [gxe.ExpectColumnValuesToNotBeNull(column=c.name) for c in table.columns if c.name in required]
    if not table.public:  # public tables are published unchanged
        suite += [_true(gxe, form_column(c)) for c in table.columns if has_form(c)]
        suite += [expectation for c in table.attributes for expectation in _domain(gxe, c)]
        suite += [_short_enough(gxe, c.name, room) for c in table.columns if (room := _sql_length(c)) is not None]
    for key in table.foreign_keys:
        suite.append(_true(gxe, reference_column(key)))
        if key.max_children is not None:
            suite.append(gxe.ExpectColumnValuesToBeBetween(column=fanout_column(key), max_value=key.max_children))
        if key.same_unit:
            suite.append(_true(gxe, unit_column(key)))
    return suite


def run_suite(name: str, frame: pd.DataFrame, suite: Iterable[Expectation]) -> list[ExpectationResult]:
    """Run all expectations on ``frame``; one that cannot be evaluated counts as failed.

    Args:
        name: Name of the suite.
        frame: The rows.
        suite: Expectations, see `integrity_suite`.

    Returns:
        One result per expectation, in the order of the suite.
    """
    expectations = list(suite)
    if not expectations:
        return []
    gx = _great_expectations()
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = gx.data_context.types.base.ProgressBarsConfig(globally=False)
    whole = context.data_sources.add_pandas(name).add_dataframe_asset(name).add_batch_definition_whole_dataframe(name)
    batch = whole.get_batch({"dataframe": frame})
    # Results come back grouped by column, so each expectation carries its position.
    for position, expectation in enumerate(expectations):
        expectation.meta = {"position": position}
    outcome = batch.validate(
        gx.ExpectationSuite(name=name, expectations=expectations),
        result_format={"result_format": "BASIC", "partial_unexpected_count": 0},
    )
    by_position: dict[int, Any] = {result.expectation_config.meta["position"]: result for result in outcome.results}
    results = []
    for position, expectation in enumerate(expectations):
        config, result = expectation.configuration, by_position[position]
        column = ",".join(_columns(expectation)) or None
        count = result.result.get("unexpected_count")
        results.append(ExpectationResult(config.type, column, bool(result.success), count))
    return results


def _columns(expectation: Expectation) -> list[str]:
    """Return the columns of an expectation."""
    about = expectation.configuration.kwargs
    return [about["column"]] if about.get("column") else list(about.get("column_list", ()))


def _great_expectations() -> ModuleType:
    os.environ["GX_ANALYTICS_ENABLED"] = "False"  # read once, when the package is imported
    # Failures are in the results; the package's own log would repeat them with values.
    log = logging.getLogger("great_expectations")
    log.propagate = False
    if not log.handlers:
        log.addHandler(logging.NullHandler())
    with _without("pyspark"):
        import great_expectations as gx  # slow

    return gx


@contextmanager
def _without(package: str) -> Iterator[None]:
    """Hide a package: Great Expectations imports all it might work with, and importing PySpark can end a process."""
    names = {package, *(name for name in sys.modules if name.startswith(f"{package}."))}
    hidden = {name: sys.modules.pop(name, None) for name in names}
    sys.modules[package] = None  # type: ignore[assignment] # how Python marks what cannot be imported
    try:
        yield
    finally:
        del sys.modules[package]
        sys.modules.update({name: module for name, module in hidden.items() if module is not None})


def _expectations() -> ModuleType:
    _great_expectations()
    import great_expectations.expectations as gxe  # slow

    return gxe


def _unique(gxe: ModuleType, key: tuple[str, ...]) -> Expectation:
    """Return the uniqueness of a key; as in SQL, rows with a NULL in it are all distinct."""
    expectation: Expectation
    if len(key) == 1:
        expectation = gxe.ExpectColumnValuesToBeUnique(column=key[0])
    else:
        expectation = gxe.ExpectCompoundColumnsToBeUnique(column_list=list(key), ignore_row_if="any_value_is_missing")
    return expectation


def _true(gxe: ModuleType, column: str) -> Expectation:
    expectation: Expectation = gxe.ExpectColumnValuesToBeInSet(column=column, value_set=[True])
    return expectation


def _domain(gxe: ModuleType, column: Column) -> list[Expectation]:
    if isinstance(column.domain, Range):
        low, high = (column.logical.bound(value) for value in (column.domain.low, column.domain.high))
        return [gxe.ExpectColumnValuesToBeBetween(column=column.name, min_value=low, max_value=high)]
    if isinstance(column.domain, Values):
        values = [column.logical.bound(value) for value in column.domain.values]
        return [gxe.ExpectColumnValuesToBeInSet(column=column.name, value_set=values)]
    if has_characters(column):
        return [_short_enough(gxe, column.name, max(length_limit(column), column.logical.shortest))]
    return []


def _sql_length(column: Column) -> int | None:
    """Return the bound that the DDL sets on the length of a text that has none of its own; None without one.

    DuckDB ignores lengths, so loading a bundle into it does not show that PostgreSQL will take the rows.
    """
    stored = column.stored_type if column.logical.textual and not has_characters(column) else None
    return None if stored is None else stored.length


def _short_enough(gxe: ModuleType, column: str, longest: int) -> Expectation:
    expectation: Expectation = gxe.ExpectColumnValueLengthsToBeBetween(column=column, max_value=longest)
    return expectation
