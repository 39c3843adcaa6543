"""Draw rows that keep what a spec declares, and as little else as possible: extremes, NULLs, orphans, rule breakers."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from privbench_core.backends.integrity import check_rows
from privbench_core.engines.memory import PrivateDatabase
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.model import Spec
from tests.helpers import neighbours
from tests.helpers.databases import SECRET, Database

Row = dict[str, Any]
_ORPHAN = 0.3
_DAY = dt.date(2000, 1, 1)


@dataclass(frozen=True)
class Drawn:
    """A database as its source has it.

    Attributes:
        schema: With bounds that the rows keep.
        tables: Rows as they are read, those of tables without a key numbered; before they are checked.
        orphans: By key, as `check_rows` takes them.
        whole: Whether no unit is missing. In a neighbour, required keys that are set to NULL may be NULL.
    """

    schema: Schema
    tables: Mapping[str, pa.Table]
    orphans: Mapping[str, str]
    whole: bool = True

    def units(self) -> list[neighbours.Place]:
        """Return where the rows stand that are units."""
        return neighbours.units(self.schema, neighbours.as_rows(self.schema, self.tables))

    def without(self, unit: neighbours.Place) -> Drawn:
        """Return the neighbour that has a unit less."""
        left = neighbours.without(self.schema, self.tables, unit, SECRET)
        return replace(self, tables=left, whole=False)

    @cached_property
    def checked(self) -> Database:
        """The rows as a session holds them: read, checked, orphans dropped."""
        schema = self.schema if self.whole else neighbours.relaxed(self.schema)
        rows = check_rows(schema, self.tables, self.orphans)
        return Database(self.schema, rows)

    def private(self) -> PrivateDatabase:
        """Return the rows behind a session."""
        return self.checked.private()


def draw_rows(rng: np.random.Generator, spec: Spec) -> Drawn:
    """Return rows for a spec, whose bounds that are declared only become those that the rows keep."""
    schema = spec.schema
    found: dict[str, list[Row]] = {}
    units: dict[str, list[object]] = {}
    for table in schema.sampling_order:
        number = (
            int(rng.integers(2, 7))
            if table.name == schema.unit
            else int(rng.choice([0, 3, 12, 30], p=[0.1, 0.2, 0.4, 0.3]))
        )
        found[table.name], units[table.name] = [], []
        for place in range(number):
            _add_row(rng, spec, table, place, found, units)
    for table in schema.private_tables:
        for key in (key for key in table.foreign_keys if key.name in schema.deferred_keys):
            _fill_in(rng, table, key, found, units)
    tables = {
        table.name: neighbours.numbered(table, _arrow(table, found[table.name]), SECRET) for table in schema.tables
    }
    return Drawn(_with_bounds(schema, found, units), tables, spec.orphans)


def _add_row(
    rng: np.random.Generator,
    spec: Spec,
    table: Table,
    place: int,
    found: dict[str, list[Row]],
    units: dict[str, list[object]],
) -> None:
    """Draw a row, and keep it if it breaks no rule."""
    row: Row = {}
    unit: object = (table.name, place)
    keys = [key for key in table.foreign_keys if key.name not in spec.schema.deferred_keys]
    for key in sorted(keys, key=lambda key: not key.owner):
        parent = _parent(rng, key, row, found, units, unit)
        if parent is not None:
            row |= {
                own: found[key.parent][parent][there]
                for own, there in zip(key.columns, key.parent_columns, strict=True)
            }
            unit = units[key.parent][parent] if key.owner else unit
        elif not _without_parent(rng, spec, table, key, row):
            return
    later = {name for key in table.foreign_keys if key.name in spec.schema.deferred_keys for name in key.columns}
    for column in table.columns:
        if column.name not in row and column.name != table.row_id:
            row[column.name] = None if column.name in later and column.nullable else _value(rng, table, column, place)
    if all(row[name] is not None for name in table.required_columns - {table.row_id}) and _is_new(
        table, row, found[table.name]
    ):
        found[table.name].append(row)
        units[table.name].append(unit)


def _parent(
    rng: np.random.Generator,
    key: ForeignKey,
    row: Row,
    found: dict[str, list[Row]],
    units: dict[str, list[object]],
    unit: object,
) -> int | None:
    """Return a row to refer to that agrees with what the row holds already; None if there is none, or by chance."""
    if key.optional and rng.random() < 0.25:
        return None
    pairs = list(zip(key.columns, key.parent_columns, strict=True))
    fits = [
        place
        for place, parent in enumerate(found.get(key.parent, ()))  # public tables refer in any order
        if all(parent[there] is not None and row.get(own, parent[there]) == parent[there] for own, there in pairs)
    ]
    if key.owner:
        fits = fits[:3]  # so that some have more children than are kept
    inside = [place for place in fits if units[key.parent][place] == unit]
    if key.same_unit and inside and rng.random() < 0.6:
        fits = inside
    return int(rng.choice(fits)) if fits else None


def _without_parent(rng: np.random.Generator, spec: Spec, table: Table, key: ForeignKey, row: Row) -> bool:
    """Make a row refer to nothing along a key; return whether it can."""
    free = [name for name in key.columns if name not in row]
    if key.optional:
        nullable = [name for name in free if table.column(name).nullable]
        row.update(dict.fromkeys(nullable))
        if any(row.get(name, 0) is None for name in key.columns):
            return True
    if free and spec.orphans.get(key.name) == "drop" and rng.random() < _ORPHAN:
        row.update({name: _value(rng, table, table.column(name), 90) for name in free})
        return True
    return False


def _fill_in(
    rng: np.random.Generator, table: Table, key: ForeignKey, found: dict[str, list[Row]], units: dict[str, list[object]]
) -> None:
    """Give the rows of a table something to refer to along a key that closes a cycle."""
    free = table.emptied_columns(key)
    for place, row in enumerate(found[table.name]):
        kept = {name: value for name, value in row.items() if name not in free}
        parent = _parent(rng, key, kept, found, units, units[table.name][place])
        target = dict.fromkeys(free)
        if parent is not None:
            pairs = zip(key.columns, key.parent_columns, strict=True)
            target = {own: found[key.parent][parent][there] for own, there in pairs if own in free}
        others = [other for other in found[table.name] if other is not row]
        row.update(target if _is_new(table, {**row, **target}, others) else dict.fromkeys(free))


def _is_new(table: Table, row: Row, others: list[Row]) -> bool:
    """Return whether a row has keys of its own."""
    groups = [group for group in (table.primary_key, *table.unique) if group and group != (table.row_id,)]
    return all(
        any(row[name] is None for name in group)
        or all(tuple(row[n] for n in group) != tuple(o[n] for n in group) for o in others)
        for group in groups
    )


def _value(rng: np.random.Generator, table: Table, column: Column, place: int) -> Any:
    """Return a value of a column: of a key one of its own, of others one of the domain, outside of it, or NULL."""
    counts = column.name in table.primary_key or any(column.name in group for group in table.unique)
    if column.nullable and rng.random() < 0.25:
        return None
    number = place if counts and column.name != "line" else int(rng.integers(-1, 5))
    documents = [f'{{"n": {number}, "type": "a"}}', '{"on": "2026-01-31", "s": ["u"]}', "[]", "{"]
    texts = documents if column.type is ColumnType.JSON else ["u", "v", "w", "never declared"]
    match column.type:
        case ColumnType.INTEGER:
            return number if counts or rng.random() < 0.9 else int(rng.choice([-(2**62), 2**62]))
        case ColumnType.CATEGORY | ColumnType.JSON:
            return str(rng.choice(texts))
        case ColumnType.BOOLEAN:
            return bool(rng.random() < 0.5)
        case ColumnType.DATE:
            return _DAY + dt.timedelta(days=number)
        case ColumnType.DECIMAL:
            return Decimal(int(rng.integers(-100, 700))).scaleb(-2)
        case ColumnType.FLOAT:
            odd = [0.0, -0.0, np.inf, -1e300, *([np.nan] if column.nullable else [])]
            return float(rng.choice(odd)) if rng.random() < 0.5 else float(number)
        case _:
            return f"{column.name[:2]}{number}"


def _arrow(table: Table, rows: list[Row]) -> pa.Table:
    columns = [column for column in table.columns if column.name != table.row_id]
    types = pa.schema([pa.field(column.name, column.arrow_type) for column in columns])
    return pa.table(
        [pa.array([row[column.name] for row in rows], column.arrow_type) for column in columns], schema=types
    )


def _with_bounds(schema: Schema, found: dict[str, list[Row]], units: dict[str, list[object]]) -> Schema:
    """Return the schema with the least bounds that rows keep, where these are declared and nothing enforces them."""

    def bounded(key: ForeignKey) -> ForeignKey:
        if key.owner or key.same_unit or schema.table(key.parent).public:
            return key
        parents = [parent for parent in neighbours.references(key, found) if parent is not None]
        most = max(Counter(parents).values(), default=1)
        per_unit = max(Counter(units[key.parent][parent] for parent in parents).values(), default=1)
        declared = key.max_children_per_unit is not None
        return replace(key, max_children=most, max_children_per_unit=per_unit if declared else None)

    tables = (replace(t, foreign_keys=tuple(map(bounded, t.foreign_keys))) for t in schema.tables)
    return replace(schema, tables=tuple(tables))
