"""``privbench run``: the whole plan in one process, a bundle at the end, and what it cost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from privbench_core.commands.interrupted import telling_the_cost
from privbench_core.commands.lifetime import cohort_as_data, raises_as_data, refreshes_as_data
from privbench_core.commands.plan import budget_in_words, unit_in_words
from privbench_core.commands.progress import progress_bar
from privbench_core.commands.terminal import finite, print_json, say, show
from privbench_core.errors import NoiseOnlyError, PublishError
from privbench_core.pipeline.account_status import WARNING, AccountStatus, lifetime_share, standing
from privbench_core.pipeline.plans import plans_for, refuse_undeclared
from privbench_core.pipeline.run import RunResult, run_spec
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Price, zero
from privbench_core.publishing.bundle import is_bundle, read_bundle, refuse_foreign_bundle
from privbench_core.spec.engine import with_engine
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec


@dataclass(frozen=True)
class Options:
    """What the command line says about a run; None leaves the choice to the spec."""

    epsilon: float
    out: Path
    synthesizer: str | None = None
    delta: float | None = None
    seed: int = 0
    scale: float = 1.0
    undeclared_epsilon: bool = False
    accept_noise: bool = False
    workers: int | None = None
    engine: str | None = None
    csv: bool = True


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


def run_and_tell(path: Path, options: Options, *, as_json: bool) -> None:
    """Run the plan of a spec and print where the bundle is and what it cost."""
    spec = with_engine(load_spec(path), options.engine)
    if not options.undeclared_epsilon:
        refuse_undeclared(spec, options.epsilon)  # as `run_spec` does, but before anything is opened
    spec = spec.accepting_noise if options.accept_noise else spec
    try:
        outcome = run_with_progress(spec, options)
    except NoiseOnlyError as error:
        if as_json or not _accepted(error):
            raise
        outcome = run_with_progress(spec.accepting_noise, options)
    if as_json:
        print_json(_as_data(spec, outcome))
    else:
        tell(spec, outcome)


def _accepted(error: NoiseOnlyError) -> bool:
    """Ask the owner at a terminal whether to buy noise; no where nobody can answer."""
    if not _at_a_terminal():
        return False
    say(f"Stopped: {error}.", style="bold")
    return typer.confirm("Buy the rest all the same?", default=False)


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def tell_warnings(warnings: Sequence[str]) -> None:
    """Print what speaks against using a bundle, so that nobody misses it."""
    if warnings:
        number = f"{len(warnings)} reason{'s' * (len(warnings) > 1)}"
        say(f"WARNING: {number} to be careful with this bundle", style="bold")
    for line in warnings:
        say(f"  {line}")


def run_with_progress(spec: Spec, options: Options) -> Outcome:
    """Run the plan, with a progress bar on a terminal."""
    _check_room(options.out, spec.schema.name)
    workspace = Workspace(spec)
    try:
        with telling_the_cost(workspace), progress_bar() as progress:
            result = run_spec(
                spec,
                options.epsilon,
                out=options.out,
                delta=options.delta,
                synthesizer=options.synthesizer,
                seed=options.seed,
                scale=options.scale,
                workers=options.workers,
                csv=options.csv,
                undeclared_epsilon=options.undeclared_epsilon,
                progress=progress,
                workspace=workspace,
            )
        rows = {name: int(facts["rows"]) for name, facts in read_bundle(options.out).manifest["tables"].items()}
        return Outcome(result, standing(spec, workspace.ledger, plans_for(spec).values()), rows)
    finally:
        workspace.close()


def _check_room(out: Path, database: str) -> None:
    """Refuse a place that cannot take the bundle now, not after everything has been paid for."""
    if out.is_file():
        raise PublishError(f"{out}: is a file; name a folder for the bundle")
    if out.is_dir() and any(out.iterdir()) and not is_bundle(out):
        raise PublishError(f"{out}: is there already and is not a bundle; choose a new folder, or empty this one")
    refuse_foreign_bundle(out, database)


def tell(spec: Spec, outcome: Outcome) -> None:
    """Print where the bundle is, what is in it, and what it cost."""
    result, balance = outcome.result, outcome.account.balance
    show(f"Bundle: {result.out}", ["table", ">rows"], [[name, f"{rows:,}"] for name, rows in outcome.rows.items()])
    budget = result.plan.budget
    say(f"Unit:       {unit_in_words(spec)}")
    say(f"Guarantee:  {budget_in_words(budget)} for adding or removing a unit")
    say(f"            {budget_in_words(budget.replace_one())} for replacing one")
    say(f"This run:   {_cost(outcome)}")
    life = balance.lifetime
    at = f" (at δ={balance.delta:.2g})" if balance.delta else ""
    say(f"Lifetime:   ε={balance.spent:.4g} of {life.epsilon:g} spent, {balance.left:.4g} left{at}")
    tell_warnings(result.warnings)
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
    swap = budget.replace_one()
    return {
        "database": spec.schema.name,
        "synthesizer": result.plan.synthesizer,
        "bundle": str(result.out),
        "rows": outcome.rows,
        "guarantee": {
            "unit": unit_in_words(spec),
            "add_or_remove_one_unit": {"epsilon": budget.epsilon, "delta": budget.delta},
            "replace_one_unit": {"epsilon": swap.epsilon, "delta": swap.delta},
        },
        "warnings": list(result.warnings),
        "cost": {"measure": str(budget.measure), "paid": result.paid, "reused": outcome.reused},
        "lifetime": {
            "epsilon": balance.lifetime.epsilon,
            "delta": balance.lifetime.delta,
            "spent": finite(balance.spent),
            "spent_at_delta": balance.delta,
            "left": balance.left,
            "raised": raises_as_data(outcome.account),
        },
        "cohort": cohort_as_data(spec, outcome.account),
        "refreshes": refreshes_as_data(spec, outcome.account),
    }
