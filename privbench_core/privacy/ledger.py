"""The durable, append-only record of what has been spent: a privacy filter in an SQLite file.

A step's whole price is *reserved* in one transaction before its rows are looked at. A crash leaves the reservation
standing, and it counts as spent: the ledger can overstate what was spent, never understate it. `BEGIN IMMEDIATE` makes
the check and the entry one act, so two processes cannot both take the last of the budget. Nothing is ever deleted or
repriced (triggers refuse it); the only change a row sees is from reserved to released.

Filter: a reservation is accepted if all entries together satisfy Σρ ≤ ρ and Σδ ≤ δ' of the lifetime budget, split as
`Budget.total` splits every budget, or if all entries are pure and Σε ≤ lifetime ε. Either sum is a valid filter for
adaptively chosen mechanisms (Rogers et al. 2016; Feldman and Zrnic 2021; Whitehouse et al. 2023), and so is the
disjunction (proof in ``docs/privacy.md``).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep

from privbench_core.errors import BudgetError, BudgetExhaustedError, ReleaseError
from privbench_core.privacy.budget import Budget, Measure, Price, epsilon_for
from privbench_core.privacy.refresh import Limits, Purchase, Spent
from privbench_core.schema.refresh import RefreshPolicy

_SLACK = 1 + 1e-9
_PATIENCE = 30.0  # seconds
_ADVICE_ON_REFRESH = "Change privacy.refresh, or publish what was released before."
_TABLES = """
create table if not exists lifetime(
    id integer primary key, database text not null, unit text not null, epsilon real not null, delta real not null,
    at text not null);
create table if not exists reservation(
    id integer primary key, database text not null, account text not null, release text not null,
    step text not null, run text not null,
    measure text not null check (measure in ('pure', 'zcdp')), amount real not null check (amount >= 0),
    rho real not null, delta real not null, at text not null,
    state text not null check (state in ('reserved', 'released')), digest text);
create table if not exists charge(
    id integer primary key, reservation integer not null references reservation, label text not null,
    amount real not null, delta real not null, at text not null);
create index if not exists by_release on reservation(release);
create trigger if not exists lifetime_stays before update on lifetime begin select raise(abort, 'append only'); end;
create trigger if not exists lifetime_kept before delete on lifetime begin select raise(abort, 'append only'); end;
create trigger if not exists reservation_kept before delete on reservation
    begin select raise(abort, 'append only'); end;
create trigger if not exists reservation_stays before update on reservation
    when old.state = 'released' or new.state <> 'released' or old.amount <> new.amount or old.delta <> new.delta
        or old.rho <> new.rho or old.database <> new.database or old.account <> new.account
        or old.release <> new.release or old.measure <> new.measure
    begin select raise(abort, 'append only'); end;
