"""What a JSON document is made of: its shape, and its leaves, each of which is modelled as a column of its own.

The shape of a document is the document with the kind of each scalar in place of the scalar: ``{"amount":"number"}`` is
that of ``{"amount": 19.99}``. Shape and leaves are functions of one document alone. Which of them a column has is not
known beforehand: a profile step learns the shapes that many units share, and the leaves with them
(`profiles.measure_documents`). The name of a leaf says all of it: ``payload->number["amount"]``.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any
from zlib import crc32

from privbench_core.guards import DOCUMENT_DEPTH, DOCUMENT_LEAVES
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.identity import canonical_json
from privbench_core.schema.types.base import INT64_MAX

Path = tuple[str | int, ...]

SHAPE, TYPED, WHOLE = "shape", "typed", "document"
"""The kinds of leaves that are not in a document: its shape, the same with the values of what says its type, and all
of it. Each says all that those before it say."""
WHOLES = (SHAPE, TYPED, WHOLE)
PLACE = "place"
"""The kind of the leaf that is the name of one of a document's leaves, each as likely as the others."""
_TYPE_KEYS = frozenset({"@type", "type", "kind", "event", "action"})  # what discriminates documents is called so
_LITERAL = "="  # before a value in a shape: no kind begins so
ANY = -1
"""The position in a path that stands for one item of an array, each as likely as the others."""
_TYPES = {
    **dict.fromkeys((*WHOLES, PLACE), ColumnType.CATEGORY),
    "text": ColumnType.CATEGORY,
    "integer": ColumnType.INTEGER,
    "number": ColumnType.DECIMAL,
    "boolean": ColumnType.BOOLEAN,
    "date": ColumnType.DATE,
    "time": ColumnType.TIMESTAMP,
    "uuid": ColumnType.UUID,
}
_DIGITS, _DECIMALS = 18, 4  # of numbers: those below 10^14, to four decimals
_LARGEST = 10.0 ** (_DIGITS - _DECIMALS) - 1
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)([T ])(\d\d:\d\d:\d\d)(\.\d{3}|\.\d{6}|)(Z|\+00:00|)")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_TEXT = re.compile(r"\\u(0000|[dD][89a-fA-F])")
_NAME = re.compile(r"->([a-z]+)([^\[]*)(\[.*\])", re.DOTALL)


@dataclass(frozen=True)
class Leaf:
    """A scalar at a place of the documents of a column, or their shape.

    Attributes:
        document: The column.
        kind: Of the scalar.
        form: How a time is written: ``T`` or a blank, characters of its fraction, and its zone; else empty.
        path: Keys, and positions in arrays.
    """

    document: Column
    kind: str
    form: str = ""
    path: Path = ()

    @property
    def name(self) -> str:
        """What the leaf is called as a column."""
        return f"{self.document.name}->{self.kind}{self.form}{canonical_json(self.path)}"

    @property
    def family(self) -> Leaf:
        """The leaf that stands for this one and those at other positions of the same arrays, which share a domain."""
        return replace(self, path=tuple(ANY if isinstance(step, int) else step for step in self.path))

    @cached_property
    def column(self) -> Column:
        """The leaf as a column: NULL in rows whose document has no such scalar there."""
        kind = _TYPES[self.kind]
        scaled = kind is ColumnType.DECIMAL
        return Column(
            self.name,
            kind,
            Learn() if kind.logical.needs_domain else None,
            nullable=self.kind not in (*WHOLES, PLACE) or self.document.nullable,
            precision=_DIGITS if scaled else None,
            scale=_DECIMALS if scaled else None,
        )

    def value_in(self, document: Any) -> Any:
        """Return the scalar in a parsed document, as Arrow takes it; None if there is none of this kind."""
        if self.kind in {SHAPE, TYPED}:
            return canonical_json(shape_of(document, typed=self.kind == TYPED))
        if self.kind == WHOLE:
            return _whole(document)
        if self.kind == PLACE:
            names = [leaf.name for leaf in leaves_of(self.document, shape_of(document))]
            return names[_chosen(document, len(names))] if names else ""
        for step in self.path:
            if isinstance(step, int):
                document = _item(document, step)
            else:
                document = document.get(step) if isinstance(document, dict) else None
        kind = _kind(document)
        if kind != f"{self.kind}{self.form}" and (self.kind != "number" or kind != "integer"):
            return None
        if self.kind == "number":
            return Decimal(repr(round(float(min(max(document, -_LARGEST), _LARGEST)), _DECIMALS)))
        if self.kind == "date":
            return dt.date.fromisoformat(document)
        if self.kind == "time":
            return dt.datetime.fromisoformat(document[: 19 + int(self.form[1])])
        return document

    def written(self, value: Any) -> Any:
        """Return the scalar that `value_in` returned this value of."""
        if self.kind == "number":
            return int(value) if value == value.to_integral_value() else float(value)
        if self.kind == "date":
            return str(value.isoformat())
        if self.kind == "time":
            digits, zone = int(self.form[1]), self.form[2:]
            fraction = f".{value.microsecond:06d}"[:digits]
            return f"{value.replace(microsecond=0).isoformat(sep=self.form[0])}{fraction}{zone}"
        return value


