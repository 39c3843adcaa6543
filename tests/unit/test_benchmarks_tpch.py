"""References by Zipf's law, which the skewed TPC-H database has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.tpch import refer_by_zipf


def test_references_by_zipfs_law_go_to_rows_that_are_there():
    parent = pa.table({"a": [1, 1, 2, 2], "b": [1, 2, 1, 2]})
    rows = pa.table({"x": np.zeros(2000, np.int64), "y": np.zeros(2000, np.int64)})
    made = refer_by_zipf(rows, ("x", "y"), parent, ("a", "b"), 1.0, np.random.default_rng(0))
    pairs, counts = np.unique(np.column_stack([made["x"], made["y"]]), axis=0, return_counts=True)
    assert len(pairs) == 4
    assert np.allclose(np.sort(counts)[::-1] / 2000, np.array([12, 6, 4, 3]) / 25, atol=0.04)
