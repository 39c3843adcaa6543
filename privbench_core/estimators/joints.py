"""Estimate the joint of two or three columns from noisy counts of its cells, by denoising.

Several estimates are mixed, each good for another kind of table. If two columns almost determine each other, most cells
are empty, and the projection onto non-negative tables is good; where single codes do, all their rows are in one cell.
Otherwise the joint minus the product of its marginals is close to a matrix of low rank, while noise is spread over all
singular values; and if neighbouring codes are similar, smoothing over them helps. Joints of three columns are estimated
around what the joints of their pairs explain. The risk of each estimate, and the best mixture, are estimated from the
noisy counts themselves (Stein's unbiased risk estimate),
so all of this is post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.estimators.coarsening import merge_codes
from privbench_core.estimators.copula import nearest_copula
from privbench_core.estimators.denoising import Estimate, least_risk, onto_simplex
from privbench_core.estimators.fitting import fit_margins
from privbench_core.guards import SMOOTHING, TOLERANCE
from privbench_core.stored import Storable
from privbench_core.tuning import TUNING

Pair = tuple[str, str]
Triple = tuple[str, str, str]


@dataclass(frozen=True)
class NoisyTable(Storable):
    """Released counts of the cells of two columns.

    Attributes:
        counts: Shape (size of the first, size of the second), or of their numbers of groups.
        sigma: Standard deviation of the noise of a cell.
        groups: Group of each code of both columns, where groups were counted.
        ordered: How many leading codes of each column are intervals, in order; 0 for lists.
    """

    counts: Array
    sigma: float
    groups: tuple[NDArray[np.int64], ...] = ()
    ordered: tuple[int, int] = (0, 0)


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
            base = nearest_copula(table.counts, table.sigma, table.groups, (clean[a], clean[b]), table.ordered)
        joints[a, b] = _joint_of_codes(table, clean[a], clean[b], base)
    return joints


def _joint_of_codes(table: NoisyTable, first: Array, second: Array, base: Array | None) -> Array:
    """Return `estimated_joint` of the measured groups, distributed over their codes by ``base``, or by their counts."""
    if not table.groups:
        return estimated_joint(table, first, second, base)
    merged, shares = [], []
    for counts, groups in zip((first, second), table.groups, strict=True):
        held = merge_codes(counts, [groups])
        merged.append(held)
        inside = counts / np.maximum(held, SMOOTHING)[groups]
        shares.append(np.where(held[groups] > 0, inside, (1 / np.bincount(groups))[groups]))
    coarse = None if base is None else merge_codes(base, table.groups)
    joint = estimated_joint(table, merged[0], merged[1], coarse)[np.ix_(*table.groups)]
    product = np.outer(*shares)
    if base is None or coarse is None:
        return joint * product
    held = coarse[np.ix_(*table.groups)]
    joint = joint * np.divide(base, held, out=product, where=held > SMOOTHING)
    return fit_margins(joint, [((0,), first), ((1,), second)])


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
    off = table.counts - product
    off = off - off.mean(axis=1, keepdims=True)  # margins are known better from elsewhere
    found = product + (off - off.mean(axis=0))
    expected = product if base is None else base
    free = (found.shape[0] - 1) * (found.shape[1] - 1) / found.size  # share of the noise left after centring
    projected = onto_simplex(found, total)
    estimates = [Estimate(projected, free * float((projected > 0).sum())), Estimate(expected, 0.0)]
    if sigma > 0:
        turned = determined(found.T, projected.T, second, sigma, free)
        estimates += [determined(found, projected, first, sigma, free), Estimate(turned.values.T, turned.freedom)]
    for around in (product,) if base is None else (product, base):
        low = low_rank(found - around, sigma)
        estimates.append(Estimate(around + low.values, low.freedom))
    smooth = _smoother(first), _smoother(second)
    plain = np.eye(len(first)), np.eye(len(second))
    for across, along in ((smooth[0], plain[1]), (plain[0], smooth[1]), smooth):
        freedom = free * float(np.trace(across) * np.trace(along))
        estimates.append(Estimate(expected + across @ (found - expected) @ along.T, freedom))
    mixed = onto_simplex(least_risk(estimates, found, sigma), total)
    return fit_margins(np.maximum(mixed, TUNING.floor * np.minimum(product, sigma)), [((0,), first), ((1,), second)])


def determined(noisy: Array, projected: Array, held: Array, sigma: float, free: float = 1.0) -> Estimate:
    """Return each row of a table with its mass in one cell, as far as that has less risk than ``projected``.

    If a code of the first column determines that of the second, all its ``held`` rows are in one cell, and the odds
    that it is this one are e^(held · noisy / σ²), times its share of all rows. That is smooth in the noisy counts, so
    Stein's estimate of the risk holds, and says for each row how much of it is taken.

    Args:
        noisy: Shape (rows, columns).
        projected: Another estimate, whose freedom is its number of positive cells.
        held: Counts of the first column, shape (rows,).
        sigma: Standard deviation of a cell's noise, above 0.
        free: Share of the noise that is left in ``noisy``.

    >>> noisy = np.array([[9.0, 1.0], [0.0, 10.0]])
    >>> determined(noisy, noisy, np.full(2, 10.0), 2.0).values.round(3).tolist()
    [[10.0, 0.0], [0.0, 10.0]]
    """
    rows = held[:, None]
    logs = np.log(np.maximum(projected.sum(axis=0), SMOOTHING)) + rows * noisy / sigma**2
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    freedom = free * (rows**2 * chances * (1 - chances)).sum(axis=1) / sigma**2
    others = free * (projected > 0).sum(axis=1)
    apart = rows * chances - projected
    less = ((noisy - projected) * apart).sum(axis=1) - sigma**2 * (freedom - others)
    share = np.clip(less / np.maximum((apart**2).sum(axis=1), SMOOTHING), 0.0, 1.0)
    fitted = free * float(((share > 0) & (share < 1)).sum())  # a share follows the noise along ``apart``
    return Estimate(projected + share[:, None] * apart, float(others @ (1 - share) + freedom @ share) + fitted)


def _smoother(counts: Array) -> Array:
    """Return a matrix that smooths over neighbouring codes, relative to their counts (a Gaussian kernel).

    Distance is the share of rows between two codes, so frequent codes are smoothed little. Codes without order are
    smoothed too; the estimated risk then gives that estimate a low weight.
    """
    position = (np.cumsum(counts) - counts / 2) / max(float(counts.sum()), SMOOTHING)
    kernel = np.exp(-0.5 * ((position[:, None] - position) / TUNING.clear) ** 2)
    return np.asarray(counts[:, None] * kernel / np.maximum(kernel @ counts, SMOOTHING)[:, None])


def low_rank(noisy: Array, sigma: float) -> Estimate:
    """Shrink singular values y, in units of their noise, to √((y² - β - 1)² - 4β) / y; below 1 + √β they are noise.

    That is optimal for white noise and squared error, β being the shape. Sources: Gavish and Donoho 2017, section III;
    Candès, Sing-Long and Trzasko 2013 (the divergence).

    Args:
        noisy: A matrix with row and column sums of zero; so has its noise.
        sigma: Standard deviation of a cell's noise.
    """
    if noisy.shape[0] > noisy.shape[1]:
        transposed = low_rank(noisy.T, sigma)
        return Estimate(transposed.values.T, transposed.freedom)
    rank, width = max(noisy.shape[0] - 1, 1), max(noisy.shape[1] - 1, 1)
    if sigma <= 0:
        return Estimate(noisy, float(rank * width))
    left, values, right = np.linalg.svd(noisy, full_matrices=False)
    scale, shape, kept = np.sqrt(width) * sigma, rank / width, values[:rank]
    y = kept / scale
    above = y > 1 + np.sqrt(shape)
    root = np.sqrt(np.maximum((y**2 - shape - 1) ** 2 - 4 * shape, TOLERANCE))
    y = np.maximum(y, 1.0)
    small = np.where(above, root / y, 0.0) * scale
    slopes = np.where(above, 2 * (y**2 - shape - 1) / root - root / y**2, 0.0)
    gaps = kept[:, None] ** 2 - kept[None, :] ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = np.where(np.abs(gaps) > 0, (kept * small)[:, None] / gaps, 0.0)
    freedom = slopes.sum() + (width - rank) * (small / np.maximum(kept, SMOOTHING)).sum() + 2 * cross.sum()
    return Estimate((left[:, :rank] * small) @ right[:rank], float(freedom))


def explained(triple: Triple, joints: Mapping[Pair, Array], clean: Mapping[str, Array]) -> Array:
    """Return counts of three columns that are as even as the counts of their pairs allow.

    Args:
        triple: The columns.
        joints: Counts of pairs, in either order; those that are missing are of independent columns.
        clean: Clean counts of the columns, with one total.
    """
    total = max(float(clean[triple[0]].sum()), 1.0)
    product = np.einsum("i,j,k->ijk", *(clean[name] for name in triple)) / total**2
    return fit_margins(product, _pair_margins(triple, joints, clean))


def estimated_triples(
    tables: Mapping[Triple, NoisyTable], joints: Mapping[Pair, Array], clean: Mapping[str, Array]
) -> dict[Triple, Array]:
    """Return counts of the measured triples, with the margins of their pairs and positive where these are.

    ``joints`` and ``clean`` are as in `explained`.
    """
    found = {}
    for triple, table in tables.items():
        base = explained(triple, joints, clean)
        projected = onto_simplex(table.counts, float(base.sum()))
        estimates = [Estimate(base, 0.0), Estimate(projected, float((projected > 0).sum()))]
        mixed = np.maximum(least_risk(estimates, table.counts, table.sigma), TUNING.floor * base)
        found[triple] = fit_margins(mixed, _pair_margins(triple, joints, clean))
    return found


def _pair_margins(
    triple: Triple, joints: Mapping[Pair, Array], clean: Mapping[str, Array]
) -> list[tuple[tuple[int, ...], Array]]:
    margins: list[tuple[tuple[int, ...], Array]] = []
    for i, j in combinations(range(3), 2):
        a, b = triple[i], triple[j]
        joint = joints[b, a].T if (b, a) in joints else joints.get((a, b))
        if joint is None:
            joint = np.outer(clean[a], clean[b]) / max(float(clean[a].sum()), 1.0)
        margins.append(((i, j), joint))
    return margins
