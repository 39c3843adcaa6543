"""One-way marginals: released counts of columns, and which of them are worth a second look for what price."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.simplex import onto_simplex
from privbench_core.models.estimate import combine
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal

Array = NDArray[np.float64]
Name = TypeVar("Name", bound=Hashable)
_EXACT = 1e-9  # noise of counts that are known exactly: what is divided by it stays finite
_POSSIBLE = 0.3  # standard deviations that a count is at least: noise does not rule a value out
_RARELY = 0.2  # of an equal share of the rows: most that a value is given without evidence


@dataclass(frozen=True)
class OneWay:
    """Released one-way counts of some columns.

    Attributes:
        counts: Column -> noisy counts, shape (size,).
        sigmas: Column -> standard deviation of the noise on each of them, shape (size,).
        rows: Noisy number of rows, where there are no columns to add up.
    """

    counts: Mapping[str, Array]
    sigmas: Mapping[str, Array]
    rows: float = 1.0

    @classmethod
    def alike(cls, counts: Mapping[str, Array], sigma: float, rows: float = 1.0) -> OneWay:
        """With the same noise on every count."""
        return cls(counts, {name: np.full(len(values), sigma) for name, values in counts.items()}, rows)

    @property
    def total(self) -> float:
        """Number of rows (weighted): the columns' sums averaged by their variances, at least 1."""
        if not self.counts:
            return self.rows
        variances = np.array([self._variances(name).sum() for name in self.counts])
        sums = np.array([c.sum() for c in self.counts.values()])
        return max(1.0, float(np.average(sums, weights=1 / variances)))

    @property
    def total_sigma(self) -> float:
        """Standard deviation of the noise on `total`, where there are columns."""
        return float(1 / math.sqrt(sum(1 / self._variances(name).sum() for name in self.counts)))

    @property
    def noise(self) -> float:
        """Standard deviations of all counts of all columns, summed up."""
        return float(sum(sigmas.sum() for sigmas in self.sigmas.values()))

    def clean(self) -> dict[str, Array]:
        """Counts that add up to `total`, none of them zero unless its noise is."""
        return {name: self._possible(name) for name in self.counts}

    def _possible(self, name: str) -> Array:
        total, variances = self.total, self._variances(name)
        nearest = onto_simplex(self.counts[name], total, variances)
        least = np.minimum(_POSSIBLE * np.sqrt(variances), _RARELY * total / len(nearest))
        raised = np.maximum(nearest, least)
        return np.asarray(raised * (total / raised.sum()))

    def only(self, names: Iterable[str]) -> OneWay:
        """Some of the columns."""
        kept = tuple(names)
        return OneWay({name: self.counts[name] for name in kept}, {name: self.sigmas[name] for name in kept}, self.rows)

    def _variances(self, name: str) -> Array:
        return np.maximum(self.sigmas[name], _EXACT) ** 2


@dataclass(frozen=True)
class SecondLook:
    """A plan.

    Attributes:
        shares: Of the price, for columns that are measured again; they add up to 1.
        noise: Standard deviations of all counts of all columns after that, summed up.
    """

    shares: Mapping[str, float]
    noise: float


def second_look(curator: Curator, one_way: OneWay, price: Price) -> SecondLook:
    """Which one-way marginals to measure again, and for how much: those that leave the least noise in all.

    Noise with standard deviation ∝ share^-p on c counts is least in sum for shares ∝ c^(1 / (p + 1)). Which columns
    take part is tried from those that have most noise. With Laplace noise (p = 1) they are few: two looks at equal
    prices are worth √2 times one, one look at twice the price is worth twice as much.

    Args:
        curator: Of a view with these columns.
        one_way: Their counts so far; which columns are worth another look depends on released numbers alone.
        price: Of all that is measured again.
    """
    columns = sorted(one_way.counts, key=lambda name: -float(one_way.sigmas[name].sum()))
    told = [name for name in columns if len(one_way.counts[name]) > 1] or columns[:1]
    power = _power(price.measure)
    weights = np.array([len(one_way.counts[name]) for name in told]) ** (1 / (power + 1))
    alone = curator.sigma([Marginal(())], price)
    best = SecondLook({}, math.inf)
    before = np.array([one_way.sigmas[name].sum() for name in columns])
    for number in range(1, len(told) + 1):
        shares = weights[:number] / weights[:number].sum()
        again = alone * shares**-power
        noise = float(before.sum() - before[:number].sum())
        for name, sigma in zip(told, again, strict=False):
            first = one_way.sigmas[name]
            noise += float((first / np.sqrt(1 + (first / sigma) ** 2)).sum())
        if noise < best.noise:
            best = SecondLook(dict(zip(told, shares.tolist(), strict=False)), noise)
    return best


def least_noise(counts: Mapping[Name, float], measure: Measure) -> dict[Name, float]:
    """Shares of a price for so many counts each that leave the least noise in sum: see `second_look`."""
    weights = {name: number ** (1 / (_power(measure) + 1)) for name, number in counts.items()}
    whole = math.fsum(weights.values())
    return {name: weight / whole for name, weight in weights.items()}


def _power(measure: Measure) -> float:
    """p, where the standard deviation of noise goes with share^-p."""
    return 1.0 if measure is Measure.PURE else 0.5


def count_again(curator: Curator, one_way: OneWay, price: Price) -> OneWay:
    """Some one-way marginals measured once more, for ``price`` in all, and averaged with what is known."""
    counts, sigmas = dict(one_way.counts), dict(one_way.sigmas)
    for name, share in second_look(curator, one_way, price).shares.items():
        again = curator.measure(f"one-way again, {name}", [Marginal((name,))], price.share(share))
        counts[name], sigmas[name] = combine(counts[name], sigmas[name], again.values[0], again.sigma)
    return OneWay(counts, sigmas, one_way.rows)
