"""Refresh what is out of date at one ε, without an orchestrator; what it leaves is what an orchestrator would leave."""

from __future__ import annotations

from privbench_core.pipeline.executor import Executor, Progress
from privbench_core.pipeline.manifest import Made, load_made, write_manifest
from privbench_core.pipeline.places import bundle_folder
from privbench_core.pipeline.plans import run_name
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.staleness import ReleaseState
from privbench_core.pipeline.workload import public_workload
from privbench_core.pipeline.workspace import Workspace
from privbench_core.synthesizers.contract import Key


def refresh_release(workspace: Workspace, state: ReleaseState, progress: Progress | None = None) -> dict[Key, Made]:
    """Make all that is out of date at one ε, and write its bundle in the state folder.

    Raises:
        PrivbenchError: Any of its kinds; what was made before that stays, and is not paid for again.
    """
    spec, epsilon = workspace.spec, state.epsilon
    run = Run(run_name(state.plan.budget.epsilon), out=bundle_folder(spec, epsilon), workload=public_workload(spec))
    steps = {step.key for step in state.outdated}
    others = {key: manifest.digest for key, manifest in state.made.items() if key not in steps}
    executor = Executor(Runner(workspace, state.plan, run), steps, others, f"this refresh at ε={epsilon}")
    return executor.run(
        load=lambda key: load_made(spec, workspace.releases, key, epsilon),
        keep=lambda key, made: write_manifest(spec, key, epsilon, made.manifest),
        progress=progress,
    )
