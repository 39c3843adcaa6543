"""Segmentation of noisy counts: segments of equal density, smoothing within them, greedy merging. Post-processing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimators.denoising import onto_simplex
from privbench_core.guards import NORMAL_REACH
from privbench_core.tuning import TUNING

Floats = NDArray[np.float64]
Starts = NDArray[np.int64]
SIGNIFICANT = TUNING.significant
"""A cell is significant if its noisy count exceeds this many standard deviations."""

ABSOLUTE = 1 / math.sqrt(2 * math.pi)
"""Half of the expected absolute value of noise, in standard deviations."""

PENALTY = TUNING.cut_penalty
"""Noise variances that a cut must save."""


def segments(counts: Floats, sigma: float, widths: Floats | None = None, penalty: float = PENALTY) -> Starts:
    """Cut the cells into segments of constant density, up to noise.

    Minimizes the sum of squared distances to the segments' means plus ``penalty`` * sigma² per segment, by dynamic
    programming: a significant cell becomes a segment of its own, a smooth run as few segments as noise allows to tell
    apart.

    Args:
        counts: Noisy counts in order, shape (n,), n > 0.
        sigma: Standard deviation of their noise; 0 makes every cell a segment.
        widths: What counts of a segment are proportional to, shape (n,); None for equal cells.
        penalty: Noise variances that a cut must save.

    Returns:
        First cell of each segment, ascending.

    >>> segments(np.array([9.0, 11.0, 10.0, 90.0, 10.0, 9.0]), 1.0).tolist()
    [0, 3, 4]
    >>> segments(np.array([9.0, 11.0, 5.0, 6.0, 9.0]), 1.0, np.array([1.0, 1.0, 0.5, 0.5, 1.0])).tolist()
    [0]
    """
    n = len(counts)
    if sigma <= 0:
        return np.arange(n)
    width = np.ones(n) if widths is None else widths
    parts = (counts * width, counts**2, width**2)
    sums, squares, scales = (np.concatenate([[0.0], np.cumsum(values)]) for values in parts)
    cost, start = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    for end in range(1, n + 1):
        within = squares[end] - squares[:end] - (sums[end] - sums[:end]) ** 2 / (scales[end] - scales[:end])
        total = cost[:end] + within + penalty * sigma**2
        start[end] = total.argmin()
        cost[end] = total[start[end]]
    cuts, end = [], n
    while end > 0:
        end = int(start[end])
        cuts.append(end)
    return np.array(cuts[::-1], np.int64)


def segment_and_smooth(counts: Floats, sigma: float, widths: Floats, *, laplace: bool = False) -> tuple[Starts, Floats]:
    """Return groups of cells (the first cell of each, ascending), and estimated counts of all cells, none below zero.

    Of two estimates, the one with the smaller estimated risk is used (Stein's unbiased risk estimate, with an allowance
    for cuts that fit noise, half of them): counts that change smoothly within segments, or cells that are unrelated to
    their neighbours, where only insignificant neighbours are grouped.

    Args:
        counts: Noisy counts in order, shape (n,), n > 0.
        sigma: Standard deviation of the noise.
        widths: What counts of a segment are proportional to, shape (n,), all positive.
        laplace: Whether the noise is Laplace's, of which single cells stand out more often.

    >>> starts, found = segment_and_smooth(np.array([8.0, 12.0, 8.0, 12.0, 90.0]), 3.0, np.ones(5))
    >>> starts.tolist(), found.tolist()
    ([0, 4], [10.0, 10.0, 10.0, 10.0, 90.0])
    """
    starts = segments(counts, sigma, widths)
    # Of n cells noise may choose among n² runs: a cut must save about 2 ln(n) noise variances.
    penalty = max(PENALTY, 2 * math.log(len(counts) / PENALTY))
    if sigma > 0 and penalty > PENALTY:
        starts = _without_accidents(counts, starts, sigma, widths, penalty, laplace=laplace)
    smooth, freedom = _smoothed(counts, starts, sigma, widths)
    if sigma <= 0:
        return starts, smooth
    separate = onto_simplex(counts, max(float(counts.sum()), sigma))
    risk_smooth = ((smooth - counts) ** 2).sum() + sigma**2 * (2 * freedom + (PENALTY - 2) / 2 * len(starts))
    risk_separate = ((separate - counts) ** 2).sum() + 2 * sigma**2 * (separate > 0).sum()
    if risk_smooth <= risk_separate:
        return starts, smooth
    bar = penalty / math.sqrt(2) if laplace else math.sqrt(2 * penalty)
    hidden = counts <= max(SIGNIFICANT, bar) * sigma
    begins = np.append(True, ~(hidden[1:] & hidden[:-1]))
    return np.flatnonzero(begins), np.maximum(separate, ABSOLUTE * sigma)


def _without_accidents(
    counts: Floats, starts: Starts, sigma: float, widths: Floats, penalty: float, *, laplace: bool
) -> Starts:
    """Return the segments without what noise may well have cut out of long stretches of next to nothing.

    Where there are hardly any rows, a cut claims that some cells hold rows after all, for which noise may choose among
    as many runs as there are cells, squared: it has to save a larger ``penalty``.
    """
    sure = segments(counts, sigma, widths, penalty)
    if laplace:
        sure = _without_short_ones(counts, sure, sigma, widths, penalty)
    sums, cells = np.add.reduceat(counts, sure), np.diff(np.append(sure, len(counts)))
    held = (sums > sigma * cells)[np.searchsorted(sure, starts, side="right") - 1]
    return np.union1d(sure, starts[held]).astype(np.int64)


def _without_short_ones(counts: Floats, starts: Starts, sigma: float, widths: Floats, penalty: float) -> Starts:
    """Return the segments without short ones that Laplace noise makes as often as Gaussian noise saves ``penalty``.

    P[noise > z σ] is e^(-√2 z) / 2 for a cell, not e^(-z²/2): a short run has to stand out by z = penalty / √2.
    """
    kept = starts.tolist()
    place = 1
    while place < len(kept):
        first, end = kept[place], kept[place + 1] if place + 1 < len(kept) else len(counts)
        around = slice(kept[place - 1], first)
        excess = counts[first:end].sum() - counts[around].sum() * widths[first:end].sum() / widths[around].sum()
        # The sum of Laplace noise over up to 8 cells is far from normal; over more it hardly is.
        is_short = end - first <= 8  # noqa: PLR2004
        if is_short and abs(excess) < penalty / math.sqrt(2) * sigma:
            del kept[place : place + 1 + (place + 1 < len(kept) - 1)]
        else:
            place += 1
    return np.array(kept, np.int64)


def _smoothed(counts: Floats, starts: Starts, sigma: float, widths: Floats) -> tuple[Floats, float]:
    """Return smooth counts, none below zero, and their degrees of freedom; see `segment_and_smooth`.

    A constant density per segment would put steps into a smooth curve. So densities are averaged over neighbouring
    cells by a Gaussian kernel of `Tuning.bandwidth` (narrow where counts change fast), unless noise explains the shape
    that results; of the residuals, the share that noise does not explain is kept. Segments of one cell are significant:
    they keep their count and do not enter the averages of their neighbours.
    """
    n = len(counts)
    ends = np.append(starts[1:], n)
    averaged = np.repeat(ends - starts > 1, ends - starts)
    centres = np.cumsum(widths) - widths / 2
    result = counts.astype(np.float64)
    freedom = float((ends - starts == 1).sum())
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start > 1:
            here = slice(start, end)
            bandwidth = TUNING.bandwidth * float(widths[here].sum())
            reach = [centres[start] - NORMAL_REACH * bandwidth, centres[end - 1] + NORMAL_REACH * bandwidth]
            near = np.arange(*np.searchsorted(centres, reach))
            near = near[averaged[near]]
            kernel = np.exp(-0.5 * ((centres[here, None] - centres[near]) / bandwidth) ** 2)
            kernel *= (widths[here] / (kernel @ widths[near]))[:, None]
            own = kernel[:, np.searchsorted(near, start) :]
            shape, variances = kernel @ counts[near], (kernel**2).sum(axis=1)
            result[here], free = _estimated(counts[here], shape, variances, own, sigma, widths[here])
            freedom += free
    return np.maximum(result, 0.0), freedom


def _estimated(
    counts: Floats, shape: Floats, variances: Floats, own: Floats, sigma: float, widths: Floats
) -> tuple[Floats, float]:
    """Return the counts of one segment's cells, and their degrees of freedom; see `_smoothed`.

    ``shape`` are their averages, with ``variances`` relative to that of a count, in which the cells weigh ``own``.
    """
    shaped = float(np.trace(own))
    weight = widths / (widths**2).sum()
    level = widths * (counts @ weight)
    if ((shape - level) ** 2).sum() <= sigma**2 * variances.sum():
        shape, variances = level, widths * weight
        shaped = 1.0
    residuals, freedom = counts - shape, len(counts) - shaped
    spread = float((residuals**2).sum()) / max(freedom, 1.0)
    kept = max(0.0, 1 - sigma**2 / spread) if spread > 0 else 0.0
    found = np.maximum(shape + kept * residuals, ABSOLUTE * sigma * np.sqrt(variances))
    return np.asarray(found), shaped + kept * freedom


def merge_smallest(counts: Floats, at_most: int) -> Starts:
    """Merge neighbours with the smallest sum until ``at_most`` groups are left; return the first cell of each."""
    starts, held = np.arange(len(counts)), counts.astype(np.float64)
    while len(starts) > at_most:
        first = int(np.argmin(held[:-1] + held[1:]))
        held[first] += held[first + 1]
        starts, held = np.delete(starts, first + 1), np.delete(held, first + 1)
    return starts


def segment_sums(values: Floats, starts: Starts) -> Floats:
    """Return sums of ``values`` over the groups that begin at ``starts``."""
    return np.add.reduceat(values, starts)
