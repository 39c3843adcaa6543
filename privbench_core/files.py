"""Write files and folders atomically: they appear complete or not at all; and give them names."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from privbench_core.errors import PrivbenchError, PublishError
from privbench_core.locks import exclusive

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
