"""How private rows are joined and bounded, and how far one unit can then move what is counted of them. No row is read.

Along the ownership path at most τ children per owner are kept, chosen by a keyed hash of the child's own primary key:
an order that no other row can change, so removing a unit never changes which rows of another unit are kept, unless
they depend on both. A kept row of an owned table weighs 1/T, where T is the least of some *released* numbers that is at
least s, the number of kept rows of its unit in the table, and 1/s where all of them are smaller; rounded down to a
multiple of 1/`WEIGHT_SCALE`. So all rows of one unit together weigh at most 1. For T = 1 alone these are PrivPetal's
normalised marginals (section 4), here for chains too; T times the answer counts rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

WEIGHT_SCALE = 1 << 20


def stability(schema: Schema, *tables: str) -> float:
    """Return the largest total weight that one unit can move in a view of the first table, whatever it sees of others.

    1 for the unit's own rows. A unit's rows may also refer to *another* private parent, whose removal cascades: each
    such row that the removed unit so takes away, or lets in, changes one other unit, whose weight is at most 1 before
    and at most 1 after (rows leave, the others weigh more, slots are freed): 2 in L1. See ``docs/privacy.md``, "Several
    private parents". Keys that become NULL carry no row away and do not count; nor do keys with ``same_unit``.
    """
    return 1.0 + 2.0 * _other_units(schema, *tables)


def moved_rows(schema: Schema, table: str) -> int:
    """Return a bound on the kept rows of ``table`` that are there only with one unit, or only without it.

    A row that comes or goes moves the kept children of a row by at most two: itself, and the one whose slot it takes. A
    unit that changes higher up along a key with ``same_unit`` may have all of its rows exchanged: those it has before,
    and those after.
    """
    here = schema.table(table)
    owner = here.owner_key
    own = 1 if owner is None else moved_rows(schema, owner.parent) * (owner.max_children or 1)
    beside = (key for key in here.foreign_keys if key.same_unit and carries(schema, key))
    exchanged = sum(_other_units(schema, key.parent) for key in beside) * schema.max_rows_per_unit(table)
    return own + 2 * (sum(_into_other_units(schema, here).values()) + exchanged)


def reference_moves(schema: Schema, key: ForeignKey, rows_per_unit: int = 1) -> float:
    """Return what one unit moves in a view that looks along ``key``, beyond the stability of the key's own table.

    Where a key does not cascade, removing a row sets references to it to NULL: each changes the value, not the weight,
    of a row, which is at most 1/``rows_per_unit``. Along such a key with ``same_unit`` only units see a difference
    whose own rows of the parent change: all rows of a unit weigh at most 1.

    Args:
        schema: The database.
        key: The key.
        rows_per_unit: T, up to how many rows the view counts a unit's in full; the least, if there are several.
    """
    if key.cascades or schema.table(key.parent).public:
        return 0.0
    if key.same_unit:
        return 2.0 * _other_units(schema, key.parent)
    return 2.0 * lost_references(schema, key, rows_per_unit)


def lost_references(schema: Schema, key: ForeignKey, rows_per_unit: int) -> float:
    """Return a bound on the total weight of the rows that only lose what they refer to along ``key``.

    Arguments as in `reference_moves`. In one of two neighbouring databases they refer to a row, in the other to none.
    """
    return referring_rows(schema, key) / rows_per_unit if is_set_null_across_units(schema, key) else 0.0


def referring_rows(schema: Schema, key: ForeignKey) -> int:
    """Return a bound on the rows that refer along ``key`` to parents that are kept only with one unit, or without it.

    So many rows of the parent there are at most, each with the declared number of children; and they belong to the
    removed unit and to those others that change in the parent, each with the declared number of children of its rows.
    """
    by_row = moved_rows(schema, key.parent) * (key.max_children or 1)
    if key.max_children_per_unit is None:
        return by_row
    return min(by_row, (1 + _other_units(schema, key.parent)) * key.max_children_per_unit)


def is_set_null_across_units(schema: Schema, key: ForeignKey) -> bool:
    """Return whether rows stay, and their reference along ``key`` becomes NULL, when another unit goes."""
    return not (key.cascades or key.same_unit or schema.table(key.parent).public)


def bounded_moves(schema: Schema, key: ForeignKey, to_unit: float, rows: float) -> tuple[float, float]:
    """Return the most that cells lose and gain in total in a view of bounded references, when a unit goes.

    References to the removed unit are lost, those to units that change in the parent are exchanged; and what the rows
    of the table lose or gain themselves, others that refer to the same unit may gain or lose. See ``docs/privacy.md``,
    "Bounded references".

    Args:
        schema: The database.
        key: The key, see `is_set_null_across_units`.
        to_unit: Most weight of the rows that refer to rows of one unit.
        rows: What one unit moves in a view of the same rows that does not look along the key.
    """
    others = _other_units(schema, key.parent)
    return rows + (1 + others) * to_unit, rows + others * to_unit


def deciding_tables(schema: Schema, *tables: str) -> tuple[str, ...]:
    """Return the tables whose rows decide which rows of ``tables`` are kept, what they weigh and what they show."""
    found: dict[str, None] = {}
    for table in tables:
        found |= dict.fromkeys(_above(schema, table))
    keys = [key for name in found for key in schema.table(name).foreign_keys]
    ways = {key.parent_columns for key in keys if key.parent == schema.unit and (key.owner or key.same_unit)}
    if len(ways) > 1 and any(key.same_unit for key in keys):  # only its rows say which of its keys belong together
        found[schema.unit] = None
    return tuple(found)


def _above(schema: Schema, table: str) -> tuple[str, ...]:
    """Return ``table`` and all that its rows depend on; the unit's table only if a column is relative to one of it.

    Every row of that table is kept.
    """
    found, here = {table: None}, schema.table(table)
    for key in here.foreign_keys:
        if carries(schema, key) and (key.parent != schema.unit or (key.owner and here.owner_bases)):
            found |= dict.fromkeys(_above(schema, key.parent))
    return tuple(found)


def carries(schema: Schema, key: ForeignKey) -> bool:
    """Return whether a removed parent takes the rows that refer to it along ``key`` away with it."""
    return key.cascades and not schema.table(key.parent).public


def keys_into_other_units(schema: Schema, *tables: str) -> dict[ForeignKey, int]:
    """Return the keys along which a removed unit takes rows of others away, each with a bound on these rows.

    Which rows of ``tables`` a unit keeps is a function of its own rows, in the tables that owner keys and keys with
    ``same_unit`` lead to from there, and of whether the rows are kept that these refer to along other keys.
    """
    inside = dict.fromkeys(name for table in tables for name in _inside_unit(schema, table))
    return {key: rows for name in inside for key, rows in _into_other_units(schema, schema.table(name)).items()}


def _other_units(schema: Schema, *tables: str) -> int:
    """Return a bound on the other units whose kept rows of ``tables``, or the weights of these, change."""
    return sum(keys_into_other_units(schema, *tables).values())


def _inside_unit(schema: Schema, table: str) -> tuple[str, ...]:
    """Return ``table`` and the tables whose rows of the same unit its rows depend on."""
    found = {table: None}
    for key in schema.table(table).foreign_keys:
        if key.owner or (key.same_unit and carries(schema, key)):
            found |= dict.fromkeys(_inside_unit(schema, key.parent))
    return tuple(found)


def _into_other_units(schema: Schema, table: Table) -> dict[ForeignKey, int]:
    """Return the table's own keys into other units; of each a bound on the rows that one unit takes away or lets in."""
    others = (key for key in table.foreign_keys if not key.owner and not key.same_unit and carries(schema, key))
    return {key: referring_rows(schema, key) for key in others}


