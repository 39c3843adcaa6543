"""Exclusive locks between processes, also in shared folders; the system releases those of a killed process.

Rows that killed runs have left in the state folder are deleted by the next run, whatever its engine.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TextIO

from privbench_core.errors import BusyError, SpecError

MAX_WAIT = 3600.0  # seconds; chosen by hand
VARIABLE = "PRIVBENCH_LONGEST_WAIT"
"""Environment variable for the maximum wait in seconds; the default is an hour."""

_LOG = logging.getLogger(__name__)
_WARN_AFTER = 5.0  # seconds of waiting before a warning says why nothing happens; chosen by hand


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock on ``path``, waiting for other processes and threads to release theirs.

    The lock file exists while the lock is held, and names the holder. Its folder is created.

    Args:
        path: The lock file.
        what: The locked resource, for messages.

    Raises:
        BusyError: Another process still holds the lock after `max_wait` seconds.
        OSError: The file cannot be created.
    """
    file = _wait(path, what, max_wait())
    with file:
        with suppress(OSError):  # a full disk: the holder stays unnamed
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        try:
            yield
        finally:
            with suppress(OSError):  # closing the file frees the lock, even if the name stays
                path.unlink()


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock now; a file left by a killed process does not count."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def lock_of(folder: Path) -> Path:
    """Return the lock of a folder of rows: held as long as its run."""
    return folder.with_suffix(".lock")


def sweep(parent: Path) -> None:
    """Delete the rows of runs that were killed, among the folders of rows in ``parent``."""
    for folder in parent.iterdir() if parent.is_dir() else ():
        if folder.is_dir() and not is_locked(lock_of(folder)):
            shutil.rmtree(folder, ignore_errors=True)
            lock_of(folder).unlink(missing_ok=True)


def max_wait() -> float:
    """Return the maximum wait in seconds; raise SpecError if the environment variable is not a number."""
    wanted = os.environ.get(VARIABLE, "")
    try:
        return float(wanted or MAX_WAIT)
    except ValueError:
        raise SpecError(
            f"{VARIABLE}: {wanted!r} is not a number of seconds; write one, or unset it for an hour"
        ) from None


def _wait(path: Path, what: str, seconds: float) -> TextIO:
    """Return the locked file. The warning after a while names the holder and nothing private."""
    start, warned = monotonic(), False
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # the previous holder has just removed the folder
            file = path.open("a+", encoding="utf-8")
            if _locked(file, path):
                return file
            with file:
                file.seek(0)
                holder = file.read() or "another process"
            waited = monotonic() - start
            if not warned and waited > _WARN_AFTER:
                warned = True
                _LOG.warning("%s: waiting for %s, which is using it, for at most %g s", what, holder, seconds)
            if waited > seconds:
                raise BusyError(
                    f"{what}: {holder} has been using it for more than {seconds:g} s, the maximum wait. Nothing was"
                    f" spent here. If that process hangs, end it, then run again. {VARIABLE} sets the wait in seconds"
                )
        sleep(0.05)


def _locked(file: TextIO, path: Path) -> bool:
    """Return whether the file is locked by us, and still the one under its name."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        return False
