"""A full run without an orchestrator: plan, then every step in order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from privbench_core.errors import SpecError
from privbench_core.pipeline.executor import Executor, Progress
from privbench_core.pipeline.plans import plan_for, refuse_undeclared, run_name
from privbench_core.pipeline.runner import Release, Run, Runner
from privbench_core.pipeline.workload import public_workload
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.noise import NoiseSource
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
        warnings: What the released numbers say against using the bundle, a sentence each.
    """

    plan: Plan
    releases: Mapping[Key, Release]
    out: Path
    paid: float
    warnings: tuple[str, ...] = ()


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
    """Run the whole plan of ``spec`` at ``epsilon`` and write the bundle to ``out``.

    Args:
        spec: The validated spec.
        epsilon: Budget of this run.
        out: Folder of the bundle, replaced if it holds one.
        delta: Overrides the spec's δ.
        synthesizer: Overrides the spec's synthesizer.
        seed: Of sampling; the same seed and releases give the same bundle.
        scale: Size of the synthetic database relative to the source; costs nothing.
        workers: Most processes that make large tables; as many as there are processors if None. Any number makes the
            same bytes.
        csv: Whether the bundle has its rows once more, as CSV for psql, which takes as long as the rest of writing.
        undeclared_epsilon: Whether ``epsilon`` may be one that the spec does not list.
        noise: Injected by tests, refused by a durable ledger.
        progress: Called before each step with its number, the number of steps and the step.
        workspace: An open workspace to use; else the spec's own is opened and closed.

    Raises:
        SpecError: The spec does not list ``epsilon``, or an argument makes no sense; nothing was opened.
        NoiseOnlyError: The rest would be noise, and the spec does not accept that.
        PrivbenchError: Any of its kinds; a later run does not pay again for the steps that were released.
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
        made = Executor(runner).run(progress=progress)
        releases = {key: step.release for key, step in made.items()}
        paid = sum(release.paid.amount for release in releases.values() if release.paid is not None)
        published = [step.key for step in plan.steps if step.kind is StepKind.PUBLISH]
        warnings = [line for key in published for line in releases[key].artifact.data.get("warnings", ())]
        return RunResult(plan, releases, Path(out), paid, tuple(warnings))
    finally:
        runner.snapshot.forget()
        if workspace is None:
            here.close()
