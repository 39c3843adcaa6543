"""How commands print: tables and lines for people, JSON for scripts."""

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

_WIDTH_OF_A_FILE = 120  # where there is no terminal, nothing need be folded at 80 columns


def console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: no markup, no emoji, no guessing at what to colour."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_OF_A_FILE
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=width)


def say(line: str = "", style: str | None = None) -> None:
    """Print one line; the terminal folds it, so that paths can be copied."""
    console().print(line, style=style, soft_wrap=True)


def show(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], *, footer: Sequence[str] = ()) -> None:
    """Print a table; headers that start with ``>`` are those of right-aligned columns."""
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
    """Print ``data`` as JSON, on standard output and nothing else there."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def finite(value: float) -> float | None:
    """``value``, or None where it has no JSON form.

    >>> finite(0.5), finite(float("inf"))
    (0.5, None)
    """
    return value if math.isfinite(value) else None
