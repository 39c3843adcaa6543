"""Measure one-way marginals, and again where that leaves the least noise."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimators.fitting import combine
from privbench_core.marginals.measured import Counted
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, Own
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Remeasurement:
    """A plan.

    Attributes:
        shares: Of the price, for columns that are measured again; they add up to 1.
        noise: Standard deviations of all counts of all columns after that, summed up.
    """

    shares: Mapping[str, float]
    noise: float


def choose_remeasurement(curator: Curator, one_way: OneWay, price: Price) -> Remeasurement:
    """Choose which one-way marginals to measure again, and for how much: what leaves the least noise in all.

    Which columns take part is tried from those that have most noise, by released numbers alone. With Laplace noise they
    are few: two measurements at equal prices are worth √2 times one, one at twice the price is worth twice as much.

    Args:
        curator: Of a view with these columns.
        one_way: Their counts so far.
        price: Of all that is measured again.
    """
    before = {name: float(sigmas.sum()) for name, sigmas in one_way.sigmas.items()}
    columns = sorted(before, key=lambda name: -before[name])
    informative = [name for name in columns if len(one_way.counts[name]) > 1] or columns[:1]
    alone, power = curator.sigma([Marginal(())], price), noise_power(price.measure)
    plans = []
    for number in range(1, len(informative) + 1):
        shares = least_noise({name: len(one_way.counts[name]) for name in informative[:number]}, price.measure)
        after = dict(before)
        for name, share in shares.items():
            first = one_way.sigmas[name]
            after[name] = float((first / np.sqrt(1 + (first / (alone * share**-power)) ** 2)).sum())
        noise = sum(after.values())
        plans.append(Remeasurement(shares, noise))
    return min(plans, key=lambda plan: plan.noise, default=Remeasurement({}, math.inf))


def least_noise(counts: Mapping[Name, float], measure: Measure) -> dict[Name, float]:
    """Return shares of a price for so many counts each that leave the least noise in sum.

    Noise with standard deviation ∝ share^-p on c counts is least in sum for shares ∝ c^(1 / (p + 1)).
    """
    weights = {name: number ** (1 / (noise_power(measure) + 1)) for name, number in counts.items()}
    whole = math.fsum(weights.values())
    return {name: weight / whole for name, weight in weights.items()}


def noise_power(measure: Measure) -> float:
    """Return p, where the standard deviation of noise goes with share^-p."""
    return 1.0 if measure is Measure.PURE else 0.5


def view_of_cells(session: PrivateSession, table: str, codecs: Mapping[str, Codec], most: int, label: str) -> Curator:
    """Return a view of the cells of some columns of a table's rows, those of a unit with up to ``most`` in full."""
    features: dict[str, tuple[Feature, Discretizer]] = {name: (Own(name), Discretizer(c)) for name, c in codecs.items()}
    return session.view(ViewSpec(table, features, (most,)), label)


def measure_one_way(curator: Curator, names: Sequence[str], price: Price, label: str = "one-way") -> OneWay:
    """Measure the one-way marginals of some columns, all at once.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1 and 4.
    """
    noisy = curator.measure(label, [Marginal((name,)) for name in names], price)
    return OneWay.with_sigma(dict(zip(names, noisy.values, strict=True)), noisy.sigma)


def remeasure(curator: Curator, one_way: OneWay, price: Price) -> OneWay:
    """Measure some one-way marginals once more, for ``price`` in all, and average with what is known.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    counts, sigmas = dict(one_way.counts), dict(one_way.sigmas)
    for name, share in choose_remeasurement(curator, one_way, price).shares.items():
        found = curator.measure(f"one-way again, {name}", [Marginal((name,))], price.share(share))
        counts[name], sigmas[name] = combine(counts[name], sigmas[name], found.values[0], found.sigma)
    return replace(one_way, counts=counts, sigmas=sigmas)


@dataclass
class Marginals:
    """One-way marginals of a view, measured again where that leaves the least noise.

    Attributes:
        curator: Of the view that joints are counted in.
        one_way: All that is known now, distributed like all rows.
    """

    curator: Curator
    one_way: OneWay

    @property
    def counted(self) -> OneWay:
        """Distributed like the rows that joints count, here all: what these are to be compared with."""
        return self.one_way

    def rows_counted(self, gain: float = 1.0) -> Counted | None:
        """Return the rows that joints count, ``gain`` times as many as without clipping; None if these are all."""
        return None

    def clipping_gain(self, columns: Iterable[str]) -> float:
        """Return how many times as many rows a joint counts, as expected, if units are clipped in L2 norm."""
        return 1.0

    def noise(self, price: Price) -> float:
        """Return standard deviations of all counts, summed up, as expected once `improve` has spent ``price``."""
        if price.amount <= 0:
            return self.one_way.noise
        return choose_remeasurement(self.curator, self.one_way, price).noise

    def improve(self, price: Price) -> OneWay:
        """Measure again, for ``price`` in all; return what is known then.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
        """
        if price.amount > 0:
            self.one_way = remeasure(self.curator, self.one_way, price)
        return self.one_way
