"""DDL: what it says, and that DuckDB takes it. (That PostgreSQL does is tested with a real server.)"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privbench_core.backends import scratch
from privbench_core.backends.duckdb import RowTrial, duckdb_schema
from privbench_core.backends.postgres import (
    AFTER_THE_ROWS,
    create_keys_sql,
    create_schema_sql,
    create_tables_sql,
)
from privbench_core.errors import PublishError
from privbench_core.schema.columns import Column, ColumnType, EnumType
from privbench_core.schema.constraints import Check, ForeignKey, Index
from privbench_core.schema.tables import Schema, Table
from privbench_core.schema.types.registry import known_sql_types, parse_sql_type

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
        for statement in duckdb_schema(SCHEMA).tables.values():
            connection.execute(statement)
        connection.execute("""INSERT INTO "order" VALUES (1, 0.5, true, '2024-01-01', NULL, 'paid')""")
        connection.execute("""INSERT INTO "line ""item\""" VALUES (1, 1, 2.50, NULL)""")
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("""INSERT INTO "line ""item\""" VALUES (1, 1, 3.50, NULL)""")
        with pytest.raises(duckdb.ConstraintException):
            connection.execute('INSERT INTO "kind" VALUES (NULL)')
        assert connection.sql("""SELECT price FROM "line ""item\""" """).fetchall() == [(Decimal("2.50"),)]


BOSS = ForeignKey("staff", ("boss",), "staff", ("id",), 9, optional=True)
STAFF = Table(
    "staff",
    (
        Column("id", T.INTEGER, sql_type="smallint", identity=True),
        Column("boss", T.INTEGER, sql_type="smallint", nullable=True),
        Column("mood", T.CATEGORY, sql_type='Mood "x"', default="'calm'"),
        Column("name", T.TEXT, sql_type="VARCHAR( 20 )", nullable=True, comment="it's \n theirs"),
        Column("doc", T.JSON, sql_type="jsonb", default="jsonb_build_object()"),
        Column("at", T.TIMESTAMPTZ, nullable=True, default="now()"),
        Column("code", T.INTEGER, nullable=True),
    ),
    ("id",),
    (BOSS, ForeignKey("staff", ("code",), "kind", ("code",), optional=True)),
    checks=(Check("no own boss", "boss <> id"), Check("odd", "name IS NFC NORMALIZED")),
    indexes=(Index("by mood", ("mood", "at")),),
    comment="All of them",
)
NUMBERED = Table("kind", (Column("code", T.INTEGER, sql_type="integer"),), ("code",), public=True)
FIRM = Schema("firm", (STAFF, NUMBERED), "staff", (EnumType('Mood "x"', ("calm", "it's")),))


def test_the_source_is_recognised_in_its_ddl() -> None:
    sql = create_schema_sql(FIRM)
    for part in (
        """CREATE TYPE "Mood ""x\""" AS ENUM ('calm', 'it''s');""",
        '"id" smallint GENERATED BY DEFAULT AS IDENTITY NOT NULL,',
        """"mood" "Mood ""x\""" DEFAULT ('calm') NOT NULL,""",
        '"name" character varying(20),',
        '"doc" jsonb DEFAULT (jsonb_build_object()) NOT NULL,',
        'CONSTRAINT "no own boss" CHECK (boss <> id)',
        'CREATE INDEX "by mood" ON "staff" ("mood", "at");',
        """SELECT setval(pg_get_serial_sequence('"staff"', 'id'), greatest((SELECT max("id")""",
        """COMMENT ON TABLE "staff" IS 'All of them';""",
        """COMMENT ON COLUMN "staff"."name" IS 'it''s \n theirs';""",
    ):
        assert part in sql
    # Listed indexes are all there are: none is made for the foreign keys.
    assert sql.count("CREATE INDEX") == 1
    assert sql.index("CHECK") < sql.index(AFTER_THE_ROWS) < sql.index("PRIMARY KEY")


def test_what_duckdb_cannot_hold_is_told() -> None:
    translated = duckdb_schema(FIRM)
    assert translated.left_out == (
        "staff.boss: the foreign key, because staff is loaded at the same time or later",
        "staff.code: the foreign key, because DuckDB requires the same types as kind.code",
        "staff.id: the numbering of new rows",
        "staff.doc: the default, which DuckDB does not understand",
        "staff: the check odd, which DuckDB does not understand",
    )
    with duckdb.connect() as connection:
        for statement in (*translated.first, *translated.tables.values(), *translated.after):
            connection.execute(statement)
        connection.execute("INSERT INTO staff (id, doc) VALUES (1, '{}')")
        assert connection.execute("SELECT mood FROM staff").fetchall() == [("calm",)]
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("INSERT INTO staff (id, boss, doc) VALUES (2, 2, '{}')")


def test_duckdb_keeps_the_key_to_a_public_table_that_refers_to_itself() -> None:
    number = Column("id", ColumnType.INTEGER)
    to_chief = ForeignKey("chief", ("boss",), "chief", ("id",), optional=True)
    to_area = ForeignKey("area", ("id",), "chief", ("id",))
    area = Table("area", (number,), ("id",), (to_area,), public=True)
    boss = Column("boss", ColumnType.INTEGER, nullable=True)
    chief = Table("chief", (number, boss), ("id",), (to_chief,), public=True)
    unit = Table("unit", (number,), ("id",))
    translated = duckdb_schema(Schema("s", (area, chief, unit), "unit"))
    assert [line.split(":")[0] for line in translated.left_out] == ["chief.boss"]
    assert 'REFERENCES "chief"' in translated.tables["area"] or "REFERENCES chief" in translated.tables["area"]


@pytest.mark.parametrize(
    "text",
    [
        *[
            "int; DROP TABLE x",
            "int) NOT NULL, (x int",
            "int -- x",
            "text COLLATE x",
            "int[][]",
            "int[3]",
            "decimal(8, 2)[]",
            "bytea[]",
            "numeric(1,2,3)",
            "text(3)",
        ],
        *["character varying()", "interval year", "my_type", '"int"', "integer\0", "", "varchar(999999999)"],
    ],
)
def test_only_known_types_reach_the_ddl(text: str) -> None:
    assert parse_sql_type(text) is None


def test_every_known_type_is_spelled_as_postgres_would() -> None:
    for name in known_sql_types():
        stored = parse_sql_type(name.upper())
        assert stored is not None
        assert parse_sql_type(str(stored)) == stored
    assert str(parse_sql_type("TIMESTAMPTZ (3)")) == "timestamp(3) with time zone"
    assert str(parse_sql_type("timestamp(3)   without time zone")) == "timestamp(3) without time zone"
    assert str(parse_sql_type("char")) == "character(1)"
    assert str(parse_sql_type("numeric(8 , 2)")) == "numeric(8,2)"


def test_rows_that_take_much_memory_are_tried_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scratch, "_MEMORY", "2MB")
    table = Table("note", (Column("id", ColumnType.INTEGER), Column("body", ColumnType.TEXT)), ("id",))
    rng, number = np.random.default_rng(0), 40_000
    rows = {"id": np.arange(number), "body": [rng.bytes(100).hex() for _ in range(number)]}
    pq.write_table(pa.table(rows), tmp_path / "note.parquet")
    trial = RowTrial.of(Schema("notes", (table,), "note"), ["note"])
    trial({"note": tmp_path / "note.parquet"})
    pq.write_table(pa.table({**rows, "id": pa.nulls(number, pa.int64())}), tmp_path / "note.parquet")
    with pytest.raises(PublishError, match="break the bundle's own schema"):
        trial({"note": tmp_path / "note.parquet"})
