"""Codec of opaque text, bytes and JSON: only the length is modelled; what comes back is random, never the source's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.equal_width import EqualWidthCodec, equal_width_codec, with_nulls
from privbench_core.columns.grid import qualified
from privbench_core.errors import InternalError, SourceError
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.sql_types import sql_type_of

MAX_CELLS = 64
"""Cells of the lengths 0 to the declared maximum, at most."""

# Letters with some spaces between them, so that the text breaks into words of a plausible length.
_ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", np.uint8)
_MAX_BYTES = 2**31 - 1
# An object, because queries take its members out; spelled as PostgreSQL's jsonb spells it, which keeps the length.
_JSON_HEAD, _JSON_TAIL = b'{"a": "', b'"}'


@dataclass(frozen=True)
class OpaqueCodec:
    """Opaque values by their length, in characters or (`ColumnType.BYTES`) bytes.

    Attributes:
        where: ``table.column`` (or just the column), for messages.
        max_length: Longest declared value; longer ones have a cell of their own and come back at this length.
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
    def null(self) -> int | None:
        """The last cell, if the column is nullable."""
        return self.ordered + 1 if self.nullable else None

    @property
    def size(self) -> int:
        """Cells of lengths, of longer values, and of NULL if there is one."""
        return self.ordered + 1 + self.nullable

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Cells of ``values``, shape (n,).

        Raises:
            SourceError: The values are of another type, or NULL in a column that has none.
        """
        found = values.type
        if self.type is ColumnType.BYTES:
            fits = pa.types.is_binary(found) or pa.types.is_large_binary(found)
        else:
            fits = pa.types.is_string(found) or pa.types.is_large_string(found)
        if not (fits or pa.types.is_null(found)):
            raise SourceError(
                f"{self.where}: declared {self.type}, found {found}; correct the type in the spec or fix the source"
            )
        if self.type is ColumnType.BYTES:
            lengths = pc.binary_length(values.cast(pa.large_binary()))
        else:
            lengths = pc.utf8_length(values.cast(pa.large_string()))
        null = pc.is_null(lengths).combine_chunks().to_numpy(zero_copy_only=False)
        cells = self._lengths.encode(lengths.fill_null(0))
        cells[cells == self._lengths.above] = self.outside[0]
        return with_nulls(cells, null, self.null, self.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Random values of a length drawn from each cell; longer ones at the maximal length.

        Text is lower-case letters and spaces; JSON an object, so two characters at least; bytes are any.
        """
        lengths = self._lengths
        regular = np.where(cells == self.outside[0], lengths.above, np.where(cells < self.ordered, cells, 0))
        drawn = lengths.decode(regular, rng).to_numpy()
        if self.type is ColumnType.JSON:
            drawn = np.maximum(drawn, len("{}"))
        null = cells == self.null if self.nullable else np.zeros(len(cells), bool)
        drawn = np.where(null, 0, drawn)
        offsets = np.zeros(len(cells) + 1, np.int64)
        np.cumsum(drawn, out=offsets[1:])
        if offsets[-1] > _MAX_BYTES:
            raise InternalError(f"{self.where}: more text than one array holds; decode in smaller chunks")
        target = pa.binary() if self.type is ColumnType.BYTES else pa.string()
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(self._content(offsets, rng))]
        array = pa.Array.from_buffers(target, len(cells), buffers)
        if not null.any():
            return array
        return pc.if_else(pa.array(null), pa.scalar(None, target), array)

    def labels(self) -> list[str]:
        """Lengths in characters or bytes."""
        unit = "bytes" if self.type is ColumnType.BYTES else "characters"
        names = [f"{label} {unit}" for label in self._lengths.labels()[: self.ordered]]
        return [*names, f"> {self.max_length} {unit}", *(["NULL"] if self.nullable else [])]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description."""
        kind = {"codec": "length", "type": str(self.type)}
        return {**kind, "where": self.where, "max_length": self.max_length, "nullable": self.nullable}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> OpaqueCodec:
        """The inverse of `to_dict`."""
        d = description
        return cls(d["where"], d["max_length"], d["nullable"], ColumnType(d["type"]))

    @property
    def _lengths(self) -> EqualWidthCodec:
        """The codec of the lengths themselves."""
        return equal_width_codec(Column(self.where, ColumnType.INTEGER), 0, self.max_length, MAX_CELLS)

    def _content(self, offsets: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint8]:
        """Random bytes for values that lie between neighbouring ``offsets``, one after the other."""
        if self.type is ColumnType.BYTES:
            return np.asarray(rng.integers(0, 256, offsets[-1], np.uint8))
        content: NDArray[np.uint8] = _ALPHABET[rng.integers(0, len(_ALPHABET), offsets[-1], np.uint8)]
        if self.type is ColumnType.JSON:
            _wrap(content, offsets[:-1], offsets[1:])
        return content


def _wrap(content: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    """Make each stretch of letters a JSON object, in place: braces around a member, or around blanks if it is short."""
    lengths = ends - starts
    long = lengths >= len(_JSON_HEAD) + len(_JSON_TAIL)
    for place, byte in enumerate(_JSON_HEAD):
        content[starts[long] + place] = byte
    content[ends[long] - 2] = _JSON_TAIL[0]
    content[ends[lengths > 0] - 1] = _JSON_TAIL[1]
    short = (lengths > 0) & ~long
    content[starts[short]] = _JSON_HEAD[0]
    for place in range(1, len(_JSON_HEAD) + len(_JSON_TAIL) - 1):
        content[starts[short & (lengths > place + 1)] + place] = ord(" ")


def opaque_codec(column: Column, *, table: str = "") -> OpaqueCodec:
    """The codec of an opaque column of text, bytes or JSON."""
    return OpaqueCodec(qualified(column, table), length_limit(column), column.nullable, column.type)


def length_limit(column: Column) -> int:
    """Most characters or bytes of a value: the declared bound, or that of the SQL type if it is lower.

    >>> length_limit(Column("code", ColumnType.TEXT, sql_type="character varying(12)"))
    12
    """
    sql_type = sql_type_of(column)
    bound = sql_type.length if sql_type else None
    return column.max_length if bound is None else min(column.max_length, bound)
