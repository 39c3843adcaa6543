"""Does anything of the source stand in the bundle that no model may have carried there? Keys, opaque texts, canaries.

Values of declared or learned domains are released by design, and common. What must not appear are values that single
rows own: texts that are only modelled by their length, keys that are text, and in the bundle's own papers anything of
the two. Numbers as keys coincide by chance (both count from 1), so for them the question is another one: do rows that
have the same key agree more than rows paired at random?
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.evaluate.encode import Coded
from privbench_core.schema.columns import Column, Pattern
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.validate.references import NO_PARENT, parent_rows

SHORTEST = 8
"""Shorter texts appear by chance."""
_WORDS = re.compile(r"[^\s\"'`,;()|]+")
_SURE, _LEAST = 5.0, 0.01  # standard errors, and share of attributes, by which rows must agree more than by chance
_PAIRS = 20_000
_ENOUGH = 30  # fewer rows with a key in common say nothing


@dataclass(frozen=True)
class Trace:
    """One thing that was looked for.

    Attributes:
        where: Table and columns, or file.
        what: What would be wrong.
        looked_at: How many values of the source were looked for, or rows compared.
        found: How many were found; for keys that are numbers, by how many percentage points rows with the same key
            agree more than others.
        suspicious: Whether this should not be.
    """

    where: str
    what: str
    looked_at: int
    found: float
    suspicious: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


def find_traces(
    schema: Schema,
    tables: tuple[Mapping[str, pa.Table], Mapping[str, pa.Table]],
    coded: tuple[Mapping[str, Coded], Mapping[str, Coded]],
    papers: Mapping[str, str],
    rng: np.random.Generator,
) -> tuple[Trace, ...]:
    """Look for the source in the bundle.

    Args:
        schema: The database.
        tables: Rows of the source and of the bundle.
        coded: Their attributes in the same codes.
        papers: Texts of the bundle's other files, by name.
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
        found += _by_key(table, (source, bundle), (coded[0][table.name], coded[1][table.name]), rng)
    for name, text in papers.items() if owned else ():
        common = owned & set(_WORDS.findall(text))
        found.append(Trace(name, "texts of the source", len(owned), len(common), bool(common)))
    return tuple(found)


def _owned_by_rows(schema: Schema, table: Table, column: Column) -> bool:
    """Whether a value of the column belongs to a row rather than to a domain, a public table or a public rule."""
    if isinstance(column.domain, Pattern) or column.type.ordered or column.logical.fixed_values:
        return False
    if any(column.name in key.columns and schema.table(key.parent).public for key in table.foreign_keys):
        return False
    return column.type.opaque or column.name in table.key_columns


def _long_texts(values: pa.ChunkedArray) -> set[str]:
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return {value.hex() for value in _distinct(values) if len(value) >= SHORTEST}
    return {str(value) for value in _distinct(values) if len(str(value)) >= SHORTEST}


def _distinct(values: pa.ChunkedArray) -> Iterable[Any]:
    return (value for value in pc.unique(values).to_pylist() if value is not None)


def _by_key(
    table: Table, rows: tuple[pa.Table, pa.Table], coded: tuple[Coded, Coded], rng: np.random.Generator
) -> list[Trace]:
    """Whether rows of the bundle agree with the rows of the source that have the same key.

    Keys of several columns are left out: a line number says something about its row in any database.
    """
    if len(table.primary_key) != 1 or not coded[0].names:
        return []
    same = ForeignKey(table.name, table.primary_key, table.name, table.primary_key)
    links = parent_rows(rows[0], rows[1], same)
    mine = np.flatnonzero(links != NO_PARENT)
    mine = rng.permutation(mine)[:_PAIRS]
    if len(mine) < _ENOUGH:
        return []
    true, made = coded[0].codes, coded[1].codes[mine]
    agree = (true[links[mine]] == made).mean(axis=1)
    # The same rows in another order: rows whose keys are in the bundle need not be like the others.
    chance = (true[rng.permutation(links[mine])] == made).mean(axis=1)
    excess = float(agree.mean() - chance.mean())
    error = float(np.sqrt((agree.var() + chance.var()) / len(mine)))
    what = "agreement with the source's row of the same key, in percentage points above chance"
    suspicious = excess > _SURE * error and excess > _LEAST
    return [Trace(f"{table.name}.{table.primary_key[0]}", what, len(mine), round(100 * excess, 2), suspicious)]
