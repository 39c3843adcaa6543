"""What holds between columns and rows: foreign keys, checks and dependencies; and indexes.

A spec leaves the name of a constraint or a sequence out where PostgreSQL would choose the same one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias, TypeVar

K = TypeVar("K", bound="Reference")
T = TypeVar("T")
NAME_BYTES = 63  # PostgreSQL truncates longer names
_ACTION = r"(?:NO ACTION|RESTRICT|CASCADE|SET NULL|SET DEFAULT)"
_ACTIONS = re.compile(
    rf"(?:ON UPDATE {_ACTION})?(?: ?ON DELETE {_ACTION})?(?: ?DEFERRABLE(?: INITIALLY (?:DEFERRED|IMMEDIATE))?)?"
)


class OnUnitRemoved(StrEnum):
    """What becomes of the rows that refer to a row when a privacy unit goes, and the row with it.

    As SQL's ON DELETE: CASCADE removes them as well, SET NULL keeps them and empties their references. Where the key is
    required, SET NULL means that what they refer to is no longer known.
    """

    CASCADE = "cascade"
    SET_NULL = "set null"


Target: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
"""A parent table, and pairs of a column that refers to it and the column that is referred to."""


class Reference:
    """Columns of a table that refer to those of another one, or of the same one."""

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]

    @property
    def target(self) -> Target:
        """What is referred to, by which columns."""
        return self.parent, frozenset(zip(self.columns, self.parent_columns, strict=True))


@dataclass(frozen=True)
class ForeignKey(Reference):
    """A reference from ``child(columns)`` to ``parent(parent_columns)``.

    Attributes:
        max_children: τ, the declared bound on rows per parent. Enforced along the ownership path, else only declared.
        max_children_per_unit: The declared bound on rows that refer to any of the parent's rows of one unit; None where
            nothing better is known than that each of these rows may have ``max_children``.
        owner: Whether this key is the child's step on its ownership path to the privacy unit.
        optional: Whether the key may be NULL (the SQL meaning: any of its columns is NULL).
        same_unit: Whether a row and the row it refers to belong to the same privacy unit, by their ownership paths.
            Enforced: rows that break it are ignored.
        on_unit_removed: Part of the definition of neighbouring databases. None is the default: ``set null`` for an
            optional key off the ownership path, ``cascade`` for any other.
        constraint, actions: For the DDL alone: its name there, None for PostgreSQL's own, and clauses such as ``ON
            DELETE CASCADE DEFERRABLE``.
    """

    child: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    max_children: int | None = None
    owner: bool = False
    optional: bool = False
    same_unit: bool = False
    on_unit_removed: OnUnitRemoved | None = field(default=None, kw_only=True)
    max_children_per_unit: int | None = field(default=None, kw_only=True)
    constraint: str | None = None
    actions: str | None = None

    @property
    def name(self) -> str:
        """``child.column`` or ``child.(a,b)``: how messages and step keys call this key."""
        inside = self.columns[0] if len(self.columns) == 1 else f"({','.join(self.columns)})"
        return f"{self.child}.{inside}"

    @property
    def cascades(self) -> bool:
        """Whether the rows that refer to a removed row go with it; their references become NULL otherwise."""
        if self.owner or self.on_unit_removed is None:
            return self.owner or not self.optional
        return self.on_unit_removed is OnUnitRemoved.CASCADE

    @property
    def may_be_empty(self) -> bool:
        """Whether views may see rows that refer to nothing: the key may be NULL, or becomes NULL."""
        return self.optional or not self.cascades


@dataclass(frozen=True)
class Check:
    """A CHECK constraint: SQL over one row, in PostgreSQL's dialect."""

    name: str
    expression: str


@dataclass(frozen=True)
class Index:
    """An index that no constraint makes.

    Attributes:
        name: Its name.
        columns: Those that it is about.
        using: All that follows USING in its definition (method, expressions, order, INCLUDE, WHERE); None for a plain
            one of ``columns``.
    """

    name: str
    columns: tuple[str, ...]
    using: str | None = None


@dataclass(frozen=True)
class Dependency:
    """A declared functional dependency: equal ``determinant`` values, equal ``dependent`` values (city -> state)."""

    determinant: tuple[str, ...]
    dependent: tuple[str, ...]


def usual_name(table: str, columns: tuple[str, ...], kind: str) -> str:
    """Return the name that PostgreSQL gives, if nothing else has it: ``makeObjectName`` of its ``indexcmds.c``.

    Args:
        table: Name of the table.
        columns: Those of the constraint; empty for a primary key, whose name does not hold them.
        kind: ``pkey``, ``key``, ``fkey`` or ``seq``.

    >>> usual_name("line", ("ord", "no"), "fkey"), usual_name("line", (), "pkey")
    ('line_ord_no_fkey', 'line_pkey')
    """
    parts = [table.encode(), "_".join(columns).encode()[:NAME_BYTES]] if columns else [table.encode()]
    room = NAME_BYTES - len(f"_{kind}") - (len(parts) - 1)
    lengths = [len(part) for part in parts]
    while sum(lengths) > room:  # the longer of the two gives way, and of equal ones the columns
        lengths[0 if lengths[0] > lengths[-1] else -1] -= 1
    cut = [part[:length].decode(errors="ignore") for part, length in zip(parts, lengths, strict=True)]
    return "_".join([*cut, kind])


def parse_actions(text: str) -> str | None:
    """The clauses of a foreign key after what it references, in PostgreSQL's words; None if they are no such clauses.

    >>> parse_actions("on delete set null  deferrable")
    'ON DELETE SET NULL DEFERRABLE'
    >>> parse_actions("ON DELETE CASCADE; DROP TABLE person") is None
    True
    """
    spelled = " ".join(text.upper().split())
    return spelled if spelled and _ACTIONS.fullmatch(spelled) else None


def without_implied(keys: Sequence[K], keys_of: Callable[[str], Iterable[Reference]]) -> tuple[list[K], list[K]]:
    """Return the keys of a table, those apart that hold because others on the same columns do.

    A subtype table (``student.id -> person.id``) and a table that refers to both (``grade.id -> student.id`` and
    ``grade.id -> person.id``): a row that refers to a student refers to a person. The second key adds nothing to sample
    or to protect, so it is kept for the DDL alone.

    Args:
        keys: Of the table, in its order.
        keys_of: The required keys of a parent table by its name. An optional one is no link: it may be emptied where
            its parent goes, and the table's own key may not.
    """

    def above(here: Target) -> Iterator[Target]:
        """Yield what the parent refers to by the same columns, with the names that they have in the table."""
        own = {there: name for name, there in here[1]}
        for parent, pairs in (link.target for link in keys_of(here[0])):
            if own.keys() == {name for name, _ in pairs}:
                yield parent, frozenset((own[name], there) for name, there in pairs)

    kept, implied = list(keys), []
    for key in keys:
        if any(key.target in reachable(other.target, above) for other in kept if other is not key):
            kept.remove(key)
            implied.append(key)
    return kept, implied


def reachable(start: T, onward: Callable[[T], Iterable[T]]) -> set[T]:
    """Return all that some steps of ``onward`` lead to from ``start``, which is one of them."""
    seen, waiting = {start}, [start]
    while waiting:
        more = {*onward(waiting.pop())} - seen
        seen |= more
        waiting += more
    return seen
