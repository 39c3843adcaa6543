"""``privbench ledger``: what has been spent, by run and step; and what all commands say about the account of a spec.

A state folder that is not there yet is not made for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from privbench_core.commands import finite, print_json, say, show
from privbench_core.errors import BudgetExhaustedError
from privbench_core.pipeline import plans_for, run_name
from privbench_core.pipeline.account_status import AccountStatus, standing
from privbench_core.pipeline.record import step_name
from privbench_core.pipeline.workspace import Workspace, open_ledger
from privbench_core.privacy.budget import Budget, Measure, Price, zero
from privbench_core.privacy.ledger.balance import Balance
from privbench_core.privacy.ledger.declarations import DeclaredLifetime
from privbench_core.privacy.ledger.ledger import Entry, Ledger
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan

_RESERVED = "reserved"


def show_ledger(path: Path, *, as_json: bool) -> None:
    """Print the lifetime budget and every entry of the ledger."""
    spec = load_spec(path)
    account = standing_of(spec)
    if as_json:
        print_json(_as_data(spec, account))
        return
    title = f"{spec.schema.name}, cohort {spec.cohort}" if spec.cohort else spec.schema.name
    declared = ", ".join(f"{budget_in_words(one.budget)} on {one.at.partition('T')[0]}" for one in account.declared)
    life = account.balance.lifetime
    if account.entries:
        headers = ["run", "step", ">price", ">times", "state", "last"]
        show(f"{title}: paid for {spec.schema.unit_in_words}", headers, _rows(account.entries))
        say(f"Lifetime: {budget_in_words(life)}")
    else:
        say(f"{title}: nothing is spent; the lifetime budget is {budget_in_words(life)}.")
    if len(account.declared) > 1:
        say(f"Declared: {declared}")
    if account.entries:
        _report_spent(account)
    report_refreshes(spec, account)
    report_neighbours(spec, account)


def take_new_state(path: Path) -> None:
    """Tie the ledger and the state folder that the spec names to each other, where one of them was lost."""
    Workspace(load_spec(path), new_state=True).close()


@contextmanager
def reading_ledger(spec: Spec) -> Iterator[Ledger]:
    """Yield the ledger of a spec; one that was never run has an empty one, and none is made here.

    Raises:
        BudgetError: The ledger protects another unit than the spec.
    """
    ledger = _empty(spec) if spec.ledger is None and not spec.state.exists() else open_ledger(spec)
    try:
        yield ledger
    finally:
        ledger.close()


def standing_of(spec: Spec) -> AccountStatus:
    """Return where the account of a spec stands.

    Raises:
        BudgetError: The ledger protects another unit than the spec.
    """
    with reading_ledger(spec) as ledger:
        return standing(spec, ledger, plans_for(spec).values())


def balance_after(spec: Spec, entries: Iterable[Entry], plan: Plan) -> Balance | None:
    """Return the balance once all of ``plan`` is paid for, None if the lifetime budget or the refresh policy refuses.

    Replays the entries in a ledger in memory, so that the answer is the one the real ledger will give.
    """
    trial = _empty(spec)
    trial.policy = None
    try:
        for entry in entries:
            number = trial.reserve("", entry.step, entry.run, entry.price)
            if entry.state == "released":
                trial.release(number, "")
        trial.policy = spec.refresh  # only now: what was paid under another policy is paid
        for step in plan.steps:
            if step.reads:
                trial.reserve("", step_name(step.key), run_name(plan.budget.epsilon), step.price)
        return trial.balance()
    except BudgetExhaustedError:
        return None
    finally:
        trial.close()


def report_refreshes(spec: Spec, account: AccountStatus) -> None:
    """Print the refresh policy, what a refresh costs, how many more there can be, and what bears on the account."""
    if spec.refresh is not None:
        say(f"Refresh policy: {spec.refresh.in_words()}")
    for line in (*account.in_words(), *account.held_in_words(), *account.others_in_words()):
        say(line)
    for line in account.raises_in_words():
        say(line, style="bold")


def report_neighbours(spec: Spec, account: AccountStatus) -> None:
    """Print which other databases have accounts in the same ledger."""
    for line in account.neighbours_in_words(spec.schema.name):
        say(line)


def budget_in_words(budget: Budget) -> str:
    """ε, and δ if there is one."""
    return f"ε={budget.epsilon:.4g}" + (f", δ={budget.delta:.2g}" if budget.delta else ", δ=0")


def price_as_data(price: Price) -> dict[str, Any]:
    """Return a price, for scripts."""
    return {"measure": str(price.measure), "amount": price.amount, "delta": price.delta}


def lifetime_as_data(account: AccountStatus, **more: Any) -> dict[str, Any]:
    """Return the lifetime budget, what is spent of it, and whether it was raised, for scripts."""
    life = account.balance.lifetime
    spent = {"epsilon": life.epsilon, "delta": life.delta, "spent": finite(account.balance.spent)}
    raised = [{**_declared_as_data(after), "before": _declared_as_data(before)} for before, after in account.raises]
    return {**spent, **more, "raised": raised}


def refreshes_as_data(spec: Spec, account: AccountStatus) -> dict[str, Any]:
    """Return what is said about refreshes, for scripts."""
    return {
        "policy": spec.refresh.in_words() if spec.refresh else None,
        "begun": account.refresh,
        "left": account.whole.times,
        "price": {**price_as_data(account.price), "epsilon": account.epsilon},
        "refusal": account.whole.refusal,
    }


def cohort_as_data(spec: Spec, account: AccountStatus) -> dict[str, Any]:
    """Return the cohort, and what the others have spent, for scripts."""
    others = {name: finite(balance.spent) for name, balance in account.others.items()}
    return {"name": spec.cohort or None, "others": others}


def _as_data(spec: Spec, account: AccountStatus) -> dict[str, Any]:
    balance, life = account.balance, account.balance.lifetime
    return {
        "database": spec.schema.name,
        "unit": spec.schema.unit_in_words,
        "cohort": cohort_as_data(spec, account),
        "other_databases": [asdict(other) for other in account.neighbours],
        "lifetime": {"epsilon": life.epsilon, "delta": life.delta},
        "lifetimes_declared": [_declared_as_data(declared) for declared in account.declared],
        "held": [{**price_as_data(hold.left), "at": hold.at} for hold in account.held],
        "spent": finite(balance.spent),
        "spent_at_delta": balance.delta,
        "left": balance.left,
        "rho_left": balance.rho_left,
        "refreshes": refreshes_as_data(spec, account),
        "reserved": {str(m): price.amount for m, price in _totals(_reserved(account.entries)).items()},
        "entries": [
            {"step": e.step, "run": e.run, **price_as_data(e.price), "at": e.at, "state": e.state}
            for e in account.entries
        ],
    }


def _declared_as_data(declared: DeclaredLifetime) -> dict[str, Any]:
    return {"epsilon": declared.budget.epsilon, "delta": declared.budget.delta, "at": declared.at}


def _report_spent(account: AccountStatus) -> None:
    """Print what is spent, reserved and left."""
    balance, life = account.balance, account.balance.lifetime
    say(f"Spent:    ε={balance.spent:.4g} at δ={balance.delta:.2g} ({_sums(account.entries)})")
    if reserved := _reserved(account.entries):
        say(f"Reserved: {_sums(reserved)} of what is spent, by a step that is running or was killed")
    rho = f" (ρ={balance.rho_left:.4g})" if life.delta else ""
    part = balance.rho_left / life.total().amount if life.delta else balance.left / life.epsilon
    say(f"Left:     {part:.1%} of the lifetime: ε={balance.left:.4g}{rho}")


def _rows(entries: Iterable[Entry]) -> list[list[str]]:
    """Entries of one run, step and currency in one row (refreshes make several), in order of their first."""
    grouped: dict[tuple[str, str, Measure], list[Entry]] = {}
    for entry in entries:
        grouped.setdefault((entry.run, entry.step, entry.price.measure), []).append(entry)
    return [
        [
            run.replace("epsilon=", "ε="),
            step,
            _sums(same),
            str(len(same)),
            _RESERVED if _reserved(same) else same[0].state,
            max(entry.at for entry in same).partition("T")[0],
        ]
        for (run, step, _), same in grouped.items()
    ]


def _reserved(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.state == _RESERVED]


def _totals(entries: Iterable[Entry]) -> dict[Measure, Price]:
    """Sum per currency: pure and GDP prices do not add."""
    totals: dict[Measure, Price] = {}
    for entry in entries:
        measure = entry.price.measure
        totals[measure] = totals.get(measure, zero(measure)) + entry.price
    return totals


def _sums(entries: Iterable[Entry]) -> str:
    return " and ".join(str(price) for price in _totals(entries).values())


def _empty(spec: Spec) -> Ledger:
    lifetime = Budget(spec.lifetime_epsilon, spec.lifetime_delta)
    return Ledger(":memory:", spec.schema.name, spec.schema.unit_in_words, lifetime, spec.refresh)
