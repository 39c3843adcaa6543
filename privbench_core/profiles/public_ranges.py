"""Ranges of columns that refer to public rows alone: those of the values there, known exactly and at no cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from privbench_core.columns.grid import Grid
from privbench_core.schema.columns import Learn, Range
from privbench_core.schema.tables import Table


def with_public_ranges(table: Table, public: Mapping[str, pa.Table]) -> Table:
    """Return a table with the ranges of its attributes that refer to public rows, where these are to be learned.

    Args:
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
    return replace(table, columns=tuple(known.get(column.name, column) for column in table.columns))