@dataclass(frozen=True)
class Reach:
    """A table whose views have a stability above 1, or a key along which they have: their noise is scaled up.

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
    found = [_reach_of_table(schema, table.name) for table in schema.private_tables]
    found += [_reach_along(schema, key) for key in keys]
    return tuple(reach for reach in found if reach is not None)


def _reach_of_table(schema: Schema, table: str) -> Reach | None:
    keys = keys_into_other_units(schema, table)
    if not keys:
        return None
    ways = (f"{key.name} ({bound_in_words(schema, key)})" for key in keys)
    why = f"removing a unit also removes up to {sum(keys.values()):,} rows of other units, along {', '.join(ways)}"
    return Reach(table, stability(schema, table), why)


def _reach_along(schema: Schema, key: ForeignKey) -> Reach | None:
    moves = reference_moves(schema, key)
    if not moves:
        return None
    how = "as many units as reach into them" if key.same_unit else bound_in_words(schema, key)
    why = f"only counts along this key: up to {moves / 2:,.0f} rows of other units lose their reference ({how})"
    return Reach(key.name, stability(schema, key.child) + moves, why)


def bound_in_words(schema: Schema, key: ForeignKey) -> str:
    """Return what bounds the rows that refer along ``key`` to rows that go with one unit."""
    rows, most = moved_rows(schema, key.parent), key.max_children or 1
    if referring_rows(schema, key) < rows * most:
        return f"max_children_per_unit: {key.max_children_per_unit:,}"
    return f"{rows:,} {key.parent} per unit, {most:,} {key.child} each"
