"""Resources: what the assets of one database share within a run.

A run opens the workspace once and looks at the source once, so all its steps see the same rows. Everything is opened
on first use, by an asset, whose errors are then told in words that hold nothing private (`failures`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import dagster as dg

from privbench_assets.keys import identifier
from privbench_core.pipeline.account_status import AccountStatus, standing
from privbench_core.pipeline.observe import observe
from privbench_core.pipeline.run import run_name
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.workload import public_workload
from privbench_core.pipeline.workspace import Workspace
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan

BUNDLES = "bundles"
REPORTS = "reports"


class Session:
    """Workspace, plans and one look at the source.

    Args:
        spec: The validated spec.
        plans: A plan per ε partition.
        seed: Of sampling.
        scale: Size of the synthetic database relative to the source.
    """

    def __init__(self, spec: Spec, plans: Mapping[str, Plan], seed: int = 0, scale: float = 1.0) -> None:
        self.spec = spec
        self.plans = plans
        self.seed = seed
        self.scale = scale
        self._runners: dict[str, Runner] = {}
        self._affordable: set[str] = set()
        self._done: dict[str, set[Key]] = {}

    @cached_property
    def workspace(self) -> Workspace:
        """Ledger and releases."""
        return Workspace(self.spec)

    def runner(self, epsilon: str) -> Runner:
        """The runner of one ε partition, always the same within a session."""
        if epsilon not in self._runners:
            workload = public_workload(self.spec)
            run = Run(run_name(float(epsilon)), self.seed, self.scale, self.bundle(epsilon), workload)
            self._runners[epsilon] = Runner(self.workspace, self.plans[epsilon], run)
        return self._runners[epsilon]

    def require(self, epsilon: str, steps: Collection[Key], made: Mapping[Key, str]) -> None:
        """Check that all that a run has still to pay for can be paid, once, before it pays for the first of its steps.

        Nothing is set aside: if two runs start at the same time, the ledger still stops the second at the step that
        cannot be paid.

        Args:
            epsilon: The partition.
            steps: Those that the run consists of.
            made: Digests of what the other steps made before.

        Raises:
            BudgetExhaustedError: It cannot; says how much is missing for the whole run.
        """
        if epsilon not in self._affordable:
            self.runner(epsilon).require(f"this refresh at ε={epsilon}", steps, made)
            self._affordable.add(epsilon)

    def done(self, epsilon: str, step: Key, steps: Collection[Key]) -> None:
        """Note that a step is done; after the last one that may look at private rows, let go of them.

        Args:
            epsilon: The partition.
            step: The step.
            steps: Those that the run consists of.
        """
        finished = self._done.setdefault(epsilon, set())
        finished.add(step)
        if not any(
            other.reads and other.key in steps and other.key not in finished for other in self.plans[epsilon].steps
        ):
            self.runner(epsilon).snapshot.forget()

    def standing(self) -> AccountStatus:
        """Where the account of the cohort stands, and how many more refreshes of all ε it can pay for."""
        return standing(self.spec, self.workspace.ledger, self.plans.values())

    def fingerprints(self, tables: Sequence[str]) -> dict[str, str]:
        """Keyed fingerprints of some tables of the source, as it is now."""
        return observe(self.workspace, tables)

    def bundle(self, epsilon: str) -> Path:
        """Folder of the bundle of one ε partition; a cohort has bundles of its own."""
        return self.spec.state / BUNDLES / self.spec.cohort / epsilon

    def report(self, epsilon: str) -> Path:
        """Folder of the internal report on that bundle: beside the bundles, never inside of one."""
        return self.spec.state / REPORTS / self.spec.cohort / epsilon

    def close(self) -> None:
        """Close the ledger, if it was opened."""
        if "workspace" in self.__dict__:
            self.workspace.close()


def session_key(spec: Spec) -> str:
    """Resource key of a database's session: several databases share one code location."""
    return identifier(spec.schema.name, "session")


def session_resource(spec: Spec, plans: Mapping[str, Plan]) -> dg.ResourceDefinition:
    """The session of each run; ``seed`` and ``scale`` can be set when a run is launched."""
    options = {
        "seed": dg.Field(int, default_value=0, description="Seed of sampling: another seed draws another database."),
        "scale": dg.Field(
            float, default_value=1.0, description="Size relative to the source: 10 draws ten times as many rows."
        ),
    }

    @dg.resource(config_schema=options, description=f"Workspace and source of {spec.schema.name}.")
    def session(context: dg.InitResourceContext) -> Iterator[Session]:
        opened = Session(spec, plans, context.resource_config["seed"], context.resource_config["scale"])
        try:
            yield opened
        finally:
            opened.close()

    return session
