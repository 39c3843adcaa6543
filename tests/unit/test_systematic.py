from __future__ import annotations

import numpy as np
import pytest

from privbench_core.columns import systematic
from privbench_core.columns.systematic import distribute, stable_order, systematic_counts


@pytest.mark.parametrize("highest", [1, 255, 65_535, 65_536, 1 << 33])
def test_sorting_digit_by_digit_is_a_stable_sort(highest):
    numbers = np.random.default_rng(0).integers(0, highest + 1, 5000)
    numbers[::3] = numbers[0]
    assert (stable_order(numbers) == np.argsort(numbers, kind="stable")).all()


@pytest.fixture(params=["one sort", "a permutation"])
def _either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of rows and groups that leave enough random bits, and those that do not."""
    if request.param == "a permutation":
        monkeypatch.setattr(systematic, "RANDOM_BITS", 64)


@pytest.mark.usefixtures("_either_way")
def test_every_value_is_allocated_as_often_as_whole_rows_can_and_only_inside_of_its_group():
    rng = np.random.default_rng(1)
    weights = rng.random((50, 9)) * (rng.random((50, 9)) > 0.4) + np.eye(50, 9) * 1e-3
    weights[:, 0] += 0.1
    shares = weights / weights.sum(axis=1, keepdims=True)
    groups = rng.integers(0, 50, 20_000)
    counts = np.bincount(groups, minlength=50)
    numbers = systematic_counts(np.cumsum(shares, axis=1).ravel(), np.repeat(np.arange(50), 9), counts, rng)
    allocated = distribute(np.tile(np.arange(9), 50), numbers, groups, rng)
    found = np.zeros((50, 9), dtype=np.int64)
    np.add.at(found, (groups, allocated), 1)
    assert (found == numbers.reshape(50, 9)).all()
    assert (found.sum(axis=1) == counts).all()
    assert (np.abs(found - shares * counts[:, None]) < 1 + 1e-6).all()
    assert not found[shares == 0].any()


@pytest.mark.usefixtures("_either_way")
def test_which_row_of_a_group_gets_what_does_not_depend_on_its_place():
    rng = np.random.default_rng(2)
    groups = np.repeat([0, 1], [6, 4])
    first = np.zeros((10, 2))
    for _ in range(4000):
        for where, labels in ((slice(None), groups), (slice(0, 6), None)):
            values = np.array([0, 1, 0, 1]) if labels is not None else np.array([0, 1])
            numbers = np.array([3, 3, 1, 3]) if labels is not None else np.array([3, 3])
            first[where, 0 if labels is not None else 1] += distribute(values, numbers, labels, rng)
    assert np.abs(first[:, 0] / 4000 - np.repeat([0.5, 0.75], [6, 4])).max() < 0.04  # five standard deviations
    assert np.abs(first[:6, 1] / 4000 - 0.5).max() < 0.04
