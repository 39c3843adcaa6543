"""What an account has spent: on which refreshes, and how many more it can pay for.

Refresh k begins when a step is bought for the k-th time at the same ε. Only steps whose result was stored count: a step
that was killed and is retried costs twice, but belongs to the same refresh. A policy is an upper limit in addition to
the lifetime filter (`AccountSpend.within`) and never replaces it, so the privacy guarantee does not depend on policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from privbench_core.privacy.budget import ROUNDING_SLACK, Budget, Measure, Price, rho_for
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
        rho: Sum of all prices in zCDP.
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
class RefreshLimits:
    """A lifetime budget and how it is spread over refreshes."""

    lifetime: Budget
    policy: RefreshPolicy | None = None

    def refusal(self, spent: AccountSpend, refresh: int, price: Price) -> str | None:
        """Return why the policy refuses ``price`` in refresh ``refresh``, with the shortfall; None if it fits."""
        policy = self.policy
        if policy is None:
            return None
        if policy.times is not None and refresh > policy.times:
            share = share_in_words(price.amount if self.lifetime.delta == 0 else price.rho, self._whole)
            return (
                f"costs {share} of the lifetime budget ({price}) and would begin refresh {refresh}, but"
                f" privacy.refresh allows {policy.times}: nothing is left for another"
            )
        after = spent.plus([price])
        if self._within(after, refresh):
            return None
        if self.lifetime.delta == 0:
            cap, before, symbol, cost = self._upto(refresh, _itself), spent.epsilon, "ε", price.amount
        else:
            cap, before, symbol, cost = self._upto(refresh, self._rho), spent.rho, "ρ", price.rho
        left = max(0.0, cap - before)
        costs, allowed, remains = (share_in_words(amount, self._whole) for amount in (cost, cap, left))
        return (
            f"costs {costs} of the lifetime budget, but up to refresh {refresh} privacy.refresh allows {allowed} of it"
            f" ({policy.in_words()}), and {remains} is left (costs {price}, {symbol}={left:.6g} of {cap:.6g} is left:"
            f" short by {cost - left:.6g})"
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

    @property
    def _whole(self) -> float:
        """The lifetime budget in the unit that prices are added up in."""
        return self.lifetime.epsilon if self.lifetime.delta == 0 else self.lifetime.total().amount

    def _pays(self, spent: AccountSpend, first: int, prices: Sequence[Price], times: int) -> bool:
        after, refresh = spent.plus(prices, times), first + times - 1
        if not after.within(self.lifetime):
            return False
        policy = self.policy
        return policy is None or ((policy.times is None or refresh <= policy.times) and self._within(after, refresh))

    def _within(self, after: AccountSpend, refresh: int) -> bool:
        if after.pure and after.epsilon <= self._upto(refresh, _itself) * ROUNDING_SLACK:
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


def _itself(epsilon: float) -> float:
    return epsilon
