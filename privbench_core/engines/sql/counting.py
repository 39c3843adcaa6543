"""Count the codes of rows that come out of a database: in whole units, and few joint marginals for many asked ones.

Many marginals are sums of a few joint ones: where codes are counted here, counting these takes half the time.
PostgreSQL, which looks up each row's cell in a table of hashes, gains nothing by it: its keys become longer.

Rows come in the order of their units, in parts: each unit is in one of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.group_codes import next_in_runs
from privbench_core.engines.sql.views import ORDER, OWNER_ROW, UNIT
from privbench_core.errors import InternalError


def covering(
    marginals: Sequence[tuple[str, ...]], sizes: Mapping[str, int], most: int = 1 << 14
) -> dict[frozenset[str], tuple[str, ...]]:
    """Return for each of ``marginals`` the columns of the joint one that it is a sum of.

    Greedy: beginning with the first marginal that is left, the column that completes most pairs is added, as long as
    there are at most ``most`` cells; marginals of one column join where there is room for them.

    Args:
        marginals: The columns of each, which are different ones.
        sizes: Column -> number of its codes.
        most: Cells of a joint marginal that nobody asked for: as many stay in a processor's cache.

    >>> joint = covering([("a", "b"), ("b", "c"), ("a", "c"), ("d",)], {"a": 2, "b": 2, "c": 2, "d": 9}, 8)
    >>> sorted(set(joint.values())), joint[frozenset({"b", "c"})]
    ([('a', 'b', 'c'), ('d',)], ('a', 'b', 'c'))
    """
    left = {frozenset(columns): columns for columns in marginals}
    partners: dict[str, set[str]] = {name: set() for columns in marginals for name in columns}
    alone: dict[str, None] = {}
    for columns in left:
        if len(columns) == 1:
            alone |= dict.fromkeys(columns)
        for name in columns:
            partners[name] |= columns - {name}
    found: dict[frozenset[str], tuple[str, ...]] = {}
    while left:
        first = next(iter(left))
        chosen = dict.fromkeys(left[first])
        cells = math.prod(sizes[name] for name in chosen)
        while True:
            near = dict.fromkeys(other for name in chosen for other in sorted(partners[name])) | alone
            fit = [name for name in near if name not in chosen and cells * sizes[name] <= most]
            if not fit:
                break
            best = max(fit, key=lambda name: (len(partners[name] & chosen.keys()), -sizes[name]))
            chosen[best] = None
            cells *= sizes[best]
        parts = (frozenset(part) for width in (1, 2) for part in combinations(chosen, width))
        for part in (first, *parts):
            if left.pop(part, None) is not None:
                found[part] = tuple(chosen)
        for name in chosen:
            partners[name] -= chosen.keys()
            alone.pop(name, None)
    return found


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
