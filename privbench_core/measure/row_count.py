"""How many rows an owned table has, and how many of them a unit: measured before its columns are.

Privacy counts units, queries count rows. Rows of a unit with up to T of them can be counted in full at T times the
noise (`ViewSpec.rows_per_unit`), so a T is wanted that loses few rows and adds little noise. Which one does depends on
how rows spread over units: a histogram of that comes first, at the noise of units, then a number of rows, and the T for
everything else follows from these released numbers, the declared columns and the price.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.estimate.fitting import combine
from privbench_core.measure.scores import highest_noise
from privbench_core.models.row_count import UNIT_SIZE, RowCount, class_coder, powers_up_to
from privbench_core.models.size_counts import ExpectedSizes, NoisySum, SizeCounts, estimate_bands
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import UnitRows, ViewSpec

Array = NDArray[np.float64]
_LOOKS = (0.02, 0.02, 0.04, 0.08)  # of a table's price, for sizes: one after the other until they are clear
_CLEAR = 0.005  # of all units: noise of a size that is no reason to look again
_TOTALS = (0.02, 0.04, 0.08, 0.16)  # of a table's price, for the number of rows: the least that makes it precise
_PRECISE = 0.003  # relative error of a number of rows that is no reason to pay more for it
_ABSOLUTE = 0.4  # half of the expected absolute value of noise, in standard deviations
_FANOUT_OTHERWISE = 0.1  # how far parents of units with many rows have other numbers of children
_TOLD = 3.0  # standard deviations by which a code stands out
_FEW = 0.002  # of all rows: what may be left out
_NOTHING = 1e-300


@dataclass(frozen=True)
class _Sizes:
    """What is known of the sizes of units."""

    codec: FanoutCodec
    classes: tuple[int, ...]
    noisy: Array
    sigma: float
    bar: float

    def fit(self, rows: NoisySum | None = None) -> SizeCounts:
        return estimate_bands(self.codec, self.classes, self.noisy, self.sigma, self.bar, rows=rows)


def measure_row_count(session: PrivateSession, table: str, bound: int, price: Price) -> tuple[RowCount | None, Price]:
    """The size of an owned table, and what is left of ``price``; None, for nothing, if no unit has more than one row.

    Its T is 1, for a first look at the columns: no T tells codes from noise better, as rows grow less than T does.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        table: The table.
        bound: Most rows of a unit.
        price: Of all that is measured of the table.
    """
    if bound <= 1:
        return None, price
    sizes, spent = _measure_sizes(session, table, bound, price)
    fit = sizes.fit()
    of_units = session.view(ViewSpec(table, {}), "rows")
    choices = []
    for share in _TOTALS:
        sigma = of_units.sigma([Marginal(())], price.share(share))
        most = min(powers_up_to(bound), key=lambda power: np.hypot(power * sigma, fit.unknown_beyond(power)))
        choices.append((share, most))
        if np.hypot(most * sigma, fit.unknown_beyond(most)) <= _PRECISE * fit.rows():
            break
    share, most = choices[-1]
    found = session.view(ViewSpec(table, {}, (most,)), "rows").measure("rows", [Marginal(())], price.share(share))
    total = NoisySum(float(found.values[0]), found.sigma, most)
    fit, rest = sizes.fit(total), price.share(1 - spent - share)
    rows = max(0.0, total.value + fit.rows() - fit.rows(most))
    off = float(np.hypot(total.sigma, fit.unknown_beyond(most)))
    classes = _classes(fit, bound)
    of_class = fit.rows_up_to(classes), fit.rows_up_to(classes, 1)
    return RowCount(rows, off, 1, classes, *of_class, bound, sizes.noisy, sizes.sigma), rest


def _measure_sizes(session: PrivateSession, table: str, bound: int, price: Price) -> tuple[_Sizes, float]:
    """Noisy numbers of units by their number of rows, and the share of the price that they took."""
    codec = FanoutCodec(bound)
    classes = tuple(powers_up_to(bound))
    view = session.view(ViewSpec(table, {UNIT_SIZE: (UnitRows(), class_coder(codec, classes))}), "rows of units")
    noisy, sigma, spent = np.zeros(len(classes)), np.inf, 0.0
    for share in _LOOKS:
        look = view.measure("sizes", [Marginal((UNIT_SIZE,))], price.share(share))
        if spent:
            noisy, deviations = combine(noisy, sigma, look.values[0], look.sigma)
            sigma = float(deviations[0])
        else:
            noisy, sigma = look.values[0], look.sigma
        spent += share
        if sigma <= _CLEAR * noisy.sum():
            break
    return _Sizes(codec, classes, noisy, sigma, highest_noise(price.measure, 1.0, 2 * len(classes))), spent


def counted_for_sizes(curator: Curator, parents: RowCount, expected: ExpectedSizes, price: Price) -> int:
    """T for a histogram of numbers of children over the rows of a table whose units have several.

    It is the one with the least expected error of the sizes of groups over the *children*: noise of one parent of 100
    children is noise of 100 rows. What noise can do to a class of sizes is at most to hide it.

    Args:
        curator: Of a view that counts every unit once.
        parents: Released size of the parents' table.
        expected: Numbers of children, before any are measured.
        price: Of the histogram.
    """
    sigma = curator.sigma([Marginal(())], price)

    def error(most: int) -> float:
        counted = max(1.0, float(parents.counted(most).sum()))
        noise = np.minimum(_ABSOLUTE * most * sigma / counted, expected.groups) @ expected.sizes
        moved = _FANOUT_OTHERWISE * (1 - counted / max(counted, parents.rows))
        return float(noise) / max(float(expected.groups @ expected.sizes), _NOTHING) + moved

    return min(parents.classes, key=error)


def distance_by_noise(sizes: Array, sigma: float, rows: float) -> Array:
    """Expected total variation distance of columns with so many codes from themselves with noise, shape (columns,)."""
    told = np.minimum(sizes, 1 + rows / (_TOLD * sigma)) if sigma > 0 else sizes
    return np.minimum(_ABSOLUTE * sigma * told / rows, 0.5)


def _classes(fit: SizeCounts, bound: int) -> tuple[int, ...]:
    """Powers of two that part units by their number of rows: each class has units, and the last leaves no rows out."""
    rows = fit.rows()
    powers = powers_up_to(bound)
    last = next((power for power in powers if rows - fit.rows(power) <= _FEW * rows), powers[-1])
    return tuple(power for power in powers if power <= last)
