"""What the commands do, one module each, and how they speak: `cli` gives them names and options.

Here are tables and lines for people, JSON for scripts, and the failure of a command: one clear message on standard
error, exit code 1 (130 after Ctrl-C), and no traceback. Only this module prints ``private_detail``, because it prints
on the owner's terminal.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from privbench_core.errors import InternalError, PrivbenchError, SpecError

if TYPE_CHECKING:
    from privbench_core.synthesizers.contract import Step

DEBUG = "PRIVBENCH_DEBUG"
"""Environment variable: if set to 1, failures show a traceback."""

_REPORT = f"this is a bug in privbench: please report it with the output of {DEBUG}=1, after removing anything private"
STOPPED = 130
"""Exit code after Ctrl-C, as shells have it: 128 and the number of the signal."""
NAMED = 10
"""Queries of a kind that are named on the terminal; pages and JSON have all of them."""


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is: without markup, emoji and automatic highlighting."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 120  # files and pipes need no folding at 80 columns
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=width)


def say(line: str = "", style: str | None = None) -> None:
    """Print one line: a terminal breaks it between words, except commands, and nothing breaks a path."""
    there = console()
    there.print(_broken(line, there), style=style, soft_wrap=True)


def _broken(text: str, there: Console) -> str:
    """Return a text with its lines broken between words to fit a terminal; files and pipes get it as it is.

    >>> print(_broken("- one two /a/long/path", Console(force_terminal=True, width=10)))
    - one two
      /a/long/path
    """
    if not there.is_terminal:
        return text
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip(" -")))  # what follows a dash stands below its first word
        whole = not line.strip() or line.startswith("privbench ", len(indent))
        broken = wrap(line, there.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += [line] if whole else broken
    return "\n".join(lines)


def show(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], *, footer: Sequence[str] = ()) -> None:
    """Print a table; a header that starts with ``>`` makes its column right-aligned."""
    say(title, style="bold")
    grid = Grid(box=SIMPLE_HEAD, pad_edge=False, show_footer=bool(footer))
    for position, header in enumerate(headers):
        last = Text(footer[position] if footer else "")
        justify: Literal["left", "right"] = "right" if header.startswith(">") else "left"
        grid.add_column(header.lstrip(">"), footer=last, justify=justify, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console().print(grid)


def print_json(data: Mapping[str, Any]) -> None:
    """Print ``data`` as JSON, as the only text on standard output."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: float) -> float | None:
    """Return ``value``, or None if it has no JSON form.

    >>> finite(0.5), finite(float("inf"))
    (0.5, None)
    """
    return value if math.isfinite(value) else None


def subject(step: Step) -> str:
    """Return the table, key or part that a step is about."""
    return "/".join(step.key[1:]) or step.table


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
        sys.stderr.write(_broken(_message(error), console(stderr=True)) + "\n")
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
