"""How many rows an owned table has, and how many of them a unit: measured before its columns are.

Privacy counts units, queries count rows. Rows of a unit with up to T of them can be counted in full at T times the
noise (`ViewSpec.rows_per_unit`), so a T is wanted that loses few rows and adds little noise. Which one does depends on
how rows spread over units: a histogram of that comes first, at the noise of units, then a number of rows, and the T for
everything else follows from these released numbers, the declared columns and the price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.estimate.fitting import combine
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.guards import MAX_CODES
from privbench_core.measure.scores import highest_noise
from privbench_core.models.row_count import HIDDEN_ROWS, UNIT_SIZE, RowCount, class_coder, counts_up_to, powers_up_to
from privbench_core.models.size_counts import ExpectedSizes, NoisySum, SizeCounts, estimate_bands
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import UnitRows
from privbench_core.privacy.noise import Sensitivity, noise_std
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.relations import WEIGHT_SCALE, stability
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.tables import Schema

Array = NDArray[np.float64]
_SHARES = (0.02, 0.04, 0.08, 0.16, 0.32)  # of a table's price, for sizes, and for the number of rows: tried in turn
_FANOUT_OTHERWISE = 0.1  # how far parents of units with many rows have other numbers of children
_STANDS_OUT = 3.0  # standard deviations by which a code stands out
_FEW = 0.002  # of all rows: what may be left out
_MODEST = 0.16  # a share that leaves the columns two thirds of the price, if sizes and rows both get it
_USABLE = 0.2  # relative error of a number of rows above which a table is of no use, whatever its columns are
_PREDICATES = 2.0  # columns that a query looks at, beside the rows it counts, as in the papers' workloads
_PRECISE = 0.01  # relative error of a number of rows that is no reason to pay more for it: a fifth of what is wanted
_FITTED = 1e-3  # relative error of a number of rows (of one, at least) that sizes are fitted to: far below what matters
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


@dataclass(frozen=True)
class _Balance:
    """What a price buys: a number of rows, or columns.

    Attributes:
        curator: Of a view that counts every unit once.
        codes: Of the columns that are to be measured for what is left, before any are merged.
        price: Of all that is measured of the table.
    """

    curator: Curator
    codes: Array
    price: Price

    def sigma(self, share: float) -> float:
        return self.curator.sigma([Marginal(())], self.price.share(share))

    def total(self, fit: SizeCounts, share: float) -> tuple[float, int]:
        """Expected relative error of the number of rows for a share of the price, and the T that makes it least."""
        sigma = self.sigma(share)
        choices = counts_up_to(fit.codec.bound)
        off = {most: float(np.hypot(most * sigma, fit.unknown_beyond(most))) for most in choices}
        best = min(off, key=lambda most: off[most])
        return off[best] / max(fit.rows(), 1.0), best

    def columns(self, rows: float, most: int, left: float) -> float:
        """Expected error of the columns of a query, half of them alone and half in pairs, if they get what is left."""
        if not len(self.codes):
            return 0.0
        sigma = most * self.sigma(left / len(self.codes))
        each = [
            distance_by_noise(cells, sigma, max(rows, 1.0)).mean()
            for cells in (self.codes, self.codes * self.codes.mean())
        ]
        return _PREDICATES * float(np.mean(each))

    def gains(self, fit: SizeCounts, error: float, most: int, share: float, other: float) -> bool:
        """Whether to pay twice ``share`` for the number of rows, beside ``other`` shares; for the rest see `total`."""
        if share >= _SHARES[-1] or error <= (_PRECISE if share < _MODEST else _USABLE):
            return False
        saved = error * (1 - 2 ** -(1.0 if self.price.measure is Measure.PURE else 0.5))
        left, rows = 1 - other - share, fit.rows()
        return saved > self.columns(rows, most, left - share) - self.columns(rows, most, left)


def measure_row_count(
    session: PrivateSession, table: str, bound: int, codes: Sequence[int], price: Price
) -> tuple[RowCount | None, Price]:
    """The size of an owned table, and what is left of ``price``; None, for nothing, if no unit has more than one row.

    Its T is 1, for a first look at the columns: no T tells codes from noise better, as rows grow less than T does.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        table: The table.
        bound: Most rows of a unit, a product of declared bounds; beyond the largest T it says nothing, and counts as T.
        codes: Of the columns that are to be measured next: a small table's rows get more of the price, where noise
            hides its columns anyway.
        price: Of all that is measured of the table.
    """
    if bound <= 1:
        return None, price
    bound = min(bound, WEIGHT_SCALE)
    of_units = session.view(ViewSpec(table, {}), "rows")
    balance = _Balance(of_units, np.minimum(np.array(codes, dtype=float), MAX_CODES), price)
    sizes, spent = _measure_sizes(session, table, bound, balance)
    fit = sizes.fit()
    for share in _SHARES:
        error, most = balance.total(fit, share)
        if not balance.gains(fit, error, most, share, spent):
            break
    found = session.view(ViewSpec(table, {}, (most,)), "rows").measure("rows", [Marginal(())], price.share(share))
    total = NoisySum(float(found.values[0]), found.sigma, most)
    fit = sizes.fit(total)
    off = float(np.hypot(total.sigma, fit.unknown_beyond(most)))
    rows = _without_bias(total.value + fit.beyond(most), off, fit.rows())
    limited = sizes
    if sizes.sigma >= HIDDEN_ROWS and rows <= off:
        rows, scale = min(rows, float(HIDDEN_ROWS)), HIDDEN_ROWS / sizes.sigma
        limited = replace(sizes, noisy=sizes.noisy * scale, sigma=float(HIDDEN_ROWS))  # of as few units as rows
    at_least = max(rows, 1.0)  # shares of rows are divided by how many there are
    fit = limited.fit(NoisySum(at_least, min(off, _FITTED * at_least)))
    classes = _classes(fit, bound)
    of_class = fit.rows_up_to(classes), fit.rows_up_to(classes, 1)
    left = price.share(1 - spent - share)
    return RowCount(rows, off, 1, classes, *of_class, bound, sizes.noisy, sizes.sigma), left


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
        return max(likely * likely / max(sigma, _NOTHING), _NOTHING)
    share = 1 - (sigma / likely) ** 2
    return max(share * rows + (1 - share) * likely, _NOTHING)


def _measure_sizes(session: PrivateSession, table: str, bound: int, balance: _Balance) -> tuple[_Sizes, float]:
    """Noisy numbers of units by their number of rows, and the share of the price that they took."""
    codec, price = FanoutCodec(bound), balance.price
    classes = tuple(powers_up_to(bound))
    view = session.view(ViewSpec(table, {UNIT_SIZE: (UnitRows(), class_coder(codec, classes))}), "rows of units")
    bar = highest_noise(price.measure, 1.0, 2 * len(classes))
    found, spent = _Sizes(codec, classes, np.zeros(len(classes)), np.inf, bar), 0.0
    for share in _SHARES:
        look = view.measure("sizes", [Marginal((UNIT_SIZE,))], price.share(share - spent))
        if spent:
            noisy, deviations = combine(found.noisy, found.sigma, look.values[0], look.sigma)
            found = replace(found, noisy=noisy, sigma=float(deviations[0]))
        else:
            found = replace(found, noisy=look.values[0], sigma=look.sigma)
        spent, fit = share, found.fit()
        error, most = balance.total(fit, share)
        if not balance.gains(fit, error, most, share, share):
            break
    return found, spent


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
        noise = np.minimum(ABSOLUTE * most * sigma / counted, expected.groups) @ expected.sizes
        moved = _FANOUT_OTHERWISE * (1 - counted / max(counted, parents.rows))
        return float(noise) / max(float(expected.groups @ expected.sizes), _NOTHING) + moved

    return min(parents.classes, key=error)


def distance_by_noise(sizes: Array, sigma: float, rows: float) -> Array:
    """Expected total variation distance of columns with so many codes from themselves with noise, shape (columns,)."""
    visible = np.minimum(sizes, 1 + rows / (_STANDS_OUT * sigma)) if sigma > 0 else sizes
    return np.minimum(ABSOLUTE * sigma * visible / rows, 0.5)


def _classes(fit: SizeCounts, bound: int) -> tuple[int, ...]:
    """Powers of two that part units by their number of rows: each class has units, and the last leaves no rows out."""
    rows = fit.rows()
    powers = powers_up_to(bound)
    last = next((power for power in powers if rows - fit.rows(power) <= _FEW * rows), powers[-1])
    return tuple(power for power in powers if power <= last)


def noise_of_rows(schema: Schema, table: str, price: Price) -> float:
    """± rows of a table whose units may have several (one standard deviation), from its plan alone: no row is read.

    It is the noise of the number of rows if all that is measured of the table costs ``price``, the number of rows gets
    the least share of it, and each unit has one row. T times as much where units have up to T rows: T is chosen from
    released numbers, and is at most the declared bound (`Schema.max_rows_per_unit`).
    """
    own = 1.0  # weight that leaves with the unit
    others = (stability(schema, table) - own) / 2  # weight that changes beside it
    return noise_std(Sensitivity(own + 2 * others, float(np.hypot(own + others, others))), price.share(_SHARES[0]))
