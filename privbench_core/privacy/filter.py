"""A privacy filter for one step: charged before rows are read, parallel composition included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from privbench_core.errors import BudgetExhaustedError
from privbench_core.privacy.budget import Price, zero

Record = Callable[[str, Price], None]


@dataclass
class _ParallelFilters:
    """Filters over disjoint rows; together they cost what the most expensive of them costs (parallel composition)."""

    charged: Price


@dataclass
class PrivacyFilter:
    """A limit, what has been charged against it, and where each charge is recorded.

    Attributes:
        limit: The most that may be charged.
        record: Called with (label, price) before each measurement of private rows; writes to the ledger.
    """

    limit: Price
    record: Record
    spent: Price = field(init=False)
    _parent: PrivacyFilter | None = None
    _siblings: _ParallelFilters | None = None

    def __post_init__(self) -> None:
        self.spent = zero(self.limit.measure)

    def charge(self, label: str, price: Price) -> None:
        """Charge ``price``; raise BudgetExhaustedError, and charge nothing, if it does not fit here or in a parent."""
        self._check(label, price)
        self._book(price)
        self.record(label, price)

    def split(self, parts: int) -> tuple[PrivacyFilter, ...]:
        """Return filters for ``parts`` disjoint sets of rows (parallel composition under add/remove)."""
        shared = _ParallelFilters(zero(self.limit.measure))
        children = tuple(PrivacyFilter(self.limit, self.record) for _ in range(parts))
        for child in children:
            child._parent, child._siblings = self, shared
        return children

    def _rise(self, price: Price) -> Price:
        """Return by how much the charge of the parent rises when ``price`` is charged here."""
        if self._siblings is None:
            return price
        after, before = self.spent + price, self._siblings.charged
        return Price(price.measure, max(0.0, after.amount - before.amount), max(0.0, after.delta - before.delta))

    def _check(self, label: str, price: Price) -> None:
        if not (self.spent + price).fits(self.limit):
            left = self.limit.amount - self.spent.amount
            message = f"{label}: costs {price}, but only {left:.4g} of {self.limit} is left; no row was read"
            raise BudgetExhaustedError(message)
        if self._parent is not None:
            self._parent._check(label, self._rise(price))

    def _book(self, price: Price) -> None:
        if self._parent is not None and self._siblings is not None:
            rise = self._rise(price)
            self._parent._book(rise)
            self._siblings.charged = self._siblings.charged + rise
        self.spent = self.spent + price
