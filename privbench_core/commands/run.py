"""``privbench run``: the whole plan in one process, a bundle at the end, and what it cost."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from privbench_core.commands import NAMED, console, is_stop, print_json, say, show, subject
from privbench_core.commands.ledger import (
    budget_in_words,
    cohort_as_data,
    lifetime_as_data,
    refreshes_as_data,
)
from privbench_core.errors import NoiseOnlyError, OutOfMemoryError
from privbench_core.pipeline import executor, plans_for, refuse_undeclared
from privbench_core.pipeline.account_status import WARNING, AccountStatus, lifetime_share, standing
from privbench_core.pipeline.executor import RunResult, run_spec
from privbench_core.pipeline.receipt import guarantee_of
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Price, zero
from privbench_core.privacy.ledger.ledger import Entry
from privbench_core.publishing import read_bundle, refuse_taken_folder
from privbench_core.publishing.verdicts import Verdict
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec, with_engine
from privbench_core.synthesizers.contract import Step


@dataclass(frozen=True)
class Outcome:
    """What a run left.

    Attributes:
        result: Plan and releases.
        account: Where the cohort's account stands afterwards.
        rows: Per table of the bundle.
    """

    result: RunResult
    account: AccountStatus
    rows: dict[str, int]

    @property
    def reused(self) -> float:
        """Price of the steps that had been released before, in the plan's currency."""
        releases = self.result.releases
        return sum(step.price.amount for step in self.result.plan.steps if releases[step.key].reused)


def run_and_report(
    path: Path,
    epsilon: float,
    out: Path,
    *,
    engine: str | None = None,
    accept_noise: bool = False,
    as_json: bool = False,
    **options: Any,
) -> None:
    """Run the plan of a spec and print where the bundle is and what it cost."""
    spec = with_engine(load_spec(path), engine)
    if not options.get("undeclared_epsilon"):
        refuse_undeclared(spec, epsilon)  # as `run_spec` does, but before anything is opened
    spec = spec.accepting_noise if accept_noise else spec
    try:
        outcome = run_with_progress(spec, epsilon, out, **options)
    except NoiseOnlyError as error:
        if as_json or not _at_a_terminal():
            raise
        say(str(error), style="bold")
        if not typer.confirm("Buy the rest anyway?", default=False):
            raise NoiseOnlyError("nothing more was bought") from None
        outcome = run_with_progress(spec.accepting_noise, epsilon, out, **options)
    if as_json:
        print_json(_as_data(spec, outcome))
    else:
        report_outcome(spec, outcome)


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def report_bundle(title: str, rows: Mapping[str, int], verdicts: Sequence[Verdict]) -> None:
    """Print the rows of each table and how close it is by released figures, worst first and public tables last."""
    lines = [[v.subject, f"{rows[v.subject]:,}", v.grade or "", v.reason] for v in verdicts]
    graded = {verdict.subject for verdict in verdicts}
    lines += [[name, f"{number:,}", "", ""] for name, number in rows.items() if name not in graded]
    show(title, ["table", ">rows", "how close", "why"], lines)


def report_fidelity(verdicts: Sequence[Verdict], lost: Sequence[str]) -> None:
    """Print how many tables need care, and what was lost, so that nobody misses it."""
    if warned := sum(verdict.warns for verdict in verdicts):
        say(f"WARNING: be careful with {warned} of {len(verdicts)} tables", style="bold")
    if lost:
        say("Lost to noise and bounds:", style="bold")
    for line in lost:
        say(f"- {line}")


def run_with_progress(spec: Spec, epsilon: float, out: Path, **options: Any) -> Outcome:
    """Run the plan, with a progress bar on a terminal; ``options`` are others of `run_spec`."""
    refuse_taken_folder(out, spec.schema.name)  # now, not after everything has been paid for
    with closing(Workspace(spec)) as workspace:
        with watched(workspace) as progress:
            result = run_spec(spec, epsilon, out=out, progress=progress, workspace=workspace, **options)
        rows = {name: int(facts["rows"]) for name, facts in read_bundle(out).manifest["tables"].items()}
        return Outcome(result, standing(spec, workspace.ledger, plans_for(spec).values()), rows)


@contextmanager
def progress_bar() -> Iterator[executor.Progress]:
    """Show a progress bar on a terminal; yields a callback that gets each step before it runs."""
    terminal = console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal,
    )

    def progress(number: int, steps: int, step: Step) -> None:
        bar.update(task, description=f"{step.kind} {subject(step)}", completed=number - 1, total=steps)

    with bar:
        task = bar.add_task("reading", total=None)
        yield progress


