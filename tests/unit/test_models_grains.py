from __future__ import annotations

import numpy as np
import pytest

from privbench_core.estimators.coarsening import Candidates, Ends, coarsenings


def by_number(counts, ordered=0):
    return {coarsening.number: coarsening for coarsening in coarsenings(np.array(counts, dtype=float), ordered)}


@pytest.mark.parametrize("ordered", [0, 1, 7, 12])
@pytest.mark.parametrize("seed", range(5))
def test_each_way_merges_fewer_codes_and_loses_less_than_the_one_before(ordered, seed):
    counts = np.random.default_rng(seed).gamma(0.3, 1000, 12)
    found = coarsenings(counts, ordered)
    assert [coarsening.number for coarsening in found] == sorted({coarsening.number for coarsening in found})
    for coarsening in found:
        assert set(coarsening.groups.tolist()) == set(range(coarsening.number))
        assert (np.diff(coarsening.groups[:ordered]) >= 0).all()  # groups of an ordered column are intervals
        assert not set(coarsening.groups[:ordered].tolist()) & set(
            coarsening.groups[ordered:].tolist()
        )  # NULL joins no interval
    assert [coarsening.lost for coarsening in found] == sorted((coarsening.lost for coarsening in found), reverse=True)
    assert found[-1].number == 12
    assert found[-1].lost == 0
    np.testing.assert_array_equal(found[-1].groups, np.arange(12))


def test_a_smooth_dependence_survives_merging_better_than_a_listed_one():
    even = np.full(64, 100.0)
    ordered, listed = (by_number(even, ordered) for ordered in (64, 0))
    assert ordered[16].lost == pytest.approx(4 / 16)
    assert set(listed) == {64}  # all are rare, or none


def test_codes_of_a_group_follow_the_slope_between_groups():
    """Popularity that doubles with every code comes back by code, from a few groups of them."""
    shares = 0.5 ** np.arange(1, 13)
    found = np.full(12, 1 / 12)  # each code is twice as popular as the one before
    ends = Ends.of(shares / shares.sum(), 12, 4, 1e-3)
    assert ends.groups[-1] < 5
    back = ends.spread(np.bincount(ends.groups, found))
    assert back.sum() == pytest.approx(1)
    assert np.abs(back - found).sum() / 2 < 0.12
    flat = (np.bincount(ends.groups, found) / ends.of_groups)[ends.groups] * ends.shares
    assert np.abs(flat - found).sum() / 2 > 0.25


TWO = {"k": np.array([600.0, 390.0, 6.0, 4.0]), "x": np.full(40, 25.0)}


def numbers_of(candidates, pair):
    """How many groups of each column the ways to measure a pair have -> useful."""
    ways = [way for way in range(candidates.cells.shape[1]) if candidates.useful[pair, way] > 0]
    tables = [candidates.table(pair, way) for way in ways]
    return {
        (a.number, b.number): candidates.useful[pair, way]
        for way, (a, b) in zip(ways, (table.coarsenings for table in tables), strict=True)
    }


def test_merging_loses_more_of_a_strong_dependence():
    def kept(score: float, size: tuple[int, int]) -> float:
        candidates = Candidates.of([("k", "x")], np.array([score]), TWO, {"x": 40})
        return numbers_of(candidates, 0).get(size, 0.0) / score

    assert kept(10.0, (4, 11)) > kept(50.0, (4, 11)) > kept(400.0, (4, 11)) == 0
    assert kept(400.0, (4, 40)) == 1


def test_neighbours_may_be_merged_however_strongly_two_ordered_columns_depend_on_each_other():
    clean = {"k": np.full(40, 25.0), "x": np.full(40, 25.0)}
    pairs, strong = [("k", "x")], np.array([600.0])
    by_order = numbers_of(Candidates.of(pairs, strong, clean, {"k": 40, "x": 40}), 0)
    with_list = numbers_of(Candidates.of(pairs, strong, clean, {"x": 40}), 0)
    coarse = min(by_order, key=lambda numbers: numbers[0] * numbers[1])
    assert coarse not in with_list
    assert by_order[8, 8] > 0.2 * strong[0]
