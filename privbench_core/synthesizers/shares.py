"""How a table's budget is shared between its profile and its model: a matter of noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import geometric_mean

from privbench_core.domain.codecs import codec_for
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.noise import Sensitivity, noise_std
from privbench_core.schema.model.columns import Learn
from privbench_core.schema.model.tables import Table

# Noise of a count, in rows, up to which the least share is right; rise of the share per e-fold of noise; largest share.
# They pass through the best shares on Adult at ε = 0.2, 0.8 and 3.2.
_PURE_SHARES = (6.6, 0.126, 0.9)
_ZCDP_SHARES = (35.0, 0.11, 0.9)
_NARROW = 18.0  # codes: the geometric mean over Adult's columns
_MOST_CODES = 100.0  # of a column: a profile merges what is more


def profile_share(least: float, price: Price, codes: Sequence[float]) -> float:
    """Share of a table's price for its profile; what is left pays for its model.

    The noisier one-way marginals would be if they had all of the price, the less is there to be had from joints, which
    are many more; all the more so where columns are wide, as a joint has as many cells as its columns have multiplied.
    Under pure privacy more so: two looks at a marginal, each for half, are worse than one for all (Laplace noise does
    not average as its price adds up). Depends on nothing but the declared columns and the price.

    Args:
        least: The share where noise is small.
        price: Of profile and model together.
        codes: Size of each column's domain.
    """
    noise = noise_std(Sensitivity(len(codes), math.sqrt(len(codes))), price)
    wide = max(1.0, geometric_mean(codes) / _NARROW) ** 2
    small, slope, most = _PURE_SHARES if price.measure is Measure.PURE else _ZCDP_SHARES
    return max(least, min(most, least + slope * math.log(max(noise * wide / small, 1.0))))


def declared_codes(table: Table) -> list[float]:
    """How wide the attributes of a table are, as far as is declared: public."""
    sizes = [
        _NARROW if isinstance(column.domain, Learn) else float(codec_for(column, table=table.name).size)
        for column in table.attributes
    ]
    return [min(size, _MOST_CODES) for size in sizes]
