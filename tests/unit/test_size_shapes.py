"""Smooth shapes of size distributions, from noisy counts of classes."""

from __future__ import annotations

import numpy as np
import pytest

from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.estimators.size_shapes import Shapes, size_shapes
from privbench_core.units.row_count import powers_up_to

BOUND = 4096
CODEC, CLASSES = FanoutCodec(BOUND), np.array(powers_up_to(BOUND))
BAND = np.searchsorted(CLASSES, CODEC.starts)


def shapes(numbers: np.ndarray, sigma: float, seed: int, *, most: int | None = None) -> Shapes:
    """Of sizes with noise on their classes and, if asked for, on their sum."""
    rng = np.random.default_rng(seed)
    counts = np.bincount(np.searchsorted(CLASSES, numbers), minlength=len(CLASSES))
    sums = []
    if most is not None:
        sums = [(CODEC.means(most), np.minimum(numbers, most).sum() + rng.normal(0, most * sigma), most * sigma)]
    return size_shapes(CODEC.starts, BOUND, BAND, counts + rng.normal(0, sigma, len(counts)), sigma, sums)


def power_law(rng: np.random.Generator, groups: int) -> np.ndarray:
    return np.minimum(rng.random(groups) ** (-1 / 1.5), BOUND).astype(np.int64)


@pytest.mark.parametrize("make", [power_law, lambda rng, n: 1 + rng.poisson(rng.lognormal(2, 1, n))])
def test_tails_that_noise_hides_are_supplied(make: object) -> None:
    """Of 20,000 groups, with noise of 60 on every class: large sizes are hidden, and hold a sixth of the rows."""
    off = []
    for seed in range(20):
        numbers = make(np.random.default_rng(seed), 20_000)  # type: ignore[operator]
        off.append(shapes(numbers, 60.0, seed, most=64).mean(CODEC.means()) / numbers.sum() - 1)
    assert abs(np.median(off)) < 0.1
    assert np.abs(off).mean() < 0.15


def test_a_large_bound_alone_makes_no_large_groups() -> None:
    """Nobody has more than 128 rows where 200,000 are declared: few rows are expected beyond what was counted."""
    codec, classes = FanoutCodec(200_000), np.array(powers_up_to(200_000))
    band, counts = np.searchsorted(classes, codec.starts), np.zeros(len(classes))
    counts[:8] = [2619, 1105, 693, 304, 98, 27, 5, 1]
    beyond = []
    for seed in range(40):
        noisy = counts + np.random.default_rng(seed).normal(0, 60, len(counts))
        beyond.append(size_shapes(codec.starts, 200_000, band, noisy, 60.0).mean(codec.means() - codec.means(128)))
    assert np.mean(beyond) < 0.13 * 10_954  # of all rows
