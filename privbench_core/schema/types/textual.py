"""Booleans, categories, and the opaque types: text, UUIDs, bytes and JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from privbench_core.schema.types.base import LogicalType, Scalar, SqlName

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT_KINDS = ("string", "large_string")
_TEXT_SQL = ("text", "character varying", "character")
_LENGTH_ONLY = "remove it: no more than the length of a value is modelled"


@dataclass(frozen=True)
class BooleanType(LogicalType):
    """False and true."""

    name: ClassVar[str] = "boolean"
    no_domain: ClassVar[str | None] = "remove it: a boolean has two values"
    codec: ClassVar[str | None] = "list"
    fixed_values: ClassVar[tuple[Scalar, ...]] = (False, True)
    keyable: ClassVar[bool] = False
    surrogate: ClassVar[str] = "boolean"
    arrow: ClassVar[str] = "bool"
    arrow_kinds: ClassVar[tuple[str, ...]] = ("boolean",)
    sql: ClassVar[tuple[SqlName, ...]] = (SqlName("boolean", ("bool",)),)
    default_sql: ClassVar[str] = "boolean"
    native: ClassVar[str | None] = r"BOOL"


@dataclass(frozen=True)
class CategoryType(LogicalType):
    """Text with a declared or learned list of values."""

    name: ClassVar[str] = "category"
    listable: ClassVar[bool] = True
    textual: ClassVar[bool] = True
    surrogate: ClassVar[str] = "text"
    arrow: ClassVar[str] = "string"
    arrow_kinds: ClassVar[tuple[str, ...]] = _TEXT_KINDS
    arrow_accepts: ClassVar[tuple[str, ...]] = ("string_view",)
    time_of_day: ClassVar[bool] = True
    sql: ClassVar[tuple[SqlName, ...]] = (
        SqlName("text", ("string",)),
        SqlName("character varying", ("varchar", "nvarchar"), arguments=1),
        SqlName("character", ("char", "bpchar", "nchar"), arguments=1),
    )
    also_stored_as: ClassVar[tuple[str, ...]] = ("uuid", "inet", "cidr", "macaddr")
    default_sql: ClassVar[str] = "text"
    native: ClassVar[str | None] = r"N?VARCHAR|N?CHAR|(TINY|MEDIUM|LONG)?TEXT|STRING|CLOB|ENUM"

    @property
    def key_type(self) -> str:
        """Categories and opaque text are both stored as text."""
        return TextType.name

    def bound(self, value: Scalar) -> Scalar:
        return str(value)


@dataclass(frozen=True)
class TextType(LogicalType):
    """Opaque text: only its length is modelled, or it follows a public pattern."""

    name: ClassVar[str] = "text"
    options: ClassVar[frozenset[str]] = frozenset({"max_length"})
    codec: ClassVar[str | None] = "length"
    length_unit: ClassVar[str | None] = "characters"
    textual: ClassVar[bool] = True
    surrogate: ClassVar[str] = "text"
    arrow: ClassVar[str] = "string"
    arrow_accepts: ClassVar[tuple[str, ...]] = _TEXT_KINDS
    time_of_day: ClassVar[bool] = True
    sql: ClassVar[tuple[SqlName, ...]] = tuple(
        SqlName(name, any_text=False, duckdb="text") for name in ("inet", "cidr", "macaddr")
    )
    also_stored_as: ClassVar[tuple[str, ...]] = _TEXT_SQL
    default_sql: ClassVar[str] = "text"


@dataclass(frozen=True)
class UuidType(LogicalType):
    """UUIDs, replaced by random ones: 36 characters in lower case."""

    name: ClassVar[str] = "uuid"
    no_domain: ClassVar[str | None] = "remove it: random ones are generated"
    codec: ClassVar[str | None] = "uuid"
    has_form: ClassVar[bool] = True
    form: ClassVar[str | None] = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    surrogate: ClassVar[str] = "uuid"
    arrow: ClassVar[str] = "string"
    arrow_accepts: ClassVar[tuple[str, ...]] = _TEXT_KINDS
    sql: ClassVar[tuple[SqlName, ...]] = (SqlName("uuid"),)
    also_stored_as: ClassVar[tuple[str, ...]] = _TEXT_SQL
    default_sql: ClassVar[str] = "uuid"

    def read(self, values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
        from privbench_core.schema.types.arrow import read_uuids

        return read_uuids(values)


@dataclass(frozen=True)
class BytesType(LogicalType):
    """Bytes: only their length is modelled."""

    name: ClassVar[str] = "bytes"
    options: ClassVar[frozenset[str]] = frozenset({"max_length"})
    no_domain: ClassVar[str | None] = _LENGTH_ONLY
    codec: ClassVar[str | None] = "length"
    length_unit: ClassVar[str | None] = "bytes"
    has_form: ClassVar[bool] = True  # their length
    surrogate: ClassVar[str] = "bytes"
    replaceable: ClassVar[bool] = False
    arrow: ClassVar[str] = "binary"
    arrow_kinds: ClassVar[tuple[str, ...]] = ("binary", "large_binary")
    reads_whole: ClassVar[bool] = True
    sql: ClassVar[tuple[SqlName, ...]] = (SqlName("bytea", ("blob", "varbinary")),)
    default_sql: ClassVar[str] = "bytea"
    native: ClassVar[str | None] = r"(TINY|MEDIUM|LONG)?BLOB|(VAR)?BINARY"
    copy_form: ClassVar[str] = r"'\x' || hex({})"

    def read(self, values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
        from privbench_core.schema.types.arrow import read_bytes

        return read_bytes(values)


@dataclass(frozen=True)
class JsonType(LogicalType):
    """JSON documents: only the length of their text is modelled.

    Generated ones are objects, because queries take their members out, and are spelled as PostgreSQL's jsonb spells
    them, which keeps the length.
    """

    name: ClassVar[str] = "json"
    options: ClassVar[frozenset[str]] = frozenset({"max_length"})
    no_domain: ClassVar[str | None] = _LENGTH_ONLY
    codec: ClassVar[str | None] = "length"
    shortest: ClassVar[int] = len("{}")
    frame: ClassVar[tuple[bytes, bytes]] = (b'{"a": "', b'"}')
    length_unit: ClassVar[str | None] = "characters"
    has_form: ClassVar[bool] = True
    keyable: ClassVar[bool] = False
    surrogate: ClassVar[str] = "json"
    arrow: ClassVar[str] = "string"
    arrow_accepts: ClassVar[tuple[str, ...]] = _TEXT_KINDS
    sql: ClassVar[tuple[SqlName, ...]] = (SqlName("json"), SqlName("jsonb", duckdb="json"))
    also_stored_as: ClassVar[tuple[str, ...]] = _TEXT_SQL
    default_sql: ClassVar[str] = "json"

    def is_value(self, text: str) -> bool:
        try:
            json.loads(text)
        except ValueError:
            return False
        return True
