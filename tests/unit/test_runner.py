"""What a run takes from the store, and what it has to pay for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from privbench_core.pipeline import plan_for
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Price
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Step


@contextmanager
def opened(spec: Spec) -> Iterator[tuple[Runner, Step]]:
    """A runner of the spec's plan, and its first step, which reads rows."""
    with closing(Workspace(spec)) as workspace:
        runner = Runner(workspace, plan_for(spec, 0.8), Run("x"))
        yield runner, runner.plan.steps[0]


def test_what_the_ledger_does_not_know_is_not_taken_from_the_store(town_spec: Path) -> None:
    """Stored bytes may be of another ledger, or somebody's: without an entry nobody has paid for them."""
    with opened(load_spec(town_spec)) as (runner, step):
        key, stored = runner.release_key(step, {}), Artifact({"planted": True}).to_bytes()
        runner.workspace.releases.put(key, stored)
        assert not runner.released(step, {})
        assert step in runner.unpaid()
        release = runner.execute(step, {})
        assert release.paid == step.price
        assert not release.reused
        assert "planted" not in release.artifact.data
        assert [entry.step for entry in runner.workspace.ledger.entries()] == ["/".join(step.key)]
        assert runner.released(step, {})
        assert runner.execute(step, {}).reused


def test_what_was_reserved_and_not_released_is_paid_for_again(town_spec: Path) -> None:
    with opened(load_spec(town_spec)) as (runner, step):
        key, stored = runner.release_key(step, {}), Artifact({}).to_bytes()
        runner.workspace.ledger.reserve(key, "/".join(step.key), "x", step.price)
        runner.workspace.releases.put(key, stored)
        assert not runner.released(step, {})
        assert step in runner.unpaid()


def test_a_cohort_pays_for_itself(town_spec: Path) -> None:
    spec = load_spec(town_spec)
    for cohort in ("2026", "2027"):
        with opened(replace(spec, cohort=cohort)) as (runner, step):
            assert runner.execute(step, {}).paid == step.price, "what another cohort bought is not free"
            assert [entry.price for entry in runner.workspace.ledger.entries(cohort)] == [step.price]
            assert runner.workspace.ledger.entries("") == []


def test_steps_are_handed_public_tables_only(town_spec: Path) -> None:
    with opened(load_spec(town_spec)) as (runner, _):
        assert runner.snapshot.public == {}
        assert set(runner.snapshot.tables) == {"household", "person"}


def _released(spec: Spec, change: Callable[[Step], Step] = lambda step: step, made: str = "made") -> str:
    """The release key of a step that reads persons and an input, where either has changed."""
    with opened(spec) as (runner, _):
        step = change(next(step for step in runner.plan.steps if step.inputs and "person" in step.reads))
        return runner.release_key(step, dict.fromkeys(step.inputs, made))


CHANGES: dict[str, Callable[[Step], Step]] = {
    "price": lambda step: replace(step, price=Price(step.price.measure, 2 * step.price.amount)),
    "δ": lambda step: replace(step, price=step.price.with_delta(1e-12)),
    "version": lambda step: replace(step, version=f"{step.version} "),
    "parameters": lambda step: replace(step, parameters={**step.parameters, "more": 1}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_release_is_of_one_step(town_spec: Path, what: str) -> None:
    spec = load_spec(town_spec)
    assert _released(spec) == _released(spec)
    assert _released(spec, CHANGES[what]) != _released(spec)


def test_a_release_is_of_its_inputs_rows_and_cohort(town_spec: Path) -> None:
    spec = load_spec(town_spec)
    before = _released(spec)
    assert _released(spec, made="other") != before
    assert _released(replace(spec, cohort="2027")) != before
    file = town_spec.parent / "person.parquet"
    pq.write_table(pq.read_table(file).slice(1), file)
    assert _released(spec) != before, "the rows have changed"
