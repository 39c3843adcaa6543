"""A glance at all columns together: whether any depend on each other at all, for very little.

The mean score of all pairs costs as much as one score, since its sensitivity is that of one: a noisy mean of hundreds
tells whether a table is worth being looked at closely. Few pairs among many, or a parity, do not show in it; a pair or
a triple that is chosen by the exponential mechanism, and scored, does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.models.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Distances

Array = NDArray[np.float64]
Subset = tuple[str, ...]
_LARGEST = 0.06  # of a price, for a glance; chosen by hand
_CLEAR = 0.01  # of all rows: noise of a mean score for which nothing more need be paid; chosen by hand
_OF_ALL, _OF_ORDERED, _CHOICE, _OF_BEST = 0.25, 0.25, 0.35, 0.15  # of the price of a glance; chosen by hand


@dataclass(frozen=True)
class Glance:
    """What noise does not explain, as shares of the rows.

    Attributes:
        mean: Mean score of all pairs.
        ordered: Mean score of the pairs of columns that have an order.
        best: Score of a pair or triple with a (noisily) large one.
    """

    mean: float
    ordered: float
    best: float


def share_of_glance(curator: Curator, total: float, price: Price) -> float:
    """Return the share of what a first look leaves of a pure price that is worth being paid for a glance.

    Args:
        curator: Of any view of the table.
        total: Released number of rows.
        price: What is left.
    """
    nothing = np.zeros(())
    noise = curator.sigma([Distances(((((), nothing),),))], price.share(_LARGEST * _OF_ALL)) / 2
    return _LARGEST * min(1.0, noise / (_CLEAR * max(total, 1.0)))


def glance(
    curator: Curator,
    one_way: OneWay,
    pairs: Sequence[Subset],
    ordered: Sequence[Subset],
    triples: Sequence[Subset],
    price: Price,
) -> Glance:
    """Look at pairs, at least one, at some of them in particular, and at triples, for ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 2, 4, 5 and 7.
    """
    clean = one_way.clean()
    expected = {subset: _independent(clean, subset) for subset in (*pairs, *triples)}

    def mean_of(subsets: Sequence[Subset], share: float) -> float:
        asked = [Distances((tuple((subset, expected[subset]) for subset in subsets),))]
        noisy = curator.measure(f"mean score of {len(subsets)}", asked, price.share(share))
        mean, sigma = float(noisy.values[0][0]) / (2 * len(subsets)), noisy.sigma / (2 * len(subsets))
        by_accident = math.sqrt(np.mean([_by_noise(one_way, subset) ** 2 for subset in subsets]))
        return _beyond(mean - sigma, by_accident) / one_way.total

    mean = mean_of(pairs, _OF_ALL if ordered else _OF_ALL + _OF_ORDERED)
    of_ordered = mean_of(ordered, _OF_ORDERED) if ordered else 0.0
    candidates = Distances(tuple(((subset, reference),) for subset, reference in expected.items()))
    chosen = curator.select("a subset at a glance", candidates, price.share(_CHOICE))
    return Glance(mean, of_ordered, mean_of([tuple(expected)[chosen]], _OF_BEST))


def _independent(clean: Mapping[str, Array], subset: Subset) -> Array:
    """Counts of independent columns."""
    total = max(1.0, float(clean[subset[0]].sum()))
    return np.asarray(reduce(np.multiply.outer, (clean[name] / total for name in subset)) * total)


def _by_noise(one_way: OneWay, subset: Subset) -> float:
    """Expected distance of independent columns from the noisy ones."""
    return min(math.hypot(*(ABSOLUTE * float(one_way.sigmas[name].sum()) for name in subset)), one_way.total)


def _beyond(score: float, expected: float) -> float:
    """What independent errors of all cells leave of a score: in squares."""
    return math.sqrt(max(max(score, 0.0) ** 2 - expected**2, 0.0))
