"""One synthetic table: rows, their attributes given their owner, references to other parents, fresh keys, source types.

PrivBench's Algorithm 7 (SampleDataFromSPN) with three changes: expected counts are rounded instead of drawn, children
are drawn given their parent's row, and every key is made anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.domain.codec import Codes
from privbench_core.domain.coder import Coder
from privbench_core.errors import InternalError
from privbench_core.linking.fanout import SIBLINGS, Fanout, parent_column
from privbench_core.linking.lookup import Lookup
from privbench_core.models.conditional import Tie, draw_column
from privbench_core.models.nodes import Node
from privbench_core.models.rows import Rows
from privbench_core.sampling.keys import fresh_key, ordinal_within
from privbench_core.schema.model import ForeignKey, Table

Places = NDArray[np.int64]
_WHOLE = {pa.int64(): pd.Int64Dtype()}  # else integers with NULLs become floats, and large ones alike


@dataclass(frozen=True)
class Parent:
    """A synthetic parent table, as its children need it.

    Attributes:
        table: Its rows, decoded.
        codes: Codes of its attributes, {} for a public table.
        sizes: Number of codes of each.
        weights: Weight of each of its rows in the measure of its model, None where all count alike.
    """

    table: pa.Table
    codes: Mapping[str, Codes]
    sizes: Mapping[str, int]
    weights: NDArray[np.float64] | None


@dataclass(frozen=True)
class Drawn:
    """A synthetic table and the parent row of each of its rows, by foreign key name (-1: NULL)."""

    table: pa.Table
    parents: Mapping[str, Places]


def draw_root(total: float, scale: float) -> Rows:
    """Empty rows of the unit's table: the released number of rows, scaled."""
    return Rows(max(1, round(total * scale)))


def draw_children(fanout: Fanout, parent: Parent, rng: np.random.Generator) -> tuple[Rows, Places]:
    """Rows of an owned table with their context (parent's attributes, group size), and the parent of each."""
    above = Rows(parent.table.num_rows, dict(parent.codes), dict(parent.sizes), parent.weights)
    ties = [Tie(name, joint.T) for name, joint in fanout.count_ties.items()]
    numbers = fanout.sizes.decode(draw_column(above, fanout.counts, ties, rng), rng).to_numpy()
    owners = np.repeat(np.arange(parent.table.num_rows), numbers)
    group = numbers[owners]
    weights = (1.0 if parent.weights is None else parent.weights[owners]) / np.maximum(group, 1)
    rows = Rows(len(owners), weights=weights, links=fanout.ties)
    rows.add(SIBLINGS, fanout.sizes.size, fanout.sizes.encode_numbers(group))
    for name, codes in parent.codes.items():
        rows.add(parent_column(name), parent.sizes[name], codes[owners])
    return rows, owners


def draw_table(
    table: Table,
    rows: Rows,
    model: Node,
    coders: Mapping[str, Coder],
    owners: Places | None,
    parents: Mapping[str, Parent],
    lookups: Mapping[str, Lookup],
    rng: np.random.Generator,
) -> Drawn:
    """Fill ``rows`` from the model, resolve references, make keys and decode.

    Args:
        table: The table to make.
        rows: From `draw_root` or `draw_children`.
        model: Released; a table without attributes has a leaf without columns.
        coders: Of the attributes.
        owners: Parent row along the ownership key, None for the unit's table.
        parents: Parent tables by name.
        lookups: By foreign key name, for keys off the ownership path.
        rng: Sampling only.
    """
    model.draw(rows, rng)
    attributes = {name: rows.codes[name] for name in coders}
    own = Rows(rows.n, dict(attributes), {name: coder.size for name, coder in coders.items()}, rows.weights)
    places: dict[str, Places] = {}
    for key in table.foreign_keys:
        if key.owner:
            if owners is None:
                raise InternalError(f"{key.name}: children without owners")
            places[key.name] = owners
        else:
            parent = parents[key.parent]
            places[key.name] = lookups[key.name].draw(own, parent.codes, parent.table.num_rows, rng)
    columns: dict[str, pa.Array] = {name: coder.decode(attributes[name], rng) for name, coder in coders.items()}
    for key in table.foreign_keys:
        columns |= _references(key, places[key.name], parents[key.parent].table)
    keep = np.ones(rows.n, dtype=bool)
    for key in table.foreign_keys:
        if not key.optional:
            keep &= places[key.name] >= 0
    columns |= _fresh(table, columns, owners, rows.n)
    keep &= _first_of_each(table, columns, keep)
    made = pa.table({column.name: columns[column.name] for column in table.columns})
    kept = np.flatnonzero(keep)
    if len(kept) < rows.n:
        made = made.take(pa.array(kept))
        places = {name: place[kept] for name, place in places.items()}
    return Drawn(made, places)


def _references(key: ForeignKey, places: Places, parent: pa.Table) -> dict[str, pa.Array]:
    """Key columns copied from the parent's rows, NULL where there is none."""
    take = pa.array(places, mask=places < 0)
    return {
        name: parent.column(target).take(take).combine_chunks()
        for name, target in zip(key.columns, key.parent_columns, strict=True)
    }


def _fresh(table: Table, columns: Mapping[str, pa.Array], owners: Places | None, n: int) -> dict[str, pa.Array]:
    """Primary key columns that no foreign key fills: numbers of their own, or within the owner for a composite key."""
    missing = [name for name in table.primary_key if name not in columns]
    fresh: dict[str, pa.Array] = {}
    for position, name in enumerate(missing):
        column = table.column(name)
        partial = len(missing) < len(table.primary_key) and position == len(missing) - 1
        if partial and owners is not None and column.type == "integer" and _owner_in_key(table):
            fresh[name] = pa.array(ordinal_within(owners), type=pa.int64())
        else:
            fresh[name] = fresh_key(column, n, prefix=table.name)
    return fresh


def _owner_in_key(table: Table) -> bool:
    owner = table.owner_key
    return owner is not None and set(owner.columns) <= set(table.primary_key)


def _first_of_each(table: Table, columns: Mapping[str, pa.Array], keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows to keep so that the primary key and every UNIQUE hold: the first of each value (NULLs differ)."""
    result = keep.copy()
    for unique in (table.primary_key, *table.unique):
        standing = np.flatnonzero(result)  # a row that is dropped already must not cost another one its place
        values = pa.table({name: columns[name] for name in unique}).take(pa.array(standing))
        frame = values.to_pandas(types_mapper=_WHOLE.get)
        repeated = frame.duplicated(keep="first").to_numpy()
        if unique != table.primary_key:
            repeated = repeated & ~frame.isna().any(axis=1).to_numpy()
        result[standing[repeated]] = False
    return result
