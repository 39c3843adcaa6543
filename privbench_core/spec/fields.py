"""The forms of the mappings in a spec file: which keys there are, and what may stand at each.

Reading a mapping, writing it and the JSON Schema for editors all follow from its `Form`. Reading never raises: a wrong
value is reported once and read as if it were absent, so that one pass over a spec file finds every mistake in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from reprlib import repr as short_repr
from typing import Any, TypeVar

from privbench_core.errors import did_you_mean, most_similar
from privbench_core.schema.types.numeric import as_integer, as_number

MAX_COUNT = 2**31 - 1
"""The largest count a spec may declare (of children, cells or characters): the largest 32-bit integer."""

UNDECIDED = "CHOOSE"
"""Placeholder that `privbench init` writes where the owner must decide."""

T = TypeVar("T")
REQUIRED: Any = object()
"""The default of a key that every mapping of its form has."""


@dataclass
class Problems:
    """The mistakes found so far.

    Attributes:
        lines: One sentence per mistake: where, what was found, what to do.
        broken: Places (``table`` or ``table.column``) already reported; later checks skip them.
    """

    lines: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def add(self, where: str, found: str, todo: str) -> None:
        """Report one mistake."""
        self.lines.append(f"{where}: {found}; {todo}")
        self.broken.add(where)


@dataclass(frozen=True)
class Kind:
    """What may stand at a key.

    Attributes:
        read: Returns the value that the text of the spec means, None if it is not of this kind.
        schema: The JSON Schema of the kind.
        most: Largest integer of a kind of counts.
    """

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]
    most: int | None = None

    def that(self, holds: Callable[[Any], object]) -> Kind:
        """Return the kind of those values for which ``holds`` is true."""
        return replace(self, read=lambda raw: found if (found := self.read(raw)) is not None and holds(found) else None)


def as_name(value: object) -> str | None:
    """Return a name: text, or an integer read as text; None for anything else."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else _as_text(value)


def _as_text(value: object) -> str | None:
    usable = isinstance(value, str) and value.strip() and "\0" not in value and value != UNDECIDED
    return str(value) if usable else None


def _as_names(value: object) -> tuple[str, ...] | None:
    found = [as_name(item) for item in (value if isinstance(value, list) else [value])]
    names = tuple(name for name in found if name is not None)
    return names if names and len(names) == len(found) and len(set(names)) == len(names) else None


NAME = Kind(as_name, {"type": ["string", "integer"]})
TEXT = Kind(_as_text, {"type": "string", "minLength": 1})
FLAG = Kind(lambda value: value if isinstance(value, bool) else None, {"type": "boolean"})
NUMBER = Kind(as_number, {"type": ["number", "string"]})


def count(low: int = 1, high: int = MAX_COUNT) -> Kind:
    """Return the kind of integers from ``low`` to ``high``."""
    return Kind(as_integer, {"type": ["integer", "string"]}, high).that(lambda number: low <= number <= high)


def matching(pattern: str) -> Kind:
    """Return the kind of names that match a regular expression in full."""
    return NAME.that(re.compile(pattern).fullmatch)


def anything(schema: Mapping[str, Any]) -> Kind:
    """Return the kind of values that are checked later, and only described here."""
    return Kind(lambda value: value, schema)


def choice(*values: str) -> Kind:
    """Return the kind of one of several words."""
    return Kind(lambda value: next((word for word in values if word == value), None), {"enum": [*values]})


def either(*kinds: Kind) -> Kind:
    """Return the kind of what is of one of several kinds."""

    def read(value: object) -> Any:
        return next((found for kind in kinds if (found := kind.read(value)) is not None), None)

    return Kind(read, {"anyOf": [kind.schema for kind in kinds]})


def list_of(kind: Kind, at_least: int = 0) -> Kind:
    """Return the kind of lists, read as tuples."""

    def read(value: object) -> tuple[Any, ...] | None:
        found = tuple(map(kind.read, value)) if isinstance(value, list) else (None,)
        return None if None in found or len(found) < at_least else found

    return Kind(read, {"type": "array", "items": kind.schema, "minItems": at_least})


def named(kind: Kind, at_least: int = 0) -> Kind:
    """Return the kind of mappings of names to what ``kind`` describes; their values are read later."""
    schema = {"type": "object", "additionalProperties": kind.schema, "minProperties": at_least}
    return Kind(lambda value: value if isinstance(value, dict) and len(value) >= at_least else None, schema)


_NAME_LIST = {"type": "array", "items": NAME.schema, "minItems": 1, "uniqueItems": True}
NAME_LIST = Kind(lambda value: _as_names(value) if isinstance(value, list) else None, _NAME_LIST)
NAMES = either(NAME_LIST, Kind(_as_names, NAME.schema))


@dataclass(frozen=True)
class Key:
    """One key of a mapping.

    Attributes:
        kind: What may stand there.
        todo: What to write, for messages and editors.
        default: What its absence means.
    """

    kind: Kind
    todo: str
    default: Any = REQUIRED


