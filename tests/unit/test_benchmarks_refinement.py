"""What the benchmark of refinement does to the data, and to the rows that another program made."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.refinement import GivenRows, _place
from privbench_core.marginals.sampler import Rows


def test_places_count_equal_numbers_before():
    rows = pa.table({"user": [3, 1, 3, 3, 1, 2]})
    assert _place(rows, "user").tolist() == [0, 0, 1, 2, 1, 0]


def test_given_rows_are_drawn_whole_and_equally_often():
    given = GivenRows({"a": np.arange(5), "b": 10 - np.arange(5)}, {"a": 5, "b": 11})
    rows = Rows(12)
    given.draw(rows, np.random.default_rng(0))
    assert (rows.codes["a"] + rows.codes["b"] == 10).all()
    assert sorted(np.bincount(rows.codes["a"]).tolist()) == [2, 2, 2, 3, 3]
    assert rows.sizes == {"a": 5, "b": 11}
