"""A command that pays, stopped with Ctrl-C or by lack of memory: what it had cost by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from privbench_core.commands.failure import is_stop
from privbench_core.errors import OutOfMemoryError
from privbench_core.pipeline.account_status import lifetime_share
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.ledger.ledger import Entry
from privbench_core.spec.model import Spec


@contextmanager
def telling_the_cost(workspace: Workspace) -> Iterator[None]:
    """Let Ctrl-C and lack of memory say what was paid since: steps that ended are kept, the one that ran is lost."""
    before = workspace.ledger.count()
    try:
        yield
    except OutOfMemoryError as error:
        cost = _in_words(workspace.ledger.entries()[before:], workspace.spec)
        raise OutOfMemoryError(f"{error}. {cost[0].upper()}{cost[1:]}") from None
    except (KeyboardInterrupt, RuntimeError) as error:
        if not is_stop(error):
            raise
        cost = _in_words(workspace.ledger.entries()[before:], workspace.spec)
        raise KeyboardInterrupt(f"stopped; {cost}") from None


def _in_words(entries: Sequence[Entry], spec: Spec) -> str:
    """Return what was paid by a run that did not end: steps that ended are kept, the one that ran is lost."""
    life = Budget(spec.lifetime_epsilon, spec.lifetime_delta)
    prices = {state: [e.price for e in entries if e.state == state] for state in ("released", "reserved")}
    kept, lost = (lifetime_share(life, prices[state]) for state in ("released", "reserved"))
    steps = ", ".join(entry.step for entry in entries if entry.state == "reserved")
    begun = f"{steps} had begun and counts as spent without a result ({lost:.2%})" if steps else ""
    number = len(prices["released"])
    paid = f"{number} step{'s' * (number > 1)} of this run ({kept:.2%} of the lifetime budget)" if kept else ""
    spent = "; ".join(filter(None, (paid, begun))) or "this run had paid for nothing"
    return f"releases so far are kept: {spent}"
