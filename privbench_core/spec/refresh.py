"""Refresh policies: how the lifetime budget is spread over the refreshes of a benchmark. Declared, so public.

A refresh is numbered by the ledger: number k begins when a step is bought for the k-th time at the same ε, so the first
release is refresh 1. A policy says how much refreshes 1 to k may cost together. What an earlier refresh did not use
(one of a single table costs less than one of all) stays available to later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class EqualRefreshes:
    """Every refresh may cost as much as the others, and there are so many of them.

    Attributes:
        epsilon: What one refresh may cost: all ε partitions together, at the lifetime's δ.
        times: How many there may be, the first release counted.

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
            worth: What an ε is worth in the currency of the answer: itself, or a ρ.
        """
        return min(min(refresh, self.times) * worth(self.epsilon), worth(lifetime))

    def in_words(self) -> str:
        """For people."""
        return f"ε={self.epsilon:g} for " + (f"each of {self.times} refreshes" if self.times > 1 else "one refresh")


@dataclass(frozen=True)
class DecayingRefreshes:
    """Every refresh may cost ``decay`` times what the one before might; all of them together the lifetime budget.

    Attributes:
        decay: Above 0 and below 1. With 0.5 the first may take half of the budget, the second a quarter.

    >>> DecayingRefreshes(0.5).upto(2, 20.0, lambda epsilon: epsilon)
    15.0
    """

    decay: float
    times: None = None

    def upto(self, refresh: int, lifetime: float, worth: Callable[[float], float]) -> float:
        """As `EqualRefreshes.upto`."""
        return worth(lifetime) * (1 - self.decay**refresh)

    def in_words(self) -> str:
        """For people."""
        first = 1 - self.decay
        return f"{first:.3g} of the lifetime budget for the first refresh, {self.decay:g} times as much for each next"


RefreshPolicy = EqualRefreshes | DecayingRefreshes
