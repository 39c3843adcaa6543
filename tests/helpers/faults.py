"""A run in a process of its own that can be killed at any moment, and what must hold afterwards."""

from __future__ import annotations

import functools
import os
import resource
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import privbench_core.pipeline as pipeline_plans
import privbench_core.pipeline.executor as pipeline_run
from privbench_core import files as folder_module
from privbench_core.errors import PrivbenchError
from privbench_core.files import VARIABLE
from privbench_core.pipeline.workspace import ReleaseStore, open_ledger
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.ledger.postgres import PostgresStore
from privbench_core.privacy.ledger.sqlite import SqliteStore
from privbench_core.privacy.noise import OpenDPNoise
from privbench_core.publishing import read_bundle
from privbench_core.spec.load import load_spec
from tests.helpers.fake_synthesizer import FakeSynthesizer
from tests.helpers.processes import PROCESSES

PAID = ("profile/household", "model/household", "profile/person", "model/person")


@dataclass
class Town:
    """A spec to be run, and where its bundle goes.

    Attributes:
        spec: The file.
        out: Folder of the bundle.
        said: What the last run wrote down: the moments that it could be killed at, and each look at private rows.
    """

    spec: Path
    out: Path
    said: list[str] = field(default_factory=list)

    def run(self, kill_at: int | None = None, largest_file: int | None = None, max_wait: float = 60) -> str:
        """Run the plan in another process.

        Args:
            kill_at: The moment at which the process is killed, None to let it end.
            largest_file: Bytes that it can write to one file, as if the disk were full.
            max_wait: Seconds that it waits for other processes.

        Returns:
            How it ended: "done paid=…", "killed", or the kind of its error and what it says.
        """
        reader, writer = PROCESSES.Pipe(duplex=False)
        victim = (self.spec, self.out, writer, kill_at, largest_file, max_wait)
        process = PROCESSES.Process(target=_victim, args=victim)
        process.start()
        writer.close()
        self.said = []
        with suppress(EOFError):
            while True:
                self.said.append(reader.recv())
        reader.close()
        process.join(300)
        if process.exitcode == -signal.SIGKILL:
            return "killed"
        assert process.exitcode == 0
        return self.said.pop()

    def moments(self) -> list[str]:
        """What the last run did, in order."""
        return [line for line in self.said if not line.startswith("look ")]

    def looked(self) -> Counter[str]:
        """How often the last run looked at private rows, by step."""
        sites = [line.removeprefix("look ") for line in self.said if line.startswith("look ")]
        return Counter("/".join(site.split("/")[:2]) for site in sites)

    def ledger(self) -> Ledger:
        """The ledger, to be closed."""
        return open_ledger(load_spec(self.spec))

    def booked(self, state: str | None = None) -> Counter[str]:
        """Entries by step, of one state or all."""
        ledger = self.ledger()
        try:
            return Counter(entry.step for entry in ledger.entries() if state in {None, entry.state})
        finally:
            ledger.close()

    def check(self, looked: Counter[str]) -> None:
        """Whatever happened: all that was looked at is booked, nothing beyond the lifetime, no partial bundle."""
        ledger = self.ledger()
        entries, balance = ledger.entries(), ledger.balance()
        total = balance.lifetime.total()
        ledger.close()
        missing = looked - Counter(entry.step for entry in entries)
        assert not missing, f"looked at and not booked: {missing}"
        assert sum(entry.price.rho for entry in entries) <= total.amount * (1 + 1e-9)
        assert balance.spent <= balance.lifetime.epsilon * (1 + 1e-9)
        if self.out.exists():
            read_bundle(self.out)  # verifies every checksum


def _victim(
    spec: Path, out: Path, notes: Connection, kill_at: int | None, largest_file: int | None, max_wait: float
) -> None:
    os.environ[VARIABLE] = str(max_wait)
    moments = count()

    def moment(name: str) -> None:
        notes.send(name)
        if next(moments) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    pipeline_plans.load_synthesizer = lambda _: FakeSynthesizer()  # type: ignore[assignment]
    for owner, names in _WATCHED:
        for name in names:
            setattr(owner, name, _watched(getattr(owner, name), name, moment))
    OpenDPNoise.add = _noted(OpenDPNoise.add, notes)  # type: ignore[method-assign]
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    try:
        result = pipeline_run.run_spec(load_spec(spec), 0.8, out=out)
        notes.send(f"done paid={result.paid:g}")
    except (PrivbenchError, OSError) as error:
        notes.send(f"{type(error).__name__}: {error}")


# What is done to a ledger or a disk, and each step: the process may die before and after any of it.
_WATCHED: Iterable[tuple[Any, tuple[str, ...]]] = (
    (SqliteStore, ("query",)),
    (PostgresStore, ("_run",)),
    (ReleaseStore, ("put",)),
    (Ledger, ("reserve", "charge", "release")),
    (FakeSynthesizer, ("_profile", "_model")),
    (folder_module, ("_sync", "_swap")),
    (os, ("fsync", "link")),
    (shutil, ("rmtree",)),
    (Path, ("mkdir", "replace", "rename", "unlink", "rmdir")),
    (pipeline_run.Runner, ("execute",)),
)


def _watched(method: Callable[..., Any], name: str, moment: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def watched(*arguments: Any, **named: Any) -> Any:
        moment(f"before {name}")
        result = method(*arguments, **named)
        moment(f"after {name}")
        return result

    return watched


def _noted(add: Callable[..., Any], notes: Connection) -> Callable[..., Any]:
    @functools.wraps(add)
    def noted(noise: OpenDPNoise, site: str, *arguments: Any, **named: Any) -> Any:
        notes.send(f"look {site}")
        return add(noise, site, *arguments, **named)

    return noted
