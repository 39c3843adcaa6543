"""Report the failure of a command: one clear message on standard error, exit code 1 (130 after Ctrl-C), no traceback.

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


STOPPED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""


@contextmanager
def one_clear_line(stopped: str = "") -> Iterator[None]:
    """Turn any exception inside into a message and exit code 1, Ctrl-C into one and `STOPPED`.

    Args:
        stopped: What Ctrl-C has left, where the exception does not say.
    """
    try:
        yield
    except typer.Exit:
        raise
    except (Exception, KeyboardInterrupt) as error:
        if os.environ.get(DEBUG) == "1":
            raise
        if is_stop(error):
            after = "\n" if sys.stderr.isatty() else ""  # the terminal has shown ^C
            said = str(error) if isinstance(error, KeyboardInterrupt) else ""
            sys.stderr.write(f"{after}privbench: {said or '; '.join(filter(None, ('stopped', stopped)))}\n")
            raise typer.Exit(STOPPED) from None
        sys.stderr.write(_message(error) + "\n")
        raise typer.Exit(1) from None


def is_stop(error: BaseException) -> bool:
    """Return whether the owner has stopped the command: Ctrl-C, also at a question, or as DuckDB reports it."""
    in_duckdb = type(error) is RuntimeError and str(error) == "Query interrupted"
    return isinstance(error, KeyboardInterrupt | typer.Abort) or in_duckdb


def _message(error: BaseException) -> str:
    if isinstance(error, SpecError) and len(error.problems) > 1:
        lines = "".join(f"\n  {problem}" for problem in error.problems)
        return f"privbench: {len(error.problems)} problems in the spec{lines}"
    if isinstance(error, InternalError):
        return f"privbench: {error}; {_REPORT}"
    if isinstance(error, PrivbenchError):
        detail = f"\nowner only: {error.private_detail}" if error.private_detail else ""
        return f"privbench: {error}{detail}"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"privbench: {where}{error.strerror or type(error).__name__}"
    if isinstance(error, MemoryError):
        return "privbench: not enough memory; releases so far are kept"
    # The text of an exception of another library may quote rows, so only its type is named.
    return f"privbench: unexpected {type(error).__name__}; {_REPORT}"
