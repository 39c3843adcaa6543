"""What the SQL of views needs of a database: the few places where databases differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from privbench_core.engines.sql.literals import Expr
from privbench_core.engines.sql.search import Search
from privbench_core.engines.stored import LoadedRows
from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Table


class Database(Protocol):
    """A database that tables can be made in, for as long as a run takes; nobody else sees them.

    Attributes:
        dialect: Its name in sqlglot.
        zeros: Whether its texts may hold the character 0.
        near: Whether it is in this process: then codes are counted as they come out of it, which takes less time than
            having it group them.
        search: How it finds the code of a value.
        scans: Of a view that take about as long as one that writes its codes down.
    """

    dialect: str
    zeros: bool
    near: bool
    search: Search
    scans: int

    def load(self, table: Table, name: str, *, hashed: bool) -> LoadedRows:
        """Make the table ``name`` of a private table's rows, and return what was seen of them.

        Its column ``n`` is a number for each row; ``c0``, ``c1``… hold the stored values (see `engines.stored`) of the
        table's columns, in spec order. ``hashed`` says whether the rows' fingerprint will be asked for.

        Raises:
            SourceError: The rows cannot be read, or are not of the declared types.
        """
        ...

    def insert(self, name: str, rows: pa.Table) -> None:
        """Make the table ``name`` of these rows."""
        ...

    def replace(self, name: str, query: exp.Query) -> None:
        """Make a table again of what a query of its rows returns."""
        ...

    def drop(self, name: str) -> None:
        """Delete a table."""
        ...

    def create(self, name: str, query: exp.Query, kind: str = "TABLE") -> None:
        """Make a table, or a view, of what a query returns."""
        ...

    def fetch(self, query: exp.Query) -> pa.Table:
        """Return what a query returns."""
        ...

    def batches(self, query: exp.Query, rows: int) -> Iterator[pa.RecordBatch]:
        """Return what a query returns, in parts of about so many rows."""
        ...

    def digest(self, text: exp.Expr) -> exp.Expr:
        """Return the SHA-256 of a text in UTF-8, in a form that is ordered as its bytes are."""
        ...

    def hexadecimal(self, value: exp.Expr) -> exp.Expr:
        """Return the hexadecimal digits of bytes, in lower case."""
        ...

    def close(self) -> None:
        """Delete all that was made, and disconnect."""
        ...


def refuse_unfit(
    database: Database, table: Table, rows: exp.Expr, unfit: Sequence[tuple[Column, Expr]], todo: str
) -> None:
    """Refuse values that are not of the declared types, as reading them does.

    ``unfit`` are columns, and whether some value of each in the table ``rows`` does not fit; ``todo`` says what then.
    """
    if not unfit:
        return
    asked = [exp.alias_(found, f"p{place}") for place, (_, found) in enumerate(unfit)]
    row = database.fetch(exp.select(*asked).from_(rows)).to_pylist()[0]
    problems = [
        f"{table.name}.{column.name}: some values do not fit type {column.logical}{todo}"
        for place, (column, _) in enumerate(unfit)
        if row[f"p{place}"]
    ]
    if problems:
        raise SourceError("\n".join(problems))
