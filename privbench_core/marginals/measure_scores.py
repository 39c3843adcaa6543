"""Dependence scores: how far pairs of columns are from what is known of them, and what noise makes of that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from privbench_core.arrays import Array
from privbench_core.estimators.segmentation import ABSOLUTE
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Distances
from privbench_core.tuning import TUNING

Pair = tuple[str, str]
Joints = Mapping[Pair, Array]
NO_JOINTS: Joints = MappingProxyType({})


def references(
    clean: Mapping[str, Array], pairs: Iterable[Pair], known: Joints = NO_JOINTS
) -> tuple[tuple[Pair, Array], ...]:
    """Return each pair with the counts that `Distances` compares it with: known ones, or the product of marginals."""

    def reference(a: str, b: str) -> Array:
        return known[a, b] if (a, b) in known else np.outer(clean[a], clean[b]) / max(1.0, clean[a].sum())

    return tuple((pair, reference(*pair)) for pair in pairs)


def pair_scores(
    curator: Curator, clean: Mapping[str, Array], pairs: Sequence[Pair], price: Price, known: Joints = NO_JOINTS
) -> Array:
    """Return R-scores of pairs, in counts, against what is known of them, less half of their expected largest noise.

    The best of many noisy scores is best in part by its noise: a table of independent columns must not be modelled as
    a table of accidents.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 2 and 4.
    """
    groups = tuple((reference,) for reference in references(clean, pairs, known))
    noisy = curator.measure("dependence scores", [Distances(groups)], price)
    return noisy.values[0] / 2 - largest_noise(curator, len(pairs), price) / 2


def clear_scores(
    curator: Curator, one_way: OneWay, pairs: Sequence[Pair], price: Price, known: Joints = NO_JOINTS
) -> Array:
    """Return what `pair_scores` are beyond the noise of the marginals that they compare with, none below zero.

    Pairs of independent columns are as far from a noisy product as its marginals are from the exact ones. Cell by cell,
    that error and a dependence add up like independent numbers: in squares.
    """
    scores = np.maximum(pair_scores(curator, one_way.clean(), pairs, price, known), 0)
    off = {name: ABSOLUTE * float(sigmas.sum()) for name, sigmas in one_way.sigmas.items()}
    expected = np.minimum([math.hypot(off[a], off[b]) for a, b in pairs], one_way.total)
    return np.asarray(np.sqrt(np.maximum(scores**2 - expected**2, 0)))


def largest_noise(curator: Curator, candidates: int, price: Price) -> float:
    """Return the expected largest noise on so many scores, in counts: σ√(2 ln m), or b ln m for Laplace."""
    each = curator.sigma([Distances(((((), np.zeros(())),),) * candidates)], price) / 2
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
