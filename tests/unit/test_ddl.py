"""DDL: what it says, and that DuckDB takes it. (That PostgreSQL does is tested with a real server.)"""

from __future__ import annotations

from decimal import Decimal

import duckdb
import pytest

from privbench_core.schema import (
    Column,
    ColumnType,
    ForeignKey,
    Schema,
    Table,
    create_keys_sql,
    create_primary_keys_sql,
    create_schema_sql,
    create_tables_sql,
)
from privbench_core.schema.ddl import AFTER_THE_ROWS

T = ColumnType
LINE = Table(
    'line "item"',
    (
        Column("order", T.INTEGER),
        Column("no", T.INTEGER),
        Column("price", T.DECIMAL, precision=8, scale=2),
        Column("kind", T.TEXT, nullable=True),
    ),
    ("order", "no"),
    (
        ForeignKey('line "item"', ("order",), "order", ("id",), 9, owner=True),
        ForeignKey('line "item"', ("kind",), "kind", ("code",), optional=True),
    ),
    unique=(("price", "kind"),),
)
ORDER = Table(
    "order",
    (
        Column("id", T.INTEGER),
        Column("weight", T.FLOAT),
        Column("paid", T.BOOLEAN),
        Column("day", T.DATE),
        Column("at", T.TIMESTAMP, nullable=True),
        Column("state", T.CATEGORY),
    ),
    ("id",),
)
KIND = Table("kind", (Column("code", T.TEXT),), ("code",), public=True)
SCHEMA = Schema("shop", (LINE, ORDER, KIND), "order")


def test_tables_come_parents_first_with_types_and_not_null() -> None:
    assert create_tables_sql(SCHEMA) == (
        'CREATE TABLE "kind" (\n    "code" text NOT NULL\n);\n\n'
        'CREATE TABLE "order" (\n'
        '    "id" bigint NOT NULL,\n'
        '    "weight" double precision NOT NULL,\n'
        '    "paid" boolean NOT NULL,\n'
        '    "day" date NOT NULL,\n'
        '    "at" timestamp without time zone,\n'
        '    "state" text NOT NULL\n'
        ");\n\n"
        'CREATE TABLE "line ""item""" (\n'
        '    "order" bigint NOT NULL,\n'
        '    "no" bigint NOT NULL,\n'
        '    "price" numeric(8,2) NOT NULL,\n'
        '    "kind" text\n'
        ");\n"
    )


def test_keys_and_indexes() -> None:
    assert create_keys_sql(SCHEMA).splitlines() == [
        'ALTER TABLE "kind" ADD PRIMARY KEY ("code");',
        'ALTER TABLE "order" ADD PRIMARY KEY ("id");',
        'ALTER TABLE "line ""item""" ADD PRIMARY KEY ("order", "no");',
        'ALTER TABLE "line ""item""" ADD UNIQUE ("price", "kind");',
        'ALTER TABLE "line ""item""" ADD FOREIGN KEY ("order") REFERENCES "order" ("id");',
        'ALTER TABLE "line ""item""" ADD FOREIGN KEY ("kind") REFERENCES "kind" ("code");',
        # The primary key starts with "order" and serves as its index.
        'CREATE INDEX ON "line ""item""" ("kind");',
    ]
    assert create_schema_sql(SCHEMA).partition(f"\n{AFTER_THE_ROWS}\n")[::2] == (
        create_tables_sql(SCHEMA),
        create_keys_sql(SCHEMA),
    )


def test_duckdb_takes_tables_and_primary_keys() -> None:
    with duckdb.connect() as connection:
        connection.execute(create_tables_sql(SCHEMA))
        connection.execute(create_primary_keys_sql(SCHEMA))
        connection.execute("""INSERT INTO "line ""item\""" VALUES (1, 1, 2.50, NULL)""")
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("""INSERT INTO "line ""item\""" VALUES (1, 1, 3.50, NULL)""")
        with pytest.raises(duckdb.ConstraintException):
            connection.execute('INSERT INTO "kind" VALUES (NULL)')
        assert connection.sql("""SELECT price FROM "line ""item\""" """).fetchall() == [(Decimal("2.50"),)]
