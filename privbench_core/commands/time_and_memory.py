"""Estimate what a run takes, from declared numbers of columns and released numbers of rows."""

from __future__ import annotations

from collections.abc import Mapping

from privbench_core.models.row_count import RowCount
from privbench_core.schema.tables import Schema

# From "Any schema" and "Scale" in benchmarks/README.md: sakila (33,000 rows) takes 4 s and 0.4 GB; TPC-H at 0.1 and 1
# (9 and 90 million values) 25 to 34 s and 237 s, 1.1 and 5 GB. Runs of few columns are up to five times as fast.
_SECONDS, _GIGABYTES = 4.0, 0.4
_SECONDS_EACH, _GIGABYTES_EACH = 2.6, 0.055  # per million values


def in_words(schema: Schema, released: Mapping[str, RowCount]) -> str:
    """Return about how long a run takes and how much memory it needs, on two cores.

    Args:
        schema: The database.
        released: Sizes of private tables as far as they were released; without them, a rule for the reader.
    """
    columns = {table.name: len(table.columns) for table in schema.private_tables}
    if not columns.keys() <= released.keys():
        each = f"{_SECONDS_EACH:.0f} s and {_GIGABYTES_EACH * 1000:.0f} MB for each million values (rows times columns)"
        return f"about {_SECONDS:.0f} s and {_GIGABYTES:g} GB, and {each}"
    millions = sum(columns[name] * max(0.0, released[name].rows) for name in columns) / 1e6
    seconds, memory = _SECONDS + _SECONDS_EACH * millions, _GIGABYTES + _GIGABYTES_EACH * millions
    return f"about {seconds:,.0f} s and {memory:.1f} GB, by the released numbers of rows"
