"""A discretizer of what a view shows as codes already: places in a group, and whether siblings agree."""

from __future__ import annotations

from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import equal_width_codec
from privbench_core.schema.columns import Column, ColumnType


def index_coder(name: str, size: int) -> Discretizer:
    """Return a discretizer of the whole numbers below ``size``, each its own code, in order.

    >>> index_coder("#place", 3).size
    3
    """
    codec = equal_width_codec(Column(name, ColumnType.INTEGER), 0, size - 1, size)
    none = codec.size - size  # cells of other numbers, of which there are none
    return Discretizer(codec, Binning((*range(size), *[0] * none), (*[1.0] * size, *[0.0] * none), size))
