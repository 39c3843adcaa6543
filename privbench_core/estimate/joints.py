"""The joint of two columns from noisy counts of its cells: the noise that no dependence looks like is taken out.

Several estimates compete, each right about another kind of table. Where two columns all but determine each other, most
cells are empty, and the nearest table without negative cells is a good one. Elsewhere what a joint has over the product
of its marginals is close to a matrix of low rank, while the noise is spread over all of its singular values; and where
neighbouring codes are alike, so are their rows. Two columns that were both measured with a third one have a joint by
way of that, with noise of its own. How near each estimate is to the truth, and which mixture is nearest, is estimated
from the noisy counts themselves (Stein's unbiased risk), so it is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from privbench_core.estimate.fitting import fit_margins
from privbench_core.estimate.implied_pairs import Pair, Ways
from privbench_core.estimate.merge import merge_codes
from privbench_core.estimate.simplex import onto_simplex

Array = NDArray[np.float64]
_FLOOR = 0.02  # of the product of the marginals: no cell is ruled out
_POSSIBLE = 0.1  # standard deviations of the noise, and no cell is given more than that without evidence
_ROUNDS = 20
_KERNEL = 0.05  # of all rows: how far apart neighbours may be that lend to each other
_NOTHING = 1e-12
_LARGE = 100.0  # against all risks


@dataclass(frozen=True)
class NoisyTable:
    """Released counts of the cells of two columns.

    Attributes:
        counts: Shape (size of the first, size of the second), or of their numbers of groups.
        sigma: Standard deviation of the noise of a cell.
        groups: Group of each code of both columns, where groups were counted.
    """

    counts: Array
    sigma: float
    groups: tuple[NDArray[np.int64], ...] = ()


def estimated_joints(tables: Mapping[Pair, NoisyTable], clean: Mapping[str, Array]) -> dict[Pair, Array]:
    """Counts of all pairs with the given marginals, positive where these are.

    Each pair is estimated for itself first, and once more with what these estimates say of it by way of third columns:
    they are made of other measurements, so that their noise has nothing to do with that of the pair.

    Args:
        tables: Measured with independent noise.
        clean: Clean counts of all columns, with one total.
    """
    alone = {(a, b): _of_codes(table, clean[a], clean[b], []) for (a, b), table in tables.items()}
    ways = Ways(alone, clean)
    joints = {}
    for (a, b), table in tables.items():
        others = [ways.by_way_of(third, a, b) for third in ways.thirds(a, b)]
        joints[a, b] = _of_codes(table, clean[a], clean[b], others) if others else alone[a, b]
    return joints


def _of_codes(table: NoisyTable, first: Array, second: Array, others: Sequence[Array]) -> Array:
    """`estimated_joint` of the groups that were counted, spread over their codes by the counts of these."""
    if not table.groups:
        return estimated_joint(table, first, second, others)
    merged = [merge_codes(counts, [groups]) for counts, groups in zip((first, second), table.groups, strict=True)]
    joint = estimated_joint(table, merged[0], merged[1], [merge_codes(other, table.groups) for other in others])
    within = [_within(counts, groups) for counts, groups in zip((first, second), table.groups, strict=True)]
    return np.asarray(joint[np.ix_(*table.groups)] * np.outer(*within))


def _within(counts: Array, groups: NDArray[np.int64]) -> Array:
    """Share of each code in its group."""
    held = np.bincount(groups, counts)
    alike = 1 / np.bincount(groups)  # of a group without rows
    return np.where(held[groups] > 0, counts / np.maximum(held, _NOTHING)[groups], alike[groups])


def estimated_joint(table: NoisyTable, first: Array, second: Array, others: Sequence[Array] = ()) -> Array:
    """Counts of two columns with the given marginals, shape of the table; positive where both marginals are.

    Args:
        table: Released.
        first: Clean counts of the first column.
        second: Clean counts of the second column, with the same total.
        others: Estimates of the joint with these marginals, from other measurements; the nearest one is used.
    """
    sigma = table.sigma
    total = max(float(first.sum()), 1.0)
    product = np.outer(first, second) / total
    found = product + _centred(table.counts - product)
    base = min(others, key=lambda other: float(((other - found) ** 2).sum())) if others else product
    free = (found.shape[0] - 1) * (found.shape[1] - 1) / found.size  # of the noise, once it has no margins
    cut = onto_simplex(found, total)
    estimates = [
        _Estimate(cut, free * float((cut > 0).sum())),
        _Estimate(base, 0.0),
        _low_rank_beside(product, found, sigma),
    ]
    if others:
        estimates.append(_low_rank_beside(base, found, sigma))
    smooth = _smoother(first), _smoother(second)
    plain = np.eye(len(first)), np.eye(len(second))
    for across, along in ((smooth[0], plain[1]), (plain[0], smooth[1]), smooth):
        freedom = free * float(np.trace(across) * np.trace(along))
        estimates.append(_Estimate(base + across @ (found - base) @ along.T, freedom))
    mixed = onto_simplex(_mixed(estimates, found, sigma), total)
    return fit_margins(
        np.maximum(mixed, np.minimum(_FLOOR * product, _POSSIBLE * sigma)), [((0,), first), ((1,), second)], _ROUNDS
    )


@dataclass(frozen=True)
class _Estimate:
    """Of a joint.

    Attributes:
        counts: Same shape as the noisy ones.
        freedom: How much of the cells' noise it follows: its divergence, the sum over all cells of the derivative of
            the estimate by the noisy count.
    """

    counts: Array
    freedom: float


def _mixed(estimates: Sequence[_Estimate], found: Array, sigma: float) -> Array:
    """The convex mixture with the least estimated risk.

    The risk of Σ wᵢ xᵢ is |Σ wᵢ xᵢ - y|² + 2σ² Σ wᵢ · freedomᵢ, up to a constant (Stein 1981). As weights add up to 1,
    that is a quadratic form in them; a large constant makes it positive, so that it is a sum of squares. Least squares
    that ask for a sum of 1 beside it find its best direction, whatever sum they settle for.
    """
    off = np.stack([(estimate.counts - found).ravel() for estimate in estimates])
    price = sigma**2 * np.array([estimate.freedom for estimate in estimates])
    risks = off @ off.T + price[:, None] + price
    values, vectors = np.linalg.eigh(risks / max(float(np.trace(risks)), _NOTHING) + _LARGE)
    squares = np.vstack([np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, np.ones(len(estimates))])
    weights, _ = nnls(squares, np.append(np.zeros(len(estimates)), 1.0))
    weights /= weights.sum()
    return np.asarray(sum(weight * estimate.counts for weight, estimate in zip(weights, estimates, strict=True)))


def _low_rank_beside(base: Array, found: Array, sigma: float) -> _Estimate:
    low = low_rank(found - base, sigma)
    return _Estimate(base + low.matrix, low.freedom)


def _smoother(counts: Array) -> Array:
    """A matrix that averages over neighbouring codes what each of them has in proportion to its count.

    Neighbours are near if few rows lie between them, so that frequent codes keep to themselves. Codes without order
    are smoothed like all others: the risk says that they should not be.
    """
    total = max(float(counts.sum()), _NOTHING)
    place = (np.cumsum(counts) - counts / 2) / total
    kernel = np.exp(-0.5 * ((place[:, None] - place) / _KERNEL) ** 2)
    return np.asarray(counts[:, None] * kernel / np.maximum(kernel @ counts, _NOTHING)[:, None])


@dataclass(frozen=True)
class LowRank:
    """A matrix without those singular values that noise explains.

    Attributes:
        matrix: Same shape as the noisy one.
        freedom: Its divergence; see `_Estimate`.
    """

    matrix: Array
    freedom: float


def low_rank(noisy: Array, sigma: float) -> LowRank:
    """Optimal shrinkage of singular values for white noise and squared error.

    Sources: Gavish and Donoho 2017, section III (the shrinker); Candès, Sing-Long and Trzasko 2013 (its divergence).

    Args:
        noisy: A matrix with row and column sums of zero; so has its noise.
        sigma: Standard deviation of a cell's noise.
    """
    if noisy.shape[0] > noisy.shape[1]:
        turned = low_rank(noisy.T, sigma)
        return LowRank(turned.matrix.T, turned.freedom)
    rank, width = max(noisy.shape[0] - 1, 1), max(noisy.shape[1] - 1, 1)
    if sigma <= 0:
        return LowRank(noisy, float(rank * width))
    left, values, right = np.linalg.svd(noisy, full_matrices=False)
    unit = np.sqrt(width) * sigma
    shrunk = _shrunk(values / unit, rank / width) * unit
    step = 1e-4 * unit
    slopes = (_shrunk((values + step) / unit, rank / width) - _shrunk((values - step) / unit, rank / width)) / 2e-4
    kept, small, slope = values[:rank], shrunk[:rank], slopes[:rank]
    gaps = kept[:, None] ** 2 - kept[None, :] ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = np.where(np.abs(gaps) > 0, (kept * small)[:, None] / gaps, 0.0)
    freedom = slope.sum() + (width - rank) * (small / np.maximum(kept, 1e-12)).sum() + 2 * cross.sum()
    return LowRank((left * shrunk) @ right, float(freedom))


def _shrunk(values: Array, shape: float) -> Array:
    """Singular values in units of the noise, shrunk; those below 1 + √shape are noise."""
    inside = np.maximum((values**2 - shape - 1) ** 2 - 4 * shape, 0.0)
    return np.where(values > 1 + np.sqrt(shape), np.sqrt(inside) / np.maximum(values, 1.0), 0.0)


def _centred(table: Array) -> Array:
    """Without row and column means: the margins are known better than from the cells."""
    rows, columns = table.mean(axis=1, keepdims=True), table.mean(axis=0, keepdims=True)
    return np.asarray(table - rows - columns + table.mean())
