"""The durable, append-only record of what has been spent: a privacy filter over rows in SQLite or PostgreSQL.

A step's whole price is *reserved* in one transaction before any private row is read. After a crash the reservation
stays and counts as spent: the ledger can overstate what was spent, never understate it. The stores serialize these
transactions, and each sees all earlier reservations, so check and entry are atomic: of two processes, on one machine or
several, only one gets the last of the budget. Rows are only ever inserted (triggers refuse anything else, and in
PostgreSQL the role needs no other privilege). Rows are ordered by their numbers; timestamps are information only.

Filter: a reservation is accepted if all entries of its account together satisfy Σρ ≤ ρ and Σδ ≤ δ' of the lifetime
budget, split as `Budget.total` splits every budget, or if all are pure and Σε ≤ lifetime ε. Either sum is a valid
filter for adaptively chosen mechanisms (Smith and Thakurta 2022; Rogers et al. 2016), and so is the disjunction (proof
in ``docs/privacy.md``). Accounts are for disjoint sets of units, so together they cost what the most expensive of them
costs (parallel composition).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from privbench_core.errors import BudgetExhaustedError, ReleaseError
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger.balance import (
    AccountSpend,
    Balance,
    Purchase,
    RefreshLimits,
    epsilon_at,
    read_spend,
    shortfall,
    shortfall_beside_holds,
)
from privbench_core.privacy.ledger.declarations import Declarations, DeclaredLifetime, covers
from privbench_core.privacy.ledger.holds import Alive, Hold, draw, end, held_by_others, insert_hold, open_holds
from privbench_core.privacy.ledger.sqlite import SqliteStore
from privbench_core.privacy.ledger.store import LedgerStore, create_tables
from privbench_core.privacy.neighbour_relation import Relation
from privbench_core.spec.location import is_url
from privbench_core.spec.model import RefreshPolicy

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
class OtherDatabase:
    """Another database in the same ledger, its number of reservations, and the time of the last one."""

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
        relation: The declared neighbour relation; recorded with the first reservation of an account.
        account: Whose record is compared with it now; `reserve` compares that of the account that pays.
        alive: Whether the process that made a hold is at work; holds of others count for nothing.

    Raises:
        BudgetError: The ledger protects another unit, has sold under another neighbour relation, or the lifetime's δ is
            too small for earlier purchases.
        LedgerError: It cannot be used, or has the layout of another version. Every method may raise it.
    """

    def __init__(
        self,
        place: Path | str,
        database: str,
        unit: str,
        lifetime: Budget,
        policy: RefreshPolicy | None = None,
        *,
        relation: Relation | None = None,
        account: str = "",
        alive: Alive = lambda _: True,
    ) -> None:
        self.database = database
        self.lifetime = lifetime
        self.policy = policy
        self._relation: Relation = relation or {}
        self._alive = alive
        self._store = _open(place)
        self._declarations = Declarations(self._store, database)
        self.durable = self._store.durable
        try:
            create_tables(self._store, _now())
            self._declare(unit, account)
        except BaseException:
            self._store.close()
            raise

    def close(self) -> None:
        """Close the file or the connection."""
        self._store.close()

    def claim(self, mark: str, *, replace: bool = False) -> None:
        """Bind the ledger to the state folder with the pseudonym ``mark``, which holds its releases and secret.

        ``replace`` gives up the last folder, which was lost: its releases must be paid for again.

        Raises:
            ReleaseError: The ledger belongs to another folder: its releases would be bought a second time.
        """
        if not replace and self._marks()[-1:] == [mark]:
            return
        with self._store.transaction():
            known = self._marks()
            if known and known[-1] != mark and not replace:
                message = (
                    f"the ledger of {self.database} belongs to another state folder: results in that folder"
                    " would be paid for again. Use that folder (several machines can share it). If it is lost, go on"
                    " without it: privbench ledger SPEC --new-state"
                )
                raise ReleaseError(message)
            if known[-1:] != [mark]:
                row = (self.database, mark, _now())
                self._store.query("insert into state_folder(database, mark, at) values (?, ?, ?)", row)

    def hold(
        self, what: str, price: Price, purpose: str, mark: str, account: str = "", purchases: Iterable[Purchase] = ()
    ) -> int:
        """Hold ``price`` for a run and return the hold's number: other runs count what is left of it as spent.

        Args:
            what: The run, as the error message names it.
            price: Of all that it has still to buy.
            purpose: Pseudonym of what it buys, see `privacy.ledger.holds`.
            mark: What ``alive`` knows the process by.
            account: Who pays.
            purchases: The steps to buy, at which ε: they decide the refresh.

        Raises:
            BudgetExhaustedError: The account, less what other runs hold, cannot pay it; nothing was held.
        """
        purchases = tuple(purchases)
        with self._store.transaction():
            self._unrecorded(account)
            holds = open_holds(self._store, self.database, account)
            self.require(what, price, account, purchases)
            self._require_beside(held_by_others(holds, purpose, self._alive), what, price, account, purchases)
            for dead in (hold for hold in holds if not self._alive(hold.mark)):
                end(self._store, dead.id, _now())
            return insert_hold(self._store, self.database, account, Hold(0, purpose, mark, _now(), price))

    def end_hold(self, hold: int) -> None:
        """Give back what is left of a hold."""
        with self._store.transaction():
            end(self._store, hold, _now())

    def held(self, account: str = "") -> list[Hold]:
        """Return what runs that are at work hold, the largest hold of each purpose."""
        return held_by_others(open_holds(self._store, self.database, account), "", self._alive)

    def reserve(self, release: str, step: str, run: str, price: Price, account: str = "", purpose: str = "") -> int:
        """Reserve ``price`` for a step, durably, and return the reservation's id.

        Args:
            release: Key of the result.
            step: The step.
            run: Its run's name.
            price: The whole price of the step.
            account: Who pays.
            purpose: Of the run's hold, which the price is taken out of; "" if it has none.

        Raises:
            BudgetError: The account has spent under another neighbour relation; nothing was reserved.
            BudgetExhaustedError: The lifetime budget, less what other runs hold, cannot pay it; nothing was reserved.
        """
        price_row = (price.measure.value, price.amount, price.rho, price.delta)
        purchases = [(run, step)]
        with self._store.transaction():
            unrecorded = self._unrecorded(account)
            held = held_by_others(open_holds(self._store, self.database, account), purpose, self._alive)
            self.require(step, price, account, purchases)
            self._require_beside(held, step, price, account, purchases)
            self._declarations.record(unrecorded, account, _now())
            ((number,),) = self._store.query(
                "insert into reservation(database, account, release, step, run, measure, amount, rho, delta, at)"
                " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning id",
                (self.database, account, release, step, run, *price_row, _now()),
            )
            if purpose:
                draw(self._store, self.database, account, purpose, number, _now())
        return int(number)

    def require(self, what: str, price: Price, account: str = "", purchases: Iterable[Purchase] = ()) -> None:
        """Check that ``price`` could be paid now if no other run were at work; arguments as of `hold`.

        Raises:
            BudgetExhaustedError: The lifetime budget or the refresh policy does not allow it.
        """
        purchases, spent = tuple(purchases), self.spent(account)
        if not spent.plus([price]).within(self.lifetime):
            raise BudgetExhaustedError(shortfall(what, price, self.balance(account), spent.delta))
        if self.policy is not None and purchases:
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
        return read_spend(self._store, self.database, account)

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
        spent, life, delta = self.spent(account), self.lifetime, self.lifetime.delta
        if not spent.pure and not covers(delta, spent.delta):
            delta = self._declarations.last_covering(spent.delta)
        epsilon = epsilon_at(spent, delta)
        left = max(0.0, life.epsilon - epsilon) if delta == life.delta else 0.0
        rho_left = max(0.0, life.total().amount - spent.rho) if life.delta > 0 else 0.0
        return Balance(life, epsilon, delta, left, rho_left)

    def spent_at(self, delta: float, account: str = "") -> float:
        """Return the smallest ε at ``delta`` that an account's entries are known to satisfy, see `epsilon_at`."""
        return epsilon_at(self.spent(account), delta)

    def lifetimes(self) -> tuple[DeclaredLifetime, ...]:
        """Return all lifetime budgets that were declared, oldest first."""
        return self._declarations.lifetimes()

    def bound(self) -> bool:
        """Return whether the ledger is tied to a state folder, see `claim`."""
        return bool(self._marks())

    def _marks(self) -> list[str]:
        rows = self._store.query("select mark from state_folder where database = ? order by id", (self.database,))
        return [str(row[0]) for row in rows]

    def _declare(self, unit: str, account: str) -> None:
        wanted = (unit, self.lifetime.epsilon, self.lifetime.delta)
        if self._declarations.last() == wanted:
            self._unrecorded(account)  # which refuses another neighbour relation
            return
        with self._store.transaction():
            self._declarations.declare(unit, self.lifetime, _now())
            self._unrecorded(account)

    def _unrecorded(self, account: str) -> dict[str, str]:
        """Return what of the relation is not recorded yet; BudgetError if the account has spent under another one."""
        return self._declarations.unrecorded(self._relation, account) if self._relation else {}

    def _require_beside(
        self, held: Sequence[Hold], what: str, price: Price, account: str, purchases: Iterable[Purchase]
    ) -> None:
        """Refuse ``price`` if it is affordable only until the runs at work buy what they hold."""
        if not held:
            return
        spent = self.spent(account)
        after = spent.plus([hold.left for hold in held])
        limits = RefreshLimits(self.lifetime, self.policy)
        if after.plus([price]).within(self.lifetime) and not limits.refusal(after, spent.refresh_of(purchases), price):
            return
        raise BudgetExhaustedError(shortfall_beside_holds(held, what, price, self.balance(account)))


def _open(place: Path | str) -> LedgerStore:
    if isinstance(place, str) and is_url(place):
        from privbench_core.privacy.ledger.postgres import PostgresStore  # brings in psycopg, for those who need it

        return PostgresStore(place)
    return SqliteStore(place)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
