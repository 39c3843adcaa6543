"""A bundle into PostgreSQL: one transaction, COPY, and no password in any message; or its statistics without its rows.

With the statistics alone the planner plans as if the rows were there. It reads statistics from the catalogue, but the
sizes of tables and indexes from their files. A login that may run programs on the server, as a superuser may, makes
these files as long as they would be, with nothing in them: they take no space on the disk, and queries find no row.
Elsewhere the extension pg_regresql has the planner take the sizes from the catalogue, too.

The planner reads from the first page of an index how high its B-tree is. Each level adds to the cost of every descent,
so it decides between nested loops and hash joins. The tree made here has one page on each level. The format of pages is
that of the documentation, "Database Page Layout", and of PostgreSQL's ``nbtree.h``.
"""

from __future__ import annotations

import io
import json
import struct
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from privbench_core.backends import Files, Loaded, refuse_tables
from privbench_core.backends.postgres import (
    create_keys_sql,
    create_tables_sql,
    move_to_heirs,
    name_list,
    qualified,
    quote_text,
    vacuum_sql,
    with_heirs,
)
from privbench_core.errors import PublishError, SourceError
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.location import connection_parameters, describe, parse_url, reason_of

if TYPE_CHECKING:
    import psycopg


def load_postgres(schema: Schema, files: Files, target_url: str, *, replace: bool) -> Loaded:
    """Load into the current schema of a PostgreSQL database; see `load_bundle`."""
    with changing(target_url) as target:
        target.make_room(schema, replace=replace)
        connection = target.connection
        connection.execute(create_tables_sql(schema))
        names = {table: qualified(table, schema.schemas) for table in files}
        rows = {table: _copy(connection, schema.table(table), name, files[table]) for table, name in names.items()}
        for moved in move_to_heirs(schema):
            connection.execute(moved.encode())
        connection.execute(create_keys_sql(schema))
        connection.commit()
        connection.autocommit = True  # VACUUM runs in no transaction
        for vacuum in vacuum_sql(schema).splitlines():
            connection.execute(vacuum.encode())
        return Loaded(rows)


@dataclass(frozen=True)
class Target:
    """A database that is being changed, in one transaction.

    Attributes:
        connection: To it.
        where: What messages call it.
    """

    connection: psycopg.Connection[Any]
    where: str

    def make_room(self, schema: Schema, *, replace: bool) -> None:
        """Drop what is called as in the schema if ``replace``; else PublishError if there is any table."""
        connection = self.connection
        current = connection.execute("SELECT current_schema()").fetchone()
        if current is None or current[0] is None:
            why = "has no schema that the login may use; create it, or name another with ?schema="
            raise PublishError(f"{self.where}: {why}")
        called = "CASE WHEN schemaname = current_schema() THEN tablename ELSE concat(schemaname, '.', tablename) END"
        query = f"SELECT {called} FROM pg_tables WHERE schemaname = current_schema() OR schemaname = ANY(%s::text[])"
        found = [name for (name,) in connection.execute(query.encode(), [list(schema.schemas[1:])])]
        named = [table.name for table in with_heirs(schema)]
        if not replace:
            refuse_tables(found, named, self.where)
        for view in reversed(schema.views) if replace else ():
            connection.execute(f"DROP {view.kind} IF EXISTS {qualified(view.name, schema.schemas)}".encode())
        existing = [qualified(name, schema.schemas) for name in named if name in found]
        if existing:
            # Together, because they refer to each other; without CASCADE, so what else depends on them makes this fail.
            connection.execute(f"DROP TABLE {', '.join(existing)}".encode())
        for enum in schema.enums if replace else ():
            connection.execute(f"DROP TYPE IF EXISTS {qualified(enum.name, schema.schemas)}".encode())


@contextmanager
def changing(target_url: str, what: str = "bundle") -> Iterator[Target]:
    """Open a database for a change that is committed at the end, or rolled back on any error.

    ``what`` is loaded, for messages.

    Raises:
        PublishError: It cannot be reached, or refuses; no message contains a password.
    """
    import psycopg

    try:
        url = parse_url(target_url)
    except SourceError:
        # The text is not repeated: it may hold a password.
        raise PublishError("target: not a database URL; write postgresql://user@host:port/database") from None
    where = describe(url)
    try:
        connection = psycopg.connect(**connection_parameters(url))
    except psycopg.Error as error:
        raise PublishError(f"{where}: cannot connect ({reason_of(error, url)}); check the URL and the server") from None
    try:
        with connection:
            yield Target(connection, where)
    except psycopg.Error as error:
        raise PublishError(f"{where}: refused the {what}, and nothing was changed: {reason_of(error, url)}") from None


