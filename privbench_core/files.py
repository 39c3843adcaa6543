"""Write files and folders atomically, and lock them: they appear complete or not at all; and give them names.

Locks are exclusive between processes, also in shared folders; the system releases those of a killed process. Rows that
killed runs have left in the state folder are deleted by the next run, whatever its engine.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TextIO
from urllib.parse import quote

from privbench_core.errors import BusyError, PrivbenchError, PublishError, SpecError

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
        return float(wanted or 3600)
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


_NEW, _OLD = "new", "old"  # inside the staging folder


def as_path(given: object, what: str, refusal: type[PrivbenchError]) -> Path:
    """Return a path that a program gave as text or as a path; a ``refusal`` that names ``what`` for anything else."""
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise refusal(f"{what}: expected a path, as text or as a Path, not {type(given).__name__}")


def file_name(name: str) -> str:
    """Return a name that is valid on every file system, without path separators.

    >>> file_name("order"), file_name("a/b c"), file_name("..")
    ('order', 'a%2Fb%20c', '%2E.')
    """
    quoted = quote(name, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def replace_folder(out: Path, write: Callable[[Path], None], *, replaceable: Callable[[Path], bool]) -> Path:
    """Fill a new folder beside ``out`` and rename it into place, so that readers see the old folder or the new one.

    Only one process at a time can replace a folder. If it is killed between the two renames, the old folder is left in
    the staging folder; the next writer or reader restores it (`recover_folder`).

    Args:
        out: The folder to replace; its parents are created, and a symbolic link is followed.
        write: Fills the new folder.
        replaceable: Whether the content of ``out`` may be replaced; an empty folder always may.

    Returns:
        The absolute path of the folder.

    Raises:
        BusyError: Another process has been writing there for too long.
        PublishError: ``out`` holds something else, or the system refuses (disk full, no permission). The old folder
            is then unchanged, and nothing of the new one is left.
    """
    target = out.resolve()
    try:
        with _staging(target) as staging:
            may_replace = target.is_dir() and (replaceable(target) or not any(target.iterdir()))
            if target.exists() and not may_replace:
                raise PublishError(
                    f"{target}: exists already and is not a bundle; choose a new folder or empty this one"
                )
            new = staging / _NEW
            new.mkdir()
            write(new)
            _sync(new)
            _swap(staging, target)
    except OSError as error:
        # Arrow's messages repeat the path of the temporary file, which means nothing to the user.
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise PublishError(f"{target}: could not be written: {why}; nothing was changed") from error
    return target


def write_durably(target: Path, content: bytes) -> None:
    """Write a file beside ``target``, sync it and rename it; OSError if that cannot be done, and nothing is left."""
    with _written_beside(target, content) as new:
        new.replace(target)
    sync_entry(target.parent)  # else a power cut may take the name back that others rely on


def write_once(target: Path, content: bytes) -> None:
    """Write a file durably unless it is there: the first process makes it, none replaces it."""
    with _written_beside(target, content) as new, suppress(FileExistsError):
        os.link(new, target)


@contextmanager
def _written_beside(target: Path, content: bytes) -> Iterator[Path]:
    """Yield a file in the folder of ``target`` with ``content`` on disk; its name is gone afterwards."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".tmp")
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield new
    finally:
        new.unlink(missing_ok=True)


def recover_folder(out: Path) -> None:
    """Restore the old folder if a process was killed while it replaced ``out``; else do nothing.

    Raises:
        BusyError: Another process has been writing there for too long.
    """
    target = out.resolve()
    # A process that is replacing it now looks the same for an instant, but holds the lock until it is done.
    if not target.exists() and (_staging_path(target) / _OLD).exists():
        with suppress(OSError), _staging(target):  # no permission: this reader cannot restore it
            pass


def _staging_path(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """Yield a staging folder beside ``target`` under an exclusive lock, cleared of what a killed process left."""
    staging = _staging_path(target)
    try:
        with exclusive(staging / "lock", f"the folder {target}"):
            _clean_up(staging, target)
            try:
                yield staging
            finally:
                _clean_up(staging, target)
    finally:
        with suppress(OSError):  # not empty: another process has started, or was killed
            staging.rmdir()


def _clean_up(staging: Path, target: Path) -> None:
    """Clear the staging folder; restore the old folder if no new one has replaced it."""
    old = staging / _OLD
    if old.exists() and not target.exists():
        old.rename(target)
    for leftover in (staging / _NEW, old):  # harmless where it cannot be removed
        shutil.rmtree(leftover, ignore_errors=True)


def _swap(staging: Path, target: Path) -> None:
    """Rename the new folder into place, keeping the old one until that has succeeded."""
    if target.exists():
        target.rename(staging / _OLD)
    (staging / _NEW).rename(target)
    sync_entry(target.parent)


def _sync(folder: Path) -> None:
    """Flush a folder and its content to disk, so that a power cut cannot keep the rename and lose the content."""
    for root, _, files in os.walk(folder):
        for name in files:
            sync_entry(Path(root, name))
        sync_entry(Path(root))


def sync_entry(path: Path) -> None:
    """Flush one file, or the entries of one folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
