"""A rehearsal to attack: the plan of a bundle, run on a random half of the privacy units.

All units of the source are in the published bundle, so it has no non-members to test an attacker with. Instead each
unit of a pool is kept with probability ½, the plan runs on the kept units at the same (ε, δ) without releasing
anything, and the others are the control.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.evaluation.encode import EncodedTable, encode_tables
from privbench_core.evaluation.joins import chain_links
from privbench_core.evaluation.nearest import REFERENCE
from privbench_core.schema.tables import Schema
from privbench_core.validate.references import NO_PARENT, parent_rows

RunOnRows = Callable[[Mapping[str, pa.Table]], Mapping[str, pa.Table]]
"""Private and public rows -> synthetic rows, by the plan of the evaluated bundle; nothing is released."""

TARGETS = 500
"""Rows of members, and of others, that are attacked; predicates; and most confident guesses about units."""


@dataclass(frozen=True)
class Rehearsal:
    """What attackers see, and what they guess.

    Attributes:
        schema: The database.
        tables: Rows of the source.
        synthetic: Rows that the plan made from the units that were kept.
        pool: Units whose coin was tossed, as rows of the unit's table; shape (units,).
        member: Whether each was kept; shape (units,).
        known: Units that tell the attacker about the population: those outside the pool, or all of it if they are few.
    """

    schema: Schema
    tables: Mapping[str, pa.Table]
    synthetic: Mapping[str, pa.Table]
    pool: NDArray[np.integer]
    member: NDArray[np.bool_]
    known: NDArray[np.integer]

    @cached_property
    def codes(self) -> tuple[dict[str, EncodedTable], dict[str, EncodedTable]]:
        """Source and synthetic rows in the same codes."""
        return encode_tables(self.schema, self.tables), encode_tables(self.schema, self.synthetic, self.tables)

    @cached_property
    def units(self) -> dict[str, NDArray[np.int64]]:
        """The unit of each row of each private table, as a row of the unit's table, or `NO_PARENT`."""
        paths = {table.name: self.schema.ownership_path(table.name) for table in self.schema.private_tables}
        everyone = np.arange(self.tables[self.schema.unit].num_rows)
        return {name: chain_links(path, self.tables) if path else everyone for name, path in paths.items()}


def rehearse_half(
    schema: Schema, tables: Mapping[str, pa.Table], rehearse: RunOnRows, rng: np.random.Generator
) -> Rehearsal | None:
    """Run the plan on a random half of (a pool of) the units; None if there are too few to halve.

    A pool has at most `REFERENCE` units; fewer units make attacks easier, if anything.

    Args:
        schema: The database.
        tables: Rows of the source.
        rehearse: The synthesizer at the bundle's budget.
        rng: Tosses the coins.
    """
    shuffled = rng.permutation(tables[schema.unit].num_rows)
    pool, others = np.split(shuffled, [REFERENCE])
    member = rng.random(len(pool)) < 0.5  # noqa: PLR2004 - a fair coin
    if not 0 < member.sum() < len(pool):
        return None
    synthetic = dict(rehearse(restrict_to_units(schema, tables, pool[member])))
    return Rehearsal(schema, tables, synthetic, pool, member, others if len(others) >= len(pool) // 2 else pool)


def restrict_to_units(
    schema: Schema, tables: Mapping[str, pa.Table], units: NDArray[np.integer]
) -> dict[str, pa.Table]:
    """Return the database of some units: their rows, all rows that depend on them, and the public tables."""
    keep = {schema.unit: np.isin(np.arange(tables[schema.unit].num_rows), units)}
    for table in schema.sampling_order:
        stays = keep.setdefault(table.name, np.ones(tables[table.name].num_rows, bool))
        for key in table.foreign_keys:
            if schema.table(key.parent).public or not key.cascades:
                continue
            rows = parent_rows(tables[key.parent], tables[table.name], key)
            stays &= np.where(rows == NO_PARENT, True, keep[key.parent][np.maximum(rows, 0)])
    return {name: rows.filter(pa.array(keep[name])) for name, rows in tables.items()}
