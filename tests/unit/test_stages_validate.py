from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privbench_core.columns.intervals import OrderedCodec
from privbench_core.errors import NoiseOnlyError, ValidationError
from privbench_core.pipeline.executor import run_spec
from privbench_core.profiles.profile import Profile
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import FidelityPolicy
from tests.helpers.fake_synthesizer import FakeSynthesizer
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import NoNoise, integer, place_of, planted_pair, rows_of


def test_figures_are_small_for_a_good_model(tmp_path: Path):
    schema, tables = planted_pair(1500)
    result = place_of(tmp_path, schema, tables).run_with(NoNoise(), 1e6)
    metrics = result.releases["fidelity", "child"].artifact.data["metrics"]
    assert [metric["metric"] for metric in metrics] == ["one-way TVD", "two-way TVD", "join TVD"]
    assert all(metric["value"] < 0.05 for metric in metrics)
    assert [metric["shuffled"] is None for metric in metrics] == [True, False, False]
    assert all(metric["shuffled"] > 3 * metric["value"] for metric in metrics[1:])  # b follows a, and x follows b
    assert result.warnings == ()


def test_shuffled_columns_are_as_far_as_a_model_without_joints(tmp_path: Path):
    """Leaves of one column each are independent, so both distances are of the same kind of database."""
    schema, tables = planted_pair(3000)
    independent = {"beta": 10**9, "gamma1": 0.01, "gamma2": 0.01, "iterations": 1}
    here = place_of(tmp_path, schema, tables, options=independent, synthesizer="privspn")
    metrics = here.run_with(NoNoise(), 1e6).releases["fidelity", "parent"].artifact.data["metrics"]
    two_way = next(metric for metric in metrics if metric["metric"] == "two-way TVD")
    assert two_way["value"] == pytest.approx(two_way["shuffled"], abs=0.02)


def test_a_measurement_that_is_all_noise_is_never_published_as_a_distance_of_nothing(tmp_path: Path):
    schema, tables = planted_pair(30)
    here = place_of(tmp_path, schema, tables)
    out = here.run_with(SeededNoise(1), 0.05).out
    stated = json.loads((out / "MANIFEST.json").read_text(encoding="utf-8"))["privacy"]["fidelity_paid_for"]
    figures = [figure for table in stated.values() for figure in table]
    assert len(figures) == 5
    noisy = [figure for figure in figures if figure["value"] is None]
    assert noisy
    assert all(figure["at_most"] >= figure["plus_minus"] > 0 and "all noise" in figure["text"] for figure in noisy)
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert "## What to trust" in readme
    assert all(f"| ≤ {figure['at_most']:.2f} |" in readme for figure in noisy)
    assert "| 0.00 ±" not in readme


def test_a_table_that_is_too_far_warns_and_blocks_where_the_spec_says_so(tmp_path: Path):
    schema, tables = planted_pair(3000)
    few_splits = {"beta": 10**9, "gamma1": 0.01, "gamma2": 0.01, "iterations": 1}
    here = place_of(tmp_path, schema, tables, options=few_splits, synthesizer="privspn")
    here = replace(here, spec=replace(here.spec, fidelity=FidelityPolicy(to_shuffled=0.2)))
    result = here.run(80.0)
    assert [line.partition(":")[0] for line in result.warnings] == ["child"]
    assert "far: pairs of columns are no closer than 0.2 times shuffled columns" in result.warnings[0]
    manifest = json.loads((here.out / "MANIFEST.json").read_text(encoding="utf-8"))
    assert manifest["privacy"]["fidelity_verdicts"] == [verdict.to_dict() for verdict in result.verdicts]
    readme = (here.out / "README.md").read_text(encoding="utf-8")
    assert all(f"| {verdict.grade} | {verdict.reason} |" in readme for verdict in result.verdicts)
    spent = here.spent
    strict = replace(here, spec=replace(here.spec, fidelity=FidelityPolicy(block=True, to_shuffled=0.2)))
    with pytest.raises(ValidationError, match="fidelity blocks: child: far: pairs of columns are no closer"):
        strict.run(80.0)
    assert replace(here, spec=replace(here.spec, fidelity=FidelityPolicy())).run(80.0).warnings == ()
    assert here.spent == spent


