"""Measuring how all ordered columns of a table are correlated, in one release: the base of their joints."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.copula import Cut, SignSums, sign_noise
from privbench_core.measure.one_way import noise_power
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import SignProducts

Array = NDArray[np.float64]
_CLEAR = 0.05  # noise of a correlation for which nothing more need be paid: tuned on 12 columns correlated .7, ε = 1
_LARGEST = 0.2  # of a price, for signs; chosen by hand
_STEEP = 2 / np.pi  # of the mean product of two signs, by the correlation, at the medians and near 0
_SCORE = 1 / np.pi  # of a pair by its correlation near 0: half of E|z z'|, of independent normal variables
_USELESS = 1.0  # noise of a correlation, times √(2 / columns): beyond it not even one common factor shows


def cuts_of(clean: Mapping[str, Array], ordered: Mapping[str, int]) -> dict[str, Cut]:
    """Return the cut of each column that has an order; see `Cut.nearest_median`."""
    cuts = {name: Cut.nearest_median(counts, ordered.get(name, 0)) for name, counts in clean.items()}
    return {name: cut for name, cut in cuts.items() if cut is not None}


def share_for_signs(curator: Curator, clean: Mapping[str, Array], cuts: Mapping[str, Cut], price: Price) -> float:
    """Return the share of a price for which correlations are clear, at most `_LARGEST`; 0 if they would tell nothing.

    Args:
        curator: Of a view with these columns.
        clean: Clean released counts of the columns.
        cuts: Of the columns that have an order.
        price: Of everything that is measured of them.
    """
    if len(cuts) < 2:  # noqa: PLR2004 - no pair
        return 0.0
    share = _LARGEST
    sigma = curator.sigma([_query(clean, cuts)], price.share(share))
    noise = sign_noise(clean, cuts, sigma)
    if noise * np.sqrt(2 / len(cuts)) > _USELESS:
        return 0.0
    return float(share * min(1.0, (noise / _CLEAR) ** (1 / noise_power(price.measure))))


def measure_signs(curator: Curator, clean: Mapping[str, Array], cuts: Mapping[str, Cut], price: Price) -> SignSums:
    """Measure the products of the signs of all pairs of columns, together.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 4 and 10.
    """
    noisy = curator.measure("signs", [_query(clean, cuts)], price)
    return SignSums(dict(cuts), noisy.values[0], noisy.sigma)


def gain_of_signs(curator: Curator, columns: int, supposed: float, total: float, price: Price) -> tuple[float, Price]:
    """Return by how many rows signs are expected to improve pairs before they are measured, and what they leave.

    Args:
        curator: Of any view of the table.
        columns: How many have an order.
        supposed: Score of a pair that depends on each other, as a share of rows; of as many pairs as columns, less one.
        total: Released number of rows.
        price: Of which signs take at most their largest share.
    """
    if columns < 2:  # noqa: PLR2004 - no pair
        return 0.0, price
    each = curator.sigma([SignProducts({}, ((),) * (columns * (columns - 1) // 2))], price.share(_LARGEST)) / total
    return (columns - 1) * total * max(supposed - each / _STEEP * _SCORE, 0.0), price.share(1 - _LARGEST)


def _query(clean: Mapping[str, Array], cuts: Mapping[str, Cut]) -> SignProducts:
    signs = {name: cut.signs(len(clean[name])) for name, cut in cuts.items()}
    return SignProducts(signs, tuple(combinations(cuts, 2)))
