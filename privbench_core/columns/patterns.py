"""Codec of text that follows a public pattern: a regular expression, or a provider of the Faker library."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from privbench_core.columns.faker_text import check_provider, draw_faker_text
from privbench_core.columns.grid import qualified
from privbench_core.columns.opaque import length_limit
from privbench_core.columns.regexes import check_regex, draw_matching
from privbench_core.columns.surrogates import SurrogateCodec
from privbench_core.errors import SpecError
from privbench_core.schema.columns import Column, Pattern


@dataclass(frozen=True)
class PatternCodec(SurrogateCodec):
    """Text made by a public rule; made by `pattern_codec`.

    Attributes:
        pattern: The rule.
        max_length: Longest text, in characters.
    """

    pattern: Pattern
    max_length: int

    def fresh(self, n: int, rng: np.random.Generator) -> pa.Array:
        """Return ``n`` texts that follow the pattern."""
        if self.pattern.regex is not None:
            return draw_matching(self.pattern.regex, n, self.max_length, rng)
        return pa.array(draw_faker_text(self.pattern.provider or "", n, self.max_length, rng), pa.string())

    def labels(self) -> list[str]:
        """Return the pattern itself."""
        return [self.pattern.regex or self.pattern.provider or "", *super().labels()[1:]]


def pattern_codec(column: Column, pattern: Pattern, *, table: str = "") -> PatternCodec:
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
    return PatternCodec(where, column.nullable, pattern, limit)
