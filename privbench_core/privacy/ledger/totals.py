"""What the reservations of an account add up to, kept up with: a long ledger is read once, not at each reservation.

Rows are only ever added, by one transaction at a time, and each takes its number while no other can: whoever has read
up to a number has read all that there will ever be below it. The results of reservations come in any order, so those
that had none when they were read are asked for again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from privbench_core.privacy.budget import Measure
from privbench_core.privacy.ledger.refresh_limits import AccountSpend, Purchase
from privbench_core.privacy.ledger.store import LedgerStore

_AT_ONCE = 5_000  # numbers in one statement
_READ = """
select id, run, step, measure, amount, rho, delta, case when result.reservation is null then 0 else 1 end
from reservation left join result on result.reservation = reservation.id
where database = ? and account = ? and id > ?
union all select 0, '', '', '', 0, 0, 0, count(*) from result where reservation >= ?"""


@dataclass
class RunningTotal:
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
        results: How many results there were of the first of these and of all reservations after it; None if unknown.
    """

    connection: int
    last: int = 0
    pure: bool = True
    epsilon: float = 0.0
    rho: float = 0.0
    delta: float = 0.0
    bought: Counter[Purchase] = field(default_factory=Counter)
    unreleased: dict[int, Purchase] = field(default_factory=dict)
    results: int | None = None

    def spent(self) -> AccountSpend:
        """What was paid, and for how many refreshes."""
        return AccountSpend(self.pure and self.delta == 0, self.epsilon, self.rho, self.delta, dict(self.bought))

    def read(self, store: LedgerStore, database: str, account: str) -> None:
        """Add the reservations and the results that came since the last reading.

        One statement where nothing was released meanwhile: others may wait for the lock.
        """
        first = self._first()
        rows = store.query(_READ, (database, account, self.last, first or self.last + 1))
        results = next(row[-1] for row in rows if not row[0])
        if first and results != self.results:
            self._read_results(store)
        for number, run, step, measure, amount, rho, delta, released in sorted(row for row in rows if row[0]):
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
            self.last = number
        self.results = results if first and first == self._first() else None

    def _first(self) -> int:
        """Number of the first unreleased reservation, 0 if there is none."""
        return next(iter(self.unreleased), 0)

    def _read_results(self, store: LedgerStore) -> None:
        waiting = list(self.unreleased)
        for start in range(0, len(waiting), _AT_ONCE):
            some = waiting[start : start + _AT_ONCE]
            marks = ", ".join("?" * len(some))
            for (number,) in store.query(f"select reservation from result where reservation in ({marks})", some):
                self.bought[self.unreleased.pop(number)] += 1
