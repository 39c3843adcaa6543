"""Points in time of a table: dates, times, years, and the sums of dates and of differences from them.

A column that is coded as its difference from another one of the row is a point in time as well: the sum of the two,
taken to be independent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.lags import far_from_zero
from privbench_core.guards import TINY
from privbench_core.profiles.profile import Profile
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING

Point: TypeAlias = tuple[Discretizer, Array]
"""The coder of a point in time, and counts or shares of the rows by its codes; rows without an owner may follow."""


def relative_dates(table: Table) -> dict[str, str]:
    """Return the points in time of a table that are coded as differences from another one of the row: public."""
    return {
        column.name: base.name
        for column, base in table.relatives
        if column.type.logical.calendar and base.name not in table.owner_bases
    }


def points_in_time(profile: Profile, counts: Mapping[str, Array]) -> dict[str, Point]:
    """Return the points in time of a table by column, given counts or shares of rows by the codes of all columns."""
    found = {
        name: (coder, counts[name])
        for name, coder in profile.discretizers.items()
        if name not in profile.relatives
        and isinstance(codec := coder.codec, OrderedCodec)
        and (codec.grid.logical.calendar or far_from_zero(codec))  # a date, a time, or a number that may be a year
    }
    waiting = [name for name in profile.relatives if name in profile.discretizers]
    for name in waiting:  # a base stands before what is relative to it
        base = found.get(profile.relatives[name])
        summed = None if base is None else _sum(base, (profile.discretizers[name], counts[name]))
        if summed is not None:
            found[name] = summed
    return {name: found[name] for name in profile.discretizers if name in found}


def _sum(base: Point, difference: Point) -> Point | None:
    """Return the point in time that lies a difference above another one, in cells of the same width."""
    codec = base[0].codec
    if not isinstance(codec, OrderedCodec):
        return None
    (first, of_first), (second, of_second) = _cells(base), _cells(difference)
    grid = replace(codec.grid, step=1, origin=0)
    low, high = (min(max(int(first[end] + second[end]), grid.extent[0]), grid.extent[1]) for end in (0, -1))
    width = max(1, -((low - high - 1) // TUNING.cells))
    cuts = range(low, high + 1, width)
    middles = np.clip((first[:, None] + second) - low, 0, high - low) // width
    rows = np.bincount(middles.ravel(), np.outer(of_first, of_second).ravel(), len(cuts))
    total, known = float(difference[1].sum()), float(of_second.sum())
    ordered = rows * (known / max(float(rows.sum()), TINY))
    of_codes = np.concatenate([ordered, [0, 0, max(total - known, 0.0)]])
    return Discretizer(OrderedCodec(grid, True, tuple(cuts), high)), of_codes


def _cells(point: Point) -> tuple[NDArray[np.int64], Array]:
    """Return the middle of each cell of a point in time, or a difference, as numbers of its type, and its rows."""
    coder, counts = point
    codec, (code_of, shares) = coder.codec, coder.shares
    if not isinstance(codec, OrderedCodec):
        return np.zeros(1, np.int64), np.zeros(1)
    rows = counts[code_of] * shares
    ends = codec.starts.astype(np.int64), codec.ends.astype(np.int64)
    middles = (ends[0] + (ends[1] - ends[0]) // 2) * codec.grid.step + codec.grid.origin
    inside = rows[: codec.ordered]
    inside[0] += rows[codec.below]
    inside[-1] += rows[codec.above] if codec.sentinel is None else 0.0
    return middles, inside
