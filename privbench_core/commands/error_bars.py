"""``privbench replicate``, and error bars: how far answers on a bundle may be from those on the source."""

from __future__ import annotations

from pathlib import Path

from privbench_core.api import error_bars, replicate
from privbench_core.commands.run import progress_bar
from privbench_core.commands.terminal import print_json, say, show
from privbench_core.explain.error_bars import LEVEL, ROWS, Interval

_SQL = 60  # characters of a query that are shown


def add_replicates(spec: Path, bundle: Path, number: int) -> None:
    """Add replicates to a bundle, with a progress bar on a terminal."""
    with progress_bar() as progress:
        replicate(spec, bundle, number, progress=progress)
    say(f"{number} replicates are in {bundle}. They cost no budget, and may be given away with it.")
    say(f"Error bars: privbench explain {bundle} --workload queries.sql --error-bars")


def show_error_bars(bundle: Path, workload: Path | None, *, as_json: bool) -> None:
    """Print an interval for each answer of a workload on the source."""
    found = error_bars(bundle, workload)
    if as_json:
        print_json(found.to_dict())
        return
    title = f"Answers on the bundle, and {LEVEL:.0%} intervals for the answers on the source"
    headers = [">query", "text", ">bundle", ">from", ">to"]
    show(title, headers, [_row(each) for each in found.intervals])
    if any(each.widened is None for each in found.intervals):
        numbers = ", ".join(dict.fromkeys(str(each.query) for each in found.intervals if each.widened is None))
        say(f"Without what the models leave out, because noise hides the fidelity figures: queries {numbers}")
    for number, reason in found.failed:
        say(f"Query {number} has no error bars: {reason}")


def _row(each: Interval) -> list[str]:
    text = " ".join(each.sql.split())
    text = text if each.answers == ROWS else f"{each.answers} of {text}"
    shown = text if len(text) <= _SQL else f"{text[: _SQL - 1]}…"
    return [str(each.query), shown, *(f"{number:,.6g}" for number in (each.answer, each.low, each.high))]
