"""What was declared in a ledger: the unit of a database, its lifetime budgets, and the neighbour relation of accounts.

The unit never changes. Each changed lifetime budget is appended, and the last one counts. A table's part of the
neighbour relation is recorded with the first reservation of an account after which the table is declared, and never
changes: costs under another relation do not add up (`privacy.neighbour_relation`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from privbench_core.errors import BudgetError, LedgerError
from privbench_core.privacy.budget import ROUNDING_SLACK, Budget, Measure
from privbench_core.privacy.ledger.store import LedgerStore, Row
from privbench_core.privacy.neighbour_relation import Relation, differences
from privbench_core.schema.identity import canonical_json


@dataclass(frozen=True)
class DeclaredLifetime:
    """A lifetime budget that a spec declared, and when, by the clock of the machine that opened the ledger with it."""

    budget: Budget
    at: str

    def raises(self, before: DeclaredLifetime) -> bool:
        """Return whether this allows more than the one declared before."""
        return self.budget.epsilon > before.budget.epsilon or self.budget.delta > before.budget.delta


@dataclass(frozen=True)
class Declarations:
    """The declarations of one database in the store of a ledger."""

    store: LedgerStore
    database: str

    def last(self) -> Row | None:
        """Return (unit, ε, δ) as last declared."""
        query = "select unit, epsilon, delta from lifetime where database = ? order by id desc limit 1"
        rows = self.store.query(query, (self.database,))
        return rows[0] if rows else None

    def lifetimes(self) -> tuple[DeclaredLifetime, ...]:
        """Return all lifetime budgets that were declared, oldest first."""
        query = "select epsilon, delta, at from lifetime where database = ? order by id"
        rows = self.store.query(query, (self.database,))
        return tuple(DeclaredLifetime(Budget(float(epsilon), float(delta)), str(at)) for epsilon, delta, at in rows)

    def declare(self, unit: str, lifetime: Budget, at: str) -> None:
        """Append a declaration that differs from the last one; inside a transaction.

        Raises:
            BudgetError: The unit is another one, or the lifetime's δ is too small for earlier purchases.
        """
        wanted, declared = (unit, lifetime.epsilon, lifetime.delta), self.last()
        if declared is not None and declared[0] != unit:
            message = (
                f"the ledger of {self.database} protects '{declared[0]}', but the spec names '{unit}', and costs"
                " of different units do not add up. Put the unit back, or give the spec a state folder of its own."
            )
            raise BudgetError(message)
        if declared != wanted:
            self._require_covered(lifetime)
            statement = "insert into lifetime(database, unit, epsilon, delta, at) values (?, ?, ?, ?, ?)"
            self.store.query(statement, (self.database, *wanted, at))

    def last_covering(self, thresholds: float) -> float:
        """Return the last declared δ that covers GDP prices with ``thresholds`` in δ.

        Raises:
            LedgerError: None does: the ledger was tampered with.
        """
        declared = (lifetime.budget.delta for lifetime in reversed(self.lifetimes()))
        found = next((delta for delta in declared if covers(delta, thresholds)), None)
        if found is None:
            message = (
                f"the ledger of {self.database} holds purchases that no lifetime budget declared in it covers:"
                " restore it from a backup"
            )
            raise LedgerError(message)
        return found

    def relation(self, account: str) -> dict[str, str]:
        """Return what is recorded of the neighbour relation of an account: canonical JSON by table."""
        query = "select name, facts from neighbour_relation where database = ? and account = ? order by id"
        return {str(name): str(found) for name, found in self.store.query(query, (self.database, account))}

    def unrecorded(self, relation: Relation, account: str) -> dict[str, str]:
        """Return the tables of ``relation`` that the account has no record of: canonical JSON by table.

        Raises:
            BudgetError: The account has spent under another relation.
        """
        then = self.relation(account)
        self._refuse_other(then, relation, account)
        return {name: canonical_json(found) for name, found in relation.items() if name not in then}

    def record(self, tables: Mapping[str, str], account: str, at: str) -> None:
        """Record tables that `unrecorded` returned; inside the same transaction."""
        statement = "insert into neighbour_relation(database, account, name, facts, at) values (?, ?, ?, ?, ?)"
        for name, found in tables.items():
            self.store.query(statement, (self.database, account, name, found, at))

    def _refuse_other(self, recorded: Mapping[str, str], now: Relation, account: str) -> None:
        found = differences({name: json.loads(text) for name, text in recorded.items()}, now)
        if not found:
            return
        whose = f"cohort {account} of {self.database}" if account else self.database
        message = (
            f"the spec now declares other neighbouring databases than the ledger of {whose} has paid for:"
            f" {'; '.join(found)}. Costs under two declarations do not add up, so this account can buy nothing more."
            " Put the declaration back. Use another privacy.cohort only for other people. To release under the new"
            " declaration as well, give the spec another database name: this opens a separate account, whose total must"
            " be reported separately. Each total holds under its own declaration only."
        )
        raise BudgetError(message)

    def _require_covered(self, lifetime: Budget) -> None:
        """Refuse a lifetime δ that is too small for earlier purchases; "gdp" comes before "pure"."""
        query = "select account, min(measure), sum(delta) from reservation where database = ? group by account"
        for account, measure, thresholds in self.store.query(query, (self.database,)):
            delta = lifetime.delta
            if (measure == Measure.GDP or thresholds > 0) and not covers(delta, thresholds):
                least = self.last_covering(thresholds)
                whose = f" for cohort {account}" if account else ""
                message = (
                    f"privacy.lifetime: delta {delta:g} is less than what was already bought{whose} needs."
                    f" Spending cannot be undone: put lifetime.delta back to {least:g}"
                )
                raise BudgetError(message)


def covers(delta: float, thresholds: float) -> bool:
    """Return whether a lifetime δ covers GDP prices that spend ``thresholds`` of δ on stability thresholds."""
    return delta > 0 and thresholds <= Budget(1.0, delta).threshold_delta * ROUNDING_SLACK
