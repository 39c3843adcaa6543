"""Where rows are counted: what a spec may say, and what is refused before anything is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from privbench_core.cli import app
from privbench_core.errors import SpecError
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import with_engine
from tests.helpers.specs import changed, explained, load


def test_an_engine_is_read_and_written(town_spec: Path) -> None:
    text = town_spec.read_text(encoding="utf-8")
    assert load_spec(town_spec).engine == "auto"
    spec = load(town_spec.parent, text + "\nengine: duckdb\n")
    assert spec.engine == "duckdb"


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("duck", "spec: there is no engine 'duck'; did you mean 'duckdb'?"),
        (
            "source",
            "spec: engine source counts in PostgreSQL, and this source is not one; choose engine duckdb or memory",
        ),
    ],
)
def test_what_cannot_count_these_rows_is_refused(town_spec: Path, engine: str, expected: str) -> None:
    spec = load_spec(town_spec)
    explained(town_spec.parent, town_spec.read_text(encoding="utf-8") + f"\nengine: {engine}\n", expected)
    with pytest.raises(SpecError, match=r"^--engine: "):
        with_engine(spec, engine)


def test_a_cluster_is_read_and_written_and_not_shown(town_spec: Path) -> None:
    text = town_spec.read_text(encoding="utf-8")
    spec = load(town_spec.parent, text + "\nengine: spark\ncluster: sc://here:15002/;token=hunter2\n")
    assert (spec.engine, spec.cluster) == ("spark", "sc://here:15002/;token=hunter2")
    assert "hunter2" not in repr(spec)
    assert with_engine(load(town_spec.parent, text + "\ncluster: ${CLUSTER}\n"), "spark").engine == "spark"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("engine: spark", "spec: engine spark needs a cluster; add cluster: sc://host:port"),
        ("cluster: http://hunter2", "cluster: not a URL of Spark Connect; write sc://host:port, or ${VARIABLE}"),
        ("cluster: [sc://host]", "cluster: not a URL of Spark Connect; write sc://host:port, or ${VARIABLE}"),
    ],
)
def test_a_cluster_that_is_none_is_refused(town_spec: Path, lines: str, expected: str) -> None:
    explained(town_spec.parent, town_spec.read_text(encoding="utf-8") + f"\n{lines}\n", expected)


def test_a_cluster_counts_no_database_and_numbers_no_rows(town_spec: Path) -> None:
    text = town_spec.read_text(encoding="utf-8") + "\nengine: spark\ncluster: sc://host:15002\n"
    elsewhere = changed(text, "source: .", "source: postgresql://host/db")
    explained(
        town_spec.parent,
        elsewhere,
        "spec: engine spark needs a folder of Parquet files or a Spark catalogue, and this source is neither",
    )
    text = changed(text, "  person:\n    primary_key: id\n", "  person:\n    row_id: generated\n")
    explained(town_spec.parent, text, "spec: engine spark cannot number the rows of person (row_id: generated)")


def test_rows_without_a_key_are_not_numbered_by_the_source(town_spec: Path) -> None:
    text = changed(town_spec.read_text(encoding="utf-8"), "source: .", "source: postgresql://host/db\nengine: source")
    assert load(town_spec.parent, text).engine == "source"
    text = changed(text, "  person:\n    primary_key: id\n", "  person:\n    row_id: generated\n")
    explained(town_spec.parent, text, "spec: engine source cannot number the rows of person (row_id: generated)")


def test_a_plan_names_the_engine(town_spec: Path) -> None:
    arguments = ["plan", str(town_spec), "--epsilon", "0.8", "--engine", "duckdb"]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0
    assert "Engine: duckdb; private rows are copied into a temporary file" in " ".join(told.output.split())
    assert json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)["engine"] == "duckdb"
    refused = CliRunner().invoke(app, [*arguments[:-1], "source"])
    assert refused.exit_code == 1
