"""What every installed synthesizer must keep: parametrised over the registry."""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privbench_core.errors import (
    BudgetExhaustedError,
    InternalError,
    PublishError,
    ReleaseError,
    SpecError,
    UnsupportedBudgetError,
)
from privbench_core.pipeline import plan_for
from privbench_core.pipeline.executor import RunResult
from privbench_core.pipeline.workspace import ReleaseStore, Workspace
from privbench_core.privacy.budget import Budget
from privbench_core.publishing import read_bundle
from privbench_core.schema.tables import Schema
from privbench_core.synthesizers.contract import Plan, StepKind, load_synthesizer, names
from privbench_core.synthesizers.steps import publish
from tests.conftest import build_town
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import Place, broken_expectations, place_of, samples_of

EPSILON = 8.0
NAMES = names() or ["privbench"]  # not installed: fail and say so, rather than test nothing
DELTAS = [0.0, 1e-9]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# What goes wrong around a run is the pipeline's affair, not the synthesizer's: `make slow` has the other ones.
@pytest.fixture(params=[NAMES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in NAMES[1:])])
def one(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def town() -> tuple[Schema, dict[str, pa.Table]]:
    made = build_town(600)
    return made.schema, made.tables


def place(folder: Path, name: str, *, delta: float = 1e-9, lifetime: float = 100.0, **options: Any) -> Place:
    return place_of(folder, *town(), delta=delta, lifetime=lifetime, options=options, synthesizer=name)


@cache
def supported(name: str) -> list[float]:
    """The δ of the budgets that a synthesizer has a form for."""
    kept = []
    for delta in DELTAS:
        with contextlib.suppress(UnsupportedBudgetError):
            load_synthesizer(name).plan(town()[0], Budget(EPSILON, delta), {})
            kept.append(delta)
    return kept


def contents(out: Path) -> dict[str, str]:
    """Checksums of all files of a bundle."""
    files = [path for path in sorted(out.rglob("*")) if path.is_file()]
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


class KilledError(Exception):
    """The process is killed here."""


def stop_at(kind: StepKind) -> Any:
    """A progress callback that kills the run before the first step of a kind."""

    def progress(_number: int, _steps: int, step: Any) -> None:
        if step.kind is kind:
            raise KilledError

    return progress


# -- plans -----------------------------------------------------------------------------------------------


def test_a_budget_kind_is_supported_or_refused_in_plain_words(name):
    assert 1e-9 in supported(name)
    for delta in set(DELTAS) - set(supported(name)):
        with pytest.raises(UnsupportedBudgetError, match="delta"):
            load_synthesizer(name).plan(town()[0], Budget(EPSILON, delta), {})


def test_a_plan_needs_no_source(name, tmp_path):
    spec = replace(place(tmp_path, name).spec, source=str(tmp_path / "nowhere"))
    plan = plan_for(spec, EPSILON)
    assert plan.synthesizer == name
    assert not spec.state.exists()  # nor does it begin a ledger


@pytest.mark.parametrize("epsilon", [1e-3, 0.8, 100.0])
def test_the_prices_of_a_plan_fit_its_budget(name, epsilon):
    for delta in supported(name):
        budget = Budget(epsilon, delta)
        plan = load_synthesizer(name).plan(town()[0], budget, {})
        total = budget.total()
        assert {step.price.measure for step in plan.steps} == {total.measure}
        assert sum(step.price.amount for step in plan.steps) <= total.amount * (1 + 1e-9)
        assert sum(step.price.delta for step in plan.steps) <= total.delta * (1 + 1e-9)
        assert all((step.price.amount > 0) == bool(step.reads) for step in plan.steps)


def shape(plan: Plan) -> list[Any]:
    return [(s.key, s.kind, s.inputs, s.reads, s.price, dict(s.parameters), s.version, s.depends) for s in plan.steps]


def test_a_plan_is_the_same_every_time(name):
    first, again = (load_synthesizer(name).plan(town()[0], Budget(EPSILON, 1e-9), {}) for _ in range(2))
    assert shape(first) == shape(again)


def test_a_plan_samples_and_validates_every_table_for_nothing_and_publishes_last(name):
    plan = load_synthesizer(name).plan(town()[0], Budget(EPSILON, 1e-9), {})
    keys = [step.key for step in plan.steps]
    assert len(set(keys)) == len(keys)
    by_kind = Counter(step.kind for step in plan.steps)
    assert by_kind[StepKind.PUBLISH] == 1
    assert plan.steps[-1].kind is StepKind.PUBLISH
    for kind in (StepKind.SAMPLE, StepKind.VALIDATE):
        assert {step.table for step in plan.steps if step.kind is kind} == {"household", "person"}
    for step in plan.steps:
        if step.kind in {StepKind.SAMPLE, StepKind.VALIDATE, StepKind.PUBLISH}:
            assert not step.reads
        assert set(step.depends) <= {"seed", "scale"}
        if step.reads:
            assert not step.depends, f"{step.key}: another seed or scale would be paid for again"


def test_an_unknown_option_is_named_with_a_hint(name):
    with pytest.raises(SpecError, match=r"zzgamma: unknown; (did you mean|known:)"):
        load_synthesizer(name).plan(town()[0], Budget(EPSILON, 1e-9), {"zzgamma": 1})


# -- runs ------------------------------------------------------------------------------------------------


def budgets() -> list[Any]:
    """Each synthesizer with each δ that it supports: of the pure budgets, one in every run."""
    pairs = [(name, delta) for name in NAMES for delta in supported(name)]
    often = {(NAMES[0], 0.0), *((name, 1e-9) for name in NAMES)}
    return [pytest.param(pair, id=str(pair), marks=[] if pair in often else [pytest.mark.slow]) for pair in pairs]


@pytest.fixture(scope="module", params=budgets())
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, RunResult]:
    """A finished run of each synthesizer under each kind of budget that it supports."""
    name, delta = request.param
    here = place(tmp_path_factory.mktemp("contract"), name, delta=delta)
    return here, here.run(EPSILON)


