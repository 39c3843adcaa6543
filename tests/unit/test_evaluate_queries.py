"""Workloads in the form of SAM: read, refused, and the same in SQL."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from benchmarks.sam import cardinalities
from privbench_core.errors import SourceError
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table
from privbench_core.workload import Condition, load_sam_workload, read_sam_workload

PEOPLE = pa.table(
    {
        "age": pa.array([20, 30, None, 40], pa.int64()),
        "job": pa.array(["Ärztin", "clerk", "Clerk", None], pa.large_string()),
        "born": pa.array([dt.date(2000, 1, 1), None, dt.date(1990, 5, 5), dt.date(1980, 1, 1)]),
        "pay": pa.array([Decimal("1.10"), Decimal("2.20"), Decimal("3.30"), None], pa.decimal128(8, 2)),
    }
)


def _write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_workload_file_reads_back_and_reproduces_its_cardinalities(tmp_path: Path) -> None:
    content = {"query_list": [[[0, 1], [">=", "="], ["20", "clerk"]], [[0], ["<="], ["20"]]], "card_list": ["1", "1"]}
    queries, expected = load_sam_workload(_write(tmp_path / "w.json", content), PEOPLE.column_names)
    assert queries[0] == (Condition("age", ">=", "20"), Condition("job", "=", "clerk"))
    assert (cardinalities(PEOPLE, queries) == expected).all()


@pytest.mark.parametrize(
    "content",
    [
        {"query_list": [[[9], ["="], ["1"]]], "card_list": ["1"]},
        {"query_list": [[[-1], ["="], ["1"]]], "card_list": ["1"]},
        {"query_list": [[[0], ["LIKE"], ["1"]]], "card_list": ["1"]},
        {"query_list": [[[0], ["="], ["1", "2"]]], "card_list": ["1"]},
        {"query_list": [], "card_list": ["1"]},
        {"queries": []},
    ],
)
def test_files_that_are_no_workload_are_refused(tmp_path: Path, content: Any) -> None:
    with pytest.raises(SourceError, match=r"w\.json: "):
        load_sam_workload(_write(tmp_path / "w.json", content), PEOPLE.column_names)


PERSON = Table(
    "odd name",
    (Column("age", ColumnType.INTEGER), Column("job", ColumnType.CATEGORY), Column("born", ColumnType.DATE)),
    ("age",),
)


def test_a_sam_workload_is_the_same_in_sql(tmp_path: Path) -> None:
    conditions = [[[0, 1], [">=", "!="], ["20", "Clerk's"]], [[2], ["<"], ["1990-05-05"]], [[], [], []]]
    file = _write(tmp_path / "w.json", {"query_list": conditions, "card_list": ["2", "1", "4"]})
    workload = read_sam_workload(file, PERSON)
    with duckdb.connect() as database:
        database.register("odd name", PEOPLE)
        found = [database.execute(statement.sql).fetchone()[0] for statement in workload.statements]
    queries, _ = load_sam_workload(file, ["age", "job", "born"])
    assert found == cardinalities(PEOPLE, queries).tolist() == [2, 1, 4]
    assert [statement.stated for statement in workload.statements] == [2, 1, 4]
    wrong = _write(tmp_path / "x.json", {"query_list": [[[0], ["="], ["1 OR 1=1"]]], "card_list": ["1"]})
    with pytest.raises(SourceError, match=r"odd name\.age"):
        read_sam_workload(wrong, PERSON)
