"""How often parents are referred to, from totals with bounds."""

from __future__ import annotations

import numpy as np
import pytest

from privbench_core.links.popularity_shapes import extrapolated, rank_ends, ranked

BOUNDS = (1, 4, 16, 64, 256)
DEGREES = np.maximum(1, np.rint(200 / np.arange(1, 601) ** 0.9)).astype(int)
TOTALS = np.array([np.minimum(DEGREES, bound).sum() for bound in BOUNDS], dtype=float)


def test_totals_without_noise_stay_as_they_are() -> None:
    np.testing.assert_allclose(extrapolated(TOTALS, np.full(5, 1e-3), BOUNDS, (1e6, 1e6)), TOTALS, rtol=1e-6)


def test_totals_are_estimated_within_their_noise() -> None:
    rng, sigmas = np.random.default_rng(0), np.array([30.0, 60.0, 200.0])
    found = [extrapolated(TOTALS[:3] + sigmas * rng.normal(size=3), sigmas, BOUNDS, (1e6, 1e6)) for _ in range(200)]
    assert np.mean(found, axis=0)[1] == pytest.approx(TOTALS[1], rel=0.05)
    assert np.abs(np.mean(found, axis=0)[-1] / TOTALS[-1] - 1) < 0.25


def test_ranks_follow_from_totals() -> None:
    ends = rank_ends(600)
    sums = ranked(np.array(BOUNDS, dtype=float), TOTALS, ends, 1.0)
    assert sums.sum() == pytest.approx(DEGREES.sum())
    true = np.add.reduceat(DEGREES.astype(float), np.append(0, ends[:-1]))
    assert np.abs(sums - true).sum() / DEGREES.sum() / 2 < 0.08
    spread = ranked(
        np.array(BOUNDS, dtype=float), TOTALS, rank_ends(1200), 2.0
    )  # two rows each share what a unit is referred to
    assert spread[0] < 0.7 * sums[0]


def test_noise_never_leaves_no_references() -> None:
    """A total two standard deviations below 0 is a small one, not none: rows that may refer to others do."""
    found = extrapolated(np.array([-2_000.0]), np.array([1_000.0]), [1, 4, 16], (5_000.0, 10_000.0))
    assert 0 < found[0] < 1_000
    assert (np.diff(found) >= 0).all()
