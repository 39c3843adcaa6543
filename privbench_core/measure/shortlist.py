"""Choosing the pairs of columns that depend on each other most, one after the other, under pure privacy.

Laplace noise on the scores of all m pairs grows with m; the exponential mechanism pays for each choice with ln m. So
the best pairs are chosen first, and only these are scored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privbench_core.measure.scores import Pair, largest_noise, score_groups
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Distances

Array = NDArray[np.float64]
_CLEAR = 0.03  # of all rows: expected error of a choice; tuned on the survey of 27,000 rows, verified on the others
_CLEAR_OF_ALL = 0.2  # of all rows: largest noise of the scores of all pairs; at 0.1 eight narrow columns lost half
_LARGEST = 0.3  # of a price, for choices


def shortlist_size(curator: Curator, pairs: int, total: float, price: Price) -> int:
    """Return how many pairs can be chosen well; all of them, without choosing, where noisy scores of all are clear.

    Also where not even one choice is good: whether all scores are hopeless is for the scores to say.

    A choice for ε is worse than the best by 2s/ε ln m of a distance, half of that of a score (Dwork and Roth 2014,
    Corollary 3.12).
    """
    if price.measure is not Measure.PURE or not pairs:
        return pairs
    if largest_noise(curator, pairs, price.share(_LARGEST)) <= _CLEAR_OF_ALL * total:
        return pairs
    affordable = int(_LARGEST * price.amount * _CLEAR * total / (curator.stability * math.log(max(pairs, 2))))
    return min(affordable, pairs) or pairs


def shortlist(
    curator: Curator,
    clean: Mapping[str, Array],
    pairs: Sequence[Pair],
    number: int,
    price: Price,
    known: Mapping[Pair, Array],
) -> list[Pair]:
    """Choose so many pairs, each (noisily) the one furthest from what is known of it, for ``price`` in all.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 5 and 7.
    """
    left, chosen = list(pairs), []
    for _ in range(number):
        best = curator.select("pair", Distances(score_groups(clean, left, known)), price.share(1 / number))
        chosen.append(left.pop(best))
    return chosen


def share_of_shortlist(curator: Curator, pairs: int, number: int, total: float, price: Price) -> float:
    """Return the share of the price for so many choices with the error that `shortlist_size` allows; 0 for all."""
    if number == pairs:
        return 0.0
    return number * curator.stability * math.log(max(pairs, 2)) / (_CLEAR * total * price.amount)
