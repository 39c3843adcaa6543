"""A progress bar for commands that run a plan; quiet where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from privbench_core.commands.plan import subject
from privbench_core.commands.terminal import console
from privbench_core.pipeline import executor
from privbench_core.synthesizers.contract import Step


@contextmanager
def progress_bar() -> Iterator[executor.Progress]:
    """Show a bar; the callback gets each step before it runs."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not console(stderr=True).is_terminal,
    )
    with bar:
        task = bar.add_task("reading", total=None)

        def progress(number: int, steps: int, step: Step) -> None:
            bar.update(task, description=f"{step.kind} {subject(step)}", completed=number - 1, total=steps)

        yield progress
