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
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]


def cuts_of(clean: Mapping[str, Array], ordered: Mapping[str, int]) -> dict[str, Cut]:
    """Return the cut of each column that has an order; see `Cut.nearest_median`."""
    cuts = {name: Cut.nearest_median(counts, ordered.get(name, 0)) for name, counts in clean.items()}
    return {name: cut for name, cut in cuts.items() if cut is not None}


def measure_signs(
    curator: Curator, clean: Mapping[str, Array], ordered: Mapping[str, int], price: Price
) -> tuple[SignSums | None, Price]:
    """Measure the products of the signs of all pairs of columns together, and return what is left of ``price``.

    They get the share for which correlations are clear, at most twice that of scores, as they say both which columns
    depend on each other and how; None, and nothing spent, where not even one common factor of
    all columns would show. Noise hides √(2 / columns) as much of that as of a single pair, as eigenvalues go.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 4 and 10.

    Args:
        curator: Of a view with these columns.
        clean: Clean counts of the columns.
        ordered: Column -> number of its leading codes that are intervals, in order; columns it lacks are lists.
        price: Of everything that is measured of the columns.
    """
    cuts = cuts_of(clean, ordered)
    if len(cuts) < 2:  # noqa: PLR2004 - no pair
        return None, price
    signs = {name: cut.signs(len(clean[name])) for name, cut in cuts.items()}
    query = SignProducts(signs, tuple(combinations(cuts, 2)))
    noise = sign_noise(clean, cuts, curator.sigma([query], price.share(2 * TUNING.score_share)))
    if noise * np.sqrt(2 / len(cuts)) > 1:
        return None, price
    share = 2 * TUNING.score_share * min(1.0, (noise / TUNING.clear) ** (1 / noise_power(price.measure)))
    noisy = curator.measure("signs", [query], price.share(share))
    return SignSums(cuts, noisy.values[0], noisy.sigma), price.share(1 - share)
