from __future__ import annotations

import numpy as np
import pytest

from privbench_core.estimators.candidates import Candidates, noisy_cells


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
