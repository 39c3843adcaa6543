from __future__ import annotations

import numpy as np

from privbench_core.marginals.record_swapping import TargetTable, swap
from privbench_core.marginals.sampler import Rows
from privbench_core.marginals.spn import swap_to_fit
from tests.helpers.planted import joint_of, tvd

SIZES = {"a": 4, "b": 5, "c": 3}


def drawn(n: int, seed: int = 0, weights=None) -> Rows:
    """Independent columns, all of them drawn already."""
    rng = np.random.default_rng(seed)
    codes = {name: rng.integers(0, size, n).astype(np.int32) for name, size in SIZES.items()}
    return Rows(n, codes, dict(SIZES), weights)


def dependent(seed: int = 1):
    """Joints of all pairs of columns that go together."""
    rng = np.random.default_rng(seed)
    codes = {"a": rng.integers(0, 4, 50_000).astype(np.int32)}
    codes["b"] = np.where(rng.random(50_000) < 0.6, codes["a"], rng.integers(0, 5, 50_000)).astype(np.int32)
    codes["c"] = ((codes["a"] + codes["b"]) % 3).astype(np.int32)
    return {pair: joint_of(codes, SIZES, *pair) for pair in (("a", "b"), ("a", "c"), ("b", "c"))}


def gap(rows: Rows, tables) -> float:
    return sum(tvd(joint_of(rows.codes, SIZES, *pair), table) for pair, table in tables.items())


def test_rows_come_closer_to_all_tables_and_keep_their_marginals():
    rows, tables = drawn(20_000), dependent()
    before = gap(rows, tables)
    counts = {name: np.bincount(codes) for name, codes in rows.codes.items()}
    swap_to_fit(rows, ["a", "b", "c"], tables.items(), np.random.default_rng(0))
    assert gap(rows, tables) < 0.6 * before
    for name, codes in rows.codes.items():
        np.testing.assert_array_equal(np.bincount(codes), counts[name])


def test_context_stays_as_it_is():
    rows, tables = drawn(5_000), dependent()
    context = rows.codes["a"].copy()
    before = tvd(joint_of(rows.codes, SIZES, "a", "b"), tables["a", "b"])
    swap_to_fit(rows, ["b"], [(("a", "b"), tables["a", "b"])], np.random.default_rng(0))
    np.testing.assert_array_equal(rows.codes["a"], context)
    assert tvd(joint_of(rows.codes, SIZES, "a", "b"), tables["a", "b"]) < 0.6 * before


def test_rows_that_weigh_differently_are_compared_by_weight():
    weights = np.where(np.arange(10_000) % 2 == 0, 1.0, 0.25)
    rows, tables = drawn(10_000, weights=weights), dependent()

    def weighted() -> float:
        cells = rows.codes["a"] * 5 + rows.codes["b"]
        found = np.bincount(cells, weights, 20).reshape(4, 5) / weights.sum()
        return tvd(found, tables["a", "b"])

    before = weighted()
    swap_to_fit(rows, ["a", "b"], [(("a", "b"), tables["a", "b"])], np.random.default_rng(0))
    assert weighted() < 0.6 * before


N = 4_000


def distance(first, second, counts) -> float:
    found = np.bincount(first.astype(int) * counts.shape[1] + second, minlength=counts.size)
    return float(np.abs(found - counts.ravel()).sum() / 2)


def two_columns(seed: int = 0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(0, size, N).astype(np.uint8) for name, size in (("a", 6), ("b", 5))}


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
    codes = two_columns()
    within = {"a": np.random.default_rng(3).integers(0, 7, N).astype(np.uint8)}
    before = np.bincount(within["a"].astype(int) * 6 + codes["a"], minlength=42)
    wanted = np.outer(np.bincount(codes["a"]), np.bincount(codes["b"])) / N
    off = distance(codes["a"], codes["b"], wanted)
    swap(codes, [TargetTable(("a", "b"), wanted)], ["a"], np.random.default_rng(4), sweeps=1, within=within)
    np.testing.assert_array_equal(np.bincount(within["a"].astype(int) * 6 + codes["a"], minlength=42), before)
    assert distance(codes["a"], codes["b"], wanted) < 0.8 * off
