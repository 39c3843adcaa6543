"""Values that are unused in a unique set of columns, for rows that redrawing could not make unique."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_BLOCK = 1 << 22  # scopes times values at a time, to bound memory


def free_values(
    values: pa.Array, scope: NDArray[np.int64], again: NDArray[np.bool_], rng: np.random.Generator
) -> pa.Array:
    """Return the column with values in the rows of ``again`` that no other row of the same scope has.

    They are drawn without replacement from the values of the column in other scopes, by frequency. A row keeps its
    value if none is left.

    Args:
        values: The column, without NULL where ``again``; shape (n,).
        scope: Number of the combination of the other columns of the unique set, shape (n,).
        again: The rows that repeat an earlier one, shape (n,).
        rng: Sampling only.
    """
    encoded = values.dictionary_encode()
    size = len(encoded.dictionary)
    codes = encoded.indices.fill_null(size).to_numpy(zero_copy_only=False).astype(np.int64)
    likely = np.log(np.bincount(codes, minlength=size + 1)[:size])
    crowded, place = np.unique(scope[again], return_inverse=True)
    rows = np.flatnonzero(again)
    inside = np.flatnonzero(np.isin(scope, crowded) & (codes < size))
    where = np.searchsorted(crowded, scope[inside])
    step = max(1, _BLOCK // max(size, 1))
    for start in range(0, len(crowded), step):
        here = (where >= start) & (where < start + step)
        wanting = np.flatnonzero((place >= start) & (place < start + step))
        keys = likely + rng.gumbel(size=(min(step, len(crowded) - start), size))  # Gumbel-max: the largest come first
        keys[where[here] - start, codes[inside[here]]] = -np.inf
        order = np.argsort(-keys, axis=1)
        wanting = wanting[np.argsort(place[wanting], kind="stable")]
        group = place[wanting] - start
        first = np.searchsorted(group, group)
        rank = np.arange(len(wanting)) - first
        found = rank < size
        chosen = order[group[found], rank[found]]
        vacant = keys[group[found], chosen] > -np.inf
        codes[rows[wanting[found][vacant]]] = chosen[vacant]
    return encoded.dictionary.take(pa.array(codes, mask=codes == size))
