"""Leave tables out of a draft, with the keys that refer to them and the columns that are nothing but these keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundTable


def without_tables(catalogue: Catalogue, names: Collection[str]) -> Catalogue:
    """Return the catalogue without some tables.

    A column that refers to one of them is left out as well, because its values would say nothing. It stays where it is
    part of a primary key, or of a key to a table that stays.
    """
    kept = tuple(_without(table, names) for table in catalogue.tables if table.name not in names)
    notes = tuple(f"the table {table.name}, as you decided" for table in catalogue.tables if table.name in names)
    return replace(catalogue, tables=kept, notes=(*catalogue.notes, *notes))


def _without(table: FoundTable, names: Collection[str]) -> FoundTable:
    gone = [key for key in table.foreign_keys if key.parent in names]
    staying = tuple(key for key in table.foreign_keys if key.parent not in names)
    held = set(table.primary_key).union(*(key.columns for key in staying))
    parents = {column: key.parent for key in gone for column in key.columns if column not in held}

    def of(column: FoundColumn) -> FoundColumn:
        if column.name not in parents:
            return column
        return replace(column, type=None, note=f"refers to {parents[column.name]}, which is left out")

    notes = tuple(f"the foreign key on ({', '.join(k.columns)}), because {k.parent} is left out" for k in gone)
    return replace(table, columns=tuple(map(of, table.columns)), foreign_keys=staying, notes=(*table.notes, *notes))
