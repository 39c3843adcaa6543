"""Error bars: replicates of a bundle, and the intervals that they give for answers on the source."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats
from typer.testing import CliRunner

import privbench_core as privbench
from privbench_core.cli import app
from privbench_core.commands.bundles import show_error_bars
from privbench_core.errors import PublishError
from privbench_core.explain.error_bars import intervals_of
from privbench_core.pipeline import plan_for
from privbench_core.pipeline.rehearsal import make_replicates, rehearse
from privbench_core.publishing import (
    MANIFEST,
    README,
    Bundle,
    Distances,
    add_replicates,
    read_bundle,
    write_bundle,
)
from privbench_core.publishing.verdicts import JOIN, TWO_WAY, FidelityFigure
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.tables import Table
from privbench_core.spec.load import load_spec
from privbench_core.workload import Workload
from tests.conftest import Town

PERSONS = "SELECT COUNT(*) FROM person"
JOINED = "SELECT COUNT(*) FROM household JOIN person ON household.id = person.household_id WHERE rooms > 4"
MEAN = "SELECT AVG(age), SUM(age), COUNT(age) FROM person"


def made_by(epsilon: float) -> dict[str, Any]:
    """Return a receipt that says which plan a bundle was made by."""
    guarantee = {"add_or_remove_one_unit": {"epsilon": epsilon, "delta": 1e-9}}
    return {"guarantee": guarantee, "software": {"synthesizer": "privbench"}}


def with_persons(folder: Path, town: Town, numbers: list[int], distances: Distances | None = None) -> Bundle:
    """Write a bundle of the town, with replicates that have so many of its persons; persons were .3 off, joins .6."""
    figures = [FidelityFigure("person", *figure).receipt for figure in ((TWO_WAY, 0.3, 0.01), (JOIN, 0.6, 0.01))]
    receipt = {"fidelity_paid_for": {"person": figures}} if distances else {}
    bundle = read_bundle(write_bundle(folder / "bundle", town.schema, town.tables, receipt))
    replicates = [town.tables | {"person": town.tables["person"].slice(0, number)} for number in numbers]
    add_replicates(bundle, replicates, lambda: distances or {})
    return read_bundle(bundle.path)


def test_answers_of_a_close_model_are_covered(town: Town, town_spec: Path, tmp_path: Path) -> None:
    spec = load_spec(town_spec)
    synthetic = rehearse(spec, plan_for(spec, 100.0), town.tables)
    figures = [FidelityFigure("person", TWO_WAY, 0.9, 0.01).receipt, FidelityFigure("person", JOIN, 0.0, 1.0).receipt]
    receipt = {**made_by(100.0), "fidelity_paid_for": {"person": figures}}
    bundle = write_bundle(tmp_path / "bundle", spec.schema, synthetic, receipt)
    privbench.replicate(spec, bundle, 5)
    assert not spec.state.exists()
    assert "--error-bars" in (bundle / README).read_text(encoding="utf-8")
    workload = tmp_path / "queries.sql"
    workload.write_text(f"{PERSONS};\n{JOINED};\n{MEAN};\n", encoding="utf-8")
    found = privbench.error_bars(bundle, workload)
    assert found == privbench.error_bars(bundle, workload)
    assert 1 < (found.intervals[0].widened or 0) < 100  # the figure of joins is hidden by its noise
    age = town.tables["person"]["age"]
    rooms = dict(zip(*(town.tables["household"][name].to_pylist() for name in ("id", "rooms")), strict=True))
    joined = sum(rooms[home] > 4 for home in town.tables["person"]["household_id"].to_pylist())
    source = len(age), joined, pc.mean(age).as_py(), pc.sum(age).as_py(), len(age)
    for interval, true in zip(found.intervals, source, strict=True):
        assert interval.low <= true <= interval.high
        assert interval.low <= interval.answer <= interval.high
        assert interval.answers.startswith(("AVG", "SUM")) or interval.low == int(interval.low)
    assert [each.joins for each in privbench.error_bars(bundle).intervals] == [0, 0, 1]


def test_an_interval_is_a_factor_by_student_and_one_row(town: Town, tmp_path: Path) -> None:
    all_of_them = town.tables["person"].num_rows
    numbers = [all_of_them - 10, all_of_them - 20] * 4
    (found,) = intervals_of(with_persons(tmp_path, town, numbers), Workload.of([PERSONS])).intervals
    logs = [math.log((number + 1) / (all_of_them + 1)) for number in numbers]
    error = math.hypot(math.sqrt(sum(each**2 for each in logs) / 8), 1 / (all_of_them + 1))
    factor = math.exp(stats.t.ppf(0.975, 8) * error)
    assert (found.answer, found.joins, found.widened) == (all_of_them, 0, None)
    assert found.low == math.floor((all_of_them + 1) / factor - 1)
    assert found.high == math.ceil((all_of_them + 1) * factor - 1)


def test_errors_are_widened_by_the_distances_of_what_a_query_reads(town: Town, tmp_path: Path) -> None:
    bundle = with_persons(tmp_path, town, [100] * 5, {"person": {TWO_WAY: 0.2, JOIN: 0.2}})
    everyone = "SELECT COUNT(*) FROM household JOIN person ON household.id = person.household_id"
    found = intervals_of(bundle, Workload.of([PERSONS, everyone, "SELECT COUNT(*) FROM household"])).intervals
    assert found[0].widened == pytest.approx(1.5)
    assert found[2].widened is None
    rows = town.tables["person"].num_rows
    error = math.hypot(math.log(101 / (rows + 1)), 1 / (rows + 1))
    at_most = math.hypot(error, 3 * math.sqrt(0.6**2 - 0.2**2)) / error
    assert found[1].widened == pytest.approx(min(3.0, at_most))
    half = stats.t.ppf(0.975, 5) * math.hypot((found[1].widened or 0) * error, 0.5 * 0.6)
    assert found[1].high == math.ceil((rows + 1) * math.exp(half) - 1)


def test_errors_of_joins_are_widened_by_no_more_than_distances_add(town: Town, tmp_path: Path) -> None:
    bundle = with_persons(tmp_path, town, [20] * 5, {"person": {TWO_WAY: 0.29, JOIN: 0.1}})
    everyone = "SELECT COUNT(*) FROM household JOIN person ON household.id = person.household_id"
    (found,) = intervals_of(bundle, Workload.of([everyone])).intervals
    assert 1 < (found.widened or 0) < 6


def test_small_answers_have_intervals_in_rows(town: Town, tmp_path: Path) -> None:
    query = "SELECT id FROM person WHERE age > 60 AND age < 30"
    (found,) = intervals_of(with_persons(tmp_path, town, [50] * 10), Workload.of([query])).intervals
    assert (found.answers, found.answer, found.low) == ("rows", 0, 0)
    assert 1 <= found.high <= 20


def test_an_interval_reaches_to_the_answer_without_a_comparison_that_no_row_meets(town: Town, tmp_path: Path) -> None:
    """Where the bundle lacks a value, nobody knows how many rows of the source have it."""
    bundle = with_persons(tmp_path, town, [100] * 10)
    household = "FROM household JOIN person p ON household.id = p.household_id WHERE rooms > 4"
    queries = (
        f"SELECT COUNT(*) {household} AND p.age > 1000",
        f"SELECT COUNT(*) {household}",
        f"SELECT COUNT(*) {household} AND NOT p.age BETWEEN 1000 AND 2000",
        "SELECT SUM(age) FROM person WHERE age < 90 OR age IN (1000, 1001)",
    )
    unmet, met, negated, summed = intervals_of(bundle, Workload.of(queries)).intervals
    assert (unmet.answer, unmet.low, unmet.high) == (0, 0, met.answer)
    assert (unmet.unmet, met.unmet) == (True, False)
    assert (negated.answer, negated.low, negated.high) == (met.answer, 0, met.high)
    assert summed.high >= pc.sum(town.tables["person"]["age"]).as_py()


def test_answers_of_changing_sign_have_intervals_of_differences(town: Town, tmp_path: Path) -> None:
    query = "SELECT COUNT(*) - 90 FROM person"
    (found,) = intervals_of(with_persons(tmp_path, town, [80, 100] * 3), Workload.of([query])).intervals
    assert found.low < min(0, found.answer)
    assert found.high - found.answer == pytest.approx(found.answer - found.low)


def test_queries_without_error_bars_are_named_and_the_others_go_on(
    town: Town, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = with_persons(tmp_path, town, [100, 110, 90, 100, 100], {"person": {TWO_WAY: 0.2, JOIN: 0.2}})
    workload = tmp_path / "queries.sql"
    queries = (
        "SELECT (",
        "SELECT COUNT(*) FROM nobody",
        "SELECT MAX(age) FROM person",
        MEAN,
        PERSONS,
        f"{PERSONS} WHERE id = 7",
        f"{PERSONS} WHERE age > 1000",
    )
    workload.write_text(";\n".join(queries), encoding="utf-8")
    show_error_bars(bundle.path, workload, as_json=False)
    said = capsys.readouterr().out
    assert "Query 1 has no error bars: not understood as PostgreSQL" in said
    assert "Query 2 has no error bars: nobody: no such table" in said
    assert "Query 3 has no error bars: MIN and MAX depend on single rows" in said
    assert "Query 6 has no error bars: person.id: compares with a key or text that the source does not have" in said
    assert "Up to the answer without a comparison that no row of the bundle meets: queries 7" in said
    assert "AVG" in said
    show_error_bars(bundle.path, workload, as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert [each["query"] for each in data["intervals"]] == [4, 4, 4, 5, 7]
    assert (data["level"], data["replicates"], len(data["failed"])) == (0.95, 5, 4)


def test_a_bundle_without_replicates_says_who_can_add_them(town: Town, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle", town.schema, town.tables, {})
    with pytest.raises(PublishError, match="has no replicates"):
        privbench.error_bars(bundle)


def test_replicates_are_listed_checked_and_replaced(town: Town, tmp_path: Path) -> None:
    bundle = with_persons(tmp_path, town, [100] * 6)
    add_replicates(bundle, [town.tables] * 5, dict)
    bundle = read_bundle(bundle.path)
    assert len(bundle.manifest["replicates"]["tables"]) == 5
    assert not (bundle.path / "replicates/6").exists()
    assert (bundle.path / README).read_text(encoding="utf-8").count("## Error bars") == 1
    (bundle.path / "replicates/1/person.parquet").write_bytes(b"")
    with pytest.raises(PublishError, match="does not match its checksum"):
        read_bundle(bundle.path)


@pytest.mark.parametrize(
    ("receipt", "number", "refusal"),
    [
        ({}, 5, "was not made from this spec"),
        ({"sampling": {"scale": 2.0}}, 5, "not in the size of the source"),
        ({}, 4, "too few for error bars; make 5 or more"),
    ],
)
def test_what_gives_no_honest_error_bars_is_refused(
    receipt: dict[str, object], number: int, refusal: str, town: Town, town_spec: Path, tmp_path: Path
) -> None:
    bundle = write_bundle(tmp_path / "bundle", town.schema, town.tables, receipt and made_by(3.2) | receipt)
    before = (bundle / MANIFEST).read_bytes()
    done = CliRunner().invoke(app, ["replicate", str(town_spec), str(bundle), "--number", str(number)])
    assert done.exit_code == 1
    assert refusal in done.stderr
    assert (bundle / MANIFEST).read_bytes() == before


def test_nobody_can_choose_the_noise_of_replicates() -> None:
    given = {*signature(make_replicates).parameters, *signature(privbench.replicate).parameters}
    assert given == {"spec", "bundle", "number", "progress"}  # a seeded one must not get near rows that may be private


def test_answers_of_public_tables_are_exact(town: Town, tmp_path: Path) -> None:
    year = Table("year", (Column("n", ColumnType.INTEGER),), ("n",), public=True)
    schema = replace(town.schema, tables=(*town.schema.tables, year))
    tables = town.tables | {"year": pa.table({"n": [1999, 2000]})}
    bundle = read_bundle(write_bundle(tmp_path / "bundle", schema, tables, {}))
    add_replicates(bundle, [tables] * 5, dict)
    (found,) = intervals_of(read_bundle(bundle.path), Workload.of(["SELECT n FROM year"])).intervals
    assert (found.low, found.high, found.widened) == (2, 2, 1.0)
    assert not (bundle.path / "replicates/1/year.parquet").exists()
