"""How PostgreSQL keeps the rows of a table in parts, in the DDL alone, and which rows have a part.

The bounds of partitions are public, as all DDL is. No row of the source is outside of them, so they are a domain that
costs nothing; with another domain, made-up rows outside of the others need a DEFAULT partition. Older databases have
tables that inherit (``INHERITS``), each with CHECK constraints on its rows: these are public too, and which row of the
source is in which table is never read.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from privbench_core.schema.columns import ColumnType, Domain, Range, Values
from privbench_core.schema.constraints import Check, Index, usual_name
from privbench_core.schema.types.base import OrderedType

_ONE_COLUMN = re.compile(r'(RANGE|LIST) \((?:"(?:[^"]|"")+"|\w+)\)')
_RANGE = re.compile(r"FROM \((.+)\) TO \((.+)\)")
_LIST = re.compile(r"IN \((.+)\)")
_LITERAL = re.compile(r"'((?:[^']|'')*)'|([^\s,']+)")
_OPEN = ("MINVALUE", "MAXVALUE")
_DEFAULT = "DEFAULT"


@dataclass(frozen=True)
class Partition:
    """A part of a partitioned table.

    Attributes:
        name: Its name, in the schema of its table.
        values: Its bounds after FOR VALUES, or DEFAULT.
        of: The partition that it is a part of; None for the table itself.
        by: How it is partitioned in its turn, if it is.
    """

    name: str
    values: str
    of: str | None = None
    by: str | None = None

    @property
    def clause(self) -> str:
        """What stands after PARTITION OF and the name of what it is a part of."""
        bounds = _DEFAULT if self.values == _DEFAULT else f"FOR VALUES {self.values}"
        return bounds if self.by is None else f"{bounds} PARTITION BY {self.by}"


@dataclass(frozen=True)
class HeirKey:
    """A foreign key of an heir, with the columns of one of its table; otherwise as a `ForeignKey` in the DDL."""

    columns: tuple[str, ...]
    constraint: str | None = None
    actions: str | None = None


@dataclass(frozen=True)
class Heir:
    """A table that inherits from another one: it holds the rows that satisfy its checks, and no heir before it does.

    Attributes:
        name: Its name.
        checks: Those of its own, at least one.
        keys: Columns and names of its primary key and its unique sets; each is also one of its table.
        foreign_keys: Its own.
        indexes: Those that no constraint makes.
        comment: As the source has it.
    """

    name: str
    checks: tuple[Check, ...]
    keys: tuple[tuple[tuple[str, ...], str], ...] = ()
    foreign_keys: tuple[HeirKey, ...] = ()
    indexes: tuple[Index, ...] = ()
    comment: str | None = None

    @property
    def condition(self) -> str:
        """What holds for its rows, as SQL."""
        return " AND ".join(f"({check.expression})" for check in self.checks)


@dataclass(frozen=True)
class Partitioning:
    """How a table is partitioned.

    Attributes:
        by: What follows PARTITION BY.
        columns: Those that it depends on, at any level.
        partitions: Each after the one that it is a part of.
    """

    by: str
    columns: tuple[str, ...]
    partitions: tuple[Partition, ...]

    def allows_key(self, columns: Iterable[str]) -> bool:
        """Return whether PostgreSQL can keep these columns unique: partitions depend on these alone, as they are."""
        levels = (self.by, *(part.by for part in self.partitions if part.by))
        return set(self.columns) <= set(columns) and all(by.count("(") == 1 for by in levels)

    def bounds(self, kind: ColumnType) -> Range | Values | None:
        """Return which values of its first column the table's own partitions hold, NULL apart.

        Args:
            kind: The type of the column.

        Returns:
            The values; None where there are several columns, a gap, an open end, or more than the type can say.

        >>> parts = [Partition(f"y{n}", f"FROM ('{n}-01-01') TO ('{n + 1}-01-01')") for n in (2024, 2025)]
        >>> Partitioning("RANGE (day)", ("day",), tuple(parts)).bounds(ColumnType.DATE)
        Range(low='2024-01-01', high='2025-12-31', cells=None, step=None)
        """
        if not _ONE_COLUMN.fullmatch(self.by):
            return None
        parts = self._parts_of(None)
        if listed := [match[1] for part in parts if (match := _LIST.fullmatch(part.values))]:
            found = [(text.replace("''", "'"), bare) for each in listed for text, bare in _LITERAL.findall(each)]
            values = [None if bare == "NULL" else kind.logical.parse(bare or text) for text, bare in found]
            known = tuple(value for value in values if value is not None)
            is_list = len(listed) == len(parts) and len(known) == len(values) and kind.logical.listable
            return Values(known) if is_list else None
        ends = _ends(parts)
        low = kind.logical.parse(ends[0].strip("'")) if ends else None
        last = _last_before(ends[1].strip("'"), kind) if ends else None
        high = None if last is None else kind.logical.parse(last)
        return None if low is None or high is None else Range(low, high)

    def missing_partitions(
        self, table: str, domain: Domain | None, kind: ColumnType, *, nullable: bool
    ) -> Iterator[Partition]:
        """Yield the DEFAULT partitions that are lacking for made-up rows outside of all others.

        Args:
            table: Name of the table, without its schema.
            domain: The values that the first column may have.
            kind: Its type.
            nullable: Whether it may be NULL.
        """
        bounds = self.bounds(kind)
        for above in (None, *(part for part in self.partitions if part.by is not None)):
            held = above is None and not nullable and bounds is not None and _is_within(domain, bounds, kind)
            if not held and not self._is_whole(above):
                of = above.name if above else None
                yield Partition(usual_name(of or table, (), "default"), _DEFAULT, of)

    def _parts_of(self, above: Partition | None) -> list[Partition]:
        return [part for part in self.partitions if part.of == (above.name if above else None)]

    def _is_whole(self, above: Partition | None) -> bool:
        """Return whether every row has a partition, among those of a partition or of the table."""
        by, parts = above.by if above else self.by, self._parts_of(above)
        if (by or "").startswith("HASH") or any(part.values == _DEFAULT for part in parts):
            return True
        ends = _ends(parts)
        if ends is None or above is None or ends == _OPEN:
            return ends == _OPEN
        higher = next((part.by for part in self.partitions if part.name == above.of), self.by)
        return by == higher and ends == _ends([above])


def _ends(parts: Iterable[Partition]) -> tuple[str, str] | None:
    """Return the least and the last end of ranges, as they are written; None if there is a gap, or they are none."""
    matches = [_RANGE.fullmatch(part.values) for part in parts]
    onward = {match[1]: match[2] for match in matches if match}
    starts = onward.keys() - set(onward.values())
    if len(onward) < len(matches) or len(starts) != 1:
        return None
    first = here = starts.pop()
    for _ in matches:
        here = onward.get(here, "")
    return (first, here) if here else None


def _last_before(end: str, kind: ColumnType) -> int | str | None:
    """Return the last value before the end of a range; None where the type has none."""
    try:
        if kind is ColumnType.INTEGER:
            return int(end) - 1
        if kind is ColumnType.DATE:
            return str(dt.date.fromisoformat(end) - dt.timedelta(days=1))
        if kind in {ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ}:
            return str(dt.datetime.fromisoformat(end) - dt.timedelta(microseconds=1))
    except (ValueError, OverflowError):  # MAXVALUE, infinity, a year before our era
        pass
    return None


def _is_within(domain: Domain | None, bounds: Range | Values, kind: ColumnType) -> bool:
    if isinstance(domain, Values) and isinstance(bounds, Values):
        return set(domain.values) <= set(bounds.values)
    if not (isinstance(domain, Range) and isinstance(bounds, Range) and isinstance(kind.logical, OrderedType)):
        return False
    number = kind.logical.sort_key
    return number(bounds.low) <= number(domain.low) and number(domain.high) <= number(bounds.high)
