"""A folder that is there as a whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from privbench_core.errors import PublishError


def replace_folder(out: Path, write: Callable[[Path], None], *, replaceable: Callable[[Path], bool]) -> Path:
    """Fill a new folder beside ``out`` and rename it into place, so that readers see the old one or the new one.

    Args:
        out: Where the folder belongs; parents are made. A symbolic link is followed.
        write: Fills the new folder.
        replaceable: Whether what stands at ``out`` may be replaced; a new or empty folder always may.

    Returns:
        The absolute path of the folder.

    Raises:
        PublishError: Something else stands at ``out``, or the system refuses (disk full, no permission). The old folder
            is then as it was, and nothing is left of the new one.
    """
    target = out.resolve()
    partial = target.with_name(f".{target.name}.{uuid4().hex}.partial")
    try:
        if target.exists() and not _may_replace(target, replaceable):
            raise PublishError(f"{target}: is there already and is not a bundle; choose a new folder or empty this one")
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        write(partial)
        _sync(partial)
        _swap(partial, target)
    except OSError as error:
        raise PublishError(f"{target}: could not be written: {_reason(error)}; nothing was changed there") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _may_replace(target: Path, replaceable: Callable[[Path], bool]) -> bool:
    return target.is_dir() and (replaceable(target) or not any(target.iterdir()))


def _swap(new: Path, target: Path) -> None:
    """Rename ``new`` to ``target``; what stood there comes back if that fails, and goes if it works."""
    aside = new.with_suffix(".old")
    if target.exists():
        target.rename(aside)
    try:
        new.rename(target)
    except OSError:
        if aside.exists():
            aside.rename(target)
        raise
    _sync_entry(target.parent)
    with suppress(OSError):  # the new bundle is in place; a rest of the old one does no harm
        if aside.exists():
            shutil.rmtree(aside)


def _sync(folder: Path) -> None:
    """Force a folder and all it holds to the disk, so that the rename cannot outlive the content."""
    for root, _, files in os.walk(folder):
        for name in files:
            _sync_entry(Path(root, name))
        _sync_entry(Path(root))


def _sync_entry(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    # Arrow's messages repeat the path of the temporary file, which says nothing to the reader.
    return os.strerror(error.errno) if error.errno else type(error).__name__
