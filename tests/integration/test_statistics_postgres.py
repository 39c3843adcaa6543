"""Statistics without rows: PostgreSQL plans from them as from the rows, and nothing else changes."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pyarrow as pa
import pytest

from privbench_core import publish
from privbench_core.backends.postgres import load
from privbench_core.backends.postgres.analyze import SAMPLE_ROWS
from privbench_core.errors import PublishError
from privbench_core.explain.plan import explain_query
from privbench_core.publishing import MANIFEST, load_bundle, read_bundle, write_bundle
from privbench_core.publishing.statistics import statistics_sql
from privbench_core.schema.columns import Column, ColumnType, EnumType, Generated
from privbench_core.schema.constraints import ForeignKey, Index
from privbench_core.schema.partitions import Partition, Partitioning
from privbench_core.schema.tables import Schema, Table
from tests.helpers.postgres import as_role, execute, new_database, psql, rows

T = ColumnType
PEOPLE, VISITS, DAY = 2000, 9000, date(2024, 1, 1)
SCHEMA = Schema(
    "clinic",
    (
        Table(
            "person",
            (
                Column("id", T.INTEGER),
                Column("email", T.TEXT, sql_type="varchar(60)"),
                Column("kind", T.CATEGORY, sql_type="kind"),
                Column("paid", T.DECIMAL, nullable=True, precision=8, scale=2),
                Column("seen", T.TIMESTAMP, nullable=True),
                Column("tags", T.JSON, sql_type="text[]"),
                Column("vip", T.BOOLEAN),
                Column("notes", T.TEXT, nullable=True),
            ),
            ("id",),
            indexes=(
                Index("by_mail", ("email",), "btree (lower(email))"),
                Index("vips", ("paid",), "btree (paid) WHERE vip"),
            ),
            unique=(("email",),),
            generated=(Generated("cents", "integer", "(paid * 100)::integer"),),
        ),
        Table(
            "visit",
            (
                Column("id", T.INTEGER),
                Column("person", T.INTEGER),
                Column("day", T.DATE),
                Column("share", T.FLOAT, nullable=True),
            ),
            ("id", "day"),
            (ForeignKey("visit", ("person",), "person", ("id",), max_children=100, owner=True),),
            partitioned=Partitioning(
                "RANGE (day)",
                ("day",),
                (
                    Partition("visit_2024", "FROM ('2024-01-01') TO ('2025-01-01')"),
                    Partition("visit_rest", "DEFAULT"),
                ),
            ),
        ),
    ),
    unit="person",
    enums=(EnumType("kind", ("walk-in", "regular", "emergency")),),
)
QUERIES = (
    "SELECT * FROM person WHERE id = 7",
    "SELECT count(*) FROM person WHERE kind = 'emergency' AND seen < '2023-06-01'",
    "SELECT * FROM person WHERE lower(email) = 'x'",
    "SELECT paid FROM person WHERE vip AND paid > 900",
    "SELECT count(*) FROM person WHERE tags @> ARRAY['b']",
    "SELECT count(*) FROM person JOIN visit ON person = person.id WHERE day < '2024-02-01' AND kind = 'regular'",
    "SELECT person, count(*) FROM visit GROUP BY person ORDER BY 2 DESC",
    "SELECT * FROM visit WHERE person = 3 AND day > '2025-03-01'",
)


def clinic() -> dict[str, pa.Table]:
    rng = random.Random(5)
    person = [
        (
            number,
            f"Person{number * 7919 % 10_000}@Example{number % 3}.org",
            rng.choices(["walk-in", "regular", "emergency"], [5, 4, 1])[0],
            None if number % 11 == 0 else Decimal(rng.randint(0, 120_000)) / 100,
            None if number % 7 == 0 else datetime(2023, 1, 1) + timedelta(minutes=rng.randint(0, 500_000)),
            json.dumps([each for each in ("a", "b", "c") if rng.random() < 0.4]),
            number % 9 == 0,
            None if number % 5 else "n" * rng.randint(0, 300),
        )
        for number in range(1, PEOPLE + 1)
    ]
    visit = [
        (
            number,
            min(int(rng.expovariate(1 / 300)) + 1, PEOPLE),
            DAY + timedelta(days=rng.randint(0, 500)),
            rng.choice([None, 0.25, rng.gauss(0, 1)]),
        )
        for number in range(1, VISITS + 1)
    ]
    listed = {"person": person, "visit": visit}
    return {
        table.name: pa.table(
            [
                pa.array(values, field.type)
                for values, field in zip(zip(*listed[table.name], strict=True), table.arrow_schema, strict=True)
            ],
            schema=table.arrow_schema,
        )
        for table in SCHEMA.tables
    }


@pytest.fixture(scope="module")
def place(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The bundle, and databases with its rows and with its statistics alone."""
    bundle = write_bundle(tmp_path_factory.mktemp("clinic") / "bundle", SCHEMA, clinic(), {})
    loaded, bare = (new_database(postgres, f"clinic_{name}") for name in ("loaded", "bare"))
    load_bundle(bundle, loaded)
    with psycopg.connect(loaded, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
    return SimpleNamespace(
        bundle=bundle, loaded=loaded, bare=bare, found=publish(bundle, bare, statistics_only=True), server=postgres
    )


def test_nothing_is_left_out_and_the_tables_are_empty(place: SimpleNamespace):
    assert place.found.rows == {"person": PEOPLE, "visit": VISITS}
    assert place.found.left_out == ()
    assert rows(place.bare, "SELECT (SELECT count(*) FROM person), (SELECT count(*) FROM visit)") == [(0, 0)]
    assert rows(place.bare, "SELECT * FROM person WHERE id = 3") == []  # by the index


def test_statistics_are_those_of_analyze(place: SimpleNamespace):
    facts = "null_frac, avg_width, n_distinct, most_common_vals::text, histogram_bounds::text, most_common_elems::text"
    numbers = "most_common_freqs, most_common_elem_freqs, elem_count_histogram, correlation"
    query = f"SELECT tablename, attname, inherited, {facts}, {numbers} FROM pg_stats WHERE schemaname = 'public'"
    analyzed, given = ({row[:3]: row[3:] for row in rows(url, query)} for url in (place.loaded, place.bare))
    assert given.keys() == analyzed.keys()
    for where, exact in analyzed.items():
        for one, other in zip(exact, given[where], strict=True):
            if where[2] and isinstance(one, float) and one == exact[-1]:
                continue  # of a partitioned table ANALYZE reads one partition after the other
            close = one if isinstance(one, str) or one is None else pytest.approx(one, abs=1e-5)
            assert other == close, where


def test_the_planner_sees_the_same_sizes(place: SimpleNamespace):
    query = (
        "SELECT relname, reltuples, pg_relation_size(c.oid) / 8192 FROM pg_class c"
        " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i') ORDER BY 1"
    )
    for (name, tuples, pages), given in zip(rows(place.loaded, query), rows(place.bare, query), strict=True):
        assert given[:2] == (name, tuples)
        assert given[2] == pytest.approx(pages, rel=0.03, abs=1), name


@pytest.mark.parametrize("query", QUERIES)
def test_plans_are_the_same(place: SimpleNamespace, query: str):
    with psycopg.connect(place.loaded) as loaded, psycopg.connect(place.bare) as bare:
        expected, found = (explain_query(connection, query) for connection in (loaded, bare))
    assert (found.plan, found.scans, found.joins) == (expected.plan, expected.scans, expected.joins)
    assert found.rows == pytest.approx(expected.rows, rel=0.01)
    assert found.cost == pytest.approx(expected.cost, rel=0.05)


def test_rows_can_be_added_and_found_by_the_empty_indexes(place: SimpleNamespace):
    url = new_database(place.server, "clinic_filled")
    assert publish(place.bundle, url, statistics_only=True).left_out == ()
    values = "SELECT n, n || '@x', 'regular', n, NULL, '{}', false FROM generate_series(1, 5000) n"
    execute(url, f"INSERT INTO person (id, email, kind, paid, seen, tags, vip) {values}")
    with psycopg.connect(url, options="-c enable_seqscan=off") as connection:
        by_key = "SELECT paid FROM person WHERE id = 4999 AND lower(email) = '4999@x'"
        assert connection.execute(by_key).fetchall() == [(4999,)]
        between = "SELECT count(*) FROM person WHERE id BETWEEN 10 AND 4000"
        assert connection.execute(between).fetchall() == [(3991,)]


def test_autovacuum_leaves_the_statistics_alone(place: SimpleNamespace):
    query = "SELECT relname FROM pg_class WHERE 'autovacuum_enabled=false' = ANY(reloptions) ORDER BY 1"
    assert rows(place.bare, query) == [("person",), ("visit_2024",), ("visit_rest",)]


def test_a_login_without_the_right_gets_statistics_and_is_told_what_plans_lack(place: SimpleNamespace):
    url = new_database(place.server, "clinic_plain")
    execute(url, "CREATE ROLE clinic_owner LOGIN; ALTER SCHEMA public OWNER TO clinic_owner")
    found = publish(place.bundle, as_role(url, "clinic_owner"), statistics_only=True)
    (told,) = found.left_out
    assert told.startswith("the sizes of tables and indexes, because the login may not run programs on the server")
    assert rows(url, "SELECT n_distinct FROM pg_stats WHERE tablename = 'person' AND attname = 'kind'") == [(3.0,)]
    assert rows(url, "SELECT pg_relation_size('person')") == [(0,)]


def test_a_server_without_the_program_is_told(place: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load, "_truncations", lambda path, _: ["privbench-none " + path])
    found = publish(place.bundle, new_database(place.server, "clinic_without"), statistics_only=True)
    assert "because the server has no program called truncate" in found.left_out[0]


def test_psql_alone_runs_the_script(place: SimpleNamespace):
    url = new_database(place.server, "clinic_psql")
    done = psql(url, place.bundle, "statistics.sql")
    assert done.returncode == 0
    assert done.stderr == ""
    assert rows(url, "SELECT reltuples FROM pg_class WHERE relname = 'person'") == [(PEOPLE,)]


def test_tables_that_are_there_are_refused_or_replaced(place: SimpleNamespace):
    with pytest.raises(PublishError, match="already has person, visit"):
        publish(place.bundle, place.bare, statistics_only=True)
    assert publish(place.bundle, place.bare, replace=True, statistics_only=True).left_out == ()


def test_what_cannot_restore_statistics_is_refused(
    place: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    with pytest.raises(PublishError, match="DuckDB plans from its rows alone"):
        publish(place.bundle, tmp_path / "x.duckdb", statistics_only=True)
    monkeypatch.setattr(load, "FIRST_VERSION", 190_000)
    empty = new_database(place.server, "clinic_old")
    with pytest.raises(PublishError, match="PostgreSQL 18 cannot restore statistics"):
        publish(place.bundle, empty, statistics_only=True)
    assert rows(empty, "SELECT 1 FROM pg_tables WHERE schemaname = 'public'") == []


def test_a_bundle_of_an_older_version_is_refused(place: SimpleNamespace, tmp_path: Path):
    bundle = write_bundle(tmp_path / "bundle", SCHEMA, clinic(), {})
    manifest = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
    del manifest["files"]["statistics.sql"]
    (bundle / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(PublishError, match=r"has no statistics\.sql.*run privbench again"):
        publish(bundle, place.bare, statistics_only=True)


def test_a_large_table_is_sampled_and_gives_the_same_text_in_one_part_or_several(tmp_path: Path):
    table = replace(SCHEMA.table("visit"), foreign_keys=(), partitioned=None, primary_key=("id",))
    schema = Schema("large", (table,), "visit")
    number = pa.array(range(2 * SAMPLE_ROWS))
    content = {"id": number, "person": [n * n % 5003 for n in range(len(number))], "day": [DAY] * len(number)}
    whole = pa.table({**content, "share": pa.nulls(len(number), pa.float64())}, schema=table.arrow_schema)
    bundle = read_bundle(write_bundle(tmp_path / "bundle", schema, {"visit": whole}, {}))
    halves = [tmp_path / f"{part}.parquet" for part in range(2)]
    for part, file in enumerate(halves):
        pa.parquet.write_table(whole.slice(part * SAMPLE_ROWS, SAMPLE_ROWS), file)
    text = (bundle.path / "statistics.sql").read_text(encoding="utf-8")
    assert statistics_sql(schema, {"visit": halves}) == text
    assert "'n_distinct', -1.0::real" in text
    assert len(text) < 20_000
