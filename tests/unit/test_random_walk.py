from __future__ import annotations

import numpy as np

from privbench_core.estimate.random_walk import class_shapes

ROWS = np.array([4000.0, 3000.0, 2000.0, 1000.0, 500.0])


def noisy(shapes: np.ndarray, sigmas: np.ndarray, seed: int) -> np.ndarray:
    return shapes * ROWS[:, None] + np.random.default_rng(seed).normal(size=shapes.shape) * sigmas[:, None]


def test_classes_that_are_alike_are_pooled() -> None:
    shapes = np.tile([0.4, 0.3, 0.2, 0.1], (5, 1))
    sigmas = np.full(5, 60.0)
    off = [np.abs(class_shapes(noisy(shapes, sigmas, seed), sigmas, ROWS) - shapes).sum(axis=1) for seed in range(20)]
    raw = np.abs(noisy(shapes, sigmas, 0) / ROWS[:, None] - shapes).sum(axis=1)
    assert np.mean(off, axis=0)[-1] < raw[-1] / 3
    assert np.mean(off) < 0.08


def test_classes_that_differ_keep_what_is_their_own() -> None:
    shapes = np.linspace([0.8, 0.1, 0.05, 0.05], [0.1, 0.1, 0.1, 0.7], 5)
    sigmas = np.full(5, 10.0)
    found = class_shapes(noisy(shapes, sigmas, 0), sigmas, ROWS)
    np.testing.assert_allclose(found, shapes, atol=0.05)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found.min() >= 0


def test_a_class_without_rows_is_like_its_neighbour() -> None:
    shapes = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.2, 0.8], [0.2, 0.8]])
    rows = ROWS * [1, 1, 1, 1, 0]
    found = class_shapes(shapes * rows[:, None], np.full(5, 1e-3), rows)
    np.testing.assert_allclose(found, shapes, atol=0.01)
    np.testing.assert_allclose(class_shapes(np.zeros((2, 4)), np.ones(2), np.zeros(2)), 0.25)
