"""A database in several schemas of PostgreSQL, from the draft to the bundle in another one."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from sqlglot import exp

from privbench_core.backends.postgres.load import load_postgres
from privbench_core.backends.registry import open_stored
from privbench_core.backends.sqlalchemy.read import DatabaseSource
from privbench_core.draft.draft import Decisions, reflect
from privbench_core.engines.postgres import PostgresDatabase
from privbench_core.errors import PublishError, SourceError
from privbench_core.publishing.bundle import load_bundle, read_bundle, write_bundle
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec, VersionQuery, Watermark
from privbench_core.workload.engine import resolve, with_schemas
from tests.helpers.postgres import execute, new_database, psql, rows
from tests.helpers.specs import load

SPREAD = """
CREATE SCHEMA billing; CREATE SCHEMA unused; CREATE EXTENSION IF NOT EXISTS plpgsql;
CREATE TYPE billing.status AS ENUM ('open', 'paid');
CREATE TABLE customer (id serial PRIMARY KEY, born date NOT NULL);
CREATE TABLE event (id serial PRIMARY KEY, customer int NOT NULL REFERENCES customer, n int);
CREATE TABLE billing.invoice (
    id serial PRIMARY KEY, customer int NOT NULL REFERENCES customer ON DELETE CASCADE,
    status billing.status NOT NULL DEFAULT 'open', total int CHECK (total > 0),
    code int GENERATED ALWAYS AS (CASE WHEN status = 'paid'::billing.status THEN 1 END) STORED
);
CREATE TABLE billing.event (
    id int GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME billing.numbers) PRIMARY KEY,
    invoice int NOT NULL REFERENCES billing.invoice, at timestamp NOT NULL
);
COMMENT ON TABLE billing.event IS 'of invoices';
CREATE INDEX of_event ON event (n); CREATE INDEX of_event ON billing.event (at);
CREATE INDEX unpaid ON billing.invoice (total) WHERE status = 'open';
CREATE VIEW billing.shown AS SELECT 1;
INSERT INTO customer (born) VALUES ('1980-01-01'), ('1990-01-01');
INSERT INTO event (customer, n) VALUES (1, 5), (2, 6), (2, 7);
INSERT INTO billing.invoice (customer, status, total) VALUES (1, 'open', 3), (2, 'paid', 4);
INSERT INTO billing.event (invoice, at) VALUES (1, '2024-01-01'), (2, '2024-01-02');
"""


@pytest.fixture(scope="module")
def url(postgres: str) -> str:
    return new_database(postgres, "spread", SPREAD)


@pytest.fixture(scope="module")
def spec(url: str, tmp_path_factory: pytest.TempPathFactory) -> Spec:
    return load(tmp_path_factory.mktemp("spread"), reflect(url))


@pytest.fixture(scope="module")
def bundle(spec: Spec) -> Path:
    """A bundle with the source's own rows."""
    source = open_stored(spec)
    read = {table.name: source.read(table) for table in spec.schema.tables}
    return write_bundle(spec.path.parent / "bundle", spec.schema, read, {})


def test_a_draft_holds_all_schemas_and_the_keys_between_them(url: str, spec: Spec) -> None:
    schema = spec.schema
    assert schema.schemas == ("public", "billing")
    assert [table.name for table in schema.tables] == ["customer", "event", "billing.event", "billing.invoice"]
    assert [key.parent for key in schema.ownership_path("billing.event")] == ["billing.invoice", "customer"]
    assert schema.table("billing.invoice").column("status").sql_type == "billing.status"
    spec.path.write_text(dump_spec(spec), encoding="utf-8")
    assert load_spec(spec.path) == spec
    assert "# left out: the view billing.shown" in reflect(url)


def test_who_names_schemas_gets_those(url: str) -> None:
    one = reflect(f"{url}&schema=billing")
    assert "\n  invoice:" in one
    assert "schemas:" not in one
    assert "the foreign key invoice_customer_fkey, which leads to public.customer, not read here" in one
    turned = reflect(url, decisions=Decisions(schemas=("billing", "public")))
    assert "\n  public.customer:" in turned
    assert "sql_type: status" in turned
    with pytest.raises(SourceError, match="has no schema biling; did you mean 'billing'"):
        reflect(url, decisions=Decisions(schemas=("biling",)))
    with pytest.raises(SourceError, match="only PostgreSQL has schemas to choose from"):
        reflect("site.duckdb", decisions=Decisions(schemas=("a",)))


