"""Columns that are modelled as their difference from another column of the same row, or of the row that owns it.

A difference is taken between the numbers of two values (`OrderedType.number`), as the coarser of two types counts
(`columns.lags`), in 64 bits: what lies beyond them is the largest or smallest difference. It is NULL where one of
the two values is, and the value itself, far beyond all differences, where that is a date like 9999-12-31
(`grid.sentinels_of`). Rows in databases get the same differences (`engines.sql.codes.difference_of`). The owner's
values are a column of the rows (`Table.owner_bases`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.documents import leaf_values
from privbench_core.columns.grid import Grid
from privbench_core.columns.lags import coarsened, coarser
from privbench_core.errors import InternalError
from privbench_core.schema.columns import Column, Learn, Relative
from privbench_core.schema.tables import Table
from privbench_core.schema.types.base import INT64_MAX
from privbench_core.schema.types.times import NO_DISTANCE, CalendarType

Values: TypeAlias = pa.Array | pa.ChunkedArray
_NULL = -INT64_MAX - 1


def modelled_values(table: Table, rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the values of an attribute as they are coded: its differences, where it is relative to another one.

    Leaves of documents are attributes, too.

    ``rows`` holds at least these two columns, under the name in `Table.owner_bases` where the base is the owner's.
    """
    leaf = None if name in rows.column_names else table.leaf(name)
    if leaf is not None:
        return leaf_values(rows.column(leaf.document.name), leaf)
    base = next((base for column, base in table.relatives if column.name == name), None)
    if base is None:
        return rows.column(name)
    return pa.chunked_array([differences(table.column(name), base, rows.column(name), rows.column(base.name))])


def differences(column: Column, base: Column, values: Values, bases: Values) -> pa.Array:
    """Return how far values of a column lie above those of another one, NULL where either is: see `coarser`."""
    (ends, no_end), (starts, no_start) = numbers_of(column, values), numbers_of(base, bases)
    of = compared(column, base)
    ends, starts = (coarsened(each, one.type, of.type) for each, one in ((ends, column), (starts, base)))
    return differences_of_numbers(of, ends, starts, no_end | no_start)


def compared(column: Column, base: Column) -> Column:
    """Return a column of the type in which two are compared, the first where that is its own.

    Raises:
        InternalError: They cannot be compared.
    """
    to = coarser(column.type, base.type)
    if to is None:
        raise InternalError(f"{column.name}: a {column.type} column has no distance from a {base.type} column")
    return column if column.type is to else Column(column.name, to)


def differences_of_numbers(
    column: Column, ends: NDArray[np.int64], starts: NDArray[np.int64], missing: NDArray[np.bool_]
) -> pa.Array:
    """Return `differences` of a column's values by their numbers, NULL where they are missing; all of shape (n,)."""
    modelled = replace(column, relative=column.relative or Relative(column.name, Learn())).modelled
    found = np.maximum(_saturated(ends - starts, ends, starts, down=True), -INT64_MAX)
    if isinstance(kind := column.logical, CalendarType):
        found = np.where(ends >= kind.endless, NO_DISTANCE + np.minimum(ends, INT64_MAX - NO_DISTANCE), found)
    return Grid.of(modelled).array(found, missing)


def encoded(table: Table, rows: pa.Table, discretizers: Mapping[str, Discretizer]) -> dict[str, Codes]:
    """Return the codes of some attributes, each of shape (rows,); ``rows`` as in `modelled_values`."""
    return {name: each.encode(modelled_values(table, rows, name)) for name, each in discretizers.items()}


def values_of_owners(table: Table, owners: pa.Table, places: NDArray[np.signedinteger[Any]]) -> dict[str, pa.Array]:
    """Return the owners' columns that columns of a table are relative to, for each of its rows.

    ``places`` are those of its owner in ``owners``, -1 for none; shape (rows,).
    """
    take = pa.array(places, mask=places < 0)
    return {base: owners.column(name).take(take).combine_chunks() for base, name in table.owner_bases.items()}


