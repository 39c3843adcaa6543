"""What a step may still spend: charged before anything is looked at, parallel composition included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from privbench_core.errors import BudgetExhaustedError
from privbench_core.privacy.budget import Price, zero

Record = Callable[[str, Price], None]


@dataclass
class _ParallelFilters:
    """Accounts over disjoint rows: one unit is in one of them, so the dearest of them is what all cost together."""

    charged: Price


@dataclass
class PrivacyFilter:
    """A limit, what has been charged against it, and where each charge is written down.

    Attributes:
        limit: The most that may be charged.
        record: Called with (label, price) before each look at private rows; writes to the ledger.
    """

    limit: Price
    record: Record
    spent: Price = field(init=False)
    _parent: PrivacyFilter | None = None
    _siblings: _ParallelFilters | None = None

    def __post_init__(self) -> None:
        self.spent = zero(self.limit.measure)

    def charge(self, label: str, price: Price) -> None:
        """Book ``price``; BudgetExhaustedError, and nothing booked, if it does not fit here or above."""
        self._check(label, price)
        self._book(price)
        self.record(label, price)

    def split(self, parts: int) -> tuple[PrivacyFilter, ...]:
        """Accounts for ``parts`` disjoint sets of rows (parallel composition under add/remove)."""
        shared = _ParallelFilters(zero(self.limit.measure))
        children = tuple(PrivacyFilter(self.limit, self.record) for _ in range(parts))
        for child in children:
            child._parent, child._siblings = self, shared
        return children

    def _rise(self, price: Price) -> Price:
        """By how much the parent's account rises when ``price`` is booked here."""
        if self._siblings is None:
            return price
        after, before = self.spent + price, self._siblings.charged
        return Price(price.measure, max(0.0, after.amount - before.amount), max(0.0, after.delta - before.delta))

    def _check(self, label: str, price: Price) -> None:
        if not (self.spent + price).fits(self.limit):
            left = self.limit.amount - self.spent.amount
            message = f"{label}: costs {price}, of {self.limit} only {left:.4g} is left; nothing was looked at"
            raise BudgetExhaustedError(message)
        if self._parent is not None:
            self._parent._check(label, self._rise(price))

    def _book(self, price: Price) -> None:
        if self._parent is not None and self._siblings is not None:
            rise = self._rise(price)
            self._parent._book(rise)
            self._siblings.charged = self._siblings.charged + rise
        self.spent = self.spent + price
