"""Rows that come out of a database in the order of their units, in parts: each unit is in one of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.group_codes import next_in_runs
from privbench_core.engines.sql.views import ORDER, OWNER_ROW, UNIT
from privbench_core.errors import InternalError


def whole_units(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield coded rows in parts, none of which ends within a unit.

    Raises:
        InternalError: Rows are not in the order of their units, so that a unit would be clipped more than once.
    """
    held, last = list[pa.RecordBatch](), np.int64(-1)
    for batch in batches:
        units = np.append(last, batch.column(UNIT).to_numpy())
        if (units[1:] < units[:-1]).any():
            raise InternalError("rows do not come in the order of their units")
        last = units[-1]
        cut = int(np.searchsorted(units[1:], last))
        if cut or units[0] != last:  # else these are more rows of the unit before
            yield pa.Table.from_batches([*held, batch.slice(0, cut)])
            held = []
        held.append(batch.slice(cut))
    if held:
        yield pa.Table.from_batches(held)


def next_siblings(rows: pa.Table) -> NDArray[np.int64]:
    """Return the sibling that follows each row of whole units by the keyed hash, see `next_in_runs`.

    Raises:
        InternalError: Rows of a unit are not in the order of their owners and, for each of them, of the hash.
    """
    units, order = (rows.column(name).to_numpy() for name in (UNIT, ORDER))
    owners = rows.column(OWNER_ROW).fill_null(-1).to_numpy()  # a row without an owner is a unit
    after, same = owners[1:] < owners[:-1], owners[1:] == owners[:-1]
    if ((units[1:] == units[:-1]) & (after | (same & (order[1:] < order[:-1])))).any():
        raise InternalError("rows of a unit do not come in the order of owners and hashes")
    return next_in_runs(units, owners)
