"""The copula nearest to noisy counts of two ordered columns: how they go on inside of groups of codes.

A joint is measured over groups of neighbouring codes (`estimate.coarsening`), the rare ones of a tail together. To take
columns for independent within these says that of the parents with many children any may have the most; but what
depends on each other over groups of neighbours hardly stops to do so within them. Post-processing of released counts.

A Gaussian copula has no dependence left in the tails: of the parents with most children of one kind it lets few have
most of another, and a join of both is too small by half. Where both grow with something common that is heavy-tailed, an
extreme-value copula holds, so Gumbel's (1960) is tried too, with either tail of each column as the dependent one.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.copula import LARGEST, joint_by_copula
from privbench_core.estimate.merge import merge_codes
from privbench_core.estimate.segmentation import SIGNIFICANT

Array = NDArray[np.float64]
_TINY = 1e-300
_ROUGHLY = 0.1  # how far, relatively, counts may be from any copula: else a few frequent codes decide about all others
_EXPONENTS = 1 / (1 - np.linspace(0.025, 0.9, 36))  # of Gumbel's copula, evenly spaced by Kendall's τ
_CORRELATIONS = np.sin(np.linspace(-np.arcsin(LARGEST), np.arcsin(LARGEST), 41))  # odd: 0 is one of them


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
    joints = [joint_by_copula(*clean, *ordered, float(correlation)) for correlation in _CORRELATIONS]
    joints += [
        _joint_by_gumbel(*clean, *ordered, float(exponent), tails)
        for tails in product((1, -1), (1, -1))
        for exponent in _EXPONENTS
    ]
    merged = np.stack([merge_codes(joint, groups) if groups else joint for joint in joints])
    apart = (merged - noisy) ** 2
    of_noise = apart.sum(axis=(1, 2))
    best = int(np.argmin((apart / (sigma**2 + (_ROUGHLY * merged) ** 2 + _TINY)).sum(axis=(1, 2))))
    independent = of_noise[len(_CORRELATIONS) // 2]
    return joints[best] if independent - of_noise[best] > (SIGNIFICANT * sigma) ** 2 else None


def _joint_by_gumbel(
    first: Array, second: Array, rows: int, columns: int, exponent: float, tails: tuple[int, int]
) -> Array:
    """Return counts of two columns with their own marginals, by Gumbel's copula of their ordered codes.

    Args:
        first: Clean counts of the first column.
        second: Clean counts of the second column, with the same total.
        rows: How many leading codes of the first are intervals, in order; the others are independent of the second.
        columns: The same of the second.
        exponent: From 1, where they are independent.
        tails: Of each column 1 if its last codes depend on the other most, -1 if its first codes do.
    """
    joint = np.outer(first, second) / max(float(first.sum()), _TINY)
    part = joint[:rows, :columns]
    sides = zip((first[:rows], second[:columns]), tails, strict=True)
    depths = [_depth(counts[::tail]) ** exponent for counts, tail in sides]
    below = np.exp(-((depths[0][:, None] + depths[1]) ** (1 / exponent)))
    cells = np.diff(np.diff(below, axis=0, prepend=0.0), axis=1, prepend=0.0)
    joint[:rows, :columns] = part.sum() * np.maximum(cells, 0.0)[:: tails[0], :: tails[1]]
    return joint


def _depth(counts: Array) -> Array:
    """Minus the logarithm of the distribution function at the end of each code."""
    share = np.cumsum(counts) / max(float(counts.sum()), _TINY)
    share[-1] = 1.0
    return np.asarray(-np.log(np.clip(share, _TINY, 1.0)))
