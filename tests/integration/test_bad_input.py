"""Bad input gets one clear error and nothing lost: through the pipeline, and through the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from privbench_core.cli import app
from privbench_core.errors import (
    BudgetExhaustedError,
    PrivbenchError,
    SourceError,
    SpecError,
    UnsupportedBudgetError,
)
from privbench_core.pipeline.executor import run_spec
from privbench_core.pipeline.workspace import Workspace
from privbench_core.publishing import read_bundle
from privbench_core.spec.load import load_spec
from privbench_core.synthesizers.contract import StepKind
from tests.conftest import SPEC, build_town
from tests.helpers.planted import broken_expectations

Edit = Callable[[pa.Table], pa.Table]


def make(folder: Path, spec: str = SPEC, households: int = 300, **edits: Edit) -> Path:
    """The town as a folder, its rows and spec edited; the path of the spec."""
    tables = build_town(households).tables
    for name, rows in tables.items():
        pq.write_table(edits[name](rows) if name in edits else rows, folder / f"{name}.parquet")
    path = folder / "spec.yaml"
    path.write_text(spec, encoding="utf-8")
    return path


def replaced(rows: pa.Table, column: str, values: Any) -> pa.Table:
    """The rows with another column of the same name and type."""
    place = rows.column_names.index(column)
    if not isinstance(values, pa.Array):
        values = pa.array(values, rows.schema.field(column).type)
    return rows.set_column(place, column, values)


def changed(column: str, row: int, value: Any) -> Edit:
    """One value replaced."""

    def edit(rows: pa.Table) -> pa.Table:
        values = rows.column(column).to_pylist()
        values[row] = value
        return replaced(rows, column, values)

    return edit


def booked(path: Path) -> list[str]:
    """Steps in the ledger of a spec."""
    spec = load_spec(path)
    if not spec.state.exists():
        return []
    workspace = Workspace(spec)
    try:
        return [entry.step for entry in workspace.ledger.entries()]
    finally:
        workspace.close()


def run(path: Path, epsilon: float = 8.0, **how: Any) -> Any:
    spec = load_spec(path).accepting_noise
    return run_spec(spec, epsilon, out=path.parent / "out", undeclared_epsilon=True, **how)


def cli(path: Path, epsilon: float = 8.0) -> Any:
    arguments = ["run", str(path), "--accept-noise", "--undeclared-epsilon", "--epsilon", str(epsilon)]
    return CliRunner().invoke(app, [*arguments, "--out", str(path.parent / "out")])


def refused(path: Path, error: type[PrivbenchError], *words: str, epsilon: float = 8.0) -> PrivbenchError:
    """Both ways refuse with the same words, no traceback and nothing written or spent; returns the error."""
    with pytest.raises(error) as caught:
        run(path, epsilon)
    shown = cli(path, epsilon)
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert shown.stderr.startswith("privbench: ")
    assert "Traceback" not in shown.stderr
    for word in words:
        assert word in str(caught.value)
        assert word in shown.stderr
    assert not (path.parent / "out").exists()
    if error is not SpecError:
        assert booked(path) == []
    return caught.value


def works(path: Path, epsilon: float = 8.0) -> Any:
    """The whole pipeline runs, and its result keeps the schema."""
    result = run(path, epsilon)
    assert broken_expectations(result) == []
    return {name: read_bundle(path.parent / "out").table(name) for name in ("household", "person")}


# -- the spec --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("primary_key: id\n", "primary_key: idd\n", ["household.idd", "did you mean 'id'"]),
        ("references: household,", "references: houshold,", ["person.household_id", "did you mean 'household'"]),
        ("domain: {min: 1, max: 8}", "domain: {min: 1, max: many}", ["household.rooms", "many"]),
        ("delta: 1.0e-9", "delta: 2", ["delta"]),
        ("tables:", "synthesizer: {name: privbench, options: {bata: 5}}\ntables:", ["bata", "did you mean 'beta'"]),
        ("tables:", "synthesizer: {name: privbench, options: {gamma: 2}}\ntables:", ["gamma", "between 0 and 1"]),
        ("tables:", "synthesizer: privbanch\ntables:", ["privbanch", "did you mean 'privbench'"]),
    ],
)
def test_a_mistake_in_the_spec_is_named_with_a_hint(tmp_path, old, new, words):
    assert old in SPEC
    path = make(tmp_path, SPEC.replace(old, new, 1))
    refused(path, SpecError, *words)
    assert not list(tmp_path.glob("**/*.sqlite")) or booked(path) == []


def test_a_cycle_of_required_keys_is_refused(tmp_path):
    keys = "    foreign_keys:\n      - {columns: head_id, references: person, max_children: 1}\n"
    keys += "    columns:\n      id: integer\n      head_id: integer\n      region"
    path = make(tmp_path, SPEC.replace("    columns:\n      id: integer\n      region", keys, 1))
    refused(path, SpecError, "cycle", "household")


@pytest.mark.parametrize(
    ("name", "value"), [("epsilon", 0.0), ("epsilon", -1.0), *(("scale", x) for x in (0.0, -1.0, np.inf, np.nan))]
)
def test_a_number_that_is_not_positive_is_refused(tmp_path, name, value):
    path = make(tmp_path)
    with pytest.raises(SpecError, match=name):
        run(path, **{name: value})
    assert booked(path) == []


def test_a_list_of_values_cannot_be_learned_without_delta(tmp_path):
    path = make(tmp_path, SPEC.replace("domain: {values: [east, north, west]}", "domain: learn"))
    with pytest.raises(UnsupportedBudgetError, match=r"household\.region: learning a list of values"):
        run(path, delta=0.0)
    assert booked(path) == []


# -- the rows --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        (
            {"household": lambda rows: rows.rename_columns(["id", "region", "romms", "income"])},
            ["household.rooms", "did you mean 'romms'"],
        ),
        ({"household": changed("id", 5, 100)}, ["household.id", "duplicate values (primary key)"]),
        (
            {"person": changed("household_id", 0, 99_999)},
            ["person.household_id", "without a match in household(id)", "on_orphan"],
        ),
        ({"household": changed("rooms", 3, None)}, ["household.rooms", "NULL", "nullable: true"]),
        (
            {"household": lambda rows: replaced(rows, "rooms", pa.array([1.5] * rows.num_rows))},
            ["household.rooms", "integer"],
        ),
    ],
)
def test_rows_that_break_the_spec_are_refused_before_anything_is_spent(tmp_path, edits, words):
    error = refused(make(tmp_path, **edits), SourceError, *words)
    assert "99999" not in str(error)
    assert "99,999" not in str(error)


def test_several_broken_columns_come_in_one_error_and_counts_stay_private(tmp_path):
    path = make(tmp_path, household=changed("rooms", 3, None), person=changed("household_id", 0, 1))
    error = refused(path, SourceError, "household.rooms", "person.household_id")
    assert not any(character.isdigit() for character in str(error))
    assert error.private_detail is not None
    assert "1 of 300 rows" in error.private_detail


def test_orphans_may_be_dropped(tmp_path):
    spec = SPEC.replace("max_children: 4,", "max_children: 4, on_orphan: drop,")
    path = make(tmp_path, spec, person=changed("household_id", 0, 99_999))
    works(path)


KEYS_ALONE = "\n".join(line for line in SPEC.splitlines() if "age:" not in line and "works:" not in line)


@pytest.mark.parametrize(
    ("spec", "households", "persons", "epsilon"),
    [(SPEC, 0, 0, 8.0), (SPEC, 300, 0, 8.0), (KEYS_ALONE, 0, 0, 0.5), (SPEC, 1, 0, 0.8)],
)
def test_tables_of_no_row_or_one_work(tmp_path, spec, households, persons, epsilon):
    path = make(
        tmp_path, spec, household=lambda rows: rows.slice(0, households), person=lambda rows: rows.slice(0, persons)
    )
    made = works(path, epsilon)
    assert made["household"].num_rows >= 1  # how many rows there are is private, so the noise may add some
    assert households < 300 or made["person"].num_rows < made["household"].num_rows


@pytest.mark.parametrize(
    ("column", "old", "new"),
    [
        ("income", "{min: 0.0, max: 1000.0}", "{min: 0.0, max: 1000.0}"),
        ("income", "{min: 0.0, max: 1000.0}", "learn"),
        ("region", "domain: {values: [east, north, west]}", "domain: learn, nullable: true"),
    ],
)
def test_a_column_of_nothing_but_null_works(tmp_path, column, old, new):
    path = make(
        tmp_path, SPEC.replace(old, new), household=lambda rows: replaced(rows, column, pa.nulls(rows.num_rows))
    )
    made = works(path)["household"]
    assert made.column(column).null_count > 0.7 * made.num_rows


def odd_incomes(rows: pa.Table) -> pa.Table:
    """Infinities, NaN (which counts as NULL), numbers beyond the domain; the rest at 500."""
    values = np.full(rows.num_rows, 500.0)
    values[:1000] = np.repeat([np.inf, -np.inf, np.nan, 1e300, -1e300], 200)
    return replaced(rows, "income", values)


@pytest.mark.parametrize("domain", ["{min: 0.0, max: 1000.0}", "learn"])
def test_infinities_nan_and_extremes_are_clamped_and_counted(tmp_path, domain):
    path = make(tmp_path, SPEC.replace("{min: 0.0, max: 1000.0}", domain), 3000, household=odd_incomes)
    income = works(path)["household"].column("income")
    numbers = income.drop_null().to_numpy()
    assert np.isfinite(numbers).all()
    assert income.null_count == pytest.approx(200, abs=100)
    if domain != "learn":
        assert ((numbers >= 0) & (numbers <= 1000)).all()
        assert (numbers == 0).sum() == pytest.approx(400, abs=150)
        assert (numbers == 1000).sum() == pytest.approx(400, abs=150)


def test_nan_in_a_column_without_null_is_refused(tmp_path):
    spec = SPEC.replace("max: 1000.0}, nullable: true}", "max: 1000.0}}")
    refused(make(tmp_path, spec, 1000, household=odd_incomes), SourceError, "household.income", "NaN")


def test_values_outside_of_a_declared_domain_are_clamped_and_reported_under_noise(tmp_path):
    path = make(
        tmp_path, SPEC.replace("{min: 1, max: 8}", "{min: 3, max: 5}").replace("[east, north, west]", "[east, north]")
    )
    result = run(path, 16.0)
    assert broken_expectations(result) == []
    summary = result.releases["profile", "household"].artifact.data["summary"]
    clamped = next(figures for key, figures in summary.items() if "clamped" in key)
    exact = build_town(300).tables["household"]
    outside = sum(value not in {3, 4, 5} for value in exact.column("rooms").to_pylist())
    assert clamped["household.rooms"] == pytest.approx(outside, abs=40)
    assert "household.region" in clamped


def test_children_far_above_the_bound_are_cut_off(tmp_path):
    crowd = pa.table(
        {
            "id": pa.array(np.arange(20_000) + 10_000_000),
            "household_id": pa.array(np.full(20_000, 100)),
            "age": pa.array(np.full(20_000, 33)),
            "works": pa.array([True] * 20_000),
        }
    )
    path = make(tmp_path, person=lambda rows: pa.concat_tables([rows, crowd]).combine_chunks())
    made = works(path)
    assert made["person"].num_rows < 4 * made["household"].num_rows
    assert np.bincount(made["person"].column("household_id").to_numpy()).max() <= 4


# -- money and time --------------------------------------------------------------------------------------


def test_a_budget_that_is_used_up_is_refused(tmp_path):
    path = make(
        tmp_path, SPEC.replace("lifetime: {epsilon: 20, delta: 1.0e-8}", "lifetime: {epsilon: 3.2, delta: 1.0e-9}")
    )
    run(path, 3.2)
    before = booked(path)
    with pytest.raises(BudgetExhaustedError, match=r"left.*Publish what was released before"):
        run(path, 0.8)
    assert booked(path) == before
    shown = cli(path, 0.8)
    assert (shown.exit_code, "Traceback" in shown.stderr) == (1, False)
    assert "left" in shown.stderr


def test_a_run_sees_one_source_even_if_it_changes_on_the_way(tmp_path):
    """The model step works on the rows that were profiled; the next run notices the change and pays for new ones."""
    path = make(tmp_path, households=1000)
    other = build_town(2000, seed=9).tables

    def change(_number: int, _steps: int, step: Any) -> None:
        if step.kind is StepKind.MODEL:
            for name, rows in other.items():
                pq.write_table(rows, tmp_path / f"{name}.parquet")

    first = run(path, progress=change)
    assert first.releases["sample", "household"].artifact.table.num_rows == pytest.approx(1000, rel=0.1)
    second = run(path)
    assert second.paid == pytest.approx(first.paid)
    assert second.releases["sample", "household"].artifact.table.num_rows == pytest.approx(2000, rel=0.1)


def run_until_the_model(path: Path) -> None:
    """A run that is killed when nothing but its profiles is there."""

    def kill(_number: int, _steps: int, step: Any) -> None:
        if step.kind is StepKind.MODEL:
            raise KeyError

    with pytest.raises(KeyError):
        run(path, progress=kill)


def test_a_source_that_changes_between_a_stored_profile_and_the_model_is_not_seen_by_the_run(tmp_path):
    """The profile is taken from the store by its fingerprint; the model then sees the rows that were fingerprinted."""
    path = make(tmp_path)
    run_until_the_model(path)
    before = booked(path)

    def change(_number: int, _steps: int, step: Any) -> None:
        if step.kind is StepKind.MODEL:
            pq.write_table(
                changed("rooms", 0, 8)(changed("rooms", 1, 8)(build_town(300).tables["household"])),
                tmp_path / "household.parquet",
            )

    run(path, progress=change)
    assert booked(path).count("profile/household") == before.count("profile/household") == 1
    run(path)
    assert booked(path).count("profile/household") == 2


def test_a_source_that_changes_after_a_kill_is_profiled_again(tmp_path):
    path = make(tmp_path)
    run_until_the_model(path)
    pq.write_table(build_town(320, seed=3).tables["household"], tmp_path / "household.parquet")
    pq.write_table(build_town(320, seed=3).tables["person"], tmp_path / "person.parquet")
    result = run(path)
    assert result.releases["profile", "household"].paid is not None
    assert booked(path).count("profile/household") == 2
