"""Joints of parents' attributes and numbers of children, fitted to shares of the children."""

from __future__ import annotations

import numpy as np
import pytest

from privbench_core.estimators.fitting import row_shares, with_row_shares

SIZES = np.array([0.0, 1.0, 4.0, 30.0])
NUMBERS = np.array([0.5, 0.3, 0.15, 0.05])
PARENTS = np.array([0.6, 0.3, 0.1])


@pytest.mark.parametrize("shares", [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.9, 0.05, 0.05]])
def test_only_the_shares_of_the_children_change(shares: list[float]) -> None:
    found = with_row_shares(np.outer(PARENTS, NUMBERS), SIZES, np.array(shares))
    np.testing.assert_allclose(row_shares(found, SIZES), shares, atol=0.01)
    np.testing.assert_allclose(found.sum(axis=0), NUMBERS)
    np.testing.assert_allclose(found.sum(axis=1), PARENTS, atol=0.005)
    assert (found >= 0).all()


def test_parents_without_children_take_no_share() -> None:
    joint = np.outer(PARENTS, [1.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(with_row_shares(joint, SIZES, np.array([0.1, 0.1, 0.8])), joint)
