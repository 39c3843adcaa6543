"""Small databases, each of one kind of schema that a program for several tables may refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import integer, owner_key, place_of, rows_of

_UNITS = 300
_ROWS = 600
_Key = tuple[str, str, str, bool]
"""Child, column, parent, and whether its rows are the parent's."""

_KINDS: dict[str, tuple[_Key, ...]] = {
    "chain of three tables": (("purchase", "client_id", "client", True), ("item", "purchase_id", "purchase", True)),
    "two children of one table": (("purchase", "client_id", "client", True), ("visit", "client_id", "client", True)),
    "two parents (purchase refers to client and to address)": (
        ("address", "client_id", "client", True),
        ("purchase", "client_id", "client", True),
        ("purchase", "address_id", "address", False),
    ),
    "two keys to one parent (transfer from and to an account)": (
        ("transfer", "from_id", "account", True),
        ("transfer", "to_id", "account", False),
    ),
    "self-reference (a client was recommended by another)": (
        ("client", "recommender_id", "client", False),
        ("purchase", "client_id", "client", True),
    ),
    "cycle (client has purchases and a favourite one)": (
        ("purchase", "client_id", "client", True),
        ("client", "favourite_id", "purchase", False),
    ),
    "junction (clients and courses, through bookings)": (
        ("booking", "client_id", "client", True),
        ("booking", "course_id", "course", False),
    ),
}
_PUBLIC = frozenset({"course"})


@dataclass(frozen=True)
class Small:
    """A database.

    Attributes:
        kind: What about its schema matters.
        schema: Of tables with a key and two attributes; the first one is the privacy unit's.
        tables: Their rows, without NULL.
    """

    kind: str
    schema: Schema
    tables: dict[str, pa.Table]

    def write(self, folder: Path) -> Path:
        """Write the rows and a spec; returns its file."""
        return place_of(folder, self.schema, self.tables).spec.path


def small_databases() -> Iterator[Small]:
    """Return one of each kind."""
    for kind, keys in _KINDS.items():
        rng = np.random.default_rng(1)
        unit = keys[0][2]
        names = dict.fromkeys((unit, *(parent for _, _, parent, _ in keys), *(child for child, *_ in keys)))
        owners = {child: parent for child, _, parent, owner in keys if owner}
        counts = {name: _ROWS if name in owners else _UNITS for name in names}
        tables, rows = [], {}
        for name in names:
            own = [key for key in keys if key[0] == name]
            columns = (integer("id"), *(integer(key[1], nullable=not key[3]) for key in own))
            table = Table(
                name,
                (*columns, integer("a", 0, 3), integer("b", 0, 3)),
                ("id",),
                tuple(
                    owner_key(name, column, parent, 10)
                    if owner
                    else ForeignKey(name, (column,), parent, ("id",), optional=True, max_children=10)
                    for _, column, parent, owner in own
                ),
                public=name in _PUBLIC,
            )
            a = rng.integers(0, 4, counts[name])
            values = {"id": np.arange(counts[name]), "a": a, "b": np.where(rng.random(len(a)) < 0.7, a, 3 - a)}
            values |= {column: rng.permutation(counts[name]) % counts[parent] for _, column, parent, _ in own}
            tables.append(table)
            rows[name] = rows_of(table, **values)
        yield Small(kind, Schema("small", tuple(tables), unit), rows)
