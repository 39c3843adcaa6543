"""The catalogue of a source: names, types and keys as the source itself declares them. No row is read.

Three kinds of source, one `Catalogue`: a folder of Parquet and CSV files (which declares no keys), a DuckDB file, and
any database SQLAlchemy can reflect.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privbench_core.errors import SourceError
from privbench_core.schema.location import expand, is_url, open_engine, parse_url
from privbench_core.schema.model import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

# How names of SQL types begin, in the spellings of DuckDB, PostgreSQL, SQLite and MySQL.
_SQL_NAMES = (
    (r"(U|BIG|SMALL|TINY|MEDIUM|HUGE)*INT(?!ERVAL)", ColumnType.INTEGER),
    (r"DECIMAL|NUMERIC", ColumnType.DECIMAL),
    (r"DOUBLE|FLOAT|REAL", ColumnType.FLOAT),
    (r"BOOL", ColumnType.BOOLEAN),
    (r"TIMESTAMP|DATETIME", ColumnType.TIMESTAMP),
    (r"DATE", ColumnType.DATE),
    (r"N?VARCHAR|N?CHAR|TEXT|STRING|ENUM", ColumnType.CATEGORY),
    (r"UUID", ColumnType.TEXT),
)


@dataclass(frozen=True)
class FoundColumn:
    """A column of the source.

    Attributes:
        name: Its name.
        type: The logical type that fits; None where no type does (read it as text).
        native: The source's own name of its type.
        nullable: Whether the source allows NULL.
        precision, scale: Of a decimal, where the source declares them.
    """

    name: str
    type: ColumnType | None
    native: str
    nullable: bool
    precision: int | None = None
    scale: int | None = None


@dataclass(frozen=True)
class FoundKey:
    """A foreign key of the source."""

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]


@dataclass(frozen=True)
class FoundTable:
    """A table of the source; ``primary_key`` is empty where none is declared."""

    name: str
    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[FoundKey, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Catalogue:
    """All tables of a source, by name, and a name for the database."""

    name: str
    tables: tuple[FoundTable, ...]


def read_catalogue(source: str) -> Catalogue:
    """Read the catalogue of a folder, a DuckDB file or a database URL.

    Raises:
        SourceError: The source is not there, cannot be opened, or holds no table.
    """
    place = expand(source)
    if is_url(place):
        found = _database(place)
    elif Path(place).is_dir():
        found = _folder(Path(place))
    elif Path(place).is_file():
        found = _duckdb(Path(place))
    else:
        raise SourceError(f"source: neither a folder nor a file nor a URL: {source}; check the path")
    if not found.tables:
        raise SourceError(f"source: no table in {source if not is_url(place) else 'the database'}; check what it names")
    return found


def _folder(folder: Path) -> Catalogue:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in {".parquet", ".csv"})
    readers = {".parquet": _parquet_columns, ".csv": _csv_columns}
    tables = tuple(FoundTable(path.stem, readers[path.suffix.lower()](path)) for path in files)
    return Catalogue(folder.resolve().name, tables)


def _parquet_columns(path: Path) -> tuple[FoundColumn, ...]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):
        raise SourceError(f"{path.stem}: {path.name} is not a readable Parquet file; write it again") from None
    return tuple(_arrow_column(field) for field in schema)


def _arrow_column(field: pa.Field) -> FoundColumn:
    import pyarrow as pa

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    tests = (
        (pa.types.is_integer, ColumnType.INTEGER),
        (pa.types.is_decimal, ColumnType.DECIMAL),
        (pa.types.is_floating, ColumnType.FLOAT),
        (pa.types.is_boolean, ColumnType.BOOLEAN),
        (pa.types.is_date, ColumnType.DATE),
        (pa.types.is_timestamp, ColumnType.TIMESTAMP),
        (pa.types.is_string, ColumnType.CATEGORY),
        (pa.types.is_large_string, ColumnType.CATEGORY),
    )
    logical = next((column_type for test, column_type in tests if test(kind)), None)
    digits = (kind.precision, kind.scale) if logical is ColumnType.DECIMAL else (None, None)
    return FoundColumn(field.name, logical, str(field.type), field.nullable, *digits)


def _csv_columns(path: Path) -> tuple[FoundColumn, ...]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header = next(csv.reader(lines), [])
    except UnicodeDecodeError:
        raise SourceError(f"{path.stem}: {path.name} is not UTF-8; convert it to UTF-8") from None
    return tuple(FoundColumn(name, ColumnType.CATEGORY, "CSV", nullable=True) for name in header)


def _duckdb(path: Path) -> Catalogue:
    import duckdb

    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            columns = connection.sql(
                "SELECT table_name, column_name, data_type, is_nullable, numeric_precision, numeric_scale"
                " FROM duckdb_columns() WHERE NOT internal AND schema_name = 'main' ORDER BY table_name, column_index"
            ).fetchall()
            constraints = connection.sql(
                "SELECT table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names"
                " FROM duckdb_constraints() WHERE schema_name = 'main'"
            ).fetchall()
    except duckdb.Error:
        found = f"{path.name} cannot be opened as a DuckDB file"
        raise SourceError(f"source: {found}; check it, or close it elsewhere") from None
    by_table: dict[str, list[FoundColumn]] = {}
    for table, *column in columns:
        by_table.setdefault(table, []).append(_sql_column(*column))
    tables = []
    for name, listed in by_table.items():
        mine = [row[1:] for row in constraints if row[0] == name]
        primary = next((tuple(row[1]) for row in mine if row[0] == "PRIMARY KEY"), ())
        keys = tuple(FoundKey(tuple(row[1]), row[2], tuple(row[3])) for row in mine if row[0] == "FOREIGN KEY")
        unique = tuple(tuple(row[1]) for row in mine if row[0] == "UNIQUE")
        tables.append(FoundTable(name, tuple(listed), primary, keys, unique))
    return Catalogue(path.stem, tuple(tables))


def _database(place: str) -> Catalogue:
    import sqlalchemy as sa

    url = parse_url(place)
    engine = open_engine(url)
    try:
        inspector = sa.inspect(engine)
        tables = []
        for name in sorted(inspector.get_table_names()):
            columns = tuple(
                _sql_column(
                    column["name"],
                    str(column["type"]),
                    bool(column["nullable"]),
                    getattr(column["type"], "precision", None),
                    getattr(column["type"], "scale", None),
                )
                for column in inspector.get_columns(name)
            )
            keys = tuple(
                FoundKey(tuple(key["constrained_columns"]), key["referred_table"], tuple(key["referred_columns"]))
                for key in inspector.get_foreign_keys(name)
            )
            unique = tuple(tuple(found["column_names"]) for found in inspector.get_unique_constraints(name))
            primary = tuple(inspector.get_pk_constraint(name)["constrained_columns"])
            tables.append(FoundTable(name, columns, primary, keys, unique))
    except sa.exc.SQLAlchemyError as error:
        kind = type(error).__name__
        raise SourceError(f"source: the catalogue cannot be read ({kind}); grant access to it") from None
    return Catalogue(Path(url.database or url.get_backend_name()).stem, tuple(tables))


def _sql_column(name: str, native: str, nullable: bool, precision: int | None, scale: int | None) -> FoundColumn:
    spelled = native.upper()
    logical = next((kind for pattern, kind in _SQL_NAMES if re.match(pattern, spelled)), None)
    if spelled.endswith("[]"):
        logical = None
    if logical is not ColumnType.DECIMAL:
        precision = scale = None
    return FoundColumn(name, logical, native, nullable, precision, scale)
