from __future__ import annotations

import numpy as np
import pytest

from privbench_core.models.candidates import Candidates, noisy_cells, unexplained


def test_cells_of_a_joint_are_those_that_low_rank_leaves_noise_in():
    assert noisy_cells(np.array([2.0]), np.array([2.0])) == pytest.approx([2.0])  # one free number over four cells
    wide = noisy_cells(np.array([50.0]), np.array([50.0]))
    assert wide == pytest.approx(np.sqrt(2500 * 1.5 * 98))  # of 49 · 49


def test_a_table_says_how_both_columns_are_merged_and_what_is_left():
    clean = {"k": np.array([600.0, 395.0, 5.0]), "x": np.full(40, 25.0)}
    candidates = Candidates.of([("k", "x"), ("x", "k")], clean, {"x": 40})
    ways = candidates.cells.shape[1]
    tables = [[candidates.table(pair, way) for way in range(ways) if candidates.kept[pair, way] > 0] for pair in (0, 1)]
    sizes = [{tuple(grain.number for grain in table.grains) for table in those} for those in tables]
    assert (3, 40) in sizes[0] and (2, 8) in sizes[0]
    assert sizes[1] == {size[::-1] for size in sizes[0]}
    for table in tables[0]:
        numbers = [np.array([float(grain.number)]) for grain in table.grains]
        assert table.cells == pytest.approx(noisy_cells(*numbers)[0])
        assert table.pair == ("k", "x")
    assert candidates.kept.max() == 1


CLEAN = {name: np.full(4, 250.0) for name in "abc"} | {"d": np.array([500.0, 500.0])}
PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("a", "d"), ("b", "d")]


def test_a_column_that_follows_another_is_left_to_it():
    left = unexplained(np.array([740.0, 200.0, 190.0, 5.0, 4.0]), PAIRS, CLEAN, 1000.0)
    assert left.tolist()[:2] == [740.0, 200.0] or left.tolist()[0::2][:2] == [740.0, 190.0]
    assert sorted(left.tolist())[2:] == pytest.approx([10.0, *sorted((740.0, left[1] if left[1] > 10 else left[2]))])
    assert left[3:].tolist() == [5.0, 4.0]


def test_without_such_columns_scores_stay_what_they_are():
    scores = np.array([300.0, 200.0, 190.0, 5.0, -4.0])
    np.testing.assert_array_equal(unexplained(scores, PAIRS, CLEAN, 1000.0), scores)


def test_columns_that_all_determine_each_other_are_all_measured():
    scores = np.array([740.0, 745.0, 735.0, 490.0, 485.0])
    np.testing.assert_array_equal(unexplained(scores, PAIRS, CLEAN, 1000.0), scores)
