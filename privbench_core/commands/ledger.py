"""``privbench ledger``: what has been spent, by run and step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import reduce
from itertools import groupby
from operator import add
from pathlib import Path

from privbench_core.commands.lifetime import cohort_as_data, lifetime_as_data, refreshes_as_data, standing_of
from privbench_core.commands.plan import budget_in_words, tell_neighbours, tell_refreshes, unit_in_words
from privbench_core.commands.terminal import finite, print_json, say, show
from privbench_core.pipeline.account_status import AccountStatus
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Measure, Price, zero
from privbench_core.privacy.ledger.ledger import Entry
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec

_RESERVED = "reserved"


@dataclass(frozen=True)
class _Line:
    """Entries of one run and step, added up; refreshes make several.

    Attributes:
        times: How many entries.
        price: Their sum.
        state: "reserved" if the result of any of them was not stored.
        at: When the last one was reserved.
    """

    run: str
    step: str
    times: int
    price: Price
    state: str
    at: str


def show_ledger(path: Path, *, as_json: bool) -> None:
    """Print the lifetime budget and every entry of the ledger."""
    spec = load_spec(path)
    account = standing_of(spec)
    balance, life = account.balance, account.balance.lifetime
    if as_json:
        print_json({
            "database": spec.schema.name,
            "unit": unit_in_words(spec),
            "cohort": cohort_as_data(spec, account),
            "other_databases": [asdict(other) for other in account.neighbours],
            "lifetime": {"epsilon": life.epsilon, "delta": life.delta},
            "lifetimes_declared": [lifetime_as_data(declared) for declared in account.declared],
            "held": [
                {"measure": str(hold.left.measure), "amount": hold.left.amount, "delta": hold.left.delta, "at": hold.at}
                for hold in account.held
            ],
            "spent": finite(balance.spent),
            "spent_at_delta": balance.delta,
            "left": balance.left,
            "rho_left": balance.rho_left,
            "refreshes": refreshes_as_data(spec, account),
            "reserved": {str(m): price.amount for m, price in _totals(account.entries, state=_RESERVED).items()},
            "entries": [
                {
                    "step": entry.step,
                    "run": entry.run,
                    "measure": str(entry.price.measure),
                    "amount": entry.price.amount,
                    "delta": entry.price.delta,
                    "at": entry.at,
                    "state": entry.state,
                }
                for entry in account.entries
            ],
        })  # fmt: skip
        return
    if not account.entries:
        say(f"{_title(spec)}: nothing is spent; the lifetime budget is {budget_in_words(life)}.")
        _tell_declared(account)
        tell_refreshes(spec, account)
        tell_neighbours(spec, account)
        return
    rows = [
        [
            line.run.replace("epsilon=", "ε="),
            line.step,
            str(line.price),
            str(line.times),
            line.state,
            line.at.partition("T")[0],
        ]
        for line in _lines(account.entries)
    ]
    headers = ["run", "step", ">price", ">times", "state", "last"]
    show(f"{_title(spec)}: paid for {unit_in_words(spec)}", headers, rows)
    say(f"Lifetime: {budget_in_words(life)}")
    _tell_declared(account)
    say(f"Spent:    ε={balance.spent:.4g} at δ={balance.delta:.2g} ({_sums(account.entries)})")
    reserved = _totals(account.entries, state=_RESERVED)
    if reserved:
        what = _sums(e for e in account.entries if e.state == _RESERVED)
        say(f"Reserved: {what} of this, by a step that is running or was killed; it counts as spent")
    rho = f" (ρ={balance.rho_left:.4g})" if life.delta else ""
    part = balance.rho_left / life.total().amount if life.delta else balance.left / life.epsilon
    say(f"Left:     {part:.1%} of the lifetime: ε={balance.left:.4g}{rho}")
    tell_refreshes(spec, account)
    tell_neighbours(spec, account)


def _tell_declared(account: AccountStatus) -> None:
    """Print each lifetime budget that was declared, where there were several."""
    if len(account.declared) > 1:
        each = ", ".join(f"{budget_in_words(one.budget)} on {one.at.partition('T')[0]}" for one in account.declared)
        say(f"Declared: {each}")


def _title(spec: Spec) -> str:
    return f"{spec.schema.name}, cohort {spec.cohort}" if spec.cohort else spec.schema.name


def take_new_state(path: Path) -> None:
    """Tie the ledger and the state folder that the spec names to each other, where one of them was lost."""
    Workspace(load_spec(path), new_state=True).close()


def _lines(entries: Iterable[Entry]) -> list[_Line]:
    """One line per run, step and currency, in the order in which they first appeared."""
    order: dict[tuple[str, str, Measure], int] = {}
    for entry in entries:
        order.setdefault(_kind(entry), len(order))
    grouped = groupby(sorted(entries, key=lambda e: order[_kind(e)]), key=_kind)
    return [reduce(_merge, (_Line(e.run, e.step, 1, e.price, e.state, e.at) for e in group)) for _, group in grouped]


def _kind(entry: Entry) -> tuple[str, str, Measure]:
    return entry.run, entry.step, entry.price.measure


def _merge(line: _Line, other: _Line) -> _Line:
    state = _RESERVED if _RESERVED in {line.state, other.state} else line.state
    times = line.times + other.times
    return replace(line, times=times, price=line.price + other.price, state=state, at=max(line.at, other.at))


def _totals(entries: Iterable[Entry], state: str | None = None) -> dict[Measure, Price]:
    """Sum per currency: pure and zCDP prices do not add."""
    prices: dict[Measure, list[Price]] = {}
    for entry in entries:
        if state is None or entry.state == state:
            prices.setdefault(entry.price.measure, []).append(entry.price)
    return {measure: reduce(add, found, zero(measure)) for measure, found in prices.items()}


def _sums(entries: Iterable[Entry]) -> str:
    return " and ".join(str(price) for price in _totals(entries).values())
