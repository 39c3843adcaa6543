"""A whole run whose tables are in several ranges: parts in the bundle, resumed, refused where damaged, loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from privbench_core import guards
from privbench_core.errors import PublishError, ReleaseError
from privbench_core.evaluation import read_bundle_and_source
from privbench_core.pipeline.executor import RunResult, run_spec
from privbench_core.publishing import load_bundle, read_bundle
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.steps import sample
from tests.helpers.market import market
from tests.helpers.planted import broken_expectations, place_of, planted_pair
from tests.helpers.postgres import new_database, psql, rows


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    folder = tmp_path_factory.mktemp("pair")
    schema, tables = planted_pair(1200)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return Spec(schema, str(folder), folder / "spec.yaml", (8.0,), 1e-6, 20.0, 1e-5, state=folder / "state")


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "RANGE_ROWS", 500)


def run(spec: Spec, out: Path, workers: int | None = 1) -> RunResult:
    return run_spec(spec, 8.0, out=out, workers=workers)


def content(bundle: Path) -> dict[str, bytes]:
    return {str(file.relative_to(bundle)): file.read_bytes() for file in bundle.rglob("*") if file.is_file()}


def stored_parts(spec: Spec) -> list[Path]:
    return sorted(spec.state.rglob("*.parts/*.bin"))


def test_a_bundle_in_parts_is_the_same_for_any_number_of_processes(spec: Spec, tmp_path: Path):
    run(spec, tmp_path / "one", 1)
    for path in spec.state.rglob("*.parts"):
        shutil.rmtree(path)
    again = run(spec, tmp_path / "two", 2)
    assert again.paid == 0
    one, two = content(tmp_path / "one"), content(tmp_path / "two")
    assert one == two
    assert {"data/parent/part-00000.parquet", "data/child/part-00002.csv.gz"} <= one.keys()
    manifest = json.loads(one["MANIFEST.json"])
    assert manifest["format_version"] == 2
    parts = manifest["tables"]["child"]["parts"]
    assert sum(part["rows"] for part in parts) == manifest["tables"]["child"]["rows"]
    assert read_bundle(tmp_path / "one").table("child").num_rows == manifest["tables"]["child"]["rows"]


def test_small_tables_keep_one_file_and_the_first_format(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guards, "RANGE_ROWS", 1 << 20)
    run(spec, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "MANIFEST.json").read_text())
    assert manifest["format_version"] == 1
    assert manifest["tables"]["child"]["file"] == "data/child.parquet"
    assert "parts" not in manifest["tables"]["child"]


def test_ranges_that_are_gone_are_drawn_again_and_damaged_ones_are_refused(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run(spec, tmp_path / "out")
    expected = content(tmp_path / "out")
    drawn: list[int] = []
    draw = sample.RangeDrawing.made
    monkeypatch.setattr(sample.RangeDrawing, "made", lambda self, number: (drawn.append(number), draw(self, number))[1])
    stored_parts(spec)[1].unlink()
    run(spec, tmp_path / "out")
    assert len(drawn) == 1  # the others were finished
    assert content(tmp_path / "out") == expected
    damaged = stored_parts(spec)[-1]
    whole = damaged.read_bytes()
    damaged.write_bytes(bytes([*whole[:-1], whole[-1] ^ 1]))
    with pytest.raises(ReleaseError, match="does not match its checksum; delete it and run again"):
        run(spec, tmp_path / "out")
    damaged.unlink()
    run(spec, tmp_path / "out")
    assert content(tmp_path / "out") == expected
    assert len(drawn) == 2


def test_a_bundle_in_parts_is_read_and_loads_and_one_with_a_part_missing_or_altered_is_refused(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out"
    run(spec, out)
    found = read_bundle_and_source(spec, out)
    assert set(found.documents) == {"README.md", "schema.sql", "load.sql", "load.duckdb.sql", "statistics.sql"}
    assert found.pair.synthetic["child"].num_rows == read_bundle(out).table("child").num_rows
    loaded = load_bundle(out, str(tmp_path / "loaded.duckdb"))
    monkeypatch.chdir(out)
    with duckdb.connect() as connection:
        connection.execute((out / "load.duckdb.sql").read_text())
        counts = [connection.execute(f"SELECT count(*) FROM {name}").fetchall() for name in loaded.rows]
    assert counts == [[(number,)] for number in loaded.rows.values()]
    part = out / "data" / "child" / "part-00001.parquet"
    part.write_bytes((out / "data" / "child" / "part-00000.parquet").read_bytes())
    with pytest.raises(PublishError, match=r"part-00001\.parquet: does not match its checksum"):
        read_bundle(out)
    part.unlink()
    with pytest.raises(PublishError, match=r"part-00001\.parquet: missing"):
        read_bundle(out)


def test_bundles_in_parts_load_into_postgresql_by_copy_and_by_psql(spec: Spec, tmp_path: Path, postgres: str):
    run(spec, tmp_path / "out")
    expected = {name: entry["rows"] for name, entry in read_bundle(tmp_path / "out").manifest["tables"].items()}
    assert load_bundle(tmp_path / "out", new_database(postgres, "parts_by_copy")).rows == expected
    assert "gzip -dc data/child/part-*.csv.gz" in (tmp_path / "out" / "load.sql").read_text()
    url = new_database(postgres, "parts_by_psql")
    done = psql(url, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert {name: rows(url, f"SELECT count(*) FROM {name}")[0][0] for name in expected} == expected


def test_a_table_with_a_second_private_parent_is_published_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    schema, tables = market(sales=4000, products=900, most=40, optional=True)
    place = place_of(tmp_path, schema, tables)
    assert not broken_expectations(place.run(workers=1))
    one = content(place.out)
    assert {f"data/sale/part-0000{number}.parquet" for number in range(6)} <= one.keys()
    for path in place.spec.state.rglob("*.parts"):
        assert {file.suffix for file in path.iterdir()} == {".bin"}  # what was allocated is gone
        shutil.rmtree(path)
    assert place.run(workers=2).paid == 0
    assert content(place.out) == one
    monkeypatch.chdir(place.out)
    with duckdb.connect() as connection:
        connection.execute((place.out / "load.duckdb.sql").read_text())  # with its foreign keys
        ((most,),) = connection.execute(
            "SELECT max(n) FROM (SELECT count(*) AS n FROM sale WHERE product_id IS NOT NULL GROUP BY product_id)"
        ).fetchall()
    assert most <= 40
