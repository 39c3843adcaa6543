"""The second pass over a table: its deferred keys (self-references, keys that open a cycle), once parents are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.models.lookup import Lookup
from privbench_core.models.parent_choice import repeated
from privbench_core.models.rows import Rows
from privbench_core.sampling.constraints import RowRule, row_rules
from privbench_core.sampling.forest import without_cycles
from privbench_core.sampling.references import Parent, choice_of, copied_columns
from privbench_core.sampling.row_groups import group_numbers
from privbench_core.sampling.table import finished_rows
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table

Places = NDArray[np.int64]
Columns = dict[str, pa.Array]
_ROUNDS = 8  # of redrawing references that break a check; chosen by hand


def complete_table(
    table: Table,
    keys: Sequence[ForeignKey],
    made: pa.Table,
    codes: Mapping[str, Codes],
    discretizers: Mapping[str, Discretizer],
    weights: NDArray[np.float64] | None,
    parents: Mapping[str, Parent],
    lookups: Mapping[str, Lookup],
    rng: np.random.Generator,
    units: Places | None = None,
) -> tuple[pa.Table, dict[str, Places]]:
    """Fill the deferred keys of a table whose other columns are drawn; its rows stay the same.

    A reference that breaks a check is redrawn, and left NULL if that does not help.

    Args:
        table: The table.
        keys: Its deferred keys.
        made: Its rows, with NULL in the deferred keys.
        codes: Of its attributes.
        discretizers: Of these.
        weights: Of its rows.
        parents: By foreign key name.
        lookups: By foreign key name.
        rng: Sampling only.
        units: Number of the unit of each row, where a key has to stay inside of it.

    Returns:
        The rows, and the parent of each by key name, -1 for none.
    """
    sizes = {name: discretizer.size for name, discretizer in discretizers.items()}
    rows = Rows(made.num_rows, dict(codes), sizes, weights)
    waiting = {name for key in keys for name in table.emptied_columns(key)}
    columns: Columns = {n: made.column(n).combine_chunks() for n in made.column_names if n not in waiting}
    places: dict[str, Places] = {}
    for key in keys:
        parent, lookup = parents[key.name], lookups[key.name]
        later = waiting - set(table.emptied_columns(key)) - columns.keys()
        rules = [
            r for r in row_rules(table) if not set(key.columns).isdisjoint(r.columns) and later.isdisjoint(r.columns)
        ]
        places[key.name] = _drawn(table, key, rows, parent, lookup, columns, rules, rng, units)
        columns |= copied_columns(key, places[key.name], parent.table, columns)
    return finished_rows(table, columns), places


def _drawn(
    table: Table,
    key: ForeignKey,
    rows: Rows,
    parent: Parent,
    lookup: Lookup,
    columns: Columns,
    rules: Sequence[RowRule],
    rng: np.random.Generator,
    units: Places | None,
) -> Places:
    choice = choice_of(table, key, columns, parent, rows.n, units)
    count = parent.table.num_rows
    found = lookup.draw(rows, parent.codes, count, rng, choice)
    for attempt in range(_ROUNDS):
        if key.parent == table.name:
            found = without_cycles(found, choice, rng)
        broken = _broken(key, found, parent.table, columns, rules)
        if not broken.any():
            break
        index = np.flatnonzero(broken)
        drawn = found.copy()
        found[index] = -1  # stays so after the last round
        if attempt < _ROUNDS - 1:
            some = choice.take(index).beside(found)
            found[index] = lookup.draw(rows.take(index), parent.codes, count, rng, some, drawn)
    filled = {**columns, **copied_columns(key, found, parent.table, columns)}
    for unique in (table.primary_key, *table.unique):
        if not set(key.columns).isdisjoint(unique) and filled.keys() >= set(unique):
            found[repeated(group_numbers([filled[name] for name in unique], rows.n))] = -1
    return found


def _broken(
    key: ForeignKey, places: Places, parent: pa.Table, columns: Columns, rules: Sequence[RowRule]
) -> NDArray[np.bool_]:
    """Return which rows break a check that names the key."""
    filled = {**columns, **copied_columns(key, places, parent, columns)}
    result = np.zeros(len(places), dtype=bool)
    for rule in rules:
        result |= rule.broken(filled)
    return result
