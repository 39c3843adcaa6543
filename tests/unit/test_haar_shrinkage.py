"""Shrinkage of noisy numbers towards expected ones."""

from __future__ import annotations

import numpy as np

from privbench_core.estimators.denoising import shrink_haar


def test_what_noise_explains_is_taken_off() -> None:
    expected, sigmas = np.array([0.5, 0.3, 0.2]), np.full(3, 0.1)
    near = np.array([0.55, 0.25, 0.2])
    np.testing.assert_array_equal(shrink_haar(near, sigmas, expected), expected)
    far = np.array([0.0, 0.0, 1.0])
    np.testing.assert_allclose(shrink_haar(far, sigmas / 100, expected), far, atol=1e-3)
