from __future__ import annotations

import numpy as np
import pytest

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


@pytest.mark.parametrize("n", [0, 1, 50])
def test_few_rows_are_left_alone(n):
    rows = drawn(n)
    before = {name: codes.copy() for name, codes in rows.codes.items()}
    swap_to_fit(rows, ["a", "b", "c"], dependent().items(), np.random.default_rng(0))
    assert all((rows.codes[name] == codes).all() for name, codes in before.items())


def test_the_seed_decides_everything():
    results = []
    for seed in (3, 3, 4):
        rows = drawn(2_000)
        swap_to_fit(rows, ["a", "b", "c"], dependent().items(), np.random.default_rng(seed))
        results.append(np.stack(list(rows.codes.values())))
    assert (results[0] == results[1]).all()
    assert (results[0] != results[2]).any()
