"""Ranges of rows that are drawn side by side, with the same bytes for any number of processors.

Each range has a generator of its own: what it draws depends neither on the other ranges nor on how many of them are
drawn at a time. Ranges of a table are drawn by processes where nothing is shared between them (`can_be_cut`); then
children lie in the range of their owners, and keys are numbered by range. Else the rows are together, and only the
model's columns are drawn in ranges, by threads, cut at fixed places between the children of two owners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privbench_core.models.group_model import OWNER
from privbench_core.models.rows import Rows
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.workers import processors

MOST_ROWS = 1 << 20
"""Rows of a range, about. Each range fits every pair of columns again, which takes as long as drawing 200,000 rows of
Adult's fifteen columns: ranges are much larger than that."""

T = TypeVar("T")
Numbers = NDArray[np.signedinteger[Any]]


def can_be_cut(schema: Schema, table: Table) -> bool:
    """Whether each range of a private table's rows can be drawn by itself, given the rows of its owners.

    Not where rows of different owners must agree or differ: a unique set or a dependency that does not include the
    owner key, a key that is filled in when all rows are there, and references whose places cannot be allocated
    (`can_be_allocated`). A unique reference is in the range alone that has the parent's only place.
    """
    owner = table.owner_key
    if owner is not None and not can_be_cut(schema, schema.table(owner.parent)):
        return False
    inside = set(owner.columns) if owner is not None else None
    generated = table.key_columns - table.referring_columns
    fresh = [name for name in table.primary_key if name in generated]
    numbered = set(fresh if len(fresh) == len(table.primary_key) else fresh[:-1])  # else within the rest of the key

    def by_range(columns: Sequence[str]) -> bool:
        return not numbered.isdisjoint(columns) or (inside is not None and inside <= set(columns))

    others = [key for key in table.foreign_keys if not key.owner]
    allocated = [set(key.columns) for key in allocated_keys(schema, table)]
    return (
        all(
            can_be_allocated(schema, table, key) or (schema.table(key.parent).public and key.max_children is None)
            for key in others
        )
        and not any(key.name in schema.deferred_keys for key in table.foreign_keys)
        and all(by_range(unique) or set(unique) in allocated for unique in (table.primary_key, *table.unique))
        and all(by_range(dependency.determinant) for dependency in table.dependencies)
    )


def can_be_allocated(schema: Schema, table: Table, key: ForeignKey) -> bool:
    """Whether the references along a key to a private table can be allocated to ranges of rows, see `allocation`.

    Not where a row may refer to some parents only: those of its unit, or those that agree with another key of the row.
    """
    elsewhere = {name for other in table.foreign_keys if other is not key for name in other.columns}
    return (
        not key.owner
        and not schema.table(key.parent).public
        and key.name not in schema.deferred_keys
        and not key.same_unit
        and elsewhere.isdisjoint(key.columns)
    )


def allocated_keys(schema: Schema, table: Table) -> tuple[ForeignKey, ...]:
    """Return the keys of a table whose references are allocated to its ranges."""
    return tuple(key for key in table.foreign_keys if can_be_allocated(schema, table, key))


def range_count(rows: float) -> int:
    """Return in how many ranges so many rows are drawn."""
    return max(1, -int(-rows // MOST_ROWS))


def equal_shares(total: int, count: int) -> list[int]:
    """Return where ``count`` ranges of ``total`` rows begin, and where the last one ends.

    >>> equal_shares(10, 3)
    [0, 3, 6, 10]
    """
    return [total * number // count for number in range(count + 1)]


def weighted_shares(total: int, weights: Sequence[float]) -> list[int]:
    """Return the same for ranges whose rows are in proportion to ``weights``; in equal ones if all are 0.

    >>> weighted_shares(10, [1.0, 0.0, 4.0])
    [0, 2, 2, 10]
    """
    ends = np.cumsum(weights)
    if not ends[-1] > 0:
        return equal_shares(total, len(weights))
    return [0, *(round(total * float(end / ends[-1])) for end in ends)]


def cuts_between_units(children: Numbers, units: Numbers, count: int) -> list[int]:
    """Return where ``count`` ranges of owners begin that have about as many children, and where the last one ends.

    Owners of one unit, which follow each other, stay together.

    Args:
        children: Of each owner, shape (owners,).
        units: Number of the unit of each owner, shape (owners,).
        count: Of ranges; some are empty where a unit has more children than a range.

    >>> cuts_between_units(np.array([5, 5, 5, 5, 1, 1]), np.array([0, 0, 1, 2, 3, 4]), 3)
    [0, 2, 3, 6]
    """
    begins = np.append(np.flatnonzero(units[1:] != units[:-1]) + 1, len(units))
    wanted = np.searchsorted(np.cumsum(children), equal_shares(int(children.sum()), count)[1:-1]) + 1
    return [0, *begins[np.searchsorted(begins, np.minimum(wanted, len(units)))].tolist(), len(units)]


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
    with ThreadPoolExecutor(processors()) as pool:  # numpy sorts, takes and draws without Python's lock
        return list(pool.map(draw, ranges, rng.spawn(len(ranges))))