def test_a_run_pays_what_was_planned_and_each_step_stays_within_its_price(done):
    here, result = done
    paid = [(step.key, step.price) for step in result.plan.steps if step.reads]
    assert result.paid == pytest.approx(sum(price.amount for _, price in paid))
    workspace = Workspace(here.spec)
    try:
        entries = workspace.ledger.entries()
        assert [(entry.step, entry.price) for entry in entries] == [("/".join(key), price) for key, price in paid]
        assert {entry.state for entry in entries} == {"released"}
        for entry in entries:
            charges = workspace.ledger.charges(entry.id)
            assert charges, f"{entry.step} paid for nothing"
            told = [(label.split("/"), amount) for label, amount in charges]
            assert cost_of(told) <= entry.price.amount * (1 + 1e-9)
    finally:
        workspace.close()


def cost_of(charges: list[tuple[list[str], float]]) -> float:
    """What charges come to: all there is to pay, but of the parts of a split (numbers in labels) only the dearest."""
    parts: dict[str, list[tuple[list[str], float]]] = {}
    cost = 0.0
    for label, amount in charges:
        number = next((place for place, word in enumerate(label) if word.isdecimal()), None)
        if number is None:
            cost += amount
        else:
            parts.setdefault(label[number], []).append((label[number + 1 :], amount))
    return cost + max((cost_of(part) for part in parts.values()), default=0.0)


def test_the_result_keeps_the_schema(done):
    here, result = done
    assert broken_expectations(result) == []
    made = read_bundle(here.out)
    for table in here.spec.schema.tables:
        rows = made.table(table.name)
        assert rows.column_names == [column.name for column in table.columns]
        assert rows.to_pydict() == samples_of(result)[table.name].to_pydict()
    assert made.table("household").num_rows == pytest.approx(600, rel=0.2)


def test_a_second_run_pays_nothing_and_writes_the_same_bundle(done):
    here, _ = done
    before, spent = contents(here.out), here.spent
    again = here.run(EPSILON)
    assert again.paid == 0
    assert here.spent == spent
    assert all(release.reused for key, release in again.releases.items() if key[0] != "publish")
    assert contents(here.out) == before


