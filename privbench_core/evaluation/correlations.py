"""Pearson correlations along a foreign key: parent with child, and among children of one parent (PrivPetal, section 6).

They are over values, not codes. One number says whether old parents still have old children, and whether the children
of one parent are still alike. Of columns without an order, how often two of them have the same code says that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.evaluation.encode import as_numbers
from privbench_core.evaluation.joins import LinkedTables
from privbench_core.schema.columns import Values
from privbench_core.schema.tables import Table
from privbench_core.validate.references import NO_PARENT

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Correlation:
    """One coefficient in both databases.

    Attributes:
        columns: The two columns; the same one twice within a group.
        source: In the source; None where undefined (a constant, or too few values).
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
class JoinValues:
    """The join along one foreign key in one database, as values.

    Attributes:
        parent: Ordered columns of the parent as numbers (NaN for NULL), each of shape (parents,).
        child: Likewise of the child.
        links: Row of the parent of each child, `NO_PARENT` where there is none.
    """

    parent: dict[str, Numbers]
    child: dict[str, Numbers]
    links: NDArray[np.int64]


def ordered_values(table: Table, rows: pa.Table) -> dict[str, Numbers]:
    """Return the ordered attributes of a table as numbers, NaN for NULL; lists of values are left out."""
    return {
        column.name: as_numbers(rows[column.name])
        for column in table.attributes
        if column.type.ordered and not isinstance(column.domain, Values)
    }


def inter_table(true: JoinValues, synthetic: JoinValues) -> tuple[Correlation, ...]:
    """Return the coefficients of each ordered column of the parent with each of the child, over the joined rows."""

    def coefficient(of: JoinValues, parent: str, child: str) -> float | None:
        linked = of.links != NO_PARENT
        return pearson(of.parent[parent][of.links[linked]], of.child[child][linked])

    return tuple(
        Correlation((p, c), coefficient(true, p, c), coefficient(synthetic, p, c))
        for p in true.parent
        for c in true.child
    )


def intra_group(true: JoinValues, synthetic: JoinValues) -> tuple[Correlation, ...]:
    """Return the coefficients of each ordered column of the child over all pairs of children of one parent."""
    return tuple(
        Correlation((c, c), *(sibling_pearson(of.links, of.child[c]) for of in (true, synthetic))) for c in true.child
    )


def sibling_pearson(links: NDArray[np.int64], values: Numbers) -> float | None:
    """Return the Pearson coefficient of a column with itself over all pairs (i, j), i ≠ j, of children of one parent.

    Sums per group give the moments without a self-join.
    """
    known = (links != NO_PARENT) & np.isfinite(values)
    of, x = links[known], values[known]
    if not x.size:
        return None
    x = x - x.mean()  # keeps sums of squares small
    parents = int(links.max()) + 1
    size = np.bincount(of, minlength=parents).astype(np.float64)
    total, squares = (np.bincount(of, weights=w, minlength=parents) for w in (x, x**2))
    pairs = float((size * (size - 1)).sum())
    if not pairs:
        return None
    mean = float(((size - 1) * total).sum()) / pairs
    variance = float(((size - 1) * squares).sum()) / pairs - mean**2
    covariance = float((total**2 - squares).sum()) / pairs - mean**2
    return _ratio(covariance, variance, float((x**2).mean()))


def pearson(x: Numbers, y: Numbers) -> float | None:
    """Return the Pearson coefficient over the rows where neither is NULL or infinite; None where undefined."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if not x.size:
        return None
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.sqrt((x**2).mean() * (y**2).mean()))
    return _ratio(float((x * y).mean()), spread, spread)


def _ratio(covariance: float, variance: float, scale: float) -> float | None:
    """Return the ratio; None where the variance is only a rounding error of float64."""
    if not np.isfinite(variance) or variance <= 1e-12 * scale or scale == 0:
        return None
    return float(np.clip(covariance / variance, -1.0, 1.0))


def sibling_agreements(source: LinkedTables, synthetic: LinkedTables) -> dict[int, tuple[float, float]]:
    """Return `sibling_agreement` in both databases, by position of the child's column.

    Left out where no child has siblings in the source; 0 where none has any in the synthetic database.
    """
    found = {}
    for place in range(len(source.child_sizes)):
        true, made = (sibling_agreement(linked.links, linked.child[:, place]) for linked in (source, synthetic))
        if true is not None:
            found[place] = true, made or 0.0
    return found


def sibling_agreement(links: NDArray[np.int64], codes: NDArray[np.integer[Any]]) -> float | None:
    """Return how likely a row with siblings has the code of another child of its parent; None where none has any.

    Args:
        links: Row of the parent of each child, `NO_PARENT` where there is none, shape (children,).
        codes: Of each child, from 0, shape (children,).

    >>> sibling_agreement(np.array([0, 0, 1, 1, NO_PARENT]), np.array([5, 5, 2, 3, 2]))
    0.5
    """
    linked = links != NO_PARENT
    groups, codes = links[linked].astype(np.int64), codes[linked].astype(np.int64)
    sizes = np.bincount(groups)
    with_siblings = int(sizes[sizes > 1].sum())
    if not with_siblings:
        return None
    cells, counts = np.unique(groups * (int(codes.max()) + 1) + codes, return_counts=True)
    others = sizes[cells // (int(codes.max()) + 1)] - 1
    return float((counts * (counts - 1) / np.maximum(others, 1)).sum() / with_siblings)
