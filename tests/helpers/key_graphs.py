"""Databases of keys alone, in any graph: built from declared keys, and their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from privbench_core.engines.memory import PrivateDatabase
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from tests.helpers.databases import Database

INTEGER = ColumnType.INTEGER
Ids = list[int | None]


def key(
    child: str,
    column: str,
    parent: str,
    most: int | None,
    *,
    owner: bool = False,
    optional: bool = False,
    same_unit: bool = False,
    removed: OnUnitRemoved | None = None,
    per_unit: int | None = None,
) -> ForeignKey:
    """A foreign key to ``parent.id``; optional where it is said what becomes of it."""
    optional = optional or removed is not None
    return ForeignKey(
        *(child, (column,), parent, ("id",), most, owner, optional, same_unit),
        on_unit_removed=removed,
        max_children_per_unit=per_unit,
    )


def table(name: str, *keys: ForeignKey) -> Table:
    """A table of keys: ``id`` and one column per foreign key."""
    columns = (Column("id", INTEGER), *(Column(k.columns[0], INTEGER, nullable=k.optional) for k in keys))
    return Table(name, columns, ("id",), keys)


def database_of(schema: Schema, rows: dict[str, dict[str, Ids]]) -> Database:
    """The rows of each table, column by column."""
    return Database(
        schema,
        {name: pa.table({c: pa.array(v, pa.int64()) for c, v in columns.items()}) for name, columns in rows.items()},
    )


def cascading(database: Database) -> Database:
    """The same rows, where optional keys cascade as well, except those that open a cycle."""
    deferred = database.schema.deferred_keys

    def carried(k: ForeignKey) -> ForeignKey:
        return k if k.cascades or k.name in deferred else replace(k, on_unit_removed=OnUnitRemoved.CASCADE)

    tables = tuple(replace(t, foreign_keys=tuple(map(carried, t.foreign_keys))) for t in database.schema.tables)
    return replace(database, schema=replace(database.schema, tables=tables))


def capped(rng: np.random.Generator, rows: int, parents: list[int], most: int, none: float) -> Ids:
    """References such that no parent has more than its declared number of rows; NULL where there is no slot left."""
    slots = rng.permutation([p for p in parents for _ in range(most)])
    return [int(slots[i]) if i < len(slots) and rng.random() > none else None for i in range(rows)]


def measure(database: Database, name: str, rows_per_unit: tuple[int, ...] = (1,)) -> dict[int, int]:
    """Weight of each row that counts, by primary key."""
    private = database.private()
    ids = database.tables[name].column("id").to_pylist()
    return {i: int(w) for i, w in zip(ids, private.weights(name, rows_per_unit), strict=True) if w}


def shift(one: Database, other: Database, name: str, rows_per_unit: tuple[int, ...] = (1,)) -> tuple[float, int]:
    """L1 distance of the weighted rows of two databases, and how many rows only one of them keeps."""
    a, b = measure(one, name, rows_per_unit), measure(other, name, rows_per_unit)
    return sum(abs(a.get(i, 0) - b.get(i, 0)) for i in a.keys() | b.keys()) / WEIGHT_SCALE, len(a.keys() ^ b.keys())


def seen_along(database: Database, private: PrivateDatabase, k: ForeignKey) -> dict[tuple[int, int], int]:
    """Weight of each row that counts, by its id and that of the row it shows to refer to; -1 for none."""
    ids = np.append(database.tables[k.parent].column("id").to_numpy(), -1)
    shown = ids[private.kept_parent_rows(k)]
    weights = private.weights(k.child)
    mine = database.tables[k.child].column("id").to_pylist()
    return {(i, int(to)): int(w) for i, to, w in zip(mine, shown, weights, strict=True) if w}


def moved(one: dict[tuple[int, int], int], other: dict[tuple[int, int], int]) -> int:
    """L1 distance of two measures by `seen_along`."""
    return sum(abs(one.get(cell, 0) - other.get(cell, 0)) for cell in one.keys() | other.keys())


class Positions:
    """Row positions as they are, NULL as the last code."""

    size = 100

    def encode_numbers(self, numbers: np.ndarray) -> np.ndarray:
        """Row positions as codes."""
        return np.where(numbers < 0, self.size - 1, numbers).astype(np.int32)


def with_attributes(database: Database, seed: int) -> Database:
    """The same database with an attribute in every table."""
    rng = np.random.default_rng(seed)
    extra = Column("x", INTEGER, Range(0, 3))
    tables = tuple(replace(t, columns=(*t.columns, extra)) for t in database.schema.tables)
    rows = {n: r.append_column("x", pa.array(rng.integers(0, 4, r.num_rows))) for n, r in database.tables.items()}
    return Database(replace(database.schema, tables=tables), rows)


_DIAMOND = (
    table("user", key("user", "best", "a", None, optional=True, same_unit=True)),
    table("a", key("a", "user_id", "user", 2, owner=True, optional=True)),
    table("b", key("b", "user_id", "user", 2, owner=True)),
    table("c", key("c", "a_id", "a", 2, owner=True), key("c", "b_id", "b", None, optional=True, same_unit=True)),
    table(
        "d",
        key("d", "c_id", "c", 2, owner=True),
        key("d", "b_id", "b", None, same_unit=True),
        key("d", "user_id", "user", None, same_unit=True),
        key("d", "before", "d", None, optional=True, same_unit=True),
    ),
)


def diamond(tau: int, most: int, seed: int) -> Database:
    """Chains and diamonds of keys that should stay inside a unit, about a quarter of which do not.

    User, a (maybe without owner) and b of a user, c of an a, d of a c. c and d also refer to a b, d to a user and to
    another d, a user to an a; more rows than τ almost everywhere.

    Args:
        tau: Bound on the children of an owner.
        most: Of no use here, see `mixed`.
        seed: Of the rows.
    """
    return _filled(_DIAMOND, tau, most, seed)


def mixed(tau: int, most: int, seed: int) -> Database:
    """`diamond`, with keys that need not stay inside: from b to an a, ``most`` per a, and from e to a c.

    e belongs to a user, and should refer to a d of the same user; f belongs to an a, and should refer to such an e. So
    what one unit moves in b goes on to other units' c, d, e and f.
    """
    more = (
        *_DIAMOND[:2],
        table("b", *_DIAMOND[2].foreign_keys, key("b", "a_id", "a", 1, optional=True)),
        *_DIAMOND[3:],
        table(
            "e",
            key("e", "user_id", "user", 2, owner=True),
            key("e", "c_id", "c", 1, optional=True),
            key("e", "d_id", "d", None, optional=True, same_unit=True),
        ),
        table("f", key("f", "a_id", "a", 2, owner=True), key("f", "e_id", "e", None, optional=True, same_unit=True)),
    )
    return _filled(more, tau, most, seed)


def _filled(tables: Sequence[Table], tau: int, most: int, seed: int) -> Database:
    """Rows for `diamond` and `mixed`: about three in four references that should stay inside of a unit do."""
    bounds = {True: tau, False: most}
    bounded = tuple(
        replace(
            t,
            foreign_keys=tuple(
                replace(k, max_children=None if k.same_unit else bounds[k.owner]) for k in t.foreign_keys
            ),
        )
        for t in tables
    )
    schema = Schema("graph", bounded, "user")
    rng = np.random.default_rng(seed)
    rows: dict[str, dict[str, Ids]] = {}
    units: dict[str, list[object]] = {}
    sizes = {"user": 4, "a": 9, "b": 10, "c": 14, "d": 18, "e": 12, "f": 14}
    for t in (schema.table(name) for name in sizes if name in schema.by_name):
        n = sizes[t.name]
        columns: dict[str, Ids] = {"id": list(range(n))}
        units[t.name] = list(range(n))
        if t.owner_key is not None:
            alone = [t.owner_key.optional and rng.random() < 0.25 for _ in range(n)]
            owners = [None if none else int(rng.integers(sizes[t.owner_key.parent])) for none in alone]
            columns[t.owner_key.columns[0]] = owners
            above = units[t.owner_key.parent]
            units[t.name] = [above[o] if o is not None else (t.name, i) for i, o in enumerate(owners)]
        rows[t.name] = columns
    for t in (schema.table(name) for name in rows):
        for k in t.foreign_keys:
            parents = list(range(sizes[k.parent]))
            if k.same_unit:
                rows[t.name][k.columns[0]] = [_reference(k, unit, units[k.parent], rng) for unit in units[t.name]]
            elif not k.owner:
                rows[t.name][k.columns[0]] = capped(rng, sizes[t.name], parents, most, 0.2)
    return database_of(schema, rows)


def _reference(key: ForeignKey, unit: object, units: Sequence[object], rng: np.random.Generator) -> int | None:
    inside = [row for row, other in enumerate(units) if other == unit]
    if key.optional and rng.random() < 0.2:
        return None
    return int(rng.choice(inside)) if inside and rng.random() < 0.75 else int(rng.integers(len(units)))
