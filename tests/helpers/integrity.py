"""The integrity suites of a whole database at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from privbench_core.schema.tables import Schema
from privbench_core.validate import ExpectationResult
from privbench_core.validate.ranges import check_whole


def check_integrity(schema: Schema, tables: Mapping[str, pa.Table]) -> dict[str, list[ExpectationResult]]:
    """What is found of every table, in schema order."""
    return {table.name: check_whole(schema, table, tables) for table in schema.tables}


def failures(results: Mapping[str, Sequence[ExpectationResult]]) -> list[str]:
    """A line for each expectation that does not hold: where, which one, how many rows."""
    return [
        f"{table}{f'.{result.column}' if result.column else ''}: {result.name} fails"
        + ("" if result.unexpected_count is None else f" for {result.unexpected_count:,} rows")
        for table, of_table in results.items()
        for result in of_table
        if not result.success
    ]
