"""Measuring how all ordered columns of a table are correlated, in one release: the base of their joints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.copula import Cut, SignSums, pairs_of_bits, sign_noise
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.measure.one_way import choose_remeasurement, noise_power
from privbench_core.models.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import SignProducts

Array = NDArray[np.float64]
Pair = tuple[str, str]
_CLEAR = 0.05  # noise of a correlation for which nothing more need be paid: tuned on 12 columns correlated .7, ε = 1
_LARGEST = 0.2  # of a price, for correlations; chosen by hand
_OF_BITS = tuple(np.linspace(0, 0.9, 10).tolist())  # shares of a price that are tried where columns have two codes
_SUPPOSED = 0.05  # of all rows: score of two bits that are not measured; chosen by hand (acs .025, nltcs .16)
_STEEP = 2 / np.pi  # of the mean product of two signs, by the correlation, at the medians and near 0
_SCORE = 1 / np.pi  # of a pair by its correlation near 0: half of E|z z'|, of independent normal variables
_USELESS = 1.0  # noise of a correlation, times √(2 / columns): beyond it not even one common factor shows


def cuts_of(clean: Mapping[str, Array], ordered: Mapping[str, int]) -> dict[str, Cut]:
    """Return the cut of each column that has an order; see `Cut.nearest_median`."""
    cuts = {name: Cut.nearest_median(counts, ordered.get(name, 0)) for name, counts in clean.items()}
    return {name: cut for name, cut in cuts.items() if cut is not None}


def share_for_signs(curator: Curator, one_way: OneWay, cuts: Mapping[str, Cut], price: Price) -> float:
    """Return the share of a price for signs; 0 if they would tell nothing.

    For correlations of normal variables, the share for which these are clear, at most `_LARGEST`: what a pair has
    beyond is for its own table to show. Of two columns of two codes their sign product is all there is to know, at half
    the noise of a table: they get more where that takes more off the error of pairs than marginals lose by it.

    Args:
        curator: Of a view with these columns.
        one_way: Released counts of the columns.
        cuts: Of the columns that have an order.
        price: Of everything that is measured of them.
    """
    if len(cuts) < 2:  # noqa: PLR2004 - no pair
        return 0.0
    clean = one_way.clean()
    query, bits = _query(clean, cuts), len(pairs_of_bits(clean, cuts))
    share = _LARGEST
    noise = sign_noise(clean, cuts, curator.sigma([query], price.share(share)))
    useful = noise * np.sqrt(2 / len(cuts)) <= _USELESS
    usual = share * min(1.0, (noise / _CLEAR) ** (1 / noise_power(price.measure))) if useful else 0.0
    if not bits:
        return float(usual)

    def error(share: float) -> float:
        """Expected L1 error of marginals in all pairs, and of the pairs of bits."""
        left = choose_remeasurement(curator, one_way, price.share(1 - share)).noise
        of_pair = ABSOLUTE * curator.sigma([query], price.share(share)) if share else math.inf
        return ABSOLUTE * left * (len(clean) - 1) + bits * min(of_pair, _SUPPOSED * one_way.total)

    best = min(_OF_BITS, key=error)
    return float(
        best if best > _LARGEST else usual
    )  # of few bits among many columns tables tell more: `determined_by_signs`


def determined_by_signs(clean: Mapping[str, Array], cuts: Mapping[str, Cut], share: float) -> set[Pair]:
    """Return the pairs of which no table is to be measured beside this share for signs.

    Where signs got more than correlations ever get, it was for pairs of bits, and their noise is balanced with that of
    marginals. Else bits share the noise of many other pairs, and a table may be worth it.
    """
    return set(pairs_of_bits(clean, cuts)) if share > _LARGEST else set()


def measure_signs(curator: Curator, clean: Mapping[str, Array], cuts: Mapping[str, Cut], price: Price) -> SignSums:
    """Measure the products of the signs of all pairs of columns, together.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 4 and 10.
    """
    noisy = curator.measure("signs", [_query(clean, cuts)], price)
    return SignSums(dict(cuts), noisy.values[0], noisy.sigma)


def gain_of_signs(
    curator: Curator, columns: int, pairs: float, supposed: float, total: float, price: Price
) -> tuple[float, Price]:
    """Return by how many rows signs are expected to improve pairs before they are measured, and what they leave.

    Noise is spread over all pairs evenly, and what many of them have in common stands out of it: of all pairs by one
    factor it hides √(2 / columns) of what it hides of single pairs, as eigenvalues go.

    Args:
        curator: Of any view of the table.
        columns: How many have an order.
        pairs: How many of their pairs depend on each other, at least as many as columns, less one.
        supposed: Score of such a pair, as a share of rows.
        total: Released number of rows.
        price: Of which signs take at most their largest share.
    """
    if columns < 2 or not pairs:  # noqa: PLR2004 - no pair
        return 0.0, price
    each = curator.sigma([SignProducts({}, ((),) * (columns * (columns - 1) // 2))], price.share(_LARGEST)) / total
    hidden = each / _STEEP * _SCORE * math.sqrt(min(1.0, (columns - 1) / pairs))
    return pairs * total * max(supposed - hidden, 0.0), price.share(1 - _LARGEST)


def _query(clean: Mapping[str, Array], cuts: Mapping[str, Cut]) -> SignProducts:
    signs = {name: cut.signs(len(clean[name])) for name, cut in cuts.items()}
    return SignProducts(signs, tuple(combinations(cuts, 2)))
