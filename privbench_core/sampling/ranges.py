"""Ranges of rows that are drawn side by side, with the same bytes for any number of processors.

Each range has a generator of its own: what it draws depends neither on the other ranges nor on how many of them are
drawn at a time. Ranges of a table are drawn by processes where nothing is shared between them (`can_be_cut`); then
children lie in the range of their owners, and keys are numbered by range. Else the rows are together, and only the
model's columns are drawn in ranges, by threads, cut at fixed places between the children of two owners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privbench_core import guards
from privbench_core.groups.group_model import OWNER
from privbench_core.marginals.sampler import Rows
from privbench_core.sampling.references import lookup_order
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.workers import processors

T = TypeVar("T")
Numbers = NDArray[np.signedinteger[Any]]


class Reach(Enum):
    """Where the parents are that the rows of a range may refer to along a key off the ownership path."""

    ANY = "any row of a public table: as many rows may refer to it as like"
    INSIDE = "rows of the same unit"
    OWN = "rows of the table itself, in the same range: so no cycle leads through another one"
    ALLOCATED = "rows that have places for rows of this range, see `allocation`"


def can_be_cut(schema: Schema, table: Table) -> bool:
    """Whether each range of a private table's rows can be drawn by itself, given the rows of its owners.

    Not where rows of different owners must agree or differ: a unique set or a dependency that includes neither the
    owner key nor another key along which rows with the same parent are in one range, and references without a `reach`.
    A unique reference is in the range alone that has the parent's only place.
    """
    owner = table.owner_key
    if owner is not None and not can_be_cut(schema, schema.table(owner.parent)):
        return False
    reaches = {key: reach(schema, table, key) for key in table.foreign_keys if not key.owner}
    here = {key for key, way in reaches.items() if way in (Reach.INSIDE, Reach.OWN)} | ({owner} if owner else set())
    generated = (table.key_columns - table.referring_columns).intersection(table.primary_key)
    numbered = {name for name in generated if not table.numbered_within(name)}

    def by_range(columns: Sequence[str]) -> bool:
        return not numbered.isdisjoint(columns) or any(set(key.columns) <= set(columns) for key in here)

    allocated = [set(key.columns) for key, way in reaches.items() if way is Reach.ALLOCATED]
    return (
        None not in reaches.values()
        and all(by_range(unique) or set(unique) in allocated for unique in (table.primary_key, *table.unique))
        and all(by_range(dependency.determinant) for dependency in table.dependencies)
    )


def reach(schema: Schema, table: Table, key: ForeignKey) -> Reach | None:
    """Return how far the rows of a range refer along a key off the ownership path; None if to some parents only.

    Those agree with another key of the row, which is resolved before this one or has to agree with it over all ranges.
    """
    if _is_free(schema, table, key):
        return Reach.ANY
    if stays_inside(schema, table, key):
        return Reach.INSIDE
    deferred = [other for other in table.foreign_keys if other.name in schema.deferred_keys]
    order = [*lookup_order(table, schema.deferred_keys), *deferred]
    later = order[order.index(key) + 1 :]
    if not set(key.columns) <= table.key_columns:  # some of them are drawn like attributes
        return None
    overlapping = (o for o in table.foreign_keys if o is not key and not set(o.columns).isdisjoint(key.columns))
    if any(not (other in later and _is_free(schema, table, other)) for other in overlapping):
        return None
    return Reach.OWN if key.parent == table.name else Reach.ALLOCATED


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


def is_unique(table: Table, key: ForeignKey) -> bool:
    """Whether no two rows may refer to the same parent along a key."""
    return any(set(columns) == set(key.columns) for columns in (table.primary_key, *table.unique))


def _is_free(schema: Schema, table: Table, key: ForeignKey) -> bool:
    """Whether any number of rows may refer to a parent, and all parents are known to all ranges."""
    return schema.table(key.parent).public and key.max_children is None and not is_unique(table, key)


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
