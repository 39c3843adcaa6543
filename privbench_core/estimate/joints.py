"""Estimate the joint of two columns from noisy counts of its cells, by denoising.

Several estimates are mixed, each good for another kind of table. If two columns almost determine each other, most cells
are empty, and the projection onto non-negative tables is good. Otherwise the joint minus the product of its marginals
is close to a matrix of low rank, while noise is spread over all singular values; and if neighbouring codes are similar,
smoothing over them helps. The risk of each estimate, and the best mixture, are estimated from the noisy counts
themselves (Stein's unbiased risk estimate), so all of this is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.fitting import fit_margins
from privbench_core.estimate.merge import merge_codes
from privbench_core.estimate.mixture import Estimate, least_risk
from privbench_core.estimate.nearest_copula import nearest_copula
from privbench_core.estimate.segmentation import SIGNIFICANT
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.guards import MAX_FACTOR, SETTLING_ROUNDS, SMOOTHING, TOLERANCE
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
Pair = tuple[str, str]


@dataclass(frozen=True)
class NoisyTable:
    """Released counts of the cells of two columns.

    Attributes:
        counts: Shape (size of the first, size of the second), or of their numbers of groups.
        sigma: Standard deviation of the noise of a cell, times its length.
        groups: Group of each code of both columns, where groups were counted.
        ordered: How many leading codes of each column are intervals, in order; 0 for lists.
        lengths: By what the noise of each cell is smaller, products of numbers of both codes; broadcast to ``counts``.
    """

    counts: Array
    sigma: float
    groups: tuple[NDArray[np.int64], ...] = ()
    ordered: tuple[int, int] = (0, 0)
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.ones(1, dtype=np.int64))

    @property
    def sigmas(self) -> Array:
        """Standard deviation of the noise of each cell, broadcast to ``counts``."""
        return np.asarray(self.sigma / self.lengths)


def estimated_joints(
    tables: Mapping[Pair, NoisyTable], clean: Mapping[str, Array], known: Mapping[Pair, Array] | None = None
) -> dict[Pair, Array]:
    """Return counts of all measured or known pairs with the given marginals, positive where these are.

    Args:
        tables: Measured with independent noise.
        clean: Clean counts of all columns, with one total.
        known: Joints of pairs from something else, which hold where a pair was not measured.
    """
    joints = dict(known or {})
    for (a, b), table in tables.items():
        base = joints.get((a, b))
        if base is None:
            base = nearest_copula(table.counts, table.sigmas, table.groups, (clean[a], clean[b]), table.ordered)
        joints[a, b] = _joint_of_codes(table, clean[a], clean[b], base)
    return joints


def _joint_of_codes(table: NoisyTable, first: Array, second: Array, base: Array | None) -> Array:
    """Return `estimated_joint` of the measured groups, distributed over their codes by ``base``, or by their counts."""
    if not table.groups:
        return estimated_joint(table, first, second, base)
    merged = [merge_codes(counts, [groups]) for counts, groups in zip((first, second), table.groups, strict=True)]
    coarse = None if base is None else merge_codes(base, table.groups)
    joint = estimated_joint(table, merged[0], merged[1], coarse)
    shares = [_shares_in_groups(counts, groups) for counts, groups in zip((first, second), table.groups, strict=True)]
    inside = np.outer(*shares)
    if base is None or coarse is None:
        return joint[np.ix_(*table.groups)] * inside
    held = coarse[np.ix_(*table.groups)]
    inside = np.divide(base, held, out=inside, where=held > SMOOTHING)
    return fit_margins(joint[np.ix_(*table.groups)] * inside, [((0,), first), ((1,), second)])


def _shares_in_groups(counts: Array, groups: NDArray[np.int64]) -> Array:
    """Return the share of each code in its group; equal shares in a group without rows."""
    held = np.bincount(groups, counts)
    equal = 1 / np.bincount(groups)
    return np.where(held[groups] > 0, counts / np.maximum(held, SMOOTHING)[groups], equal[groups])


def estimated_joint(table: NoisyTable, first: Array, second: Array, base: Array | None = None) -> Array:
    """Return counts of two columns with the given marginals, shape of the table; positive where both marginals are.

    Args:
        table: Released.
        first: Clean counts of the first column.
        second: Clean counts of the second column, with the same total.
        base: What the joint is expected to be, with these marginals; None for independent columns.
    """
    sigma, total = table.sigma, max(float(first.sum()), 1.0)
    product = np.outer(first, second) / total
    counts, lengths = _raked(table, first, second)
    # Times the lengths of their cells: of the same noise, and of the same rank.
    found = product * lengths + _centred((counts - product) * lengths, lengths)
    expected = product if base is None else base
    free = (found.shape[0] - 1) * (found.shape[1] - 1) / found.size  # share of the noise left after centring
    variances = 1.0 / lengths**2
    projected = onto_simplex(found / lengths, total, variances)
    estimates = [
        Estimate(projected * lengths, free * float((projected > 0).sum())),
        Estimate(expected * lengths, 0.0),
        _low_rank_around(product * lengths, found, sigma),
    ]
    if base is not None:
        estimates.append(_low_rank_around(base * lengths, found, sigma))
    smooth = _smoother(first), _smoother(second)
    plain = np.eye(len(first)), np.eye(len(second))
    for across, along in ((smooth[0], plain[1]), (plain[0], smooth[1]), smooth):
        freedom = free * float(np.trace(across) * np.trace(along))
        smoothed = expected + across @ (found / lengths - expected) @ along.T
        estimates.append(Estimate(smoothed * lengths, freedom))
    mixed = onto_simplex(least_risk(estimates, found, sigma) / lengths, total, variances)
    floor = TUNING.floor * np.minimum(product, sigma / lengths)
    return fit_margins(np.maximum(mixed, floor), [((0,), first), ((1,), second)])


def _raked(table: NoisyTable, first: Array, second: Array) -> tuple[Array, Array]:
    """Return counts with margins near the given ones, as far as noise does not explain the distance, and their lengths.

    Where units are clipped, all rows of some count less than those of others: it is a factor of their codes. What is
    added to make up for it would be in the noisiest cells, whichever these are.

    Returns:
        The counts, and by what the noise of each is smaller; both of the table's shape.
    """
    counts, sigmas = table.counts.astype(float), np.broadcast_to(table.sigmas, table.counts.shape).astype(float)
    for _ in range(SETTLING_ROUNDS if table.lengths.size > 1 else 0):
        for axis, wanted in ((1, first), (0, second)):
            found, noise = counts.sum(axis=axis), np.sqrt((sigmas**2).sum(axis=axis))
            off = wanted - found
            sure = 1 - np.minimum(noise**2 / np.maximum(off**2, SMOOTHING), 1.0)
            factors = np.where(found > SIGNIFICANT * noise, 1 + sure * off / np.maximum(found, SMOOTHING), 1.0)
            factors = np.expand_dims(np.clip(factors, 1 / MAX_FACTOR, MAX_FACTOR), axis)
            counts, sigmas = counts * factors, sigmas * factors
    return counts, table.sigma / np.maximum(sigmas, SMOOTHING)


def _low_rank_around(base: Array, found: Array, sigma: float) -> Estimate:
    low = low_rank(found - base, sigma)
    return Estimate(base + low.matrix, low.freedom)


def _smoother(counts: Array) -> Array:
    """Return a matrix that smooths over neighbouring codes, relative to their counts (a Gaussian kernel).

    Distance is the share of rows between two codes, so frequent codes are smoothed little. Codes without order are
    smoothed too; the estimated risk then gives that estimate a low weight.
    """
    total = max(float(counts.sum()), SMOOTHING)
    position = (np.cumsum(counts) - counts / 2) / total
    kernel = np.exp(-0.5 * ((position[:, None] - position) / TUNING.clear) ** 2)
    return np.asarray(counts[:, None] * kernel / np.maximum(kernel @ counts, SMOOTHING)[:, None])


@dataclass(frozen=True)
class LowRank:
    """A matrix without the singular values that noise explains.

    Attributes:
        matrix: Same shape as the noisy one.
        freedom: Its divergence; see `Estimate`.
    """

    matrix: Array
    freedom: float


def low_rank(noisy: Array, sigma: float) -> LowRank:
    """Shrink singular values optimally for white noise and squared error.

    Sources: Gavish and Donoho 2017, section III (the shrinker); Candès, Sing-Long and Trzasko 2013 (its divergence).

    Args:
        noisy: A matrix with row and column sums of zero; so has its noise.
        sigma: Standard deviation of a cell's noise.
    """
    if noisy.shape[0] > noisy.shape[1]:
        transposed = low_rank(noisy.T, sigma)
        return LowRank(transposed.matrix.T, transposed.freedom)
    rank, width = max(noisy.shape[0] - 1, 1), max(noisy.shape[1] - 1, 1)
    if sigma <= 0:
        return LowRank(noisy, float(rank * width))
    left, values, right = np.linalg.svd(noisy, full_matrices=False)
    scale = np.sqrt(width) * sigma
    shrunk, slopes = (found[:rank] for found in _shrunk(values / scale, rank / width))
    small, kept = shrunk * scale, values[:rank]
    gaps = kept[:, None] ** 2 - kept[None, :] ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = np.where(np.abs(gaps) > 0, (kept * small)[:, None] / gaps, 0.0)
    freedom = slopes.sum() + (width - rank) * (small / np.maximum(kept, SMOOTHING)).sum() + 2 * cross.sum()
    return LowRank((left[:, :rank] * small) @ right[:rank], float(freedom))


def _shrunk(values: Array, shape: float) -> tuple[Array, Array]:
    """Return singular values y (divided by the noise scale) after shrinkage, and the derivative of that.

    √((y² - β - 1)² - 4β) / y above the edge 1 + √β, β being the shape; those below it are noise.
    """
    above = values > 1 + np.sqrt(shape)
    root = np.sqrt(np.maximum((values**2 - shape - 1) ** 2 - 4 * shape, TOLERANCE))
    values = np.maximum(values, 1.0)
    slopes = 2 * (values**2 - shape - 1) / root - root / values**2
    return np.where(above, root / values, 0.0), np.where(above, slopes, 0.0)


def _centred(table: Array, lengths: Array) -> Array:
    """Return the nearest table whose counts, once divided by the lengths of their cells, add up to 0 along both axes.

    Margins are known better from elsewhere.
    """
    rows, columns = (1.0 / lengths.max(axis=axis) for axis in (1, 0))
    across, along = rows / np.sqrt((rows**2).sum()), columns / np.sqrt((columns**2).sum())
    left = table - np.outer(across, across @ table)
    return np.asarray(left - np.outer(left @ along, along))