class Form:
    """The keys of one mapping of the spec file, in the order in which they are written."""

    def __init__(self, *one_of: str, **keys: Key) -> None:
        """Make a form of its keys; exactly one of those in ``one_of`` must stand there, as far as editors know."""
        self.one_of, self.keys = one_of, keys

    @property
    def kind(self) -> Kind:
        """The kind of mappings of this form that are not empty; their values are read later."""
        return Kind(lambda value: value if isinstance(value, dict) and value else None, self.schema)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of such a mapping."""
        properties = {}
        for name, key in self.keys.items():
            null_too = key.default is not REQUIRED and key.kind is not FLAG
            form = {"anyOf": [key.kind.schema, {"type": "null"}]} if null_too else key.kind.schema
            properties[name] = {"description": key.todo, **form}
        required = [name for name, key in self.keys.items() if key.default is REQUIRED]
        schema = {"type": "object", "additionalProperties": False, "properties": properties, "required": required}
        return schema | ({"oneOf": [{"required": [name]} for name in self.one_of]} if self.one_of else {})

    def write(self, value: object, **special: Any) -> dict[str, Any]:
        """Return the mapping that is read as an object: its fields without defaults, a single name without brackets.

        Args:
            value: Its fields have the names of keys; others are left out.
            special: What stands at a key that is no field, or is written in another way; None for nothing.
        """
        fields: dict[str, Any] = {name: vars(value).get(name) for name in self.keys} | special
        return {
            name: one_or_list(fields[name]) if isinstance(fields[name], tuple) else fields[name]
            for name, key in self.keys.items()
            if fields[name] is not None and fields[name] != key.default
        }


def one_or_list(names: tuple[str, ...]) -> str | list[str]:
    """Return names as a spec writes them: a single one without brackets."""
    return names[0] if len(names) == 1 else list(names)


@dataclass(frozen=True)
class Node:
    """One mapping of the spec file.

    Attributes:
        where: Its name in messages: ``privacy``, ``person``, ``person.age``.
        fields: Its keys and values.
        problems: Collects mistakes.
    """

    where: str
    fields: dict[str, Any]
    problems: Problems

    def wrong(self, name: str, todo: str) -> None:
        """Report the value of a key, or that it is missing."""
        value = self.fields.get(name)
        undecided = UNDECIDED in value if isinstance(value, list) else value == UNDECIDED
        found = "is missing" if value is None else "is not decided yet" if undecided else f"is {short_repr(value)}"
        self.add(f"{name} {found}", todo)

    def add(self, found: str, todo: str) -> None:
        """Report a mistake in this mapping."""
        self.problems.add(self.where, found, todo)

    def has(self, name: str) -> bool:
        """Return whether the key has a value."""
        return self.fields.get(name) is not None

    def value(self, name: str, key: Key) -> Any:
        """Return what the key means; its default, or None if it has none, where it is absent or wrong."""
        raw, default = self.fields.get(name), None if key.default is REQUIRED else key.default
        if raw is None and not (name in self.fields and key.kind is FLAG) and key.default is not REQUIRED:
            return default
        found = None if raw is None else key.kind.read(raw)
        if found is None:
            most = key.kind.most
            self.wrong(name, f"write at most {most:,}" if most and (as_integer(raw) or 0) > most else key.todo)
        return default if found is None else found

    def read(self, form: Form) -> dict[str, Any]:
        """Return what each key of the form means, and report all mistakes; a misspelt key is read as the one meant."""
        for name in [name for name in self.fields if name not in form.keys]:
            self.add(f"unknown key {name!r}", did_you_mean(name, form.keys))
            meant = most_similar(name, form.keys)
            if meant and meant not in self.fields and form.keys[meant].kind.read(self.fields[name]) is not None:
                self.fields[meant] = self.fields[name]
        return {name: self.value(name, key) for name, key in form.keys.items()}

    def build(self, form: Form, make: Callable[..., T]) -> T | None:
        """Return what ``make`` makes of the values, in the form's order; None if a required one is missing or wrong."""
        values = self.read(form)
        required = (values[name] for name, key in form.keys.items() if key.default is REQUIRED)
        return None if any(value is None for value in required) else make(*values.values())

    def items(self, listed: Iterable[dict[str, Any]] | None, form: Form, make: Callable[..., T]) -> tuple[T, ...]:
        """Return what the mappings of a list are, without those that are reported as wrong."""
        built = (replace(self, fields=item).build(form, make) for item in listed or ())
        return tuple(item for item in built if item is not None)

    def inside(self, name: str, short: str | None = None, where: str | None = None) -> Node:
        """Return the mapping at a key; another value stands for a mapping of the one key ``short``, if that is given.

        Args:
            name: The key.
            short: See above; without it, another value is an empty mapping.
            where: The mapping's name in messages, this node's by default.
        """
        raw = self.fields.get(name)
        fields = raw if isinstance(raw, dict) else {} if short is None else {short: raw}
        return Node(where or self.where, fields, self.problems)
