"""Values that must be new: numbers that go on, UUIDs, and texts that no row has yet."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.columns.opaque import length_limit
from privbench_core.columns.surrogates import random_uuids
from privbench_core.sampling.keys import common_numbers, ordinal_within
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table

_CLASSES = (digits, ascii_lowercase, ascii_uppercase)


def made_unique(
    table: Table, new: dict[str, pa.Array], old: pa.Table, rng: np.random.Generator
) -> tuple[dict[str, pa.Array], np.ndarray]:
    """Return columns of new rows that differ from all others where they must, and which rows do, shape (rows,).

    Args:
        table: The table, with the sets of columns that no two rows may share.
        new: The columns of the new rows, in the order in which they are numbered; references are final.
        old: All rows so far.
        rng: For UUIDs and texts.
    """
    new, kept = dict(new), np.ones(len(next(iter(new.values()))), dtype=bool)
    fresh: set[str] = set()  # columns whose new values no other row has
    groups = [group for group in (table.primary_key, *table.unique) if group]
    for group in groups:
        own = [table.column(name) for name in group if name not in table.referring_columns]
        for column in reversed(own):
            if column.name not in fresh and (made := _numbered(column, group, new, old, rng)) is not None:
                new[column.name], is_fresh = made
                fresh |= {column.name} if is_fresh else set()
                break
        if fresh.isdisjoint(group):
            texts = [c for c in own if c.type in {ColumnType.TEXT, ColumnType.CATEGORY} and c.stored_type is not None]
            if texts:
                new[texts[-1].name] = _respelled(texts[-1], group, new, old, rng)
    for group in groups:
        kept &= ~_collides(group, new, old)
    return new, kept


def _numbered(
    column: Column,
    group: tuple[str, ...],
    new: dict[str, pa.Array],
    old: pa.Table,
    rng: np.random.Generator,
) -> tuple[pa.Array, bool] | None:
    """Return the next values of a column, and whether they differ from all others; None if it has no next values."""
    values, there = new[column.name], old.column(column.name)
    count = len(values)
    if column.type is ColumnType.UUID:
        return pc.if_else(values.is_valid(), random_uuids(count, rng).cast(values.type), values), True
    alone = old.num_rows > 1 and pc.count_distinct(there).as_py() == old.num_rows - there.null_count
    if column.type is ColumnType.INTEGER or (column.type is ColumnType.DECIMAL and not column.scale):
        if alone:
            step = column.sequence.increment if column.sequence else 1
            last = int(pc.max(there).as_py() or 0)
            made = pa.array(last + step * np.arange(1, count + 1)).cast(values.type)
            return pc.if_else(values.is_valid(), made, values), True
        return _counted_within(column, group, new, old), False
    if alone and column.type is ColumnType.TEXT and (made := _numbered_text(column, there, count)) is not None:
        return pc.if_else(values.is_valid(), made, values), True
    return None


def _counted_within(column: Column, group: tuple[str, ...], new: dict[str, pa.Array], old: pa.Table) -> pa.Array:
    """Return numbers that go on within the rows that share the other columns of a unique set.

    All do where the numbers so far count these rows from one; else those alone that would repeat an old one.
    """
    values, there = new[column.name], old.column(column.name)
    others = [name for name in group if name != column.name]
    if others:
        sizes = old.num_rows, len(values)
        before, here = common_numbers([old.column(n) for n in others], [new[n] for n in others], sizes)
    else:
        before, here = np.zeros(old.num_rows, np.int64), np.zeros(len(values), np.int64)
    numbers = np.asarray(pc.fill_null(there.cast(pa.int64()), 0).to_numpy())
    size = max(before.max(initial=-1), here.max(initial=-1)) + 2
    last, first = np.zeros(size, np.int64), np.full(size, np.iinfo(np.int64).max)
    np.maximum.at(last, before, numbers)
    np.minimum.at(first, before, numbers)
    begun = first[np.unique(before)]
    chosen = values.is_valid().to_numpy(zero_copy_only=False)
    # Numbers count the rows of their group where nine in ten groups begin at 1.
    if not len(begun) or (begun <= 1).mean() < 0.9:  # noqa: PLR2004
        chosen = chosen & _collides(group, new, old)
        np.maximum.at(last, here, np.asarray(pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)))
    made = np.zeros(len(values), np.int64)
    made[chosen] = last[here[chosen]] + ordinal_within(here[chosen])
    return pc.if_else(pa.array(chosen & (here >= 0)), pa.array(made).cast(values.type), values)


def _numbered_text(column: Column, there: pa.ChunkedArray, count: int) -> pa.Array | None:
    """Return texts that go on numbering, as ``person-000042`` does; None if the texts so far are not numbered."""
    heads = pc.unique(pc.utf8_rtrim(pc.drop_null(there), characters=digits)).to_pylist()
    if len(heads) != 1 or not heads[0]:
        return None
    tails = pc.utf8_slice_codeunits(pc.drop_null(there), len(heads[0]))
    if pc.any(pc.equal(tails, "")).as_py() or pc.max(pc.utf8_length(tails)).as_py() > 18:  # noqa: PLR2004 - of 64 bits
        return None
    width, last = pc.max(pc.utf8_length(tails)).as_py(), int(pc.max(tails.cast(pa.int64())).as_py())
    made = [f"{heads[0]}{last + number:0{width}d}" for number in range(1, count + 1)]
    return pa.array(made) if len(made[-1]) <= length_limit(column) else None


def _respelled(
    column: Column, group: tuple[str, ...], new: dict[str, pa.Array], old: pa.Table, rng: np.random.Generator
) -> pa.Array:
    """Return texts spelled anew where a row has the same values as another one, in the form of the old ones."""
    made, limit = new[column.name], length_limit(column)
    for attempt in range(20):  # in which texts that exist already are spelled anew
        again = np.flatnonzero(_collides(group, {**new, column.name: made}, old))
        if not len(again):
            break
        texts = made.to_pylist()
        for row in again.tolist():
            texts[row] = _spelled_like(texts[row], old.num_rows + row + 1 + attempt * len(texts), limit, rng)
        made = pa.array(texts, made.type)
    return made


def _spelled_like(text: str, number: int, limit: int, rng: np.random.Generator) -> str:
    """Return another text of the same form: an address with a number, or other digits, or else other letters."""
    name, at, host = text.partition("@")
    numbered = f"{name.rstrip(digits) or name}{number}{at}{host}"
    if at and len(numbered) <= limit:
        return numbered
    changed = _CLASSES[:1] if sum(sign in digits for sign in text) >= len(str(number)) else _CLASSES
    signs = [next((kind for kind in changed if sign in kind), sign) for sign in text]
    return "".join(kind[rng.integers(len(kind))] for kind in signs)


def _collides(group: tuple[str, ...], new: dict[str, pa.Array], old: pa.Table) -> np.ndarray:
    """Return which new rows have the values of an old row, or of a new one before, shape (rows,)."""
    count = len(new[group[0]])
    there, here = common_numbers(
        [old.column(name) for name in group], [new[name] for name in group], (old.num_rows, count)
    )
    first = np.zeros(count, dtype=bool)
    first[np.unique(here, return_index=True)[1]] = True
    return (here >= 0) & (~first | np.isin(here, there))
