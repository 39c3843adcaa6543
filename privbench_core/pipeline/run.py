"""Full runs and refreshes without an orchestrator; what a refresh leaves is what an orchestrator would leave."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privbench_core.errors import SpecError
from privbench_core.pipeline.executor import Executor, Progress
from privbench_core.pipeline.plans import plan_for, public_workload, refuse_undeclared, run_name
from privbench_core.pipeline.record import read_manifests, run_label, write_manifests
from privbench_core.pipeline.runner import Made, Release, Run, Runner
from privbench_core.pipeline.status import ReleaseState
from privbench_core.pipeline.workspace import Workspace, bundle_folder, epsilon_name
from privbench_core.privacy.budget import Price
from privbench_core.privacy.noise import NoiseSource
from privbench_core.publishing.verdicts import Verdict
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan, StepKind


@dataclass(frozen=True)
class RunResult:
    """What a run left behind.

    Attributes:
        plan: The plan that was run.
        releases: Every step's release.
        out: Folder of the bundle.
        paid: Price amount spent by this run, in the plan's currency: 0 if everything had been released before.
        verdicts: How close each private table is, by released figures; worst first.
        lost: What noise and bounds have taken from columns and links, a sentence each.
    """

    plan: Plan
    releases: Mapping[Key, Release]
    out: Path
    paid: float
    verdicts: tuple[Verdict, ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def workload(self) -> Mapping[str, Any]:
        """How many queries are in the bundle, and which are left out and why, by the name of the workload."""
        published = (
            release.artifact.data for key, release in self.releases.items() if key[0] == StepKind.PUBLISH.value
        )
        return dict(next(published, {}).get("workload", {}))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the released numbers say against using the bundle, a sentence each."""
        return (*(str(verdict) for verdict in self.verdicts if verdict.warns), *self.lost)

    def __repr__(self) -> str:
        """Return what was made and paid in one line."""
        paid = f"paid {Price(self.plan.price.measure, self.paid)}" if self.paid else "nothing paid, all bought before"
        warnings = f"; {len(self.warnings)} warnings" if self.warnings else ""
        return f"<RunResult at ε={self.plan.budget.epsilon:g}: {paid}; bundle in {self.out}{warnings}>"


def run_spec(
    spec: Spec,
    epsilon: float,
    *,
    out: Path,
    delta: float | None = None,
    synthesizer: str | None = None,
    seed: int = 0,
    scale: float = 1.0,
    workers: int | None = None,
    csv: bool = True,
    undeclared_epsilon: bool = False,
    noise: NoiseSource | None = None,
    progress: Progress | None = None,
    workspace: Workspace | None = None,
) -> RunResult:
    """Run the whole plan of ``spec`` at ``epsilon``, write the bundle to ``out``, and record it for `status`.

    Arguments and errors are those of `privbench_core.run`, but that the spec says whether noise is accepted. Tests
    inject ``noise``, which a durable ledger refuses. An open ``workspace`` is used; else the spec's own is opened.
    """
    if not 0 < scale < math.inf:
        raise SpecError(f"scale: {scale} is not positive; 1 is the size of the source, 10 ten times as large")
    if workers is not None and workers < 1:
        raise SpecError(f"workers: {workers} is not a number of processes; leave it out for one per processor")
    if not undeclared_epsilon:
        refuse_undeclared(spec, epsilon)
    plan = plan_for(spec, epsilon, delta=delta, synthesizer=synthesizer)
    workload = public_workload(spec)
    here = workspace or Workspace(spec)
    runner = Runner(here, plan, Run(run_name(epsilon), seed, scale, Path(out), workload, workers, csv), noise)
    try:
        made = Executor(runner).run(progress)
    finally:
        runner.snapshot.forget()
        if workspace is None:
            here.close()
    if delta is None and synthesizer in {None, spec.synthesizer}:  # else it is not what the spec describes
        write_manifests(spec, run_label(epsilon_name(epsilon)), {key: step.manifest for key, step in made.items()})
    releases = {key: step.release for key, step in made.items()}
    return RunResult(plan, releases, Path(out), sum(paid.amount for paid in prices_paid(made)), *fidelity_of(made))


def refresh_release(workspace: Workspace, state: ReleaseState, progress: Progress | None = None) -> dict[Key, Made]:
    """Make all that is out of date at one ε, and write its bundle in the state folder.

    Raises:
        PrivbenchError: Any of its kinds; what was made before that stays, and is not paid for again.
    """
    steps = {step.key for step in state.outdated}
    return refresh_executor(workspace, state.plan, state.epsilon, steps).run(progress)


def refresh_executor(
    workspace: Workspace,
    plan: Plan,
    epsilon: str,
    steps: Collection[Key],
    *,
    seed: int = 0,
    scale: float = 1.0,
    workers: int | None = None,
) -> Executor:
    """Return the executor of some steps at one ε: it records them, and its bundle is in the state folder."""
    spec = workspace.spec
    run = Run(run_name(plan.budget.epsilon), seed, scale, bundle_folder(spec, epsilon), public_workload(spec), workers)
    made = {key: m.digest for key, m in read_manifests(spec, plan, epsilon).items() if key not in steps}
    return Executor(Runner(workspace, plan, run), steps, made, epsilon)


def prices_paid(made: Mapping[Key, Made]) -> list[Price]:
    """Return what some steps have cost: nothing for those that were bought before, or that read no private row."""
    return [step.release.paid for step in made.values() if step.release.paid is not None]


def rows_of(made: Mapping[Key, Made]) -> Mapping[str, int]:
    """Return the rows of each table, by the publish step that wrote a bundle."""
    return dict(_published(made).get("rows", {}))


def fidelity_of(made: Mapping[Key, Made]) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
    """Return verdicts on tables and what was lost, by the publish step that wrote a bundle."""
    data = _published(made)
    return tuple(map(Verdict.from_dict, data.get("verdicts", ()))), tuple(data.get("lost", ()))


def _published(made: Mapping[Key, Made]) -> Mapping[str, Any]:
    return next((step.release.artifact.data for key, step in made.items() if key[0] == StepKind.PUBLISH.value), {})
