"""Noisy one-way marginals: released counts of columns, each with the standard deviation of its noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Tails
from privbench_core.estimators.denoising import onto_simplex
from privbench_core.estimators.size_shapes import tail_counts
from privbench_core.guards import NEGLIGIBLE
from privbench_core.stored import Storable


@dataclass(frozen=True)
class OneWay(Storable):
    """Released one-way counts of some columns.

    Attributes:
        counts: Column -> noisy counts, shape (size,).
        sigmas: Column -> standard deviation of the noise on each of them, shape (size,).
        rows: Noisy number of rows, where there are no columns to add up.
        tails: Column -> first and last code of each tail that was cut into pieces, on the way outwards.
    """

    counts: Mapping[str, Array]
    sigmas: Mapping[str, Array]
    rows: float = 1.0
    tails: Mapping[str, Tails] = field(default_factory=dict)

    @classmethod
    def with_sigma(cls, counts: Mapping[str, Array], sigma: float, rows: float = 1.0) -> OneWay:
        """Return counts with the same noise on every one."""
        return cls(counts, {name: np.full(len(values), sigma) for name, values in counts.items()}, rows)

    @property
    def total(self) -> float:
        """Number of rows (weighted): the columns' sums averaged by their variances, at least 1."""
        if not self.counts:
            return self.rows
        sums = np.array([counts.sum() for counts in self.counts.values()])
        return max(1.0, float(np.average(sums, weights=self._precisions)))

    @property
    def total_sigma(self) -> float:
        """Standard deviation of the noise on `total`, where there are columns."""
        return float(1 / math.sqrt(sum(self._precisions)))

    @property
    def noise(self) -> float:
        """Standard deviations of all counts of all columns, summed up."""
        return float(sum(sigmas.sum() for sigmas in self.sigmas.values()))

    @property
    def _precisions(self) -> Array:
        """Inverse variances of the columns' sums."""
        return 1 / np.array([(np.maximum(sigmas, NEGLIGIBLE) ** 2).sum() for sigmas in self.sigmas.values()])

    def column(self, name: str) -> tuple[Array, Array]:
        """Return the counts of a column and the standard deviations of their noise, shapes (size,)."""
        return self.counts[name], self.sigmas[name]

    def clean(self) -> dict[str, Array]:
        """Return counts that add up to `total`, none of them zero: noise does not rule a value out."""
        total, cleaned = self.total, {}
        for name in self.counts:
            counts, sigmas = self.counts[name].copy(), np.maximum(self.sigmas[name], NEGLIGIBLE)
            for first, last in self.tails.get(name, ()):
                away = 1 if last > first else -1
                pieces = np.arange(first - away, last + away, away)  # and the code that the tail goes away from
                found, off = tail_counts(counts[pieces], sigmas[pieces])
                counts[pieces[1:]], sigmas[pieces[1:]] = found[1:], off[1:]
            nearest = np.maximum(onto_simplex(counts, total, sigmas**2), NEGLIGIBLE * total)
            cleaned[name] = nearest * (total / nearest.sum())
        return cleaned

    def times(self, factor: float) -> OneWay:
        """Return the same in another unit of counts."""
        counts = {name: values * factor for name, values in self.counts.items()}
        sigmas = {name: values * factor for name, values in self.sigmas.items()}
        return replace(self, counts=counts, sigmas=sigmas, rows=self.rows * factor)

    def moved(self, shifts: Mapping[str, Array]) -> OneWay:
        """Add something to the distributions of some columns, shapes (size,); `total` stays."""
        added = {name: self.counts[name] + shift * self.total for name, shift in shifts.items()}
        return replace(self, counts={**self.counts, **added})

    def only(self, names: Iterable[str]) -> OneWay:
        """Return some of the columns."""
        kept = tuple(names)
        counts, sigmas = ({name: values[name] for name in kept} for values in (self.counts, self.sigmas))
        return replace(self, counts=counts, sigmas=sigmas)
