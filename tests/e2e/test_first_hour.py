"""The first hour with a database: init, edit, plan, run, publish, load; scripted as its owner would go through it."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import psycopg
import pytest
import yaml
from sqlalchemy import make_url

from tests.helpers.drafts import call
from tests.helpers.first_hour import DATABASES, Database
from tests.helpers.postgres import execute, new_database, rows

SCHEMA = "Sales Dept"  # a blank, as in many a database


def privbench(*arguments: object) -> str:
    """Run a command as a stranger would: another process, nothing on standard error."""
    command = [sys.executable, "-m", "privbench_core", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stderr == "", "a warning on standard error"
    return done.stdout


@pytest.mark.parametrize(
    "database",
    [pytest.param(d, marks=[] if d.name == "shop" else [pytest.mark.slow], id=d.name) for d in DATABASES],
)
def test_the_first_hour(postgres: str, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database(postgres, f"hour_{database.name}")
    execute(url, ";\n".join(database.sql(SCHEMA)))
    source = f"{url}{'&' if '?' in url else '?'}schema={SCHEMA}"
    monkeypatch.chdir(tmp_path)
    told = call("init", source, "-o", "spec.yaml").stdout
    assert f"To fill in, {len(database.edits)}, marked CHOOSE in the spec" in told
    draft = (tmp_path / "spec.yaml").read_text(encoding="utf-8")
    # Little noise, as made-up rows are few and this is about the way, not the figures.
    louder = {"epsilons: [0.8, 3.2]": "epsilons: [30]", "{epsilon: 20,": "{epsilon: 100,"}
    for old, new in ({**database.edits, **louder}).items():
        assert draft.count(old) == 1
        draft = draft.replace(old, new)
    (tmp_path / "spec.yaml").write_text(draft, encoding="utf-8")
    assert "of the lifetime budget" in privbench("run", "spec.yaml", "--epsilon", "30", "--out", "bundle")
    bundle = tmp_path / "bundle"
    tables = yaml.safe_load(draft)["tables"]

    # Into databases with privbench ...
    target = new_database(postgres, f"hour_{database.name}_copy")
    for place in (target, "copy.duckdb"):
        assert call("publish", "bundle", place).exit_code == 0
    # ... and without: by the script for psql.
    plain = new_database(postgres, f"hour_{database.name}_plain")
    load_without_privbench(plain, bundle)
    for table in tables:
        counted = f'SELECT count(*) FROM "{table}"'
        (number,) = duckdb.sql(f"SELECT count(*) FROM read_parquet('{bundle}/data/{table}.parquet')").fetchall()[0]
        assert rows(target, counted) == rows(plain, counted) == [(number,)]
        with duckdb.connect(str(tmp_path / "copy.duckdb"), read_only=True) as copy:
            assert copy.sql(counted).fetchall() == [(number,)]
    plan = call("plan", "spec.yaml").stdout
    assert "± rows" in plan
    assert " of " in plan.partition("± a cell")[2], "what was released is in the plan of the next run"


def load_without_privbench(url: str, bundle: Path) -> None:
    """Load the bundle as load.sql says, with psycopg in place of psql."""
    script = (bundle / "load.sql").read_text(encoding="utf-8")
    tables, *copies = re.split(r"(?m)^\\copy (.*) FROM PROGRAM 'gzip -dc (.*)' WITH (.*)$", script)
    with psycopg.connect(url) as connection:
        connection.execute(tables.partition("BEGIN;")[2].encode())
        for what, file, form in zip(copies[::4], copies[1::4], copies[2::4], strict=True):
            with connection.cursor().copy(f"COPY {what} FROM STDIN WITH {form}".encode()) as copy:
                copy.write(gzip.decompress((bundle / file).read_bytes()))
        connection.execute(copies[-1].partition("COMMIT;")[0].encode())


def test_a_password_stays_out_of_the_spec(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_database(postgres, "hour_password", "CREATE TABLE person (id int PRIMARY KEY, age int)")
    secret = make_url(url).set(password="hun ter2").render_as_string(hide_password=False)
    spec = tmp_path / "spec.yaml"
    assert "set PRIVBENCH_PASSWORD in the environment" in call("init", secret, "-o", spec).stdout
    assert "hun" not in spec.read_text(encoding="utf-8")
    monkeypatch.setenv("PRIVBENCH_PASSWORD", "hun ter2")
    assert call("plan", spec).exit_code == 0
