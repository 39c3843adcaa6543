"""One-way marginals: released counts of columns, and which of them are worth a second look for what price."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.simplex import onto_simplex

Array = NDArray[np.float64]
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

    def times(self, factor: float) -> OneWay:
        """The same in another unit of counts."""
        counts = {name: values * factor for name, values in self.counts.items()}
        return OneWay(counts, {name: values * factor for name, values in self.sigmas.items()}, self.rows * factor)

    def only(self, names: Iterable[str]) -> OneWay:
        """Some of the columns."""
        kept = tuple(names)
        return OneWay({name: self.counts[name] for name in kept}, {name: self.sigmas[name] for name in kept}, self.rows)

    def _variances(self, name: str) -> Array:
        return np.maximum(self.sigmas[name], _EXACT) ** 2
