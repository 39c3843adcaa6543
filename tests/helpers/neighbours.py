"""The neighbour relation, once: ``docs/privacy.md`` quotes `removal`, and every test of the guarantee runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.backends.registry import number_rows
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

Row = Mapping[str, object]
Place = tuple[str, int]
"""A table, and the number of a row in it."""
Cell = tuple[str, int, str]
"""A table, the number of a row in it, and a column."""


# The definition: what docs/privacy.md quotes begins here.
def removal(schema: Schema, rows: Mapping[str, Sequence[Row]], unit: Place) -> tuple[set[Place], set[Cell]]:
    """Return the rows that go with a unit, and the values that become NULL in rows that stay."""
    keys = [key for table in schema.private_tables for key in table.foreign_keys]
    refers = {key: references(key, rows) for key in keys}
    gone = {unit}
    while True:
        more = {
            (key.child, child)
            for key in keys
            for child, parent in enumerate(refers[key])
            if key.cascades and (key.parent, parent) in gone
        }
        if more <= gone:
            break
        gone |= more
    emptied = {
        (key.child, child, column)
        for key in keys
        for child, parent in enumerate(refers[key])
        if not key.cascades and (key.parent, parent) in gone and (key.child, child) not in gone
        for column in schema.changing_columns(key)
    }
    return gone, emptied


def references(key: ForeignKey, rows: Mapping[str, Sequence[Row]]) -> list[int | None]:
    """Return which row of its parent each row refers to; None where a column is NULL, or no row has these values."""
    known = {tuple(row[name] for name in key.parent_columns): place for place, row in enumerate(rows[key.parent])}
    wanted = (tuple(row[name] for name in key.columns) for row in rows[key.child])
    return [None if None in values else known.get(values) for values in wanted]


def units(schema: Schema, rows: Mapping[str, Sequence[Row]]) -> list[Place]:
    """Return the rows that are units: those of the unit's table, and those that have an owner key and no owner."""
    return [
        (table.name, place)
        for table in schema.private_tables
        for place, row in enumerate(rows[table.name])
        if table.owner_key is None or None in (row[name] for name in table.owner_key.columns)
    ]


# The definition ends here.


def without(schema: Schema, tables: Mapping[str, pa.Table], unit: Place, secret: bytes) -> dict[str, pa.Table]:
    """Return the neighbouring database: a unit less, and rows without a key of their own numbered once more.

    Args:
        schema: The database.
        tables: Rows by table, with generated numbers of rows as their last column.
        unit: Where the unit's row stands.
        secret: Keys these numbers.
    """
    gone, emptied = removal(schema, as_rows(schema, tables), unit)
    left: dict[str, pa.Table] = {}
    for table in schema.tables:
        rows = tables[table.name]
        for column in {column for name, _, column in emptied if name == table.name}:
            lost = pa.array([(table.name, place, column) in emptied for place in range(rows.num_rows)], pa.bool_())
            where, field = rows.schema.get_field_index(column), rows.schema.field(column)
            values = pc.if_else(lost, pa.scalar(None, field.type), rows.column(column))
            rows = rows.set_column(where, field.with_nullable(True), values)
        stays = pa.array([(table.name, place) not in gone for place in range(rows.num_rows)], pa.bool_())
        left[table.name] = numbered(table, rows.filter(stays), secret)
    return left


def numbered(table: Table, rows: pa.Table, secret: bytes) -> pa.Table:
    """Return the rows of a table with their generated numbers, if it has such, as a source reads them."""
    if table.row_id is None:
        return rows
    stored = rows.drop_columns([table.row_id]) if table.row_id in rows.column_names else rows
    return stored.append_column(table.row_id, number_rows(stored, secret))


def as_rows(schema: Schema, tables: Mapping[str, pa.Table]) -> dict[str, list[Row]]:
    """Return the columns of each table that keys are made of, row by row."""
    asked = {table.name: set(table.referring_columns) for table in schema.tables}
    for table in schema.private_tables:
        for key in table.foreign_keys:
            asked[key.parent].update(key.parent_columns)
    found: dict[str, list[Row]] = {}
    for name, columns in asked.items():
        # A table of no key columns still has rows.
        kept = tables[name].select(sorted(columns)) if columns else tables[name]
        found[name] = kept.to_pylist()
    return found


def relaxed(schema: Schema) -> Schema:
    """Return the schema in which columns that become NULL in a neighbour may be NULL: of a required key, too."""

    def table(here: Table) -> Table:
        lost = {name for key in here.foreign_keys for name in schema.changing_columns(key)}
        columns = (replace(column, nullable=column.nullable or column.name in lost) for column in here.columns)
        keys = (replace(key, optional=key.optional or bool(schema.changing_columns(key))) for key in here.foreign_keys)
        return replace(here, columns=tuple(columns), foreign_keys=tuple(keys))

    return replace(schema, tables=tuple(here if here.public else table(here) for here in schema.tables))
