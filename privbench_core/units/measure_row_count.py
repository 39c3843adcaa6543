"""How many rows an owned table has, and how many of them a unit: measured before its columns are.

Privacy counts units, queries count rows. Rows of a unit with up to T of them can be counted in full at T times the
noise (`ViewSpec.rows_per_unit`), so a T is wanted that loses few rows and adds little noise. Which one does depends on
how rows spread over units: a histogram of that comes first, at the noise of units, then a number of rows, and the T for
everything else follows from these released numbers, the declared columns and the price. The histograms of all tables
come before anything else is measured: they say what will be noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from privbench_core.arrays import Array
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.estimators.segmentation import ABSOLUTE, SIGNIFICANT
from privbench_core.guards import FEW, HIDDEN_ROWS, TINY, TOLERANCE
from privbench_core.marginals.measure_scores import highest_noise
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import UnitRows
from privbench_core.privacy.noise import Sensitivity, noise_std
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.relations import WEIGHT_SCALE, stability
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.tables import Schema
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import UNIT_SIZE, RowCount, UnitCount, class_coder, counts_up_to, powers_up_to
from privbench_core.units.size_counts import ExpectedSizes, NoisySum, SizeCounts, estimate_bands


def measure_units(session: PrivateSession, table: str, bound: int, price: Price) -> UnitCount:
    """Measure how many units have rows in a table, by class of their number of rows, for ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and √(2ρ)-GDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        table: The table.
        bound: Most rows of a unit, a product of declared bounds; beyond the largest T it says nothing, and counts as T.
        price: Of this.
    """
    bound = min(bound, WEIGHT_SCALE)
    if bound <= 1:
        rows = session.view(ViewSpec(table, {}), "rows").measure("rows", [Marginal(())], price)
        return UnitCount(rows.values[0].reshape(1), rows.sigma)
    coder = class_coder(FanoutCodec(bound), powers_up_to(bound))
    view = session.view(ViewSpec(table, {UNIT_SIZE: (UnitRows(), coder)}), "rows of units")
    units = view.measure("sizes", [Marginal((UNIT_SIZE,))], price)
    return UnitCount(units.values[0], units.sigma, bound)


def measure_row_count(
    session: PrivateSession, table: str, counted: UnitCount, price: Price
) -> tuple[RowCount | None, Price]:
    """Measure the size of an owned table, and return what is left; None, for nothing, if units have one row at most.

    Its T is 1, for first counts of the columns: no T shows codes better, as rows grow less than T does.

    Formal guarantee: satisfies ε-DP for a pure price and √(2ρ)-GDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        table: The table.
        counted: Released numbers of its units, for `TUNING.size_share` of the table's price.
        price: Of all that is measured of the table after them.
    """
    if counted.bound <= 1:
        return None, price
    noisy, sigma, share = counted.units, counted.sigma, TUNING.size_share / (1 - TUNING.size_share)
    sizes, (_, most) = _fit_of(counted, price.measure), _first_fit(counted, price.measure)
    found = session.view(ViewSpec(table, {}, (most,)), "rows").measure("rows", [Marginal(())], price.share(share))
    total = NoisySum(float(found.values[0]), found.sigma, most)
    fit = sizes(noisy, sigma, rows=total)
    stands_out = _units_show(counted) or total.value > SIGNIFICANT * total.sigma
    off = _error(fit, most, total.sigma, stands_out=stands_out)
    rows = _without_bias(total.value + fit.beyond(most), off, fit.rows())
    scale = 1.0
    if sigma >= HIDDEN_ROWS and rows <= off:
        rows, scale = min(rows, float(HIDDEN_ROWS)), HIDDEN_ROWS / sigma  # of as few units as rows
    at_least = max(rows, 1.0)  # shares of rows are divided by how many there are
    fit = sizes(noisy * scale, sigma * scale, rows=NoisySum(at_least, min(off, TOLERANCE * at_least)))
    return _row_count(rows, off, counted, fit), price.share(1 - share)


def forecast_row_count(counted: UnitCount, measure: Measure) -> RowCount:
    """Return what `measure_row_count` can be expected to find, from the numbers of units that come before it."""
    if counted.bound <= 1:
        return RowCount(max(float(counted.units[0]), TINY), counted.sigma)
    fit, most = _first_fit(counted, measure)
    off = _error(fit, most, most * counted.sigma, stands_out=_units_show(counted))
    return _row_count(fit.rows(), off, counted, fit)


def _units_show(counted: UnitCount) -> bool:
    return float(counted.units.sum()) > SIGNIFICANT * counted.sigma * math.sqrt(len(counted.units))


def _error(fit: SizeCounts, most: int, sigma: float, *, stands_out: bool) -> float:
    """Return by how much a number of rows may be off, given the noise of those up to T of a unit.

    Where neither units nor rows stand out, the likely shapes are those of noise.
    """
    return math.hypot(sigma, fit.unknown_beyond(most) if stands_out else fit.deviation_beyond(most))


def _fit_of(counted: UnitCount, measure: Measure) -> Callable[..., SizeCounts]:
    """Return what fits numbers of units to noisy ones and, with ``rows``, to a number of rows."""
    powers = powers_up_to(counted.bound)
    return partial(estimate_bands, FanoutCodec(counted.bound), powers, bar=highest_noise(measure, 1.0, 2 * len(powers)))


def _first_fit(counted: UnitCount, measure: Measure) -> tuple[SizeCounts, int]:
    """Return numbers of units before rows are counted, and the T that shows best how many rows there are."""
    sigma, fit = counted.sigma, _fit_of(counted, measure)(counted.units, counted.sigma)
    most = min(counts_up_to(counted.bound), key=lambda t: math.hypot(t * sigma, fit.unknown_beyond(t)))
    return fit, most


def _row_count(rows: float, off: float, counted: UnitCount, fit: SizeCounts) -> RowCount:
    """Return a number of rows with classes of which each has units; the last one leaves no rows out."""
    powers = powers_up_to(counted.bound)
    last = next((power for power in powers if fit.rows() - fit.rows(power) <= FEW * fit.rows()), powers[-1])
    classes = tuple(power for power in powers if power <= last)
    of_class = fit.rows_up_to(classes), fit.rows_up_to(classes, 1)
    return RowCount(rows, off, 1, classes, *of_class, counted.bound, counted.units, counted.sigma)


def _without_bias(rows: float, sigma: float, likely: float) -> float:
    """Return a number of rows, as far as it stands out of its noise: a likely one has less noise, and a bias.

    Where noise is larger than the likely number, that is noise as well, and is drawn towards few rows: a table of which
    nothing is known must not come out hundreds of times too large.

    Args:
        rows: An estimate without bias, which may be negative.
        sigma: Its standard deviation.
        likely: What sizes that are likely make of all that was measured.
    """
    if likely <= sigma:
        return max(likely * likely / max(sigma, TINY), TINY)
    share = 1 - (sigma / likely) ** 2
    return max(share * rows + (1 - share) * likely, TINY)


def counted_for_sizes(curator: Curator, parents: RowCount, expected: ExpectedSizes, price: Price) -> int:
    """Choose T for a histogram of numbers of children over the rows of a table whose units have several.

    It has the least expected error of the sizes of groups over the *children*: noise of one parent of 100 children is
    noise of 100 rows. What noise can do to a class of sizes is at most to hide it.

    Args:
        curator: Of a view that counts every unit once.
        parents: Released size of the parents' table.
        expected: Numbers of children, before any are measured.
        price: Of the histogram.
    """
    sigma = curator.sigma([Marginal(())], price)

    def error(most: int) -> float:
        counted = max(1.0, float(parents.counted(most).sum()))
        noise = np.minimum(ABSOLUTE * most * sigma / counted, expected.groups) @ expected.sizes
        moved = TUNING.truncation_bias * (1 - counted / max(counted, parents.rows))
        return float(noise) / max(float(expected.groups @ expected.sizes), TINY) + moved

    return min(parents.classes, key=error)


def distance_by_noise(sizes: Array, sigma: float, rows: float) -> Array:
    """Return the expected total variation distance of columns with so many codes from themselves with noise."""
    visible = np.minimum(sizes, 1 + rows / (SIGNIFICANT * sigma)) if sigma > 0 else sizes
    return np.minimum(ABSOLUTE * sigma * visible / rows, 0.5)


def noise_of_rows(schema: Schema, table: str, price: Price) -> float:
    """Return the standard deviation of the number of rows if each unit has one, from the plan alone: no row is read.

    All that is measured of the table costs ``price``. T times as much where units have up to T rows: T is chosen from
    released numbers, and is at most the declared bound (`Schema.max_rows_per_unit`).
    """
    others = (stability(schema, table) - 1) / 2  # weight that changes beyond that of 1 which leaves with the unit
    moved = Sensitivity(1 + 2 * others, math.hypot(1 + others, others))
    return noise_std(moved, price.share(TUNING.size_share))
