"""Processes for tests, forked from one that has imported everything: a start costs a hundredth of an interpreter's."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tests.helpers.servers import wait_for

# The product imports them where it uses them, that is, in each child.
_LIBRARIES = ("duckdb", "opendp.prelude", "pandas", "scipy.optimize", "scipy.sparse", "scipy.special")

PROCESSES = multiprocessing.get_context("forkserver")
# Each child runs the main module again, which is pytest.
PROCESSES.set_forkserver_preload(["pytest", "tests.helpers.faults", "tests.unit.test_privacy_ledger", *_LIBRARIES])


def killed_when(happened: Callable[[], Any], work: Callable[..., None], *arguments: Any) -> None:
    """Work in another process, kill it once something has happened, and wait until its children have left as well."""
    reader, writer = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_heard, args=(writer, work, *arguments))
    process.start()
    writer.close()
    wait_for("what a process is killed at", happened, every=0.005)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    while os.read(reader.fileno(), 4096):
        pass  # until nobody has the other end
    reader.close()


def _heard(writer: Connection, work: Callable[..., None], *arguments: Any) -> None:
    os.dup2(writer.fileno(), 2)  # standard error, which children inherit
    writer.close()
    work(*arguments)
