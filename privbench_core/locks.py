"""One process at a time, on one machine or in a folder that several share. Who dies lets go: the system holds it."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TextIO

from privbench_core.errors import BusyError, SpecError

LONGEST_WAIT = 3600.0  # seconds
VARIABLE = "PRIVBENCH_LONGEST_WAIT"
"""Environment variable: how many seconds are waited for another process, instead of an hour."""

_LOG = logging.getLogger(__name__)
_NAP = 0.05  # seconds
_SILENCE = 5.0  # seconds of waiting, until somebody who watches is told why nothing happens


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Wait until no other process, or thread, is at work on ``path``; keep the others out meanwhile.

    The file is there while somebody is at work, and says who. Its folder is made.

    Args:
        path: The lock's file.
        what: What is waited for, as the refusal calls it.

    Raises:
        BusyError: The other one is still at work after `longest_wait` seconds.
        OSError: The file cannot be made.
    """
    file = _wait(path, what, longest_wait())
    with file:
        with suppress(OSError):  # a full disk: then nobody is told who works here
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        try:
            yield
        finally:
            with suppress(OSError):  # the lock goes with the file's handle, whatever stays in the folder
                path.unlink()


def is_locked(path: Path) -> bool:
    """Whether somebody is at work on ``path`` right now; a file that a killed process left says nothing."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def longest_wait() -> float:
    """Seconds that are waited for another process; SpecError if the environment says no number."""
    wanted = os.environ.get(VARIABLE, "")
    try:
        return float(wanted or LONGEST_WAIT)
    except ValueError:
        raise SpecError(
            f"{VARIABLE}: {wanted!r} is not a number of seconds; write one, or unset it for an hour"
        ) from None


def _wait(path: Path, what: str, seconds: float) -> TextIO:
    """The lock's file, locked. What it says after a while is for whoever wonders, and holds nothing private."""
    start, silent = monotonic(), True
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the one before has just cleared the folder
            file = path.open("a+", encoding="utf-8")
            if _locked(file, path):
                return file
            with file:
                holder = _told(file)
            waited = monotonic() - start
            if silent and waited > _SILENCE:
                silent = False
                _LOG.warning("%s: waiting for %s, which is at work on it; for at most %g s", what, holder, seconds)
            if waited > seconds:
                raise BusyError(
                    f"{what}: {holder} has been at work on it for more than {seconds:g} s, which is how long is waited."
                    f" Nothing was spent here. If it hangs, end it; then run again. {VARIABLE} sets the wait in seconds"
                )
        sleep(_NAP)


def _locked(file: TextIO, path: Path) -> bool:
    """Whether the file is ours now, and still the one that others would find under its name."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _told(file: TextIO) -> str:
    file.seek(0)
    return file.read() or "another process"
