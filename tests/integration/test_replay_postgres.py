"""The replay of a workload with pgbench on a loaded bundle: every script runs, in its weight, with new values."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.publishing.bundle import load_bundle, read_bundle, write_bundle
from privbench_core.schema.columns import Column, ColumnType, EnumType, Learn, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload.rebind import rebind_workload
from privbench_core.workload.replay import pgbench_files
from privbench_core.workload.statements import Workload, read_workload
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