def test_a_run_stops_before_it_buys_noise_and_a_yes_goes_on(tmp_path: Path):
    schema, tables = planted_pair(3)
    here = place_of(tmp_path, schema, tables)
    with pytest.raises(
        NoiseOnlyError, match=r"(?s)parent: \d+ ± .* rows, and noise hides up to \d+\. .*--accept-noise"
    ):
        here.run(0.1, accept_noise=False)
    assert 0 < here.spent < 0.1 * here.plan_total(0.1)
    assert not here.out.exists()
    before = here.spent
    result = here.run(0.1)
    assert here.spent == pytest.approx(before + result.paid)
    assert here.spent == pytest.approx(here.plan_total(0.1))
    assert any(line.startswith("parent: all noise: ") for line in result.warnings)
    said_in_spec = replace(here.spec, fidelity=FidelityPolicy(accept_noise=True))
    assert replace(here, spec=said_in_spec).run(0.1, accept_noise=False).paid == 0


def test_plenty_of_rows_are_bought_without_a_question(tmp_path: Path):
    schema, tables = planted_pair(800)
    result = place_of(tmp_path, schema, tables).run(3.2, accept_noise=False)
    assert not any("all noise" in line for line in result.warnings)


def test_nothing_is_published_if_one_expectation_fails(town_spec: Path, fake: FakeSynthesizer):
    fake.fails = {"person"}
    out = town_spec.parent / "out"
    with pytest.raises(ValidationError, match=r"nothing was published: 1 expectations do not hold:\nperson: "):
        run_spec(load_spec(town_spec), 0.8, out=out)
    assert ("publish", "bundle") not in fake.runs
    assert not out.exists()


def test_clamped_values_do_not_count_as_a_distance(tmp_path: Path):
    """Half of the values lie beyond the declared range; they are published at its ends, where they belong."""
    table = Table("t", (integer("id"), integer("x", 10, 20), Column("s", ColumnType.TEXT, max_length=3)), ("id",))
    x = np.tile([-5, 12, 15, 99], 300)
    rows = rows_of(table, id=np.arange(1200), x=x, s=np.where(x > 50, "longer than three", "ab"))
    here = place_of(tmp_path, Schema("s", (table,), "t"), {"t": rows})
    metrics = here.run_with(NoNoise(), 1e6).releases["fidelity", "t"].artifact.data["metrics"]
    assert all(metric["value"] < 0.01 for metric in metrics)


def test_values_beyond_a_learned_range_count_as_a_distance(tmp_path: Path):
    """Noise hid where a third of the rows are; what is published for them are values of the range that was found."""
    rng = np.random.default_rng(0)
    columns = tuple(Column(f"x{i}", ColumnType.INTEGER, Learn()) for i in range(6))
    table = Table("t", (integer("id"), *columns), ("id",))
    spread = np.where(rng.random(3000) < 2 / 3, 5, 2 ** rng.uniform(3, 30, 3000)).astype(int)
    rows = rows_of(table, id=np.arange(3000), **{column.name: spread for column in columns})
    here = place_of(tmp_path, Schema("s", (table,), "t"), {"t": rows})
    run = here.run_with(SeededNoise(1), 0.15)
    profile = Profile.from_dict(run.releases["profile", "t"].artifact.data["profile"])
    codecs = [each.codec for each in profile.discretizers.values() if isinstance(each.codec, OrderedCodec)]
    beyond = [float((spread // codec.grid.step > codec.last).mean()) for codec in codecs]
    assert len(beyond) == len(columns)
    assert np.mean(beyond) > 0.2
    figures = {figure["metric"]: figure for figure in run.releases["fidelity", "t"].artifact.data["metrics"]}
    one_way = figures["one-way TVD"]
    assert one_way["value"] + 3 * one_way["noise"] > np.mean(beyond)
