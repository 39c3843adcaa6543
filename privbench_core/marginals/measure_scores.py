"""Dependence scores: how far pairs of columns are from what is known of them, and what noise makes of that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimators.segmentation import ABSOLUTE
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Distances
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
Pair = tuple[str, str]


def pair_scores(
    curator: Curator,
    clean: Mapping[str, Array],
    candidates: Sequence[Pair],
    price: Price,
    known: Mapping[Pair, Array] | None = None,
) -> Array:
    """R-scores of pairs, in counts, against the product of cleaned released one-way counts, less their largest noise.

    Where a joint is ``known`` already, the score is the distance to that.

    The best of many noisy scores is best in part by its noise. Half of what the largest draw is expected to be is taken
    off all of them, so that a table of independent columns is not modelled as a table of accidents.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 2 and 4.
    """
    noisy = curator.measure("dependence scores", [Distances(score_groups(clean, candidates, known or {}))], price)
    return noisy.values[0] / 2 - largest_noise(curator, len(candidates), price) / 2


def score_groups(
    clean: Mapping[str, Array], pairs: Sequence[Pair], known: Mapping[Pair, Array]
) -> tuple[tuple[tuple[Pair, Array], ...], ...]:
    """Return what `Distances` asks for the scores of pairs: a joint that is known, or the product of the marginals."""

    def reference(a: str, b: str) -> Array:
        return known[a, b] if (a, b) in known else np.outer(clean[a], clean[b]) / max(1.0, clean[a].sum())

    return tuple(((pair, reference(*pair)),) for pair in pairs)


def clear_scores(
    curator: Curator,
    one_way: OneWay,
    pairs: Sequence[Pair],
    price: Price,
    known: Mapping[Pair, Array] | None = None,
) -> Array:
    """What `pair_scores` are beyond the noise of the marginals that they compare with, none below zero.

    Pairs of independent columns are as far from a noisy product as its marginals are from the exact ones. Cell by cell,
    that error and a dependence add up like independent numbers: in squares.
    """
    scores = np.maximum(pair_scores(curator, one_way.clean(), pairs, price, known), 0)
    off = {name: ABSOLUTE * float(sigmas.sum()) for name, sigmas in one_way.sigmas.items()}
    expected = np.minimum([math.hypot(off[a], off[b]) for a, b in pairs], one_way.total)
    return np.asarray(np.sqrt(np.maximum(scores**2 - expected**2, 0)))


def largest_noise(curator: Curator, candidates: int, price: Price) -> float:
    """Expected largest noise on the scores of so many candidates, in counts: σ√(2 ln m), or b ln m for Laplace."""
    reference = np.zeros(())
    each = curator.sigma([Distances(((((), reference),),) * candidates)], price) / 2
    m = max(candidates, 2)
    return each * (math.log(m) / math.sqrt(2) if price.measure is Measure.PURE else math.sqrt(2 * math.log(m)))


def has_power(curator: Curator, pairs: int, total: float, price: Price) -> bool:
    """Return whether a strong dependence would stand out of the noise of the scores of so many pairs.

    Args:
        curator: Of any view of the rows.
        pairs: How many are scored.
        total: Released number of rows.
        price: Of which scores get their share.
    """
    return pairs > 0 and largest_noise(curator, pairs, price.share(TUNING.score_share)) <= TUNING.strong * total


def highest_noise(measure: Measure, sigma: float, cells: int) -> float:
    """Return a count that none of so many empty cells reaches, but for a share of accidents that may be ignored."""
    odds = math.log(cells / TUNING.clear)
    return sigma * (odds / math.sqrt(2) if measure is Measure.PURE else math.sqrt(2 * odds))
