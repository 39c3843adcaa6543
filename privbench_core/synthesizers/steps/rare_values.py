"""Pairs of columns with values that too few units share to be named: how far off they are, made up or shuffled.

Arithmetic on released numbers, for fidelity figures: no row is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.discretizer import Discretizer

Array = NDArray[np.float64]
Rare = tuple[int, float]
"""A code, and how many rows share one of its values."""
_NOTHING = 1e-300


def rare_values(coder: Discretizer, children: float) -> Rare | None:
    """The code that stands for values that are made up, if it has no other, and how many rows share such a value.

    Args:
        coder: Of a column.
        children: Number of rows that are looked at, per row of the column's table.
    """
    codec, binning = coder.codec, coder.binning
    if not isinstance(codec, CategoricalCodec) or codec.made is None or codec.other is None:
        return None
    code_of = range(codec.size) if binning is None else binning.code_of
    code, made = code_of[codec.other], codec.made
    if sum(other == code for other in code_of) > 1:
        return None
    rows = np.array(made.rows)
    shared = float(rows @ (rows / np.maximum(made.numbers, 1)) / max(float(rows.sum()), _NOTHING))
    return code, max(1.0, shared * children)


def rare_cells(columns: tuple[str, ...], sizes: Mapping[str, int], rare: Mapping[str, Rare]) -> NDArray[np.bool_]:
    """Cells with a made-up value, shape (size, ..)."""
    codes = [
        np.arange(sizes[name]) == rare[name][0] if name in rare else np.zeros(sizes[name], bool) for name in columns
    ]
    return np.asarray(reduce(np.logical_or.outer, codes))


def shuffled_apart(
    columns: tuple[str, ...], expected: Array, single: Mapping[str, Array], rare: Mapping[str, Rare]
) -> float:
    """Expected L1 distance, over the cells of two columns with rare values, of these from the same ones shuffled.

    Of r rows that share a value of one column, a share p has a code of the other one. Two random choices of r rows
    differ there by min(1 - p, √((1 - p) / (π p r))) of these rows: nearly all, or the difference of two normal numbers.
    """
    sides, apart = [single[name] / max(float(single[name].sum()), _NOTHING) for name in columns], 0.0
    for axis, name in enumerate(columns):
        if name in rare:
            code, rows = rare[name]
            p, rest = sides[1 - axis], np.maximum(1 - sides[1 - axis], 0.0)
            differ = np.minimum(rest, np.sqrt(rest / (math.pi * np.maximum(p, _NOTHING) * rows)))
            apart = max(apart, 2 * float(expected.take(code, axis=axis) @ differ))
    return apart
