"""What an account has spent of its lifetime budget, on which refreshes, what is left, and why a price does not fit.

Refresh k begins when a step is bought for the k-th time at the same ε. Only steps whose result was stored count: a step
that was killed and is retried costs twice, but belongs to the same refresh. A policy is an upper limit in addition to
the lifetime filter (`AccountSpend.within`) and never replaces it, so the privacy guarantee does not depend on policies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from privbench_core.privacy.budget import ROUNDING_SLACK, Budget, Measure, Price, epsilon_for, rho_for
from privbench_core.privacy.ledger.declarations import covers
from privbench_core.privacy.ledger.holds import Hold
from privbench_core.privacy.ledger.store import LedgerStore
from privbench_core.spec.model import RefreshPolicy

_MAX_REFRESHES = 10**9  # where the search ends; chosen by hand, more than anyone can run
Purchase = tuple[str, str]
"""(run, step): each refresh buys it once."""
_SPENT = """
select run, step, measure, sum(amount), sum(rho), sum(delta), count(result.reservation)
from reservation left join result on result.reservation = reservation.id
where database = ? and account = ? group by run, step, measure"""


@dataclass(frozen=True)
class AccountSpend:
    """What an account has spent, and on how many refreshes.

    Attributes:
        pure: Whether all prices are pure ε-DP.
        epsilon: Sum of the pure prices.
        rho: Sum of all prices as ρ.
        delta: Sum of the thresholds' δ.
        bought: How often each step was bought at each ε.
    """

    pure: bool
    epsilon: float
    rho: float
    delta: float
    bought: Mapping[Purchase, int]

    @property
    def refresh(self) -> int:
        """Return the number of the last refresh that has begun; 0 before the first release."""
        return max(self.bought.values(), default=0)

    def refresh_of(self, purchases: Iterable[Purchase]) -> int:
        """Return the number of the refresh that these purchases would belong to."""
        return max(self.refresh, *(self.bought.get(purchase, 0) + 1 for purchase in purchases), 1)

    def plus(self, prices: Sequence[Price], times: int = 1) -> AccountSpend:
        """Return the spend after paying each of ``prices`` ``times`` times."""
        pure = [price for price in prices if price.measure is Measure.PURE]
        delta = self.delta + times * sum(price.delta for price in prices)
        return replace(
            self,
            pure=self.pure and len(pure) == len(prices) and delta == 0,
            epsilon=self.epsilon + times * sum(price.amount for price in pure),
            rho=self.rho + times * sum(price.rho for price in prices),
            delta=delta,
        )

    def within(self, lifetime: Budget) -> bool:
        """Return whether a lifetime budget covers this spend: the filter of the ledger, see `privacy.ledger.ledger`."""
        if self.pure and self.epsilon <= lifetime.epsilon * ROUNDING_SLACK:
            return True
        rho_fits = lifetime.delta > 0 and self.rho <= lifetime.total().amount * ROUNDING_SLACK
        return rho_fits and self.delta <= lifetime.threshold_delta * ROUNDING_SLACK


def read_spend(store: LedgerStore, database: str, account: str) -> AccountSpend:
    """Return what the reservations of an account cost, with or without a result; by one statement, so of one state."""
    pure, epsilon, rho, delta, bought = True, 0.0, 0.0, 0.0, Counter[Purchase]()
    for run, step, measure, amount, cost_in_rho, thresholds, released in store.query(_SPENT, (database, account)):
        if measure == Measure.PURE:
            epsilon += amount
        else:
            pure = False
        rho += cost_in_rho
        delta += thresholds
        bought[run, step] += released
    return AccountSpend(pure and delta == 0, epsilon, rho, delta, +bought)


@dataclass(frozen=True)
class Balance:
    """The spent and the remaining part of a lifetime budget.

    Attributes:
        lifetime: The declared budget.
        spent: The smallest ε (at ``delta``) that all entries are known to satisfy.
        delta: The lifetime's δ; if that does not cover earlier purchases under a larger one, the last declared δ that
            does.
        left: Lifetime ε minus ``spent``: an upper bound on the ε of one more pure release if all entries are pure, an
            approximation otherwise (GDP costs add up in ρ, not in ε). 0 if the lifetime's δ is too small.
        rho_left: ρ still available for GDP releases, 0 for a pure lifetime budget.
    """

    lifetime: Budget
    spent: float
    delta: float
    left: float
    rho_left: float


def epsilon_at(spent: AccountSpend, delta: float) -> float:
    """Return the smallest ε at ``delta`` that reservations are known to satisfy; inf if δ does not cover them."""
    pure = spent.epsilon if spent.pure else math.inf
    if not covers(delta, spent.delta):
        return pure
    return min(pure, epsilon_for(spent.rho, delta - Budget(1.0, delta).threshold_delta) if spent.rho else 0.0)


def shortfall(what: str, price: Price, balance: Balance, thresholds: float) -> str:
    """Return why the lifetime budget cannot pay ``price``; ``thresholds`` is the δ spent on stability thresholds."""
    life = balance.lifetime
    if life.delta == 0 and price.measure is not Measure.PURE:
        return f"{what}: costs {price}, but the lifetime budget is pure (delta 0). Run with delta 0."
    if balance.delta != life.delta:
        return (
            f"{what}: costs {price}, but the lifetime's delta {life.delta:g} does not cover what was bought under"
            f" {balance.delta:g}. Set privacy.lifetime.delta back to that."
        )
    if life.delta == 0:
        short = price.amount - balance.left
        return (
            f"{what}: costs {price.amount / life.epsilon:.1%} of the lifetime budget ({price}), but only"
            f" {balance.left:.6g} of ε={life.epsilon:g} is left: short by {short:.6g}. Publish what was released"
            " before, or run at a smaller ε."
        )
    cap = life.total().amount
    short = max(0.0, price.rho - balance.rho_left)
    spent = f"δ={thresholds:.2g} of the {life.threshold_delta:.2g} for thresholds is spent"
    lacking = f"short by {short:.6g}" if short else spent
    threshold = f", δ={price.delta:.2g}" if price.delta else ""
    cost = f"{price} (ρ={price.rho:.6g})" if price.measure is Measure.PURE else f"ρ={price.rho:.6g}{threshold}"
    return (
        f"{what}: costs {share_in_words(price.rho, cap)} of the lifetime budget, but only"
        f" {share_in_words(balance.rho_left, cap)} of it is left (costs {cost}, ρ={balance.rho_left:.6g} of"
        f" {cap:.6g} is left: {lacking}; the lifetime is ε={life.epsilon:g}, δ={life.delta:g}). Publish what was"
        " released before, or run at a smaller ε."
    )


def shortfall_beside_holds(held: Sequence[Hold], what: str, price: Price, balance: Balance) -> str:
    """Return why ``price`` cannot be paid beside what runs that are at work hold."""
    cost, pure = share_of(balance.lifetime, price), balance.lifetime.measure is Measure.PURE
    left = share_in_words(balance.left if pure else balance.rho_left, balance.lifetime.total().amount)
    others = " and ".join(
        f"another run has held {share_of(balance.lifetime, hold.left)} since {hold.at}" for hold in held
    )
    return (
        f"{what}: costs {cost} of the lifetime budget ({price}). {left} of it is not spent, but {others} for steps"
        " it has yet to pay for, and the rest is too little. Nothing was spent for this. Wait until the other run has"
        " ended, then run again: what it does not spend becomes available. Or run at a smaller ε."
    )


def share_of(lifetime: Budget, price: Price) -> str:
    """Return the part of a lifetime budget that a price takes, in per cent."""
    pure = lifetime.measure is Measure.PURE
    return share_in_words(price.amount if pure else price.rho, lifetime.total().amount)


@dataclass(frozen=True)
class RefreshLimits:
    """A lifetime budget and how it is spread over refreshes."""

    lifetime: Budget
    policy: RefreshPolicy | None = None

    def refusal(self, spent: AccountSpend, refresh: int, price: Price) -> str | None:
        """Return why the policy refuses ``price`` in refresh ``refresh``, with the shortfall; None if it fits."""
        policy, pure = self.policy, self.lifetime.delta == 0
        if policy is None:
            return None
        before, symbol, cost = (spent.epsilon, "ε", price.amount) if pure else (spent.rho, "ρ", price.rho)
        if policy.times is not None and refresh > policy.times:
            return (
                f"costs {self._share(cost)} of the lifetime budget ({price}) and would begin refresh {refresh}, but"
                f" privacy.refresh allows {policy.times}: nothing is left for another"
            )
        if self._within(spent.plus([price]), refresh):
            return None
        cap = self._upto(refresh, float if pure else self._rho)
        left = max(0.0, cap - before)
        return (
            f"costs {self._share(cost)} of the lifetime budget, but privacy.refresh allows {self._share(cap)} of"
            f" it up to refresh {refresh} ({policy.in_words()}), and {self._share(left)} is left (costs {price},"
            f" {symbol}={left:.6g} of {cap:.6g} is left: short by {cost - left:.6g})"
        )

    def affordable(self, spent: AccountSpend, first: int, prices: Sequence[Price]) -> int:
        """Return how many more refreshes the account can pay for.

        Costs are linear in the number of refreshes and every limit is concave, so once a refresh is not affordable, no
        later one is: the answer is found by bisection.

        Args:
            spent: What was paid so far.
            first: Number of the first further refresh.
            prices: Of all steps of one refresh.
        """
        if not self._pays(spent, first, prices, 1):
            return 0
        low, high = 1, 2
        while high < _MAX_REFRESHES and self._pays(spent, first, prices, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._pays(spent, first, prices, middle) else (low, middle)
        return low

    def _share(self, amount: float) -> str:
        return share_in_words(amount, self.lifetime.total().amount)

    def _pays(self, spent: AccountSpend, first: int, prices: Sequence[Price], times: int) -> bool:
        after, refresh = spent.plus(prices, times), first + times - 1
        if not after.within(self.lifetime):
            return False
        policy = self.policy
        return policy is None or ((policy.times is None or refresh <= policy.times) and self._within(after, refresh))

    def _within(self, after: AccountSpend, refresh: int) -> bool:
        if after.pure and after.epsilon <= self._upto(refresh, float) * ROUNDING_SLACK:
            return True
        return self.lifetime.delta > 0 and after.rho <= self._upto(refresh, self._rho) * ROUNDING_SLACK

    def _upto(self, refresh: int, worth: Callable[[float], float]) -> float:
        return self.policy.upto(refresh, self.lifetime.epsilon, worth) if self.policy else worth(self.lifetime.epsilon)

    def _rho(self, epsilon: float) -> float:
        return rho_for(epsilon, self.lifetime.delta - self.lifetime.threshold_delta)


def share_in_words(amount: float, whole: float) -> str:
    """Return a part of the whole in per cent; a lifetime ε of nearly nothing has a ρ of 0.

    >>> share_in_words(0.2, 2)
    '10.0%'
    """
    return f"{amount / whole:.1%}" if whole > 0 else "more than 100%" if amount > 0 else "nothing"
