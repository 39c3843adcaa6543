from __future__ import annotations

import numpy as np
import pytest

from privbench_core.estimators.coarsening import Candidates, Ends, coarsenings, noisy_cells


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


def test_neighbours_are_merged_into_groups_of_like_weight_and_what_is_common_stays_alone():
    found = by_number([*[10] * 8, 200, *[10] * 8], ordered=17)
    assert found[3].groups.tolist() == [0] * 8 + [1] + [2] * 8
    assert found[5].groups.tolist() == [0] * 4 + [1] * 4 + [2] + [3] * 4 + [4] * 4


def test_rare_values_of_a_list_share_the_last_group():
    found = by_number([500, 3, 400, 2, 5])
    assert found[3].groups.tolist() == [0, 2, 1, 2, 2]
    assert found[3].lost == pytest.approx(2 * 10 / 910)


def test_a_smooth_dependence_survives_merging_better_than_a_listed_one():
    even = np.full(64, 100.0)
    ordered, listed = (by_number(even, ordered) for ordered in (64, 0))
    assert ordered[16].lost == pytest.approx(4 / 16)
    assert set(listed) == {64}  # all are rare, or none


@pytest.mark.parametrize("counts", [[5.0], [0.0], [0.0, 0.0], [1.0, 0.0]])
def test_columns_of_hardly_a_code_are_left_as_they_are(counts):
    for ordered in (0, len(counts)):
        (only,) = coarsenings(np.array(counts), ordered)
        assert only.groups.tolist() == list(range(len(counts)))


def test_groups_are_smaller_towards_the_ends_and_lists_keep_what_is_frequent():
    shares = np.append(np.full(100, 0.008), [0.15, 0.03, 0.01, 0.01])
    ends = Ends.of(shares, 100, 6, 0.02)
    sizes = np.bincount(ends.groups)
    assert (np.diff(ends.groups[:100]) >= 0).all()
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[5] < sizes[4] < sizes[3]
    assert ends.groups[100:].tolist() == [6, 7, 8, 8]


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


@pytest.mark.parametrize("found", [[0.0, 1.0], [1.0, 0.0], [0.5, 0.5], [0.0, 0.0]])
def test_groups_whose_middles_are_next_to_each_other_are_no_cliff(found: list[float]):
    ends = Ends(np.array([0, 0, 1, 1]), np.array([1e-9, 0.5, 0.5, 1e-9]), np.array([-9.0, -1e-9, 1e-9, 9.0]))
    back = ends.spread(np.array(found))
    assert np.isfinite(back).all()
    np.testing.assert_allclose(np.bincount(ends.groups, back), found)


def test_a_column_of_one_code_and_of_none_in_order():
    assert Ends.of(np.ones(1), 1, 5, 0.1).spread(np.ones(1)).tolist() == [1.0]
    assert Ends.of(np.array([0.9, 0.1]), 0, 5, 0.2).groups.tolist() == [0, 1]


def test_codes_without_rows_at_an_end_are_in_its_group_however_little_noise_there_is():
    ends = Ends.of(np.array([0.0, 0.4, 0.3, 0.3, 0.0, 0.0]), 6, 10**6, 0.0)
    assert np.isfinite(ends.places).all()
    assert (np.diff(ends.groups) >= 0).all()
    assert len(set(ends.groups[1:4])) == 3


def test_cells_of_a_joint_are_those_that_low_rank_leaves_noise_in():
    assert noisy_cells(np.array([2.0]), np.array([2.0])) == pytest.approx([2.0])  # one free number over four cells
    wide = noisy_cells(np.array([50.0]), np.array([50.0]))
    assert wide == pytest.approx(np.sqrt(2500 * 97))  # of 49 · 49


WEAK = np.array([50.0, 50.0])
TWO = {"k": np.array([600.0, 390.0, 6.0, 4.0]), "x": np.full(40, 25.0)}


def numbers_of(candidates, pair):
    """How many groups of each column the ways to measure a pair have -> useful."""
    ways = [way for way in range(candidates.cells.shape[1]) if candidates.useful[pair, way] > 0]
    tables = [candidates.table(pair, way) for way in ways]
    return {
        (a.number, b.number): candidates.useful[pair, way]
        for way, (a, b) in zip(ways, (table.coarsenings for table in tables), strict=True)
    }


def test_a_table_says_how_both_columns_are_merged_and_what_is_left():
    candidates = Candidates.of([("k", "x"), ("x", "k")], WEAK, TWO, {"x": 40})
    useful = numbers_of(candidates, 0)
    assert {(4, 40), (3, 8), (4, 11)} <= set(useful)
    assert numbers_of(candidates, 1) == pytest.approx({size[::-1]: value for size, value in useful.items()})
    assert useful[4, 40] == max(useful.values()) == 50
    assert useful[4, 11] > useful[4, 8] > useful[3, 8]
    for way in range(candidates.cells.shape[1]):
        table = candidates.table(0, way) if candidates.useful[0, way] > 0 else candidates.table(0, 0)
        rows, columns = (np.array([float(coarsening.number)]) for coarsening in table.coarsenings)
        assert table.pair == ("k", "x")
        assert table.cells == pytest.approx(noisy_cells(rows, columns)[0])


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
