"""However many rows there are: answers stay exact, nothing wraps around, nothing fails, and memory stays bounded."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from privbench_core.columns.exact_sums import LARGEST
from privbench_core.privacy.permutations import PERMUTATION_SCALE, Groups, tuple_counts
from privbench_core.privacy.queries import CentreSums, Distances, Marginal, SignProducts
from privbench_core.privacy.split_rules import Centres
from privbench_core.privacy.views import CodedView, HeldRows

CENTRES = Centres((("a", "ordered"), ("a", "list")), (3, 3), (((0.0, 0.5, 1.0), (0.0, 1.0, 1.0)),) * 1)


def weighty(rows: int, unit: int, seed: int = 0) -> CodedView:
    """A view whose rows all weigh close to ``unit``: few rows stand for very many."""
    rng = np.random.default_rng(seed)
    codes = {"a": rng.integers(0, 3, rows).astype(np.uint8)}
    return CodedView(HeldRows(codes, {"a": 3}, unit - rng.integers(0, 9, rows), rows), {"a": 3}, unit, unit, 1)


def test_cluster_sums_are_exact_beyond_what_a_float_holds() -> None:
    view = weighty(1000, 1 << 36)
    assert view.data.held().rows * view.weight_scale * CentreSums.GRID > 1 << 53
    assert view.data.held().weights is not None
    rows = list(zip(view.codes["a"].tolist(), view.data.held().weights.tolist(), strict=True))
    expected = [256 * sum(weight for _, weight in rows), sum(128 * (code - 1) * weight for code, weight in rows)]
    expected += [256 * sum(weight for code, weight in rows if code == wanted) for wanted in range(3)]
    assert CentreSums(CENTRES).evaluate(view).tolist() == [expected]


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("share", [PERMUTATION_SCALE, 1 << 59, 1 << 61])
def test_tuples_of_very_many_groups_are_exact_or_stop_at_the_largest(members: int, share: int) -> None:
    sizes = [3, 5, 1, 4] * 2
    owner = np.repeat(np.arange(len(sizes)), sizes)
    groups = Groups(owner, np.array(sizes)[owner], np.full(len(owner), share))
    codes = [(np.zeros(len(owner), dtype=np.int64), 1)] * members
    tuples = {1: lambda s: s, 2: lambda s: s * (s - 1), 3: lambda s: s * (s - 1) * (s - 2)}[members]
    per_group = [tuples(s) * int(w) for s, w in zip(sizes, groups.weights(members)[groups.ends[:-1]], strict=True)]
    assert tuple_counts(codes, groups).item() == min(sum(per_group), LARGEST)


def test_merged_codes_and_totals_stop_at_the_largest() -> None:
    owner = np.arange(8)
    groups = Groups(owner, np.ones(8, dtype=np.int64), np.full(8, 1 << 61))
    codes = {"a": np.tile(np.array([0, 1], dtype=np.uint8), 4)}
    held = HeldRows(codes, {"a": 2}, groups.weights(1), 8, {"b": 1}, groups)
    view = CodedView(held, {"a": 2}, 1 << 61, 1 << 61, 1)
    assert view.counts(("a",)).tolist() == [LARGEST, LARGEST]
    assert Marginal(("a",), (np.array([0, 0]),)).evaluate(view).tolist() == [LARGEST]
    assert Marginal(()).evaluate(view).item() == LARGEST


def test_sums_of_signs_do_not_wrap_around() -> None:
    owner = np.arange(8)
    groups = Groups(owner, np.ones(8, dtype=np.int64), np.full(8, 1 << 61))
    codes = {"a": np.tile(np.array([0, 1], dtype=np.uint8), 4)}
    held = HeldRows(codes, {"a": 2}, groups.weights(1), 8, {"b": 1}, groups)
    view = CodedView(held, {"a": 2}, 1 << 61, 1 << 61, 1)
    for signs, expected in (([1, 1], LARGEST), ([-1, -1], -LARGEST), ([1, -1], 0), ([0, -1], -LARGEST)):
        assert SignProducts({"a": np.array(signs)}, (("a",),)).evaluate(view).tolist() == [expected]


@pytest.mark.parametrize("reference", [2.0**26, 2.0**27, -(2.0**27), 1e9, -1e12, 1e300, np.inf])
def test_distances_to_large_references_do_not_wrap_around(reference: float) -> None:
    view = replace(weighty(6, PERMUTATION_SCALE), stability=PERMUTATION_SCALE)
    assert view.data.held().weights is not None
    smaller = view.take(np.arange(6) > 0)
    for groups in ((((("a",), np.full(3, reference)),),), (((("a",), np.array([reference, 0.0, 1.0])),) * 4,)):
        query = Distances(groups)
        one, other = (int(query.evaluate(each)[0]) for each in (view, smaller))
        assert abs(one - other) <= len(groups[0]) * view.stability
        assert max(one, other) <= LARGEST
        assert one >= min(abs(reference) * view.weight_scale, float(LARGEST)) * 0.99


def test_the_pairs_of_one_large_group_take_little_memory() -> None:
    rows = 5_000  # 25 million pairs
    rng = np.random.default_rng(0)
    groups = Groups(np.zeros(rows, dtype=np.int64), np.full(rows, rows), np.full(rows, PERMUTATION_SCALE))
    first, second = rng.integers(0, 4, rows), rng.integers(0, 3, rows)
    tracemalloc.start()
    counted = tuple_counts([(first, 4), (second, 3)], groups)
    triples = tuple_counts([(first, 4), (second, 3), (first, 4)], groups)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000
    pairs = np.outer(np.bincount(first), np.bincount(second))
    np.add.at(pairs, (first, second), -1)
    np.testing.assert_array_equal(counted, pairs * (PERMUTATION_SCALE // rows // (rows - 1)))
    assert triples.sum() == rows * (rows - 1) * (rows - 2) * int(groups.weights(3)[0])
