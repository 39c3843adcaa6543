"""Codec of opaque text, bytes and JSON: only the length is modelled; decoded values are random, never the source's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes, NullableCodec, null_mask, wrong_type
from privbench_core.columns.grid import qualified
from privbench_core.columns.intervals import OrderedCodec, equal_width_codec
from privbench_core.errors import InternalError
from privbench_core.schema.columns import Column, ColumnType

MAX_CELLS = 64
"""Cells of the lengths 0 to the declared maximum, at most."""

# Letters with some spaces between them, so that the text breaks into words of a plausible length.
_ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", np.uint8)
_LETTERS = 26
_MAX_BYTES = 2**31 - 1


@dataclass(frozen=True)
class OpaqueCodec(NullableCodec):
    """Opaque values by their length, in characters or bytes.

    Attributes:
        where: ``table.column`` (or just the column), for messages.
        max_length: Longest declared value; longer ones have a cell of their own and are decoded to this length.
        nullable: Whether the column has a cell for NULL.
        type: Text, bytes or JSON.
    """

    where: str
    max_length: int
    nullable: bool
    type: ColumnType = ColumnType.TEXT

    @property
    def ordered(self) -> int:
        """Number of cells of lengths."""
        return min(MAX_CELLS, self.max_length + 1)

    @property
    def outside(self) -> tuple[int, ...]:
        """The cell of longer values."""
        return (self.ordered,)

    @property
    def size(self) -> int:
        """Cells of lengths, of longer values, and of NULL if there is one."""
        return self.ordered + 1 + self.nullable

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Return the cells of ``values``, shape (n,).

        Raises:
            SourceError: The values are of another type, or NULL in a column that has none.
        """
        if not self.type.logical.accepts(values.type):
            raise wrong_type(self.where, self.type, values.type)
        if self.binary:
            lengths = pc.binary_length(values.cast(pa.large_binary()))
        else:
            lengths = pc.utf8_length(values.cast(pa.large_string()))
        cells = self.lengths.encode(lengths.fill_null(0))
        cells[cells == self.lengths.above] = self.outside[0]
        return self.with_nulls(cells, null_mask(lengths), self.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Return random values of a length drawn from each cell; longer ones at the maximal length.

        Text is lower-case letters and spaces, JSON an object of at least two characters; bytes are any.
        """
        lengths = self.lengths
        regular = np.where(cells == self.outside[0], lengths.above, np.where(cells < self.ordered, cells, 0))
        drawn = lengths.decode(regular, rng).to_numpy()
        drawn = np.maximum(drawn, self.type.logical.shortest)
        null = cells == self.null if self.nullable else np.zeros(len(cells), bool)
        drawn = np.where(null, 0, drawn)
        offsets = np.zeros(len(cells) + 1, np.int64)
        np.cumsum(drawn, out=offsets[1:])
        if offsets[-1] > _MAX_BYTES:
            raise InternalError(f"{self.where}: more text than one array holds; decode in smaller chunks")
        target = self.type.logical.arrow_type
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(self._content(offsets, rng))]
        array = pa.Array.from_buffers(target, len(cells), buffers)
        if not null.any():
            return array
        return pc.if_else(pa.array(null), pa.scalar(None, target), array)

    def labels(self) -> list[str]:
        """Return the lengths in characters or bytes."""
        unit = self.type.logical.length_unit
        names = [f"{label} {unit}" for label in self.lengths.labels()[: self.ordered]]
        return self.with_null_label([*names, f"> {self.max_length} {unit}"])

    @property
    def binary(self) -> bool:
        """Return whether lengths are in bytes."""
        return bool(pa.types.is_binary(self.type.logical.arrow_type))

    @property
    def lengths(self) -> OrderedCodec:
        """The codec of the lengths themselves."""
        return equal_width_codec(Column(self.where, ColumnType.INTEGER), 0, self.max_length, MAX_CELLS)

    def _content(self, offsets: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint8]:
        """Return random bytes for values that lie between neighbouring ``offsets``, one after the other."""
        if self.binary:
            return np.asarray(rng.integers(0, 256, offsets[-1], np.uint8))
        drawn = rng.integers(0, len(_ALPHABET), offsets[-1], np.uint8)
        filled = offsets[1:] > offsets[:-1]
        ends = np.concatenate([offsets[:-1][filled], offsets[1:][filled] - 1])
        drawn[ends] %= _LETTERS  # `character(n)` takes "a " for "a", which may have to be another value
        content: NDArray[np.uint8] = _ALPHABET[drawn]
        head, tail = self.type.logical.frame
        if head:
            _frame(content, head, tail, offsets[:-1], offsets[1:])
        return content


def _frame(
    content: NDArray[np.uint8], head: bytes, tail: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> None:
    """Write ``head`` and ``tail`` over the ends of each stretch of letters, in place.

    Shorter stretches are the first byte of the head and the last of the tail, with blanks in between.
    """
    lengths = ends - starts
    long = lengths >= len(head) + len(tail)
    for place, byte in enumerate(head):
        content[starts[long] + place] = byte
    for place, byte in enumerate(reversed(tail), start=1):
        content[ends[long] - place] = byte
    short = (lengths > 0) & ~long
    content[ends[short] - 1] = tail[-1]
    content[starts[short]] = head[0]
    for place in range(1, len(head) + len(tail) - 1):
        content[starts[short & (lengths > place + 1)] + place] = ord(" ")


def opaque_codec(column: Column, *, table: str = "") -> OpaqueCodec:
    """Return the codec of an opaque column of text, bytes or JSON."""
    return OpaqueCodec(qualified(column, table), length_limit(column), column.nullable, column.type)


def length_limit(column: Column) -> int:
    """Return the maximal length of a value: the declared bound, or that of the SQL type if it is lower.

    >>> length_limit(Column("code", ColumnType.TEXT, sql_type="character varying(12)"))
    12
    """
    stored = column.stored_type
    bound = stored.length if stored else None
    return column.max_length if bound is None else min(column.max_length, bound)
