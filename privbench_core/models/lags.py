"""Lags, as released: how long after another date rows are dated, and which joints of dates follow from that.

A row often comes minutes after the one that it belongs to, while codes of dates are weeks wide: no joint of codes can
say so. A lag is measured in classes of both signs around zero that are each twice as long as the one before. Within a
pair of codes, values are taken to be spread evenly; a class of lags makes each pair of values of it more or less likely
by the same factor. So a joint is fitted to its margins and to the shares of the classes (iterative proportional
fitting): of all joints that have them it is the nearest to independence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.equal_width import OrderedCodec
from privbench_core.columns.grid import Grid
from privbench_core.columns.variable_width import VariableWidthCodec
from privbench_core.errors import InternalError
from privbench_core.estimate.fitting import fit_margins
from privbench_core.guards import FEW, FITTING_ROUNDS, LAG_CLASSES, TINY

Array = NDArray[np.float64]
Points = NDArray[np.int64]


@dataclass(frozen=True)
class Lag:
    """Released: how long after a column of their owner, or another one of their own, a column of rows is dated.

    Attributes:
        base: The owner's column, or the other one.
        column: The rows' own.
        classes: Coder of their difference.
        shares: Of the rows, by codes of ``classes``, adding up to 1, shape (classes,).
    """

    base: str
    column: str
    classes: Discretizer
    shares: Array

    def to_dict(self) -> dict[str, Any]:
        """Return a description that `Artifact` can store."""
        return {"base": self.base, "column": self.column, "classes": self.classes.to_dict(), "shares": self.shares}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Lag:
        """Return the inverse of `to_dict`."""
        return cls(stored["base"], stored["column"], Discretizer.from_dict(stored["classes"]), stored["shares"])


@dataclass(frozen=True)
class Lags:
    """Released: all lags of the dates of a table's rows.

    Attributes:
        of_owners: How long after columns of their owners they are.
        within: How long after other dates of their own.
        assumed: Columns whose range is assumed, as noise hid it.
    """

    of_owners: Sequence[Lag] = ()
    within: Sequence[Lag] = ()
    assumed: frozenset[str] = frozenset()


def lag_classes(base: Discretizer, own: Discretizer) -> Discretizer | None:
    """Return the coder of the difference of two columns; None where they are not points in time of one type.

    Args:
        base: Of the owner's column.
        own: Of the row's.
    """
    codecs = [coder.codec for coder in (base, own) if isinstance(coder.codec, OrderedCodec)]
    grids = [codec.grid for codec in codecs if codec.grid.logical.calendar]
    if len(grids) < len((base, own)) or len({(grid.type, grid.precision) for grid in grids}) > 1:
        return None
    difference = grids[0].type.difference
    if difference is None:
        return None
    ends = [int(n) * c.grid.step + c.grid.origin for c in codecs for n in (c.starts[0], c.last)]
    span = max(ends) - min(ends)
    widths = [max(1, grids[0].step, grids[1].step, span >> LAG_CLASSES)]
    while widths[-1] < span:
        widths.append(widths[-1] * 2)
    cuts = (*(-width for width in reversed(widths)), 0, 1, *(width + 1 for width in widths[:-1]))
    grid = Grid(f"{grids[1].where} - {grids[0].where}", difference)
    return Discretizer(VariableWidthCodec(grid, True, cuts, widths[-1]))


def lag_chances(base: Discretizer, own: Discretizer, classes: Discretizer, codes: tuple[int, int]) -> Array:
    """Return how likely the classes of lags are within each pair of codes, shape (base codes, own codes, classes).

    Args:
        base: Of the owner's column.
        own: Of the row's.
        classes: Of the difference.
        codes: Numbers of codes of both; further ones than the coders have are of rows without an owner.
    """
    codec = classes.codec
    if not isinstance(codec, OrderedCodec) or codec.null is None:
        raise InternalError("lags are coded by intervals and a code for those that are not there")
    above, here = _intervals(base), _intervals(own)
    before = _pairs_before(above, here, codec.starts[1:].astype(np.float64))
    chances = np.zeros((*codes, codec.size))
    chances[:, :, codec.null] = 1.0  # what is no interval has no lag
    inside = chances[: len(above[0]), : len(here[0])]
    inside[:] = 0.0
    inside[:, :, : codec.ordered] = np.maximum(np.diff(before, axis=2, prepend=0.0, append=1.0), 0.0)
    return chances


def expected_lags(first: Array, second: Array, chances: Array) -> Array:
    """Return the counts of classes of lags if both columns were independent, shape (classes,).

    Args:
        first: Counts of the owner's column over the rows.
        second: Counts of the row's, with the same total.
        chances: Of `lag_chances`.
    """
    return np.asarray(np.einsum("a,b,abl->l", first, second / max(float(second.sum()), 1.0), chances))


def joint_with_lags(first: Array, second: Array, chances: Array, lags: Array) -> Array:
    """Return counts of both columns with these margins that agree with counts of lags, shape (base codes, own codes).

    Args:
        first: As in `expected_lags`.
        second: As there.
        chances: As there.
        lags: Counts of the classes, with the same total.
    """
    total = max(float(second.sum()), TINY)
    wanted = (1 - FEW) * lags + FEW * expected_lags(first, second, chances)  # no class is ruled out
    start = np.outer(first, second)[:, :, None] / total * chances
    margins = [((2,), wanted), ((0,), first), ((1,), second)]
    return np.asarray(fit_margins(start, margins, FITTING_ROUNDS).sum(axis=2))


def _intervals(coder: Discretizer) -> tuple[Array, Array]:
    """Return the first value of each interval code, and the one after its last, as numbers of the column's type."""
    codec, (code_of, shares) = coder.codec, coder.shares
    if not isinstance(codec, OrderedCodec):
        raise InternalError("lags are between columns with an order")
    cells = np.flatnonzero(shares[: codec.ordered] > 0)
    cells = cells[code_of[cells] < coder.ordered]
    first, after = np.zeros(coder.ordered), np.zeros(coder.ordered)
    after[code_of[cells]] = codec.ends[cells] + 1  # cells ascend: the last one stays
    first[code_of[cells[::-1]]] = codec.starts[cells[::-1]]
    return first * codec.grid.step + codec.grid.origin, after * codec.grid.step + codec.grid.origin


def _pairs_before(above: tuple[Array, Array], here: tuple[Array, Array], ends: Array) -> Array:
    """Return what share of the pairs of whole numbers of two intervals is less than ``ends`` apart.

    Shape (intervals above, intervals here, ends).
    """
    (x, x_after), (v, v_after) = above, here

    def pairs(distance: Array) -> Array:
        """Pairs of numbers from 0 on that add up to less than a distance."""
        return np.where(distance > 0, distance * (distance + 1) / 2, 0.0)

    gaps = [
        ends - 1 - (v_end[None, :] - x_end[:, None])[:, :, None] for v_end in (v, v_after) for x_end in (x_after, x)
    ]
    number = pairs(gaps[0]) - pairs(gaps[1]) - pairs(gaps[2]) + pairs(gaps[3])
    possible = np.maximum((x_after - x)[:, None] * (v_after - v)[None, :], 1.0)
    return np.clip(number / possible[:, :, None], 0.0, 1.0)