def test_rows_versions_and_counts_are_those_of_the_right_table(spec: Spec) -> None:
    source = open_stored(spec)
    assert isinstance(source, DatabaseSource)
    ours, theirs = (spec.schema.table(name) for name in ("event", "billing.event"))
    assert (source.read(ours).num_rows, source.read(theirs).num_rows) == (3, 2)
    assert source.version(theirs, Watermark("at")).startswith('["2", "2", "2024-01-02')
    assert source.version(ours, Watermark("xmin")).startswith('["3", ')
    assert source.version(ours, VersionQuery("SELECT count(*) FROM billing.event")) == '["2"]'
    with closing(PostgresDatabase(source)) as database:
        for name, table in (("t0", ours), ("t1", theirs)):
            database.load(table, name, hashed=False)
        counted = [database.fetch(exp.select("*").from_(name)).num_rows for name in ("t0", "t1")]
        assert counted == [3, 2]


def test_a_bundle_makes_the_schemas_again(postgres: str, url: str, bundle: Path) -> None:
    files = [path.name for path in sorted((bundle / "data").glob("*.parquet"))]
    assert files == ["billing.event.parquet", "billing.invoice.parquet", "customer.parquet", "event.parquet"]
    target = new_database(postgres, "spread_copy")
    load_bundle(bundle, target)
    other = re.compile(r"^(database|source): .*\n| *# left out: .*\n", re.MULTILINE)
    assert other.sub("", reflect(target)).strip() == other.sub("", reflect(url)).strip()
    assert rows(target, "SELECT count(*) FROM billing.event e JOIN billing.invoice i ON i.id = e.invoice") == [(2,)]
    execute(target, "INSERT INTO billing.event (invoice, at) VALUES (1, '2025-01-01')")  # the sequence is past the rows
    with pytest.raises(PublishError, match=r"has billing\.event, billing\.invoice, customer, event already"):
        load_bundle(bundle, target)
    load_bundle(bundle, target, replace=True)
    assert rows(target, "SELECT count(*) FROM billing.event") == [(2,)]
    plain = new_database(postgres, "spread_plain", "CREATE SCHEMA billing")
    assert psql(plain, bundle).returncode == 0
    assert rows(plain, "SELECT sum(total) FROM billing.invoice") == [(7,)]
    execute(target, "DROP SCHEMA billing CASCADE; DROP TABLE event, customer; CREATE TABLE billing_event (x int)")
    with pytest.raises(PublishError, match=r"is not empty \(it has billing_event\)"):
        load_bundle(bundle, target)


def test_duckdb_has_the_schemas_but_no_keys_between_them(bundle: Path, tmp_path: Path) -> None:
    for replace in (False, True):
        loaded = load_bundle(bundle, str(tmp_path / "copy.duckdb"), replace=replace)
        assert loaded.rows["billing.event"] == 2
        why = "billing.invoice.customer: the foreign key, because customer is in another schema"
        assert why in loaded.left_out


def test_queries_name_the_schema(spec: Spec) -> None:
    columns = {table.name: [column.name for column in table.columns] for table in spec.schema.tables}
    sql = "SELECT billing.invoice.ID FROM billing.invoice JOIN public.customer c ON c.id = invoice.customer"
    found = resolve(sql, "postgres", columns)
    assert found.tables == ("billing.invoice", "customer")
    assert with_schemas(found.tree, spec.schema.schemas).sql("postgres") == (
        'SELECT invoice."id" FROM "billing"."invoice" AS invoice JOIN "customer" AS c ON c."id" = invoice."customer"'
    )


def test_a_spec_with_schemas_is_of_postgresql(tmp_path: Path, spec: Spec) -> None:
    text = spec.path.read_text(encoding="utf-8")
    folder = re.sub(r"source: .*", "source: rows", text)
    with pytest.raises(Exception, match="schemas are those of PostgreSQL, and this source is not one; remove schemas"):
        load(tmp_path, folder)


def test_names_of_other_schemas_clash_with_nothing(postgres: str, bundle: Path) -> None:
    opened = read_bundle(bundle)
    assert opened.schema.schemas == ("public", "billing")
    target = new_database(postgres, "spread_named", "CREATE SCHEMA first")
    load_postgres(opened.schema, {t: opened.files(t) for t in opened.tables}, f"{target}&schema=first", replace=False)
    found = "SELECT schemaname || '.' || tablename FROM pg_tables WHERE tablename = 'event' ORDER BY 1"
    assert rows(target, found) == [("billing.event",), ("first.event",)]
