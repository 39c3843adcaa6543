from __future__ import annotations

import numpy as np
import pytest

from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.views import ViewSpec
from privbench_core.tuning import TUNING
from privbench_core.units.measure_row_count import noise_of_rows
from privbench_core.units.row_count import powers_up_to
from privbench_core.units.size_counts import NoisySum, estimate_bands, refine_bands
from tests.helpers.planted import door_of, planted_pair

SIGMA = 20.0


def sizes(rng: np.random.Generator, n: int = 20_000) -> np.ndarray:
    numbers = np.arange(1, 500)
    return rng.choice(numbers, n, p=numbers**-2.0 / (numbers**-2.0).sum())


def banded(numbers: np.ndarray, classes: tuple[int, ...]) -> np.ndarray:
    place = np.minimum(np.searchsorted(classes, numbers), len(classes) - 1)
    return np.bincount(place, minlength=len(classes)).astype(float)


def test_sizes_that_only_noise_speaks_for_are_not_believed() -> None:
    """Accidents of noise at hundreds of children would be as many rows as there are."""
    codec, classes = FanoutCodec(16_384), tuple(powers_up_to(16_384))
    numbers = np.repeat([1, 2, 3], [900, 500, 300])
    rows = []
    for seed in range(20):
        noisy = banded(numbers, classes) + np.random.default_rng(seed).normal(0, SIGMA, len(classes))
        found = estimate_bands(codec, classes, noisy, SIGMA, 4.0)
        assert found.counts[:3] == pytest.approx([900, 500, 300], abs=4 * SIGMA)
        rows.append(found.rows())
    means = codec.means()[[1, 2, 3, -1]]
    assert means[-1] > 10_000  # noise of one class of sizes is as many rows a hundred times
    assert np.mean(rows) < 20 * numbers.sum()


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


def test_a_size_that_all_groups_have_is_found() -> None:
    """No smooth shape is as narrow: the class stands out of the noise, and is taken as it is."""
    codec, classes = FanoutCodec(4096), tuple(powers_up_to(4096))
    for seed in range(10):
        noisy = banded(np.full(5000, 24), classes) + np.random.default_rng(seed).normal(0, SIGMA, len(classes))
        found = estimate_bands(codec, classes, noisy, SIGMA, 4.0)
        assert found.counts[5] == pytest.approx(noisy[5])
        assert found.rows() == pytest.approx(5000 * 24, rel=0.4)


def test_without_noise_every_class_and_cell_comes_back() -> None:
    codec, classes = FanoutCodec(1000), (0, *powers_up_to(1000))
    numbers = np.append(sizes(np.random.default_rng(0)), np.zeros(5000, dtype=np.int64))
    exact = np.bincount(np.searchsorted(codec.starts, numbers, side="right") - 1, minlength=codec.size).astype(float)
    bands = estimate_bands(codec, classes, banded(numbers, classes), 1e-3, 4.0)
    found = refine_bands(bands, exact, 1e-3, NoisySum(25_000.0, 1e-3), NoisySum(float(numbers.sum()), 1e9))
    expanded = found.counts[np.asarray(found.binning.code_of)] * np.asarray(found.binning.weights)
    np.testing.assert_allclose(expanded, exact, atol=0.5)
    assert found.groups == pytest.approx(25_000, abs=0.1)


def test_what_a_sum_leaves_out_completes_it_without_bias() -> None:
    """Sizes fitted to a sum are likely sizes: 300 groups of 24 came out as 5% more rows, at a noise of 4%."""
    codec, classes, sigma, numbers = FanoutCodec(100), tuple(powers_up_to(100)), 8.0, np.full(300, 24)
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        noisy, total = banded(numbers, classes) + rng.normal(0, sigma, len(classes)), 7200 + rng.normal(0, 32 * sigma)
        bands = estimate_bands(codec, classes, noisy, sigma, 4.0, rows=NoisySum(total, 32 * sigma, 32))
        found.append((total + bands.beyond(32)) / 7200 - 1)
    assert abs(np.mean(found)) < 3 * np.std(found) / np.sqrt(len(found))
    assert np.std(found) < 0.06


def test_what_a_plan_says_of_rows_is_the_noise_that_they_get() -> None:
    schema, tables = planted_pair(50)
    price, door = Price(Measure.GDP, 0.1), door_of(schema, tables)
    sigma = door.view(ViewSpec("child", {})).sigma(
        [Marginal(())], price.share(TUNING.size_share)
    )  # the unit's: its columns' totals
    assert noise_of_rows(schema, "child", price) == pytest.approx(sigma)
