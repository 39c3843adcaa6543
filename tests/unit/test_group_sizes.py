from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.fanout_bins import FanoutCodec

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


@pytest.mark.parametrize("bound", [3, 40, 1000])
@pytest.mark.parametrize("most", [2, 21, np.inf])
def test_expected_numbers_are_those_that_are_drawn(bound, most):
    codec = FanoutCodec(bound)
    cells = np.repeat(np.arange(codec.size, dtype=np.int32), 4000)
    drawn = np.minimum(codec.decode(cells, np.random.default_rng(0)).to_numpy(), most)
    np.testing.assert_allclose(codec.means(most), drawn.reshape(-1, 4000).mean(axis=1), rtol=0.01)
