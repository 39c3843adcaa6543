"""What a lifetime budget has left, now and after a plan, without opening a state folder that is not there yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from privbench_core.commands.terminal import finite
from privbench_core.errors import BudgetExhaustedError
from privbench_core.pipeline.account_status import AccountStatus, standing
from privbench_core.pipeline.plans import plans_for, run_name
from privbench_core.pipeline.workspace import open_ledger
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.ledger.balance import Balance
from privbench_core.privacy.ledger.declarations import DeclaredLifetime
from privbench_core.privacy.ledger.ledger import Entry, Ledger
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan


@contextmanager
def reading_ledger(spec: Spec) -> Iterator[Ledger]:
    """The ledger of a spec; one that was never run has an empty one, and none is made here.

    Raises:
        BudgetError: The ledger protects another unit than the spec.
    """
    ledger = _empty(spec) if spec.ledger is None and not spec.state.exists() else open_ledger(spec)
    try:
        yield ledger
    finally:
        ledger.close()


def standing_of(spec: Spec) -> AccountStatus:
    """Where the account of a spec stands.

    Raises:
        BudgetError: The ledger protects another unit than the spec.
    """
    with reading_ledger(spec) as ledger:
        return standing(spec, ledger, plans_for(spec).values())


def balance_after(spec: Spec, entries: Iterable[Entry], plan: Plan) -> Balance | None:
    """The balance once all of ``plan`` is paid for, None if the lifetime budget or the refresh policy refuses.

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
                trial.reserve("", "/".join(step.key), run_name(plan.budget.epsilon), step.price)
    except BudgetExhaustedError:
        return None
    finally:
        balance = trial.balance()
        trial.close()
    return balance


def refreshes_as_data(spec: Spec, standing: AccountStatus) -> dict[str, Any]:
    """What is said about refreshes, for scripts."""
    return {
        "policy": spec.refresh.in_words() if spec.refresh else None,
        "begun": standing.refresh,
        "left": standing.left,
        "price": {
            "measure": str(standing.price.measure),
            "amount": standing.price.amount,
            "delta": standing.price.delta,
            "epsilon": standing.epsilon,
        },
        "refusal": standing.refusal,
    }


def raises_as_data(standing: AccountStatus) -> list[dict[str, Any]]:
    """The lifetime budgets that allow more than the one declared before, for scripts."""
    return [{**lifetime_as_data(after), "before": lifetime_as_data(before)} for before, after in standing.raises]


def lifetime_as_data(declared: DeclaredLifetime) -> dict[str, Any]:
    """A declared lifetime budget, for scripts."""
    return {"epsilon": declared.budget.epsilon, "delta": declared.budget.delta, "at": declared.at}


def cohort_as_data(spec: Spec, standing: AccountStatus) -> dict[str, Any]:
    """The cohort, and what the others have spent, for scripts."""
    return {
        "name": spec.cohort or None,
        "others": {name: finite(balance.spent) for name, balance in standing.others.items()},
    }


def _empty(spec: Spec) -> Ledger:
    lifetime = Budget(spec.lifetime_epsilon, spec.lifetime_delta)
    return Ledger(":memory:", spec.schema.name, spec.schema.unit_in_words, lifetime, spec.refresh)
