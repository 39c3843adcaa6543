"""Measure how many rows refer to others along a SET NULL key, and to how many of those that refer to one unit.

What is counted of the references to the rows of one unit is bounded (`privacy.views.BoundedReferences`), so that noise
follows from the bound, and not from how often the most popular unit may be referred to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimators.segmentation import ABSOLUTE
from privbench_core.guards import BOUND_STEP, MAX_CELLS, TINY
from privbench_core.links.degrees import extrapolated, rank_ends, ranked, unbounded_means, zipf
from privbench_core.links.measure_references import Counting, rank_popularity, share_in_full
from privbench_core.links.popularity import ByRank
from privbench_core.privacy.budget import Price
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import RowCount

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BoundedCounts:
    """Released: how many rows refer to others along a SET NULL key, with several bounds.

    Attributes:
        ways: To count references, one for each bound, ascending.
        in_rows: Most references to one unit that count with each bound, as rows; shape (bounds,).
        totals: Estimated number of references with each bound, shape (bounds,).
        unit_rows: Rows of a unit of the parent that references to it are taken to be spread over.
    """

    ways: tuple[Counting, ...]
    in_rows: Array
    totals: Array
    unit_rows: float

    @property
    def rows(self) -> float:
        """Estimated number of rows that refer to another, at least one."""
        return self.ways[0].references

    def popularity(self, price: Price) -> tuple[ByRank, Price]:
        """Return references to the most popular row of the parent, the next, and so on, and what is left of ``price``.

        Where noise and the bound would leave more error than what follows from the totals has, that is taken, and
        nothing is measured.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.
        """
        ends = rank_ends(min(math.ceil(self.rows), MAX_CELLS))
        usual = zipf(ends)
        if min(way.error(usual, price, bias=1.0) for way in self.ways) <= TUNING.clear:
            return rank_popularity(self.ways, self.rows, price), price.share(0.0)
        last = int(np.searchsorted(self.in_rows, self.in_rows[-1])) + 1  # what larger bounds count is no more
        sums = ranked(self.in_rows[:last], self.totals[:last], ends, self.unit_rows)
        return ByRank(ends, sums, 0.5, self.rows), price  # off by rounding


def over_all_references(shares: Array, usual: Array, way: Counting, parents: RowCount) -> Array:
    """Return the distribution of a target over all references, from that over references that a bound counts.

    How many count per parent of each code shows how many do not: popular parents lose more of theirs. Degrees of
    parents of a code are assumed to be exponential, so that m · (1 - exp(-bound / m)) of a mean m count. All references
    that do not count are shared among the codes in proportion to what each so lacks. Where a unit may have several of
    the parents, the bound is not theirs, and nothing changes.

    Args:
        shares: Over the references that count, shape (codes,).
        usual: Among all parents, shape (codes,).
        way: Which references count.
        parents: Number of rows that may be referred to.
    """
    if way.bounded is None or parents.units is not None:
        return shares
    there = usual * max(parents.rows, 1.0)
    rates = shares * (way.references * way.inside) / np.maximum(there, TINY)
    lost = (unbounded_means(rates, way.bound) - rates) * there
    return shares * way.inside + lost * ((1 - way.inside) / lost.sum()) if lost.sum() > 0 else shares


def measure_bounded(
    session: PrivateSession, key: ForeignKey, size: RowCount, parents: RowCount, most: int, price: Price
) -> tuple[BoundedCounts, Price]:
    """Count the rows that refer to others with several bounds, up to ``most``; return what is left of ``price``, too.

    Bounds with which noise would hide everything are not asked for: what totals are there follows from smaller ones.
    T is chosen for this: what a unit's own rows weigh is noise of references to all.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1 and 4.

    Args:
        session: Open for the step.
        key: Becomes NULL where a unit goes.
        size: Released, of the table that has the key.
        parents: Released, of the table that it refers to.
        most: Rows that refer to rows of one unit, as declared: larger bounds are of no use.
        price: Of everything here.
    """
    bounds = [1]
    while bounds[-1] < min(most, math.ceil(size.rows)):
        bounds.append(bounds[-1] * BOUND_STEP)
    each, noisy, sigmas = price.share(1 / len(bounds)), list[float](), list[float]()
    per_unit = _best_rows_per_unit(session, key, size, each)
    scale = per_unit / share_in_full(size, per_unit)
    name = "at most {:,} references to a unit"
    views = {bound: session.references(key, per_unit, name.format(bound), bound) for bound in bounds}
    for view in views.values():
        sigma = view.sigma([Marginal(())], each) * scale
        if noisy and sigma > max(noisy[-1], 0.0):
            break
        noisy.append(float(view.measure("references", [Marginal(())], each).values[0]) * scale)
        sigmas.append(sigma)
    units = max(1.0, float(np.sum(parents.units_of)) if parents.bound > 1 else parents.rows)
    once = units * scale / per_unit  # if every unit were referred to as often as the first bound counts
    in_rows = np.minimum(np.array(bounds) * (scale / per_unit), most)
    totals = extrapolated(np.array(noisy), np.array(sigmas), in_rows, (once, size.rows))
    rows = max(1.0, float(totals[-1]))
    ways = [
        Counting(view, size, per_unit, rows, BoundedReferences(key, bound), max(1.0, total) / rows)
        for (bound, view), total in zip(views.items(), totals.tolist(), strict=True)
    ]
    found = BoundedCounts(tuple(ways), in_rows, totals, max(1.0, parents.rows / units))
    return found, price.share(1 - len(noisy) / len(bounds))


def most_informative(ways: Sequence[Counting], price: Price, numbers: float, bias: float) -> Counting:
    """Return the way to count with which a distribution that is measured for ``price`` has least error.

    It is informative as far as the references that count say something of all, less the more noise there is beside
    them: however large noise is, less of it is better.

    Args:
        ways: To count references.
        price: Of the measurement.
        numbers: That it consists of.
        bias: Share that references which do not count are taken to differ by from those that do, 1 at worst.
    """

    def informativeness(way: Counting) -> float:
        return (1 - bias * (1 - way.inside)) / (1 + numbers * way.noise(price))

    return max(ways, key=informativeness)


def _best_rows_per_unit(session: PrivateSession, key: ForeignKey, size: RowCount, price: Price) -> int:
    """Return the T that has the least expected error of a number of references, for ``price``.

    If one row may refer to each unit, T rows of a unit's own go with it, and one of another's; up to T of others take
    their place. What further private parents add is left out here, so that no view of rows is made for each T.
    """
    of_unit = session.view(ViewSpec(key.child, {}), "references").sigma([Marginal(())], price)

    def error(most: int) -> float:
        full = share_in_full(size, most)
        noise = ABSOLUTE * of_unit * math.hypot(1 + 1 / most, 1.0) * most / full
        return TUNING.clear * (1 - full) + noise / max(size.rows / 2, 1.0)

    return min(size.classes, key=error)
