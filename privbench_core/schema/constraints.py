"""What holds between columns and rows: foreign keys, checks and dependencies; and the indexes beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class OnUnitRemoved(StrEnum):
    """What becomes of the rows that refer to a row when a privacy unit goes, and the row with it.

    As SQL's ON DELETE: CASCADE removes them as well, SET NULL keeps them and empties their references. Where the key is
    required, SET NULL means that what they refer to is no longer known.
    """

    CASCADE = "cascade"
    SET_NULL = "set null"


@dataclass(frozen=True)
class ForeignKey:
    """A reference from ``child(columns)`` to ``parent(parent_columns)``.

    Attributes:
        max_children: τ, the declared bound on rows per parent. Enforced along the ownership path, else only declared.
        max_children_per_unit: The declared bound on rows that refer to any of the parent's rows of one unit; None where
            nothing better is known than that each of these rows may have ``max_children``.
        owner: Whether this key is the child's step on its ownership path to the privacy unit.
        optional: Whether the key may be NULL (the SQL meaning: any of its columns is NULL).
        same_unit: Whether a row and the row it refers to belong to the same privacy unit, by their ownership paths.
            Enforced: rows that break it are not looked at.
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
