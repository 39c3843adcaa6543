"""Refreshes as the ledger sees them: which one a purchase belongs to, and how many more an account can pay for.

Refresh k begins when a step is bought for the k-th time at the same ε. Only steps whose result was stored count: a step
that was killed and is tried again costs twice, but belongs to the same refresh. A policy is an upper limit beside the
lifetime filter and never instead of it, so nothing in here carries the privacy guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from privbench_core.privacy.budget import Budget, Measure, Price, rho_for
from privbench_core.spec.refresh import RefreshPolicy

_SLACK = 1 + 1e-9
_MANY = 10**9
Purchase = tuple[str, str]
"""(run, step): what a refresh buys once."""


@dataclass(frozen=True)
class AccountSpend:
    """What an account has paid, and for how many refreshes.

    Attributes:
        pure: Whether all of it is pure ε-DP.
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
        """Number of the last refresh that was begun; 0 before the first release."""
        return max(self.bought.values(), default=0)

    def refresh_of(self, purchases: Iterable[Purchase]) -> int:
        """Number of the refresh that buying these would belong to."""
        return max(self.refresh, *(self.bought.get(purchase, 0) + 1 for purchase in purchases), 1)

    def plus(self, prices: Sequence[Price], times: int = 1) -> AccountSpend:
        """After all of ``prices`` were paid, each ``times`` times."""
        pure = [price for price in prices if price.measure is Measure.PURE]
        delta = self.delta + times * sum(price.delta for price in prices)
        return replace(
            self,
            pure=self.pure and len(pure) == len(prices) and delta == 0,
            epsilon=self.epsilon + times * sum(price.amount for price in pure),
            rho=self.rho + times * sum(price.rho for price in prices),
            delta=delta,
        )


@dataclass(frozen=True)
class RefreshLimits:
    """A lifetime budget and how it is spread over refreshes."""

    lifetime: Budget
    policy: RefreshPolicy | None = None

    def refusal(self, spent: AccountSpend, refresh: int, price: Price) -> str | None:
        """Why the policy does not let ``price`` be paid in refresh number ``refresh``, with the exact shortfall."""
        policy = self.policy
        if policy is None:
            return None
        if policy.times is not None and refresh > policy.times:
            return (
                f"costs {price} and would begin refresh {refresh}, but privacy.refresh allows {policy.times}:"
                f" nothing is left for another, short by {price}"
            )
        after = spent.plus([price])
        if self._within(after, refresh):
            return None
        if self.lifetime.delta == 0:
            cap, before, symbol, cost = self._upto(refresh, _itself), spent.epsilon, "ε", price.amount
        else:
            cap, before, symbol, cost = self._upto(refresh, self._rho), spent.rho, "ρ", price.rho
        left = max(0.0, cap - before)
        return (
            f"costs {price}, but up to refresh {refresh} privacy.refresh allows {symbol}={cap:.6g}"
            f" ({policy.in_words()}), of which {left:.6g} is left: short by {cost - left:.6g}"
        )

    def affordable(self, spent: AccountSpend, first: int, prices: Sequence[Price]) -> int:
        """How many more refreshes the account can pay for, one after the other.

        Args:
            spent: What was paid so far.
            first: Number of the first of them.
            prices: Of all steps of one refresh.

        The costs grow in a straight line and every limit is a concave function of the number of refreshes, so once one
        cannot be paid, no later one can: the answer is found by bisection.
        """
        if not self._pays(spent, first, prices, 1):
            return 0
        low, high = 1, 2
        while high < _MANY and self._pays(spent, first, prices, high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._pays(spent, first, prices, middle) else (low, middle)
        return low

    def _pays(self, spent: AccountSpend, first: int, prices: Sequence[Price], times: int) -> bool:
        after, refresh = spent.plus(prices, times), first + times - 1
        if not self._covers(after):
            return False
        policy = self.policy
        return policy is None or ((policy.times is None or refresh <= policy.times) and self._within(after, refresh))

    def _covers(self, after: AccountSpend) -> bool:
        """Whether the lifetime budget covers it: the filter of `Ledger`."""
        life = self.lifetime
        if after.pure and after.epsilon <= life.epsilon * _SLACK:
            return True
        within = life.delta > 0 and after.rho <= life.total().amount * _SLACK
        return within and after.delta <= life.threshold_delta * _SLACK

    def _within(self, after: AccountSpend, refresh: int) -> bool:
        if after.pure and after.epsilon <= self._upto(refresh, _itself) * _SLACK:
            return True
        return self.lifetime.delta > 0 and after.rho <= self._upto(refresh, self._rho) * _SLACK

    def _upto(self, refresh: int, worth: Callable[[float], float]) -> float:
        return self.policy.upto(refresh, self.lifetime.epsilon, worth) if self.policy else worth(self.lifetime.epsilon)

    def _rho(self, epsilon: float) -> float:
        return rho_for(epsilon, self.lifetime.delta - self.lifetime.threshold_delta)


def _itself(epsilon: float) -> float:
    return epsilon