@pytest.mark.parametrize(
    "how", [{"seed": 1}, pytest.param({"scale": 0.5}, marks=pytest.mark.slow), {"scale": 3.0, "seed": 2}], ids=str
)
def test_another_sample_costs_nothing_and_keeps_the_schema(done, how):
    here, first = done
    spent = here.spent
    result = here.run(EPSILON, **how)
    assert (result.paid, here.spent) == (0, spent)
    assert broken_expectations(result) == []
    made, before = samples_of(result), samples_of(first)
    for table in here.spec.schema.private_tables:
        assert not made[table.name].equals(before[table.name])
        expected = before[table.name].num_rows * how.get("scale", 1.0)
        assert made[table.name].num_rows == pytest.approx(expected, rel=0.15)


def test_sampling_is_determined_by_the_releases_and_the_seed(done):
    """With the free results thrown away, the same models give the same bytes."""
    here, first = done
    workspace = Workspace(here.spec)
    for key, release in first.releases.items():
        if not first.plan.step(key).reads:
            workspace.releases.path(release.key).unlink(missing_ok=True)
    workspace.close()
    again = here.run(EPSILON)
    assert again.paid == 0
    for key, release in first.releases.items():
        if key[0] != "publish":
            assert again.releases[key].digest == release.digest


def test_the_receipt_says_what_was_spent(done):
    here, result = done
    receipt = read_bundle(here.out).manifest["privacy"]
    budget = result.plan.budget
    assert receipt["guarantee"]["add_or_remove_one_unit"] == {"epsilon": EPSILON, "delta": budget.delta}
    assert receipt["guarantee"]["replace_one_unit"]["epsilon"] == 2 * EPSILON
    assert ("gaussian_dp" in receipt["guarantee"]) == (budget.delta > 0)
    assert sum(entry["amount"] for entry in receipt["spend"]) == pytest.approx(result.paid or here.spent)


# -- interruptions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [StepKind.SAMPLE, StepKind.VALIDATE, StepKind.PUBLISH])
def test_a_run_that_is_killed_between_steps_resumes_without_paying_twice(one, kind, tmp_path):
    here = place(tmp_path, one)
    with pytest.raises(KilledError):
        here.run(EPSILON, progress=stop_at(kind))
    assert not here.out.exists()
    result = here.run(EPSILON)
    planned = sum(step.price.amount for step in result.plan.steps)
    assert here.spent == pytest.approx(planned)
    assert here.out.exists()


def test_every_paid_step_survives_a_kill_right_after_it(one, tmp_path):
    here = place(tmp_path, one)
    plan = plan_for(here.spec, EPSILON)

    def kill_before(wanted: int) -> Any:
        def progress(number: int, _steps: int, _step: Any) -> None:
            if number == wanted:
                raise KilledError

        return progress

    for number, step in enumerate(plan.steps, start=1):
        if step.reads:
            with pytest.raises(KilledError):
                here.run(EPSILON, progress=kill_before(number + 1))
    steps = [step for step, _ in here.booked]
    assert steps == ["/".join(step.key) for step in plan.steps if step.reads]


def test_a_step_that_dies_after_its_look_counts_as_spent_and_alone_is_paid_again(one, tmp_path, monkeypatch):
    here = place(tmp_path, one)
    put = ReleaseStore.put

    def full_disk(store: ReleaseStore, key: str, stored: bytes) -> str:
        if len(here.booked) == 2:  # the profile of the second table: a step that looks, after others that are kept
            raise ReleaseError("the result of a step could not be stored: No space left on device")
        return put(store, key, stored)

    monkeypatch.setattr(ReleaseStore, "put", full_disk)
    with pytest.raises(ReleaseError, match="could not be stored"):
        here.run(EPSILON)
    lost = here.booked[-1]
    monkeypatch.undo()
    result = here.run(EPSILON)
    planned = Counter("/".join(step.key) for step in result.plan.steps if step.reads)
    assert Counter(step for step, _ in here.booked) == planned + Counter([lost[0]])


