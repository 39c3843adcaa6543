"""Read the fields of a mapping and collect their problems.

Nothing here raises: an invalid field is reported once and read as None, so that one pass over a spec file finds every
mistake in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from reprlib import repr as short_repr
from typing import Any

from privbench_core.errors import did_you_mean
from privbench_core.schema.types.numeric import as_integer, as_number

MAX_COUNT = 2**31 - 1
"""The largest count a spec may declare (of children, cells or characters): the largest 32-bit integer."""

UNDECIDED = "CHOOSE"
"""Placeholder that `privbench init` writes where the owner must decide."""


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


def as_name(value: object) -> str | None:
    """Return a name: text, or an integer read as text; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    usable = isinstance(value, str) and value.strip() and "\0" not in value and value != UNDECIDED
    return str(value) if usable else None


@dataclass(frozen=True)
class Node:
    """One mapping of the spec file.

    Attributes:
        where: Its name in messages: ``privacy``, ``person``, ``person.age``.
        fields: Its keys and values.
        problems: Collects mistakes.
    """

    where: str
    fields: Mapping[str, Any]
    problems: Problems

    def wrong(self, key: str, todo: str) -> None:
        """Report the value of ``key``, or that it is missing."""
        value = self.fields.get(key)
        undecided = UNDECIDED in value if isinstance(value, list) else value == UNDECIDED
        found = "is missing" if value is None else "is not decided yet" if undecided else None
        self.problems.add(self.where, f"{key} {found or f'is {short_repr(value)}'}", todo)

    def only(self, *known: str) -> None:
        """Report every unknown key."""
        for key in self.fields:
            if key not in known:
                self.problems.add(self.where, f"unknown key {key!r}", did_you_mean(key, known))

    def has(self, key: str) -> bool:
        """Return whether the key has a value."""
        return self.fields.get(key) is not None

    def name(self, key: str, todo: str) -> str | None:
        """Return a required name."""
        value = as_name(self.fields.get(key))
        if value is None:
            self.wrong(key, todo)
        return value

    def names(self, key: str, todo: str) -> tuple[str, ...] | None:
        """Return a required name or list of distinct names, as a tuple."""
        value = self.fields.get(key)
        found = [as_name(item) for item in (value if isinstance(value, list) else [value])]
        names = tuple(name for name in found if name is not None)
        if not names or len(names) != len(found) or len(set(names)) != len(names):
            self.wrong(key, todo)
            return None
        return names

    def number(self, key: str, todo: str) -> float | None:
        """Return a required finite number."""
        value = as_number(self.fields.get(key))
        if value is None:
            self.wrong(key, todo)
        return value

    def count(self, key: str, low: int, high: int, todo: str) -> int | None:
        """Return an optional integer from ``low`` to ``high``; None if absent or wrong."""
        if not self.has(key):
            return None
        value = as_integer(self.fields[key])
        if value is None or not low <= value <= high:
            self.wrong(key, todo if value is None or value < low else f"write at most {high:,}")
            return None
        return value

    def flag(self, key: str) -> bool:
        """Return an optional true or false, false if absent."""
        value = self.fields.get(key, False)
        if not isinstance(value, bool):
            self.wrong(key, "write true or false")
            return False
        return value

    def text(self, key: str, todo: str) -> str | None:
        """Return an optional text that is not empty; None if absent or wrong."""
        if not self.has(key):
            return None
        value = self.fields[key]
        if isinstance(value, str) and value.strip() and "\0" not in value and value != UNDECIDED:
            return value
        self.wrong(key, todo)
        return None

    def items(self, key: str, todo: str) -> list[Node]:
        """Return an optional list of mappings, with this node's name in messages; empty if absent or wrong."""
        value = self.fields.get(key) or []
        if isinstance(value, list) and all(isinstance(item, dict) for item in value):
            return [Node(self.where, item, self.problems) for item in value]
        self.wrong(key, todo)
        return []

    def mapping(self, key: str, todo: str) -> Node | None:
        """Return a required mapping, with its key as name in messages."""
        value = self.fields.get(key)
        if not isinstance(value, dict) or not value:
            self.wrong(key, todo)
            return None
        return Node(key, value, self.problems)
