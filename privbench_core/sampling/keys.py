"""Surrogate keys of synthetic rows, the order in which rows are numbered and published, and which rows keys refer to.

Keys are numbered, so a key of the source can recur only if it is a small number. Databases number rows as they come,
and store them so: what is dated later has a higher key and lies further back. It decides which rows are in one page of
a table, and so how long an index scan takes, and what the optimiser expects of it. The column that says which row came
first is declared (`Table.row_order`), so nothing is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.arrays import Numbers, dense, runs
from privbench_core.columns.grid import Grid
from privbench_core.columns.opaque import length_limit
from privbench_core.columns.surrogates import key_alphabets, random_uuids
from privbench_core.columns.systematic import ascends
from privbench_core.errors import InternalError, PublishError
from privbench_core.schema.columns import Column, Pattern
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

Places = NDArray[np.signedinteger[Any]]
Values: TypeAlias = "pa.Array | pa.ChunkedArray"
_SIGNS = np.frombuffer(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", np.uint8)  # of numbers in base 36


def surrogate_key(column: Column, n: int, *, prefix: str, first: int = 0, total: int | None = None) -> pa.Array:
    """Return ``n`` distinct values for a key column, in ascending order except for UUIDs.

    Args:
        column: Its type decides the form of the keys.
        n: Number of rows.
        prefix: Usually the table's name; text keys begin with it.
        first: How many keys other ranges of rows have before these.
        total: How many keys all ranges have; these alone if None.

    Returns:
        Integers and decimals ``first`` + 1 to ``first`` + n; text ``prefix-000001`` and so on, with the prefix
        truncated if the column is short, and numbers in base 36 if it is shorter still; consecutive dates and
        timestamps (by the second) from 2000-01-01; UUIDs from a generator seeded with the names of table and column,
        and ``first``. Texts with a pattern are the first that match it, but for the very first.

    Raises:
        PublishError: The type has fewer than ``total`` values.
        InternalError: Private tables have no keys of this type.

    >>> from privbench_core.schema.columns import ColumnType
    >>> surrogate_key(Column("id", ColumnType.TEXT), 2, prefix="person").to_pylist()
    ['person-000001', 'person-000002']
    """
    numbers = np.arange(first + 1, first + n + 1, dtype=np.int64)
    total = n if total is None else total
    match column.logical.surrogate:
        case "series":
            return _series(column, numbers, total, prefix)
        case "text":
            return _text(column, numbers, total, prefix)
        case "uuid":
            seed = blake2b(f"{prefix}.{column.name}".encode(), digest_size=8).digest()
            word = int.from_bytes(seed, "big")
            return random_uuids(n, np.random.default_rng([word, first] if first else word))
        case _:
            raise InternalError(f"{prefix}.{column.name}: no surrogate keys of type {column.type}")


def ordinal_within(groups: NDArray[np.integer]) -> Numbers:
    """Return the running number of each row inside its group, from 1, in row order.

    Args:
        groups: Group of each row, shape (n,), in any order.

    >>> ordinal_within(np.array([7, 3, 7, 7, 3])).tolist()
    [1, 1, 2, 3, 2]
    """
    order = np.argsort(groups, kind="stable")
    ordinals = np.empty(len(groups), np.int64)
    ordinals[order] = np.arange(len(groups)) - np.repeat(*runs(groups[order])) + 1
    return ordinals


def fresh_keys(
    table: Table, columns: Mapping[str, pa.Array], n: int, numbering: tuple[int, int], order: Sequence[str]
) -> dict[str, pa.Array]:
    """Return the primary key columns that are numbered: of all rows, or within others (`Table.numbered_within`).

    Args:
        table: The table.
        columns: Those that are drawn already.
        n: Number of rows.
        numbering: How many rows are in the ranges of the table before these, and in all of them.
        order: Columns in whose order rows are numbered; none for that in which they are drawn.
    """
    rows = added_order([columns[name] for name in order]) if order else np.arange(n)
    fresh: dict[str, pa.Array] = {}
    for name in (name for name in table.primary_key if name not in columns):
        within = [other for other in table.numbered_within(name) if other in columns]
        if within:
            ordinals = np.empty(n, dtype=np.int64)
            ordinals[rows] = ordinal_within(group_numbers([columns[other] for other in within], n)[rows])
            numbers = surrogate_key(table.column(name), int(ordinals.max(initial=0)), prefix=table.name)
            fresh[name] = numbers.take(pa.array(ordinals - 1))
        else:
            first, total = numbering
            numbers = surrogate_key(table.column(name), n, prefix=table.name, first=first, total=total)
            fresh[name] = numbers.take(pa.array(np.argsort(rows))) if order else numbers
    return fresh


def added_by(schema: Schema, table: Table) -> tuple[str, ...]:
    """The columns in whose order rows are numbered and published; none where they stay as they are drawn.

    `Table.row_order`; where a table has none, but one above it has, the keys of its owners, as if rows had been added
    with them. Not of owners with UUIDs, whose order says nothing.
    """
    if table.row_order is not None:
        return (table.row_order,)
    key = table.owner_key
    if key is None or any(table.column(name).logical.surrogate == "uuid" for name in key.columns):
        return ()
    return key.columns if added_by(schema, schema.table(key.parent)) else ()


def added_order(columns: Sequence[pa.Array]) -> Places:
    """Return the rows in the order of some columns, equal ones as they are and NULL last; shape (rows,).

    >>> added_order([pa.array([5, None, 3, 5])]).tolist()
    [2, 0, 3, 1]
    """
    names = [str(number) for number in range(len(columns))]
    rows = pa.table(list(columns), names=names)
    order: Places = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names]).to_numpy()
    return order.astype(np.int64)


def as_added(schema: Schema, table: Table, rows: pa.Table) -> pa.Table:
    """Return the rows of a table, or of a range of it, as they are published: see `added_by`."""
    names = added_by(schema, table)
    return rows.take(added_order([rows.column(name) for name in (*names, *table.primary_key)])) if names else rows


def _series(column: Column, numbers: Numbers, total: int, prefix: str) -> pa.Array:
    """Return values at equal distances on the column's number line; overwrites ``numbers``."""
    grid = Grid.of(column, prefix)
    first, step = grid.logical.series
    _room(column, total, (grid.extent[1] - first) // step + 1, prefix)
    numbers -= 1
    numbers *= step
    numbers += first
    return grid.array(numbers)


def _text(column: Column, numbers: Numbers, total: int, prefix: str) -> pa.Array:
    if isinstance(column.domain, Pattern):
        alphabets = key_alphabets(column, column.domain, table=prefix)
        _room(column, total, math.prod(map(len, alphabets)) - 1, prefix)
        parts = []
        for alphabet in reversed(alphabets):
            numbers, place = np.divmod(numbers, len(alphabet))
            parts.append(pa.array([*alphabet]).take(pa.array(place)))
        return pc.binary_join_element_wise(*reversed(parts), "")
    digits, limit = max(6, len(str(total))), length_limit(column)
    head = prefix[: max(0, limit - digits - 1)]
    if head:
        padded = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), digits, "0")
        return pc.binary_join_element_wise(pa.scalar(head), padded, "-")
    base, width = len(_SIGNS), min(limit, digits)
    _room(column, total, base**width - 1, prefix)
    places = [_SIGNS[numbers // base**place % base] for place in reversed(range(width))]
    return pa.array([row.tobytes() for row in np.stack(places, axis=1)], pa.binary()).cast(pa.string())


def _room(column: Column, n: int, available: int, prefix: str) -> None:
    if n > available:
        raise PublishError(
            f"{prefix}.{column.name}: a key of type {column.type} has room for {max(available, 0):,} rows, "
            f"but {n:,} are needed; declare a wider type or a longer pattern, or lower --scale"
        )


def group_numbers(columns: Sequence[Values], n: int) -> Numbers:
    """Return a number per row, equal for rows with equal values; -1 if any value is NULL; shape (n,).

    >>> group_numbers([pa.array(["a", "b", "a", None]), pa.array([1, 1, 1, 1])], 4).tolist()
    [0, 1, 0, -1]
    """
    numbers = np.zeros(n, dtype=np.int64)
    complete = np.ones(n, dtype=bool)
    for place, column in enumerate(columns):
        values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        encoded = values.dictionary_encode()
        complete &= values.is_valid().to_numpy(zero_copy_only=False)
        codes = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        numbers = numbers * max(len(encoded.dictionary), 1) + codes
        if place:  # dense again, so that products stay small
            numbers = dense(numbers)
    return np.where(complete, numbers, -1)


def common_numbers(left: Sequence[Values], right: Sequence[Values], sizes: tuple[int, int]) -> tuple[Numbers, Numbers]:
    """Return `group_numbers` of the rows of two tables, such that equal values have equal numbers in both.

    Args:
        left: Columns of one table.
        right: Corresponding columns of the other, of the same types.
        sizes: Numbers of rows of the two.
    """
    both = [
        pa.chunked_array([*_chunks(one), *(chunk.cast(one.type) for chunk in _chunks(other))], type=one.type)
        for one, other in zip(left, right, strict=True)
    ]
    numbers = group_numbers(both, sum(sizes))
    return numbers[: sizes[0]], numbers[sizes[0] :]


def _chunks(column: Values) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def parent_rows(parent: pa.Table, child: pa.Table, key: ForeignKey) -> NDArray[np.int64]:
    """Return the parent row of each child row, -1 for NULL keys and keys without a match.

    Keys are compared column by column in the parent's type, and must be unique in the parent.

    Returns:
        Row positions, shape (child rows,).
    """
    if len(key.columns) == 1:
        known = parent[key.parent_columns[0]].combine_chunks()
        mine = child[key.columns[0]].cast(known.type)
        if _is_series(known) and not mine.null_count:
            first, numbers = known[0].as_py(), mine.to_numpy()
            there = (numbers >= first) & (numbers < first + len(known))
            return np.where(there, numbers - first, -1)
        found = pc.index_in(mine, value_set=known, skip_nulls=True).fill_null(-1)
        return np.asarray(found.to_numpy(), np.int64)
    theirs, ours = common_numbers(
        [parent[name] for name in key.parent_columns],
        [child[name] for name in key.columns],
        (parent.num_rows, child.num_rows),
    )
    row_of = np.full(int(max(theirs.max(initial=0), ours.max(initial=0))) + 2, -1, np.int64)
    row_of[theirs] = np.arange(parent.num_rows)
    row_of[-1] = -1  # where a column is NULL
    return row_of[ours]


def _is_series(values: pa.Array) -> bool:
    """Return whether some whole numbers follow each other without a gap, as fresh keys do."""
    if not len(values) or not ascends(values):
        return False
    first, last = values[0].as_py(), values[-1].as_py()
    return bool(first >= 0 and last - first == len(values) - 1)


def unit_rows(schema: Schema, table: str, tables: Mapping[str, pa.Table]) -> NDArray[np.int64]:
    """Return the number of the privacy unit of each row of a private table, equal across tables; shape (rows,)."""
    key = schema.table(table).owner_key
    owners = None
    if key is not None:
        owners = parent_rows(tables[key.parent], tables[table], key), unit_rows(schema, key.parent, tables)
    return schema.unit_numbers(table, tables[table].num_rows, owners)
