"""Scratch databases: empty, apart from each other, without files, and there again after DuckDB has given one up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from privbench_core.backends.scratch import scratch


def test_what_one_makes_no_other_sees() -> None:
    def made(number: int) -> tuple[int, list[tuple[str]]]:
        with scratch() as connection:
            connection.execute(f"CREATE TYPE kind AS ENUM ('a{number}')")
            connection.execute(f"CREATE TABLE t AS SELECT {number} AS n, 'a{number}'::kind AS k")
            with scratch() as other, pytest.raises(duckdb.CatalogException):
                other.execute("SELECT * FROM t")
            return connection.sql("SELECT n FROM t").fetchall()[0][0], connection.sql("SHOW TABLES").fetchall()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(made, range(40))) == [(number, [("t",)]) for number in range(40)]
    with scratch() as connection:
        databases = {name for (name,) in connection.sql("SHOW DATABASES").fetchall()}
        assert len(databases) == 2  # its own, and the one that the instance began with
        assert connection.sql("SHOW TABLES").fetchall() == []


def test_a_mistake_leaves_nothing_behind() -> None:
    with pytest.raises(duckdb.Error), scratch() as connection:
        connection.execute("CREATE TABLE t (a int CHECK (a > 0)); INSERT INTO t VALUES (-1)")
    with scratch() as connection:
        assert connection.sql("SHOW TABLES").fetchall() == []


def test_no_statement_reaches_a_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a\n1\n", encoding="utf-8")
    statements = (
        f"SELECT * FROM '{file}'",
        f"COPY (SELECT 1) TO '{tmp_path / 'out.csv'}'",
        f"ATTACH '{tmp_path / 'other.duckdb'}' AS other",
        "SET enable_external_access = true",
    )
    for statement in statements:
        with scratch() as connection, pytest.raises(duckdb.Error):
            connection.execute(statement)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_an_instance_that_is_given_up_is_replaced() -> None:
    with pytest.raises(duckdb.FatalException), scratch() as connection:
        raise duckdb.FatalException("database has been invalidated")
    with scratch() as connection:
        assert connection.sql("SELECT 1").fetchall() == [(1,)]
        assert connection.sql("SHOW DATABASES").fetchall()[0] == ("memory",)
