"""Rows that killed runs have left in the state folder: the next run deletes them, whatever its engine."""

from __future__ import annotations

import shutil
from pathlib import Path

from privbench_core.locks import is_locked


def lock_of(folder: Path) -> Path:
    """Return the lock of a folder of rows: held as long as its run."""
    return folder.with_suffix(".lock")


def sweep(parent: Path) -> None:
    """Delete the rows of runs that were killed, among the folders of rows in ``parent``."""
    for folder in parent.iterdir() if parent.is_dir() else ():
        if folder.is_dir() and not is_locked(lock_of(folder)):
            shutil.rmtree(folder, ignore_errors=True)
            lock_of(folder).unlink(missing_ok=True)
