"""Refresh policies: how the lifetime budget is spread over the refreshes of a benchmark. Declared, so public.

The ledger numbers refreshes: number k begins when a step is bought for the k-th time at the same ε, so the first
release is refresh 1. A policy limits the total cost of refreshes 1 to k. What an earlier refresh did not use (one of a
single table costs less than one of all) stays available to later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class EqualRefreshes:
    """A fixed number of refreshes of equal cost.

    Attributes:
        epsilon: The most that one refresh may cost: all ε partitions together, at the lifetime's δ.
        times: Number of refreshes, the first release included.

    >>> EqualRefreshes(0.5, times=6).upto(2, 20.0, lambda epsilon: epsilon)
    1.0
    """

    epsilon: float
    times: int

    def upto(self, refresh: int, lifetime: float, worth: Callable[[float], float]) -> float:
        """Return the most that refreshes 1 to ``refresh`` may cost together.

        Args:
            refresh: Number of a refresh, from 1.
            lifetime: ε of the lifetime budget.
            worth: Converts an ε to the privacy measure of the answer: ε itself, or ρ.
        """
        return min(min(refresh, self.times) * worth(self.epsilon), worth(lifetime))

    def in_words(self) -> str:
        """Describe the policy for messages."""
        return f"ε={self.epsilon:g} for " + (f"each of {self.times} refreshes" if self.times > 1 else "one refresh")


@dataclass(frozen=True)
class DecayingRefreshes:
    """Refreshes whose limits decay geometrically, and add up to the lifetime budget.

    Attributes:
        decay: Ratio of consecutive limits, above 0 and below 1. With 0.5 the first refresh may take half of the budget,
            the second a quarter.

    >>> DecayingRefreshes(0.5).upto(2, 20.0, lambda epsilon: epsilon)
    15.0
    """

    decay: float
    times: None = None

    def upto(self, refresh: int, lifetime: float, worth: Callable[[float], float]) -> float:
        """Return the most that refreshes 1 to ``refresh`` may cost together, as `EqualRefreshes.upto`."""
        return worth(lifetime) * (1 - self.decay**refresh)

    def in_words(self) -> str:
        """Describe the policy for messages."""
        first = 1 - self.decay
        return f"{first:.3g} of the lifetime budget for the first refresh, {self.decay:g} times as much for each next"


RefreshPolicy = EqualRefreshes | DecayingRefreshes
