"""What a lifetime budget has left, now and after a plan, without opening a state folder that is not there yet."""

from __future__ import annotations

from dataclasses import dataclass

from privbench_core.errors import BudgetExhaustedError
from privbench_core.pipeline.workspace import open_ledger
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.ledger import Balance, Entry, Ledger
from privbench_core.schema.spec import Spec
from privbench_core.synthesizers.contract import Plan


@dataclass(frozen=True)
class Account:
    """The ledger of a spec as it stands.

    Attributes:
        entries: All reservations, oldest first; none if nothing has been run.
        balance: What is spent and left.
    """

    entries: tuple[Entry, ...]
    balance: Balance


def account_of(spec: Spec) -> Account:
    """Read the ledger; a spec that was never run has an empty one, and none is made here.

    Raises:
        BudgetError: The ledger protects another unit than the spec.
    """
    if spec.ledger is None and not spec.state.exists():
        return Account((), _empty(spec).balance())
    ledger = open_ledger(spec)
    try:
        return Account(tuple(ledger.entries()), ledger.balance())
    finally:
        ledger.close()


def balance_after(spec: Spec, account: Account, plan: Plan) -> Balance | None:
    """The balance once all of ``plan`` is paid for, None if the lifetime budget refuses.

    Replays the entries in a ledger in memory, so that the answer is the one the real ledger will give.
    """
    trial = _empty(spec)
    try:
        for entry in account.entries:
            trial.reserve("", entry.step, entry.run, entry.price)
        for step in plan.steps:
            if step.reads:
                trial.reserve("", "/".join(step.key), "", step.price)
    except BudgetExhaustedError:
        return None
    finally:
        balance = trial.balance()
        trial.close()
    return balance


def _empty(spec: Spec) -> Ledger:
    lifetime = Budget(spec.lifetime_epsilon, spec.lifetime_delta)
    return Ledger(":memory:", spec.schema.name, spec.schema.unit, lifetime)
