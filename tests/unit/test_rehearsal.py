"""Rehearsals: the plan on other rows, in memory, spending nothing and leaving nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privbench_core.errors import InternalError
from privbench_core.pipeline import plan_for
from privbench_core.pipeline.rehearsal import rehearsal_of, rehearse
from privbench_core.publishing import MANIFEST, write_bundle
from privbench_core.spec.load import load_spec
from privbench_core.synthesizers.contract import Plan, StepKind
from tests.conftest import Town

PROMISE = {
    "guarantee": {"add_or_remove_one_unit": {"epsilon": 50.0, "delta": 1e-9}},
    "software": {"synthesizer": "privbench"},
}


def test_a_rehearsal_follows_the_rows_it_is_given_and_leaves_no_trace(town: Town, town_spec: Path) -> None:
    spec = load_spec(town_spec)
    plan = plan_for(spec, 200.0)
    half = {"household": town.tables["household"].slice(0, 30), "person": town.tables["person"].slice(0, 40)}
    whole, part = rehearse(spec, plan, town.tables), rehearse(spec, plan, half)
    assert set(whole) == {"household", "person"}
    assert whole["household"].num_rows == pytest.approx(60, abs=6)
    assert part["household"].num_rows == pytest.approx(30, abs=6)
    assert whole["person"].column_names == town.tables["person"].column_names
    assert not spec.state.exists()


def test_the_plan_of_a_bundle_is_found_in_its_manifest(town: Town, town_spec: Path, tmp_path: Path) -> None:
    spec = load_spec(town_spec)
    run = rehearsal_of(spec, write_bundle(tmp_path / "a", spec.schema, town.tables, PROMISE))
    assert run is not None
    assert run(town.tables)["household"].num_rows > 0


def test_a_bundle_whose_plan_is_not_known_has_no_rehearsal(town: Town, town_spec: Path, tmp_path: Path) -> None:
    spec = load_spec(town_spec)
    assert rehearsal_of(spec, tmp_path) is None
    for receipt in ({}, PROMISE | {"software": {}}, PROMISE | {"software": {"synthesizer": "gone"}}):
        bundle = write_bundle(tmp_path / "a", spec.schema, town.tables, receipt)
        assert json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))["privacy"] == receipt
        assert rehearsal_of(spec, bundle) is None


def test_a_plan_that_samples_nothing_is_a_bug(town: Town, town_spec: Path) -> None:
    spec = load_spec(town_spec)
    plan = plan_for(spec, 1.0)
    steps = tuple(step for step in plan.steps if step.kind in {StepKind.COUNT, StepKind.PROFILE})
    with pytest.raises(InternalError, match="no sample step"):
        rehearse(spec, Plan(plan.synthesizer, plan.budget, steps), town.tables)
