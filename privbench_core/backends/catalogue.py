"""The catalogue of a source: what the source itself declares of its tables. No row is read.

Five kinds of source, one `Catalogue`: a folder of Parquet and CSV files and a schema of a Spark cluster (which declare
no keys), a DuckDB file, PostgreSQL, and any other database SQLAlchemy can reflect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from privbench_core.schema.columns import MOST_DIGITS, ColumnType, EnumType, Generated, IdentitySequence
from privbench_core.schema.constraints import Check, Index, Reference, without_implied
from privbench_core.schema.partitions import Heir, Partitioning
from privbench_core.schema.tables import View
from privbench_core.schema.types.registry import default_sql_type, parse_sql_type

CSV = "CSV"
"""The native type of every column of a CSV file, which gives none."""
SEVERAL_VALUES = "holds several values per row; store them in a table of their own, or do without this column"
"""The note on a column of an array or a nested type."""

_NO_NUMBER = re.compile(r".*(RANGE|VECTOR)$", re.IGNORECASE)  # int4range, datemultirange, int2vector
_NESTED = re.compile(r".*\[\d*\]$|(ARRAY|STRUCT|MAP|UNION|LIST|ROW|VARIANT)\b", re.IGNORECASE)
_DOCUMENT = re.compile(r"(?!MAP|UNION|VARIANT|.*BYTEA|.*BLOB).*\[\d*\]$|(ARRAY<|STRUCT)", re.IGNORECASE)
_CLOCK = re.compile(r"TIME(\(\d\))?( WITHOUT TIME ZONE)?$", re.IGNORECASE)


@dataclass(frozen=True)
class FoundColumn:
    """A column of the source.

    Attributes:
        name: Its name.
        type: The logical type that fits; None where none does.
        native: The source's own name of its type.
        nullable: Whether the source allows NULL.
        precision, scale: Of a decimal, where the source declares them.
        sql_type: The type for the spec, where it is not the default of the logical one.
        values: Of an enum.
        default, identity, comment, sequence: As `Column` has them.
        note: What the owner should know about the type.
        clock: Whether it is a time of day, which is read as an interval.
    """

    name: str
    type: ColumnType | None
    native: str
    nullable: bool
    precision: int | None = None
    scale: int | None = None
    sql_type: str | None = None
    values: tuple[str, ...] = ()
    default: str | None = None
    identity: bool = False
    comment: str | None = None
    sequence: IdentitySequence | None = None
    note: str | None = None
    clock: bool = False


@dataclass(frozen=True)
class FoundKey(Reference):
    """A foreign key of the source; ``constraint`` and ``actions`` as `ForeignKey` has them."""

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    constraint: str | None = None
    actions: str | None = None

    @property
    def cascades(self) -> bool:
        """Whether the source removes rows together with the row that they refer to along the key."""
        return "ON DELETE CASCADE" in (self.actions or "")


@dataclass(frozen=True)
class FoundTable:
    """A table of the source.

    Attributes:
        name: Its name.
        columns: In the source's order.
        primary_key: Empty where none is declared.
        foreign_keys, unique, checks, comment, key_names: As the source declares them.
        indexes: Those that no constraint makes; None where the source has none at all.
        generated: Computed columns, each with the columns that it is computed from.
        partitioned, heirs: As `Table` has them.
        notes: What had to be left out, and why.
        unreadable: Whether the login may not read its rows.
    """

    name: str
    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[FoundKey, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    checks: tuple[Check, ...] = ()
    indexes: tuple[Index, ...] | None = None
    comment: str | None = None
    notes: tuple[str, ...] = ()
    unreadable: bool = False
    key_names: tuple[tuple[tuple[str, ...], str], ...] = ()
    generated: tuple[tuple[Generated, tuple[str, ...]], ...] = ()
    partitioned: Partitioning | None = None
    heirs: tuple[Heir, ...] = ()

    def column(self, name: str) -> FoundColumn:
        """Return the column of that name, which must be there."""
        return next(column for column in self.columns if column.name == name)

    @property
    def usable(self) -> dict[str, FoundColumn]:
        """The columns of a type that fits, by name."""
        return {column.name: column for column in self.columns if column.type is not None}

    @property
    def key_columns(self) -> frozenset[str]:
        """The columns of the primary key and of the foreign keys."""
        return frozenset(self.primary_key).union(*(key.columns for key in self.foreign_keys))

    def is_optional(self, key: FoundKey) -> bool:
        """Return whether a foreign key of the table may be NULL."""
        nullable = {column.name for column in self.columns if column.nullable} - set(self.primary_key)
        return not nullable.isdisjoint(key.columns)

    def is_single(self, key: FoundKey) -> bool:
        """Return whether at most one row of the table refers to each row by a foreign key."""
        return any(set(group) <= set(key.columns) for group in (self.primary_key, *self.unique) if group)


@dataclass(frozen=True)
class FoundView:
    """A view of the source.

    Attributes:
        view: Its definition.
        needs: Something that a target has not, None for nothing.
        reads: Tables and views with each column that it reads; None for all.
    """

    view: View
    needs: str | None
    reads: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class Catalogue:
    """A source as it describes itself.

    Attributes:
        name: For the database.
        tables: By name.
        enums: Its named enums.
        notes: On what is no table.
        proposed: Whether keys were guessed from names because the source declares none.
        schemas: Of PostgreSQL, as `Schema` has them.
        views: Its views, each usually after those that it reads.
        others: Kinds and names of what no spec can hold.
    """

    name: str
    tables: tuple[FoundTable, ...]
    enums: tuple[EnumType, ...] = ()
    notes: tuple[str, ...] = ()
    proposed: bool = False
    schemas: tuple[str, ...] = ()
    views: tuple[FoundView, ...] = ()
    others: tuple[tuple[str, str], ...] = ()

    @property
    def readable(self) -> tuple[FoundTable, ...]:
        """The tables whose rows the login may read."""
        return tuple(table for table in self.tables if not table.unreadable)

    def table(self, name: str) -> FoundTable:
        """Return the table of that name, which must be there."""
        return next(table for table in self.tables if table.name == name)

    def without_implied(self, keys: Sequence[FoundKey]) -> tuple[list[FoundKey], list[FoundKey]]:
        """Return the keys of a table, those apart that others imply; see `without_implied`."""
        required = {t.name: [key for key in t.foreign_keys if not t.is_optional(key)] for t in self.tables}
        return without_implied(keys, lambda name: required.get(name, ()))


def enums_of(tables: Iterable[FoundTable]) -> tuple[EnumType, ...]:
    """Return the named enums that the columns of these tables have, by name."""
    columns = [column for table in tables for column in table.columns]
    found = {column.sql_type: column.values for column in columns if column.sql_type and column.values}
    return tuple(EnumType(name, values) for name, values in sorted(found.items()))


def found_column(name: str, native: str, *, nullable: bool) -> FoundColumn:
    """Return a column of the source by its declared type.

    >>> column = found_column("price", "NUMERIC(8, 2)", nullable=True)
    >>> str(column.type), column.precision, column.scale, column.sql_type
    ('decimal', 8, 2, None)
    >>> found_column("tags", "text[]", nullable=True).sql_type
    'text[]'
    """
    stored = parse_sql_type(native)
    if stored is None:
        starts = ((kind, kind.logical.native) for kind in ColumnType)
        logical = next((kind for kind, start in starts if start and re.match(start, native.upper())), None)
        found = FoundColumn(name, logical, native, nullable)
        if _DOCUMENT.match(native):
            return replace(found, type=ColumnType.JSON, note=f"{native} becomes json")
        if _NESTED.match(native):
            return replace(found, type=None, note=SEVERAL_VALUES)
        if _CLOCK.match(native):
            return replace(found, type=ColumnType.INTERVAL, clock=True)
        if logical is None or _NO_NUMBER.match(native):
            return replace(found, type=ColumnType.TEXT, note=f"{native} has no counterpart here and is read as text")
        return found
    found = FoundColumn(name, stored.read_as, native, nullable)
    if stored.name == "numeric" and stored.arguments:
        precision, scale = (*stored.arguments, 0)[:2]
        if precision > MOST_DIGITS:
            return replace(found, note=f"more digits than {MOST_DIGITS} are not kept")
        found = replace(found, precision=precision, scale=scale)
    usual = default_sql_type(stored.read_as.logical.sized(found.precision, found.scale, 64))
    is_usual = stored == usual and (stored.name != "numeric" or stored.arguments)
    return found if is_usual else replace(found, sql_type=str(stored))


def exact_name(name: str, known: Iterable[str]) -> str:
    """Return the one of the known names that differs in case at most; the name itself if there is none or several.

    >>> exact_name("userid", ["UserId", "id"]), exact_name("a", ["A", "a"]), exact_name("b", ["A", "a"])
    ('UserId', 'a', 'b')
    """
    same = [other for other in known if other.casefold() == name.casefold()]
    return same[0] if len(same) == 1 else name


def with_exact_names(tables: Sequence[FoundTable]) -> tuple[FoundTable, ...]:
    """Return the tables with keys whose names are those of the tables and columns that they mean.

    To most databases ``users`` and ``[Users]`` are the table ``Users``. To PostgreSQL, and to a spec, they are not: a
    key to ``users`` would lead nowhere, and rows that belong to units would seem to be nobody's. A key that names
    no columns of its parent, as in ``REFERENCES users``, means the primary key.
    """
    columns = {table.name: [column.name for column in table.columns] for table in tables}
    primary = {table.name: table.primary_key for table in tables}

    def exact(table: str, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(exact_name(name, columns.get(table, ())) for name in names)

    found = []
    for table in tables:
        keys = []
        for key in table.foreign_keys:
            parent = exact_name(key.parent, columns)
            there = exact(parent, key.parent_columns or primary.get(parent, ()))
            keys.append(replace(key, columns=exact(table.name, key.columns), parent=parent, parent_columns=there))
        unique = tuple(exact(table.name, group) for group in table.unique)
        own = exact(table.name, table.primary_key)
        found.append(replace(table, primary_key=own, foreign_keys=tuple(keys), unique=unique))
    return tuple(found)
