"""Booleans, categories, and the opaque types: text, UUIDs, bytes and JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from privbench_core.schema.types.base import LogicalType, Scalar, SqlName
from privbench_core.schema.types.numeric import FloatType, IntegerType
from privbench_core.schema.types.times import DateType, TimestampType

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT_KINDS = ("string", "large_string")
_TEXT_SQL = ("text", "character varying", "character")
_LENGTH_ONLY = "remove it: no more than the length of a value is modelled"


@dataclass(frozen=True)
class BooleanType(LogicalType):
    """False and true."""

    name = "boolean"
    no_domain = "remove it: a boolean has two values"
    fixed_values = (False, True)
    keyable = False
    surrogate = None
    arrow = "bool"
    arrow_kinds = ("boolean",)
    sql = (SqlName("boolean", ("bool",)),)
    native = r"BOOL"


@dataclass(frozen=True)
class CategoryType(LogicalType):
    """Text with a declared or learned list of values."""

    name = "category"
    listable = True
    textual = True
    surrogate = "text"
    arrow = "string"
    arrow_kinds = _TEXT_KINDS
    arrow_accepts = ("string_view",)
    time_of_day = True
    sql = (
        SqlName("text", ("string",)),
        SqlName("character varying", ("varchar", "nvarchar"), arguments=1),
        SqlName("character", ("char", "bpchar", "nchar"), arguments=1),
    )
    also_stored_as = ("uuid", "inet", "cidr", "macaddr")
    native = r"N?VARCHAR|N?CHAR|(TINY|MEDIUM|LONG)?TEXT|STRING|CLOB|ENUM"

    @property
    def key_type(self) -> str:
        """Categories and opaque text are both stored as text."""
        return TextType.name

    def bound(self, value: Scalar) -> Scalar:
        return str(value)


@dataclass(frozen=True)
class TextType(LogicalType):
    """Opaque text: only its length is modelled, or it follows a public pattern."""

    name = "text"
    options = frozenset({"max_length"})
    opaque = True
    length_unit = "characters"
    textual = True
    surrogate = "text"
    arrow = "string"
    arrow_accepts = _TEXT_KINDS
    time_of_day = True
    sql = tuple(SqlName(name, any_text=False, duckdb="text") for name in ("inet", "cidr", "macaddr"))
    also_stored_as = _TEXT_SQL
    default_sql = _TEXT_SQL[0]


@dataclass(frozen=True)
class UuidType(LogicalType):
    """UUIDs, replaced by random ones: 36 characters in lower case."""

    name = "uuid"
    no_domain = "remove it: random ones are generated"
    opaque = True
    has_form = True
    form = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    surrogate = "uuid"
    arrow = "string"
    arrow_accepts = _TEXT_KINDS
    sql = (SqlName("uuid"),)
    also_stored_as = _TEXT_SQL

    def read(self, values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
        from privbench_core.schema.types.arrow import read_uuids

        return read_uuids(values)


@dataclass(frozen=True)
class BytesType(LogicalType):
    """Bytes: only their length is modelled."""

    name = "bytes"
    options = frozenset({"max_length"})
    no_domain = _LENGTH_ONLY
    opaque = True
    length_unit = "bytes"
    has_form = True  # their length
    surrogate = None
    arrow = "binary"
    arrow_kinds = ("binary", "large_binary")
    reads_whole = True
    sql = (SqlName("bytea", ("blob", "varbinary")),)
    native = r"(TINY|MEDIUM|LONG)?BLOB|(VAR)?BINARY"


_ELEMENTS = (
    *(name for kind in (IntegerType, FloatType, DateType, TimestampType) for name in kind.sql),
    *(name for kind in (BooleanType, UuidType) for name in kind.sql),
    SqlName("text", ("string", "varchar", "character varying")),
)


def _array_of(element: SqlName) -> SqlName:
    """Return the type of arrays of a type."""
    synonyms = tuple(f"{name}[]" for name in element.synonyms)
    stored = None if element.duckdb is None else f"{element.duckdb}[]"
    return SqlName(f"{element.name}[]", synonyms, any_text=False, duckdb=stored)


@dataclass(frozen=True)
class JsonType(LogicalType):
    """JSON documents, and arrays as such: only the length of their text is modelled, unless their structure is learned.

    Opaque ones are objects, because queries take their members out, and are spelled as PostgreSQL's jsonb spells
    them, which keeps the length.
    """

    name = "json"
    options = frozenset({"max_length"})
    structured = True
    opaque = True
    shortest = len("{}")
    frame = (b'{"a": "', b'"}')
    length_unit = "characters"
    has_form = True
    keyable = False
    surrogate = None
    arrow = "string"
    arrow_accepts = _TEXT_KINDS
    sql = (SqlName("json"), SqlName("jsonb", duckdb="json"), *map(_array_of, _ELEMENTS))
    also_stored_as = _TEXT_SQL

    def read(self, values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
        from privbench_core.schema.types.arrow import read_documents

        return read_documents(values, target)

    def is_value(self, text: str) -> bool:
        try:
            json.loads(text)
        except ValueError:
            return False
        return True
