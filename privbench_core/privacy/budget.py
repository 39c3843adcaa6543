"""Budgets and prices, in two privacy measures: pure ε-DP and μ-Gaussian DP, whose prices are ρ = μ²/2.

A `Budget` is an owner's (ε, δ). A `Price` is the cost of a mechanism: ε or ρ, plus the δ with which a stability
threshold may fail. A mechanism is μ-GDP (Dong, Roth and Su 2022, "Gaussian differential privacy", Definition 4) if its
answers on neighbours are no easier to tell apart than N(0, 1) and N(μ, 1). Costs add up in μ², even where each
mechanism and its price are chosen by earlier answers (Smith and Thakurta 2022, "Fully adaptive composition for Gaussian
differential privacy"), so ρ adds up as in zCDP, which μ-GDP implies with the same ρ. The conversion to (ε, δ) is exact
(Balle and Wang 2018, Theorem 8), where that of zCDP is a bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from privbench_core.errors import InternalError, UnsupportedBudgetError

# Share of a budget's δ for learning lists of values by stability thresholds; the rest pays for ρ. Chosen by hand: ρ and
# the threshold both depend on log(1/δ) only.
_THRESHOLD_SHARE = 0.01
ROUNDING_SLACK = 1 + 1e-9
"""Factor by which a sum of prices may exceed a limit: far above the rounding error of adding floats."""
_FAR = -30.0  # from here on the asymptotic series of the normal distribution's tail is as exact as floats are
_UNLIKELY = 1e100  # deviations that never happen, and whose square is a float still
_ROUNDING = 1e-14  # relative, of a float's logarithm: some fifty times what one operation loses


class Measure(StrEnum):
    """The privacy measure that a price is in."""

    PURE = "pure"
    GDP = "gdp"


@dataclass(frozen=True)
class Price:
    """The cost of a mechanism, known before it reads private rows.

    A mechanism satisfies its price if it is ε-DP or √(2ρ)-GDP, up to a probability δ where there is one, for adding or
    removing one privacy unit.

    Attributes:
        measure: Pure ε-DP or GDP.
        amount: ε or ρ = μ²/2.
        delta: Failure probability of stability thresholds, in addition.

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
        """Return ``fraction`` of the amount, without δ: `with_delta` gives that to the step that needs it."""
        return Price(self.measure, self.amount * fraction)

    def with_delta(self, delta: float) -> Price:
        """Return the same amount with a δ for thresholds."""
        return Price(self.measure, self.amount, delta)

    def __add__(self, other: Price) -> Price:
        if self.measure is not other.measure:
            raise InternalError("prices of different measures do not add")
        return Price(self.measure, self.amount + other.amount, self.delta + other.delta)

    @property
    def rho(self) -> float:
        """Return the cost as ρ: ε-DP implies √(π/2)ε-GDP (``docs/privacy.md``, section 5, mechanism 5)."""
        return self.amount if self.measure is Measure.GDP else math.pi / 4 * self.amount**2

    def fits(self, limit: Price) -> bool:
        """Return whether this is at most ``limit``, up to `ROUNDING_SLACK`."""
        same = self.measure is limit.measure
        within = self.amount <= limit.amount * ROUNDING_SLACK and self.delta <= limit.delta * ROUNDING_SLACK
        return same and within

    def __str__(self) -> str:
        symbol = "ε" if self.measure is Measure.PURE else "ρ"
        return f"{symbol}={self.amount:.4g}" + (f", δ={self.delta:.2g}" if self.delta else "")


def zero(measure: Measure) -> Price:
    """Return a price of zero in the given measure."""
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
        """Return pure ε-DP for δ = 0, GDP otherwise."""
        return Measure.PURE if self.delta == 0 else Measure.GDP

    @property
    def threshold_delta(self) -> float:
        """Return the part of δ reserved for stability thresholds, the same whether a spec needs them or not."""
        return self.delta * _THRESHOLD_SHARE

    def total(self) -> Price:
        """Return the whole budget as a price: ε, or the ρ at which √(2ρ)-GDP implies (ε, δ - `threshold_delta`)-DP."""
        if self.measure is Measure.PURE:
            return Price(Measure.PURE, self.epsilon)
        return Price(Measure.GDP, rho_for(self.epsilon, self.delta - self.threshold_delta), self.threshold_delta)

    def replace_one(self) -> Budget:
        """Return the guarantee for neighbours that replace one unit: a removal and an addition, by group privacy.

        For δ > 0 the δ of the pair is δ(1 + e^ε) (Vadhan 2017, Lemma 2.2).
        """
        return Budget(2 * self.epsilon, min(self.delta * (1 + math.exp(min(self.epsilon, 700))), 1 - 1e-16))


def delta_for(rho: float, epsilon: float) -> float:
    """Return the smallest δ such that √(2ρ)-GDP implies (ε, δ)-DP: Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ)."""
    return math.exp(_log_delta(rho, epsilon))


@lru_cache(maxsize=256)
def rho_for(epsilon: float, delta: float) -> float:
    """Return the largest ρ such that √(2ρ)-GDP implies (ε, δ)-DP, rounded down.

    >>> 0.01 < rho_for(1.0, 1e-9) < 0.02
    True
    """
    low, high = 0.0, epsilon + 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _log_delta(middle, epsilon) <= math.log(delta) else (low, middle)
    return low / ROUNDING_SLACK


@lru_cache(maxsize=256)
def epsilon_for(rho: float, delta: float) -> float:
    """Return the smallest ε such that √(2ρ)-GDP implies (ε, δ)-DP, rounded up."""
    low, high = 0.0, rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-9  # where zCDP's simplest bound is
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if _log_delta(rho, middle) <= math.log(delta) else (middle, high)
    return high * ROUNDING_SLACK


def _log_delta(rho: float, epsilon: float) -> float:
    """Return ln δ of √(2ρ)-GDP at ε, not less than the exact one by more than a rounding error."""
    mu = math.sqrt(2 * rho)
    if mu == 0 or epsilon / mu > _UNLIKELY:
        return -math.inf
    first, second = _log_normal(mu / 2 - epsilon / mu), _log_normal(-mu / 2 - epsilon / mu)
    gap = first - second - epsilon  # ln of the ratio of the two terms, which may be as near to 0 as its rounding error
    gap += _ROUNDING * (1 + epsilon + abs(first) + abs(second))
    return first + math.log(-math.expm1(-gap))


def _log_normal(x: float) -> float:
    """Return ln Φ(x), as `scipy.special.log_ndtr` does, whose import takes longer than light commands may."""
    if x > _FAR:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    tail = sum(math.prod(range(1, 2 * k, 2)) * (-1 / x**2) ** k for k in range(1, 8))
    return -(x**2) / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(tail)
