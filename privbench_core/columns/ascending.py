"""Whether a column of keys ascends, which saves sorting it, hashing it, or a dictionary."""

from __future__ import annotations

import pyarrow as pa


def ascends(values: pa.Array | pa.ChunkedArray, *, strictly: bool = True) -> bool:
    """Whether each of some whole numbers is above the one before, or at least not below; False of other values.

    >>> ascends(pa.array([1, 2, 2])), ascends(pa.array([1, 2, 2]), strictly=False), ascends(pa.array([1, None]))
    (False, True, False)
    """
    if not pa.types.is_int64(values.type) or values.null_count:
        return False
    numbers = values.to_numpy()
    return bool((numbers[1:] > numbers[:-1]).all() if strictly else (numbers[1:] >= numbers[:-1]).all())
