from __future__ import annotations

import numpy as np

from privbench_core.units.random_walk import Drift

ROWS = np.array([4000.0, 3000.0, 2000.0, 1000.0, 500.0])


def noisy(shapes: np.ndarray, sigmas: np.ndarray, seed: int) -> np.ndarray:
    return shapes * ROWS[:, None] + np.random.default_rng(seed).normal(size=shapes.shape) * sigmas[:, None]


def test_classes_that_are_alike_are_pooled() -> None:
    shapes = np.tile([0.4, 0.3, 0.2, 0.1], (5, 1))
    sigmas = np.full(5, 60.0)
    off = [
        np.abs(Drift.of(noisy(shapes, sigmas, seed), sigmas, ROWS).shapes - shapes).sum(axis=1) for seed in range(20)
    ]
    raw = np.abs(noisy(shapes, sigmas, 0) / ROWS[:, None] - shapes).sum(axis=1)
    assert np.mean(off, axis=0)[-1] < raw[-1] / 3
    assert np.mean(off) < 0.08


def test_classes_that_differ_keep_what_is_their_own() -> None:
    shapes = np.linspace([0.8, 0.1, 0.05, 0.05], [0.1, 0.1, 0.1, 0.7], 5)
    sigmas = np.full(5, 10.0)
    found = Drift.of(noisy(shapes, sigmas, 0), sigmas, ROWS).shapes
    np.testing.assert_allclose(found, shapes, atol=0.05)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found.min() >= 0


def test_a_class_without_rows_is_like_its_neighbour() -> None:
    shapes = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.2, 0.8], [0.2, 0.8]])
    rows = ROWS * [1, 1, 1, 1, 0]
    found = Drift.of(shapes * rows[:, None], np.full(5, 1e-3), rows).shapes
    np.testing.assert_allclose(found, shapes, atol=0.01)
    np.testing.assert_allclose(Drift.of(np.zeros((2, 4)), np.ones(2), np.zeros(2)).shapes, 0.25)


def test_a_trend_goes_on_where_noise_hides_the_last_classes() -> None:
    shares = np.linspace(0.85, 0.05, 9)
    shapes = np.stack([shares, 1 - shares], axis=1)
    rows, sigmas = np.full(9, 1000.0), 5.0 * 2.0 ** np.arange(9)
    found = [
        Drift.of(
            shapes * rows[:, None] + np.random.default_rng(seed).normal(size=(9, 2)) * sigmas[:, None], sigmas, rows
        )
        for seed in range(10)
    ]
    last = [drift.shapes[-1, 0] for drift in found]
    flat = 0.45  # the last class but four, that noise of 80 of 1,000 rows still shows
    assert abs(np.mean(last) - shares[-1]) < (flat - shares[-1]) / 2


def test_a_look_at_all_rows_tells_of_all_classes() -> None:
    shapes = np.linspace([0.9, 0.1], [0.1, 0.9], 5)
    rows, sigmas = np.full(5, 1000.0), np.array([10.0, 10.0, 10.0, 400.0, 800.0])
    drift = Drift.of(shapes * rows[:, None], sigmas, rows)
    weights = rows / rows.sum()
    mean, deviation = drift.average(weights)
    exact = np.full(2, 1e-3)
    updated = drift.updated(weights, weights @ shapes, exact)
    better, less = updated.average(weights)
    np.testing.assert_allclose(better, 0.5, atol=2e-3)
    assert (less < deviation / 10).all()
    assert (less <= exact).all()
    assert drift.error(weights, weights, exact) < deviation.sum() / 10
    assert np.abs(updated.shapes - shapes).sum() <= np.abs(drift.shapes - shapes).sum() + 0.02
    assert np.isfinite(mean).all()
