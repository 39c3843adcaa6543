"""Odd and broken schemas through the command line: one clear message, exit code 1 and no traceback, or a result."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from privbench_core.cli import app
from privbench_core.publishing import read_bundle
from tests.helpers.postgres import as_role, execute, new_database

HEAD = """
database: d
source: {source}
privacy: {{unit: a, delta: 1e-9, epsilons: [4], lifetime: {{epsilon: 9}}}}
fidelity: {{accept_noise: true}}
tables:
  a: {{primary_key: id, columns: {{id: integer, n: {{type: integer, domain: {{min: 0, max: 9}}}}}}{more}}}
"""


def call(*arguments: object) -> tuple[int, str, str]:
    shown = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert "Traceback" not in shown.output
    return shown.exit_code, shown.stdout, shown.stderr


def refused(*arguments: object) -> str:
    code, stdout, stderr = call(*arguments)
    assert (code, stdout) == (1, "")
    assert stderr.startswith("privbench: ")
    assert stderr.count("\n") == 1
    return stderr


def written(folder: Path, tables: str, more: str = "") -> Path:
    path = folder / "spec.yaml"
    path.write_text(HEAD.format(source=folder / "d.duckdb", more=more) + tables, encoding="utf-8")
    return path


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("kind", "key", "message"),
    [
        ("integer", "{columns: up, references: aa}", "b.up: references 'aa', which is not a table; did you mean 'a'?"),
        (
            "integer",
            "{columns: up, references: {table: a, columns: n}, max_children: 2}",
            "b.up: refers to a(n), which is neither its primary key nor declared unique; refer to (id), or add",
        ),
        ("text", "{columns: up, references: a, max_children: 2}", "b.up: type text, but a.id is integer; give both th"),
    ],
)
def test_a_key_that_leads_nowhere_is_refused(tmp_path: Path, command: str, kind: str, key: str, message: str) -> None:
    tables = f"  b: {{primary_key: id, columns: {{id: integer, up: {kind}}}, foreign_keys: [{key}]}}\n"
    options = ["--epsilon", 4, "--out", tmp_path / "out"] if command == "run" else []
    assert message in refused(command, written(tmp_path, tables), *options)


def test_a_check_that_is_not_understood_is_kept_and_told(tmp_path: Path) -> None:
    path = written(
        tmp_path, "", ", checks: [{name: odd, expression: md5(n::text) <> n::text}, {name: ok, expression: n < 5}]"
    )
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute("CREATE TABLE a AS SELECT i AS id, i % 5 AS n FROM range(60) AS t(i)")
    code, stdout, _ = call("plan", path)
    assert code == 0
    assert "a.odd" in stdout
    assert "a.ok" not in stdout
    assert call("run", path, "--epsilon", 4, "--out", tmp_path / "out")[0] == 0
    bundle = read_bundle(tmp_path / "out")
    assert 'CONSTRAINT "odd" CHECK (md5(n::text) <> n::text)' in bundle.schema_sql
    assert max(bundle.table("a")["n"].to_pylist()) < 5


def wide(folder: Path, columns: int, rows: int = 400) -> None:
    """A DuckDB file with a table of many columns goes through every command."""
    kinds = (
        ("INTEGER", "(r * 7919 + {i}) % 97"),
        ("DOUBLE", "r / 7.0"),
        ("VARCHAR", "'v' || (r + {i}) % 7"),
        ("BOOLEAN", "(r + {i}) % 2 = 0"),
        ("DATE", "DATE '2000-01-01' + CAST(r AS INTEGER)"),
    )
    chosen = [kinds[i % len(kinds)] for i in range(columns - 1)]
    declared = ", ".join(f"c{i} {kind} NOT NULL" for i, (kind, _) in enumerate(chosen))
    made = ", ".join(made.format(i=i) for i, (_, made) in enumerate(chosen))
    with duckdb.connect(str(folder / "wide.duckdb")) as connection:
        connection.execute(f"CREATE TABLE wide (id BIGINT PRIMARY KEY, {declared})")
        connection.execute(f"INSERT INTO wide SELECT r, {made} FROM range({rows}) AS t(r)")
    spec = folder / "spec.yaml"
    assert call("init", folder / "wide.duckdb", "-o", spec, "--unit", "wide")[0] == 0
    text = spec.read_text(encoding="utf-8").replace("epsilons: [0.8, 3.2]", "epsilons: [4]")
    spec.write_text(text, encoding="utf-8")
    assert call("plan", spec)[0] == 0
    code, _, stderr = call("run", spec, "--epsilon", 4, "--accept-noise", "--out", folder / "out")
    assert (code, stderr.count("Warning")) == (0, 0), stderr
    assert read_bundle(folder / "out").table("wide").num_columns == columns
    assert call("publish", folder / "out", folder / "back.duckdb")[0] == 0


def test_a_table_of_many_columns(tmp_path: Path) -> None:
    wide(tmp_path, 15)


@pytest.mark.slow
def test_a_table_of_five_hundred_columns(tmp_path: Path) -> None:
    wide(tmp_path, 500)


@pytest.fixture(scope="module")
def guarded(postgres: str) -> tuple[str, str]:
    """URLs of a database as its owner and as a visitor, who may see a part of it."""
    url = new_database(
        postgres,
        "partly",
        """
        CREATE TABLE a (id int PRIMARY KEY, n int NOT NULL CHECK (n BETWEEN 0 AND 9), pay int);
        CREATE TABLE secret (id int PRIMARY KEY, a int NOT NULL REFERENCES a);
        CREATE SCHEMA hidden; CREATE TYPE hidden.mood AS ENUM ('x'); CREATE TABLE hidden.t (id int PRIMARY KEY);
        CREATE TABLE b (
            id int PRIMARY KEY, m hidden.mood, t int REFERENCES hidden.t, a int NOT NULL REFERENCES a
        );
        INSERT INTO a SELECT i, i % 10 FROM generate_series(1, 60) i;
        CREATE ROLE visitor LOGIN; GRANT SELECT (id, n) ON a TO visitor; GRANT SELECT ON b TO visitor;
        """,
    )
    return url, as_role(url, "visitor")


def test_a_database_that_may_be_read_in_part(guarded: tuple[str, str], tmp_path: Path) -> None:
    owner, visitor = guarded
    spec = tmp_path / "spec.yaml"
    code, stdout, _ = call("init", visitor, "-o", spec, "--unit", "a")
    assert code == 0
    assert "4 parts of the source are left out, each with its reason" in stdout
    draft = spec.read_text(encoding="utf-8")
    for reason in (
        "secret may not be read by this login; grant SELECT on it",
        "pay (integer) may not be read by this login; grant SELECT on it, or do without",
        "the foreign key b_t_fkey to hidden.t, which is not read",
        "the schema hidden, which this login may not use; grant USAGE on it",
    ):
        assert f"# left out: {reason}" in draft
    spec.write_text(draft.replace("epsilons: [0.8, 3.2]", "epsilons: [4]"), encoding="utf-8")
    assert call("plan", spec)[0] == 0
    more = (
        "\n  secret: {primary_key: id, columns: {id: integer, a: integer}, foreign_keys: [{columns: a, references: a,"
    )
    other = tmp_path / "other.yaml"
    other.write_text(spec.read_text(encoding="utf-8") + f"{more} max_children: 2}}]}}\n", encoding="utf-8")
    message = refused("run", other, "--epsilon", 4, "--out", tmp_path / "out")
    assert "secret: the source's user may not read this table; grant SELECT on it, or leave it out" in message
    assert "hidden" in refused("init", f"{visitor}&schema=hidden", "-o", tmp_path / "none.yaml")
    execute(owner, "REVOKE USAGE ON SCHEMA public FROM PUBLIC")
    message = refused("init", visitor, "-o", tmp_path / "none.yaml")
    assert "no schema that the login may use; grant USAGE on it" in message
    message = refused("run", spec, "--epsilon", 4, "--out", tmp_path / "out")
    assert "the source shows no tables; check the path or URL, the schema, and the rights of the login" in message
    assert not (tmp_path / "none.yaml").exists()
    assert not (tmp_path / "out").exists()
