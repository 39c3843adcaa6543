"""Whether the source is still what a bundle was made from: whether its plan, run now, would buy anything again."""

from __future__ import annotations

from pathlib import Path

from privbench_core.errors import PrivbenchError
from privbench_core.pipeline.places import database_folder
from privbench_core.pipeline.plans import run_name
from privbench_core.pipeline.rehearsal import plan_of
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.workspace import Workspace
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import StepKind

_UNKNOWN = "Whether the source has changed since the bundle was made is not known here."


def source_state(spec: Spec, bundle: Path) -> str:
    """Return in words whether the source has changed since; for the owner only: fingerprints are of private rows."""
    plan = plan_of(spec, bundle)
    if plan is None or not (database_folder(spec) / "releases").exists():
        return _UNKNOWN
    try:
        workspace = Workspace(spec)
    except PrivbenchError:
        return _UNKNOWN
    try:
        unpaid = Runner(workspace, plan, Run(run_name(plan.budget.epsilon))).unpaid()
    finally:
        workspace.close()
    changed = sorted({step.table for step in unpaid if step.kind is StepKind.PROFILE})
    if changed:
        return f"The source or the spec has changed since the bundle was made: {', '.join(changed)}."
    return "The source is as it was when the bundle was made."
