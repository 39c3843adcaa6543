"""Workload files with frequencies, pauses and transactions, and exports of pg_stat_statements."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from privbench_core.errors import SourceError
from privbench_core.workload import Statement, Workload, read_workload

MIX = """-- dialect: duckdb
-- name: top
-- weight: 40
select 1; -- think: 2 s
start transaction;
-- name: in two
select 2;
/* no note */ select '-- weight: 7';
end;
select 4"""


def read(folder: Path, text: str, name: str = "w.sql") -> Workload:
    (folder / name).write_text(text, encoding="utf-8")
    return read_workload(folder / name)


def test_frequencies_pauses_and_transactions_are_read_and_written_back(tmp_path: Path):
    workload = read(tmp_path, MIX)
    assert workload.statements == (
        Statement("select 1", None, "top", 40),
        Statement("select 2", None, "in two", 1, 2000, 1),
        Statement("select '-- weight: 7'", transaction=1),
        Statement("select 4"),
    )
    assert workload.transactions == (range(1), range(1, 3), range(3, 4))
    assert read(tmp_path, workload.to_sql()) == workload


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1;\n-- weight: few\nselect 2", "query 2: weight few; write weight: 40"),
        ("-- think: long\nselect 1", "query 1: think long; write weight: 40 and think: 200 ms"),
        ("begin; select 1; begin; select 2; commit", "BEGIN inside a transaction, after query 1"),
        ("select 1; begin; select 2", "BEGIN without COMMIT, before query 2"),
    ],
)
def test_mistakes_are_named_with_the_number_of_the_query(tmp_path: Path, text: str, expected: str):
    with pytest.raises(SourceError, match=re.escape(expected)):
        read(tmp_path, text)


def test_exports_of_pg_stat_statements_have_weights(tmp_path: Path):
    rows = ["userid,query,calls", '1,"select ""a""\nfrom b where c = $1",7', "2,select 2;,9"]
    found = read(tmp_path, "\n".join(rows), "s.csv").statements
    assert found == (Statement('select "a"\nfrom b where c = $1', weight=7), Statement("select 2", weight=9))
    for text, expected in {
        "sql,calls\n": "no column query; export it with",
        "query,calls\na,b\n": "line 2: calls",
        "query,calls": "no query",
    }.items():
        with pytest.raises(SourceError, match=expected):
            read(tmp_path, text, "s.csv")
