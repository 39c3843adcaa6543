"""What may be said about an error. Dagster keeps every exception, with its causes, in a log that many people can read.

Core's own messages hold nothing private. Those of other libraries may ("could not convert 'Smith' to int"), and so
may what an error was caused by. Here both are cut off, and kept for the owner in a file of the state folder.
"""

from __future__ import annotations

import os
import re
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterUserCodeProcessError
from dagster_shared.error import SerializableErrorInfo

from privbench_core.errors import InternalError, PrivbenchError, ReleaseError
from privbench_core.pipeline.workspace import errors_folder
from privbench_core.spec.model import Spec


class RefusalError(DagsterUserCodeProcessError, dg.Failure):
    """A failure that Dagster shows as its description and metadata, with no stack trace below.

    Dagster adds the stack of any exception that a step raises, except where it came, as text, from another process.
    The stack would show how Dagster calls this package, never where an error was: that is in the owner's file.
    """

    def __init__(self, description: str, metadata: Mapping[str, Any]) -> None:
        shown = SerializableErrorInfo(message=f"{description}\n", stack=[], cls_name=type(self).__name__)
        given: dict[str, Any] = {"user_code_process_error_infos": [shown]}  # the class has no type information
        super().__init__(description, metadata, False, **given)  # type: ignore[no-untyped-call]


@contextmanager
def nothing_private(spec: Spec, where: str, about: Callable[[], Mapping[str, Any]] = dict) -> Iterator[None]:
    """Turn errors into failures that anybody may read, and write the rest to a file that only the owner can read.

    Args:
        spec: Of the database.
        where: What was being done, for the message: an asset key.
        about: Metadata of the failure, asked for when there is one.

    Raises:
        RefusalError: Its description is what may be said; its metadata has the kind of the error.
    """
    try:
        yield
    except dg.Failure:
        raise
    except Exception as error:  # noqa: BLE001 - no message of another library may pass
        public = public_error(spec, where, error)
        metadata = {"error": type(public).__name__, **about()}
        raise RefusalError(str(public), metadata) from None


def public_error(spec: Spec, where: str, error: Exception) -> PrivbenchError:
    """Return what anybody may read about ``error``."""
    if isinstance(error, PrivbenchError):
        kept = _keep(spec, where, error) if error.private_detail or error.__cause__ or error.__context__ else ""
        return type(error)(f"{error}{kept}")
    kept = _keep(spec, where, error)
    if isinstance(error, OSError):
        return ReleaseError(f"{where}: a file could not be read or written: {error.strerror}{kept}")
    return InternalError(f"{where}: stopped by {type(error).__name__}, please report it{kept}")


def _keep(spec: Spec, where: str, error: Exception) -> str:
    """Write all there is to know to a new file; says which, or nothing if the disk does not take it."""
    folder = errors_folder(spec)
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
    return f" (more, for the owner only, in {folder.name}/{Path(path).name} of the database's state folder)"
