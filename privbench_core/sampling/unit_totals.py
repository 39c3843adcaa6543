"""Exchange numbers of children so that units have as many rows as was released, where a unit owns several parents.

Who has many accounts with few payments, and who few with many, does not follow from the columns of an account. The
released numbers of units by their number of rows say it: numbers of children are exchanged between parents that are
alike in all that numbers follow until units fit. So no other released figure changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.models.row_count import RowCount

Numbers = NDArray[np.int64]
_ROUNDS = 200  # at most; each exchanges one number of a unit, and changes are small long before
_PATIENCE = 8  # rounds without a change after which none is expected
_GOOD = 0.001  # of all rows: what may stay where it is not wanted
_STEEPEST = 20.0  # power of a share within a class
_NOTHING = 1e-300


def exchanged_between_units(
    numbers: Numbers, alike: Numbers, units: Numbers, size: RowCount, alone: float, rng: np.random.Generator
) -> Numbers:
    """Return the same numbers of children, exchanged between alike parents of different units; shape (parents,).

    The unit with the most rows wants as many as the largest one has by the released numbers, and so on down. Each
    exchange brings two units closer to what they want.

    Args:
        numbers: Of children, shape (parents,).
        alike: Kind of each parent; numbers are exchanged within a kind.
        units: Number of the unit of each parent, from 0.
        size: Released: rows of the children's table, and units by their number of rows.
        alone: Released number of children without an owner, each of which is a unit.
        rng: Sampling only.
    """
    result, held = numbers.copy(), np.bincount(units, numbers).astype(np.int64)
    totals, wanted = _totals(size, alone, int(held.sum()), len(held)), np.empty_like(held)
    unchanged = 0
    for attempt in range(_ROUNDS):
        wanted[np.argsort(-held, kind="stable")] = totals
        missing = wanted - held
        if np.abs(missing).sum() <= _GOOD * held.sum() or unchanged == _PATIENCE:
            break
        asking = missing[units] * (1 if attempt % 2 else -1)
        one, other = _partners(alike, asking > 0, asking <= 0, rng)
        of_one, of_other, moved = units[one], units[other], result[other] - result[one]
        gain = np.abs(missing[of_one]) - np.abs(missing[of_one] - moved)
        gain += np.abs(missing[of_other]) - np.abs(missing[of_other] + moved)
        chosen = _best_of_each_unit(np.flatnonzero((gain > 0) & (of_one != of_other)), gain, of_one, of_other)
        one, other = one[chosen], other[chosen]
        result[one], result[other] = result[other], result[one]
        held[of_one[chosen]] += moved[chosen]
        held[of_other[chosen]] -= moved[chosen]
        unchanged = 0 if len(chosen) else unchanged + 1
    return result


def _totals(size: RowCount, alone: float, rows: int, units: int) -> Numbers:
    """Rows of each unit by the released numbers, descending; shape (units,).

    In a class, the unit that a share q of the class is below has first + wide · q^γ rows, where γ makes their mean that
    of the class.
    """
    owning, of_class = size.units_of[::-1].copy(), size.rows_of[::-1].copy()  # the largest class first
    owning[-1], of_class[-1] = max(0.0, owning[-1] - alone), max(0.0, of_class[-1] - alone)
    last = np.array(size.classes[::-1], dtype=np.float64)
    first, wide = np.append(last[1:], 0.0) + 0.5, last - np.append(last[1:], 0.0)
    inside = np.maximum(of_class / np.maximum(owning, _NOTHING) - first, _NOTHING)
    power = np.clip(wide / inside - 1, 1 / _STEEPEST, _STEEPEST)
    owning *= rows / max(float(of_class.sum()), _NOTHING)
    ends, ranks = np.cumsum(owning), np.arange(units) + 0.5
    place = np.searchsorted(ends, ranks, side="right")
    ranks, place = ranks[place < len(ends)], place[place < len(ends)]
    share = np.clip((ends[place] - ranks) / np.maximum(owning[place], _NOTHING), 0.0, 1.0)
    found = np.rint(first[place] + wide[place] * share ** power[place])
    totals = np.zeros(units, dtype=np.int64)  # of units that no class has room for
    totals[: len(found)] = np.clip(found, first[place] + 0.5, last[place])
    return totals


def _partners(
    alike: Numbers, asking: NDArray[np.bool_], asked: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Numbers, Numbers]:
    """Pairs of an asking and an asked parent of the same kind, at random, no parent twice."""
    sides = []
    for chosen in (asking, asked):
        index = rng.permutation(np.flatnonzero(chosen))
        index = index[np.argsort(alike[index], kind="stable")]
        kind = alike[index]
        sides.append((index, kind, np.arange(len(index)) - np.searchsorted(kind, kind)))
    (one, kind, rank), (other, kinds, _) = sides
    place = np.searchsorted(kinds, kind) + rank
    found = place < np.searchsorted(kinds, kind, side="right")
    return one[found], other[place[found]]


def _best_of_each_unit(pairs: Numbers, gain: Numbers, one: Numbers, other: Numbers) -> Numbers:
    """Those of ``pairs`` that gain most for both of their units."""
    ranked = pairs[np.argsort(-gain[pairs], kind="stable")]
    both = np.column_stack([one[ranked], other[ranked]]).ravel()
    first = np.zeros(len(both), dtype=bool)
    first[np.unique(both, return_index=True)[1]] = True
    return ranked[first[::2] & first[1::2]]