def _copy(connection: psycopg.Connection[Any], table: Table, name: str, files: Sequence[Path]) -> int:
    """COPY a table's Parquet files, batch by batch; returns the number of rows."""
    loaded = 0
    columns = name_list(pq.read_schema(files[0]).names)
    command = f"COPY {name} ({columns}) FROM STDIN (FORMAT csv)"
    with connection.cursor() as cursor, cursor.copy(command) as copy:
        for path in files:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(100_000):  # rows sent at once; chosen by hand
                    copy.write(copy_text(batch, table))
                    loaded += batch.num_rows
    return loaded


def copy_text(batch: pa.RecordBatch, table: Table) -> bytes:
    """Return rows of a table as CSV.

    Arrow quotes all text and never NULL, which is how PostgreSQL distinguishes '' from NULL.
    """
    buffer = io.BytesIO()
    names = batch.schema.names
    columns = [spelled(table.column(name), values) for name, values in zip(names, batch.columns, strict=True)]
    texts = pa.RecordBatch.from_arrays(columns, names=names)
    pacsv.write_csv(texts, buffer, pacsv.WriteOptions(include_header=False))
    return buffer.getvalue()


def spelled(column: Column, values: pa.Array) -> pa.Array:
    """Return bytes, spans of time and arrays as the text that PostgreSQL reads; CSV has no form for them."""
    if pa.types.is_binary(values.type):
        return pa.array([None if value is None else f"\\x{value.hex()}" for value in values.to_pylist()], pa.string())
    if pa.types.is_duration(values.type):
        number = values.cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(number, pa.scalar("microseconds"), pa.scalar(" "))
    if column.is_array:
        texts = values.to_pylist()
        return pa.array([None if text is None else array_literal(json.loads(text)) for text in texts], pa.string())
    return values


def array_literal(value: Any) -> str:
    r"""Return a JSON array as a literal of PostgreSQL.

    >>> array_literal(["a", 'b"', None, 1.5, True])
    '{"a","b\\"",NULL,1.5,true}'
    """
    if isinstance(value, list):
        return f"{{{','.join(map(array_literal, value))}}}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "NULL" if value is None else json.dumps(value)


FIRST_VERSION = 180_000
"""Of the servers that restore statistics."""
_FILES = """
SELECT DISTINCT pg_relation_filepath(c.oid), c.relpages, c.reltuples, coalesce(amname = 'btree', false)
FROM unnest(%s::regclass[]) AS given (root)
CROSS JOIN LATERAL (SELECT root AS relid UNION SELECT relid FROM pg_partition_tree(root)) AS part
LEFT JOIN pg_index ON indrelid = part.relid JOIN pg_class c ON c.oid IN (part.relid, indexrelid)
LEFT JOIN pg_am ON pg_am.oid = c.relam
WHERE c.relkind IN ('r', 'i') AND c.relpages * 8192::bigint > pg_relation_size(c.oid)
ORDER BY 1
"""
_NO_SIZES = (
    "the sizes of tables and indexes, because {why}: the planner takes the tables to be empty and scans them all."
    " Publish as a superuser, or install the extension pg_regresql"
)
_NO_HEIGHTS = (
    "the heights of indexes, because the server keeps checksums of pages: each descent looks cheaper by 0.1 to 0.4"
)
_PAGE = 8192
_HEADER = struct.Struct("<QHHHHHHI")  # LSN, checksum, flags, lower and upper end of free space, special, size, xid
_SPECIAL = struct.Struct("<IIIHH")  # left and right page, level, flags, cycle of VACUUM
_META = struct.Struct("<IIIIII")  # magic, version, root, level, fast root, its level
_MAGIC, _SIZE_AND_VERSION = 0x053162, _PAGE | 4
_LEAF, _ROOT = 1, 2
_PIVOT = struct.Struct("<HHHH")  # an entry without keys: its child (high, low), number of keys, size and flags
_LEAF_ROOM, _INNER_ROOM, _SMALLEST = 7329, 5691, 20  # bytes of entries on a page, and of an entry


def load_statistics(
    schema: Schema, statistics: str, rows: Mapping[str, int], target_url: str, *, replace: bool
) -> Loaded:
    """Create tables, keys and indexes without rows, restore statistics and set sizes; see `load_bundle`.

    Args:
        schema: The database.
        statistics: The bundle's statistics.sql.
        rows: What it is about: rows by table.
        target_url: Of the database.
        replace: Whether to drop tables of the same names first.

    Raises:
        PublishError: As `changing`, or the server is older than 18.
    """
    with changing(target_url) as target:
        connection = target.connection
        if connection.info.server_version < FIRST_VERSION:
            found = connection.info.server_version // 10_000
            raise PublishError(
                f"{target.where}: PostgreSQL {found} cannot restore statistics, which takes 18; publish there without"
                " --statistics-only, or use an 18 for plans without rows"
            )
        target.make_room(schema, replace=replace)
        refused: list[str] = []
        connection.add_notice_handler(lambda notice: refused.append(f"{notice.message_primary}"))
        connection.execute("SET LOCAL client_min_messages = warning")
        connection.execute(statistics.encode())
        names = [qualified(table.name, schema.schemas) for table in with_heirs(schema)]
        return Loaded(dict(rows), (*refused, *_set_sizes(connection, names)))


