"""What public rows say of the domains that a spec leaves out: known exactly, at no cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.columns.grid import Grid
from privbench_core.columns.made_up import words_of
from privbench_core.guards import MAX_PUBLIC_CODES
from privbench_core.schema.columns import Column, Learn, Range
from privbench_core.schema.tables import Schema, Table

_OF_ANYTHING = {"name", "title", "type", "kind", "status", "code", "id", "number", "value", "description"}
"""Words that say too little of what a value is for the values of another column to be of the same list."""


def with_public_domains(schema: Schema, table: Table, public: Mapping[str, pa.Table]) -> Table:
    """Return a table with what public rows say of its attributes, where their domains are to be learned.

    Columns that refer to public rows have the range of the values there. Lists begin with the values of key columns of
    public tables that have the same name: a team is one of the teams, whether a key is declared or not. And with those
    of a public row that is referred to: a customer of some sales region is in one of the ``sales_city`` of regions.

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
        if column.learns_list and isinstance(column.domain, Learn) and (names := _names(schema, table, column, public)):
            known[column.name] = replace(column, domain=replace(column.domain, names=names))
    return replace(table, columns=tuple(known.get(column.name, column) for column in table.columns))


def _names(schema: Schema, table: Table, column: Column, public: Mapping[str, pa.Table]) -> tuple[str, ...]:
    """Return the values of columns of public tables that are called like ``column``, as text.

    They are parts of keys there, or lists of a few values of rows that the table refers to.
    """
    parents, words, found = {key.parent for key in table.foreign_keys}, words_of(column.name), set[str]()
    for name, rows in public.items():
        for other in schema.table(name).columns:
            is_key = other.name == column.name and other.name in schema.table(name).primary_key
            if is_key:
                fits = other.type.ordered is column.type.ordered
            else:
                called_so = words <= words_of(other.name) and not words <= _OF_ANYTHING
                kinds = (other.type.logical.textual, column.type.logical.textual)
                fits = name in parents and called_so and (all(kinds) or other.type is column.type)
            if fits:
                values = {*pc.unique(rows.column(other.name).drop_null().cast(pa.string())).to_pylist()}
                found |= values if is_key or len(values) <= MAX_PUBLIC_CODES else set()
    return tuple(sorted(found))
