"""Checks of a synthetic database as Great Expectations suites, built from the schema.

Checks that need a join are about the derived columns of `derived`. Results carry names and counts, never values. Great
Expectations is slow to import, so this happens only when a suite is built, or `prepare_ahead` of it; its progress bars
and usage reports are off.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from threading import Lock, RLock, Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any

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
    has_form,
    integrity_frame,
    reference_column,
    rows_alike,
    type_column,
    unit_column,
    witness_frame,
)

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.expectations.expectation import Expectation

_ONE_FRAME = Lock()  # Great Expectations checks the last frame that any thread gave it
_PREPARING = RLock()
_COUNTED = {"result_format": "BASIC", "partial_unexpected_count": 0}  # how many, but not which
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


def check_table(schema: Schema, table: Table, tables: Mapping[str, pa.Table]) -> list[ExpectationResult]:
    """Check one table of a synthetic database; results are in the order of `integrity_suite`.

    Args:
        schema: The database.
        table: The table to check.
        tables: Rows of all `tables_to_check`.
    """
    results = hold_for_witnesses(table, [witnesses(schema, table, tables, wanted_witnesses(table))])
    places = range(len(integrity_suite(table)))
    results |= judged(schema, table, tables, [place for place in places if place not in results])
    return [results[place] for place in places]


def judged(
    schema: Schema, table: Table, tables: Mapping[str, pa.Table], places: Sequence[int]
) -> dict[int, ExpectationResult]:
    """Return the results of some expectations on all rows, by their place in the suite; arguments as in `check_table`.

    Each is given its own columns only: a frame takes far more memory than Arrow.
    """
    suite = integrity_suite(table)
    return {
        place: run_suite(table.name, integrity_frame(schema, table, tables, _columns(suite[place])), [suite[place]])[0]
        for place in places
    }


@dataclass(frozen=True)
class Witnesses:
    """A few of the values and rows of a table, or of a range: expectations hold for all if they hold for these.

    Attributes:
        values: For expectations on single values.
        rows: For each expectation that no two rows are alike, by its place in the suite: two that are, if there are.
    """

    values: pd.DataFrame
    rows: Mapping[int, pd.DataFrame]


@dataclass(frozen=True)
class WantedWitnesses:
    """What is to be found in the rows of a table, which takes no suite, and so no Great Expectations, to find.

    Attributes:
        asked: See `derived.witness_frame`.
        unique: Columns in which no two rows may be alike, by the expectation's place in the suite.
    """

    asked: Mapping[str, frozenset[str]]
    unique: Mapping[int, Sequence[str]]


def wanted_witnesses(table: Table) -> WantedWitnesses:
    """Return which witnesses the expectations on a table need."""
    asked, unique = dict[str, frozenset[str]](), dict[int, Sequence[str]]()
    for place, expectation in enumerate(integrity_suite(table)):
        columns, name = _columns(expectation), expectation.configuration.type
        if name in _ONE_BY_ONE:
            kind = _ONE_BY_ONE[name]
            asked[columns[0]] = asked.get(columns[0], frozenset()) | ({kind} if kind else frozenset())
        else:
            unique[place] = columns
    return WantedWitnesses(asked, unique)


def witnesses(schema: Schema, table: Table, tables: Mapping[str, pa.Table], wanted: WantedWitnesses) -> Witnesses:
    """Return what all expectations are to be checked on; of several ranges, all of these together."""
    alike = {place: rows_alike(tables[table.name], columns) for place, columns in wanted.unique.items()}
    return Witnesses(witness_frame(schema, table, tables, wanted.asked), alike)


def hold_for_witnesses(table: Table, found: Sequence[Witnesses]) -> dict[int, ExpectationResult]:
    """Return, by place in the suite, the results of expectations that hold for all witnesses.

    Checking millions of rows takes minutes, and their frame gigabytes. Failed expectations are left out: their
    violations are still to be counted. That no two rows are alike is known within each range.
    """
    import pandas as pd

    suite = integrity_suite(table)
    together = found[0].rows.keys()
    single = [place for place in range(len(suite)) if place not in together]
    values = pd.concat([each.values for each in found], ignore_index=True)
    judged_singly = run_suite(table.name, values, [suite[place] for place in single], counted=False)
    results = dict(zip(single, judged_singly, strict=True))
    for place in together:
        frames = [each.rows[place] for each in found]
        worst = max(frames, key=len)  # two rows where some are alike in a range
        results[place] = run_suite(table.name, worst, [suite[place]], counted=False)[0]
    return {place: replace(result, unexpected_count=0) for place, result in results.items() if result.success}


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
    gxe = _great_expectations().expectations

    def holds(derived: str) -> Expectation:
        return gxe.ExpectColumnValuesToBeInSet(column=derived, value_set=[True])  # type: ignore[no-any-return]

    suite: list[Expectation] = [holds(type_column(c)) for c in table.columns]
    for key in (table.primary_key, *table.unique):  # as in SQL, rows with a NULL in the key are all distinct
        if len(key) == 1:
            suite.append(gxe.ExpectColumnValuesToBeUnique(column=key[0]))
        else:
            suite.append(gxe.ExpectCompoundColumnsToBeUnique(column_list=[*key], ignore_row_if="any_value_is_missing"))
    required = {c.name for c in table.columns if not c.nullable} | set(table.primary_key)
    required -= {name for key in table.foreign_keys if key.optional for name in key.columns} - set(table.primary_key)
    suite += [gxe.ExpectColumnValuesToNotBeNull(column=c.name) for c in table.columns if c.name in required]
    if not table.public:  # public tables are published unchanged
        suite += [holds(form_column(c)) for c in table.columns if has_form(c)]
        suite += [expectation for c in table.attributes for expectation in _domain(gxe, c)]
        suite += [
            gxe.ExpectColumnValueLengthsToBeBetween(column=c.name, max_value=room)
            for c in table.columns
            if (room := _sql_length(c)) is not None
        ]
    for link in table.foreign_keys:
        suite.append(holds(reference_column(link)))
        if link.max_children is not None:
            suite.append(gxe.ExpectColumnValuesToBeBetween(column=fanout_column(link), max_value=link.max_children))
        if link.same_unit:
            suite.append(holds(unit_column(link)))
    return suite


def run_suite(
    name: str, frame: pd.DataFrame, suite: Sequence[Expectation], *, counted: bool = True
) -> list[ExpectationResult]:
    """Run all expectations on ``frame``; one that cannot be evaluated counts as failed.

    Args:
        name: Name of the suite.
        frame: The rows.
        suite: Expectations, see `integrity_suite`.
        counted: Whether to count violations, which takes half as long again as to find out whether there are any.

    Returns:
        One result per expectation, in the order of the suite.
    """
    if not suite:
        return []
    # Results come back grouped by column, so each expectation carries its position.
    for position, expectation in enumerate(suite):
        expectation.meta = {"position": position}
    with _ONE_FRAME:
        batch = _frames().get_batch({"dataframe": frame})
        try:
            outcome = batch.validate(
                _great_expectations().ExpectationSuite(name=name, expectations=[*suite]),
                result_format=_COUNTED if counted else {"result_format": "BOOLEAN_ONLY"},
            )
        finally:
            kept = batch.data.execution_engine.batch_manager  # the last frame, which may be large
            kept.reset_batch_cache()
            kept.batch_data_cache.clear()
    by_position = {result.expectation_config.meta["position"]: result for result in outcome.results}
    return [
        ExpectationResult(
            expectation.configuration.type,
            ",".join(_columns(expectation)) or None,
            bool(by_position[position].success),
            by_position[position].result.get("unexpected_count"),
        )
        for position, expectation in enumerate(suite)
    ]


def prepare_ahead() -> None:
    """Import Great Expectations in a thread, for suites that will be built; nothing may use PySpark meanwhile.

    What goes wrong there is left to who builds a suite; if the process ends before, nothing may be imported any more.
    """
    Thread(target=_prepare, name="great expectations").start()


def _prepare() -> None:
    with suppress(Exception):
        _frames()


def _frames() -> BatchDefinition[Any]:
    """Where Great Expectations takes frames from; one thread at a time: a second context would replace the first."""
    with _PREPARING:
        return _lasting_frames()


@cache
def _lasting_frames() -> BatchDefinition[Any]:
    """`_frames`, once for all: a context takes longer to make than most checks."""
    context = _great_expectations().get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = _great_expectations().data_context.types.base.ProgressBarsConfig(globally=False)
    frames = context.data_sources.add_pandas("privbench").add_dataframe_asset("frames")
    whole: BatchDefinition[Any] = frames.add_batch_definition_whole_dataframe("whole")
    return whole


def _columns(expectation: Expectation) -> list[str]:
    """Return the columns of an expectation."""
    about = expectation.configuration.kwargs
    return [about["column"]] if about.get("column") else list(about.get("column_list", ()))


@cache
def _great_expectations() -> ModuleType:
    os.environ["GX_ANALYTICS_ENABLED"] = "False"  # read once, when the package is imported
    # Failures are in the results; the package's own log would repeat them with values.
    log = logging.getLogger("great_expectations")
    log.propagate = False
    if not log.handlers:
        log.addHandler(logging.NullHandler())
    with _PREPARING, _without("pyspark"):
        import great_expectations as gx  # slow

    return gx


@contextmanager
def _without(package: str) -> Iterator[None]:
    """Hide a package: Great Expectations imports all it might work with, and importing PySpark can end a process."""
    names = {package, *(name for name in list(sys.modules) if name.startswith(f"{package}."))}
    hidden = {name: sys.modules.pop(name, None) for name in names}
    sys.modules[package] = None  # type: ignore[assignment] # how Python marks what cannot be imported
    try:
        yield
    finally:
        del sys.modules[package]
        sys.modules.update({name: module for name, module in hidden.items() if module is not None})


def _domain(gxe: ModuleType, column: Column) -> list[Expectation]:
    if isinstance(column.domain, Range):
        low, high = (column.logical.bound(value) for value in (column.domain.low, column.domain.high))
        return [gxe.ExpectColumnValuesToBeBetween(column=column.name, min_value=low, max_value=high)]
    if isinstance(column.domain, Values):
        values = [column.logical.bound(value) for value in column.domain.values]
        return [gxe.ExpectColumnValuesToBeInSet(column=column.name, value_set=values)]
    if column.logical.length_unit == "characters":
        longest = max(length_limit(column), column.logical.shortest)
        return [gxe.ExpectColumnValueLengthsToBeBetween(column=column.name, max_value=longest)]
    return []


def _sql_length(column: Column) -> int | None:
    """Return the bound that the DDL sets on the length of a text that has none of its own; None without one.

    DuckDB ignores lengths, so loading a bundle into it does not show that PostgreSQL will take the rows.
    """
    own = column.logical.length_unit == "characters" or not column.logical.textual
    return None if own or column.stored_type is None else column.stored_type.length
