"""Two runs of one database at once: what one has still to buy the other cannot take, and nobody waits for the dead."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from privbench_core.errors import BudgetExhaustedError
from privbench_core.pipeline import plan_for, plans_for
from privbench_core.pipeline.executor import RunResult, held, refresh_release, run_spec
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.status import staleness
from privbench_core.pipeline.workspace import Workspace, open_ledger
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from tests.helpers.fake_synthesizer import FakeSynthesizer
from tests.helpers.orchestrated import Orchestrated, errors

MODEL = ("model", "household")


@pytest.fixture
def spec(town_spec: Path) -> Spec:
    """A lifetime of ε = 1, pure."""
    text = town_spec.read_text(encoding="utf-8").replace("delta: 1.0e-9, ", "delta: 0, ")
    text = text.replace("lifetime: {epsilon: 20, delta: 1.0e-8}", "lifetime: {epsilon: 1}")
    town_spec.write_text(text, encoding="utf-8")
    return load_spec(town_spec)


def run(spec: Spec, epsilon: float) -> RunResult:
    return run_spec(spec, epsilon, out=spec.state.parent / f"bundle-{epsilon}", undeclared_epsilon=True)


def bought(spec: Spec) -> dict[str, float]:
    """What was reserved by run."""
    with closing(open_ledger(spec)) as ledger:
        entries = ledger.entries()
    names = dict.fromkeys(entry.run for entry in entries)
    return {name: pytest.approx(sum(e.price.amount for e in entries if e.run == name)) for name in names}


def still_held(spec: Spec) -> list[float]:
    with closing(open_ledger(spec)) as ledger:
        return [hold.left.amount for hold in ledger.held()]


def test_the_second_of_two_runs_is_refused_before_anything_is_spent(spec: Spec, fake: FakeSynthesizer) -> None:
    said: list[str] = []

    def in_the_midst() -> None:
        assert still_held(spec) == [pytest.approx(0.4)], "a step that was reserved is taken out"
        with pytest.raises(BudgetExhaustedError) as refused:
            run(spec, 0.5)
        said.append(str(refused.value))

    fake.during[MODEL] = in_the_midst
    assert run(spec, 0.8).paid == pytest.approx(0.8)
    assert bought(spec) == {"epsilon=0.8": 0.8}
    assert "the run at ε=0.5: costs 50.0% of the lifetime budget" in said[0]
    assert "60.0% of it is not spent, but another run has held 40.0%" in said[0]
    assert "Nothing was spent for this. Wait until the other run has ended" in said[0]
    assert still_held(spec) == []
    assert run(spec, 0.2).paid == pytest.approx(0.2), "what is left of the lifetime budget is free afterwards"


def test_a_run_that_fits_beside_another_runs(spec: Spec, fake: FakeSynthesizer) -> None:
    def in_the_midst() -> None:
        run(spec, 0.2)
        fake.runs.append(MODEL)  # the fake goes by the last step that began

    fake.during[MODEL] = in_the_midst
    run(spec, 0.8)
    assert bought(spec) == {"epsilon=0.8": 0.8, "epsilon=0.2": 0.2}


@pytest.mark.parametrize("ending", [ValueError("broken"), KeyboardInterrupt()])
def test_a_run_that_fails_or_is_stopped_gives_back_what_it_has_not_spent(
    spec: Spec, fake: FakeSynthesizer, ending: BaseException
) -> None:
    def stop() -> None:
        raise ending

    fake.during[MODEL] = stop
    with pytest.raises(type(ending)):
        run(spec, 0.8)
    assert bought(spec) == {"epsilon=0.8": 0.4}
    assert still_held(spec) == []
    assert run(spec, 0.5).paid == pytest.approx(0.5)


@pytest.mark.usefixtures("fake")
def test_a_refused_run_holds_nothing(spec: Spec) -> None:
    with pytest.raises(BudgetExhaustedError):
        run(spec, 1.5)
    assert still_held(spec) == []
    assert run(spec, 1.0).paid == pytest.approx(1.0)


def test_the_hold_ends_with_the_last_paid_step(spec: Spec, fake: FakeSynthesizer) -> None:
    seen: list[list[float]] = []
    fake.during["sample", "household"] = lambda: seen.append(still_held(spec))
    run(spec, 0.8)
    assert seen == [[]]


def test_a_refresh_holds_its_total_too(spec: Spec, fake: FakeSynthesizer) -> None:
    seen: list[list[float]] = []
    fake.during["profile", "household"] = lambda: seen.append(still_held(spec))
    spec = replace(spec, epsilons=(0.8,))
    with closing(Workspace(spec)) as workspace:
        (state,) = staleness(spec, plans_for(spec), {}).values()
        refresh_release(workspace, state)
    assert seen == [[pytest.approx(0.6)]]
    assert still_held(spec) == []


def test_a_run_in_dagster_holds_its_total_too(operated: Orchestrated) -> None:
    seen: list[int] = []
    operated.fake.during["model", "household"] = lambda: seen.append(len(still_held(operated.spec)))
    result = operated.refresh("0.8")
    assert result.success, errors(result)
    assert seen == [1]
    assert still_held(operated.spec) == []
    operated.fake.broken["model", "person"] = ValueError("broken")
    assert not operated.refresh("3.2").success
    assert still_held(operated.spec) == [], "given back at the end of the run"


def _hold_and_wait(spec: Spec, ready: Connection) -> None:
    workspace = Workspace(spec)
    with held(Runner(workspace, plan_for(spec, 0.9), Run("epsilon=0.9")), "the run at ε=0.9"):
        ready.send(os.getpid())
        signal.pause()


@pytest.mark.usefixtures("fake")
def test_nobody_waits_for_a_run_that_was_killed(spec: Spec) -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_hold_and_wait, args=(spec, there))
    process.start()
    here.recv()
    assert still_held(spec) == [pytest.approx(0.9)]
    with pytest.raises(BudgetExhaustedError, match="another run has held 90"):
        run(spec, 0.8)
    process.kill()
    process.join()
    assert still_held(spec) == []
    assert run(spec, 0.8).paid == pytest.approx(0.8)
    assert not list(spec.state.rglob("hold-*"))
