"""Search the bundle for values of the source that no model can have carried there: keys, opaque texts, canaries.

Values of declared or learned domains are released by design. Values of single rows must not appear: opaque texts, which
are modelled by their length only, and text keys; neither in the data nor in the bundle's documents. Numeric keys
coincide by chance (both count from 1), so the check is whether rows with equal keys agree more than rows paired at
random.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.nearest import REFERENCE
from privbench_core.schema.columns import Column, Pattern
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.validate.references import NO_PARENT, parent_rows

_WORDS = re.compile(r"[^\s\"'`,;()|]+")


@dataclass(frozen=True)
class Trace:
    """The result of one search.

    Attributes:
        where: Table and columns, or file.
        what: What is searched for.
        looked_at: Number of values of the source, or of compared rows.
        found: Number of values found; for numeric keys, by how many percentage points rows with equal keys agree
            more than others.
        suspicious: Whether this must not occur.
    """

    where: str
    what: str
    looked_at: int
    found: float
    suspicious: bool


def find_traces(
    schema: Schema,
    tables: tuple[Mapping[str, pa.Table], Mapping[str, pa.Table]],
    encoded: tuple[Mapping[str, EncodedTable], Mapping[str, EncodedTable]],
    documents: Mapping[str, str],
    rng: np.random.Generator,
) -> tuple[Trace, ...]:
    """Search the bundle for values of the source.

    Args:
        schema: The database.
        tables: Rows of the source and of the bundle.
        encoded: Their attributes in the same codes.
        documents: Texts of the bundle's other files, by name.
        rng: Pairs rows at random.
    """
    found: list[Trace] = []
    owned: set[str] = set()
    for table in schema.private_tables:
        source, bundle = tables[0][table.name], tables[1][table.name]
        for column in table.columns:
            if not _owned_by_rows(schema, table, column):
                continue
            theirs = _long_texts(source[column.name])
            common = theirs & _long_texts(bundle[column.name])
            owned |= theirs
            what = "texts of the source"
            found.append(Trace(f"{table.name}.{column.name}", what, len(theirs), len(common), bool(common)))
        found += _by_key(table, (source, bundle), (encoded[0][table.name], encoded[1][table.name]), rng)
    for name, text in documents.items() if owned else ():
        common = owned & set(_WORDS.findall(text))
        found.append(Trace(name, "texts of the source", len(owned), len(common), bool(common)))
    return tuple(found)


def _owned_by_rows(schema: Schema, table: Table, column: Column) -> bool:
    """Return whether a value of the column belongs to a row, not to a domain, a public table or a public pattern."""
    if isinstance(column.domain, Pattern) or column.type.ordered or column.logical.fixed_values:
        return False
    if any(column.name in key.columns and schema.table(key.parent).public for key in table.foreign_keys):
        return False
    return column.type.opaque or column.name in table.key_columns


def _long_texts(values: pa.ChunkedArray) -> set[str]:
    """Return the distinct values of eight characters or bytes at least: shorter ones appear by chance."""
    known = (value if isinstance(value, bytes) else str(value) for value in pc.unique(values).drop_null().to_pylist())
    return {value.hex() if isinstance(value, bytes) else value for value in known if len(value) >= 8}  # noqa: PLR2004


def _by_key(
    table: Table, rows: tuple[pa.Table, pa.Table], encoded: tuple[EncodedTable, EncodedTable], rng: np.random.Generator
) -> list[Trace]:
    """Check whether rows of the bundle agree with the rows of the source that have the same key.

    Keys of several columns are left out: a line number is related to its row in any database.
    """
    if len(table.primary_key) != 1 or not encoded[0].names:
        return []
    same = ForeignKey(table.name, table.primary_key, table.name, table.primary_key)
    links = parent_rows(rows[0], rows[1], same)
    mine = np.flatnonzero(links != NO_PARENT)
    mine = rng.permutation(mine)[:REFERENCE]
    if len(mine) < 30:  # noqa: PLR2004 - fewer show nothing
        return []
    true, made = encoded[0].codes, encoded[1].codes[mine]
    agree = (true[links[mine]] == made).mean(axis=1)
    # The same rows, shuffled: rows whose keys are in the bundle may differ from the others.
    chance = (true[rng.permutation(links[mine])] == made).mean(axis=1)
    excess = float(agree.mean() - chance.mean())
    error = float(np.sqrt((agree.var() + chance.var()) / len(mine)))
    what = "agreement with the source's row of the same key, in percentage points above chance"
    suspicious = excess > max(5 * error, 0.01)
    return [Trace(f"{table.name}.{table.primary_key[0]}", what, len(mine), round(100 * excess, 2), suspicious)]
