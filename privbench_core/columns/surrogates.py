"""Codec of text that is made anew: of the source's values only NULL is encoded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from privbench_core.columns.codec import Codec, Codes, null_mask, wrong_type
from privbench_core.columns.faker_text import check_provider, draw_faker_text
from privbench_core.columns.grid import qualified
from privbench_core.columns.opaque import length_limit
from privbench_core.columns.regexes import check_regex, draw_matching
from privbench_core.errors import SpecError
from privbench_core.schema.columns import Column, Pattern
from privbench_core.schema.types.arrow import uuid_text


@dataclass(frozen=True)
class SurrogateCodec(Codec):
    """One cell for every value, one for NULL; values are made by a public rule.

    Attributes:
        where: ``table.column`` (or just the column), for messages.
        nullable: Whether the column has a cell for NULL.
        pattern: A regular expression, or a provider of the Faker library; None for UUIDs.
        max_length: Longest text that a pattern makes, in characters.
    """

    where: str
    nullable: bool
    pattern: Pattern | None = None
    max_length: int = 0

    @property
    def size(self) -> int:
        """One, and NULL if there is one."""
        return 1 + self.nullable

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Return the cells of ``values``, see `Codec.encode`."""
        found = values.type
        if not (pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_null(found)):
            raise wrong_type(self.where, "text", found)
        return self.with_nulls(np.zeros(len(values), np.int32), null_mask(values), self.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Return a new value for each row that is not NULL."""
        null = cells == self.null if self.nullable else np.zeros(len(cells), bool)
        made = self._fresh(len(cells) - int(null.sum()), rng)
        return made.take(pa.array(np.cumsum(~null) - 1, mask=null)) if null.any() else made

    def labels(self) -> list[str]:
        """Return the pattern, or that there is a value."""
        rule = None if self.pattern is None else self.pattern.regex or self.pattern.provider
        return self.with_null_label([rule or "a value"])

    def _fresh(self, n: int, rng: np.random.Generator) -> pa.Array:
        if self.pattern is None:
            return random_uuids(n, rng)
        if self.pattern.regex is not None:
            return draw_matching(self.pattern.regex, n, self.max_length, rng)
        return pa.array(draw_faker_text(self.pattern.provider or "", n, self.max_length, rng), pa.string())


def uuid_codec(column: Column, *, table: str = "") -> SurrogateCodec:
    """Return the codec of a UUID column."""
    return SurrogateCodec(qualified(column, table), column.nullable)


def pattern_codec(column: Column, pattern: Pattern, *, table: str = "") -> SurrogateCodec:
    """Return the codec of a text column with a pattern.

    Raises:
        SpecError: The column is no text, the pattern is both or neither of the two kinds, or no text can be made by it.
    """
    where, limit = qualified(column, table), length_limit(column)
    if not (column.type.opaque and column.type.logical.textual):
        raise SpecError(f"{where}: a pattern on a column of type {column.type}; patterns are for text columns")
    match pattern:
        case Pattern(str(regex), None):
            check_regex(regex, limit, where)
        case Pattern(None, str(provider)):
            check_provider(provider, where)
        case _:
            raise SpecError(f"{where}: a pattern is a regular expression or a provider of Faker; give one of the two")
    return SurrogateCodec(where, column.nullable, pattern, limit)


def random_uuids(n: int, rng: np.random.Generator) -> pa.Array:
    """Return random UUIDs (version 4) as text, in no order; 122 random bits make them distinct.

    >>> random_uuids(1, np.random.default_rng(0))[0].as_py()[14]
    '4'
    """
    raw = rng.integers(0, 256, (n, 16), np.uint8)
    raw[:, 6] = raw[:, 6] & 0x0F | 0x40
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    return uuid_text(raw)
