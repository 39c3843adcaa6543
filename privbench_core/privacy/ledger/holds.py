"""Holds: what a run has still to buy is held in its account, so that no other run takes it meanwhile.

A hold is made once, at the start of a run, in the transaction that checks that the whole run is affordable. Each
reservation of the run is taken out of it; what remains counts as spent for other runs, and is free again when the run
ends. Holds only ever refuse more: no reservation is let in because of one, and no part of the guarantee rests on them.
So a hold whose process is gone may be treated as ended without any harm.

Runs that buy the same releases (one plan on one state of the source) have one *purpose*. They buy each step once, the
others wait and reuse it, so of their holds only the largest counts, and none refuses another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.ledger.store import LedgerStore

Alive = Callable[[str], bool]
"""Returns whether the process that made the hold with a mark is still at work."""
_OPEN = """
select hold.id, hold.purpose, hold.mark, hold.at, hold.measure, hold.amount, hold.delta,
    coalesce(sum(reservation.amount), 0), coalesce(sum(reservation.delta), 0)
from hold
left join hold_draw on hold_draw.hold = hold.id
left join reservation on reservation.id = hold_draw.reservation
where hold.database = ? and hold.account = ?
    and not exists (select 1 from hold_end where hold_end.hold = hold.id)
group by hold.id order by hold.id"""
_DRAW = """
insert into hold_draw(hold, reservation, at) select id, ?, ? from hold
where database = ? and account = ? and purpose = ?
    and not exists (select 1 from hold_end where hold_end.hold = hold.id)"""
_END = """
insert into hold_end(hold, at) select id, ? from hold
where id = ? and not exists (select 1 from hold_end where hold_end.hold = hold.id)"""


@dataclass(frozen=True)
class Hold:
    """A hold that has not ended.

    Attributes:
        id: Its number.
        purpose: Pseudonym of what the run buys; runs with the same one buy it together.
        mark: Name of the lock that the run's process has while it is at work.
        at: When it was made, by the clock of the machine that made it.
        left: What the run has still to buy.
    """

    id: int
    purpose: str
    mark: str
    at: str
    left: Price


def open_holds(store: LedgerStore, database: str, account: str) -> list[Hold]:
    """Return the holds of an account that nobody has ended, those of killed processes among them."""
    rows = store.query(_OPEN, (database, account))
    return [
        Hold(int(number), purpose, mark, at, Price(Measure(measure), _rest(amount, drawn), _rest(delta, drawn_delta)))
        for number, purpose, mark, at, measure, amount, delta, drawn, drawn_delta in rows
    ]


def held_by_others(holds: Iterable[Hold], purpose: str, alive: Alive) -> list[Hold]:
    """Return the largest hold of each other purpose that a living process has something left in."""
    largest: dict[str, Hold] = {}
    for hold in holds:
        there = largest.get(hold.purpose)
        something = hold.left.amount > 0 or hold.left.delta > 0
        if hold.purpose != purpose and something and (there is None or hold.left.amount > there.left.amount):
            largest |= {hold.purpose: hold} if alive(hold.mark) else {}
    return list(largest.values())


def insert_hold(store: LedgerStore, database: str, account: str, hold: Hold) -> int:
    """Record a hold, inside a transaction, and return its number; that in ``hold`` is not used."""
    price = (hold.left.measure.value, hold.left.amount, hold.left.delta)
    ((number,),) = store.query(
        "insert into hold(database, account, purpose, mark, measure, amount, delta, at)"
        " values (?, ?, ?, ?, ?, ?, ?, ?) returning id",
        (database, account, hold.purpose, hold.mark, *price, hold.at),
    )
    return int(number)


def draw(store: LedgerStore, database: str, account: str, purpose: str, reservation: int, at: str) -> None:
    """Take a reservation out of the open holds of its purpose; inside a transaction."""
    store.query(_DRAW, (reservation, at, database, account, purpose))


def end(store: LedgerStore, hold: int, at: str) -> None:
    """End a hold unless another process has done so; inside a transaction."""
    store.query(_END, (at, hold))


def _rest(whole: float, drawn: float) -> float:
    return max(0.0, float(whole) - float(drawn))