def beside_rows(rows: pa.Table, bases: Mapping[str, pa.Array]) -> pa.Table:
    """Return rows with the columns of their owners appended."""
    for name, values in bases.items():
        rows = rows.append_column(name, values)
    return rows


def base_numbers(table: Table, bases: Mapping[str, pa.Array]) -> dict[str, NDArray[np.int64]]:
    """Return the owners' values of `values_of_owners` as whole numbers, the least of 64 bits for NULL: to be stored."""
    found = {base.name: numbers_of(base, bases[base.name]) for base in _bases_of_owners(table)}
    return {name: np.where(null, _NULL, np.maximum(numbers, -INT64_MAX)) for name, (numbers, null) in found.items()}


def base_values(table: Table, numbers: Mapping[str, NDArray[np.int64]]) -> dict[str, pa.Array]:
    """Return the inverse of `base_numbers`."""
    found = {base: (numbers[base.name], numbers[base.name] == _NULL) for base in _bases_of_owners(table)}
    return {base.name: Grid.of(base).array(np.where(null, 0, each), null) for base, (each, null) in found.items()}


def _bases_of_owners(table: Table) -> Iterator[Column]:
    """Yield the bases that are owners' columns, each once."""
    yield from {base.name: base for _, base in table.relatives if base.name in table.owner_bases}.values()


def written_values(
    table: Table, drawn: Mapping[str, pa.Array], before: Mapping[str, pa.Array] | None = None
) -> dict[str, pa.Array]:
    """Return the values of drawn attributes: those that are relative to another one are added to it.

    A sum that the column's type cannot hold becomes the nearest value that it can. ``before`` are the values of owners'
    columns that are bases and, where only some attributes are drawn, of all so far: what is relative to a drawn one
    follows it, at the distance that it had.
    """
    return _settled(table, drawn, drawn, before or {})


def with_followers(
    table: Table, changed: Mapping[str, pa.Array], before: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """Return changed columns, and those that follow them, at their old distance, because they are relative to one.

    A relative column among ``changed`` is as given; ``before`` are the values of all columns before the change.
    """
    return _settled(table, changed, {}, before)


def _settled(
    table: Table, changed: Mapping[str, pa.Array], apart: Mapping[str, pa.Array], before: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """Return changed columns, those ``apart`` added to their bases, and followers of bases at their old distance."""
    made = dict(changed)
    for column, base in table.relatives:
        if column.name in apart:
            bases = made[base.name] if base.name in made else before[base.name]
            made[column.name] = _sums(column, base, bases, apart[column.name])
        elif column.name not in made and base.name in made and column.name in before:
            kept = differences(column, base, before[column.name], before[base.name])
            made[column.name] = _sums(column, base, made[base.name], kept)
    return made


def _sums(column: Column, base: Column, bases: Values, differences: Values) -> pa.Array:
    starts, no_start = numbers_of(base, bases)
    found, none = numbers_of(column.modelled, differences)
    grid = Grid.of(column)
    low, high = grid.extent
    ends = _saturated(starts + found, starts, found, down=False)
    if column.type.logical.calendar:
        ends = np.where(found >= NO_DISTANCE, found - NO_DISTANCE, ends)
    return grid.array(np.clip(ends, low, high), no_start | none)


def numbers_of(column: Column, values: Values) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the numbers of a column's values, and which are NULL; shapes (n,)."""
    chunked = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    numbers, null = Grid.of(column).numbers(chunked)
    return numbers.astype(np.int64, copy=False), null


def _saturated(
    found: NDArray[np.int64], one: NDArray[np.int64], other: NDArray[np.int64], *, down: bool
) -> NDArray[np.int64]:
    """Return differences (``down``) or sums that went around 64 bits as the end that they passed; all shape (n,)."""
    passed = ((one ^ other) if down else ~(one ^ other)) & (one ^ found) < 0
    return np.where(passed, np.where(one < 0, -INT64_MAX - 1, INT64_MAX), found)
