"""What the reservations of an account add up to, kept up with: a long ledger is read once, not at each reservation.

Rows are only ever added, by one transaction at a time, and each takes its number while no other can: whoever has read
up to a number has read all that there will ever be below it. The results of reservations come in any order, so those
that had none when they were read are asked for again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from privbench_core.privacy.budget import Measure
from privbench_core.privacy.ledger_store import LedgerStore
from privbench_core.privacy.refresh import Purchase, Spent

_MANY = 5_000  # numbers in one statement
_RESERVATIONS = """
select id, run, step, measure, amount, rho, delta, case when result.reservation is null then 0 else 1 end
from reservation left join result on result.reservation = reservation.id
where database = ? and account = ? and id > ?"""


@dataclass
class Tally:
    """The sums over an account's reservations, as far as they have been read.

    Attributes:
        connection: Over which they were read. A server that is connected to anew may be an old copy of the one before,
            whose numbers begin again, so nothing is taken along.
        last: Number of the last one.
        pure: Whether all of them are pure.
        epsilon: Sum of the pure prices.
        rho: Sum of all prices in zCDP.
        delta: Sum of the thresholds' δ.
        bought: How often each step was bought at each ε.
        unreleased: Those whose result was not stored yet, by number.
    """

    connection: int
    last: int = 0
    pure: bool = True
    epsilon: float = 0.0
    rho: float = 0.0
    delta: float = 0.0
    bought: Counter[Purchase] = field(default_factory=Counter)
    unreleased: dict[int, Purchase] = field(default_factory=dict)

    def spent(self) -> Spent:
        """What was paid, and for how many refreshes."""
        return Spent(self.pure and self.delta == 0, self.epsilon, self.rho, self.delta, dict(self.bought))

    @property
    def long(self) -> bool:
        """Whether so many results are missing that reading everything anew asks for less."""
        return len(self.unreleased) > _MANY

    def read(self, store: LedgerStore, database: str, account: str, *, results: bool) -> None:
        """Add the reservations that came since the last reading and, if ``results``, the results of earlier ones.

        One statement for both: others may wait for the lock meanwhile.
        """
        waiting = list(self.unreleased) if results else []
        rows = store.query(f"{_RESERVATIONS}{_results(len(waiting))}", (database, account, self.last, *waiting))
        for number, run, step, measure, amount, rho, delta, released in rows:
            if number <= self.last:
                self.bought[self.unreleased.pop(number)] += 1
                continue
            if measure == Measure.PURE:
                self.epsilon += amount
            else:
                self.pure = False
            self.rho += rho
            self.delta += delta
            if released:
                self.bought[run, step] += 1
            else:
                self.unreleased[number] = (run, step)
        self.last = max((self.last, *(row[0] for row in rows)))


def _results(number: int) -> str:
    """What asks for the results of so many reservations, too."""
    if not number:
        return ""
    marks = ", ".join("?" * number)
    return f" union all select reservation, '', '', '', 0, 0, 0, 1 from result where reservation in ({marks})"
