from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench_core.columns.exact_sums import LARGEST, cell_index, contingency, joined, total, weighted_sums, words
from privbench_core.errors import InternalError
from privbench_core.estimators.coarsening import merge_codes

SIZES = {"a": 3, "b": 4, "c": 2}


def random_codes(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, size, n).astype(np.int32) for name, size in SIZES.items()}


@pytest.mark.parametrize("columns", [["a"], ["b", "a"], ["a", "b", "c"]])
def test_counts_are_those_of_counting_rows_one_by_one(columns):
    codes = random_codes(200)
    weights = np.random.default_rng(1).integers(0, 1 << 20, 200)
    plain = np.zeros([SIZES[name] for name in columns], dtype=np.int64)
    weighted = plain.copy()
    for row in range(200):
        cell = tuple(codes[name][row] for name in columns)
        plain[cell] += 1
        weighted[cell] += weights[row]
    assert (contingency(codes, SIZES, columns) == plain).all()
    assert (contingency(codes, SIZES, columns, weights) == weighted).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32])
@pytest.mark.parametrize("sizes", [{"a": 7, "b": 200}, {"a": 256, "b": 256}])
def test_counts_block_by_block_are_exact_whatever_the_type_of_the_codes(dtype, sizes):
    rng = np.random.default_rng(4)
    n = 3 * (1 << 15) + 77  # over the borders of blocks
    codes = {name: rng.integers(0, size, n).astype(dtype) for name, size in sizes.items()}
    for weights in (None, rng.integers(0, (1 << 20) + 1, n), rng.integers(0, 1 << 30, n).astype(np.int32)):
        expected = np.zeros(tuple(sizes.values()), dtype=np.int64)
        np.add.at(expected, tuple(codes.values()), 1 if weights is None else weights)
        counted = contingency(codes, sizes, ["a", "b"], weights)
        assert counted.dtype == np.int64
        assert (counted == expected).all()


def test_cells_are_in_row_major_order_and_do_not_overflow_32_bits():
    codes = {name: np.array([99_999], dtype=np.int32) for name in "ab"}
    assert cell_index(codes, dict.fromkeys("ab", 100_000), ["a", "b"]).tolist() == [99_999 * 100_000 + 99_999]


def test_weights_beyond_what_a_float_adds_up_are_added_exactly():
    codes = {"a": np.zeros(3, dtype=np.int32)}
    assert contingency(codes, {"a": 1}, ["a"], np.array([1 << 52, 1 << 52, 1])).tolist() == [(1 << 53) + 1]


def test_merged_counts_are_those_of_merged_codes():
    codes, weights = random_codes(200), np.random.default_rng(1).integers(0, 1 << 20, 200)
    groups = {"a": np.array([0, 0, 0]), "b": np.array([2, 0, 1, 0]), "c": np.array([1, 0])}
    merged = {name: groups[name][codes[name]].astype(np.int32) for name in SIZES}
    for columns in (["a", "b", "c"], ["c", "b"], ["b"]):
        fine = contingency(codes, SIZES, columns, weights)
        coarse = contingency(merged, {"a": 1, "b": 3, "c": 2}, columns, weights)
        np.testing.assert_array_equal(merge_codes(fine, [groups[name] for name in columns]), coarse)


@pytest.mark.parametrize(
    "groups", [[[0, 1]], [[0, 1], [0, 1]], [[0, 1], [0, 1, 2, 3]], [[0, 1], [0, -1, 1]], [[[0, 0], [1, 1]], [0, 0, 0]]]
)
def test_every_code_has_exactly_one_group(groups):
    with pytest.raises(InternalError, match="one group"):
        merge_codes(np.ones((2, 3), dtype=np.int64), [np.array(group_of) for group_of in groups])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-(1 << 54), 1 << 54)), max_size=40))
def test_sums_per_cell_are_exact(rows):
    cells, weights = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    expected = [sum(weight for cell, weight in rows if cell == wanted) for wanted in range(3)]
    assert weighted_sums(cells, weights, 3).tolist() == expected


@given(st.lists(st.integers(0, LARGEST), max_size=10), st.sampled_from([12, 18, 31]))
def test_sums_of_words_are_exact_up_to_the_largest(numbers, bits):
    array = np.array(numbers, dtype=np.int64)
    assert total(array) == sum(numbers)
    low, high = words(array, bits)
    assert joined(low, high, bits).tolist() == numbers
    assert joined(low.sum(keepdims=True), high.sum(keepdims=True), bits).tolist() == [min(sum(numbers), LARGEST)]
