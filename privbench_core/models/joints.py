"""The joint of two columns from noisy counts of its cells: the noise that no dependence looks like is taken out.

Two estimates compete. Where two columns all but determine each other, most cells are empty, and the nearest table
without negative cells is a good one. Elsewhere a dependence is smooth: what a joint has over the product of its
marginals is close to a matrix of low rank, while the noise is spread over all of its singular values. Which of the two
is nearer to the truth is estimated from the noisy counts themselves (Stein's unbiased risk), so it is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.simplex import onto_simplex
from privbench_core.models.estimate import fit_margins

Array = NDArray[np.float64]
_FLOOR = 0.02  # of the product of the marginals: no cell is ruled out
_POSSIBLE = 0.1  # standard deviations of the noise, and no cell is given more than that without evidence
_ROUNDS = 20


def estimated_joint(noisy: Array, first: Array, second: Array, sigma: float) -> Array:
    """Counts of two columns with the given marginals, shape of ``noisy``; positive where both marginals are.

    Args:
        noisy: Released counts, shape (len(first), len(second)).
        first: Clean counts of the first column.
        second: Clean counts of the second column, with the same total.
        sigma: Standard deviation of the noise of a cell.
    """
    total = max(float(first.sum()), 1.0)
    product = np.outer(first, second) / total
    excess = _centred(noisy - product)
    found = product + excess
    free = (noisy.shape[0] - 1) * (noisy.shape[1] - 1) / noisy.size  # of the noise, once it has no margins
    cut = onto_simplex(found, total)
    cut_risk = float(((cut - found) ** 2).sum()) + 2 * sigma**2 * free * float((cut > 0).sum())
    low = low_rank(excess, sigma)
    if low.risk < cut_risk:
        cut = onto_simplex(product + low.matrix, total)
    cut = np.maximum(cut, np.minimum(_FLOOR * product, _POSSIBLE * sigma))
    return fit_margins(cut, [((0,), first), ((1,), second)], _ROUNDS)


@dataclass(frozen=True)
class LowRank:
    """A matrix without those singular values that noise explains.

    Attributes:
        matrix: Same shape as the noisy one.
        risk: Unbiased estimate of its squared distance to the truth, up to a constant that all estimates share.
    """

    matrix: Array
    risk: float


def low_rank(noisy: Array, sigma: float) -> LowRank:
    """Optimal shrinkage of singular values for white noise and squared error.

    Sources: Gavish and Donoho 2017, section III (the shrinker); Candès, Sing-Long and Trzasko 2013 (its divergence).

    Args:
        noisy: A matrix with row and column sums of zero; so has its noise.
        sigma: Standard deviation of a cell's noise.
    """
    if noisy.shape[0] > noisy.shape[1]:
        turned = low_rank(noisy.T, sigma)
        return LowRank(turned.matrix.T, turned.risk)
    rank, width = max(noisy.shape[0] - 1, 1), max(noisy.shape[1] - 1, 1)
    left, values, right = np.linalg.svd(noisy, full_matrices=False)
    if sigma <= 0:
        return LowRank(noisy, 0.0)
    unit = np.sqrt(width) * sigma
    shrunk = _shrunk(values / unit, rank / width) * unit
    step = 1e-4 * unit
    slopes = (_shrunk((values + step) / unit, rank / width) - _shrunk((values - step) / unit, rank / width)) / 2e-4
    kept, small, slope = values[:rank], shrunk[:rank], slopes[:rank]
    gaps = kept[:, None] ** 2 - kept[None, :] ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = np.where(np.abs(gaps) > 0, (kept * small)[:, None] / gaps, 0.0)
    divergence = slope.sum() + (width - rank) * (small / np.maximum(kept, 1e-12)).sum() + 2 * cross.sum()
    matrix = (left * shrunk) @ right
    return LowRank(matrix, float(((matrix - noisy) ** 2).sum() + 2 * sigma**2 * divergence))


def _shrunk(values: Array, shape: float) -> Array:
    """Singular values in units of the noise, shrunk; those below 1 + √shape are noise."""
    inside = np.maximum((values**2 - shape - 1) ** 2 - 4 * shape, 0.0)
    return np.where(values > 1 + np.sqrt(shape), np.sqrt(inside) / np.maximum(values, 1.0), 0.0)


def _centred(table: Array) -> Array:
    """Without row and column means: the margins are known better than from the cells."""
    rows, columns = table.mean(axis=1, keepdims=True), table.mean(axis=0, keepdims=True)
    return np.asarray(table - rows - columns + table.mean())
