"""Describe what one unit moves beyond its own rows: where noise is scaled up, by how much, and along which keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from privbench_core.privacy.relations import (
    keys_into_other_units,
    moved_rows,
    reference_moves,
    referring_rows,
    stability,
)
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema


@dataclass(frozen=True)
class Reach:
    """A table whose views have a stability above 1, or a key along which they have.

    Attributes:
        subject: The table, or `ForeignKey.name`.
        stability: Stability of its views: the factor on all their noise.
        why: What removing a unit does to rows of other units.
    """

    subject: str
    stability: float
    why: str


def find_reaches(schema: Schema, bounded: Collection[str] = ()) -> tuple[Reach, ...]:
    """Return every private table, then every key, whose noise is scaled up.

    Args:
        schema: The database.
        bounded: Names of the keys along which only bounded references are measured: their noise follows from the bound.
    """
    keys = (key for table in schema.private_tables for key in table.foreign_keys if key.name not in bounded)
    found = [_of_table(schema, table.name) for table in schema.private_tables]
    found += [_along(schema, key) for key in keys]
    return tuple(reach for reach in found if reach is not None)


def _of_table(schema: Schema, table: str) -> Reach | None:
    keys = keys_into_other_units(schema, table)
    if not keys:
        return None
    ways = (f"{key.name} ({bound_in_words(schema, key)})" for key in keys)
    why = f"removing a unit takes away up to {sum(keys.values()):,} rows of other units, along {', '.join(ways)}"
    return Reach(table, stability(schema, table), why)


def _along(schema: Schema, key: ForeignKey) -> Reach | None:
    moves = reference_moves(schema, key)
    if not moves:
        return None
    how = "as many units as reach into them" if key.same_unit else bound_in_words(schema, key)
    why = (
        f"only what is measured along this key: up to {moves / 2:,.0f} rows of other units lose their reference ({how})"
    )
    return Reach(key.name, stability(schema, key.child) + moves, why)


def bound_in_words(schema: Schema, key: ForeignKey) -> str:
    """Return what bounds the rows that refer along ``key`` to rows that go with one unit."""
    rows, most = moved_rows(schema, key.parent), key.max_children or 1
    if referring_rows(schema, key) < rows * most:
        return f"max_children_per_unit: {key.max_children_per_unit:,}"
    return f"{rows:,} {key.parent} per unit, {most:,} {key.child} each"
