"""Do rows keep what the spec declares, and are they those that were paid for? Before anybody builds on them.

**Integrity**: keys, NULLs and references, whole columns at a time, in Arrow. All problems come in one error. Its
message names places only; how many rows offend is private and goes into ``private_detail``.

**Fingerprints**: a digest of a table's content names what a release was paid for, so it must change exactly when the
content does. The bytes of a file are no such name: a rewritten Parquet file with the same rows, another order of rows
(PostgreSQL promises none) or a column the spec leaves out would make the owner pay twice for the same data. Canonical
rows in primary-key order are hashed. The digest is as private as the rows themselves; key it before it is kept outside
of the ledger.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

_ROW = "\0row"  # no column is called so
_KEYS_AT_ONCE = 1 << 22  # rows whose composite key is looked up
BLOCK = 1 << 16  # rows hashed together; fixed, so that chunking does not matter


@dataclass
class Findings:
    """Problems of rows, in words: where they are is public, how many rows they concern is not."""

    public: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)

    def add_nulls(self, table: Table, column: Column, nulls: int, rows: int) -> None:
        """Add rows with NULL in a column that may have none."""
        if column.name in table.primary_key:
            found, todo = "NULL in a primary key", "fix the source, or choose another key"
        elif column.nullable:
            found, todo = "NULL in a required foreign key", "declare the key optional: true, or fix the source"
        else:
            found, todo = "NULL (or NaN) in a column that is not nullable", "declare nullable: true, or fix the source"
        self._add(f"{table.name}.{column.name}", found, todo, nulls, rows)

    def add_repeated(self, table: Table, columns: tuple[str, ...], what: str, repeated: int, rows: int) -> None:
        """Add rows that agree with others in columns where they must not; ``what`` says why not."""
        name = columns[0] if len(columns) == 1 else f"({','.join(columns)})"
        todo = "choose another key, or fix the source"
        self._add(f"{table.name}.{name}", f"duplicate values ({what})", todo, repeated, rows)

    def add_orphans(self, key: ForeignKey, lost: int, rows: int) -> None:
        """Add rows that refer to none."""
        found = f"rows without a match in {key.parent}({', '.join(key.parent_columns)})"
        self._add(key.name, found, "declare on_orphan: drop for this key, or fix the source", lost, rows)

    def refuse(self) -> None:
        """Raise SourceError if there is a problem."""
        if self.public:
            raise SourceError("\n".join(self.public), private_detail="\n".join(self.private))

    def _add(self, where: str, found: str, todo: str, rows: int, total: int) -> None:
        self.public.append(f"{where}: {found}; {todo}")
        self.private.append(f"{where}: {rows:,} of {total:,} rows")


def check_rows(schema: Schema, tables: Mapping[str, pa.Table], orphans: Mapping[str, str]) -> dict[str, pa.Table]:
    """Check all rows of a database, and drop the orphans the owner wants dropped.

    Args:
        schema: What the spec declares.
        tables: Canonical rows by table name (see `Source.read`); none is changed. A table may have no rows.
        orphans: ``refuse`` or ``drop`` per `ForeignKey.name`; refuse where none is named. Rows below a dropped row are
            dropped with it, whatever their own key's ``on_orphan`` says, or lose their reference to it: as its
            ``on_unit_removed`` says.

    Returns:
        The rows to work with: NaN has become NULL, and every foreign key finds its parent.

    Raises:
        SourceError: Rows break the spec; one line per problem, counts only in ``private_detail``.
    """
    findings = Findings()
    clean = {table.name: _nan_to_null(tables[table.name]) for table in schema.tables}
    for table in schema.tables:
        _check_columns(table, clean[table.name], findings)
    kept = dict(clean)
    for table in schema.tables:
        rows = clean[table.name]
        stays = np.ones(rows.num_rows, dtype=bool)
        for key in table.foreign_keys:
            found = _has_parent(key, rows, clean[key.parent])
            if not found.all() and orphans.get(key.name, "refuse") != "drop":
                findings.add_orphans(key, int((~found).sum()), rows.num_rows)
            stays &= found
        kept[table.name] = rows if stays.all() else rows.filter(pa.array(stays))
    findings.refuse()
    _cascade(schema, kept, {name for name, rows in kept.items() if rows.num_rows < clean[name].num_rows})
    return kept


def _cascade(schema: Schema, kept: dict[str, pa.Table], thinned: set[str]) -> None:
    """Drop, in ``kept``, what depends on rows that the tables of ``thinned`` have lost, or empty its reference."""
    while thinned:
        parents, thinned = thinned, set()
        for table in schema.tables:
            for key in table.foreign_keys:
                if key.parent not in parents:
                    continue
                rows = kept[table.name]
                stays = _has_parent(key, rows, kept[key.parent])
                if stays.all():
                    continue
                emptied = table.columns_set_null(key)
                if not emptied:
                    rows = rows.filter(pa.array(stays))
                    thinned.add(table.name)
                for name in emptied:
                    position, field = rows.schema.get_field_index(name), rows.schema.field(name)
                    values = pc.if_else(pa.array(stays), rows.column(name), pa.scalar(None, field.type))
                    rows = rows.set_column(position, field.with_nullable(True), values)
                kept[table.name] = rows


def _nan_to_null(rows: pa.Table) -> pa.Table:
    for index, column in enumerate(rows.schema):
        if pa.types.is_floating(column.type):
            values = rows.column(index)
            nan = pc.is_nan(values)
            if pc.any(nan).as_py():  # else there is nothing to copy
                rows = rows.set_column(index, column, pc.if_else(nan, pa.scalar(None, column.type), values))
    return rows


def _check_columns(table: Table, rows: pa.Table, findings: Findings) -> None:
    for column in table.columns:
        nulls = rows.column(column.name).null_count
        if nulls and column.name in table.required_columns:
            findings.add_nulls(table, column, nulls, rows.num_rows)
    groups = dict.fromkeys(table.unique, "declared unique") | {table.primary_key: "primary key"}
    for columns, what in groups.items():
        complete = rows.select(list(columns)).drop_null()  # as in SQL, NULL is unlike any NULL
        repeated = complete.num_rows - _distinct(complete)
        if repeated:
            findings.add_repeated(table, columns, what, repeated, rows.num_rows)


def _distinct(rows: pa.Table) -> int:
    """Return how many different rows there are; none has a NULL in it."""
    if (numbers := _numbers(rows)) is not None:
        return len(np.unique(numbers))
    for index, column in enumerate(rows.schema):
        if pa.types.is_floating(column.type):  # 0.0 and -0.0 are equal, as in SQL, and grouping distinguishes them
            rows = rows.set_column(index, column, pc.add(rows.column(index), pa.scalar(0.0, column.type)))
    return int(rows.group_by(rows.column_names).aggregate([]).num_rows)


def _numbers(rows: pa.Table) -> NDArray[np.int64] | None:
    """Return a number for each row, the same for equal rows alone; None where columns are no integers of some range.

    Grouping tens of millions of rows takes ten times the room of sorting their numbers.
    """
    if rows.num_rows == 0 or not all(pa.types.is_int64(field.type) for field in rows.schema):
        return None
    first: NDArray[np.int64] = rows.column(0).to_numpy()
    if rows.num_columns == 1:
        return first
    ends = [pc.min_max(column).as_py() for column in rows.columns]
    sizes = [end["max"] - end["min"] + 1 for end in ends]
    if math.prod(sizes) >= 1 << 63:
        return None
    columns = [column.to_numpy() - end["min"] for column, end in zip(rows.columns, ends, strict=True)]
    numbers: NDArray[np.int64] = np.ravel_multi_index(columns, sizes)
    return numbers


def _has_parent(key: ForeignKey, child: pa.Table, parent: pa.Table) -> NDArray[np.bool_]:
    """Return which rows of ``child`` have a match in ``parent``, or no complete key."""
    columns = list(key.columns)
    known = parent.select(list(key.parent_columns)).rename_columns(columns)
    if len(columns) == 1:
        values = child.column(columns[0])
        found = pc.is_in(values, value_set=known.column(0).combine_chunks(), skip_nulls=True)
        matched: NDArray[np.bool_] = pc.or_(found, values.is_null()).to_numpy()
        return matched
    numbered = child.select(columns).append_column(_ROW, pa.array(np.arange(child.num_rows)))
    whole = np.ones(child.num_rows, dtype=bool)
    for start in range(0, child.num_rows, _KEYS_AT_ONCE):
        complete = numbered.slice(start, _KEYS_AT_ONCE).drop_null()
        whole[complete.join(known, keys=columns, join_type="left anti").column(_ROW).to_numpy()] = False
    return whole


def fingerprint_rows(table: Table, rows: pa.Table) -> str:
    """Return the digest of canonical rows.

    Args:
        table: What the spec declares; its primary key gives the order of hashing.
        rows: As `Source.read` returns them, in any order and chunking.

    Returns:
        32 hexadecimal characters that change iff a value, a column's name or type or the set of rows changes.
    """
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in table.primary_key])
    digest = RowDigest(table, rows.schema, rows.num_rows)
    for start in range(0, rows.num_rows, BLOCK):
        digest.add(rows.take(order.slice(start, BLOCK)))
    return digest.finished()


class RowDigest:
    """The digest of `fingerprint_rows`, of so many rows that come in parts, in the order of their primary keys."""

    def __init__(self, table: Table, schema: pa.Schema, number: int) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        fields = (f"{field.name}\0{field.type}" for field in schema)
        head = "\0\0".join([table.name, *table.primary_key, *fields]).encode()
        self._digest.update(head + number.to_bytes(8, "little"))
        self._waiting: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Take the next canonical rows; they are hashed in blocks of `BLOCK`."""
        self._waiting.append(rows)
        if sum(each.num_rows for each in self._waiting) < BLOCK:
            return
        joined = pa.concat_tables(self._waiting)
        whole = joined.num_rows - joined.num_rows % BLOCK
        for start in range(0, whole, BLOCK):
            self._hash(joined.slice(start, BLOCK))
        self._waiting = [joined.slice(whole)]

    def finished(self) -> str:
        """Return the digest, when all rows have been added."""
        if self._waiting and (left := pa.concat_tables(self._waiting)).num_rows:
            self._hash(left)
        self._waiting = []
        return self._digest.hexdigest()

    def _hash(self, block: pa.Table) -> None:
        for column in block.columns:
            values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which would copy it
            for part in _parts(values):
                self._digest.update(part)


