"""Distances between marginals: against values worked out by hand, and dense against sparse counting."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import log

import numpy as np
import pytest

from privbench_core.errors import InternalError
from privbench_core.evaluation.marginals import column_subsets, mean_distances, subset_distances
from tests.helpers.marginals import marginal_distances


def test_tvd_of_a_hand_counted_pair() -> None:
    a = np.array([[0, 0], [0, 1], [1, 1], [1, 1]])
    b = np.array([[0, 0], [1, 1]])
    assert marginal_distances(a, b, (0, 1), (2, 2)).tvd == pytest.approx(
        0.25
    )  # (.25, .25, 0, .5) against (.5, 0, 0, .5)
    assert marginal_distances(a, b, (0,), (2, 2)).tvd == 0


def test_kld_is_of_the_original_from_the_synthetic_table() -> None:
    a, b = np.array([[0], [0], [0], [1]]), np.array([[0], [1]])
    expected = 0.75 * log(0.75 / 0.5) + 0.25 * log(0.25 / 0.5)
    assert marginal_distances(a, b, (0,), (2,)).kld == pytest.approx(expected, abs=1e-8)
    assert marginal_distances(b, a, (0,), (2,)).kld != pytest.approx(expected, abs=1e-3)


def test_kld_stays_finite_for_a_value_that_the_synthetic_table_lacks() -> None:
    a, b = np.array([[0], [1]]), np.array([[0], [0]])
    assert marginal_distances(a, b, (0,), (2,)).kld == pytest.approx(0.5 * log(0.5) + 0.5 * log(0.5 / 1e-10), rel=1e-6)


def test_cells_that_do_not_occur_change_nothing() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 7, (500, 3)), rng.integers(0, 7, (300, 3))
    dense = marginal_distances(a, b, (0, 1, 2), (7, 7, 7))
    sparse = marginal_distances(a, b, (0, 1, 2), (7000, 7000, 7000))
    assert (sparse.tvd, sparse.kld) == pytest.approx((dense.tvd, dense.kld))


def test_marginals_counted_after_each_other_are_those_counted_alone() -> None:
    """What neighbours share is kept, across all kinds of counting and of numbers."""
    rng = np.random.default_rng(2)
    sizes = (3, 40, 2**31, 5, 2**31, 2**20)
    a, b = (np.stack([rng.integers(0, min(size, 50), rows) for size in sizes], axis=1) for rows in (400, 300))
    subsets = [(0,), (0, 1), (0, 1, 2), (0, 1, 3), (0, 2, 4), (0, 2, 4, 5), (1, 3), (1, 2, 3, 4, 5), (3,), (2, 4, 5)]
    for subset, found in zip(subsets, subset_distances(a, b, sizes, subsets), strict=True):
        rows = [list(map(tuple, table[:, list(subset)].tolist())) for table in (a, b)]
        shares = [Counter(each) for each in rows]
        lost = sum(max(0.0, n / 400 - shares[1][cell] / 300) for cell, n in shares[0].items())
        assert found.tvd == pytest.approx(lost)


def test_two_empty_tables_of_a_large_domain_agree() -> None:
    empty = np.zeros((0, 2), int)
    assert marginal_distances(empty, empty, (0, 1), (2**20, 2**20)).tvd == 0


def test_a_product_of_sizes_beyond_64_bits_does_not_overflow() -> None:
    size = 2**31
    a = np.array([[size - 1] * 4, [0] * 4, [size - 1, 0, 0, 0]])
    assert marginal_distances(a, a[:1], (0, 1, 2, 3), (size,) * 4).tvd == pytest.approx(2 / 3)


@pytest.mark.parametrize(("rows_a", "rows_b", "distance"), [(0, 0, 0), (0, 3, 1), (3, 0, 1)])
def test_empty_tables(rows_a: int, rows_b: int, distance: float) -> None:
    assert marginal_distances(np.zeros((rows_a, 2), int), np.zeros((rows_b, 2), int), (0, 1), (2, 2)).tvd == distance


def test_codes_outside_of_the_domain_are_our_bug() -> None:
    with pytest.raises(InternalError, match="column 1"):
        marginal_distances(np.array([[0, 2]]), np.array([[0, 0]]), (0, 1), (2, 2))


def test_means_are_over_all_marginals_or_the_given_ones() -> None:
    rng = np.random.default_rng(2)
    a, b, sizes = rng.integers(0, 3, (200, 4)), rng.integers(0, 3, (200, 4)), (3,) * 4
    pairs = [marginal_distances(a, b, s, sizes).tvd for s in combinations(range(4), 2)]
    assert mean_distances(a, b, sizes, column_subsets(4, 2)).tvd == pytest.approx(np.mean(pairs))
    some = column_subsets(4, 2, limit=3, seed=5)
    klds = [marginal_distances(a, b, s, sizes).kld for s in some.subsets]
    assert mean_distances(a, b, sizes, some).kld == pytest.approx(np.mean(klds))
    assert mean_distances(a[:, :1], b[:, :1], (3,), column_subsets(1, 2)) is None


def test_both_means_come_from_one_count() -> None:
    rng = np.random.default_rng(6)
    a, b, sizes = rng.integers(0, 9, (300, 5)), rng.integers(0, 9, (200, 5)), (9, 9, 2**40, 9, 2**40)
    for order in (1, 4, 5):
        both = mean_distances(a, b, sizes, column_subsets(5, order))
        each = [marginal_distances(a, b, s, sizes) for s in combinations(range(5), order)]
        assert both.tvd == pytest.approx(np.mean([d.tvd for d in each]))
        assert both.kld == pytest.approx(np.mean([d.kld for d in each]))


def test_sampled_subsets_are_distinct_seeded_and_say_so() -> None:
    some = column_subsets(15, 3, limit=200, seed=3)
    assert len(set(some.subsets)) == 200
    assert set(some.subsets) <= set(combinations(range(15), 3))
    assert some == column_subsets(15, 3, limit=200, seed=3) != column_subsets(15, 3, limit=200, seed=4)
    assert str(some) == "200 of 455 3-way marginals (seed 3)"
    assert str(column_subsets(15, 2, limit=200)) == "all 105 2-way marginals"


def test_every_rank_gives_its_subset() -> None:
    sampled = column_subsets(6, 3, limit=19, seed=0).subsets
    everything = list(combinations(range(6), 3))
    assert list(sampled) == [s for s in everything if s in set(sampled)]
    with pytest.raises(InternalError, match="at least one column"):
        column_subsets(3, 0)
