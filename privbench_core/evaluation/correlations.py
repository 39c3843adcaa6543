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
from privbench_core.schema.columns import Values
from privbench_core.schema.tables import Table
from privbench_core.validate.references import NO_PARENT

Numbers = NDArray[np.float64]
_ROUNDING = 1e-12  # relative variances below this are rounding errors of float64


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
    return tuple(
        Correlation((p, c), *(_parent_child(values, p, c) for values in (true, synthetic)))
        for p in true.parent
        for c in true.child
    )


def intra_group(true: JoinValues, synthetic: JoinValues) -> tuple[Correlation, ...]:
    """Return the coefficients of each ordered column of the child over all pairs of children of one parent."""
    return tuple(
        Correlation((c, c), *(sibling_pearson(v.links, v.child[c], _parents(v)) for v in (true, synthetic)))
        for c in true.child
    )


def _parents(values: JoinValues) -> int:
    """Return the number of parents, without the last ones that have no children."""
    return int(values.links.max(initial=NO_PARENT)) + 1


def sibling_pearson(links: NDArray[np.int64], values: Numbers, parents: int) -> float | None:
    """Return the Pearson coefficient of a column with itself over all pairs (i, j), i ≠ j, of children of one parent.

    Sums per group give the moments without a self-join.
    """
    known = (links != NO_PARENT) & np.isfinite(values)
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


def _parent_child(values: JoinValues, parent: str, child: str) -> float | None:
    linked = values.links != NO_PARENT
    return pearson(values.parent[parent][values.links[linked]], values.child[child][linked])


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
    """Return the ratio; None where the variance is only rounding."""
    if not np.isfinite(variance) or variance <= _ROUNDING * scale or scale == 0:
        return None
    return float(np.clip(covariance / variance, -1.0, 1.0))