def documents_to_learn(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns of documents whose shapes and leaves are learned."""
    return tuple(column for column in columns if column.type is ColumnType.JSON and isinstance(column.domain, Learn))


def find_leaf(columns: tuple[Column, ...], name: str) -> Leaf | None:
    """Return the leaf that a name stands for, None if it is that of none in these columns."""
    for column in documents_to_learn(columns):
        found = _NAME.fullmatch(name.removeprefix(column.name)) if name.startswith(column.name) else None
        if found is not None and found[1] in _TYPES:
            path = parse_document(found[3])
            leaf = Leaf(column, found[1], found[2], tuple(path or ()))
            if leaf.name == name and all(type(step) in {str, int} for step in leaf.path):
                return leaf
    return None


def parse_document(text: str | None) -> Any:
    """Return a parsed document; None for what is none, which has the shape of null."""
    # A lone surrogate is no text, and databases take no NUL.
    if text is None or _NO_TEXT.search(text):
        return None
    try:
        return json.loads(text, parse_float=_finite, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def shape_of(document: Any, depth: int = 0, *, typed: bool = False) -> Any:
    """Return a document with kinds in place of scalars, cut where it is very deep, or an array is long.

    Args:
        document: As `parse_document` returns it.
        depth: Of what it is in.
        typed: Whether texts that say the type of an object stay.

    >>> shape_of({"b": [1.5, None], "a": {"at": "2026-03-01"}})
    {'a': {'at': 'date'}, 'b': ['number', None]}
    """
    if isinstance(document, dict | list) and depth == DOCUMENT_DEPTH:
        return None
    if isinstance(document, dict):
        return {
            key: f"{_LITERAL}{document[key]}"
            if typed and key.lower() in _TYPE_KEYS and isinstance(document[key], str)
            else shape_of(document[key], depth + 1, typed=typed)
            for key in sorted(document)[:DOCUMENT_LEAVES]
        }
    if isinstance(document, list):
        return [shape_of(item, depth + 1, typed=typed) for item in document[:DOCUMENT_DEPTH]]
    return _kind(document)


def known_leaves(document: Column, shapes: Iterable[str]) -> list[Leaf]:
    """Return the leaves of some shapes, each once; where some have whole numbers and others decimals, of numbers."""
    found = dict.fromkeys(leaf for shape in shapes for leaf in leaves_of(document, json.loads(shape)))
    return [leaf for leaf in found if leaf.kind != "integer" or replace(leaf, kind="number") not in found]


def leaves_of(document: Column, shape: Any, path: Path = ()) -> Iterator[Leaf]:
    """Yield the leaves of a shape, in order."""
    if isinstance(shape, dict):
        for key in shape:
            yield from leaves_of(document, shape[key], (*path, key))
    elif isinstance(shape, list):
        for place, item in enumerate(shape):
            yield from leaves_of(document, item, (*path, place))
    elif shape is not None and not shape.startswith(_LITERAL):
        kind = shape[:4] if shape.startswith("time") else shape
        yield Leaf(document, kind, shape[len(kind) :], path)


def filled(shape: Any, scalars: Iterator[Any]) -> Any:
    """Return the document of a shape that has these scalars for its leaves, in order."""
    if isinstance(shape, dict):
        return {key: filled(inner, scalars) for key, inner in shape.items()}
    if isinstance(shape, list):
        return [filled(inner, scalars) for inner in shape]
    if shape is None or shape.startswith(_LITERAL):
        return shape and shape.removeprefix(_LITERAL)
    return next(scalars)


def _whole(document: Any) -> str:
    try:
        return canonical_json(document)
    except RecursionError:
        return canonical_json(None)


def _chosen(document: Any, number: int) -> int:
    """Return one of some places, which a document itself chooses."""
    return crc32(_whole(document).encode()) % number


def _item(array: Any, position: int) -> Any:
    """Return an item of an array, None if there is none; of those that are kept, the array itself chooses `ANY`."""
    kept = array[:DOCUMENT_DEPTH] if isinstance(array, list) else []
    if position == ANY and kept:
        position = _chosen(kept, len(kept))
    return kept[position] if 0 <= position < len(kept) else None


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _kind(value: Any) -> str | None:
    """Return the kind of a scalar, with the form of a time; None for null, and for what is no scalar."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -INT64_MAX <= value <= INT64_MAX else "number"
    if isinstance(value, float):
        return "number"
    if not isinstance(value, str):
        return None
    found = _TIME.fullmatch(value)
    try:
        if _DATE.fullmatch(value):
            dt.date.fromisoformat(value)
            return "date"
        if found:
            dt.datetime.fromisoformat(f"{found[1]}T{found[3]}")
            return f"time{found[2]}{len(found[4])}{found[5]}"
    except ValueError:
        return "text"
    return "uuid" if _UUID.fullmatch(value) else "text"
