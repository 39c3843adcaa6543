"""Codec of opaque text, bytes and JSON: only the length is modelled; decoded values are random, never the source's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from string import ascii_lowercase, digits
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codec, Codes, null_mask, wrong_type
from privbench_core.columns.intervals import OrderedCodec, equal_width_codec
from privbench_core.errors import InternalError
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.tuning import TUNING

_NUMBER = re.compile(r"(?i:[_ .](no|nr|num|mrn|ssn)|number|phone|fax|mobile)$|[a-z](No|Nr)$")
"""What a column is called that holds digits."""


@dataclass(frozen=True)
class OpaqueCodec(Codec):
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
    in_order: ClassVar[bool] = True

    @property
    def proper(self) -> int:
        return self.lengths.proper

    @property
    def outside(self) -> tuple[int, ...]:
        """The cell of longer values."""
        return (self.ordered,)

    def encode(self, values: pa.ChunkedArray) -> Codes:
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

        Text is lower-case letters and spaces, or digits in a column that is called a number; JSON an object of at least
        two characters; bytes are any.
        """
        regular = np.where(cells == self.outside[0], self.lengths.above, np.where(cells < self.ordered, cells, 0))
        drawn = np.maximum(self.lengths.decode(regular, rng).to_numpy(), self.type.logical.shortest)
        null = cells == self.null if self.nullable else np.zeros(len(cells), bool)
        drawn = np.where(null, 0, drawn)
        if drawn.sum() > np.iinfo(np.int32).max:  # Arrow numbers the bytes of an array with these
            raise InternalError(f"{self.where}: more text than one array holds; decode in smaller chunks")
        target = self.type.logical.arrow_type
        head, tail = (part.decode() for part in self.type.logical.frame)
        inside = np.maximum(drawn - len(head + tail), 0)
        offsets = np.append(0, np.cumsum(inside)).astype(np.int32)
        content = self._content(offsets, rng)
        array = pa.Array.from_buffers(target, len(cells), [None, pa.py_buffer(offsets), pa.py_buffer(content)])
        if head:
            # What is shorter is the first character of the head and the last of the tail, with blanks in between.
            shorter = pa.array([head[0] + " " * blanks + tail[-1] for blanks in range(len(head + tail) - 2)])
            place = pa.array(np.clip(drawn - 2, 0, len(shorter) - 1))
            framed = pc.binary_join_element_wise(head, array, tail, "")
            array = pc.if_else(pa.array(drawn < len(head + tail)), shorter.take(place), framed)
        return pc.if_else(pa.array(null), pa.scalar(None, target), array) if null.any() else array

    def value_labels(self) -> list[str]:
        unit = self.type.logical.length_unit
        names = [f"{label} {unit}" for label in self.lengths.value_labels()[: self.ordered]]
        return [*names, f"> {self.max_length} {unit}"]

    @property
    def binary(self) -> bool:
        """Return whether lengths are in bytes."""
        return bool(pa.types.is_binary(self.type.logical.arrow_type))

    @cached_property
    def lengths(self) -> OrderedCodec:
        """The codec of the lengths themselves."""
        return equal_width_codec(Column(self.where, ColumnType.INTEGER), 0, self.max_length, TUNING.cells // 4)

    def _content(self, offsets: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.uint8]:
        """Return random bytes for values that lie between neighbouring ``offsets``, one after the other."""
        if self.binary:
            return np.asarray(rng.integers(0, 256, offsets[-1], np.uint8))
        if self.type is ColumnType.TEXT and _NUMBER.search(self.where):
            return np.asarray(ord("0") + rng.integers(0, len(digits), offsets[-1], np.uint8), np.uint8)
        # Letters with some spaces between them, so that the text breaks into words of a plausible length.
        alphabet = np.frombuffer(f"{ascii_lowercase}     ".encode(), np.uint8)
        drawn = rng.integers(0, len(alphabet), offsets[-1], np.uint8)
        filled = offsets[1:] > offsets[:-1]
        ends = np.concatenate([offsets[:-1][filled], offsets[1:][filled] - 1])
        drawn[ends] %= len(ascii_lowercase)  # `character(n)` takes "a " for "a", which may have to be another value
        return np.asarray(alphabet[drawn])


@dataclass(frozen=True)
class FormCodec(Codec):
    """Texts by what they are made of: anything, digits alone, or digits and one point.

    Attributes:
        where: ``table.column`` (or just the column), for messages.
        nullable: Whether the column has a cell for NULL.
    """

    where: str
    nullable: bool
    type: ClassVar[ColumnType] = ColumnType.CATEGORY
    rests: ClassVar[tuple[str, ...]] = ("", ".")
    """The characters of a text that are no digits, for each cell but the first."""

    @property
    def proper(self) -> int:
        return 1 + len(self.rests)

    def encode(self, values: pa.ChunkedArray) -> Codes:
        if not self.type.logical.accepts(values.type):
            raise wrong_type(self.where, self.type, values.type)
        texts = values.cast(pa.large_string()).combine_chunks()
        rests = pc.replace_substring_regex(texts, "[0-9]", "")
        cells = 1 + pc.index_in(rests, value_set=pa.array(self.rests, pa.large_string())).fill_null(-1).to_numpy()
        return self.with_nulls(cells.astype(np.int32), null_mask(texts), self.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        raise InternalError(f"{self.where}: values are not drawn by their form")


def length_limit(column: Column) -> int:
    """Return the maximal length of a value: the declared bound, or that of the SQL type if it is lower.

    >>> length_limit(Column("code", ColumnType.TEXT, sql_type="character varying(12)"))
    12
    """
    stored = column.stored_type
    bound = stored.length if stored else None
    return column.max_length if bound is None else min(column.max_length, bound)
