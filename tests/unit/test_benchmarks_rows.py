"""What the benchmark of rows measures on, and what it calls worse than the shuffled source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.row_sources import RowSource, row_sources
from benchmarks.rows import worse_than_shuffled
from benchmarks.tpch import refer_by_zipf
from benchmarks.workloads import SHUFFLED
from tests.helpers.heavy_tails import CONVERGING
from tests.helpers.row_cases import CASES


def _sources(tmp_path: Path) -> tuple[dict[str, RowSource], list[str]]:
    said: list[str] = []
    return {source.name: source for source in row_sources(tmp_path / "nowhere", said.append)}, said


def test_what_has_no_data_is_left_out_and_said(tmp_path: Path):
    sources, said = _sources(tmp_path)
    assert set(CONVERGING) | set(CASES) | {"San Diego"} <= set(sources)
    assert "stats" not in sources
    assert len(said) == 1
    assert "stats is left out" in said[0]


def test_a_source_writes_to_its_own_folder_alone(tmp_path: Path):
    sources, _ = _sources(tmp_path)
    for name in ("returns", "San Diego"):
        folder = tmp_path / name
        folder.mkdir()
        spec = sources[name].spec(folder)
        assert spec.path.is_relative_to(folder)
        assert spec.state.is_relative_to(folder)


def test_only_what_is_beyond_the_reference_counts_as_worse():
    def row(method: str, epsilon: str, median: float, joined: float) -> dict[str, str | float]:
        cell: dict[str, str | float] = {"database": "d", "method": method, "ε": epsilon}
        return {**cell, "unanswered": 3.0, "median": median, "joins 1, 95th": joined}

    reference = row(SHUFFLED, "-", 1.5, 4.0)
    good, bad, unknown = row("a", "1", 1.5, 3.9), row("b", "1", 1.2, 5.0), row("c", "1", 1.0, float("nan"))
    lines = worse_than_shuffled([reference, good, bad, unknown])
    assert lines == ["- d, b at ε = 1: joins 1, 95th 5 against 4", "- d, c at ε = 1: joins 1, 95th nan against 4"]
    assert worse_than_shuffled([reference, good]) == ["- none"]


def test_references_by_zipfs_law_go_to_rows_that_are_there():
    parent = pa.table({"a": [1, 1, 2, 2], "b": [1, 2, 1, 2]})
    rows = pa.table({"x": np.zeros(2000, np.int64), "y": np.zeros(2000, np.int64)})
    made = refer_by_zipf(rows, ("x", "y"), parent, ("a", "b"), 1.0, np.random.default_rng(0))
    pairs, counts = np.unique(np.column_stack([made["x"], made["y"]]), axis=0, return_counts=True)
    assert len(pairs) == 4
    assert np.allclose(np.sort(counts)[::-1] / 2000, np.array([12, 6, 4, 3]) / 25, atol=0.04)
