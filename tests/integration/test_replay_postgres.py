"""The replay of a workload with pgbench on a loaded bundle: every script runs, in its weight, with new values."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.publishing import load_bundle, read_bundle, write_bundle
from privbench_core.schema.columns import Column, ColumnType, EnumType, Learn, Range, Values
from privbench_core.schema.constraints import Check, ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload import Workload, read_workload
from privbench_core.workload.rebind import pgbench_files, rebind_workload
from tests.helpers.postgres import new_database, psql_program, rows

T = ColumnType
SCHEMA = Schema(
    "shop",
    (
        Table(
            "client",
            (Column("id", T.INTEGER), Column("mood", T.CATEGORY, Values(("calm", "it's")), sql_type="mood"),
             Column("mail", T.TEXT, nullable=True), Column("data", T.JSON, Learn(), sql_type="jsonb")),
            ("id",),
        ),
        Table(
            "sale",
            (Column("id", T.INTEGER), Column("client", T.INTEGER), Column("day", T.DATE)),
            ("id",),
            (ForeignKey("sale", ("client",), "client", ("id",), 4, owner=True),),
        ),
    ),
    "client",
    (EnumType("mood", ("calm", "it's")),),
)  # fmt: skip
QUERIES = """
-- name: client by id
-- weight: 40
select * from client where id = $1;
-- name: sign in
-- weight: 10
-- think: 1 ms
BEGIN;
select id from client where lower(mail) = lower($1) and mood = $2;
select count(*) from sale where client = any($1) and day >= $2 and day < $3 limit $4;
COMMIT;
select count(*) from client where mail like $1 or mood in ($2, $3);
select date_trunc($1, day), count(*) from sale where day between $2 and $3::date group by 1 having count(*) > $4;
select count(*) from client where data->>'plan' = $1 and (data->'of'->>'n')::int <= $2 or data->'of' = $3;
select count(*) from client where no_column = $1;
"""
FORMS = {
    "id between $1 and $2 or id >= $3 and id < $4": r'"id" BETWEEN (\d+) AND (\d+) OR "id" >= (\d+) AND "id" < (\d+)',
    "($1 is null or mood = $1) and mail is not distinct from $2": r"'1' IS NULL OR .* = '(calm|it''s)'\) AND .* '.*@x'",
    "lower(mail) = any($1) and id <> all($2)": r"LOWER\(\"mail\"\) IN \(LOWER\('A.*'\), .*\) AND \"id\" <> \d+",
    "mail ilike $1 and id % 7 = $2": r"ILIKE 'A\d+:?%' AND \"id\" % 7 = \d+ % 7",
    "id = :named": r'"id" = \d+',
}
"""Conditions with placeholders, and what they become."""

SHOP = Schema(
    "shop",
    (
        Table(
            "client",
            (Column("id", T.INTEGER, identity=True), Column("Mail", T.TEXT, sql_type="character varying(40)"),
             Column("mood", T.CATEGORY, Values(("calm", "it's")), sql_type="mood"), Column("key", T.UUID),
             Column("data", T.JSON, Learn(), nullable=True, sql_type="jsonb")),
            ("id",),
            unique=(("Mail",), ("key",)),
        ),
        Table(
            "sale",
            (Column("id", T.INTEGER), Column("client", T.INTEGER), Column("qty", T.INTEGER, Range(1, 9)),
             Column("paid", T.DATE, Range("2024-01-01", "2024-12-31")),
             Column("sent", T.DATE, Range("2024-01-01", "2024-12-31"), nullable=True)),
            ("id",),
            (ForeignKey("sale", ("client",), "client", ("id",), 4, owner=True),),
            checks=(Check("sale_qty", "qty > 0"), Check("sale_sent", "sent >= paid")),
        ),
        Table(
            "line",
            (Column("sale", T.INTEGER), Column("nr", T.INTEGER), Column("note", T.TEXT, nullable=True)),
            ("sale", "nr"),
            (ForeignKey("line", ("sale",), "sale", ("id",), 9, owner=True),),
        ),
    ),
    "client",
    (EnumType("mood", ("calm", "it's")),),
)  # fmt: skip
WRITES = """
-- name: register
insert into client (id, mail, mood, "key") values (default, 'zq@zq', 'calm', gen_random_uuid())
returning id as zq, 'zq';
insert into client (id, "Mail", mood, "key", data) values ($1, $2, $3, $4, $5), ($6, $7, $8, $9, $10);
-- weight: 3
-- think: 1 ms
BEGIN;
select count(*) from sale where client = $1;
insert into sale (id, client, paid) values (777, (select max(id) from client where mood = 'calm'), now()) -- zq
;
insert into line (sale, nr) values (777, 1);
COMMIT;
insert into client values (777, 'zq', 'calm', 'zq', '{"zq": 1}')
on conflict (id) do update set mood = excluded.mood, data = null;
insert into client (id, mail) values (777, 'zq') on conflict do nothing;
update sale set sent = '1977-07-07' where id = 777;
update sale as zq set paid = '1977-07-07', sent = null, qty = 777 where zq.id = $1 returning zq.*;
update sale set qty = qty - 777 where id = 777;
update sale set sent = now() where id = 777;
update client set mail = lower('zq'), data = '{"zq": 777}' where id = 777;
update sale set qty = c.id + 7 from client c where c.mail = 'zq' and sale.id = $1;
delete from sale where id = 777;
delete from line where note = 'zq';
delete from client where id = 777;
delete from line using sale s where s.id = line.sale and s.qty > 777;
"""
LEFT_BEHIND = """
update client set id = 777 where id = 778;
insert into client (id) select 777;
update sale set client = c.id from client c where c.mail = 'zq' and sale.id = $1;
update sale set id = id + 777;
insert into sale (id, client, paid, qty) values (777, 777, '1977-07-07', 0 - 777), ('zq');
insert into line (sale) values (default) on conflict (nr) do nothing;
update client set data = data || '{"zq": 777}';
update sale set sent = paid - 777;
update client set mood = case when id > 777 then 'calm' else mood end;
insert into client (mood) values ((select coalesce(max(mood), 'calm') from client));
insert into line (sale, nr, zq) values (777, 777, 777);
insert into client (id) values (777) on conflict (id) do update set zq = 777;
"""


def shop() -> dict[str, pa.Table]:
    rng = np.random.default_rng(0)
    paid = np.datetime64("2024-01-01") + rng.integers(0, 99, 300)
    sent = pa.array(paid + rng.integers(0, 5, 300), mask=np.arange(300) % 3 > 0)
    keys = [f"00000000-0000-4000-8000-{i:012}" for i in range(100)]
    return {
        "client": pa.table({
            "id": range(1, 101), "Mail": [f"a{i}:1@it's.x" for i in range(100)], "mood": ["calm", "it's"] * 50,
            "key": keys, "data": [None if i % 2 else f'{{"plan": "p{i}"}}' for i in range(100)],
        }),
        "sale": pa.table({
            "id": range(1, 301), "client": rng.integers(1, 91, 300), "qty": rng.integers(1, 10, 300),
            "paid": pa.array(paid), "sent": sent,
        }),
        "line": pa.table({
            "sale": [i // 2 + 1 for i in range(400)], "nr": [i % 2 + 1 for i in range(400)],
            "note": [None if i % 2 else f"n{i}" for i in range(400)],
        }),
    }  # fmt: skip


@pytest.mark.parametrize("hide", [False, True])
def test_what_is_written_travels_without_its_values(tmp_path: Path, postgres: str, hide: bool):
    """Every statement runs, breaks nothing, and is rolled back unless the recipient wants it to be kept."""
    (tmp_path / "q.sql").write_text(WRITES + LEFT_BEHIND, encoding="utf-8")
    workload = replace(read_workload(tmp_path / "q.sql"), hide_literals=hide)
    number = len(workload.statements) - LEFT_BEHIND.count(";")
    found = rebind_workload(workload, SHOP, shop(), {}, np.random.default_rng(0))
    assert found.kept == tuple(range(1, number + 1)), found.left_out
    assert [left for left, _ in found.left_out] == [*range(number + 1, len(workload.statements) + 1)]
    text, files = found.to_sql(), pgbench_files(found)
    assert not re.search(r"zq|777|1977", "\n".join([text, *files, *files.values()]), re.IGNORECASE)
    write_bundle(tmp_path / "b", SHOP, shop(), {}, {"queries": text}, {"queries": files})
    url = new_database(postgres, f"written_{hide}".lower())
    load_bundle(tmp_path / "b", url)
    whole = "SELECT (SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {} t)"
    state = " UNION ALL ".join(whole.format(name) for name in SHOP.by_name)
    before = rows(url, state)
    queries = tmp_path / "b" / "workload" / "queries.sql"
    script = [psql_program(), url, "-v", "ON_ERROR_STOP=1", "-f", queries]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(url, state) == before
    pgbench = shutil.which("pgbench", path=f"{psql_program().parent}{os.pathsep}{os.environ['PATH']}")
    if pgbench is None:
        pytest.skip("there is no pgbench")
    environment = {**os.environ, "PATH": f"{Path(pgbench).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["sh", queries.with_suffix(".pgbench") / "run.sh", "-c", "4", "-t", "150"]
    inserts = "".join(f"  -f {name}@1" for name in [*files][1:4])
    kept = ["sh", "-c", f"pgbench -n {inserts} -D finish=COMMIT -D written=0 -c 4 -t 150 '{url}'"]
    for replay in ([*command, url], kept):
        done = subprocess.run(
            replay, capture_output=True, text=True, env=environment, check=False, cwd=command[1].parent
        )
        assert done.returncode == 0, done.stderr
        assert "number of transactions actually processed: 600/600" in done.stdout, done.stdout
        assert (rows(url, state) == before) == (replay is not kept)
    assert rows(url, "SELECT count(*) > 600, count(*) = count(DISTINCT id) FROM client") == [(True, True)]


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(0)
    days = np.datetime64("2024-01-01") + rng.integers(0, 99, 500)
    return {
        "client": pa.table({
            "id": range(1, 201), "mood": ["calm", "it's"] * 100,
            "mail": [None if i % 3 else f"A{i}:30@x" for i in range(200)],
            "data": [f'{{"plan": "it\'s {i}", "of": {{"n": {i}}}}}' for i in range(200)],
        }),
        "sale": pa.table({"id": range(1, 501), "client": rng.integers(1, 201, 500), "day": pa.array(days)}),
    }  # fmt: skip


@pytest.mark.parametrize("condition", FORMS)
def test_placeholders_get_values_of_rows_wherever_they_are_compared(condition: str):
    workload = Workload.of([f"select count(*) from client where {condition}"])
    found = rebind_workload(workload, SCHEMA, tables(), {}, np.random.default_rng(0))
    bound = re.search(FORMS[condition], found.workload.statements[0].sql)
    assert bound, found
    numbers = [int(number) for number in bound.groups() if number.isdecimal()]
    assert all(low <= high for low, high in zip(numbers[::2], numbers[1::2], strict=False))
    assert found.rows[0] > 0
    assert not re.search(r"\$\d|:named", found.pgbench[0])


def test_pgbench_and_psql_replay_the_workload(tmp_path: Path, postgres: str):
    pgbench = shutil.which("pgbench", path=f"{psql_program().parent}{os.pathsep}{os.environ['PATH']}")
    if pgbench is None:
        pytest.skip("there is no pgbench")
    (tmp_path / "queries.sql").write_text(QUERIES, encoding="utf-8")
    workload = read_workload(tmp_path / "queries.sql")
    found = rebind_workload(workload, SCHEMA, tables(), {}, np.random.default_rng(0))
    assert found.kept == (1, 2, 3, 4, 5, 6)
    text, files = found.to_sql(), pgbench_files(found)
    write_bundle(tmp_path / "b", SCHEMA, tables(), {}, {"queries": text}, {"queries": files})
    assert read_workload(tmp_path / "b" / "workload" / "queries.sql").transactions == (
        range(1), range(1, 3), range(3, 4), range(4, 5), range(5, 6),
    )  # fmt: skip
    assert read_bundle(tmp_path / "b").workload == {"queries": text}
    (command,) = re.findall(r"^sh .*", (tmp_path / "b" / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    url = new_database(postgres, "replayed")
    load_bundle(tmp_path / "b", url)
    environment = {**os.environ, "URL": url, "PATH": f"{Path(pgbench).parent}{os.pathsep}{os.environ['PATH']}"}
    short = command.replace("-c 4 -T 60", "-c 2 -t 60 --random-seed=1")
    done = subprocess.run(
        ["sh", "-c", short], cwd=tmp_path / "b", capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("ERROR") == 0
    assert re.findall(r"weight: (\d+)", done.stdout) == ["40", "10", "1", "1", "1"]
    assert "number of transactions actually processed: 120/120" in done.stdout
    script = [psql_program(), url, "-v", "ON_ERROR_STOP=1", "-f", tmp_path / "b" / "workload" / "queries.sql"]
    assert subprocess.run(script, capture_output=True, check=False).returncode == 0
    # The planner sees a constant, as in the application, and another one at each call.
    assert "\\set key_1 random(1, 200)" in files["001-client-by-id.sql"]
    signed_in = files["002-sign-in.sql"].replace(":row_1", "7").splitlines()[2].rstrip(";")
    plan = "\n".join(line for (line,) in rows(url, f"EXPLAIN {signed_in}"))
    assert "ARRAY" not in plan
