"""What may be said about an error. Dagster keeps every exception, with its causes, in a log that many people can read.

Core's own messages hold nothing private. Those of other libraries may ("could not convert 'Smith' to int"), and so
may what an error was caused by. Here both are cut off, and kept for the owner in a file beside the ledger.
"""

from __future__ import annotations

import os
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from privbench_core.errors import InternalError, PrivbenchError, ReleaseError

FOLDER = "errors"


@contextmanager
def nothing_private(where: str, state: Path, say: Callable[[str], object] | None = None) -> Iterator[None]:
    """Let errors out with what anybody may read, and write the rest to a file in ``state`` that its owner can read.

    Args:
        where: What was being done, for the message: an asset key.
        state: The state folder of the database.
        say: Is told the message too, as a line of its own: in Dagster's UI an exception comes folded, below the stack.

    Raises:
        PrivbenchError: Of the same kind as the error that was raised, with the same message and without its cause.
        ReleaseError: For an error of the file system.
        InternalError: For any other error: its kind, and where the rest is.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - no message of another library may pass
        public = _public(error, where, state)
        if say is not None:
            say(str(public))
        raise public from None


def _public(error: Exception, where: str, state: Path) -> PrivbenchError:
    """What anybody may read about ``error``."""
    if isinstance(error, PrivbenchError):
        kept = _keep(error, where, state) if error.private_detail or error.__cause__ or error.__context__ else ""
        return type(error)(f"{error}{kept}")
    kept = _keep(error, where, state)
    if isinstance(error, OSError):
        return ReleaseError(f"{where}: a file could not be read or written: {error.strerror}{kept}")
    return InternalError(f"{where}: stopped by {type(error).__name__}, please report it{kept}")


def _keep(error: Exception, where: str, state: Path) -> str:
    """Write all there is to know to a new file; says which, or nothing if the disk does not take it."""
    folder = state / FOLDER
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
    return f" (more, for the owner only, in {folder.name}/{Path(path).name} of the state folder)"
