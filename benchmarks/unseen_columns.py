"""What loaders of `unseen` share: reading files, numbering keys, and tables of children."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Values
from privbench_core.schema.tables import Table
from tests.helpers.planted import integer, owner_key, rows_of


def read_rows(file: Path | io.BytesIO) -> pa.Table:
    """Read a CSV file; empty fields and NA are NULL."""
    return csv.read_csv(file, convert_options=csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True))


def entries(file: Path) -> list[dict[str, str]]:
    """The first level of a YAML file of scalars, or of a list of them: many times as fast as a parser of all YAML."""
    entries: list[dict[str, str]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        found = re.match(r"(- |  )?(\w+):\s*(.*)$", line)
        if found is None or (found[1] == "  " and entries and "id" in entries[0]):
            continue
        if found[1] == "- " or not entries:
            entries.append({})
        entries[-1][found[2]] = found[3].strip('"')
    return entries


def numbered(values: pa.Array | pa.ChunkedArray, names: Sequence[Any]) -> NDArray[np.int64]:
    """The position of each value among ``names``, -1 for what is not there."""
    found = pc.index_in(values, pa.array(names, values.type))
    return np.asarray(pc.fill_null(found, -1).to_numpy()).astype(np.int64)


def child_table(name: str, column: str, parent: Table, most: int, columns: Sequence[Column]) -> Table:
    """Declare a table with numbered rows, owned along one column of ``parent``, at most ``most`` to each."""
    key = owner_key(name, column, parent.name, most)
    return Table(name, (integer("id"), integer(column), *columns), ("id",), (key,))


def child_rows(table: Table, column: str, owners: NDArray[np.int64], given: Mapping[str, Any]) -> pa.Table:
    """Rows of a table of `_child`, without those whose owner is not there."""
    kept = pa.array(owners >= 0)
    columns = {name: pc.filter(values, kept) for name, values in given.items()}
    return rows_of(table, id=np.arange(int((owners >= 0).sum())), **{column: owners[owners >= 0]}, **columns)


def number(name: str, low: int, high: int, cells: int | None = None, *, nullable: bool = False) -> Column:
    """Declare a column of whole numbers."""
    return Column(name, ColumnType.INTEGER, Range(low, high, cells), nullable=nullable)


def listed(name: str, values: str, *, nullable: bool = False) -> Column:
    """Declare a column of the values that a text lists."""
    return Column(name, ColumnType.CATEGORY, Values(tuple(values.split())), nullable=nullable)


def learned(name: str, *, nullable: bool = False) -> Column:
    """Declare a column whose list of values is learned."""
    return Column(name, ColumnType.CATEGORY, Learn(), nullable=nullable)
