"""Budgets and prices, in the two currencies we use: pure ε and zero-concentrated ρ.

A `Budget` is what an owner says: (ε, δ). A `Price` is what a mechanism costs: ε for a pure one, ρ for a zCDP one, and
beside it the δ that a stability threshold may fail with. Conversion between ρ and (ε, δ) follows Canonne, Kamath and
Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Corollary 13, evaluated on a grid of orders: any order
gives a valid bound, so a grid can only overstate what is spent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from privbench_core.errors import InternalError, UnsupportedBudgetError

_THRESHOLD_SHARE = 0.01  # of a budget's δ, for learning lists of values by stability thresholds; the rest pays for ρ


class Measure(StrEnum):
    """The currency of a price."""

    PURE = "pure"
    ZCDP = "zcdp"


@dataclass(frozen=True)
class Price:
    """The cost of a mechanism, known before it looks at anything.

    Attributes:
        measure: Pure ε-DP or ρ-zCDP.
        amount: ε or ρ.
        delta: Failure probability of stability thresholds, on top.

    >>> Price(Measure.PURE, 1.0).share(0.25) + Price(Measure.PURE, 0.5)
    Price(measure=<Measure.PURE: 'pure'>, amount=0.75, delta=0.0)
    """

    measure: Measure
    amount: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not (self.amount >= 0 and math.isfinite(self.amount) and 0 <= self.delta < 1):
            raise InternalError(f"a price must be finite and not negative: {self.amount}, {self.delta}")

    def share(self, fraction: float) -> Price:
        """``fraction`` of the amount; thresholds' δ is not shared out, it is given to the step that needs it."""
        return Price(self.measure, self.amount * fraction)

    def with_delta(self, delta: float) -> Price:
        """The same amount with a δ for thresholds."""
        return Price(self.measure, self.amount, delta)

    def __add__(self, other: Price) -> Price:
        if self.measure is not other.measure:
            raise InternalError("prices of different measures do not add")
        return Price(self.measure, self.amount + other.amount, self.delta + other.delta)

    @property
    def rho(self) -> float:
        """Cost in zCDP: ε-DP implies ε²/2-zCDP (Bun and Steinke 2016, Proposition 1.4)."""
        return self.amount if self.measure is Measure.ZCDP else self.amount**2 / 2

    def fits(self, limit: Price) -> bool:
        """Whether this is at most ``limit``, up to the rounding error of adding floats."""
        slack = 1 + 1e-9
        same = self.measure is limit.measure
        return same and self.amount <= limit.amount * slack and self.delta <= limit.delta * slack

    def __str__(self) -> str:
        symbol = "ε" if self.measure is Measure.PURE else "ρ"
        return f"{symbol}={self.amount:.4g}" + (f", δ={self.delta:.2g}" if self.delta else "")


def zero(measure: Measure) -> Price:
    """Nothing, in the given currency."""
    return Price(measure, 0.0)


@dataclass(frozen=True)
class Budget:
    """An (ε, δ) differential privacy guarantee for adding or removing one privacy unit. δ = 0 is pure ε-DP."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise UnsupportedBudgetError(f"epsilon must be positive and finite, not {self.epsilon}")
        if not 0 <= self.delta < 1:
            raise UnsupportedBudgetError(f"delta must be in [0, 1), not {self.delta}")

    @property
    def measure(self) -> Measure:
        """Pure for δ = 0, zCDP otherwise."""
        return Measure.PURE if self.delta == 0 else Measure.ZCDP

    @property
    def threshold_delta(self) -> float:
        """The part of δ set aside for stability thresholds; the same whether a spec needs them or not."""
        return self.delta * _THRESHOLD_SHARE

    def total(self) -> Price:
        """All there is to spend: ε, or the ρ for which ρ-zCDP implies (ε, δ minus the thresholds' part)-DP."""
        if self.measure is Measure.PURE:
            return Price(Measure.PURE, self.epsilon)
        return Price(Measure.ZCDP, rho_for(self.epsilon, self.delta - self.threshold_delta), self.threshold_delta)

    def replace_one(self) -> Budget:
        """The guarantee when neighbours replace one unit: a removal and an addition, by group privacy.

        For δ > 0 the δ of the pair is δ(1 + e^ε) (Vadhan 2017, Lemma 2.2).
        """
        return Budget(2 * self.epsilon, min(self.delta * (1 + math.exp(min(self.epsilon, 700))), 1 - 1e-16))


_ORDERS = np.concatenate([1 + np.geomspace(1e-3, 4, 1500), np.geomspace(5.01, 1e6, 3000)])


def delta_for(rho: float, epsilon: float) -> float:
    """The smallest δ (on our grid of orders) such that ρ-zCDP implies (ε, δ)-DP."""
    log_delta = (_ORDERS - 1) * (_ORDERS * rho - epsilon) + _ORDERS * np.log1p(-1 / _ORDERS) - np.log(_ORDERS - 1)
    return float(math.exp(min(0.0, float(np.min(log_delta)))))


@lru_cache(maxsize=256)
def rho_for(epsilon: float, delta: float) -> float:
    """The largest ρ such that ρ-zCDP implies (ε, δ)-DP, rounded down.

    >>> 0.01 < rho_for(1.0, 1e-9) < 0.02
    True
    """
    low, high = 0.0, epsilon + 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_for(middle, epsilon) <= delta else (low, middle)
    return low


def epsilon_for(rho: float, delta: float) -> float:
    """The smallest ε such that ρ-zCDP implies (ε, δ)-DP, rounded up."""
    low, high = 0.0, rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-9
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_for(rho, middle) <= delta else (middle, high)
    return high
