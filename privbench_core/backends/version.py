"""What stands for the content of a table where the owner does not want it compared row by row.

A version is as private as the rows it comes from (the largest `updated_at` is somebody's), so it is hashed before it is
shown, like a fingerprint. It misses what the owner's choice misses: ``docs/privacy.md`` says why that costs accuracy
and no privacy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from privbench_core.errors import SourceError
from privbench_core.schema.change import Change
from privbench_core.schema.identity import change_identity
from privbench_core.schema.tables import Table

XMIN = "xmin"
"""PostgreSQL's number of the transaction that wrote a row: a column of every table, in no catalogue."""


def watermark_sql(table: str, column: str, *, xmin: bool = False) -> str:
    """Return a query for how many rows and values there are and which value is the largest.

    For `XMIN` it is how many rows there are, and the sum of the hashes of who wrote them: transaction
    numbers start again after 2^32, and a long one ends after others that began later, so none of them is the latest.

    Args:
        table: Name of the table, quoted.
        column: The watermark, quoted.
        xmin: Whether it is PostgreSQL's own.
    """
    if xmin:
        return f"SELECT count(*), sum(hashint8extended({XMIN}::text::bigint, 0)) FROM {table}"
    return f"SELECT count(*), count({column}), max({column}) FROM {table}"


def version_of(table: str, rows: Sequence[Sequence[object]]) -> str:
    """Return the text of the one row that a query for a version returned.

    Args:
        table: The table whose version it is.
        rows: Of the result, at least the first two if there are more.

    Raises:
        SourceError: There is not exactly one row.
    """
    if len(rows) != 1:
        found = "no row" if not rows else "several rows"
        raise SourceError(f"{table}: the query of its change returns {found}; write one that always returns one row")
    return json.dumps([_text(value) for value in rows[0]])


def failed_query(table: str, error: Exception) -> SourceError:
    """Return the error of an owner's query that failed, without the database's own words, which may quote values."""
    found = f"the query of its change failed ({type(error).__name__})"
    return SourceError(f"{table}: {found}; try it on the source, with the same rights")


def versioned(table: Table, change: Change, version: str) -> str:
    """All that identifies what was read from a table at a version: also which columns, and how they were compared."""
    columns = [[field.name, str(field.type)] for field in table.arrow_schema]
    return json.dumps([table.name, table.primary_key, columns, change_identity(change), version])


def _text(value: object) -> str | None:
    if isinstance(value, memoryview):  # what one driver of PostgreSQL gives for bytes, the other gives bytes
        value = bytes(value)
    return None if value is None else str(value)
