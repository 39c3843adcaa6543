"""Codecs of regenerated values: of the source's values only NULL is encoded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from privbench_core.columns.codec import Codes, NullableCodec, null_mask, wrong_type
from privbench_core.columns.grid import qualified
from privbench_core.schema.columns import Column
from privbench_core.schema.types.arrow import uuid_text


@dataclass(frozen=True)
class SurrogateCodec(NullableCodec, ABC):
    """One cell for every value, one for NULL; subclasses say what a value is.

    Attributes:
        where: ``table.column`` (or just the column), for messages.
        nullable: Whether the column has a cell for NULL.
    """

    where: str
    nullable: bool

    @abstractmethod
    def fresh(self, n: int, rng: np.random.Generator) -> pa.Array:
        """Return ``n`` values, none of them NULL."""

    @property
    def size(self) -> int:
        """One, and NULL if there is one."""
        return 1 + self.nullable

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Return the cells of ``values``, shape (n,).

        Raises:
            SourceError: The values are not text, or NULL in a column that has none.
        """
        found = values.type
        if not (pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_null(found)):
            raise wrong_type(self.where, "text", found)
        return self.with_nulls(np.zeros(len(values), np.int32), null_mask(values), self.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Return a new value for each row that is not NULL."""
        null = cells == self.null if self.nullable else np.zeros(len(cells), bool)
        made = self.fresh(len(cells) - int(null.sum()), rng)
        if not null.any():
            return made
        return made.take(pa.array(np.cumsum(~null) - 1, mask=null))

    def labels(self) -> list[str]:
        """Return whether there is a value."""
        return self.with_null_label(["a value"])


@dataclass(frozen=True)
class UuidCodec(SurrogateCodec):
    """Random UUIDs."""

    def fresh(self, n: int, rng: np.random.Generator) -> pa.Array:
        """Return ``n`` UUIDs, see `random_uuids`."""
        return random_uuids(n, rng)


def uuid_codec(column: Column, *, table: str = "") -> UuidCodec:
    """Return the codec of a UUID column."""
    return UuidCodec(qualified(column, table), column.nullable)


def random_uuids(n: int, rng: np.random.Generator) -> pa.Array:
    """Return random UUIDs (version 4) as text, in no order; 122 random bits make them distinct.

    >>> random_uuids(1, np.random.default_rng(0))[0].as_py()[14]
    '4'
    """
    raw = rng.integers(0, 256, (n, 16), np.uint8)
    raw[:, 6] = raw[:, 6] & 0x0F | 0x40
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    return uuid_text(raw)
