"""At the start of a run, the price of all that it has still to buy is held in the ledger, once.

Every front end comes here by way of `Executor`. The hold is advisory (`privacy.ledger.holds`): it lasts as long as the
lock that the run's process has in the state folder, so nobody waits for a run that was killed.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

from privbench_core.errors import BudgetExhaustedError, LedgerError
from privbench_core.pipeline.runner import Runner
from privbench_core.privacy.budget import zero
from privbench_core.synthesizers.contract import Key, Step


@contextmanager
def held(
    runner: Runner, what: str, steps: Collection[Key] | None = None, made: Mapping[Key, str] | None = None
) -> Iterator[None]:
    """Hold the price of all that is unpaid until the block ends, and give back what was not reserved by then.

    Args:
        runner: Of the plan; its steps are then taken out of the hold.
        what: What is about to run, as the refusal calls it.
        steps: As in `Runner.unpaid`.
        made: As in `Runner.unpaid`.

    Raises:
        BudgetExhaustedError: The lifetime budget or the refresh policy has too little left, or another run holds it;
            nothing was spent.
    """
    mark = secrets.token_hex(16)
    with runner.workspace.at_work(mark, what):
        number = _hold(runner, what, steps, made, mark)
        try:
            yield
        finally:
            if number is not None:
                with suppress(LedgerError):  # a hold ends with its lock, too
                    runner.workspace.ledger.end_hold(number)


def _hold(
    runner: Runner, what: str, steps: Collection[Key] | None, made: Mapping[Key, str] | None, mark: str
) -> int | None:
    """Hold the price of what is unpaid; None if nothing is: what was bought stays usable under a lowered budget."""
    while unpaid := runner.unpaid(steps, made):
        try:
            return _hold_all(runner, what, unpaid, mark)
        except BudgetExhaustedError:
            if runner.unpaid(steps, made) == unpaid:
                raise  # else another process has bought something in between
    return None


def _hold_all(runner: Runner, what: str, unpaid: Collection[Step], mark: str) -> int:
    cost = sum((step.price for step in unpaid), start=zero(runner.plan.budget.measure))
    purchases = [(runner.run.name, "/".join(step.key)) for step in unpaid]
    account = runner.workspace.spec.cohort
    return runner.workspace.ledger.hold(what, cost, runner.purpose, mark, account, purchases)
