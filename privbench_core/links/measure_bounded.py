"""Measuring along SET NULL keys: how many rows refer to others, and to how many of those that refer to one unit.

What is counted of the references to the rows of one unit is bounded (`privacy.views.BoundedReferences`), so that noise
follows from the bound, and not from how often the most popular unit may be referred to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privbench_core.arrays import Array
from privbench_core.estimators.segmentation import ABSOLUTE
from privbench_core.guards import BOUND_STEP, MAX_CELLS, TINY
from privbench_core.links.measure_targets import Referred
from privbench_core.links.popularity import ByRank
from privbench_core.links.popularity_shapes import extrapolated, rank_ends, ranked, unbounded_means, zipf
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal, RankSums
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import RowCount


@dataclass(frozen=True)
class BoundedCounts:
    """Released: how many rows refer to others along a SET NULL key, with several bounds.

    Attributes:
        views: References with bounds, the numbers of rows that refer to one unit and count, ascending; the last is as
            many as are declared for any unit.
        size: Released, of the table that has the key, with the T of all views of its references.
        alike: Rows of a unit that references to it are taken to be spread over.
        most: Rows that refer to rows of one unit, as declared.
        totals: Estimated number of references with each bound, shape (bounds,).
    """

    views: Mapping[int, Curator]
    size: RowCount
    alike: float
    most: int
    totals: Array

    @property
    def bounds(self) -> tuple[int, ...]:
        """The bounds."""
        return tuple(self.views)

    @property
    def rows(self) -> float:
        """Estimated number of rows that refer to another, at least one."""
        return max(1.0, float(self.totals[-1]))

    def counted(self, most: int) -> float:
        """Estimated number of rows that one of the bounds counts, at least one."""
        return max(1.0, float(self.totals[self.bounds.index(most)]))

    def lost(self, most: int) -> float:
        """Estimated share of the rows that refer to another that one of the bounds does not count."""
        return 1 - self.counted(most) / self.rows

    def in_rows(self, most: int) -> float:
        """How many references to one unit count at most, as rows."""
        return most * self._rows_of_row

    def in_view(self, most: int) -> float:
        """The same in a view of rows (`ViewSpec`), where units beyond T count as T rows."""
        return self.counted(most) / self._rows_of_row

    @property
    def _rows_of_row(self) -> float:
        """How many rows one stands for that counts in full, and how many references one that is counted."""
        return _rows_of_count(self.size) / self.size.rows_per_unit

    def best(self, price: Price, numbers: float, bias: float) -> int:
        """The bound that lets a distribution that is measured for ``price`` tell most.

        It tells as much as the references that count say of all, less the more noise there is beside them: however
        large noise is, less of it tells more.

        Args:
            price: Of the measurement.
            numbers: That it consists of.
            bias: Share that references which do not count are taken to differ by from those that do, 1 at worst.
        """

        def told(most: int) -> float:
            return (1 - bias * self.lost(most)) / (1 + numbers * self.noise(most, price))

        return max(self.bounds, key=told)

    def popularity(self, price: Price) -> tuple[ByRank, Price]:
        """References to the most popular row of the parent, the next, and so on, and what is left of ``price``.

        Where noise and the bound would leave more error than what follows from the totals has, that is taken, and
        nothing is measured.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.
        """
        ends = rank_ends(min(math.ceil(self.rows), MAX_CELLS))
        usual = zipf(ends)

        def error(most: int) -> float:
            return self.lost(most) + float(np.minimum(self.noise(most, price), usual).sum())

        most = min(self.bounds, key=error)
        if error(most) > TUNING.clear:
            in_rows = _in_rows(self.size, self.bounds, self.most)
            last = int(np.searchsorted(in_rows, self.most)) + 1  # what larger bounds count is no more
            sums = ranked(in_rows[:last], self.totals[:last], ends, self.alike)
            return ByRank(ends, sums, 0.5, self.rows), price  # off by rounding
        noisy = self.views[most].measure("ranks", [RankSums(tuple(ends.tolist()))], price)
        scale = self.rows / self.counted(most) * _rows_of_count(self.size)
        return ByRank(ends, noisy.values[0] * scale, noisy.sigma * scale, self.rows), price.share(0.0)

    def noise(self, most: int, price: Price) -> float:
        """Return the expected error of a number by noise, as a share of all that are counted."""
        return ABSOLUTE * self.views[most].sigma([Marginal(())], price) * _rows_of_count(self.size) / self.counted(most)


def measure_bounded(
    session: PrivateSession, key: ForeignKey, size: RowCount, parents: RowCount, most: int, price: Price
) -> tuple[BoundedCounts, Price]:
    """Count the rows that refer to others with several bounds, up to ``most``; return what is left of ``price``, too.

    Bounds with which noise would hide everything are not asked for: what totals are there follows from smaller ones.
    Up to how many rows of a unit count in full is chosen anew: what its own rows weigh is noise of references to all.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1 and 4.

    Args:
        session: Open for the step.
        key: Lets go.
        size: Released, of the table that has the key.
        parents: Released, of the table that it refers to.
        most: Rows that refer to rows of one unit, as declared: larger bounds are of no use.
        price: Of everything here.
    """
    bounds = [1]
    while bounds[-1] < min(most, math.ceil(size.rows)):
        bounds.append(bounds[-1] * BOUND_STEP)
    each, noisy, sigmas = price.share(1 / len(bounds)), list[float](), list[float]()
    size = _counted_best(session, key, size, each)
    scale = _rows_of_count(size)
    name = "at most {:,} references to a unit"
    views = {bound: session.references(key, size.rows_per_unit, name.format(bound), bound) for bound in bounds}
    for view in views.values():
        sigma = view.sigma([Marginal(())], each) * scale
        if noisy and sigma > max(noisy[-1], 0.0):
            break
        noisy.append(float(view.measure("references", [Marginal(())], each).values[0]) * scale)
        sigmas.append(sigma)
    units = max(1.0, float(np.sum(parents.units_of)) if parents.bound > 1 else parents.rows)
    once = units * scale / size.rows_per_unit  # if every unit were referred to as often as the first bound counts
    totals = extrapolated(np.array(noisy), np.array(sigmas), _in_rows(size, bounds, most), (once, size.rows))
    alike = max(1.0, parents.rows / units)
    return BoundedCounts(views, size, alike, most, totals), price.share(1 - len(noisy) / len(bounds))


def unbounded_targets(
    targets: Mapping[str, Array], parent: Referred, counts: BoundedCounts, most: int, known: float
) -> dict[str, Array]:
    """Distributions of targets over all references, of those over references that a bound counts.

    How many count per parent of each code shows how many do not: popular parents lose more of theirs. Degrees of
    parents of a code are assumed to be exponential, so that m · (1 - exp(-bound / m)) of a mean m count. All references
    that do not count are shared among the codes in proportion to what each so lacks. Where a unit may have several of
    the parents, the bound is not theirs, and nothing changes.

    Args:
        targets: Distributions over the references that count, by target.
        parent: What is released of those referred to.
        counts: Numbers of references with each bound.
        most: The bound.
        known: Weight of the estimate against ``targets``, from 0 to 1: less where noise hides how many count.
    """
    rows, parents = counts.rows, parent.profile.size
    counted = min(counts.counted(most), rows)
    if parents.units is not None or counted >= rows:
        return dict(targets)
    usual, result = parent.usual_shares(), dict(targets)
    for name, shares in targets.items():
        if name in usual:
            there = usual[name] * max(parents.rows, 1.0)
            rates = shares * counted / np.maximum(there, TINY)
            lost = (unbounded_means(rates, counts.in_rows(most)) - rates) * there
            if lost.sum() > 0:
                whole = (shares * counted + lost * ((rows - counted) / lost.sum())) / rows
                result[name] = (1 - known) * shares + known * whole
    return result


def _counted_best(session: PrivateSession, key: ForeignKey, size: RowCount, price: Price) -> RowCount:
    """The same size with the T that has the least expected error of a number of references, for ``price``.

    If one row may refer to each unit, T rows of a unit's own go with it, and one of another's; up to T of others take
    their place. What further private parents add is left out here, so that no view of rows is made for each T.
    """
    of_unit = session.view(ViewSpec(key.child, {}), "references").sigma([Marginal(())], price)

    def error(sized: RowCount) -> float:
        one = 1 / sized.rows_per_unit
        noise = ABSOLUTE * of_unit * math.hypot(1 + one, 1.0) * _rows_of_count(sized)
        lost = 1 - float(sized.counted(sized.rows_per_unit).sum()) / max(float(sized.rows_of.sum()), TINY)
        return TUNING.clear * lost + noise / max(size.rows / 2, 1.0)

    return min((replace(size, rows_per_unit=most) for most in size.classes), key=error)


def _in_rows(size: RowCount, bounds: Sequence[int], most: int) -> Array:
    """How many references to one unit count at most with each bound, as rows; no unit has more than ``most``."""
    return np.minimum(np.array(bounds) * (_rows_of_count(size) / size.rows_per_unit), most)


def _rows_of_count(size: RowCount) -> float:
    """How many rows a count of a view of references stands for: units beyond T are taken to refer as others do."""
    counted = float(size.counted(size.rows_per_unit).sum()) / max(float(size.rows_of.sum()), TINY)
    return size.rows_per_unit / max(counted, 1 / max(size.rows, 1.0))
