"""Arithmetic on released sizes: what counting T rows leaves out, which T classes have, how sizes are drawn."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.links.fanout import Fanout
from privbench_core.units.measure_by_size import SizeStratifiedMarginals
from privbench_core.units.random_walk import Drift
from privbench_core.units.row_count import RowCount
from privbench_core.units.size_counts import ExpectedSizes

SIZES = RowCount(110.0, 1.0, 1, (1, 2, 4), np.array([10.0, 20.0, 80.0]), np.array([10.0, 10.0, 20.0]), 4)
SHAPES = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
"""Units with one row have the first code only, those with four the second."""


def fanout(counts: list[float], bound: int) -> Fanout:
    return Fanout(Discretizer(FanoutCodec(bound)), np.array(counts), {}, {}, 0.0)


def test_what_is_left_out_turns_counted_rows_into_all_rows() -> None:
    counted = SIZES.counted(1)
    of_counted, of_all = counted @ SHAPES / counted.sum(), SIZES.rows_of @ SHAPES / 110
    np.testing.assert_allclose(of_counted + SIZES.truncation_bias(SHAPES, SIZES.counted(1)), of_all)
    np.testing.assert_allclose(SIZES.truncation_bias(SHAPES, SIZES.counted(4)), 0, atol=1e-12)


def test_columns_of_a_table_that_is_all_noise_are_no_larger_than_the_noise() -> None:
    """Shares that add up to less than nothing were divided by it: counts of 10,000,000,000, with a deviation of 70."""
    size = RowCount(50.0, 50.0, 1, (1, 2), np.array([30.0, 20.0]), np.array([30.0, 10.0]), 2)
    drift = Drift.of(np.array([[-160.0, -40.0], [-30.0, -140.0]]), np.array([50.0, 50.0]), size.rows_of)
    assert drift.average(size.rows_of / 50)[0].sum() < 0
    found = SizeStratifiedMarginals(size, {"x": drift}).one_way(1)
    assert found.total == pytest.approx(size.counted(1).sum())
    assert np.abs(found.counts["x"] / found.sigmas["x"]).max() < 5
    assert found.clean()["x"].sum() == pytest.approx(found.total)


def test_numbers_of_children_are_those_that_were_released() -> None:
    """One parent in a thousand has 20 children or more: there is one among a thousand whatever the seed."""
    codec = FanoutCodec(100)
    counts = np.zeros(codec.size)
    counts[[0, 1, 2, 18]] = 0.5, 0.3, 0.199, 0.001
    released = fanout(counts.tolist(), 100)
    for seed in range(20):
        numbers = released.numbers(1000, np.random.default_rng(seed))
        assert np.bincount(np.minimum(numbers, 3)).tolist() == [500, 300, 199, 1]
        assert codec.starts[18] <= numbers[-1] < codec.starts[19]
        assert (np.diff(numbers) >= 0).all()


@pytest.mark.parametrize("mean", [0.5, 1.5, 8.0])
def test_expected_sizes_have_the_released_mean(mean: float) -> None:
    expected = ExpectedSizes.of_mean(FanoutCodec(200), (0, 1, 2, 4, 8, 16, 32, 64, 128, 256), mean)
    assert expected.groups.sum() == pytest.approx(1)
    assert expected.groups @ expected.sizes == pytest.approx(mean, rel=0.1)


def test_a_number_inside_of_a_class_counts_part_of_its_rows() -> None:
    sizes = np.random.default_rng(0).choice(np.arange(1, 17), 10_000, p=(w := 1 / np.arange(1.0, 17)) / w.sum())
    place = np.searchsorted((1, 2, 4, 8, 16), sizes)
    of_class = np.bincount(place, sizes).astype(float), np.bincount(place).astype(float)
    size = RowCount(float(sizes.sum()), 1.0, 1, (1, 2, 4, 8, 16), *of_class, 16)
    for most in (1, 2, 3, 4, 6, 8, 12, 16):
        assert size.counted(most).sum() == pytest.approx(np.minimum(sizes, most).sum(), rel=0.03)


@pytest.mark.parametrize(("bound", "sizes", "share"), [
    (50, "flights", 0.77),  # of a plane, 100 on average: 0.99^50 of the planes have more than 50
    (1000, "flights", 0.0),
    (50, "tail", 0.0),  # 1/s², to the bound
    (16, "flights", 0.0),  # a bound that people know
])  # fmt: skip
def test_rows_of_owners_that_have_as_many_as_the_bound_allows(bound: int, sizes: str, share: float) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.geometric(0.01, 4000) if sizes == "flights" else rng.pareto(1.0, 4000).astype(int) + 1
    kept = numbers[numbers <= bound] if sizes == "tail" else np.minimum(numbers, bound)
    codec = FanoutCodec(bound)
    counts = np.bincount(codec.encode(pa.chunked_array([pa.array(kept)])), minlength=codec.size) / len(kept)
    assert Fanout(Discretizer(codec), counts, {}, {}, 0.0).at_bound == pytest.approx(share, abs=0.08)
