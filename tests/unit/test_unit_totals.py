"""Units get as many rows as was released, where a unit owns several parents: alike ones exchange their numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.models.row_count import RowCount, powers_up_to, size_classes
from privbench_core.sampling.unit_totals import exchanged_between_units
from tests.helpers.heavy_tails import zipf_sizes

UNITS, MOST = 3000, 1 << 14
Numbers = NDArray[np.int64]


def accounts(seed: int) -> tuple[Numbers, Numbers, Numbers]:
    """The unit of each account, its kind, and its number of payments: all accounts of a unit have few, or many."""
    rng = np.random.default_rng(seed)
    units = np.repeat(np.arange(UNITS), zipf_sizes(rng, UNITS, most=20, power=1.2))
    busy = rng.random(UNITS) < 0.15
    payments = zipf_sizes(rng, len(units), most=40, power=1.8) * np.where(busy[units], 8, 1)
    return units, rng.integers(0, 3, len(units)), payments


def released(totals: Numbers) -> RowCount:
    """Exact numbers of units, and of rows, by class."""
    classes = powers_up_to(MOST)
    place = size_classes(totals[totals > 0], classes)
    last = int(place.max()) + 1
    units, rows = np.bincount(place, minlength=last), np.bincount(place, totals[totals > 0], last)
    return RowCount(float(totals.sum()), 1.0, 1, tuple(classes[:last]), rows, units.astype(float), MOST)


def shuffled_inside(kinds: Numbers, numbers: Numbers, rng: np.random.Generator) -> Numbers:
    """The same numbers, exchanged between accounts of the same kind."""
    result = numbers.copy()
    for kind in np.unique(kinds):
        index = np.flatnonzero(kinds == kind)
        result[index] = rng.permutation(numbers[index])
    return result


def misfit(totals: Numbers, wanted: Numbers) -> float:
    """The share of all rows that would have to move for units to have the wanted totals, whichever unit has which."""
    return float(np.abs(np.sort(totals) - np.sort(wanted)).sum() / 2 / wanted.sum())


def test_units_get_the_released_totals_and_kinds_keep_their_numbers() -> None:
    units, kinds, payments = accounts(0)
    rng = np.random.default_rng(1)
    true = np.bincount(units, payments).astype(np.int64)
    before = shuffled_inside(kinds, payments, rng)
    after = exchanged_between_units(before, kinds, units, released(true), 0.0, rng)
    assert misfit(np.bincount(units, before), true) > 0.12
    assert misfit(np.bincount(units, after), true) < 0.02
    for kind in range(3):
        assert np.sort(after[kinds == kind]).tolist() == np.sort(before[kinds == kind]).tolist()


def test_children_without_an_owner_are_units_that_own_no_parent() -> None:
    units, kinds, payments = accounts(2)
    rng = np.random.default_rng(3)
    true = np.bincount(units, payments).astype(np.int64)
    before = shuffled_inside(kinds, payments, rng)
    alone = 5000
    size = released(np.append(true, np.ones(alone, dtype=np.int64)))
    after = exchanged_between_units(before, kinds, units, size, float(alone), rng)
    assert misfit(np.bincount(units, after), true) < 0.02


def test_parents_that_nobody_is_like_keep_their_numbers() -> None:
    units, _, payments = accounts(4)
    size = released(np.bincount(units, payments).astype(np.int64))
    alone = np.arange(len(units))
    found = exchanged_between_units(payments[::-1].copy(), alone, units, size, 0.0, np.random.default_rng(0))
    assert found.tolist() == payments[::-1].tolist()


def test_half_as_many_units_get_half_as_many_of_each_class() -> None:
    units, kinds, payments = accounts(5)
    rng = np.random.default_rng(6)
    size = released(np.bincount(units, payments).astype(np.int64))
    here = units % 2 == 0
    some, true = units[here] // 2, np.bincount(units[here] // 2, payments[here]).astype(np.int64)
    after = exchanged_between_units(
        shuffled_inside(kinds[here], payments[here], rng), kinds[here], some, size, 0.0, rng
    )
    assert misfit(np.bincount(some, after), true) < 0.04
