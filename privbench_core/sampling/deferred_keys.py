"""The second pass over a table: its deferred keys (self-references, keys that open a cycle), once parents are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.models.lookup import Lookup
from privbench_core.models.parent_choice import repeated
from privbench_core.models.rows import Rows
from privbench_core.sampling.constraints import row_rules
from privbench_core.sampling.references import Parent, draw_references
from privbench_core.sampling.row_groups import group_numbers
from privbench_core.sampling.table import finished_rows
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table

Places = NDArray[np.int64]


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
) -> pa.Table:
    """Fill the deferred keys of a table whose other columns are drawn, and return its rows, which stay the same.

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
    """
    sizes = {name: discretizer.size for name, discretizer in discretizers.items()}
    rows = Rows(made.num_rows, dict(codes), sizes, weights)
    waiting = {name for key in keys for name in table.emptied_columns(key)}
    columns = {n: made.column(n).combine_chunks() for n in made.column_names if n not in waiting}
    draw_references(table, keys, rows, parents, lookups, columns, row_rules(table), rng, units)
    for key in keys:
        for unique in (table.primary_key, *table.unique):
            if not set(key.columns).isdisjoint(unique):
                again = pa.array(repeated(group_numbers([columns[name] for name in unique], rows.n)))
                columns |= {name: pc.if_else(again, None, columns[name]) for name in table.emptied_columns(key)}
    return finished_rows(table, columns)
