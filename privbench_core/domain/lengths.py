"""Codec of opaque text: only its length is modelled; what comes back is random letters, never text of the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.domain.codec import Codes
from privbench_core.domain.grid import qualified
from privbench_core.domain.intervals import IntervalCodec, interval_codec, with_nulls
from privbench_core.errors import InternalError, SourceError
from privbench_core.schema.model import Column, ColumnType

MAX_CELLS = 64
"""Cells of the lengths 0 to the declared maximum, at most."""

# Letters with some spaces between them, so that the text breaks into words of a plausible length.
_ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", np.uint8)
_MAX_BYTES = 2**31 - 1


@dataclass(frozen=True)
class LengthCodec:
    """Text by its number of characters.

    Attributes:
        where: ``table.column`` (or just the column), for messages.
        max_length: Longest declared text; longer text has a cell of its own and comes back at this length.
        nullable: Whether the column has a cell for NULL.
    """

    where: str
    max_length: int
    nullable: bool

    @property
    def ordered(self) -> int:
        """Number of cells of lengths."""
        return min(MAX_CELLS, self.max_length + 1)

    @property
    def outside(self) -> tuple[int, ...]:
        """The cell of longer text."""
        return (self.ordered,)

    @property
    def null(self) -> int | None:
        """The last cell, if the column is nullable."""
        return self.ordered + 1 if self.nullable else None

    @property
    def size(self) -> int:
        """Cells of lengths, of longer text, and of NULL if there is one."""
        return self.ordered + 1 + self.nullable

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Cells of ``values``, shape (n,).

        Raises:
            SourceError: The values are not text, or NULL in a column that has none.
        """
        found = values.type
        if not (pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_null(found)):
            raise SourceError(
                f"{self.where}: declared text, found {found}; correct the type in the spec or fix the source"
            )
        lengths = pc.utf8_length(values.cast(pa.large_string()))
        null = pc.is_null(lengths).combine_chunks().to_numpy(zero_copy_only=False)
        cells = self._lengths.encode(lengths.fill_null(0))
        cells[cells == self._lengths.above] = self.outside[0]
        return with_nulls(cells, null, self.null, self.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Random lower-case letters and spaces, of a length drawn from each cell; longer text at the maximal length."""
        lengths = self._lengths
        regular = np.where(cells == self.outside[0], lengths.above, np.where(cells < self.ordered, cells, 0))
        drawn = lengths.decode(regular, rng).to_numpy()
        if self.nullable:
            drawn = np.where(cells == self.null, 0, drawn)
        offsets = np.zeros(len(cells) + 1, np.int64)
        np.cumsum(drawn, out=offsets[1:])
        if offsets[-1] > _MAX_BYTES:
            raise InternalError(f"{self.where}: more text than one array holds; decode in smaller chunks")
        text = _ALPHABET[rng.integers(0, len(_ALPHABET), offsets[-1], dtype=np.uint8)]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(text)]
        array = pa.Array.from_buffers(pa.string(), len(cells), buffers)
        if not self.nullable:
            return array
        return pc.if_else(pa.array(cells == self.null), pa.scalar(None, pa.string()), array)

    def labels(self) -> list[str]:
        """Lengths in characters."""
        regular = self._lengths.labels()[: self.ordered]
        names = [f"{label} characters" for label in regular]
        return [*names, f"> {self.max_length} characters", *(["NULL"] if self.nullable else [])]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able description."""
        return {"codec": "length", "where": self.where, "max_length": self.max_length, "nullable": self.nullable}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> LengthCodec:
        """The inverse of `to_dict`."""
        return cls(description["where"], description["max_length"], description["nullable"])

    @property
    def _lengths(self) -> IntervalCodec:
        """The codec of the lengths themselves."""
        return interval_codec(Column(self.where, ColumnType.INTEGER), 0, self.max_length, MAX_CELLS)


def length_codec(column: Column, *, table: str = "") -> LengthCodec:
    """The codec of an opaque text column."""
    return LengthCodec(qualified(column, table), column.max_length, column.nullable)
