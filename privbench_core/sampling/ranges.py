"""Ranges of rows that are drawn side by side, with the same bytes for any number of processors.

Each range has a generator of its own, spawned from the table's: what it draws depends neither on the other ranges nor
on how many of them are drawn at a time. A large table is cut at fixed places, between the children of two owners.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np

from privbench_core.models.group_model import OWNER
from privbench_core.models.rows import Rows

MOST_ROWS = 1 << 20
"""Rows of a range, about. Each range fits every pair of columns again, which takes as long as drawing 200,000 rows of
Adult's fifteen columns: ranges are much larger than that."""

T = TypeVar("T")


def row_ranges(rows: Rows, most: int | None = None) -> list[slice]:
    """Cut ``rows`` into ranges of about ``most`` rows (`MOST_ROWS`), never between two children of an owner.

    >>> row_ranges(Rows(5), 2)
    [slice(0, 2, None), slice(2, 5, None)]
    >>> row_ranges(Rows(5, {OWNER: np.array([0, 0, 0, 1, 1])}), 2)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    most = most or MOST_ROWS
    owners = rows.codes.get(OWNER)
    cuts = []
    for cut in range(most, rows.n - most // 2, most):
        same = 0 if owners is None else int(np.argmax(np.append(owners[cut:] != owners[cut - 1], True)))
        cuts.append(cut + same)
    inside = sorted(cut for cut in set(cuts) if 0 < cut < rows.n)
    return [slice(a, b) for a, b in pairwise([0, *inside, rows.n])]


def in_ranges(
    draw: Callable[[slice, np.random.Generator], T], ranges: Sequence[slice], rng: np.random.Generator
) -> list[T]:
    """Draw every range, as many at a time as there are processors, and return the results in order."""
    if len(ranges) == 1:
        return [draw(ranges[0], rng)]
    with ThreadPoolExecutor(_processors()) as pool:  # numpy sorts, takes and draws without Python's lock
        return list(pool.map(draw, ranges, rng.spawn(len(ranges))))


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
