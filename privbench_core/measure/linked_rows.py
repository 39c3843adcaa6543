"""Which rows count where links do: up to so many of a unit, or of those that refer to one unit where a key lets go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.guards import NEGLIGIBLE, TINY, WEIGHTS
from privbench_core.measure.bounded import BoundedCounts
from privbench_core.models.linking import CrossMarginal
from privbench_core.models.row_count import RowCount
from privbench_core.models.rows import Rows
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.schema.constraints import ForeignKey

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Reference:
    """Synthetic rows of both sides, in a sample that no run's seed decides, to compare the source with.

    Attributes:
        rows: With the codes and sizes of all columns on the left.
        others: Codes of the columns on the right, each of shape (rows.n,).
        of_unit: Number of rows of the unit of each, shape (rows.n,); None where that is not known.
        total: Released number of rows, counted with ``size.rows_per_unit``.
        size: Released size of the table.
    """

    rows: Rows
    others: Mapping[str, Codes]
    of_unit: Numbers | None
    total: float
    size: RowCount

    def counted(self, most: int) -> float:
        """Return the number of rows of the source where units with more than ``most`` count as so many."""
        now = float(self.size.counted(self.size.rows_per_unit).sum())
        return self.total * float(self.size.counted(most).sum()) / max(now, NEGLIGIBLE)

    def weights(self, most: int) -> Numbers | None:
        """Return integers that stand for the weight of each row if so many of a unit count in full; None for 1 each."""
        if self.of_unit is None or self.of_unit.max(initial=1) <= most:
            return None
        weights: Numbers = np.rint(WEIGHTS * np.minimum(1.0, most / self.of_unit)).astype(np.int64)
        return weights


@dataclass(frozen=True)
class LettingGo:
    """A key that lets go, along which rows count that refer to others, and few of those that refer to one unit.

    Attributes:
        key: The key.
        counts: How many rows that are.
        linked: Whether each row of the reference refers to another, shape (rows,).
    """

    key: ForeignKey
    counts: BoundedCounts
    linked: NDArray[np.bool_]


@dataclass(frozen=True)
class Counting:
    """A way to count rows.

    Attributes:
        rows_per_unit: T of the view.
        counted: About how many rows count.
        lost: Share of the rows that do not.
        alone: A view with a T-th of its noise.
        bounded: Which rows count, where not all do.
    """

    rows_per_unit: int
    counted: float
    lost: float
    alone: Curator
    bounded: BoundedReferences | None = None

    def noise(self, price: Price) -> float:
        """Return the expected error of a count by noise, as a share of the rows that count."""
        return ABSOLUTE * self.rows_per_unit * self.alone.sigma([Marginal(())], price) / self.counted


def countings(session: PrivateSession, table: str, reference: Reference, along: LettingGo | None) -> list[Counting]:
    """Return the ways to count rows."""
    size = reference.size
    if along is None:
        alone, rows = session.view(ViewSpec(table, {}), "links"), reference.counted(size.classes[-1])
        totals = {most: reference.counted(most) for most in size.classes}
        return [Counting(most, total, 1 - total / rows, alone) for most, total in totals.items()]
    counts = along.counts
    return [
        Counting(
            counts.size.rows_per_unit,
            counts.in_view(most),
            counts.lost(most),
            counts.views[most],
            BoundedReferences(along.key, most),
        )
        for most in counts.bounds
    ]


def with_none(cross: CrossMarginal, reference: Reference, linked: float) -> CrossMarginal:
    """Return a marginal over all rows: of each cell on the left, those that refer to none are what the others leave.

    Args:
        cross: Over the rows that refer to others.
        reference: All rows.
        linked: Share of them that refer to others.
    """
    last = int(cross.groups[1][-1])
    counts = cross.counts.copy()
    counts[:, last] = 0.0
    counts *= linked / max(float(counts.sum()), TINY)
    of_left, _ = cross.cells(reference.rows.codes, reference.others)
    left = np.bincount(of_left, minlength=len(counts)) / reference.rows.n
    rest = np.maximum(left - counts.sum(axis=1), 0.0)
    counts[:, last] = rest * ((1 - linked) / max(float(rest.sum()), TINY))
    return replace(cross, counts=counts)
