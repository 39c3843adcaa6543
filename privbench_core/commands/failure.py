"""How a command fails: one clear message on standard error, exit code 1, no traceback.

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
"""Environment variable: set to 1, a failure shows its traceback."""

_REPORT = f"this is a bug of ours: please report it, with what {DEBUG}=1 shows after removing anything private"


@contextmanager
def one_clear_line() -> Iterator[None]:
    """Turn whatever goes wrong inside into a message and exit code 1."""
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
        return "privbench: stopped; what was released is kept"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"privbench: {where}{error.strerror or type(error).__name__}"
    if isinstance(error, MemoryError):
        return "privbench: not enough memory; what was released is kept"
    # The text of a foreign exception may quote rows, so only its kind is named.
    return f"privbench: unexpected {type(error).__name__}; {_REPORT}"
