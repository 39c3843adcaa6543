"""From a PostgreSQL database to a spec, to a bundle, to another database, and to the same spec again.

One schema of our own combines every case; the rows are made by hand.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import psycopg
import pyarrow as pa
import pytest

from privbench_core.draft.draft import Decisions, reflect
from privbench_core.errors import PublishError, SourceError
from privbench_core.publishing import load_bundle, read_bundle, write_bundle
from privbench_core.schema.checks import unenforced_checks
from privbench_core.schema.columns import ColumnType, Pattern, Range, Values
from privbench_core.schema.constraints import Check, Index
from privbench_core.schema.tables import Schema
from tests.helpers.postgres import as_role, execute, new_database, rows
from tests.helpers.specs import load

LONG = "a_column_with_a_name_of_sixty_three_characters_0123456789_abcde"
EVERYTHING = f"""
CREATE TYPE "Mood x" AS ENUM ('calm', 'it''s', '');
CREATE DOMAIN year AS integer CHECK (VALUE >= 1901 AND VALUE <= 2155);
CREATE TABLE region (code char(2) PRIMARY KEY, label varchar(40) NOT NULL UNIQUE);
CREATE TABLE "Order" (
    "select" integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    "Größe und Farbe" text NOT NULL DEFAULT 'it''s', region char(2) REFERENCES region,
    email varchar(120) NOT NULL UNIQUE, mood "Mood x" NOT NULL DEFAULT 'calm',
    rating smallint CHECK (rating BETWEEN 1 AND 5), kind varchar(10) NOT NULL,
    amount numeric(10, 2) NOT NULL DEFAULT 0, loose numeric, since date NOT NULL DEFAULT CURRENT_DATE, until date,
    seen timestamptz, at timestamp(3) DEFAULT now(), span interval, token uuid NOT NULL DEFAULT gen_random_uuid(),
    photo bytea, doc jsonb, ip inet, active boolean NOT NULL DEFAULT true, score real, made year, tags text[],
    big bigint, note text, upper_note text GENERATED ALWAYS AS (upper(note)) STORED, {LONG} integer,
    CONSTRAINT dates_in_order CHECK (since <= until), CONSTRAINT kinds CHECK (kind IN ('small', 'large')),
    CONSTRAINT odd_one CHECK (note ~ '^[a-z ]*$'), CONSTRAINT no_sense CHECK (note IS NOT NFC NORMALIZED OR true)
);
CREATE INDEX "Index of mood" ON "Order" (mood, kind);
CREATE INDEX partial_one ON "Order" (kind) WHERE active;
CREATE INDEX lowered ON "Order" (lower(kind));
CREATE UNIQUE INDEX token_key ON "Order" (token);
COMMENT ON TABLE "Order" IS 'All orders\n-- in two lines';
COMMENT ON COLUMN "Order".kind IS 'it''s "small" or large';
CREATE TABLE line (
    ord integer NOT NULL REFERENCES "Order", no smallint NOT NULL, token uuid REFERENCES "Order" (token),
    qty integer NOT NULL CHECK (qty > 0), PRIMARY KEY (ord, no)
);
CREATE TABLE part (
    id serial PRIMARY KEY, l_ord integer NOT NULL, l_no smallint NOT NULL, parent integer REFERENCES part,
    FOREIGN KEY (l_ord, l_no) REFERENCES line (ord, no)
);
CREATE TABLE order_detail (ord integer PRIMARY KEY REFERENCES "Order", words text);
CREATE TABLE store (id bigserial PRIMARY KEY, manager bigint, ord integer NOT NULL REFERENCES "Order");
CREATE TABLE staff (id bigserial PRIMARY KEY, store bigint NOT NULL REFERENCES store, name text);
ALTER TABLE store ADD FOREIGN KEY (manager) REFERENCES staff;
CREATE INDEX ON store (ord);
CREATE TABLE line_tag (
    ord integer NOT NULL, no smallint NOT NULL, tag integer NOT NULL, PRIMARY KEY (ord, no, tag),
    FOREIGN KEY (ord, no) REFERENCES line
);
"""
DECISIONS = {
    "max_children: CHOOSE": "max_children: 5",
    "max_children_per_unit: CHOOSE": "max_children_per_unit: 5",
}
TOKENS = ["00000000-0000-0000-0000-00000000000a", "ffffffff-0000-0000-0000-00000000000b"]
ORDERS = {
    "select": [7, 9],
    "Größe und Farbe": ["blau", 'a, "b"\n\\.'],
    "region": [None, "ab"],
    "email": ["a@x", "b@x"],
    "mood": ["calm", ""],
    "rating": [5, None],
    "kind": ["small", "large"],
    "amount": [Decimal("12345678.90"), Decimal("-0.01")],
    "loose": [None, Decimal("1.125")],
    "since": [dt.date(2020, 2, 29), dt.date(1999, 1, 1)],
    "until": [dt.date(2020, 3, 1), None],
    "seen": [dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC), None],
    "at": [None, dt.datetime(2020, 1, 2, 3, 4, 5, 678000)],
    "span": [dt.timedelta(days=1, hours=2, microseconds=3), None],
    "token": TOKENS,
    "photo": [b"\x00\\\xff", None],
    "doc": ['{"a": [1]}', None],
    "ip": [None, "10.0.0.1"],
    "active": [True, False],
    "score": [None, 0.5],
    "made": [1901, None],
    "tags": ['["a", "b, \\"{c}\\"", null, "\\\\d"]', None],
    "big": [2**62, None],
    "note": ["abc", None],
    LONG: [None, -1],
}
ROWS = {
    "region": {"code": ["ab", "cd"], "label": ["one", "two"]},
    "Order": ORDERS,
    "line": {"ord": [7, 7, 9], "no": [1, 2, 1], "token": [TOKENS[1], None, TOKENS[1]], "qty": [1, 2, 3]},
    "part": {"id": [1, 2], "l_ord": [7, 9], "l_no": [2, 1], "parent": [2, None]},
    "order_detail": {"ord": [9], "words": ["w"]},
    "store": {"id": [41, 42], "manager": [5, None], "ord": [7, 9]},
    "staff": {"id": [5], "store": [41], "name": ["Ada"]},
    "line_tag": {"ord": [7, 7], "no": [1, 1], "tag": [1, 2]},
}


def drafted(url: str) -> str:
    """Return a draft for the owner who protects orders, in which regions are public."""
    return reflect(url, decisions=Decisions("Order", ("region",)))


def decided(draft: str) -> str:
    for old, new in DECISIONS.items():
        assert old in draft, old
        draft = draft.replace(old, new)
    return draft


def filled(schema: Schema) -> dict[str, pa.Table]:
    return {table.name: pa.table(ROWS[table.name], schema=table.arrow_schema) for table in schema.tables}


@pytest.fixture(scope="module")
def source(postgres: str) -> str:
    return new_database(postgres, "every", EVERYTHING)


@pytest.fixture(scope="module")
def draft(source: str) -> str:
    return drafted(source)


@pytest.fixture(scope="module")
def schema(draft: str, tmp_path_factory: pytest.TempPathFactory) -> Schema:
    return load(tmp_path_factory.mktemp("spec"), decided(draft)).schema


@pytest.fixture(scope="module")
def bundle(schema: Schema, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundle") / "every", schema, filled(schema), {})


@pytest.fixture(scope="module")
def target(postgres: str, bundle: Path) -> str:
    url = new_database(postgres, "target")
    loaded = load_bundle(bundle, url)
    assert loaded.left_out == ()
    assert loaded.rows == {name: len(next(iter(columns.values()))) for name, columns in ROWS.items()}
    return url


def test_what_the_catalogue_says_is_in_the_spec(schema: Schema) -> None:
    order = schema.table("Order")
    assert [enum.values for enum in schema.enums] == [("calm", "it's", "")]
    assert order.unique == (("email",), ("token",))
    assert order.indexes == (
        Index("Index of mood", ("mood", "kind")),
        Index("lowered", ("kind",), "btree (lower((kind)::text))"),
        Index("partial_one", ("active", "kind"), "btree (kind) WHERE active"),
    )
    assert order.comment == "All orders\n-- in two lines"
    assert order.checks == (
        Check("Order_rating_check", "rating >= 1 AND rating <= 5"),
        Check("dates_in_order", "since <= until"),
        Check("kinds", "kind IN ('small', 'large')"),
        Check("made_year_check", "made >= 1901 AND made <= 2155"),
        Check("no_sense", "((NOT (note IS NFC NORMALIZED)) OR true)"),
        Check("odd_one", "(note ~ '^[a-z ]*$'::text)"),
    )
    assert unenforced_checks(schema) == ("Order.no_sense",)
    domains = {column.name: column.domain for column in order.columns}
    assert (domains["rating"], domains["made"]) == (Range(1, 5), Range(1901, 2155))
    assert (domains["kind"], domains["mood"]) == (Values(("small", "large")), Values(("calm", "it's", "")))
    assert (domains["email"], domains["ip"]) == (Pattern(provider="email"), Pattern(provider="ipv4"))
    types = {column.name: column.type for column in order.columns}
    assert [types[name] for name in ("seen", "span", "token", "photo", "doc")] == [
        *[ColumnType.TIMESTAMPTZ, ColumnType.INTERVAL, ColumnType.UUID, ColumnType.BYTES, ColumnType.JSON]
    ]
    assert order.column("select").identity
    assert order.column("email").max_length == 120
    assert schema.table("order_detail").foreign_keys[0].max_children is not None
    assert schema.table("part").foreign_keys[0].columns == ("l_ord", "l_no")
    assert schema.table("line").foreign_keys[1].parent_columns == ("token",)
    assert schema.deferred_keys == {"part.parent", "store.manager"}


def test_what_cannot_be_taken_is_named_with_its_reason(draft: str) -> None:
    assert "    # left out: the name of the domain year, the type of made; its own type and checks are kept\n" in draft
    assert "      tags: {type: json, domain: learn, nullable: true, sql_type: 'text[]'} # common keys" in draft
    assert re.search(r"no_sense, .*# kept in the DDL, not enforced while sampling", draft)


def test_reflecting_the_result_gives_the_same_spec(draft: str, target: str, schema: Schema, tmp_path: Path) -> None:
    again = drafted(target)
    places = re.compile(r"^(database|source): .*\n|^#   line .*\n| *# left out: .*\n", re.MULTILINE)
    assert places.sub("", again) == places.sub("", draft)
    found = load(tmp_path, decided(again)).schema
    assert (found.tables, found.enums) == (schema.tables, schema.enums)


def test_rows_arrive_as_they_were(target: str) -> None:
    names = ", ".join(f'"{name}"' for name in ORDERS)
    found = rows(target, f'SELECT {names} FROM "Order" ORDER BY 1')
    values = dict(zip(ORDERS, zip(*found, strict=True), strict=True))
    odd = {"token": tuple(map(UUID, TOKENS)), "doc": ({"a": [1]}, None), "tags": (["a", 'b, "{c}"', None, "\\d"], None)}
    for name, expected in ORDERS.items():
        found_values = tuple(None if v is None else str(v) for v in values[name]) if name == "ip" else values[name]
        assert found_values == odd.get(name, tuple(expected)), name
    assert rows(target, "SELECT id, manager, ord FROM store ORDER BY id") == [(41, 5, 7), (42, None, 9)]


def test_the_database_keeps_its_rules(target: str) -> None:
    # The sequences stand behind the rows.
    assert rows(target, "INSERT INTO part (l_ord, l_no) VALUES (7, 1) RETURNING id") == [(3,)]
    assert rows(target, "INSERT INTO store (ord) VALUES (7) RETURNING id") == [(43,)]
    assert rows(
        target,
        """INSERT INTO "Order" (email, kind, note) VALUES ('c', 'small', 'a') RETURNING "select", mood, upper_note""",
    ) == [(10, "calm", "A")]
    for statement, error in {
        'UPDATE "Order" SET rating = 6': psycopg.errors.CheckViolation,
        "UPDATE \"Order\" SET note = 'A1'": psycopg.errors.CheckViolation,
        "UPDATE \"Order\" SET email = 'same'": psycopg.errors.UniqueViolation,
        "UPDATE store SET manager = 99": psycopg.errors.ForeignKeyViolation,
        "UPDATE line SET token = gen_random_uuid()": psycopg.errors.ForeignKeyViolation,
        "UPDATE line_tag SET no = 9": psycopg.errors.ForeignKeyViolation,
    }.items():
        with pytest.raises(error):
            execute(target, statement)
    indexes = rows(target, "SELECT indexname FROM pg_indexes WHERE tablename IN ('Order', 'store') ORDER BY 1")
    names = "Index of mood, Order_email_key, Order_pkey, lowered, partial_one, store_ord_idx, store_pkey, token_key"
    assert [name for (name,) in indexes] == names.split(", ")
    assert rows(target, "SELECT reltuples FROM pg_class WHERE relname = 'line'") == [(3.0,)]


def test_publishing_again_replaces_enums_too(postgres: str, bundle: Path) -> None:
    url = new_database(postgres, "twice")
    load_bundle(bundle, url)
    with pytest.raises(
        PublishError, match="already has Order, line, line_tag, order_detail, part and 3 more; pass --rep"
    ):
        load_bundle(bundle, url)
    assert load_bundle(bundle, url, replace=True).rows["staff"] == 1


def test_a_target_with_other_tables_is_not_empty(postgres: str, bundle: Path) -> None:
    url = new_database(postgres, "busy", "CREATE TABLE mine AS SELECT 1 AS x")
    with pytest.raises(PublishError, match=r"is not empty \(it holds mine\); pass --replace to load beside"):
        load_bundle(bundle, url)
    load_bundle(bundle, url, replace=True)
    assert rows(url, "SELECT x FROM mine") == [(1,)]


def test_the_schema_alone_is_a_script(postgres: str, bundle: Path, draft: str) -> None:
    url = new_database(postgres, "script", read_bundle(bundle).schema_sql)
    assert reflect(url).count("foreign_keys:") == draft.count("foreign_keys:")
    assert rows(url, "INSERT INTO region VALUES ('ab', 'x') RETURNING code") == [("ab",)]
    assert rows(url, """INSERT INTO "Order" (email, kind) VALUES ('c', 'small') RETURNING "select" """) == [(1,)]


def test_another_schema_of_the_database(postgres: str, bundle: Path, draft: str) -> None:
    url = new_database(
        postgres, "several", 'CREATE SCHEMA "My ""odd"" one"; CREATE TABLE elsewhere (id int PRIMARY KEY)'
    )
    there = f"{url}&schema=My%20%22odd%22%20one"
    load_bundle(bundle, there)
    assert rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == [("elsewhere",)]
    again = reflect(there)
    assert '\ndatabase: My "odd" one\n' in again
    assert again.count("references:") == draft.count("references:")
    with pytest.raises(SourceError, match="has no schema that the login may use; grant USAGE on it"):
        reflect(f"{url}&schema=none")


def test_a_database_that_may_only_be_read_in_part(postgres: str) -> None:
    url = new_database(
        postgres,
        "guarded",
        """
        CREATE TABLE person (id int PRIMARY KEY, age int, salary int);
        CREATE TABLE secret (id int PRIMARY KEY, person int REFERENCES person);
        CREATE TABLE visit (id int PRIMARY KEY, person int NOT NULL REFERENCES person, secret int REFERENCES secret);
        CREATE ROLE guest LOGIN;
        GRANT SELECT ON visit TO guest; GRANT SELECT (id, age) ON person TO guest;
        """,
    )
    as_guest = as_role(url, "guest")
    draft = reflect(as_guest)
    assert "  # left out: secret may not be read by this login; grant SELECT on it\n" in draft
    assert "      # left out: salary (integer) may not be read by this login; grant SELECT on it" in draft
    assert "    # left out: the foreign key on (secret), because secret may not be read\n" in draft
    assert "- {columns: person, references: {table: person, columns: [id]}" in draft
    execute(url, "REVOKE ALL ON visit FROM guest; REVOKE SELECT (id, age) ON person FROM guest")
    with pytest.raises(SourceError, match="the login may read none of them; grant it SELECT on person, secret, visit"):
        reflect(as_guest)


def test_duckdb_takes_what_it_can_and_the_rest_is_told(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "every.duckdb"
    loaded = load_bundle(bundle, str(file))
    assert loaded.rows["Order"] == 2
    for part in (
        "part.parent: the foreign key, because part is loaded at the same time or later",
        "store.manager: the foreign key, because staff is loaded at the same time or later",
        "Order: the check no_sense, which DuckDB does not understand",
        "Order.select: the numbering of new rows",
    ):
        assert part in loaded.left_out
    assert load_bundle(bundle, str(file), replace=True).rows == loaded.rows
    with duckdb.connect(str(file)) as connection:
        span, photo = connection.execute("""SELECT span, photo FROM "Order" WHERE "select" = 7""").fetchone() or ()
        assert (span, photo) == (ORDERS["span"][0], ORDERS["photo"][0])
        with pytest.raises(duckdb.ConstraintException):
            connection.execute("INSERT INTO staff VALUES (9, 99, NULL)")
        with pytest.raises(duckdb.ConstraintException):
            connection.execute('UPDATE "Order" SET rating = 6')
    again = drafted(str(file))
    assert "- {columns: [l_ord, l_no], references: {table: line, columns: [ord, 'no']}" in again
    assert "      mood: {type: category, sql_type: Mood x, default: '''calm'''}" in again
    assert "score: {type: float, domain: learn, nullable: true, sql_type: real}" in again
    # What DuckDB says in its own words is PostgreSQL's again.
    assert "expression: 'note ~ CAST(''^[a-z ]*$'' AS TEXT)'" in again
