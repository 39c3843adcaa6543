"""Running totals of the reservations of an account, so that a long ledger is read once, not at each reservation.

Rows are only ever added, by one transaction at a time, and each gets its number inside of it: once a number has been
read, no row will appear below it. The results of reservations come in any order, so reservations that had none when
they were read are queried again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from privbench_core.privacy.budget import Measure
from privbench_core.privacy.ledger.refresh_limits import AccountSpend, Purchase
from privbench_core.privacy.ledger.store import LedgerStore

_BATCH = 5_000  # numbers in one statement; chosen by hand, far below the limit of parameters of either database
_READ = """
select id, run, step, measure, amount, rho, delta, case when result.reservation is null then 0 else 1 end
from reservation left join result on result.reservation = reservation.id
where database = ? and account = ? and id > ?
union all select 0, '', '', '', 0, 0, 0, count(*) from result where reservation >= ?"""


@dataclass
class RunningTotal:
    """Totals of an account's reservations, as far as they have been read.

    Attributes:
        connection: The connection they were read over. After a reconnection the server may be an older copy, so totals
            of another connection are not used.
        last: Number of the last reservation.
        pure: Whether all of them are pure.
        epsilon: Sum of the pure prices.
        rho: Sum of all prices in zCDP.
        delta: Sum of the thresholds' δ.
        bought: How often each step was bought at each ε.
        unreleased: Reservations without a stored result, by number.
        results: Number of results of the first unreleased reservation and of all after it; None if unknown.
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
        """Return what was paid, and for how many refreshes."""
        return AccountSpend(self.pure and self.delta == 0, self.epsilon, self.rho, self.delta, dict(self.bought))

    def read(self, store: LedgerStore, database: str, account: str) -> None:
        """Add the reservations and the results since the last reading, by one statement if no result is new."""
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
        """Return the number of the first unreleased reservation, 0 if there is none."""
        return next(iter(self.unreleased), 0)

    def _read_results(self, store: LedgerStore) -> None:
        pending = list(self.unreleased)
        for start in range(0, len(pending), _BATCH):
            batch = pending[start : start + _BATCH]
            marks = ", ".join("?" * len(batch))
            for (number,) in store.query(f"select reservation from result where reservation in ({marks})", batch):
                self.bought[self.unreleased.pop(number)] += 1
