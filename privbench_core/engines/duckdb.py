"""DuckDB: rows are copied, in parts, from any source into a temporary file of this machine, and counted there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import duckdb
import pyarrow as pa
from sqlglot import exp

from privbench_core.backends import Source
from privbench_core.backends.scratch import waited, waited_ahead
from privbench_core.engines.sql import Search
from privbench_core.engines.stored import LoadedRows, Passing, numbered, stored_type
from privbench_core.errors import SourceError
from privbench_core.files import exclusive, lock_of
from privbench_core.guards import BLOCK_ROWS
from privbench_core.schema.tables import Table
from privbench_core.workers import ahead

_MEMORY = "512MB"  # what does not fit goes to the temporary file; so 12 million rows take a gigabyte in all
_TYPES = {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "string": "VARCHAR", "binary": "BLOB"}
_DECIMAL = "DECIMAL(38, 0)"
T = TypeVar("T")


class DuckDBDatabase:
    """A temporary DuckDB file, readable by its owner only, that is gone when the run ends.

    Args:
        source: Where the private rows are; they are read once.
        folder: Where to make it.

    Raises:
        SourceError: Nothing can be written there.
    """

    dialect = "duckdb"
    zeros = True
    near = True
    search = Search()
    scans = 8  # measured with 12 million rows

    def __init__(self, source: Source, folder: Path) -> None:
        self._source = source
        self._folder = folder / uuid4().hex
        self._open = ExitStack()
        with self._clear_errors():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._open.enter_context(exclusive(lock_of(self._folder), "temporary rows"))  # before there are any
            self._folder.mkdir(mode=0o700)
            self._connection = duckdb.connect(str(self._folder / "rows.duckdb"))
            self._connection.execute(f"SET memory_limit = '{_MEMORY}'")
            self._connection.execute("SET temp_directory = ?", [str(self._folder)])

    def load(self, table: Table, name: str, *, hashed: bool) -> LoadedRows:
        types = [_TYPES.get(str(stored_type(column)), _DECIMAL) for column in table.columns]
        listed = ", ".join(f"c{place} {kind}" for place, kind in enumerate(types))
        self._execute(f"CREATE TABLE {name} (n BIGINT{', ' * bool(listed)}{listed})")
        passing = Passing(table, self._source.known_rows(table) if hashed else None)
        for rows in ahead(_numbered(table, self._source.batches(table), passing)):
            self._with(rows, f"INSERT INTO {name} SELECT * FROM privbench_rows")
        pa.default_memory_pool().release_unused()  # what Arrow would keep for later stands beside DuckDB's memory
        return passing.loaded()

    def insert(self, name: str, rows: pa.Table) -> None:
        self._with(rows, f"CREATE TABLE {name} AS SELECT * FROM privbench_rows")

    def create(self, name: str, query: exp.Query, kind: str = "TABLE") -> None:
        self._execute(f"CREATE {kind} {name} AS {query.sql(self.dialect)}")

    def replace(self, name: str, query: exp.Query) -> None:
        self.create(name, query, "OR REPLACE TABLE")

    def drop(self, name: str) -> None:
        self._execute(f"DROP TABLE {name}")

    def fetch(self, query: exp.Query) -> pa.Table:
        statement = query.sql(self.dialect)
        return self._waited(lambda: self._connection.sql(statement).to_arrow_table())

    def batches(self, query: exp.Query, rows: int) -> Iterator[pa.RecordBatch]:
        statement = query.sql(self.dialect)
        reader = self._waited(lambda: self._connection.sql(statement).to_arrow_reader(rows))
        with self._clear_errors():
            yield from waited_ahead(self._connection, reader)

    def digest(self, text: exp.Expr) -> exp.Expr:
        """See `Database.digest`: its first bytes, as `keyed_order` compares them, are sorted as a number."""
        digits = exp.Left(this=exp.Anonymous(this="sha256", expressions=[text]), expression=exp.Literal.number(16))
        return exp.cast(exp.DPipe(this=exp.Literal.string("0x"), expression=digits), exp.DataType.Type.UBIGINT)

    def hexadecimal(self, value: exp.Expr) -> exp.Expr:
        return exp.Lower(this=exp.Anonymous(this="hex", expressions=[value]))

    def close(self) -> None:
        self._connection.interrupt()
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._open.close()

    def _with(self, rows: pa.Table, statement: str) -> None:
        """Run a statement that reads these rows as privbench_rows."""
        with self._clear_errors():
            parts = rows.to_batches(max_chunksize=BLOCK_ROWS)  # which DuckDB's threads share
            self._connection.register("privbench_rows", pa.Table.from_batches(parts, rows.schema))
            self._execute(statement)
            self._connection.unregister("privbench_rows")

    def _execute(self, statement: str) -> None:
        self._waited(lambda: self._connection.execute(statement))

    def _waited(self, work: Callable[[], T]) -> T:
        with self._clear_errors():
            return waited(self._connection, work)

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Replace DuckDB's errors, which may quote values, by one that says what to do."""
        try:
            yield
        except (duckdb.Error, OSError) as error:
            # While rows come out of it, DuckDB's errors are OSErrors without a number, and begin with their kind.
            of_files = (duckdb.IOException, duckdb.OutOfMemoryException)
            there = isinstance(error, of_files) or (isinstance(error, OSError) and error.errno is not None)
            if not there and not str(error).startswith(("IO Error", "Out of Memory Error")):
                kind = type(error).__name__
                raise SourceError(f"engine duckdb: counting failed ({kind}); run again with --engine memory") from None
            found = f"there is no room for temporary files in {self._folder.parent}, or they cannot be written"
            raise SourceError(
                f"engine duckdb: {found}; make room there, or choose another folder for state, and run again"
            ) from None


def _numbered(table: Table, parts: Iterable[pa.Table], passing: Passing) -> Iterator[pa.Table]:
    """Return the rows in the form in which they are stored, numbered, and seen as they pass by."""
    first = 0
    for part in parts:
        rows = numbered(table, part, first)
        passing.add(part, rows.remove_column(0))
        first += part.num_rows
        yield rows
