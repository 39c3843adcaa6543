"""A folder that is there as a whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from privbench_core.errors import PublishError
from privbench_core.locks import exclusive

_NEW, _OLD = "new", "old"  # in the workshop


def replace_folder(out: Path, write: Callable[[Path], None], *, replaceable: Callable[[Path], bool]) -> Path:
    """Fill a new folder beside ``out`` and rename it into place, so that readers see the old one or the new one.

    One process at a time does so. One that is killed between the two renames leaves the old folder aside: the next
    that writes or reads there puts it back (`recover_folder`).

    Args:
        out: Where the folder belongs; parents are made. A symbolic link is followed.
        write: Fills the new folder.
        replaceable: Whether what stands at ``out`` may be replaced; a new or empty folder always may.

    Returns:
        The absolute path of the folder.

    Raises:
        BusyError: Another process has been writing there for too long.
        PublishError: Something else stands at ``out``, or the system refuses (disk full, no permission). The old folder
            is then as it was, and nothing is left of the new one.
    """
    target = out.resolve()
    try:
        with _workshop(target) as shop:
            if target.exists() and not _may_replace(target, replaceable):
                raise PublishError(
                    f"{target}: is there already and is not a bundle; choose a new folder or empty this one"
                )
            new = shop / _NEW
            new.mkdir()
            write(new)
            _sync(new)
            _swap(shop, target)
    except OSError as error:
        raise PublishError(f"{target}: could not be written: {_reason(error)}; nothing was changed there") from error
    return target


def recover_folder(out: Path) -> None:
    """Put back what a process left aside that was killed while it replaced ``out``; else do nothing.

    Raises:
        BusyError: Another process has been writing there for too long.
    """
    target = out.resolve()
    # While another one is still at work this is so for an instant, after which its lock is free.
    if not target.exists() and (_shop_of(target) / _OLD).exists():
        with suppress(OSError), _workshop(target):  # no permission: then there is nothing there for this reader
            pass


def _may_replace(target: Path, replaceable: Callable[[Path], bool]) -> bool:
    return target.is_dir() and (replaceable(target) or not any(target.iterdir()))


def _shop_of(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")


@contextmanager
def _workshop(target: Path) -> Iterator[Path]:
    """A folder beside ``target`` to work in, nobody else's meanwhile, without what a killed process left there."""
    shop = _shop_of(target)
    try:
        with exclusive(shop / "lock", f"the folder {target}"):
            _settle(shop, target)
            try:
                yield shop
            finally:
                _settle(shop, target)
    finally:
        with suppress(OSError):  # another one may have begun, or never have ended
            shop.rmdir()


def _settle(shop: Path, target: Path) -> None:
    """Clear the workshop; the old folder goes back if there is no new one in its place."""
    old = shop / _OLD
    if old.exists() and not target.exists():
        old.rename(target)
    for rest in (shop / _NEW, old):  # a rest that cannot be removed does no harm
        shutil.rmtree(rest, ignore_errors=True)


def _swap(shop: Path, target: Path) -> None:
    """Put the new folder in the place of the old one, which is kept until that has worked."""
    if target.exists():
        target.rename(shop / _OLD)
    (shop / _NEW).rename(target)
    sync_entry(target.parent)


def _sync(folder: Path) -> None:
    """Force a folder and all it holds to the disk, so that the rename cannot outlive the content."""
    for root, _, files in os.walk(folder):
        for name in files:
            sync_entry(Path(root, name))
        sync_entry(Path(root))


def sync_entry(path: Path) -> None:
    """Force one file, or the names in one folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: OSError) -> str:
    # Arrow's messages repeat the path of the temporary file, which says nothing to the reader.
    return os.strerror(error.errno) if error.errno else type(error).__name__
