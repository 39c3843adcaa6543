"""Surrogate keys for synthetic rows: numbered, so a key of the source can recur only if it is a small number."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.grid import Grid
from privbench_core.columns.opaque import length_limit
from privbench_core.columns.surrogates import random_uuids
from privbench_core.errors import InternalError, PublishError
from privbench_core.schema.columns import Column

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
        and ``first``.

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


def ordinal_within(groups: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the running number of each row inside its group, from 1, in row order.

    Args:
        groups: Group of each row, shape (n,), in any order.

    >>> ordinal_within(np.array([7, 3, 7, 7, 3])).tolist()
    [1, 1, 2, 3, 2]
    """
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    position = np.arange(len(groups), dtype=np.int64)
    begins = np.concatenate([[True], sorted_groups[1:] != sorted_groups[:-1]])[: len(groups)]
    start = np.maximum.accumulate(np.where(begins, position, 0))
    ordinals = np.empty(len(groups), np.int64)
    ordinals[order] = position - start + 1
    return ordinals


def _series(column: Column, numbers: NDArray[np.int64], total: int, prefix: str) -> pa.Array:
    """Return values at equal distances on the column's number line; overwrites ``numbers``."""
    grid = Grid.of(column, prefix)
    first, step = grid.logical.series
    _room(column, total, (grid.extent[1] - first) // step + 1, prefix)
    numbers -= 1
    numbers *= step
    numbers += first
    return grid.array(numbers)


def _text(column: Column, numbers: NDArray[np.int64], total: int, prefix: str) -> pa.Array:
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
            f"and {n:,} are needed; declare a wider type or lower --scale"
        )
