from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.registry import codec_from_dict

BOUNDS = [1, 2, 15, 16, 17, 18, 40, 1000, 10**6]


@pytest.mark.parametrize("bound", BOUNDS)
def test_every_number_up_to_the_bound_has_a_cell_that_gives_it_back(bound):
    codec = FanoutCodec(bound)
    numbers = np.unique(np.concatenate([np.arange(min(bound, 300) + 1), [bound // 2, bound - 1, bound]]))
    cells = codec.encode(pa.chunked_array([numbers]))
    assert cells.min() == 0
    assert cells.max() == codec.size - 1
    assert (np.diff(cells) >= 0).all()
    decoded = codec.decode(cells, np.random.default_rng(0)).to_numpy()
    assert (codec.encode(pa.chunked_array([decoded])) == cells).all()
    assert decoded.max() <= bound
    small = numbers <= 15
    assert (decoded[small] == numbers[small]).all()


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_last_cell_ends_at_the_bound(bound):
    codec = FanoutCodec(bound)
    last = np.full(2000, codec.size - 1, dtype=np.int32)
    drawn = codec.decode(last, np.random.default_rng(0)).to_numpy()
    assert drawn.max() <= bound
    assert drawn.min() >= codec.starts[-1]


def test_cells_are_few_even_for_large_bounds():
    assert FanoutCodec(10**6).size < 100


def test_numbers_beyond_the_bound_are_clamped():
    codec = FanoutCodec(5)
    assert codec.encode(pa.chunked_array([np.array([6, 10**9, -1])])).tolist() == [5, 5, 0]


def test_labels_name_numbers_and_ranges():
    assert FanoutCodec(2).labels() == ["0", "1", "2"]
    labels = FanoutCodec(25).labels()
    assert labels[15] == "15"
    assert labels[-1].endswith("25")
    assert len(labels) == FanoutCodec(25).size


def test_it_comes_back_from_its_description_inside_of_a_coder():
    discretizer = Discretizer(FanoutCodec(7))
    assert Discretizer.from_dict(discretizer.to_dict()) == discretizer
    assert codec_from_dict(FanoutCodec(7).to_dict()) == FanoutCodec(7)
    assert (discretizer.codec.ordered, discretizer.codec.null, discretizer.codec.outside) == (8, None, ())
    assert discretizer.encode_numbers(np.zeros(0, dtype=np.int64)).shape == (0,)


def test_a_merged_tail_is_drawn_as_a_heavy_tail_and_not_evenly():
    codec = FanoutCodec(2000)
    code_of = tuple(min(cell, 10) for cell in range(codec.size))
    even = Binning(code_of, tuple(1 / code_of.count(code) for code in code_of), 11)
    binning = codec.decaying(even, np.full(codec.size, 10.0), 10.0)
    tail = Discretizer(codec, binning).decode(np.full(20_000, 10, dtype=np.int32), np.random.default_rng(0)).to_numpy()
    expected = np.log(2000 / 10) / (1 / 10 - 1 / 2000)  # mean of a density ~ 1/x² between 10 and 2000
    assert tail.min() == 10
    assert tail.mean() == pytest.approx(expected, rel=0.1)
    np.testing.assert_allclose(np.asarray(binning.weights[:10]), 1.0)
    assert codec.decaying(even, np.full(codec.size, 100.0), 10.0) == even  # counts that speak are believed


def test_sizes_that_only_noise_speaks_for_are_not_believed() -> None:
    """Of ten thousand owners none has more than ten children, and each count has noise of 20."""
    codec = FanoutCodec(10_000)
    true = np.zeros(codec.size)
    true[:11] = 10_000 / 11
    for seed in range(20):
        noisy = true + np.random.default_rng(seed).normal(0, 20, codec.size)
        held = codec.held(noisy, 20.0, 4.0)
        np.testing.assert_array_equal(held[:11], noisy[:11])
        assert held[codec.starts > 1000].sum() < 1.5


def test_a_few_very_large_groups_are_believed_where_noise_is_small() -> None:
    codec = FanoutCodec(10_000)
    true = np.zeros(codec.size)
    true[[0, 1, 30]] = 1000.0, 500.0, 40.0
    noisy = true + np.random.default_rng(0).normal(0, 2, codec.size)
    held = codec.held(noisy, 2.0, 4.0)
    np.testing.assert_array_equal(held[:31], noisy[:31])
    assert held[31:].sum() < 2 * np.sqrt(codec.size)


def test_counts_of_nothing_but_noise_are_left_as_they_are() -> None:
    noisy = np.array([1.0, -2.0, 0.5, 1.0])
    np.testing.assert_array_equal(FanoutCodec(3).held(noisy, 5.0, 4.0), noisy)