def test_a_changed_source_is_paid_for_again_where_it_changed(name, tmp_path):
    here = place(tmp_path, name)
    here.run(EPSILON)
    before = Counter(step for step, _ in here.booked)
    person = town()[1]["person"]
    ages = person.column("age").to_numpy().copy()
    ages[0] = 110 - ages[0]
    here.write({"person": person.set_column(2, "age", pa.array(ages))})
    result = here.run(EPSILON)
    again = Counter(step for step, _ in here.booked) - before
    assert result.paid > 0
    bought = {key for key, release in result.releases.items() if release.paid is not None}
    assert {"/".join(key) for key in bought} == set(again)
    assert {step.key for step in result.plan.steps if "person" in step.reads} <= bought


def test_the_same_rows_in_another_order_or_file_are_not_paid_for_again(one, tmp_path):
    here = place(tmp_path, one)
    here.run(EPSILON)
    order = pa.array(np.random.default_rng(0).permutation(town()[1]["person"].num_rows))
    pq.write_table(town()[1]["person"].take(order), Path(here.spec.source) / "person.parquet", compression="gzip")
    assert here.run(EPSILON).paid == 0


def test_a_budget_that_cannot_pay_is_refused_before_anything_is_looked_at(name, tmp_path):
    here = place(tmp_path, name, lifetime=1e-6)
    with pytest.raises(BudgetExhaustedError, match="left"):
        here.run(EPSILON)
    assert here.booked == []
    assert not here.out.exists()


def test_an_exhausted_budget_still_publishes_what_was_released(one, tmp_path):
    here = place(tmp_path, one, lifetime=EPSILON * 1.01)
    here.run(EPSILON)
    with pytest.raises(BudgetExhaustedError):
        here.run(EPSILON / 2)
    assert here.run(EPSILON, seed=5).paid == 0


def test_noise_that_can_be_foretold_is_refused_before_anything_is_paid(name, tmp_path):
    here = place(tmp_path, name)
    with pytest.raises(InternalError, match="only OpenDP noise"):
        here.run(EPSILON, noise=SeededNoise(0))
    assert here.booked == []


def test_a_full_disk_leaves_no_partial_bundle_and_the_old_one_as_it_was(one, tmp_path, monkeypatch):
    here = place(tmp_path, one)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    message = "could not be written: No space left on device; nothing was changed"
    monkeypatch.setattr(publish, "write_table", full)
    with pytest.raises(PublishError, match=message):
        here.run(EPSILON)
    assert {path.name for path in here.folder.iterdir()} == {"rows", "spec.yaml", "state"}
    monkeypatch.undo()
    spent = here.spent
    here.run(EPSILON)
    before = contents(here.out)
    monkeypatch.setattr(publish, "write_table", full)
    with pytest.raises(PublishError, match=message):
        here.run(EPSILON, seed=9)
    assert contents(here.out) == before
    assert here.spent == spent


def test_a_damaged_release_is_refused_if_it_was_paid_for_and_made_again_if_not(one, tmp_path):
    here = place(tmp_path, one)
    result = here.run(EPSILON)
    before, spent = contents(here.out), here.spent
    workspace = Workspace(here.spec)
    paid = next(step.key for step in result.plan.steps if step.reads)
    free = next(step.key for step in result.plan.steps if step.kind is StepKind.SAMPLE)
    for key in (paid, free):
        path = workspace.releases.path(result.releases[key].key)
        stored = path.read_bytes()
        for damaged in (stored[:-1], stored[:-9] + bytes([stored[-9] ^ 1]) + stored[-8:], b""):
            path.write_bytes(damaged)
            if key == paid:
                with pytest.raises(ReleaseError, match="damaged"):
                    here.run(EPSILON)
            else:
                here.run(EPSILON)
                assert path.read_bytes() == stored
        path.write_bytes(stored)
    workspace.close()
    assert here.run(EPSILON).paid == 0
    assert (contents(here.out), here.spent) == (before, spent)
