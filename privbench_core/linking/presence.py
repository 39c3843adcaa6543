"""Whether a key refers to a row at all: all that is looked at where the row itself must not be."""

from __future__ import annotations

import numpy as np

from privbench_core.domain.binning import Binning
from privbench_core.domain.coder import Coder
from privbench_core.domain.intervals import interval_codec
from privbench_core.schema.model.columns import Column, ColumnType


def present_or_not(name: str) -> Coder:
    """A coder of row positions: code 0 for any row, 1 for none (position -1).

    >>> present_or_not("#any").encode_numbers(np.array([-1, 0, 7])).tolist()
    [1, 0, 0]
    """
    codec = interval_codec(Column(name, ColumnType.INTEGER), 0, np.iinfo(np.int64).max, 1)
    none = [cell == codec.below for cell in range(codec.size)]
    drawn = tuple(float(cell in {0, codec.below}) for cell in range(codec.size))
    return Coder(codec, Binning(tuple(map(int, none)), drawn))
