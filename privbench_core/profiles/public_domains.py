"""What public rows say about columns whose domain is to be learned, known exactly and at no cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.columns.grid import Grid
from privbench_core.schema.columns import Column, Learn, Range
from privbench_core.schema.tables import Schema, Table


def with_public_domains(schema: Schema, table: Table, public: Mapping[str, pa.Table]) -> Table:
    """Return a table with what public rows say of its attributes, where their domains are to be learned.

    Columns that refer to public rows have the range of the values there. Lists begin with the values of key columns of
    public tables that have the same name: a team is one of the teams, whether a key is declared or not.

    Args:
        schema: The database.
        table: A private table.
        public: Rows of public tables, by name.
    """
    known = {}
    for key in table.foreign_keys:
        for name, target in zip(key.columns, key.parent_columns, strict=True):
            column = table.column(name)
            if isinstance(column.domain, Learn) and key.parent in public:
                grid = Grid.of(column, table.name)
                numbers, null = grid.numbers(public[key.parent].column(target))
                present = numbers[~null]
                if len(present):
                    known[name] = replace(column, domain=Range(grid.scalar(present.min()), grid.scalar(present.max())))
    for column in table.modelled:
        if column.learns_list and isinstance(column.domain, Learn) and (names := _names(schema, column, public)):
            known[column.name] = replace(column, domain=replace(column.domain, names=names))
    return replace(table, columns=tuple(known.get(column.name, column) for column in table.columns))


def _names(schema: Schema, column: Column, public: Mapping[str, pa.Table]) -> tuple[str, ...]:
    """Return the values of key columns of public tables that are called like ``column``, as text."""
    keys = [schema.table(name) for name in public if column.name in schema.table(name).primary_key]
    fitting = [table.name for table in keys if table.column(column.name).type.ordered is column.type.ordered]
    named = [public[name].column(column.name) for name in fitting]
    return tuple(
        sorted({text for values in named for text in pc.unique(values.drop_null().cast(pa.string())).to_pylist()})
    )
