"""Systematic sampling: values allocated to rows as evenly as whole rows allow, at random within groups, in O(rows)."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.guards import BLOCK_ROWS, RANDOM_BITS

Value = TypeVar("Value", bound=np.integer)


def narrow(codes: NDArray[np.integer], size: int) -> NDArray[np.integer]:
    """Codes below ``size`` in the smallest integer type that holds them.

    >>> narrow(np.array([3, 0]), 256).dtype, narrow(np.array([3, 0]), 257).dtype
    (dtype('uint8'), dtype('uint16'))
    """
    return codes.astype(np.min_scalar_type(max(size - 1, 0)), copy=False)


def systematic_counts(
    cumulated: NDArray[np.float64],
    group_of: NDArray[np.integer],
    counts: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return how many rows of each group get each value, by systematic sampling: m·p rounded up or down.

    Args:
        cumulated: Cumulated probabilities of one group's values after the other's, shape (k,).
        group_of: The group of each of them, ascending, shape (k,).
        counts: Number of rows m of each group, shape (groups,).
        rng: Source of the offsets, one per group.

    Returns:
        Numbers of shape (k,); those of a group add up to its count.

    >>> rng = np.random.default_rng(0)
    >>> systematic_counts(np.array([0.25, 1, 1]), np.array([0, 0, 1]), np.array([8, 3]), rng).tolist()
    [2, 6, 3]
    """
    rows = counts[group_of]
    allocated = np.clip(np.ceil(cumulated * rows - _spread(len(counts), rng)[group_of]).astype(np.int64), 0, rows)
    begins = np.append(True, group_of[1:] != group_of[:-1])
    ends = np.append(begins[1:], True)
    allocated[ends] = rows[ends]
    return np.asarray(np.where(begins, allocated, np.diff(allocated, prepend=0)), dtype=np.int64)


def diffused_counts(expected: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return whole numbers near those that are expected, in each group and for each value over all groups.

    Groups are rounded one after the other: what a value has lacked so far is added to what the next group expects of
    it, as in error diffusion. So a value is off by about one in all, and in each run of neighbouring groups.

    Args:
        expected: Rows of each group that should get each value, shape (groups, values).
        counts: Of rows of each group, which its numbers add up to, shape (groups,).

    >>> diffused_counts(np.array([[0.5, 0.5], [0.5, 0.5], [1.5, 1.5]]), np.array([1, 1, 3])).tolist()
    [[1, 0], [0, 1], [2, 1]]
    """
    result, lacking = np.zeros(expected.shape, dtype=np.int64), np.zeros(expected.shape[1])
    for group, rows in enumerate(counts.tolist()):
        possible = np.flatnonzero(expected[group] > 0)
        wanted = expected[group, possible] + lacking[possible]
        whole = np.maximum(np.floor(wanted), 0.0)
        while (missing := rows - int(whole.sum())) != 0:
            order = np.argsort(whole - wanted, kind="stable")  # those that lack most first
            if missing > 0:
                whole[order[:missing]] += 1
            else:
                taken = order[whole[order] > 0][missing:]
                whole[taken] -= 1
        lacking[possible] = wanted - whole
        result[group, possible] = whole
    return result


def _spread(n: int, rng: np.random.Generator, near: int = 16) -> NDArray[np.float64]:
    """Return numbers in [0, 1), each uniform, those of ``near`` neighbours in different parts of it, shape (n,).

    Groups of few rows come in so large numbers that what their offsets have in common would be noise of its own.
    """
    blocks = -(-n // near)
    order = np.argsort(rng.random((blocks, near)), axis=1)
    return ((order + rng.random((blocks, near))) / near).ravel()[:n]


def distribute(
    values: NDArray[Value], numbers: NDArray[np.int64], groups: NDArray[np.integer] | None, rng: np.random.Generator
) -> NDArray[Value]:
    """Return one value per row: ``numbers`` says how often each of ``values`` occurs, ``groups`` among which rows.

    Args:
        values: One group's values after the other's, in ascending order of the groups, shape (k,).
        numbers: How many rows get each of them, shape (k,).
        groups: Group of each row, from 0, shape (n,); None if all rows are of one group.
        rng: Decides which row of a group gets what.
    """
    pool = np.repeat(values, numbers)
    if groups is None:
        rng.shuffle(pool)
        return pool
    result = np.empty_like(pool)
    result[mixed_order(groups, rng)] = pool
    return result


def mixed_order(groups: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the row numbers that sort ``groups``, from 0, rows of equal group in random order; shape (n,).

    One sort of numbers that begin with the group and end with the row takes half as long as a permutation does.
    """
    place, group = len(groups).bit_length(), (int(groups.max(initial=0)) + 1).bit_length()
    if place + group + RANDOM_BITS > np.iinfo(np.uint64).bits:
        order = rng.permutation(len(groups))
        return np.asarray(order[stable_order(groups[order])])
    keys = rng.integers(np.iinfo(np.uint64).max, size=len(groups), dtype=np.uint64, endpoint=True)
    rows = np.arange(min(BLOCK_ROWS, len(groups)), dtype=np.uint64)
    for start in range(0, len(groups), BLOCK_ROWS):
        here = keys[start : start + BLOCK_ROWS]
        here >>= np.uint64(group + place)
        here <<= np.uint64(place)
        here |= groups[start : start + BLOCK_ROWS].astype(np.uint64) << np.uint64(64 - group)
        here |= rows[: len(here)] + np.uint64(start)
    keys.sort()
    keys &= np.uint64((1 << place) - 1)
    return keys.view(np.int64)


def group_counts(groups: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    """Number of rows of each of ``size`` groups; rows of group -1 are not counted.

    >>> group_counts(np.array([0, 2, -1, 2]), 4).tolist()
    [1, 0, 2, 0]
    """
    counts = np.zeros(size, dtype=np.int64)
    for start in range(0, len(groups), max(BLOCK_ROWS, size)):  # numpy would widen all of them to 64 bits
        here = groups[start : start + max(BLOCK_ROWS, size)]
        here = here if here.dtype.kind == "u" or here.min() >= 0 else here[here >= 0]
        counts += np.bincount(here, minlength=size)
    return counts


def stable_order(groups: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the row numbers that sort ``groups``, rows of equal group in their order; shape (n,).

    >>> stable_order(np.array([70000, 1, 70000, 0])).tolist()
    [3, 1, 0, 2]
    """
    highest, base = int(groups.max(initial=0)), 1 << 16  # numpy sorts 16-bit integers by radix
    if highest < base:
        return np.argsort(narrow(groups, base), kind="stable")
    order, place = np.arange(len(groups)), 1
    while highest >= place:  # one digit after the other, the lowest first
        order = order[np.argsort((groups[order] // place % base).astype(np.uint16), kind="stable")]
        place *= base
    return order


def ascends(values: pa.Array | pa.ChunkedArray, *, strictly: bool = True) -> bool:
    """Whether each of some whole numbers is above the one before, or at least not below; False of other values.

    >>> ascends(pa.array([1, 2, 2])), ascends(pa.array([1, 2, 2]), strictly=False), ascends(pa.array([1, None]))
    (False, True, False)
    """
    if not pa.types.is_int64(values.type) or values.null_count:
        return False
    numbers = values.to_numpy()
    return bool((numbers[1:] > numbers[:-1]).all() if strictly else (numbers[1:] >= numbers[:-1]).all())
