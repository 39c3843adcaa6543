"""The copula nearest to noisy counts of two ordered columns: how they go on inside of groups of codes.

A joint is measured over groups of neighbouring codes (`estimate.coarsening`), the rare ones of a tail together. To take
columns for independent within these says that of the parents with many children any may have the most; but what
depends on each other over groups of neighbours hardly stops to do so within them. Post-processing of released counts.

A Gaussian copula has no dependence left in the tails: of the parents with most children of one kind it lets few have
most of another, and a join of both is too small by half. Where both grow with something common that is heavy-tailed, an
extreme-value copula holds, so Gumbel's (1960) is tried too, with either tail of each column as the dependent one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.copula import joint_by_copula
from privbench_core.estimate.segmentation import SIGNIFICANT
from privbench_core.guards import BLOCK_ROWS, COPULA_STEPS, MAX_CORRELATION, TINY
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]


def nearest_copula(
    noisy: Array,
    sigma: float,
    groups: tuple[NDArray[np.int64], ...],
    clean: tuple[Array, Array],
    ordered: tuple[int, int],
) -> Array | None:
    """Return counts of all codes by the copula that is nearest to a measured joint, None if noise explains it.

    Args:
        noisy: Counts, of groups of codes where there are ``groups``.
        sigma: Standard deviation of the noise of each.
        groups: Group of each code of both columns, or none.
        clean: Clean counts of both columns, with one total.
        ordered: How many of their leading codes are intervals, in order; others are independent of the other column.
    """
    if min(ordered) < 3:  # noqa: PLR2004 - of two codes there is nothing to interpolate
        return None
    best, least, off = np.zeros(0), np.inf, np.inf
    variance = sigma**2 + TINY
    for joints in _copulas(clean, ordered):
        merged = _merged(joints, groups)
        apart = (merged - noisy) ** 2
        unlike = (apart / (variance + (TUNING.clear * merged) ** 2)).sum(axis=(1, 2))
        place = int(np.argmin(unlike))
        if unlike[place] < least:
            best, least, off = joints[place], unlike[place], (apart[place] / variance).sum()
    independent = np.outer(*clean) / max(float(clean[0].sum()), TINY)
    explained = ((_merged(independent, groups) - noisy) ** 2 / variance).sum() - off
    return best if explained > SIGNIFICANT**2 else None


def _merged(joints: Array, groups: Sequence[NDArray[np.int64]]) -> Array:
    """Counts over groups, given that of each code; shape (.., groups of the first, groups of the second)."""
    for axis, group_of in zip((-2, -1), groups, strict=False):
        if np.array_equal(group_of, np.arange(len(group_of))):
            continue
        order = np.argsort(group_of, kind="stable")
        starts = np.flatnonzero(np.diff(group_of[order], prepend=-1))
        joints = np.add.reduceat(np.take(joints, order, axis), starts, axis=axis)
    return joints


def _copulas(clean: tuple[Array, Array], ordered: tuple[int, int]) -> Iterator[Array]:
    """Joints by all copulas that are tried, a few at a time: shape (some, codes of the first, codes of the second)."""
    for angle in math.asin(MAX_CORRELATION) * np.linspace(-1, 1, COPULA_STEPS):
        yield joint_by_copula(*clean, *ordered, math.sin(angle))[None]
    several = max(1, BLOCK_ROWS // (len(clean[0]) * len(clean[1])))
    exponents = 1 / (1 - np.linspace(0, 1, COPULA_STEPS, endpoint=False)[1:])  # evenly spaced by Kendall's τ
    for tails in product((1, -1), (1, -1)):
        for start in range(0, len(exponents), several):
            yield _joints_by_gumbel(*clean, *ordered, exponents[start : start + several], tails)


def _joints_by_gumbel(
    first: Array, second: Array, rows: int, columns: int, exponents: Array, tails: tuple[int, int]
) -> Array:
    """Return counts of two columns with their own marginals, by Gumbel's copulas of their ordered codes.

    Args:
        first: Clean counts of the first column.
        second: Clean counts of the second column, with the same total.
        rows: How many leading codes of the first are intervals, in order; the others are independent of the second.
        columns: The same of the second.
        exponents: From 1, where they are independent.
        tails: Of each column 1 if its last codes depend on the other most, -1 if its first codes do.

    Returns:
        Shape (exponents, codes of the first, codes of the second).
    """
    independent = np.outer(first, second) / max(float(first.sum()), TINY)
    sides = zip((first[:rows], second[:columns]), tails, strict=True)
    one, other = (_depth(counts[::tail]) ** exponents[:, None] for counts, tail in sides)
    below = np.exp(-((one[:, :, None] + other[:, None, :]) ** (1 / exponents[:, None, None])))
    cells = np.diff(np.diff(below, axis=1, prepend=0.0), axis=2, prepend=0.0)
    joints = np.repeat(independent[None], len(exponents), axis=0)
    joints[:, :rows, :columns] = (
        independent[:rows, :columns].sum() * np.maximum(cells, 0.0)[:, :: tails[0], :: tails[1]]
    )
    return joints


def _depth(counts: Array) -> Array:
    """Minus the logarithm of the distribution function at the end of each code."""
    share = np.cumsum(counts) / max(float(counts.sum()), TINY)
    share[-1] = 1.0
    return np.asarray(-np.log(np.clip(share, TINY, 1.0)))
