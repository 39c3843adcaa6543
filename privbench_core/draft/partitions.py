"""Draft how a table is partitioned, so that every made-up row has a partition.

The bounds of partitions are public, as all DDL is. Where they bound the values of one column, that is its domain, which
then costs nothing; elsewhere a DEFAULT partition is added for rows outside of the others.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator

from privbench_core.backends.catalogue import FoundTable
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.constraints import Check, Partition, Partitioning, usual_name
from privbench_core.spec import forms
from privbench_core.spec.fields import one_or_list
from privbench_core.spec.yaml_io import flow_yaml

_ONE_COLUMN = re.compile(r'(?:RANGE|LIST) \(("(?:[^"]|"")+"|\w+)\)')
_RANGE = re.compile(r"FROM \((.+)\) TO \((.+)\)")
_LIST = re.compile(r"IN \((.+)\)")
_OPEN = ("MINVALUE", "MAXVALUE")
_LAST_BEFORE = {ColumnType.DATE: dt.timedelta(days=1)}  # of times otherwise: a microsecond


def partition_bounds(table: FoundTable) -> Check | None:
    """Return as a CHECK what partitions say of the values of one column; None if they leave some open.

    >>> from privbench_core.backends.catalogue import FoundColumn
    >>> parts = [Partition("a", "FROM ('2024-01-01') TO ('2025-01-01')"), Partition("b", "FROM ('2025-01-01') TO ('2026-01-01')")]
    >>> day = FoundColumn("day", ColumnType.DATE, "date", nullable=False)
    >>> found = partition_bounds(FoundTable("t", (day,), partitioned=Partitioning("RANGE (day)", ("day",), tuple(parts))))
    >>> found.expression if found else None
    "day BETWEEN '2024-01-01' AND '2025-12-31'"
    """
    found = table.partitioned
    named = found and _ONE_COLUMN.fullmatch(found.by)
    if found is None or not named or found.columns[0] not in table.usable:
        return None
    column, first = table.column(found.columns[0]), [part for part in found.partitions if part.of is None]
    listed = [_LIST.fullmatch(part.values) for part in first]
    if column.nullable:
        return None
    if all(listed):
        return Check("partitions", f"{named[1]} IN ({', '.join(match[1] for match in listed if match)})")
    ends = _ends(first)
    last = ends and _last_before(ends[1], column.type)
    return Check("partitions", f"{named[1]} BETWEEN {ends[0]} AND {last}") if ends and last else None


def partition_lines(table: FoundTable, kept: set[str], *, bounded: bool) -> Iterator[str]:
    """Yield the lines of a table's partitions.

    Args:
        table: The table.
        kept: Its columns in the spec.
        bounded: Whether the spec declares no value of the column outside of `partition_bounds`.
    """
    found = table.partitioned
    if found is None:
        return
    if missing := set(found.columns) - kept:
        yield f"    # left out: the partitions, because of {', '.join(sorted(missing))}"
        return
    yield "    partitioned:"
    yield f"      by: {flow_yaml(found.by)}"
    yield f"      columns: {flow_yaml(one_or_list(found.columns))}"
    yield "      partitions:"
    yield from (f"        - {flow_yaml(forms.PARTITION.write(part))}" for part in found.partitions)
    levels = [part for part in found.partitions if part.by is not None]
    for above in (None, *levels):
        if (above is None and bounded) or _is_whole(found, above):
            continue
        of = above.name if above else None
        own = usual_name(of or table.name.rpartition(".")[2], (), "default")
        rest = forms.PARTITION.write(Partition(own, "DEFAULT", of))
        yield f"        - {flow_yaml(rest)} # for made-up rows outside of the others; the source has none"


def _is_whole(found: Partitioning, above: Partition | None) -> bool:
    """Return whether each row has a partition, among those of a partition or of the table."""
    by = above.by if above else found.by
    parts = [part for part in found.partitions if part.of == (above.name if above else None)]
    if (by or "").startswith("HASH") or any(part.values == "DEFAULT" for part in parts):
        return True
    ends = _ends(parts)
    higher = next((part.by for part in found.partitions if above and part.name == above.of), found.by)
    return ends is not None and (ends == _OPEN or (above is not None and by == higher and ends == _ends([above])))


def _ends(parts: Iterable[Partition]) -> tuple[str, str] | None:
    """Return the least and the last end of ranges, as they are written; None if there is a gap, or they are none."""
    matches = [_RANGE.fullmatch(part.values) for part in parts]
    onward = {match[1]: match[2] for match in matches if match}
    starts = onward.keys() - onward.values()
    if len(onward) < len(matches) or len(starts) != 1:
        return None
    first = here = starts.pop()
    for _ in matches:
        here = onward.get(here, "")
    return (first, here) if here else None


def _last_before(end: str, kind: ColumnType | None) -> str | None:
    """Return the last value before the end of a range; None where the type has none."""
    try:
        if kind is ColumnType.INTEGER:
            return str(int(end.strip("'")) - 1)
        if kind in {ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ}:
            last = dt.datetime.fromisoformat(end.strip("'")) - _LAST_BEFORE.get(kind, dt.timedelta(microseconds=1))
            return f"'{last.date() if kind is ColumnType.DATE else last}'"
    except (ValueError, OverflowError):  # MAXVALUE, infinity, a year before our era
        pass
    return None
