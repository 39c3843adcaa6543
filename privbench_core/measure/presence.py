"""Whether a key refers to a row at all: all that is looked at where the row itself must not be."""

from __future__ import annotations

import numpy as np

from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import equal_width_codec
from privbench_core.schema.columns import Column, ColumnType


def present_or_not(name: str) -> Discretizer:
    """A discretizer of row positions: code 0 for any row, 1 for none (position -1).

    >>> present_or_not("#any").encode_numbers(np.array([-1, 0, 7])).tolist()
    [1, 0, 0]
    """
    codec = equal_width_codec(Column(name, ColumnType.INTEGER), 0, np.iinfo(np.int64).max, 1)
    none = [cell == codec.below for cell in range(codec.size)]
    drawn = tuple(float(cell in {0, codec.below}) for cell in range(codec.size))
    return Discretizer(codec, Binning(tuple(map(int, none)), drawn))
