"""The catalogue of a source: what the source itself declares of its tables. No row is read.

Five kinds of source, one `Catalogue`: a folder of Parquet and CSV files and a schema of a Spark cluster (which declare
no keys), a DuckDB file, PostgreSQL, and any other database SQLAlchemy can reflect.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from privbench_core.schema.columns import ColumnType, EnumType, Generated, IdentitySequence
from privbench_core.schema.constraints import Check, Index


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
class FoundKey:
    """A foreign key of the source; ``constraint`` and ``actions`` as `ForeignKey` has them."""

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    constraint: str | None = None
    actions: str | None = None


@dataclass(frozen=True)
class FoundTable:
    """A table of the source.

    Attributes:
        name: Its name.
        columns: In the source's order.
        primary_key: Empty where none is declared.
        foreign_keys, unique, checks, indexes, comment, key_names: As the source declares them.
        generated: Computed columns, each with the columns that it is computed from.
        declares_indexes: Whether the source has indexes at all, so that none means none.
        notes: What had to be left out, and why.
        unreadable: Whether the login may not read its rows.
    """

    name: str
    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[FoundKey, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    checks: tuple[Check, ...] = ()
    indexes: tuple[Index, ...] = ()
    comment: str | None = None
    declares_indexes: bool = False
    notes: tuple[str, ...] = ()
    unreadable: bool = False
    key_names: tuple[tuple[tuple[str, ...], str], ...] = ()
    generated: tuple[tuple[Generated, tuple[str, ...]], ...] = ()

    def column(self, name: str) -> FoundColumn:
        """Return the column of that name, which must be there."""
        return next(column for column in self.columns if column.name == name)


@dataclass(frozen=True)
class Catalogue:
    """A source as it describes itself.

    Attributes:
        name: For the database.
        tables: By name.
        enums: Its named enums.
        notes: On what is no table.
        proposed: Whether keys were guessed from names because the source declares none.
    """

    name: str
    tables: tuple[FoundTable, ...]
    enums: tuple[EnumType, ...] = ()
    notes: tuple[str, ...] = ()
    proposed: bool = False

    def table(self, name: str) -> FoundTable:
        """Return the table of that name, which must be there."""
        return next(table for table in self.tables if table.name == name)


def enums_of(tables: Iterable[FoundTable]) -> tuple[EnumType, ...]:
    """Return the named enums that the columns of these tables have, by name."""
    columns = [column for table in tables for column in table.columns]
    found = {column.sql_type: column.values for column in columns if column.sql_type and column.values}
    return tuple(EnumType(name, values) for name, values in sorted(found.items()))
