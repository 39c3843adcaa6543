from __future__ import annotations

import numpy as np

from privbench_core.marginals.record_swapping import TargetTable, swap

N = 4_000


def distance(first, second, counts) -> float:
    found = np.bincount(first.astype(int) * counts.shape[1] + second, minlength=counts.size)
    return float(np.abs(found - counts.ravel()).sum() / 2)


def drawn(seed: int = 0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, size, N).astype(np.uint8) for name, size in (("a", 6), ("b", 5))}


def margins_of(codes) -> tuple[list[int], list[int]]:
    return np.bincount(codes["a"]).tolist(), np.bincount(codes["b"]).tolist()


def test_chance_is_taken_out_of_a_table():
    codes = drawn()
    first, second = (np.bincount(codes[name]) for name in "ab")
    wanted = np.outer(first, second) / N
    before, margins = distance(codes["a"], codes["b"], wanted), margins_of(codes)
    swap(codes, [TargetTable(("a", "b"), wanted)], ["a", "b"], np.random.default_rng(1), sweeps=3)
    assert distance(codes["a"], codes["b"], wanted) < 0.3 * before
    assert margins_of(codes) == margins


def test_many_exchanges_for_one_small_gap_do_not_overshoot():
    rng = np.random.default_rng(2)
    codes = {"a": rng.integers(0, 8, 20_000).astype(np.uint8)}
    codes["b"] = codes["a"].copy()
    wanted = np.diag(np.bincount(codes["a"]) - 8 * 5.0) + 5
    before = distance(codes["a"], codes["b"], wanted)
    swap(codes, [TargetTable(("a", "b"), wanted)], ["a"], rng, sweeps=1)
    assert distance(codes["a"], codes["b"], wanted) < 0.8 * before
    found = np.bincount(codes["a"].astype(int) * 8 + codes["b"], minlength=64).reshape(8, 8)
    assert found[~np.eye(8, dtype=bool)].max() <= 15


def test_only_rows_that_are_alike_exchange():
    codes = drawn()
    within = {"a": np.random.default_rng(3).integers(0, 7, N).astype(np.uint8)}
    before = np.bincount(within["a"].astype(int) * 6 + codes["a"], minlength=42)
    wanted = np.outer(np.bincount(codes["a"]), np.bincount(codes["b"])) / N
    off = distance(codes["a"], codes["b"], wanted)
    swap(codes, [TargetTable(("a", "b"), wanted)], ["a"], np.random.default_rng(4), sweeps=1, within=within)
    np.testing.assert_array_equal(np.bincount(within["a"].astype(int) * 6 + codes["a"], minlength=42), before)
    assert distance(codes["a"], codes["b"], wanted) < 0.8 * off


def test_columns_that_may_not_change_do_not():
    codes = drawn()
    context = codes["b"].copy()
    wanted = np.outer(np.bincount(codes["a"]), np.bincount(codes["b"])) / N
    swap(codes, [TargetTable(("a", "b"), wanted)], ["a"], np.random.default_rng(5), sweeps=1)
    np.testing.assert_array_equal(codes["b"], context)
