from __future__ import annotations

import numpy as np
import pytest

from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.models.row_count import powers_up_to
from privbench_core.models.size_counts import NoisySum, estimate_bands, held, refine_bands

SIGMA = 20.0


def sizes(rng: np.random.Generator, n: int = 20_000) -> np.ndarray:
    numbers = np.arange(1, 500)
    return rng.choice(numbers, n, p=numbers**-2.0 / (numbers**-2.0).sum())


def banded(numbers: np.ndarray, classes: tuple[int, ...]) -> np.ndarray:
    place = np.minimum(np.searchsorted(classes, numbers), len(classes) - 1)
    return np.bincount(place, minlength=len(classes)).astype(float)


def test_sizes_that_only_noise_speaks_for_are_not_believed() -> None:
    true = np.append([900.0, 500.0, 300.0], np.zeros(12))
    prior = 0.5 ** np.arange(15)
    believed = []
    for seed in range(20):
        noisy = true + np.random.default_rng(seed).normal(0, SIGMA, 15)
        counts, sigmas = held(noisy, SIGMA, 4.0, prior)
        np.testing.assert_array_equal(counts[:3], noisy[:3])
        believed.append(counts[3:].sum())
        assert (np.diff(counts[3:]) <= 0).all()
        assert (np.diff(sigmas[3:]) < 0).all()
    assert np.mean(believed) < SIGMA  # their sum has noise of 3.5 times that


def test_counts_of_nothing_but_noise_are_left_as_they_are() -> None:
    noisy = np.array([1.0, -2.0, 0.5, 1.0])
    np.testing.assert_array_equal(held(noisy, 5.0, 4.0, np.ones(4))[0], noisy)


def test_a_number_of_rows_makes_up_for_what_noise_hides() -> None:
    """Of a heavy tail a third of the rows is in classes with fewer units than noise: the sum says how many they are."""
    codec, classes = FanoutCodec(1000), tuple(powers_up_to(1000))
    alone, together = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        numbers = sizes(rng)
        noisy = banded(numbers, classes) + rng.normal(0, SIGMA, len(classes))
        rows = NoisySum(float(numbers.sum()) + rng.normal(0, 200), 200.0)
        alone.append(estimate_bands(codec, classes, noisy, SIGMA, 4.0).rows() / numbers.sum() - 1)
        together.append(estimate_bands(codec, classes, noisy, SIGMA, 4.0, rows=rows).rows() / numbers.sum() - 1)
    assert abs(np.mean(together)) < 0.01
    assert np.std(together) < 0.5 * np.std(alone)


def test_without_noise_every_class_and_cell_comes_back() -> None:
    codec, classes = FanoutCodec(1000), (0, *powers_up_to(1000))
    numbers = np.append(sizes(np.random.default_rng(0)), np.zeros(5000, dtype=np.int64))
    exact = np.bincount(np.searchsorted(codec.starts, numbers, side="right") - 1, minlength=codec.size).astype(float)
    bands = estimate_bands(codec, classes, banded(numbers, classes), 1e-3, 4.0)
    found = refine_bands(bands, exact, 1e-3, NoisySum(25_000.0, 1e-3), NoisySum(float(numbers.sum()), 1e9))
    expanded = found.counts[np.asarray(found.binning.code_of)] * np.asarray(found.binning.weights)
    np.testing.assert_allclose(expanded, exact, atol=0.5)
    assert found.groups == pytest.approx(25_000, abs=0.1)


def test_rows_of_larger_groups_count_as_so_many() -> None:
    codec, classes = FanoutCodec(16), (1, 2, 4, 8, 16)
    found = estimate_bands(codec, classes, np.array([10.0, 10.0, 0.0, 0.0, 0.0]), 1e-9, 4.0)
    assert found.rows() == pytest.approx(30, rel=0.01)
    assert found.rows(1) == pytest.approx(20, rel=0.01)
    np.testing.assert_allclose(found.rows_up_to(classes)[:2], [10, 20], rtol=0.01)
