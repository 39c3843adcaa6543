"""The order that decides which children beyond τ are kept: SHA-256 of a secret and the child's own primary key.

All engines compute it alike: the hash is that of UTF-8 text, and a key's text follows from its stored values alone
(`stored`): each one's length in characters, a colon, and the value: digits of a number, text as it is, bytes as
hexadecimal digits. The order of hashes is that of their bytes. And alike is what a kept row weighs, by the number of
rows that its unit has in the table: see `privacy.relations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.backends.scratch import scratch
from privbench_core.engines.stored import to_stored
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.schema.columns import Column

_COMPARED = 8  # bytes of a hash: of a billion rows two agree in them with a probability of 0.03


def order_key(secret: bytes) -> str:
    """Return the text that every key's text is hashed behind: it says nothing about the secret that it comes from.

    Statements hold it, and databases may keep their text.
    """
    return blake2b(b"which children are kept", key=secret, digest_size=16).hexdigest()


def keyed_order(secret: bytes, columns: Sequence[Column], keys: pa.Table) -> NDArray[np.uint64]:
    """Return the first bytes of the hash of each key, shape (n,), in an order in which no other row has a say.

    Args:
        secret: Of the workspace.
        columns: Of the primary key.
        keys: Their canonical values.
    """
    # A value is written by its type alone; pandas would choose one format for the column, that is, by other rows.
    parts = [_texts(keys.column(column.name), column) for column in columns]
    nothing = pa.scalar("", pa.large_string())  # the first scalar imports pandas, so none is made by importing this
    texts = pc.binary_join_element_wise(*(part for text in parts for part in text), nothing)
    with scratch() as connection:  # three times faster than one by one, and in the order of what it scans
        connection.register("keys", pa.table({"text": texts}))
        hashed = f"('0x' || left(sha256(? || text), {2 * _COMPARED}))::UBIGINT"
        found = connection.execute(f"SELECT {hashed} AS hashed FROM keys", [order_key(secret)]).fetchnumpy()["hashed"]
        connection.unregister("keys")
    return np.asarray(found)


def _texts(values: pa.ChunkedArray, column: Column) -> tuple[pa.Array, pa.Scalar, pa.Array]:
    """Return the length of each value's text, a colon, and the text."""
    stored = to_stored(values, column)
    if pa.types.is_binary(stored.type):
        text = pa.array([value.hex() for value in stored.to_pylist()], pa.large_string())
    else:
        text = stored.combine_chunks().cast(pa.large_string())
    return pc.utf8_length(text).cast(pa.large_string()), pa.scalar(":", pa.large_string()), text


Numbers = NDArray[np.integer[Any]]


def unit_weights(rows: Numbers, rows_per_unit: Sequence[int]) -> NDArray[np.int32]:
    """Return weights in multiples of 1/`WEIGHT_SCALE`, shape (n,).

    Args:
        rows: Kept rows of each row's unit, shape (n,).
        rows_per_unit: The T that weights may be shares of, ascending.

    >>> unit_weights(np.array([1, 2, 3]), (2,)).tolist()
    [524288, 524288, 349525]
    """
    numbers, places = _numbers(rows)
    return np.asarray((WEIGHT_SCALE // _divisors(numbers, rows_per_unit)).astype(np.int32)[places])


def unit_divisors(rows: Numbers, rows_per_unit: Sequence[int]) -> NDArray[np.int64]:
    """Return by what the weight of each row's unit is divided: T, or the number of its rows; shape (n,)."""
    numbers, places = _numbers(rows)
    return np.asarray(_divisors(numbers, rows_per_unit)[places])


def _numbers(rows: Numbers) -> tuple[Numbers, Numbers | slice]:
    """Return numbers of rows and which of them each row has: all there could be, where these are fewer than rows."""
    most = int(rows.max(initial=0))
    return (np.arange(most + 1), rows) if most < len(rows) else (rows, slice(None))


def _divisors(rows: Numbers, rows_per_unit: Sequence[int]) -> NDArray[np.int64]:
    place = np.searchsorted(rows_per_unit, rows)
    return np.where(place < len(rows_per_unit), np.append(rows_per_unit, 1)[place], np.maximum(rows, 1))