create trigger if not exists charge_stays before update on charge begin select raise(abort, 'append only'); end;
create trigger if not exists charge_kept before delete on charge begin select raise(abort, 'append only'); end;
"""


@dataclass(frozen=True)
class Entry:
    """One reservation: what a step may spend, whether its result was stored, and which account it is charged to."""

    id: int
    step: str
    run: str
    price: Price
    at: str
    state: str
    account: str = ""


@dataclass(frozen=True)
class Balance:
    """What is spent and what is left of a lifetime budget.

    Attributes:
        lifetime: The declared budget.
        spent: The smallest ε (at the lifetime's δ) that all entries are known to satisfy.
        left: Lifetime ε minus ``spent``: an upper bound on the ε of one more pure release when all entries are pure,
            and a fair indication otherwise (zCDP costs add up in ρ, not in ε).
        rho_left: ρ still available for zCDP releases, 0 for a pure lifetime budget.
    """

    lifetime: Budget
    spent: float
    left: float
    rho_left: float


class Ledger:
    """The accounts of one database. Each may spend the whole lifetime budget, so the units of any two must be disjoint.

    The account that nobody names, "", is that of a database whose units are all alike.

    Args:
        path: SQLite file, made if missing; ":memory:" for tests, which makes the ledger not durable.
        database: Name of the database.
        unit: The privacy unit, in words; a database's unit never changes.
        lifetime: The most that may ever be spent. A changed declaration is appended, and the latest counts.
        policy: How the lifetime budget is spread over refreshes; None spends it as it comes.
    """

    def __init__(
        self, path: Path | str, database: str, unit: str, lifetime: Budget, policy: RefreshPolicy | None = None
    ) -> None:
        self.durable = str(path) != ":memory:"
        self.database = database
        if self.durable:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, timeout=60)
        self._patiently("pragma journal_mode=wal")
        self._db.execute("pragma synchronous=full")
        self._patiently(_TABLES)
        self._declare(unit, lifetime)
        self.lifetime = lifetime
        self.policy = policy

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def reserve(self, release: str, step: str, run: str, price: Price, account: str = "") -> int:
        """Set ``price`` aside for a step, durably, and return the reservation's id.

        Raises:
            BudgetExhaustedError: The lifetime budget cannot pay it; nothing was entered.
        """
        with self._transaction():
            self.require(step, price, account, [(run, step)])
            row = (
                self.database,
                account,
                release,
                step,
                run,
                price.measure,
                price.amount,
                price.rho,
                price.delta,
                _now(),
            )
            cursor = self._db.execute(
                "insert into reservation(database, account, release, step, run, measure, amount, rho, delta, at, state)"
                " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'reserved')",
                row,
            )
            return int(cursor.lastrowid or 0)

    def require(self, what: str, price: Price, account: str = "", purchases: Iterable[Purchase] = ()) -> None:
        """Check that ``price`` could be paid now, without setting anything aside.

        Args:
            what: What it is for, as the refusal calls it.
            price: All of it.
            account: Who pays.
            purchases: The steps it is for, at which ε: decides which refresh they belong to.

        Raises:
            BudgetExhaustedError: It could not, because of the lifetime budget or of the refresh policy.
        """
        if not self._affordable(price, account):
            raise BudgetExhaustedError(self._refusal(what, price, account))
        purchases = tuple(purchases)
        if self.policy is not None and purchases:
            spent = Spent.of(self.entries(account))
            refusal = Limits(self.lifetime, self.policy).refusal(spent, spent.refresh_of(purchases), price)
            if refusal is not None:
                raise BudgetExhaustedError(f"{what}: {refusal}. {_ADVICE_ON_REFRESH}")

    def charge(self, reservation: int, label: str, price: Price) -> None:
        """Write down one verb's charge inside a reservation, before it looks."""
        row = (reservation, label, price.amount, price.delta, _now())
        self._db.execute("insert into charge(reservation, label, amount, delta, at) values (?, ?, ?, ?, ?)", row)

    def release(self, reservation: int, digest: str) -> None:
        """Mark a reservation as released: its result is stored under ``digest``."""
        self._db.execute("update reservation set state = 'released', digest = ? where id = ?", (digest, reservation))

    def released(self, release: str) -> frozenset[str]:
        """Digests of an artifact that was bought before: several if processes bought it at the same time."""
        rows = self._db.execute(
            "select digest from reservation where database = ? and release = ? and state = 'released'",
            (self.database, release),
        ).fetchall()
        return frozenset(str(row[0]) for row in rows)

    def entries(self, account: str | None = None) -> list[Entry]:
        """All reservations, oldest first; of one account if it is named."""
        rows = self._db.execute(
            "select id, step, run, measure, amount, delta, at, state, account from reservation where database = ?"
            " order by id",
            (self.database,),
        ).fetchall()
        entries = [Entry(r[0], r[1], r[2], Price(Measure(r[3]), r[4], r[5]), r[6], r[7], r[8]) for r in rows]
        return [entry for entry in entries if account in {None, entry.account}]

    def charges(self, reservation: int) -> list[tuple[str, float]]:
        """(label, amount) of each verb inside a reservation, in order."""
        query = "select label, amount from charge where reservation = ? order by id"
        return [(str(label), float(amount)) for label, amount in self._db.execute(query, (reservation,)).fetchall()]

    def balance(self, account: str = "") -> Balance:
        """What is spent and left of an account."""
        pure, rho, _, epsilon = self._sums(account)
        life = self.lifetime
        if rho == 0:
            spent = 0.0
        elif life.delta == 0:
            spent = epsilon
        else:
            spent = epsilon_for(rho, life.delta - life.threshold_delta)
            spent = min(spent, epsilon) if pure else spent
        rho_left = max(0.0, self._rho_cap() - rho) if life.delta > 0 else 0.0
        return Balance(life, spent, max(0.0, life.epsilon - spent), rho_left)

    def _patiently(self, script: str) -> None:
        """Run a script that another process making the same file may lock out, which SQLite's own timeout ignores."""
        patience = monotonic() + _PATIENCE
        while True:
            try:
                self._db.executescript(script)
            except sqlite3.OperationalError:
                if monotonic() > patience:
                    raise
                sleep(0.01)
            else:
                return

    def _declare(self, unit: str, lifetime: Budget) -> None:
        with self._transaction():
            row = self._db.execute(
                "select unit, epsilon, delta from lifetime where database = ? order by id desc", (self.database,)
            ).fetchone()
            if row is not None and row[0] != unit:
                message = (
                    f"the ledger of {self.database} protects '{row[0]}', the spec now names '{unit}': their costs do"
                    " not add up. Give the spec a state folder of its own, or put the unit back."
                )
                raise BudgetError(message)
            if row is None or (row[1], row[2]) != (lifetime.epsilon, lifetime.delta):
                self._db.execute(
                    "insert into lifetime(database, unit, epsilon, delta, at) values (?, ?, ?, ?, ?)",
                    (self.database, unit, lifetime.epsilon, lifetime.delta, _now()),
                )

    def _sums(self, account: str) -> tuple[bool, float, float, float]:
        """(all entries pure, Σρ, Σδ, Σε of the pure ones)."""
        row = self._db.execute(
            "select coalesce(sum(measure <> 'pure'), 0), coalesce(sum(rho), 0), coalesce(sum(delta), 0),"
            " coalesce(sum(case when measure = 'pure' then amount else 0 end), 0) from reservation"
            " where database = ? and account = ?",
            (self.database, account),
        ).fetchone()
        return row[0] == 0, float(row[1]), float(row[2]), float(row[3])

    def _rho_cap(self) -> float:
        return self.lifetime.total().amount

    def _affordable(self, price: Price, account: str) -> bool:
        pure, rho, delta, epsilon = self._sums(account)
        pure = pure and price.measure is Measure.PURE and delta + price.delta == 0
        if pure and epsilon + price.amount <= self.lifetime.epsilon * _SLACK:
            return True
        if self.lifetime.delta == 0:
            return False
        within = rho + price.rho <= self._rho_cap() * _SLACK
        return within and delta + price.delta <= self.lifetime.threshold_delta * _SLACK

    def _refusal(self, step: str, price: Price, account: str) -> str:
        balance = self.balance(account)
        life = self.lifetime
        if life.delta == 0 and price.measure is not Measure.PURE:
            return f"{step}: costs {price}, but the lifetime budget is pure (delta 0). Run with delta 0."
        if life.delta == 0:
            short = price.amount - balance.left
            return f"{step}: costs {price}, {balance.left:.6g} of ε={life.epsilon:g} is left, {short:.6g} too little."
        _, _, delta, _ = self._sums(account)
        short = max(0.0, price.rho - balance.rho_left)
        lacking = (
            f"{short:.6g} too little"
            if short
            else f"δ={delta:.2g} of the {life.threshold_delta:.2g} for thresholds is spent"
        )
        return (
            f"{step}: costs {price} (ρ={price.rho:.6g}), ρ={balance.rho_left:.6g} of {self._rho_cap():.6g}"
            f" (ε={life.epsilon:g}, δ={life.delta:g}) is left: {lacking}."
            " Raise privacy.lifetime, or publish what was released before."
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._db.execute("begin immediate")
        except sqlite3.OperationalError as error:
            raise ReleaseError(f"the ledger of {self.database} is locked or cannot be written: {error}") from error
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
