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

from privbench_core import guards
from privbench_core.models.group_model import OWNER
from privbench_core.models.rows import Rows
from privbench_core.sampling.references import lookup_order
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.workers import processors

T = TypeVar("T")
Numbers = NDArray[np.signedinteger[Any]]


def can_be_cut(schema: Schema, table: Table) -> bool:
    """Whether each range of a private table's rows can be drawn by itself, given the rows of its owners.

    Not where rows of different owners must agree or differ: a unique set or a dependency that includes neither the
    owner key nor another key along which rows with the same parent are in one range, and references that are neither
    free, nor within a range (`stays_in_range`), nor can be allocated (`can_be_allocated`). A unique reference is in the
    range alone that has the parent's only place.
    """
    owner = table.owner_key
    if owner is not None and not can_be_cut(schema, schema.table(owner.parent)):
        return False
    together = [set(key.columns) for key in table.foreign_keys if key.owner or stays_in_range(schema, table, key)]
    generated = table.key_columns - table.referring_columns
    fresh = [name for name in table.primary_key if name in generated]
    numbered = set(fresh if len(fresh) == len(table.primary_key) else fresh[:-1])  # else within the rest of the key

    def by_range(columns: Sequence[str]) -> bool:
        return not numbered.isdisjoint(columns) or any(key <= set(columns) for key in together)

    allocated = [set(key.columns) for key in allocated_keys(schema, table)]
    return (
        all(
            key.owner
            or stays_in_range(schema, table, key)
            or can_be_allocated(schema, table, key)
            or _is_free(schema, table, key)
            for key in table.foreign_keys
        )
        and all(by_range(unique) or set(unique) in allocated for unique in (table.primary_key, *table.unique))
        and all(by_range(dependency.determinant) for dependency in table.dependencies)
    )


def stays_inside(schema: Schema, table: Table, key: ForeignKey) -> bool:
    """Whether rows refer to parents of their own unit alone along a key that is not their owner key.

    Either it says so, or it shares the columns of the owner key with the parents' one: then it is of the same owner.
    """
    if key.owner or schema.table(key.parent).public:
        return False
    mine, theirs = table.owner_key, schema.table(key.parent).owner_key
    if key.same_unit or mine is None or theirs is None or mine.parent != theirs.parent:
        return key.same_unit
    referred = dict(zip(key.columns, key.parent_columns, strict=True))
    here = {(referred.get(name), column) for name, column in zip(mine.columns, mine.parent_columns, strict=True)}
    return here == set(zip(theirs.columns, theirs.parent_columns, strict=True))


def stays_in_range(schema: Schema, table: Table, key: ForeignKey) -> bool:
    """Whether all rows with the same parent along a key, not the owner key, are in one range.

    So are those of a unit, and rows that refer to rows of their own table: these are linked within each range, where no
    cycle can lead through another one.
    """
    own = key.parent == table.name and not _filled_before(schema, table, key)
    return own or stays_inside(schema, table, key)


def can_be_allocated(schema: Schema, table: Table, key: ForeignKey) -> bool:
    """Whether the references along a key can be allocated to ranges of rows, see `allocation`, and have to be.

    Not where a row may refer to some parents only: those that agree with another key of the row. Nor need those to a
    public table without a bound on the rows that refer to one of its rows.
    """
    return (
        not key.owner
        and key.parent != table.name
        and not _is_free(schema, table, key)
        and not stays_inside(schema, table, key)
        and not _filled_before(schema, table, key)
    )


def allocated_keys(schema: Schema, table: Table) -> tuple[ForeignKey, ...]:
    """Return the keys of a table whose references are allocated to its ranges."""
    return tuple(key for key in table.foreign_keys if can_be_allocated(schema, table, key))


def is_unique(table: Table, key: ForeignKey) -> bool:
    """Whether no two rows may refer to the same parent along a key."""
    return any(set(columns) == set(key.columns) for columns in (table.primary_key, *table.unique))


def _is_free(schema: Schema, table: Table, key: ForeignKey) -> bool:
    """Whether any number of rows may refer to a parent, and all parents are known to all ranges."""
    return schema.table(key.parent).public and key.max_children is None and not is_unique(table, key)


def _filled_before(schema: Schema, table: Table, key: ForeignKey) -> bool:
    """Whether another key that is resolved before this one, or has to agree with it over all ranges, shares columns."""
    order = [
        *lookup_order(table, schema.deferred_keys),
        *(k for k in table.foreign_keys if k.name in schema.deferred_keys),
    ]
    later = order[order.index(key) + 1 :]
    return any(
        not (other in later and _is_free(schema, table, other)) and not set(other.columns).isdisjoint(key.columns)
        for other in table.foreign_keys
        if other is not key
    )


def range_count(rows: float) -> int:
    """Return in how many ranges so many rows are drawn."""
    return max(1, -int(-rows // guards.RANGE_ROWS))


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
    """Cut ``rows`` into ranges of about ``most`` rows (`RANGE_ROWS`), never between two children of an owner.

    >>> row_ranges(Rows(5), 2)
    [slice(0, 2, None), slice(2, 5, None)]
    >>> row_ranges(Rows(5, {OWNER: np.array([0, 0, 0, 1, 1])}), 2)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    most = most or guards.RANGE_ROWS
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
