"""Resources: what the assets of one database share within a run.

A run opens the workspace once and looks at the source once, so all its steps see the same rows. Everything is opened
on first use, by an asset, whose errors then say nothing private (`failures`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from functools import cached_property
from typing import Any

import dagster as dg

from privbench_assets.keys import identifier
from privbench_core.pipeline.executor import Executor
from privbench_core.pipeline.record import last_observed
from privbench_core.pipeline.run import refresh_executor
from privbench_core.pipeline.status import Status, status_of
from privbench_core.pipeline.workspace import Workspace
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan


class Session:
    """Workspace, plans and one look at the source."""

    def __init__(self, spec: Spec, plans: Mapping[str, Plan], **options: Any) -> None:
        self.spec = spec
        self.plans = plans
        self._options = options
        self._executors: dict[str, Executor] = {}
        self._reported: dict[str, str] = {}

    @cached_property
    def workspace(self) -> Workspace:
        """Ledger and releases."""
        return Workspace(self.spec)

    def executor(self, epsilon: str, chosen: Collection[Key]) -> Executor:
        """Return the executor of one ε partition, always the same within a session."""
        if epsilon not in self._executors:
            plan = self.plans[epsilon]
            self._executors[epsilon] = refresh_executor(self.workspace, plan, epsilon, chosen, **self._options)
        return self._executors[epsilon]

    def newly_observed(self) -> dict[str, str]:
        """Return fingerprints of the tables that the steps have looked at since this was last asked."""
        seen = {t: f for executor in self._executors.values() for t, f in executor.runner.snapshot.fingerprints.items()}
        new = {table: found for table, found in seen.items() if self._reported.get(table) != found}
        self._reported |= new
        return new

    def status(self) -> Status:
        """What is stale as far as the source was observed, what it costs, what is left."""
        return status_of(self.spec, self.workspace.ledger, self.plans, last_observed(self.spec), self.workspace)

    def balance(self) -> dict[str, float]:
        """Return what is spent and left of the lifetime budget, as metadata."""
        balance = self.workspace.ledger.balance(self.spec.cohort)
        return {"lifetime ε spent": round(float(balance.spent), 6), "lifetime ε left": round(float(balance.left), 6)}

    def balance_if_open(self) -> dict[str, Any]:
        """Return `balance` for a failure: nothing where the ledger itself could not be opened."""
        return self.balance() if "workspace" in self.__dict__ else {}

    def close(self) -> None:
        """Give back what runs hold, let go of private rows, and close the ledger, if it was opened."""
        for executor in self._executors.values():
            executor.close()
            executor.runner.snapshot.forget()
        if "workspace" in self.__dict__:
            self.workspace.close()


def session_key(spec: Spec) -> str:
    """Resource key of a database's session: several databases share one code location."""
    return identifier(spec.schema.name, "session")


def session_resource(
    spec: Spec, plans: Mapping[str, Plan], at_end: Callable[[dg.InitResourceContext, Session], None]
) -> dg.ResourceDefinition:
    """Return the session of each run; ``seed``, ``scale`` and ``workers`` can be set when a run is launched.

    Args:
        spec: Of the database.
        plans: Of each ε.
        at_end: Is called when all steps of a run are over.
    """
    options = {
        "seed": dg.Field(int, default_value=0, description="Seed of the sampling: another seed draws other rows."),
        "scale": dg.Field(
            float, default_value=1.0, description="Size relative to the source: 10 draws ten times as many rows."
        ),
        "workers": dg.Field(
            int,
            default_value=0,
            description="Processes for large tables; 0: one per processor. Any number gives the same rows.",
        ),
        "accept_noise": dg.Field(
            bool,
            default_value=False,
            description="Go on paying for a release even if released numbers show that the rest will be noise.",
        ),
    }

    @dg.resource(config_schema=options, description=f"Workspace and source of {spec.schema.name}.")
    def session(context: dg.InitResourceContext) -> Iterator[Session]:
        chosen = context.resource_config
        given = spec.accepting_noise if chosen["accept_noise"] else spec
        workers = chosen["workers"] or None
        with closing(Session(given, plans, seed=chosen["seed"], scale=chosen["scale"], workers=workers)) as opened:
            yield opened
            at_end(context, opened)

    return session
