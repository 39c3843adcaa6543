"""Print tables and lines for people, and JSON for scripts."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from privbench_core.synthesizers.contract import Step

_WIDTH_WITHOUT_TERMINAL = 120  # chosen by hand: files and pipes need no folding at 80 columns


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is: without markup, emoji and automatic highlighting."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_WITHOUT_TERMINAL
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=width)


def say(line: str = "", style: str | None = None) -> None:
    """Print one line; the terminal folds it, so that paths can be copied."""
    console().print(line, style=style, soft_wrap=True)


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
