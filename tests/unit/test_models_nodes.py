from __future__ import annotations

import numpy as np
import pytest

from privbench_core.marginals.sampler import PairMarginal, Rows, draw_column
from privbench_core.marginals.spn import Leaf, Sum
from privbench_core.privacy.split_rules import ByValue
from tests.helpers.planted import joint_of, tvd


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_columns_that_say_the_same_leave_room_for_one_that_says_more():
    rows = Rows(4000)
    cells = np.arange(4000) % 4
    for copy in range(8):
        rows.add(f"p{copy}", 2, (cells // 2).astype(np.int32))
    rows.add("q", 2, (cells % 2).astype(np.int32))
    strong, weak = np.array([[0.4, 0.1], [0.1, 0.4]]), np.array([[0.3, 0.2], [0.2, 0.3]])
    pair_tables = [*(PairMarginal(f"p{copy}", strong) for copy in range(8)), PairMarginal("q", weak)]
    rows.add("t", 2, draw_column(rows, np.array([0.5, 0.5]), pair_tables, rng()))
    assert tvd(joint_of(rows.codes, rows.sizes, "t", "q"), weak) < 0.002
    assert tvd(joint_of(rows.codes, rows.sizes, "t", "p7"), strong) < 0.002


def test_weighted_rows_reproduce_the_weighted_joint():
    weights = np.where(np.arange(8000) % 4 == 0, 1.0, 0.25)
    rows = Rows(8000, weights=weights)
    rows.add("p", 2, (np.arange(8000) % 4 == 0).astype(np.int32))
    share = weights[rows.codes["p"] == 1].sum() / weights.sum()
    joint = np.array([[0.9 * (1 - share), 0.2 * share], [0.1 * (1 - share), 0.8 * share]])
    drawn = draw_column(rows, joint.sum(axis=1), [PairMarginal("p", joint)], rng())
    for value in (0, 1):
        inside = drawn[rows.codes["p"] == value].mean()
        assert inside == pytest.approx(joint[1, value] / joint[:, value].sum(), abs=0.01)


def mixture() -> Sum:
    """Part 0 holds a = 0 and mostly b = 0, part 1 holds a = 1 and mostly b = 1; c is the same in both."""
    parts = [
        Leaf(total, {"a": np.eye(2)[i], "b": np.array([0.9, 0.1])[:: 1 - 2 * i], "c": np.array([0.4, 0.6])})
        for i, total in enumerate((300.0, 100.0))
    ]
    return Sum(ByValue("a", (0, 1)), tuple(parts))


def test_a_tie_to_a_column_keeps_what_the_parts_say_about_it():
    """The table holds for all parts together: in a part it may shift the odds, not replace the part's marginal."""
    rows = Rows(40_000)
    rows.add("parent.p", 2, np.tile([0, 1], 20_000).astype(np.int32))
    b_of_p = np.array([[0.38, 0.12], [0.32, 0.18]])  # b is 0 for 70%, and weakly tied
    rows.links = {("parent.p", "b"): b_of_p}
    mixture().draw(rows, rng())
    expected = np.array([[0.75 * 0.9, 0.75 * 0.1], [0.25 * 0.1, 0.25 * 0.9]])
    assert tvd(joint_of(rows.codes, rows.sizes, "a", "b"), expected) < 0.02
    found = joint_of(rows.codes, rows.sizes, "parent.p", "b")
    assert tvd(found, b_of_p) < 0.04  # 0.06 if the pair table were ignored
    assert found[0, 0] - found[1, 0] > 0.02


CODES, N = 10, 20_000


def agreeing(share: float) -> np.ndarray:
    """Joint of two columns that are equal in this share of the rows."""
    joint = np.full((CODES, CODES), (1 - share) / CODES / (CODES - 1))
    np.fill_diagonal(joint, share / CODES)
    return joint


def test_of_tables_that_contradict_each_other_the_one_that_tells_most_holds() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, CODES, N).astype(np.int32)
    rows = Rows(N, {"one": codes, "same": codes, "other": rng.integers(0, CODES, N).astype(np.int32)})
    rows.sizes = dict.fromkeys(rows.codes, CODES)
    tables = [
        PairMarginal("same", agreeing(0.6)),
        PairMarginal("other", agreeing(0.2)),
        PairMarginal("one", agreeing(0.9)),
    ]
    drawn = draw_column(rows, np.full(CODES, 1 / CODES), tables, rng)
    assert abs(float((drawn == codes).mean()) - 0.9) < 0.01
