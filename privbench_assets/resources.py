"""Resources: what the assets of one database share within a run.

A run opens the workspace once and looks at the source once, so all its steps see the same rows. Everything is opened
on first use, by an asset, whose errors then say nothing private.

Dagster keeps every exception, with its causes, in a log that many people can read. Core's own messages hold nothing
private. Those of other libraries may ("could not convert 'Smith' to int"), and so may what an error was caused by. Here
both are cut off, and kept for the owner in a file of the state folder.
"""

from __future__ import annotations

import os
import re
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterUserCodeProcessError
from dagster_shared.error import SerializableErrorInfo

from privbench_assets import identifier
from privbench_core.errors import InternalError, PrivbenchError, ReleaseError
from privbench_core.pipeline.executor import Executor, refresh_executor
from privbench_core.pipeline.record import last_observed
from privbench_core.pipeline.status import Status, status_of
from privbench_core.pipeline.workspace import Workspace, errors_folder
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


class RefusalError(DagsterUserCodeProcessError, dg.Failure):
    """A failure that Dagster shows as its description and metadata, with no stack trace below.

    Dagster adds the stack of any exception that a step raises, except where it came, as text, from another process.
    The stack would show how Dagster calls this package, never where an error was: that is in the owner's file.
    """

    def __init__(self, description: str, metadata: Mapping[str, Any]) -> None:
        shown = SerializableErrorInfo(message=f"{description}\n", stack=[], cls_name=type(self).__name__)
        given: dict[str, Any] = {"user_code_process_error_infos": [shown]}  # the class has no type information
        super().__init__(description, metadata, False, **given)  # type: ignore[no-untyped-call]


@contextmanager
def nothing_private(spec: Spec, where: str, about: Callable[[], Mapping[str, Any]] = dict) -> Iterator[None]:
    """Turn errors into failures that anybody may read, and write the rest to a file that only the owner can read.

    Args:
        spec: Of the database.
        where: What was being done, for the message: an asset key.
        about: Metadata of the failure, asked for when there is one.

    Raises:
        RefusalError: Its description is what may be said; its metadata has the kind of the error.
    """
    try:
        yield
    except dg.Failure:
        raise
    except Exception as error:  # noqa: BLE001 - no message of another library may pass
        public = public_error(spec, where, error)
        metadata = {"error": type(public).__name__, **about()}
        raise RefusalError(str(public), metadata) from None


def public_error(spec: Spec, where: str, error: Exception) -> PrivbenchError:
    """Return what anybody may read about ``error``."""
    if isinstance(error, PrivbenchError):
        kept = _keep(spec, where, error) if error.private_detail or error.__cause__ or error.__context__ else ""
        return type(error)(f"{error}{kept}")
    kept = _keep(spec, where, error)
    if isinstance(error, OSError):
        return ReleaseError(f"{where}: a file could not be read or written: {error.strerror}{kept}")
    return InternalError(f"{where}: stopped by {type(error).__name__}, please report it{kept}")


def _keep(spec: Spec, where: str, error: Exception) -> str:
    """Write all there is to know to a new file; says which, or nothing if the disk does not take it."""
    folder = errors_folder(spec)
    detail = getattr(error, "private_detail", None)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, path = tempfile.mkstemp(prefix=re.sub(r"[^\w.-]+", "-", where) + "-", suffix=".txt", dir=folder)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("For the owner of the data only: this may hold private values.\n\n")
            file.write(f"{detail}\n\n" if detail else "")
            file.writelines(traceback.format_exception(error))
    except OSError:
        return ""
    return f" (more, for the owner only, in {folder.name}/{Path(path).name} of the database's state folder)"
