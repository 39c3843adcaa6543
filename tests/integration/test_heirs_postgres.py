"""Tables that inherit from another one, from the draft to the bundle in another database."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest

from privbench_core.backends.postgres import move_to_heirs
from privbench_core.backends.registry import open_source
from privbench_core.draft.draft import reflect
from privbench_core.errors import SpecError
from privbench_core.publishing import load_bundle, write_bundle
from privbench_core.publishing.dry_load import refuse_unloadable
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec
from tests.helpers.postgres import execute, new_database, psql, psql_program, rows
from tests.helpers.specs import load

HEIRS = """
CREATE SCHEMA old; CREATE FUNCTION mine(date) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN 1; END';
CREATE TABLE customer (id int PRIMARY KEY);
CREATE TABLE pay (
    id serial PRIMARY KEY, customer int NOT NULL REFERENCES customer ON DELETE CASCADE, day date, kind text,
    CONSTRAINT here CHECK (day < '2020-01-01') NO INHERIT
);
CREATE INDEX by_day ON pay (day);
CREATE TABLE "pay '24" (
    CONSTRAINT year CHECK (day >= '2024-01-01' AND day < '2025-01-01'),
    FOREIGN KEY (customer) REFERENCES customer ON UPDATE CASCADE
) INHERITS (pay);
ALTER TABLE "pay '24" ADD CONSTRAINT own PRIMARY KEY (id);
CREATE INDEX in_24 ON "pay '24" (customer, lower(kind)); COMMENT ON TABLE "pay '24" IS 'of 2024';
CREATE TABLE old.cash_25 (CHECK (day >= '2024-12-01'), CHECK (kind = 'cash')) INHERITS (pay);
CREATE TABLE any_pay (PRIMARY KEY (id)) INHERITS (pay); CREATE INDEX in_any ON any_pay (day);
CREATE TABLE card_pay (card text CHECK (card <> '')) INHERITS (pay);
CREATE TABLE pay_19 (CHECK (day < '2020-01-01')) INHERITS (pay); CREATE TABLE pay_18 () INHERITS (pay_19);
CREATE TABLE odd_pay (CHECK (mine(day) = 1), CHECK (day > '2030-01-01')) INHERITS (pay);
CREATE TABLE visit (id int PRIMARY KEY, customer int REFERENCES customer, day date, other int REFERENCES visit);
CREATE TABLE visit_24 (CHECK (day >= '2024-01-01'), UNIQUE (day)) INHERITS (visit);
INSERT INTO customer VALUES (1), (2);
INSERT INTO any_pay (customer, day, kind) SELECT 1, '2024-05-05', 'Card' FROM generate_series(1, 500);
INSERT INTO any_pay (customer, day, kind) VALUES (1, '2024-12-05', 'cash'), (1, '2025-05-05', 'cash');
INSERT INTO any_pay (customer, day, kind) VALUES (2, '2025-05-05', 'card'), (2, NULL, 'cash'), (2, '2025-05-05', NULL);
INSERT INTO visit_24 VALUES (1, 1, '2024-01-01', NULL);
"""
HELD = [('"pay \'24"', 501), ("old.cash_25", 1), ("pay", 3)]
WHERE = "SELECT tableoid::regclass::text, count(*) FROM pay GROUP BY 1 ORDER BY 1"


@pytest.fixture(scope="module")
def heirs(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Spec:
    return load(tmp_path_factory.mktemp("heirs"), draft(new_database(postgres, "heirs", HEIRS)))


@pytest.fixture(scope="module")
def bundle(heirs: Spec) -> Path:
    source = open_source(heirs, b"secret")
    read = {table.name: source.read(table) for table in heirs.schema.tables}
    return write_bundle(heirs.path.parent / "bundle", heirs.schema, read, {})


def draft(url: str) -> str:
    return reflect(url).replace("max_children_per_unit: CHOOSE", "max_children_per_unit: 9")


def dumped(url: str, *tables: str) -> list[str]:
    """The DDL of tables, by pg_dump."""
    chosen = [f"--table={table}" for table in tables]
    command = [psql_program().with_name("pg_dump"), "--schema-only", "--no-owner", *chosen, url]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if line and not line.startswith(("--", "\\", "SET", "SELECT"))]


def test_heirs_whose_checks_decide_are_kept_and_the_others_are_merged_and_named(heirs: Spec) -> None:
    pay, visit = heirs.schema.table("pay"), heirs.schema.table("visit")
    assert [heir.name for heir in pay.heirs] == ["pay '24", "old.cash_25"]
    assert [check.name for check in pay.heirs[1].checks] == ["cash_25_day_check", "cash_25_kind_check"]
    assert pay.heirs[0].keys == ((("id",), "own"),)
    assert (pay.checks, visit.heirs) == ((), ())
    text = draft(heirs.source)
    merged = "any_pay, card_pay, odd_pay, pay_18, pay_19"
    why = "which inherit from pay: their rows are here, without the columns card"
    assert f"# left out: the tables {merged}, {why}" in text
    assert "# left out: the indexes in_any of these tables" in text
    assert "# left out: the check here, which does not hold for the tables that inherit" in text
    refers = "which inherit from it: their rows are here, because (other) refers to it"
    assert f"# left out: the tables visit_24, {refers}" in text
    heirs.path.write_text(dump_spec(heirs), encoding="utf-8")
    assert load_spec(heirs.path) == heirs


def test_rows_go_to_the_first_heir_whose_checks_they_satisfy(postgres: str, heirs: Spec, bundle: Path) -> None:
    target, plain = (new_database(postgres, f"heirs_{name}") for name in ("copy", "plain"))
    for replace in (False, True):
        load_bundle(bundle, target, replace=replace)
        assert rows(target, WHERE) == HELD
    assert psql(plain, bundle).returncode == 0
    assert rows(plain, WHERE) == HELD
    kept = ('"pay \'24"', "old.cash_25")
    assert dumped(plain, *kept) == dumped(target, *kept) == dumped(heirs.source, *kept)
    execute(target, "INSERT INTO \"pay '24\" (customer, day) VALUES (1, '2024-06-06')")
    assert rows(target, "SELECT count(*), count(DISTINCT id) FROM pay") == [(506, 506)]
    with pytest.raises(psycopg.errors.CheckViolation):
        execute(target, "INSERT INTO \"pay '24\" (customer, day) VALUES (1, '2023-06-06')")
    left_out = load_bundle(bundle, str(bundle.parent / "copy.duckdb")).left_out
    assert "pay: the table old.cash_25, which inherits from it" in left_out


def test_a_table_whose_rows_went_to_heirs_keeps_no_empty_pages(postgres: str, bundle: Path) -> None:
    url = new_database(postgres, "heirs_pages")
    load_bundle(bundle, url)
    pages = "SELECT relpages FROM pg_class WHERE oid IN ('pay'::regclass, '\"pay ''24\"'::regclass) ORDER BY oid"
    assert rows(url, pages) == [(1,), (4,)]


def test_statistics_without_rows_are_those_of_each_heir(postgres: str, bundle: Path) -> None:
    loaded, bare = (new_database(postgres, f"heirs_{name}") for name in ("loaded", "bare"))
    load_bundle(bundle, loaded)
    assert load_bundle(bundle, bare, statistics_only=True).left_out == ()
    sizes = "SELECT oid::regclass::text, relpages, reltuples FROM pg_class WHERE relkind IN ('r', 'i')"
    sizes += " AND relnamespace IN ('public'::regnamespace, 'old'::regnamespace) ORDER BY 1"
    columns = "SELECT tablename, attname, inherited, null_frac, round(n_distinct::numeric, 4),"
    columns += " most_common_vals::text, CASE WHEN NOT inherited THEN correlation END FROM pg_stats"
    columns += " WHERE schemaname IN ('public', 'old') ORDER BY 1, 2, 3"
    plan = "EXPLAIN SELECT kind, count(*) FROM pay WHERE day >= '2024-12-02' GROUP BY kind"
    for query in (sizes, columns, plan):
        assert rows(bare, query) == rows(loaded, query)
    assert "Append" in str(rows(bare, plan))


def test_new_rows_go_to_heirs_too(postgres: str, heirs: Spec, bundle: Path) -> None:
    url = new_database(postgres, "heirs_more")
    load_bundle(bundle, url)
    execute(url, "INSERT INTO pay (customer, day, kind) VALUES (1, '2024-07-07', 'x'), (1, '2026-07-07', 'cash')")
    execute(url, "\n".join(move_to_heirs(heirs.schema)))
    assert rows(url, WHERE) == [(HELD[0][0], 502), (HELD[1][0], 2), HELD[2]]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("keys: {own: id}", "keys: {own: day}", "pay: pay '24 has a key on (day), which is none of the table; remove"),
        ("foreign_keys: [{columns: customer,", "foreign_keys: [{columns: day,", "pay '24 has a key on (day), which is"),
        ("name: in_24, columns: [customer, kind]", "name: in_24, columns: [nobody]", "pay.nobody: no such column"),
        ("expression: day >= ", "expression: days >= ", "the check year refers to days, which is not a column"),
        ("name: old.cash_25,", "name: customer,", "customer: a table that inherits and a table have this name"),
        ("- {name: old.cash_25, checks: [", "- {name: old.cash_25, checks: [], x: [", "checks is []"),
        (
            "  visit:\n",
            "  visit:\n    heirs: [{name: v, checks: [{name: c, expression: id > 0}]}]\n",
            "visit: visit.other refers to it, but in PostgreSQL not to rows of its heirs",
        ),
    ],
)
def test_heirs_that_would_not_load_are_refused(tmp_path: Path, heirs: Spec, old: str, new: str, found: str) -> None:
    text = draft(heirs.source)
    assert old in text
    with pytest.raises(SpecError) as caught:
        load(tmp_path, text.replace(old, new, 1))
    assert found in str(caught.value)


def test_an_heir_that_a_server_refuses_costs_nothing(tmp_path: Path, heirs: Spec) -> None:
    text = draft(heirs.source).replace("expression: kind = 'cash'", "expression: kind = 1")
    with pytest.raises(
        SpecError, match=r"pay: PostgreSQL refuses the table old\.cash_25, which inherits: operator does"
    ):
        refuse_unloadable(load(tmp_path, text).schema)
