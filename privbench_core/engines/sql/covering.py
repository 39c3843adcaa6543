"""Few joint marginals of which many asked ones are sums: where codes are counted here, that takes half the time.

PostgreSQL, which looks up each row's cell in a table of hashes, gains nothing by it: its keys become longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

_CELLS = 1 << 14  # of a joint marginal: as many stay in a processor's cache


def covering(
    marginals: Sequence[tuple[str, ...]], sizes: Mapping[str, int], most: int = _CELLS
) -> dict[frozenset[str], tuple[str, ...]]:
    """Return for each of ``marginals`` the columns of the joint one that it is a sum of.

    Greedy: beginning with the first marginal that is left, the column that completes most pairs is added, as long as
    there are at most ``most`` cells; marginals of one column join where there is room for them.

    Args:
        marginals: The columns of each, which are different ones.
        sizes: Column -> number of its codes.
        most: Cells of a joint marginal that nobody asked for.

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
