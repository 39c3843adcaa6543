"""Pearson correlations across a foreign key: between parents and children, and among siblings (PrivPetal, section 6).

On values, not on codes. Marginals say that cells agree; a correlation says in one number whether old parents still have
old children, and whether siblings are still alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.evaluate.encode import on_axis
from privbench_core.schema.columns import Values
from privbench_core.schema.tables import Table
from privbench_core.validate.references import NO_PARENT

Numbers = NDArray[np.float64]
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Correlation:
    """One coefficient in both databases.

    Attributes:
        columns: The two columns; the same one twice for siblings.
        source: In the source; None where it is not defined (a constant, or too few values).
        synthetic: In the synthetic database.
    """

    columns: tuple[str, str]
    source: float | None
    synthetic: float | None

    @property
    def difference(self) -> float | None:
        """Absolute difference, None unless both are defined."""
        if self.source is None or self.synthetic is None:
            return None
        return abs(self.source - self.synthetic)


@dataclass(frozen=True)
class Side:
    """One database's join, as values.

    Attributes:
        parent: Ordered columns of the parent as numbers (NaN for NULL), each of shape (parents,).
        child: Likewise of the child.
        links: Row of the parent for each child, `NO_PARENT` where there is none.
    """

    parent: dict[str, Numbers]
    child: dict[str, Numbers]
    links: NDArray[np.int64]


def numbers_of(table: Table, rows: pa.Table) -> dict[str, Numbers]:
    """The ordered attributes of a table as numbers, NaN for NULL; a list of values has no distances and is left out."""
    return {
        column.name: on_axis(rows[column.name])
        for column in table.attributes
        if column.type.ordered and not isinstance(column.domain, Values)
    }


def between(true: Side, synthetic: Side) -> tuple[Correlation, ...]:
    """Inter-table coefficients: each ordered column of the parent with each of the child, over the joined rows."""
    return tuple(
        Correlation((p, c), *(_inter(side, p, c) for side in (true, synthetic)))
        for p in true.parent
        for c in true.child
    )


def among(true: Side, synthetic: Side) -> tuple[Correlation, ...]:
    """Intra-group coefficients: each ordered column of the child over all ordered pairs of distinct siblings."""
    return tuple(
        Correlation((c, c), *(siblings(side.links, side.child[c], len_parents(side)) for side in (true, synthetic)))
        for c in true.child
    )


def len_parents(side: Side) -> int:
    """An upper bound on the rows of parents that are referred to."""
    return int(side.links.max(initial=NO_PARENT)) + 1


def siblings(links: NDArray[np.int64], values: Numbers, parents: int) -> float | None:
    """Pearson coefficient of a column with itself over all ordered pairs (i, j), i ≠ j, of children of one parent.

    The self-join is never made: sums per group give the same moments.
    """
    known = (links != NO_PARENT) & ~np.isnan(values)
    of, x = links[known], values[known]
    if not x.size:
        return None
    x = x - x.mean()  # keeps sums of squares small
    size = np.bincount(of, minlength=parents).astype(np.float64)
    total, squares = (np.bincount(of, weights=w, minlength=parents) for w in (x, x**2))
    pairs = float((size * (size - 1)).sum())
    if not pairs:
        return None
    mean = float(((size - 1) * total).sum()) / pairs
    variance = float(((size - 1) * squares).sum()) / pairs - mean**2
    covariance = float((total**2 - squares).sum()) / pairs - mean**2
    return _ratio(covariance, variance, float((x**2).mean()))


def _inter(side: Side, parent: str, child: str) -> float | None:
    linked = side.links != NO_PARENT
    return pearson(side.parent[parent][side.links[linked]], side.child[child][linked])


def pearson(x: Numbers, y: Numbers) -> float | None:
    """Pearson coefficient of the rows where neither is NULL; None where it is not defined."""
    known = ~(np.isnan(x) | np.isnan(y))
    x, y = x[known], y[known]
    if not x.size:
        return None
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.sqrt((x**2).mean() * (y**2).mean()))
    return _ratio(float((x * y).mean()), spread, spread)


def _ratio(covariance: float, variance: float, scale: float) -> float | None:
    """Their ratio, None where the variance is nothing but rounding."""
    if not np.isfinite(variance) or variance <= _ROUNDING * scale or scale == 0:
        return None
    return float(np.clip(covariance / variance, -1.0, 1.0))
