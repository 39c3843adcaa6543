"""What a run takes from the store, and what it has to pay for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from privbench_core.pipeline.run import plan_for
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.workspace import Workspace
from privbench_core.spec.load import load_spec
from privbench_core.synthesizers.artifact import Artifact


def test_what_the_ledger_does_not_know_is_not_taken_from_the_store(town_spec: Path) -> None:
    """Stored bytes may be of another ledger, or somebody's: without an entry nobody has paid for them."""
    spec = load_spec(town_spec)
    with closing(Workspace(spec)) as workspace:
        runner = Runner(workspace, plan_for(spec, spec.epsilons[0]), Run("x"))
        step = next(step for step in runner.plan.steps if step.reads)
        key, stored = runner.release_key(step, {}), Artifact({"planted": True}).to_bytes()
        workspace.releases.put(key, stored)
        assert not runner.released(step, {})
        assert step in runner.unpaid()
        release = runner.execute(step, {})
        assert release.paid == step.price
        assert not release.reused
        assert "planted" not in release.artifact.data
        assert [entry.step for entry in workspace.ledger.entries()] == ["/".join(step.key)]
        assert runner.released(step, {})
        assert runner.execute(step, {}).reused


def test_what_was_reserved_and_not_released_is_paid_for_again(town_spec: Path) -> None:
    spec = load_spec(town_spec)
    with closing(Workspace(spec)) as workspace:
        runner = Runner(workspace, plan_for(spec, spec.epsilons[0]), Run("x"))
        step = next(step for step in runner.plan.steps if step.reads)
        key, stored = runner.release_key(step, {}), Artifact({}).to_bytes()
        workspace.ledger.reserve(key, "/".join(step.key), "x", step.price)
        workspace.releases.put(key, stored)
        assert not runner.released(step, {})
        assert step in runner.unpaid()