def fingerprint_files(paths: Iterable[Path]) -> str:
    """Return the digest of the bytes of some files, their names and sizes; OSError if one of them cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):  # bytes of a file at a time
                digest.update(block)
            digest.update(f"\0{path.name}\0{file.tell()}\0".encode())
    return digest.hexdigest()


def _parts(values: pa.Array) -> Iterator[bytes | memoryview]:
    """Yield bytes that determine a column's values and are determined by them, which those of NULL slots are not."""
    missing = np.packbits(pc.is_null(values).to_numpy(zero_copy_only=False)) if values.null_count else None
    yield bytes(-(-len(values) // 8)) if missing is None else missing.tobytes()
    present = values if missing is None else values.drop_null()
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        yield pc.binary_length(present).to_numpy().astype("<i4").tobytes()
        _, where, content = present.buffers()
        ends = np.frombuffer(where, np.int32, len(present) + 1, 4 * present.offset) if len(present) else [0, 0]
        yield memoryview(content)[ends[0] : ends[-1]] if content is not None else b""
    elif pa.types.is_floating(values.type):
        numbers = present.to_numpy() + 0.0  # one zero
        yield np.where(np.isnan(numbers), np.nan, numbers).tobytes()  # one NaN
    elif pa.types.is_boolean(values.type):
        yield np.packbits(present.to_numpy(zero_copy_only=False)).tobytes()
    else:
        width = present.type.bit_width // 8
        start = present.offset * width
        yield memoryview(present.buffers()[1])[start : start + len(present) * width]
