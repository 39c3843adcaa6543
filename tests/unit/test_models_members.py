"""Groups drawn from pair tables: who they resemble, and that nobody's place in the order shows."""

from __future__ import annotations

import numpy as np
import pytest

from privbench_core.groups.group_model import OWNER, GroupClass, GroupModel
from privbench_core.marginals.sampler import Rows
from privbench_core.units.row_count import UNIT_SIZE

SIZE = "#size"
A = np.array([0.5, 0.3, 0.2])
ALIKE = np.diag(A)  # all children of an owner have the same a
SPOUSES = np.array([[0.0, 0.5], [0.5, 0.0]])  # and different b, where they are two


def groups(sizes: list[int], owners: np.ndarray | None = None) -> Rows:
    """Rows of groups of these sizes in a random physical order, each with its size and a column of its owner."""
    owner = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes)).astype(np.int32)
    per_row = np.array(sizes)[owner]
    rows = Rows(len(owner), weights=1 / per_row)
    rows.add(OWNER, len(sizes), owner)
    rows.add(SIZE, 101, per_row.astype(np.int32))
    if owners is not None:
        rows.add("parent.x", 2, owners[owner].astype(np.int32))
    return rows


def one_class(group: GroupClass) -> GroupModel:
    return GroupModel(SIZE, (0,) * 101, (group,))


def drawn(model: GroupModel, rows: Rows) -> Rows:
    model.draw(rows, np.random.default_rng(0))
    return rows


@pytest.mark.parametrize("size", [2, 3, 9])
def test_children_of_an_owner_are_alike_where_the_pair_table_says_so(size: int) -> None:
    rows = drawn(one_class(GroupClass({"a": A}, between={("a", "a"): ALIKE})), groups([size] * 2000))
    seen = np.zeros((2000, 3), dtype=int)
    np.add.at(seen, (rows.codes[OWNER], rows.codes["a"]), 1)
    assert (seen.max(axis=1) == size).all()
    np.testing.assert_allclose((seen > 0).mean(axis=0), A, atol=0.01)


def test_no_place_in_the_order_shows() -> None:
    """Of the two b's of a couple, either may be in the row that stands first."""
    rows = drawn(one_class(GroupClass({"b": np.array([0.5, 0.5])}, between={("b", "b"): SPOUSES})), groups([2] * 4000))
    order = np.argsort(rows.codes[OWNER], kind="stable")
    pairs = rows.codes["b"][order].reshape(-1, 2)
    assert (pairs.sum(axis=1) == 1).all()
    assert abs(pairs[:, 0].mean() - 0.5) < 0.03


def test_members_follow_their_owner_within_and_across_columns() -> None:
    owners = np.arange(3000) % 2
    above = np.array([[0.45, 0.05, 0.0], [0.05, 0.25, 0.2]])
    within = np.array([[0.5, 0.0], [0.0, 0.3], [0.2, 0.0]])
    between = above.T @ (above / above.sum(axis=1, keepdims=True))  # siblings are alike by their owner alone
    one_way = {"a": above.sum(axis=0), "b": within.sum(axis=0)}
    group = GroupClass(one_way, {("a", "b"): within}, {("parent.x", "a"): above}, {("a", "a"): between})
    rows = drawn(one_class(group), groups([3] * 3000, owners))
    joint = np.zeros((2, 3))
    np.add.at(joint, (rows.codes["parent.x"], rows.codes["a"]), 1 / rows.n)
    np.testing.assert_allclose(joint, above, atol=0.01)
    assert ((rows.codes["a"] == 1) == (rows.codes["b"] == 1)).all()


def test_later_members_have_the_marginals_of_larger_groups() -> None:
    """Persons of couples are all of code 1, those who live alone of code 0: the second member is never of code 0."""
    by_size = np.zeros((101, 2))
    by_size[1, 0] = by_size[2, 1] = 0.5
    group = GroupClass({"a": np.array([0.5, 0.5])}, above={(SIZE, "a"): by_size})
    rows = drawn(one_class(group), groups([1, 2] * 1000))
    assert ((rows.codes[SIZE] == 2) == (rows.codes["a"] == 1)).all()


def test_groups_count_as_they_were_measured_whatever_the_rows_count() -> None:
    """As many groups of four as single rows: half of the groups are 1, and four in five of the rows."""
    group = GroupClass({"x": np.array([0.5, 0.5])}, above={("parent.x", "x"): np.diag([0.5, 0.5])})
    rows = groups([1] * 300 + [4] * 300, np.repeat([0, 1], 300))
    rows.weights = None
    rows.add(UNIT_SIZE, 2, rows.codes["parent.x"])
    rows.links = {(UNIT_SIZE, "x"): np.array([[0.0, 0.5], [0.5, 0.0]])}  # of all rows: the classes know better
    made = drawn(GroupModel(SIZE, (0,) * 101, (group,), (1, 2, 3, 4)), rows)
    np.testing.assert_array_equal(made.codes["x"], rows.codes["parent.x"])
    assert rows.weights is None