@contextmanager
def watched(workspace: Workspace) -> Iterator[executor.Progress]:
    """Show a progress bar on a terminal, and let Ctrl-C and lack of memory say what was paid since.

    Yields:
        A callback that gets each step before it runs.

    Raises:
        KeyboardInterrupt: With what was paid: steps that ended are kept, the one that ran is lost.
        OutOfMemoryError: With the same.
    """
    before = workspace.ledger.count()
    try:
        with progress_bar() as progress:
            yield progress
    except OutOfMemoryError as error:
        cost = _paid_in_words(workspace, workspace.ledger.entries()[before:])
        raise OutOfMemoryError(f"{error}. {cost[0].upper()}{cost[1:]}") from None
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_stop(error):
            raise
        raise KeyboardInterrupt(f"stopped; {_paid_in_words(workspace, workspace.ledger.entries()[before:])}") from None


def _paid_in_words(workspace: Workspace, entries: Sequence[Entry]) -> str:
    """Return what was paid by a run that did not end: steps that ended are kept, the one that ran is lost."""
    prices = {state: [e.price for e in entries if e.state == state] for state in ("released", "reserved")}
    kept, lost = (lifetime_share(workspace.ledger.lifetime, prices[state]) for state in ("released", "reserved"))
    steps = ", ".join(entry.step for entry in entries if entry.state == "reserved")
    begun = f"{steps} had begun: its price counts as spent ({lost:.2%}), without a result" if steps else ""
    number = len(prices["released"])
    paid = f"{number} step{'s' * (number > 1)} of this run ({kept:.2%} of the lifetime budget)" if kept else ""
    spent = "; ".join(filter(None, (paid, begun))) or "this run had not paid for anything"
    return f"releases so far are kept: {spent}"


def report_outcome(spec: Spec, outcome: Outcome) -> None:
    """Print where the bundle is, what is in it, and what it cost."""
    result, balance = outcome.result, outcome.account.balance
    report_bundle(f"Bundle: {result.out}", outcome.rows, result.verdicts)
    budget = result.plan.budget
    say(f"Unit:       {spec.schema.unit_in_words}")
    say(f"Guarantee:  {budget_in_words(budget)} for adding or removing a unit")
    say(f"            {budget_in_words(budget.replace_one())} for replacing one")
    say(f"This run:   {_cost(outcome)}")
    life = balance.lifetime
    say(f"Lifetime:   ε={balance.spent:.4g} of {life.epsilon:g} spent, {balance.left:.4g} left")
    if balance.delta > budget.delta:
        say(
            f"            (at the lifetime's δ={balance.delta:.2g}, where the same noise means a smaller ε than at"
            f" δ={budget.delta:.2g})"
        )
    report_fidelity(result.verdicts, result.lost)
    for name, noted in result.workload.items():
        left_out = noted["left_out"]
        say(f"Workload:   {noted['queries']} of {noted['queries'] + len(left_out)} queries of {name} are in the bundle")
        for query in left_out[:NAMED]:
            say(f"- left out: query {query['query']}: {query['reason']}")
        if len(left_out) > NAMED:
            say(f"- and {len(left_out) - NAMED} more, see privacy.workload in MANIFEST.json")
    for line in (*outcome.account.in_words(), *outcome.account.raises_in_words()):
        say(line, style="bold" if line.startswith(WARNING) else None)


def _cost(outcome: Outcome) -> str:
    plan = outcome.result.plan
    symbol = str(zero(plan.budget.measure)).partition("=")[0]
    paid, reused = outcome.result.paid, outcome.reused
    if not paid:
        return f"nothing was paid again: an earlier run bought these releases for {symbol}={reused:.4g}"
    share = lifetime_share(outcome.account.balance.lifetime, [Price(plan.budget.measure, paid)])
    kept = f"; {symbol}={reused:.4g} was not paid again" if reused else ""
    return f"paid {share:.1%} of the lifetime budget ({symbol}={paid:.4g}){kept}"


def _as_data(spec: Spec, outcome: Outcome) -> dict[str, Any]:
    result, balance = outcome.result, outcome.account.balance
    budget = result.plan.budget
    return {
        "database": spec.schema.name,
        "synthesizer": result.plan.synthesizer,
        "bundle": str(result.out),
        "rows": outcome.rows,
        "guarantee": {"unit": spec.schema.unit_in_words, **guarantee_of(budget)},
        "tables": [verdict.to_dict() for verdict in result.verdicts],
        "lost": list(result.lost),
        "workload": dict(result.workload),
        "cost": {"measure": str(budget.measure), "paid": result.paid, "reused": outcome.reused},
        "lifetime": lifetime_as_data(outcome.account, spent_at_delta=balance.delta, left=balance.left),
        "cohort": cohort_as_data(spec, outcome.account),
        "refreshes": refreshes_as_data(spec, outcome.account),
    }