def _set_sizes(connection: psycopg.Connection[Any], names: list[str]) -> Iterator[str]:
    """Make files as long as the statistics say, and B-trees as high; yield what the login or the server cannot."""
    import psycopg

    files = connection.execute(_FILES.encode(), [names]).fetchall()
    commands = [command for path, pages, _, _ in files for command in _truncations(path, pages * _PAGE)]
    try:
        with connection.transaction():
            for first in range(0, len(commands), 200):  # as many as a line takes
                _run(connection, "SELECT WHERE false", " && ".join(commands[first : first + 200]))
            if connection.execute("SHOW data_checksums").fetchone() != ("off",):
                yield _NO_HEIGHTS
                return
            for path, pages, rows, is_tree in files:
                if is_tree and (height := tree_height(pages, rows)):
                    _set_height(connection, path, height)
    except psycopg.errors.InsufficientPrivilege:
        yield _NO_SIZES.format(why="the login may not run programs on the server")
    except psycopg.errors.ExternalRoutineException:
        yield _NO_SIZES.format(why="the server has no program called truncate")


def _set_height(connection: psycopg.Connection[Any], path: str, height: int) -> None:
    """Write an empty tree into the file of an index of which the server has no page in memory."""
    found = connection.execute("SELECT pg_read_binary_file(%s, 0, %s)", [path, _PAGE]).fetchone()
    tree = None if found is None else empty_tree(bytes(found[0]), height)
    if tree is not None:
        text = quote_text(b64encode(tree).decode())
        _run(connection, f"SELECT {text}", f"base64 -d | dd of={path} bs={_PAGE} conv=notrunc 2>/dev/null")


def _run(connection: psycopg.Connection[Any], query: str, program: str) -> None:
    """Run a program in the data folder of the server, and give it what a query returns."""
    connection.execute(f"COPY ({query}) TO PROGRAM {quote_text(program)}".encode())


def _truncations(path: str, size: int) -> Iterator[str]:
    """Yield the commands that make a table's files as long as given: one file for each segment."""
    segment = 2**30  # bytes of the largest file of a table
    for number in range(-(-size // segment)):
        file = f"{path}.{number}" if number else path
        yield f"truncate -s {min(size - number * segment, segment)} {file}"


def tree_height(pages: int, rows: float) -> int:
    """Return the levels above the leaves of a B-tree, from its size.

    >>> tree_height(2, 100), tree_height(276, 100_000), tree_height(2745, 1_000_000)
    (0, 1, 2)
    """
    entry = max((pages - 1) * _LEAF_ROOM / max(rows, 1), _SMALLEST)
    level, height = pages - 1, 0
    while level > 1:
        level, height = ceil(level / max(_INNER_ROOM // entry, 2)), height + 1
    return height


def empty_tree(first_page: bytes, height: int) -> bytes | None:
    """Return the first pages of an index, or None if its first page is not that of an empty B-tree.

    Args:
        first_page: As CREATE INDEX leaves it, without a checksum.
        height: Levels above the leaves.
    """
    magic, version, root, *_ = _META.unpack_from(first_page, _HEADER.size)
    if magic != _MAGIC or root:
        return None
    meta = bytearray(first_page)
    top = height + 1
    _META.pack_into(meta, _HEADER.size, magic, version, top, height, top, height)
    return bytes(meta) + b"".join(_page(level, is_root=level == height) for level in range(height + 1))


def _page(level: int, *, is_root: bool) -> bytes:
    """Return the only page of a level, which is after the pages of those below it."""
    page = bytearray(_PAGE)
    special = _PAGE - _SPECIAL.size
    flags = (_ROOT if is_root else 0) | (0 if level else _LEAF)
    lower, upper = _HEADER.size, special
    if level:
        upper -= _PIVOT.size
        # A pointer to an item, in use.
        struct.pack_into("<I", page, lower, upper | 1 << 15 | _PIVOT.size << 17)
        _PIVOT.pack_into(page, upper, 0, level, 0, 0x2000 | _PIVOT.size)
        lower += 4
    _HEADER.pack_into(page, 0, 0, 0, 0, lower, upper, special, _SIZE_AND_VERSION, 0)
    _SPECIAL.pack_into(page, special, 0, 0, level, flags, 0)
    return bytes(page)
