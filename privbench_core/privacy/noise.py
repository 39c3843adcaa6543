"""The only module that draws privacy noise.

Every draw goes through a `NoiseSource`, which gets the exact integer vector, its declared sensitivity and the price,
and calibrates the noise itself, so that no caller can get a scale wrong. Production uses `OpenDPNoise` (discrete
Laplace, discrete Gaussian, and the exponential mechanism as permute-and-flip or Gumbel noise, all exact). OpenDP
cannot be seeded; tests inject a source of their own, which a durable ledger refuses (`session.open_session`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import InternalError, UnsupportedBudgetError
from privbench_core.privacy.budget import Measure, Price

Counts = NDArray[np.int64]
_ROUND_UP = 1 + 1e-9  # factor on scales, far above a float's rounding error, so that rounding can only add noise
_GRID_DEVIATION = 2  # of the random rounding to whole numbers that a discrete Gaussian contains, see `noise_scale`
_FINE = 4096  # steps of the grid in a deviation of Gaussian noise, from which that adds nothing that shows; by hand


@dataclass(frozen=True)
class Sensitivity:
    """The most that one unit can move a vector of integers, in L1 and in L2 norm."""

    l1: float
    l2: float

    def times(self, factor: int) -> Sensitivity:
        """Return the sensitivity of the vector times ``factor``."""
        return Sensitivity(self.l1 * factor, self.l2 * factor)


class NoiseSource(Protocol):
    """A source of privacy noise.

    Attributes:
        secure: Whether draws are cryptographically random; a durable ledger insists on it.
    """

    @property
    def secure(self) -> bool:
        """Return whether a durable ledger may use it."""
        ...

    def add(self, site: str, exact: Counts, sensitivity: Sensitivity, price: Price) -> Counts:
        """Return ``exact`` plus noise calibrated to ``price``, same shape."""
        ...

    def choose(self, site: str, scores: Counts, sensitivity: int, price: Price) -> int:
        """Return the index of a noisily largest score; one unit moves each score by at most ``sensitivity``."""
        ...

    def keep(
        self, site: str, exact: dict[str, int], sensitivity: Sensitivity, price: Price, touched: int
    ) -> dict[str, int]:
        """Return noisy counts of the keys above a stability threshold; one unit touches at most ``touched`` keys."""
        ...


def noise_scale(sensitivity: Sensitivity, price: Price) -> float:
    """Return the Laplace scale b = L1/ε, or the σ = √(L2²/(2ρ) + 4) of a discrete Gaussian.

    Discrete Gaussian noise of variance r² + 4 on whole numbers is what N(0, r²) becomes when it is rounded at random to
    whole numbers, up to factors of 1 ± 10⁻³³ (Peikert 2010, "An efficient and parallel Gaussian sampler for lattices",
    Theorem 3.1; ``docs/privacy.md``, section 5, mechanism 4): so it is μ-GDP for μ = L2/r = √(2ρ), as N(0, r²) is.

    Sources: Dwork and Roth 2014, Theorem 3.6; Dong, Roth and Su 2022, Theorem 1.
    """
    if price.measure is Measure.PURE:
        return sensitivity.l1 / _paid(price) * _ROUND_UP
    return math.hypot(_continuous(sensitivity, price), _GRID_DEVIATION) * _ROUND_UP


def fineness(sensitivity: Sensitivity, price: Price) -> int:
    """Return by what answers, and their sensitivity, are multiplied to make whole numbers a fine grid for the noise.

    A power of two; 1 for Laplace noise, which needs none, and where the noise is `_FINE` steps or more already. Public.
    """
    if price.measure is Measure.PURE:
        return 1
    steps = _continuous(sensitivity, price)
    return 1 << max(0, math.ceil(math.log2(_FINE / steps)))


def _continuous(sensitivity: Sensitivity, price: Price) -> float:
    """Return the σ of Gaussian noise that is no whole number."""
    return sensitivity.l2 / math.sqrt(2 * _paid(price))


def _paid(price: Price) -> float:
    if price.amount <= 0:
        raise InternalError("noise needs a price above zero")
    return price.amount


def noise_std(sensitivity: Sensitivity, price: Price) -> float:
    """Return the standard deviation of one draw of the noise, on the grid of `fineness`."""
    if price.measure is Measure.PURE:
        return noise_scale(sensitivity, price) * math.sqrt(2)
    factor = fineness(sensitivity, price)
    return noise_scale(sensitivity.times(factor), price) / factor


def threshold(sensitivity: Sensitivity, price: Price, touched: int) -> float:
    """Return the count from which a key may be released; fails with probability at most ``price.delta``.

    A key that only one unit holds has a count of at most the L2 sensitivity, which bounds L∞; each of the ``touched``
    keys of a unit may exceed the threshold with probability δ/touched. A discrete Gaussian is n or more with at most
    the probability that a Gaussian is n - 1 or more, for n ≥ 1: Canonne, Kamath and Steinke 2020, Proposition 25.
    """
    if price.measure is Measure.PURE or price.delta <= 0:
        message = (
            "a list of values can only be learned with delta > 0 (stability threshold); declare the values instead"
        )
        raise UnsupportedBudgetError(message)
    if price.delta / touched <= 0:
        raise UnsupportedBudgetError(f"delta {price.delta:g} is too small to be shared by {touched} values; raise it")
    deviations = -NormalDist().inv_cdf(min(price.delta / touched, 0.5))
    return sensitivity.l2 + 1 + noise_scale(sensitivity, price) * deviations * _ROUND_UP


def bounded_range(rho: float) -> float:
    """Return the ε of an exponential mechanism that is √(2ρ)-GDP: 4√(ρ/π) (``docs/privacy.md``, section 5)."""
    return 4 * math.sqrt(rho / math.pi)


class OpenDPNoise:
    """Discrete, exact noise from the OpenDP library (0.14.2 or newer, where its samplers are unbiased)."""

    secure = True

    def add(self, site: str, exact: Counts, sensitivity: Sensitivity, price: Price) -> Counts:
        """Add noise, see `NoiseSource.add`; one call draws the whole vector."""
        import opendp.prelude as dp

        dp.enable_features("contrib")
        scale = noise_scale(sensitivity, price)
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        if price.measure is Measure.PURE:
            mechanism = dp.m.make_laplace(domain, dp.l1_distance(T="f64"), scale=scale)
        else:
            mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale)
        noisy = mechanism(np.asarray(exact, dtype=np.int64).ravel().tolist())
        return np.asarray(noisy, dtype=np.int64).reshape(exact.shape)

    def choose(self, site: str, scores: Counts, sensitivity: int, price: Price) -> int:
        """Choose by the exponential mechanism: ε-DP at scale 2Δ/ε, and √(2π)/4 ε-GDP by its bounded range."""
        import opendp.prelude as dp

        dp.enable_features("contrib")
        pure = price.measure is Measure.PURE
        epsilon = price.amount if pure else bounded_range(price.amount)
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
        measure = dp.max_divergence() if pure else dp.zero_concentrated_divergence()
        mechanism = dp.m.make_noisy_max(*space, measure, scale=2 * sensitivity / epsilon * _ROUND_UP)
        cost = float(mechanism.map(sensitivity))  # type: ignore[no-untyped-call]
        if cost > (epsilon if pure else epsilon**2 / 8) * _ROUND_UP:
            raise InternalError(f"{site}: the selection would cost {cost:.6g}, priced at {price}")
        return int(mechanism(np.asarray(scores, dtype=np.int64).tolist()))

    def keep(
        self, site: str, exact: dict[str, int], sensitivity: Sensitivity, price: Price, touched: int
    ) -> dict[str, int]:
        """Keep keys above the threshold, see `NoiseSource.keep`."""
        least = threshold(sensitivity, price, touched)
        keys = sorted(exact)
        if not keys:
            return {}
        noisy = self.add(site, np.array([exact[k] for k in keys], dtype=np.int64), sensitivity, price)
        return {key: int(count) for key, count in zip(keys, noisy, strict=True) if count >= least}
