"""What holds between columns and rows: foreign keys, checks and dependencies; and the indexes beside them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ForeignKey:
    """A reference from ``child(columns)`` to ``parent(parent_columns)``.

    Attributes:
        max_children: τ, the declared bound on rows per parent. Enforced along the ownership path, else only declared.
        owner: Whether this key is the child's step on its ownership path to the privacy unit.
        optional: Whether the key may be NULL (the SQL meaning: any of its columns is NULL).
        same_unit: Whether a row and the row it refers to belong to the same privacy unit, by their ownership paths.
            Enforced: rows that break it are not looked at.
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
    constraint: str | None = None
    actions: str | None = None

    @property
    def name(self) -> str:
        """``child.column`` or ``child.(a,b)``: how messages and step keys call this key."""
        inside = self.columns[0] if len(self.columns) == 1 else f"({','.join(self.columns)})"
        return f"{self.child}.{inside}"


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
