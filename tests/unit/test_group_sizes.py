from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.stored import restored

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


def test_small_numbers_have_cells_of_their_own():
    assert FanoutCodec(2).starts.tolist() == [0, 1, 2]
    assert FanoutCodec(25).starts[:17].tolist() == [*range(17)]
    assert len(FanoutCodec(25).starts) == FanoutCodec(25).size < 26


def test_it_comes_back_from_its_description_inside_of_a_coder():
    discretizer = Discretizer(FanoutCodec(7))
    assert Discretizer.from_dict(discretizer.to_dict()) == discretizer
    assert restored(FanoutCodec(7).to_dict()) == FanoutCodec(7)
    assert (discretizer.codec.ordered, discretizer.codec.null, discretizer.codec.outside) == (8, None, ())
    assert discretizer.encode_numbers(np.zeros(0, dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("bound", [3, 40, 1000])
@pytest.mark.parametrize("most", [2, 21, np.inf])
def test_expected_numbers_are_those_that_are_drawn(bound, most):
    codec = FanoutCodec(bound)
    cells = np.repeat(np.arange(codec.size, dtype=np.int32), 4000)
    drawn = np.minimum(codec.decode(cells, np.random.default_rng(0)).to_numpy(), most)
    np.testing.assert_allclose(codec.means(most), drawn.reshape(-1, 4000).mean(axis=1), rtol=0.01)


def test_a_cell_begins_after_every_power_of_two():
    starts = FanoutCodec(5000).starts
    assert {2**power + 1 for power in range(13)} <= set(starts.tolist())


def test_each_octave_holds_fewer_rows_than_the_one_before_where_nothing_is_known():
    codec = FanoutCodec(1 << 14)
    octave = np.ceil(np.log2(np.maximum(codec.starts, 1)))
    rows = np.bincount(octave.astype(int), codec.prior * codec.means())
    np.testing.assert_allclose(rows[6:-1] / rows[5:-2], 2**-0.5, rtol=0.05)
