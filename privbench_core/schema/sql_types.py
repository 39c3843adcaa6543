"""The SQL types that a spec may name, in PostgreSQL's words.

A spec is a file that people pass around, and its ``sql_type`` ends in DDL. So it is never pasted there: it is read into
a `SqlType` of a known name, or refused, and the DDL spells the `SqlType`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from privbench_core.schema.columns import Column, ColumnType

_T = ColumnType
_TEXTUAL = frozenset({_T.TEXT, _T.CATEGORY, _T.UUID, _T.JSON})
_NETWORK = frozenset({_T.TEXT, _T.CATEGORY})
_STORES = {
    "smallint": frozenset({_T.INTEGER}),
    "integer": frozenset({_T.INTEGER}),
    "bigint": frozenset({_T.INTEGER}),
    "numeric": frozenset({_T.DECIMAL, _T.INTEGER}),
    "real": frozenset({_T.FLOAT}),
    "double precision": frozenset({_T.FLOAT}),
    "boolean": frozenset({_T.BOOLEAN}),
    "date": frozenset({_T.DATE}),
    "timestamp without time zone": frozenset({_T.TIMESTAMP}),
    "timestamp with time zone": frozenset({_T.TIMESTAMPTZ}),
    "interval": frozenset({_T.INTERVAL}),
    "uuid": frozenset({_T.UUID, _T.CATEGORY}),
    "bytea": frozenset({_T.BYTES}),
    "json": frozenset({_T.JSON}),
    "jsonb": frozenset({_T.JSON}),
    "text": _TEXTUAL,
    "character varying": _TEXTUAL,
    "character": _TEXTUAL,
    "inet": _NETWORK,
    "cidr": _NETWORK,
    "macaddr": _NETWORK,
}
_SYNONYMS = {
    "int2": "smallint", "tinyint": "smallint", "utinyint": "smallint",
    "int": "integer", "int4": "integer", "mediumint": "integer", "usmallint": "integer",
    "int8": "bigint", "uinteger": "bigint",
    "decimal": "numeric", "dec": "numeric",
    "float4": "real", "float": "double precision", "float8": "double precision", "double": "double precision",
    "bool": "boolean",
    "timestamp": "timestamp without time zone", "datetime": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "blob": "bytea", "varbinary": "bytea",
    "string": "text", "varchar": "character varying", "char": "character", "bpchar": "character",
    "nvarchar": "character varying", "nchar": "character",
}  # fmt: skip
_DEFAULTS = {
    _T.INTEGER: "bigint",
    _T.DECIMAL: "numeric",
    _T.FLOAT: "double precision",
    _T.BOOLEAN: "boolean",
    _T.DATE: "date",
    _T.TIMESTAMP: "timestamp without time zone",
    _T.TIMESTAMPTZ: "timestamp with time zone",
    _T.INTERVAL: "interval",
    _T.UUID: "uuid",
    _T.BYTES: "bytea",
    _T.JSON: "json",
    _T.CATEGORY: "text",
    _T.TEXT: "text",
}
_ARGUMENTS = {"numeric": 2, "character varying": 1, "character": 1, "interval": 1}
_ARGUMENTS |= dict.fromkeys(("timestamp without time zone", "timestamp with time zone"), 1)
_BITS = {"smallint": 16, "integer": 32, "bigint": 64}
_SPELLED = re.compile(r"([a-z][a-z0-9]*(?: [a-z]+)*?) ?(?:\( ?(\d{1,8})(?: ?, ?(\d{1,4}))? ?\))?((?: [a-z]+)*)")


@dataclass(frozen=True)
class SqlType:
    """A known SQL type.

    Attributes:
        name: In PostgreSQL's own words, like ``character varying``.
        arguments: Length, or precision and scale; empty for none.
    """

    name: str
    arguments: tuple[int, ...] = ()

    def __str__(self) -> str:
        if not self.arguments:
            return self.name
        inside = f"({','.join(str(number) for number in self.arguments)})"
        first, space, rest = self.name.partition(" ")  # timestamp(3) with time zone, but character varying(3)
        return f"{first}{inside}{space}{rest}" if first == "timestamp" else f"{self.name}{inside}"

    @property
    def stores(self) -> frozenset[ColumnType]:
        """The logical types whose values a column of this type can hold."""
        return _STORES[self.name]

    @property
    def length(self) -> int | None:
        """The most characters, where there is such a bound."""
        return self.arguments[0] if self.arguments and self.name.startswith("character") else None

    @property
    def integers(self) -> tuple[int, int] | None:
        """The smallest and largest integer, for types of integers."""
        bits = _BITS.get(self.name)
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if bits else None

    @property
    def takes_any_text(self) -> bool:
        """Whether any text of a fitting length is a value, which it is not for addresses of networks."""
        return self.stores is not _NETWORK


def parse_sql_type(text: str) -> SqlType | None:
    """The type that ``text`` names, None if it names no known one.

    >>> str(parse_sql_type("VARCHAR(80)")), str(parse_sql_type("timestamp(3) with time zone"))
    ('character varying(80)', 'timestamp(3) with time zone')
    >>> parse_sql_type("integer); DROP TABLE person; --") is None
    True
    """
    found = _SPELLED.fullmatch(" ".join(text.lower().split()))
    if not found:
        return None
    spelled = f"{found[1]}{found[4]}"
    name = _SYNONYMS.get(spelled, spelled)
    arguments = tuple(int(number) for number in (found[2], found[3]) if number is not None)
    if name not in _STORES or len(arguments) > _ARGUMENTS.get(name, 0):
        return None
    if name == "character" and not arguments:
        arguments = (1,)
    return SqlType("text") if name == "character varying" and not arguments else SqlType(name, arguments)


def default_sql_type(column: Column) -> SqlType:
    """The type of a column that names none."""
    digits = (column.precision or 0, column.scale or 0) if column.type is ColumnType.DECIMAL else ()
    return SqlType(_DEFAULTS[column.type], digits)


def sql_type_of(column: Column) -> SqlType | None:
    """The type of a column in the database, None if it is an enum (or one that `validate` refuses)."""
    return default_sql_type(column) if column.sql_type is None else parse_sql_type(column.sql_type)


def known_sql_types() -> tuple[str, ...]:
    """The names that `parse_sql_type` knows, for messages."""
    return tuple(sorted({*_STORES, *_SYNONYMS}))
