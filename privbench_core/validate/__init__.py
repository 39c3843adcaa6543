"""Check synthetic rows against the schema and its constraints. Reads no private row.

Here are the expectations on a synthetic table, and Great Expectations, which judges them on a data frame.

Checks that need a join are about the derived columns of `derived`. Results carry names and counts, never values. Great
Expectations is slow to import, so this happens only when a frame is judged, or `prepare_ahead` of it; its progress bars
and usage reports are off.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from threading import Lock, RLock, Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any

from privbench_core.columns.opaque import length_limit
from privbench_core.schema.columns import Column, Learn, Range, Values
from privbench_core.schema.tables import Table
from privbench_core.validate.derived import (
    BETWEEN,
    IN_SET,
    LENGTHS,
    fanout_column,
    form_column,
    has_form,
    reference_column,
    type_column,
    unit_column,
)

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.expectations.expectation import Expectation as GreatExpectation

NOT_NULL = "expect_column_values_to_not_be_null"
UNIQUE = "expect_column_values_to_be_unique"
UNIQUE_TOGETHER = "expect_compound_columns_to_be_unique"
CHECK = "expect_check_to_hold: "
DEPENDENCY = "expect_functional_dependency: "
_SENTENCES = {
    NOT_NULL: "{column} is never NULL",
    UNIQUE: "{column} is unique",
    UNIQUE_TOGETHER: "{column} are unique together",
    IN_SET: "{column} has declared values only",
    BETWEEN: "{column} stays within its declared bounds",
    LENGTHS: "{column} is no longer than declared",
}
_STATEMENTS = (" has its type", " has its form", " refers to ", " of the same unit")  # derived columns that are one
_ONE_FRAME = Lock()  # Great Expectations checks the last frame that any thread gave it
_PREPARING = RLock()
_COUNTED = {"result_format": "BASIC", "partial_unexpected_count": 0}  # how many, but not which


@dataclass(frozen=True)
class Expectation:
    """What must hold of a column, or of several together.

    Attributes:
        name: Great Expectations' name, such as ``expect_column_values_to_not_be_null``.
        columns: Its columns, derived ones included; several for `UNIQUE_TOGETHER` only.
        limits: Its other arguments.
    """

    name: str
    columns: tuple[str, ...]
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def compares_rows(self) -> bool:
        """Whether it is about several rows together, not about each value."""
        return self.name in {UNIQUE, UNIQUE_TOGETHER}


@dataclass(frozen=True)
class ExpectationResult:
    """The outcome of one expectation.

    Attributes:
        name: Its name, or that of a constraint after `CHECK` or `DEPENDENCY`.
        column: Its columns, separated by commas; None for the whole table.
        success: Whether it holds.
        unexpected_count: Rows that violate it; None where rows cannot be counted.
    """

    name: str
    column: str | None
    success: bool
    unexpected_count: int | None


def integrity_suite(table: Table) -> list[Expectation]:
    """Return the expectations on one synthetic table, for the frame of `integrity_frame`.

    They cover types, the lengths that SQL types allow, primary and other unique keys, NOT NULL, forms and declared
    domains (of private tables), references along every foreign key, references within one privacy unit, and at most
    ``max_children`` rows per parent.
    """

    def holds(derived: str) -> Expectation:
        return Expectation(IN_SET, (derived,), {"value_set": [True]})

    suite = [holds(type_column(c)) for c in table.columns]
    for key in (table.primary_key, *table.unique):  # as in SQL, rows with a NULL in the key are all distinct
        together = len(key) > 1
        limits = {"ignore_row_if": "any_value_is_missing"} if together else {}
        suite.append(Expectation(UNIQUE_TOGETHER if together else UNIQUE, tuple(key), limits))
    required = {c.name for c in table.columns if not c.nullable} | set(table.primary_key)
    required -= {name for key in table.foreign_keys if key.optional for name in key.columns} - set(table.primary_key)
    suite += [Expectation(NOT_NULL, (c.name,)) for c in table.columns if c.name in required]
    if not table.public:  # public tables are published unchanged
        suite += [holds(form_column(c)) for c in table.columns if has_form(c)]
        suite += [expectation for c in table.attributes for expectation in _domain(c)]
        lengths = {c.name: _sql_length(c) for c in table.columns}
        suite += [Expectation(LENGTHS, (name,), {"max_value": n}) for name, n in lengths.items() if n is not None]
    for link in table.foreign_keys:
        suite.append(holds(reference_column(link)))
        if link.max_children is not None:
            suite.append(Expectation(BETWEEN, (fanout_column(link),), {"max_value": link.max_children}))
        if link.same_unit:
            suite.append(holds(unit_column(link)))
    return suite


def _domain(column: Column) -> list[Expectation]:
    bound, name = column.logical.bound, (column.name,)
    if isinstance(column.domain, Range):
        limits = {"min_value": bound(column.domain.low), "max_value": bound(column.domain.high)}
        return [Expectation(BETWEEN, name, limits)]
    if isinstance(column.domain, Values):
        return [Expectation(IN_SET, name, {"value_set": [bound(value) for value in column.domain.values]})]
    if column.logical.length_unit == "characters" and not isinstance(column.domain, Learn):
        return [Expectation(LENGTHS, name, {"max_value": max(length_limit(column), column.logical.shortest)})]
    return []


def _sql_length(column: Column) -> int | None:
    """Return the bound that the DDL sets on the length of a text that has none of its own; None without one.

    DuckDB ignores lengths, so loading a bundle into it does not show that PostgreSQL will take the rows.
    """
    own = column.logical.length_unit == "characters" or not column.logical.textual
    return None if own or column.stored_type is None else column.stored_type.length


def expectation_in_words(name: str, column: str | None) -> str:
    """Return an expectation as a sentence.

    Args:
        name: Name of the expectation, as in `ExpectationResult`.
        column: Its column or columns, derived ones included.

    >>> expectation_in_words("expect_column_values_to_not_be_null", "age")
    'age is never NULL'
    >>> expectation_in_words("expect_column_values_to_be_in_set", "household_id refers to household")
    'household_id refers to household'
    >>> expectation_in_words("expect_check_to_hold: adult", "age,works")
    'check adult holds'
    """
    column = column or "the table"
    if name.startswith(CHECK):
        return f"check {name.removeprefix(CHECK)} holds"
    if name.startswith(DEPENDENCY):
        return name.removeprefix(DEPENDENCY).replace(" -> ", " determines ")
    if any(statement in column for statement in _STATEMENTS):
        return column
    if " rows of the same " in column:
        return f"{column}: no more than declared"
    return _SENTENCES.get(name, name.replace("_", " ") + " ({column})").format(column=column)


def run_suite(frame: pd.DataFrame, suite: Sequence[Expectation], *, counted: bool = True) -> list[ExpectationResult]:
    """Judge all expectations on ``frame``; one that cannot be evaluated counts as failed.

    Args:
        frame: The rows.
        suite: Expectations, see `integrity_suite`.
        counted: Whether to count violations, which takes half as long again as to find out whether there are any.

    Returns:
        One result per expectation, in the order of the suite.
    """
    if not suite:
        return []
    gx = _great_expectations()
    built = gx.ExpectationSuite(name="integrity", expectations=[_built(gx, *each) for each in enumerate(suite)])
    with _ONE_FRAME:
        batch = _frames().get_batch({"dataframe": frame})
        try:
            outcome = batch.validate(built, result_format=_COUNTED if counted else {"result_format": "BOOLEAN_ONLY"})
        finally:
            kept = batch.data.execution_engine.batch_manager  # the last frame, which may be large
            kept.reset_batch_cache()
            kept.batch_data_cache.clear()
    found = {result.expectation_config.meta["position"]: result for result in outcome.results}  # grouped by column
    return [
        ExpectationResult(
            expectation.name,
            ",".join(expectation.columns) or None,
            bool(found[position].success),
            found[position].result.get("unexpected_count"),
        )
        for position, expectation in enumerate(suite)
    ]


def _built(gx: ModuleType, position: int, expectation: Expectation) -> GreatExpectation:
    """Return an expectation as Great Expectations' object, which carries its position in the suite."""
    kind = getattr(gx.expectations, "".join(word.capitalize() for word in expectation.name.split("_")))
    several = expectation.name == UNIQUE_TOGETHER
    about = {"column_list": [*expectation.columns]} if several else {"column": expectation.columns[0]}
    built: GreatExpectation = kind(**about, **expectation.limits, meta={"position": position})
    return built


def prepare_ahead() -> None:
    """Import Great Expectations in a thread, for frames that will be judged; nothing may use PySpark meanwhile.

    Errors there are left to `run_suite`: if the process ends before, nothing may be imported any more.
    """

    def prepare() -> None:
        with suppress(Exception):
            _frames()

    Thread(target=prepare, name="great expectations").start()


def _frames() -> BatchDefinition[Any]:
    """Return where Great Expectations takes frames from; one thread at a time, as a second context replaces another."""
    with _PREPARING:
        return _lasting_frames()


@cache
def _lasting_frames() -> BatchDefinition[Any]:
    """Make a context, once: that takes longer than most checks."""
    gx = _great_expectations()
    context = gx.get_context(mode="ephemeral")
    context.enable_analytics(False)
    context.variables.progress_bars = gx.data_context.types.base.ProgressBarsConfig(globally=False)
    frames = context.data_sources.add_pandas("privbench").add_dataframe_asset("frames")
    whole: BatchDefinition[Any] = frames.add_batch_definition_whole_dataframe("whole")
    return whole


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
