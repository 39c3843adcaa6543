"""Report the failure of a command: one clear message on standard error, exit code 1, no traceback.

Only this module prints ``private_detail``, because it prints on the owner's terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from privbench_core.errors import InternalError, PrivbenchError, SpecError

DEBUG = "PRIVBENCH_DEBUG"
"""Environment variable: if set to 1, failures show a traceback."""

_REPORT = f"this is a bug in privbench: please report it, with the output of {DEBUG}=1 without anything private"


@contextmanager
def one_clear_line() -> Iterator[None]:
    """Turn any exception inside into a message and exit code 1."""
    try:
        yield
    except typer.Exit:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get(DEBUG) == "1":
            raise
        sys.stderr.write(_message(error) + "\n")
        raise typer.Exit(1) from None


def _message(error: BaseException) -> str:
    if isinstance(error, SpecError) and len(error.problems) > 1:
        lines = "".join(f"\n  {problem}" for problem in error.problems)
        return f"privbench: {len(error.problems)} problems in the spec{lines}"
    if isinstance(error, InternalError):
        return f"privbench: {error}; {_REPORT}"
    if isinstance(error, PrivbenchError):
        detail = f"\nowner only: {error.private_detail}" if error.private_detail else ""
        return f"privbench: {error}{detail}"
    if isinstance(error, KeyboardInterrupt):
        return f"privbench: {str(error) or 'stopped; releases so far are kept'}"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"privbench: {where}{error.strerror or type(error).__name__}"
    if isinstance(error, MemoryError):
        return "privbench: not enough memory; releases so far are kept"
    # The text of an exception of another library may quote rows, so only its type is named.
    return f"privbench: unexpected {type(error).__name__}; {_REPORT}"
