"""How many pages of 8 kB a table and its indexes take in PostgreSQL, from the widths of sampled values.

The layout is that of its documentation, "Database Physical Storage", and of the README of its B-tree: rows and index
entries are packed in the order of the rows, as COPY and CREATE INDEX leave them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.schema.types.registry import SqlType

Ints = NDArray[np.int64]
_PAGE, _HEADER, _POINTER, _WORD = 8192, 24, 4, 8
_ROW_HEADER, _MOST_ROWS = 23, 291
_TOAST, _TOASTED = 2032, 18  # bytes of a row above which its longest values move out, and what each leaves behind
_SHORT = 127  # bytes of a value of variable length up to which its header is one byte, not four
_ENTRY, _ENTRY_WITH_NULL, _SPECIAL = 8, 16, 16
_BUFFERED_ROWS, _BUFFERED_BYTES, _ADDED_PAGES = 1000, 65535, 64
_EMPTY_SHARE, _EMPTY_PAGES = 16, 1000
_LEAF_FREE, _INNER_FREE = 819, 2457  # bytes that a new B-tree leaves free on a page: 10% and 30%
_POSTINGS, _ROW_POINTER = 808, 6  # bytes of an entry for equal values, at most, and of each row in it
_DIGITS = 4  # of a numeric, in two bytes
_FIXED = {
    "boolean": (1, 1), "smallint": (2, 2), "integer": (4, 4), "bigint": (8, 8), "real": (4, 4),
    "double precision": (8, 8), "date": (4, 4), "timestamp without time zone": (8, 8),
    "timestamp with time zone": (8, 8), "interval": (16, 8), "uuid": (16, 1), "macaddr": (6, 4),
}  # fmt: skip
"""Bytes and alignment of types of one width."""
_INET = (7, 1)  # of an address of IPv4
_ENUM = (4, 4)
_ARRAY_HEADER, _ARRAY_BOUNDS = 12, 8
_JSON_HEADER, _JSON_PAIR = 4, 2  # bytes that jsonb adds to its text
_BRIN_PAGES, _GIN_SHARE = 3, 5  # of other indexes: all of one, and the part of what it is on, about
NO_DUPLICATES = frozenset({"numeric", "real", "double precision", "interval", "jsonb"})
"""Types whose equal values may look different, so that a B-tree keeps an entry for each."""


@dataclass(frozen=True)
class Stored:
    """How the values of a column are stored in sampled rows.

    Attributes:
        widths: Bytes, shape (rows,); anything for NULL.
        present: Whether a row has a value, shape (rows,).
        alignment: Of types of one width; None for those of variable length.
    """

    widths: Ints
    present: NDArray[np.bool_]
    alignment: int | None

    @property
    def bare(self) -> Stored:
        """The same values where they are longest outside of the row."""
        return Stored(np.minimum(self.widths, _TOASTED), self.present, self.alignment)


def stored(values: pa.Array, kind: SqlType | None) -> Stored:
    """Return how values of an SQL type, None for an enum, are stored; arrays are given as JSON."""
    present = values.is_valid().to_numpy(zero_copy_only=False)
    fixed = _ENUM if kind is None else _INET if kind.name in {"inet", "cidr"} else _FIXED.get(kind.name)
    if fixed is not None:
        width, alignment = fixed
        return Stored(np.full(len(values), width), present, alignment)
    if kind is not None and kind.name == "numeric":
        return Stored(1 + _numeric(values), present, None)
    lengths = pc.binary_length(values).fill_null(0).to_numpy().astype(np.int64)
    if kind is not None and kind.length is not None and kind.name == "character":
        lengths = np.maximum(lengths, kind.length)
    if kind is not None and kind.name == "jsonb":
        lengths = lengths + _JSON_HEADER + _JSON_PAIR * pc.count_substring(values, ":").fill_null(0).to_numpy()
    if kind is not None and kind.is_array:
        element = _FIXED.get(kind.name.removesuffix("[]"))
        arrays = [json.loads(text or "[]") for text in values.to_pylist()]
        held = [sum(element[0] if element else _text_bytes(each) for each in array) for array in arrays]
        lengths = np.array([_ARRAY_HEADER + (_ARRAY_BOUNDS + size if size else 0) for size in held], np.int64)
    return Stored(np.where(lengths < _SHORT, lengths + 1, lengths + 4), present, None)


def _text_bytes(text: str | None) -> int:
    return 0 if text is None else -(-(_POINTER + len(str(text).encode())) // _POINTER) * _POINTER


def _numeric(values: pa.Array) -> Ints:
    """Return the bytes of decimals without their length: a header, and two for each four digits that are not zero."""
    scale = values.type.scale if pa.types.is_decimal(values.type) else 0
    size = np.abs(values.cast(pa.float64()).fill_null(0).to_numpy())
    whole = np.floor(size)
    before = np.where(whole > 0, np.floor(np.log10(np.maximum(whole, 1)) / _DIGITS) + 1, 0)
    after = np.zeros(len(size))
    rest = size - whole
    for group in range(1, ceil(scale / _DIGITS) + 1):
        rest = np.round(rest * 10**_DIGITS, max(scale - group * _DIGITS, 0))
        digits, rest = np.floor(rest), rest - np.floor(rest)
        after = np.where(digits > 0, group, after)
    trailing = (after == 0) & (whole > 0)
    for _ in range(int(before.max(initial=0))):
        trailing &= whole % 10**_DIGITS == 0
        before = before - trailing
        whole = np.where(trailing, whole / 10**_DIGITS, whole)
    return (2 + 2 * np.where(size > 0, before + after, 0)).astype(np.int64)


def heap_pages(columns: Sequence[Stored], rows: int, line: float) -> tuple[int, int]:
    """Return the pages of a table, and those of them that hold rows.

    Args:
        columns: All of its columns, in order.
        rows: Of the table.
        line: Mean bytes of a row as COPY reads it.
    """
    sizes = _row_sizes(columns)
    if np.any(sizes > _TOAST):
        out = [column.bare if column.alignment is None else column for column in columns]
        sizes = np.where(sizes > _TOAST, np.minimum(sizes, np.maximum(_row_sizes(out), _TOAST // 2)), sizes)
    filled = ceil(_packed(sizes) * rows / len(sizes)) if rows and len(sizes) else 0
    if not filled:
        return 0, 0
    return _extended(filled, ceil(min(_BUFFERED_ROWS, _BUFFERED_BYTES / line, rows) * filled / rows)), filled


def _extended(filled: int, buffered: int) -> int:
    """Return the pages of a table after COPY and VACUUM.

    COPY adds pages for the rows that it holds, or as many as it has added so far, up to a bound; VACUUM removes empty
    ones at the end if they are many.
    """
    pages = 0
    while pages < filled:
        pages += min(max(buffered, pages), _ADDED_PAGES)
    empty = pages - filled
    return filled if empty >= min(pages // _EMPTY_SHARE, _EMPTY_PAGES) else pages


def _row_sizes(columns: Sequence[Stored]) -> Ints:
    with_null_bits = -(-(_ROW_HEADER + (len(columns) + 7) // 8) // _WORD) * _WORD
    return _filled(columns, _HEADER, with_null_bits)


def _filled(columns: Sequence[Stored], start: int, start_with_null: int) -> Ints:
    """Return the bytes of rows with these columns after a header, with the padding that their alignment takes."""
    has_null = ~np.logical_and.reduce([column.present for column in columns]) if columns else np.zeros(0, bool)
    at = np.zeros(len(has_null), np.int64)
    for column in columns:
        if column.alignment is None:
            begins = np.where(column.widths <= _SHORT, at, _up(at, _POINTER))
        else:
            begins = _up(at, column.alignment)
        at = np.where(column.present, begins + column.widths, at)
    return _up(np.where(has_null, start_with_null, start) + at)


def _packed(sizes: Ints) -> float:
    """Return the pages that rows take one after the other, the last one in part."""
    ends = np.cumsum(sizes + _POINTER)
    room, first, pages = _PAGE - _HEADER, 0, 0
    while first < len(sizes):
        before = ends[first - 1] if first else 0
        last = int(np.searchsorted(ends, before + room, side="right"))
        last = min(max(last, first + 1), first + _MOST_ROWS)
        if last >= len(sizes):
            return pages + float(ends[-1] - before) / room
        first, pages = last, pages + 1
    return pages


def index_pages(method: str, columns: Sequence[Stored], keys: tuple[Ints, Ints] | None, rows: int) -> int:
    """Return the pages of an index, see `btree_pages`; of other methods roughly."""
    if method == "brin":
        return _BRIN_PAGES
    if method == "gin":
        mean = sum(float(column.widths.mean()) for column in columns if len(column.widths))
        return 2 + ceil(rows * mean / _PAGE / _GIN_SHARE)
    return btree_pages(columns, keys, rows)


def btree_pages(columns: Sequence[Stored], keys: tuple[Ints, Ints] | None, rows: int) -> int:
    """Return the pages of a B-tree.

    Args:
        columns: Its columns, of sampled rows.
        keys: Where equal keys share entries: numbers of rows, and how many distinct keys have each.
        rows: That it indexes.
    """
    if not rows or not len(columns[0].widths):
        return 1
    size = float(_filled(columns, _ENTRY, _ENTRY_WITH_NULL).mean())
    entries, total = float(rows), rows * (size + _POINTER)
    if keys is not None:
        counts, number = keys
        full, rest = np.divmod(counts, int((_POSTINGS - size) // _ROW_POINTER))
        shared = np.where(rest > 1, _up(np.ceil(size + _ROW_POINTER * rest).astype(np.int64)), size) + _POINTER
        entries = float(number @ (full + (rest > 0)))
        total = float(number @ (full * (_POSTINGS + _POINTER) + np.where(rest > 0, shared, 0)))
    pages, level = 1, ceil(entries / _on_page(total / entries, _LEAF_FREE))
    while level > 1:
        pages += level
        level = ceil(level / _on_page(size + _POINTER, _INNER_FREE))
    return pages + level


def _on_page(size: float, free: int) -> float:
    """Return how many entries of a size a page of a new B-tree holds, the upper bound of its keys apart."""
    room = _PAGE - _HEADER - _SPECIAL
    return max(1, (room - _POINTER - free) // size)


def _up(sizes: Ints, to: int = _WORD) -> Ints:
    return (sizes + to - 1) // to * to
