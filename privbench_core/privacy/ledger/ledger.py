"""The durable, append-only record of what has been spent: a privacy filter over rows in SQLite or PostgreSQL.

A step's whole price is *reserved* in one transaction before any private row is read. After a crash the reservation
stays and counts as spent: the ledger can overstate what was spent, never understate it. The stores serialize these
transactions, and each sees all earlier reservations, so check and entry are atomic: of two processes, on one machine or
several, only one gets the last of the budget. Rows are only ever inserted (triggers refuse anything else, and in
PostgreSQL the role needs no other privilege). Rows are ordered by their numbers; timestamps are information only.

Filter: a reservation is accepted if all entries of its account together satisfy Σρ ≤ ρ and Σδ ≤ δ' of the lifetime
budget, split as `Budget.total` splits every budget, or if all are pure and Σε ≤ lifetime ε. Either sum is a valid
filter for adaptively chosen mechanisms (Rogers et al. 2016; Feldman and Zrnic 2021; Whitehouse et al. 2023), and so is
the disjunction (proof in ``docs/privacy.md``). Accounts are for disjoint sets of units, so together they cost what the
most expensive of them costs (parallel composition).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from privbench_core.errors import BudgetError, BudgetExhaustedError, LedgerError, ReleaseError
from privbench_core.privacy.budget import ROUNDING_SLACK, Budget, Measure, Price, epsilon_for
from privbench_core.privacy.ledger.refresh_limits import AccountSpend, Purchase, RefreshLimits, share_in_words
from privbench_core.privacy.ledger.sqlite import SqliteStore
from privbench_core.privacy.ledger.store import LedgerStore, Row, create_tables
from privbench_core.privacy.ledger.totals import RunningTotal
from privbench_core.spec.location import is_url
from privbench_core.spec.refresh import RefreshPolicy

_ADVICE_ON_REFRESH = "Change privacy.refresh, or publish what was released before."


@dataclass(frozen=True)
class Entry:
    """One reservation: what a step may spend, whether its result was stored, and which account pays."""

    id: int
    step: str
    run: str
    price: Price
    at: str
    state: str
    account: str = ""


@dataclass(frozen=True)
class Balance:
    """The spent and the remaining part of a lifetime budget.

    Attributes:
        lifetime: The declared budget.
        spent: The smallest ε (at ``delta``) that all entries are known to satisfy.
        delta: The lifetime's δ; if that does not cover earlier purchases under a larger one, the last declared δ that
            does.
        left: Lifetime ε minus ``spent``: an upper bound on the ε of one more pure release if all entries are pure, an
            approximation otherwise (zCDP costs add up in ρ, not in ε). 0 if the lifetime's δ is too small.
        rho_left: ρ still available for zCDP releases, 0 for a pure lifetime budget.
    """

    lifetime: Budget
    spent: float
    delta: float
    left: float
    rho_left: float


@dataclass(frozen=True)
class OtherDatabase:
    """Another database with accounts of its own in the same ledger.

    Attributes:
        database: Its name.
        entries: Number of its reservations.
        last: Time of the last one, by the clock of the machine that made it.
    """

    database: str
    entries: int
    last: str


class Ledger:
    """The accounts of one database. Each may spend the whole lifetime budget, so the units of any two must be disjoint.

    A database without cohorts has one account, named "".

    Args:
        place: SQLite file, created if missing; a URL of PostgreSQL, whose tables are created if missing; ":memory:" for
            tests, which makes the ledger not durable.
        database: Name of the database.
        unit: The privacy unit, in words; a database's unit never changes.
        lifetime: The most that may ever be spent. A changed declaration is appended, and the latest counts.
        policy: How the lifetime budget is spread over refreshes; None sets no limit per refresh.

    Raises:
        BudgetError: The ledger protects another unit, or the lifetime's δ is too small for earlier purchases.
        LedgerError: It cannot be used, or has the layout of another version. Every method may raise it.
    """

    def __init__(
        self, place: Path | str, database: str, unit: str, lifetime: Budget, policy: RefreshPolicy | None = None
    ) -> None:
        self.database = database
        self.lifetime = lifetime
        self.policy = policy
        self._store = _open(place)
        self._totals: dict[str, RunningTotal] = {}
        self.durable = self._store.durable
        try:
            create_tables(self._store, _now())
            self._declare(unit)
        except BaseException:
            self._store.close()
            raise

    def close(self) -> None:
        """Close the file or the connection."""
        self._store.close()

    def claim(self, mark: str, *, replace: bool = False) -> None:
        """Bind the ledger to one state folder, which holds its releases and secret.

        Args:
            mark: A pseudonym of the folder.
            replace: Use this folder instead of the last one, which was lost. Its releases must be paid for again.

        Raises:
            ReleaseError: The ledger belongs to another folder: its releases would be bought a second time.
        """
        if not replace and self._marks()[-1:] == [mark]:
            return
        with self._store.transaction():
            known = self._marks()
            if known and known[-1] != mark and not replace:
                message = (
                    f"the ledger of {self.database} belongs to another state folder: what was released with that one"
                    " would be paid for again. Use that folder (machines share it), or, if it is lost, give it up:"
                    " privbench ledger SPEC --new-state"
                )
                raise ReleaseError(message)
            if known[-1:] != [mark]:
                row = (self.database, mark, _now())
                self._store.query("insert into state_folder(database, mark, at) values (?, ?, ?)", row)

    def reserve(self, release: str, step: str, run: str, price: Price, account: str = "") -> int:
        """Reserve ``price`` for a step, durably, and return the reservation's id.

        Raises:
            BudgetExhaustedError: The lifetime budget cannot pay it; nothing was reserved.
        """
        price_row = (price.measure.value, price.amount, price.rho, price.delta)
        with self._store.transaction():
            self.require(step, price, account, [(run, step)])
            ((number,),) = self._store.query(
                "insert into reservation(database, account, release, step, run, measure, amount, rho, delta, at)"
                " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning id",
                (self.database, account, release, step, run, *price_row, _now()),
                last=True,
            )
        return int(number)

    def require(self, what: str, price: Price, account: str = "", purchases: Iterable[Purchase] = ()) -> None:
        """Check that ``price`` could be paid now, without reserving it.

        Args:
            what: The purpose, as the error message names it.
            price: The total.
            account: Who pays.
            purchases: The steps to buy, at which ε: they decide the refresh.

        Raises:
            BudgetExhaustedError: The lifetime budget or the refresh policy does not allow it.
        """
        purchases, total = tuple(purchases), self._total(account)
        if not self._affordable(price, total):
            raise BudgetExhaustedError(self._refusal(what, price, account))
        if self.policy is not None and purchases:
            spent = total.spent()
            refusal = RefreshLimits(self.lifetime, self.policy).refusal(spent, spent.refresh_of(purchases), price)
            if refusal is not None:
                raise BudgetExhaustedError(f"{what}: {refusal}. {_ADVICE_ON_REFRESH}")

    def charge(self, reservation: int, label: str, price: Price) -> None:
        """Record the charge of one measurement inside a reservation, before it reads rows."""
        row = (reservation, label, price.amount, price.delta, _now())
        statement = "insert into charge(reservation, label, amount, delta, at) values (?, ?, ?, ?, ?)"
        with self._store.transaction():
            self._store.query(statement, row)

    def release(self, reservation: int, digest: str) -> None:
        """Mark a reservation as released: its result is stored under ``digest``."""
        row = (reservation, digest, _now())
        with self._store.transaction():
            self._store.query("insert into result(reservation, digest, at) values (?, ?, ?)", row)

    def released(self, release: str) -> frozenset[str]:
        """Return the digests of a release that was bought before; several if processes bought it at the same time."""
        rows = self._store.query(
            "select result.digest from result join reservation on reservation.id = result.reservation"
            " where reservation.database = ? and reservation.release = ?",
            (self.database, release),
        )
        return frozenset(str(row[0]) for row in rows)

    def last_release(self, step: str, account: str = "") -> str | None:
        """Return the key of the result of a step that was stored last, at any ε; None if there is none."""
        rows = self._store.query(
            "select release from reservation join result on result.reservation = reservation.id"
            " where database = ? and account = ? and step = ? order by reservation.id desc limit 1",
            (self.database, account, step),
        )
        return str(rows[0][0]) if rows else None

    def entries(self, account: str | None = None) -> list[Entry]:
        """Return all reservations, oldest first; of one account if ``account`` is given."""
        rows = self._store.query(
            "select id, step, run, measure, amount, delta, reservation.at,"
            " case when digest is null then 'reserved' else 'released' end, account"
            " from reservation left join result on result.reservation = reservation.id where database = ? order by id",
            (self.database,),
        )
        entries = [Entry(r[0], r[1], r[2], Price(Measure(r[3]), r[4], r[5]), r[6], r[7], r[8]) for r in rows]
        return [entry for entry in entries if account in {None, entry.account}]

    def spent(self, account: str = "") -> AccountSpend:
        """Return what an account has spent, and on how many refreshes."""
        return self._total(account).spent()

    def count(self) -> int:
        """Return the number of reservations of all accounts."""
        ((number,),) = self._store.query("select count(*) from reservation where database = ?", (self.database,))
        return int(number)

    def others(self) -> list[OtherDatabase]:
        """Return the other databases with reservations, by their first reservation."""
        rows = self._store.query(
            "select database, count(*), max(at) from reservation where database <> ?"
            " group by database order by min(id)",
            (self.database,),
        )
        return [OtherDatabase(str(name), int(entries), str(last)) for name, entries, last in rows]

    def charges(self, reservation: int) -> list[tuple[str, float]]:
        """Return (label, amount) of each charge inside a reservation, in order."""
        query = "select label, amount from charge where reservation = ? order by id"
        return [(str(label), float(amount)) for label, amount in self._store.query(query, (reservation,))]

    def balance(self, account: str = "") -> Balance:
        """Return the spent and the remaining part of an account.

        Raises:
            LedgerError: No lifetime budget that was ever declared covers the entries: the ledger was tampered with.
        """
        total, life = self._total(account), self.lifetime
        pure, delta = total.pure and total.delta == 0, life.delta
        if not pure and not _covers(delta, total.delta):
            delta = self._last_covering(total.delta)
        spent = total.epsilon
        if delta > 0:
            in_rho = epsilon_for(total.rho, delta - Budget(life.epsilon, delta).threshold_delta) if total.rho else 0.0
            spent = min(spent, in_rho) if pure else in_rho
        left = max(0.0, life.epsilon - spent) if delta == life.delta else 0.0
        rho_left = max(0.0, self._rho_cap() - total.rho) if life.delta > 0 else 0.0
        return Balance(life, spent, delta, left, rho_left)

    def _last_covering(self, thresholds: float) -> float:
        """Return the last declared δ that covers zCDP prices with ``thresholds`` in δ."""
        query = "select delta from lifetime where database = ? order by id desc"
        declared = (float(delta) for (delta,) in self._store.query(query, (self.database,)))
        found = next((delta for delta in declared if _covers(delta, thresholds)), None)
        if found is None:
            message = (
                f"the ledger of {self.database} holds purchases that no lifetime budget declared in it covers:"
                " restore it from a backup"
            )
            raise LedgerError(message)
        return found

    def _marks(self) -> list[str]:
        rows = self._store.query("select mark from state_folder where database = ? order by id", (self.database,))
        return [str(row[0]) for row in rows]

    def _declare(self, unit: str) -> None:
        lifetime = self.lifetime
        wanted = (unit, lifetime.epsilon, lifetime.delta)
        if self._declared() == wanted:
            return
        with self._store.transaction():
            declared = self._declared()
            if declared is not None and declared[0] != unit:
                message = (
                    f"the ledger of {self.database} protects '{declared[0]}', the spec now names '{unit}': their costs"
                    " do not add up. Give the spec a state folder of its own, or put the unit back."
                )
                raise BudgetError(message)
            if declared != wanted:
                self._require_covered()
                self._store.query(
                    "insert into lifetime(database, unit, epsilon, delta, at) values (?, ?, ?, ?, ?)",
                    (self.database, *wanted, _now()),
                )

    def _require_covered(self) -> None:
        """Refuse a lifetime δ that is too small for earlier purchases."""
        query = "select account, max(measure), sum(delta) from reservation where database = ? group by account"
        for account, measure, thresholds in self._store.query(query, (self.database,)):
            delta = self.lifetime.delta
            if (measure == Measure.ZCDP or thresholds > 0) and not _covers(delta, thresholds):
                least = self._last_covering(thresholds)
                whose = f" for cohort {account}" if account else ""
                message = (
                    f"privacy.lifetime: delta {delta:g} is less than what was already bought{whose} needs. What is"
                    f" spent stays spent: put lifetime.delta back to {least:g}, under which it was bought"
                )
                raise BudgetError(message)

    def _declared(self) -> Row | None:
        """Return (unit, ε, δ) as last declared."""
        rows = self._store.query(
            "select unit, epsilon, delta from lifetime where database = ? order by id desc limit 1", (self.database,)
        )
        return rows[0] if rows else None

    def _total(self, account: str) -> RunningTotal:
        """Return the account's totals, brought up to date."""
        while True:
            connection = self._store.connection
            total = self._totals.pop(account, None)  # removed while reading: an interrupted read starts over
            if total is None or total.connection != connection:
                total = RunningTotal(connection)
            total.read(self._store, self.database, account)
            if self._store.connection == connection:
                self._totals[account] = total
                return total

    def _rho_cap(self) -> float:
        return self.lifetime.total().amount

    def _affordable(self, price: Price, total: RunningTotal) -> bool:
        return total.spent().plus([price]).within(self.lifetime)

    def _refusal(self, step: str, price: Price, account: str) -> str:
        balance = self.balance(account)
        life = self.lifetime
        if life.delta == 0 and price.measure is not Measure.PURE:
            return f"{step}: costs {price}, but the lifetime budget is pure (delta 0). Run with delta 0."
        if balance.delta != life.delta:
            return (
                f"{step}: costs {price}, but the lifetime's delta {life.delta:g} does not cover what was bought under"
                f" {balance.delta:g}. Put privacy.lifetime.delta back."
            )
        if life.delta == 0:
            short = price.amount - balance.left
            return (
                f"{step}: costs {price.amount / life.epsilon:.1%} of the lifetime budget ({price}), and"
                f" {balance.left:.6g} of ε={life.epsilon:g} is left: short by {short:.6g}. Publish what was released"
                " before, or run at a smaller ε."
            )
        delta, cap = self._total(account).delta, self._rho_cap()
        short = max(0.0, price.rho - balance.rho_left)
        spent = f"δ={delta:.2g} of the {life.threshold_delta:.2g} for thresholds is spent"
        lacking = f"short by {short:.6g}" if short else spent
        threshold = f", δ={price.delta:.2g}" if price.delta else ""
        cost = f"{price} (ρ={price.rho:.6g})" if price.measure is Measure.PURE else f"ρ={price.rho:.6g}{threshold}"
        return (
            f"{step}: costs {share_in_words(price.rho, cap)} of the lifetime budget, and"
            f" {share_in_words(balance.rho_left, cap)} of it is left (costs {cost}, ρ={balance.rho_left:.6g} of"
            f" {cap:.6g} is left: {lacking}; the lifetime is ε={life.epsilon:g}, δ={life.delta:g}). Publish what was"
            " released before, or run at a smaller ε."
        )


def _covers(delta: float, thresholds: float) -> bool:
    """Return whether a lifetime δ covers zCDP prices that spend ``thresholds`` of δ on stability thresholds."""
    return delta > 0 and thresholds <= Budget(1.0, delta).threshold_delta * ROUNDING_SLACK


def _open(place: Path | str) -> LedgerStore:
    if isinstance(place, str) and is_url(place):
        from privbench_core.privacy.ledger.postgres import PostgresStore  # brings in psycopg, for those who need it

        return PostgresStore(place)
    return SqliteStore(place)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
