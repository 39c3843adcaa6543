"""Distributions that drift from class to class, from noisy counts: each class leans on its neighbours.

Neighbouring classes of sizes have similar habits, and the largest ones few units and most rows. So the distributions of
a column are a Gaussian process over classes: a random walk, and where the counts speak for it a walk of trends (habits
that go on changing as they did; Wahba 1978). How far steps go is averaged over, by what the noisy counts make of it, so
that classes which noise cannot tell apart are pooled, and classes that differ keep what is their own. All that is
measured of the column is a sum over classes, and tells of all of them (Kalman 1960, without time). Post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.simplex import onto_simplex

Array = NDArray[np.float64]
# Variances of steps from class to class, and of changes of trends, as multiples of a share.
_STEPS = np.append(0.0, np.geomspace(1e-4, 1.0, 7))
_TRENDS = np.append(0.0, np.geomspace(1e-4, 0.3, 6))
# Logarithm of the odds against each trend beforehand: chosen on four tables of a real site with noise of three budgets.
# Less has smaller errors where there are trends, and larger ones where there are none.
_AGAINST = float(np.log(len(_TRENDS) - 1)) + 2.0
_UNLIKELY = 12.0  # less in log-likelihood than the best: left out of averages
_UNKNOWN = 1.0  # variance of a share before anything is known
_NOTHING = 1e-12


@dataclass(frozen=True)
class Drift:
    """What is known of a column's distribution in each class of sizes: an average over variances of steps and trends.

    Attributes:
        likelihoods: Logarithms of the probability of what was measured if steps and trends have certain variances, and
            of these variances beforehand; shape (variances,).
        means: Expected shares then, shape (variances, codes, classes).
        covariances: Of the shares of a code in different classes, shape (variances, codes, classes, classes).
    """

    likelihoods: Array
    means: Array
    covariances: Array

    @classmethod
    def of(cls, noisy: Array, sigmas: Array, rows: Array) -> Drift:
        """From noisy counts of each class.

        Args:
            noisy: Counts of rows, shape (classes, codes).
            sigmas: Standard deviations of their noise, shape (classes,).
            rows: Number of rows of each class, shape (classes,).
        """
        classes, codes = noisy.shape
        there = np.flatnonzero(rows > 0)
        if not len(there):
            unknown = np.full((1, codes, classes, classes), _UNKNOWN)
            return cls(np.zeros(1), np.full((1, codes, classes), 1 / codes), unknown)
        shares = (noisy[there] / rows[there, None]).T
        noise = np.maximum((sigmas[there] / rows[there]) ** 2, _NOTHING)
        pooled = onto_simplex(shares @ (1 / noise) / (1 / noise).sum(), 1.0)
        start = np.tile(pooled[:, None], (len(_TRENDS), 1, classes))
        pooled = np.maximum(pooled, 1 / np.sqrt((1 / noise).sum()))  # less than that is not to be told from it
        beforehand = np.where(_TRENDS > 0, -_AGAINST, 0.0)
        walk, trends = _walk(classes), _TRENDS[:, None, None, None] * _bend(classes)
        found = []
        for step in _STEPS:  # one after the other, for memory
            known = cls(beforehand, start, _UNKNOWN + pooled[:, None, None] * (step * walk + trends))
            for place, share, variance in zip(there, shares.T, noise, strict=True):
                known = known._all_updated(np.eye(classes)[place], share, np.full(codes, variance))
            found.append(known)
        best = max(float(each.likelihoods.max()) for each in found)
        kept = [each._likely(best) for each in found]
        return cls(*(np.concatenate(parts) for parts in zip(*kept, strict=True)))

    def updated(self, weights: Array, shares: Array, sigmas: Array) -> Drift:
        """The same, given what a sum over classes was found to be.

        Args:
            weights: Of the classes, shape (classes,); or for each code by itself, shape (codes, classes).
            shares: The sum, shape (codes,).
            sigmas: Standard deviations of these, shape (codes,).
        """
        known = self._all_updated(weights, shares, sigmas**2)
        return Drift(*known._likely(float(known.likelihoods.max())))

    def average(self, weights: Array) -> tuple[Array, Array]:
        """An average over classes, and its standard deviations; shapes (codes,)."""
        odds, means = self._odds, self.means @ weights
        mean = odds @ means
        return mean, np.sqrt(np.maximum(odds @ (self._gain(weights) @ weights + (means - mean) ** 2), 0.0))

    def doubt(self, wanted: Array, weights: Array, sigmas: Array) -> float:
        """Standard deviations of the average with weights ``wanted``, summed up, once `updated`.

        Args:
            wanted: Of the classes, shape (classes,).
            weights: As in `updated`.
            sigmas: As in `updated`.
        """
        gain = self._gain(weights)
        known = (gain @ wanted) ** 2 / np.maximum((gain * weights).sum(axis=-1) + sigmas**2, _NOTHING)
        left = np.sqrt(np.maximum(self._gain(wanted) @ wanted - known, 0.0))
        return float(self._odds @ left.sum(axis=1))

    @property
    def shapes(self) -> Array:
        """Distributions in each class, shape (classes, codes); each adds up to 1."""
        means = np.tensordot(self._odds, self.means, axes=1)
        return np.stack([onto_simplex(of_class, 1.0) for of_class in means.T])

    @property
    def _odds(self) -> Array:
        odds = np.exp(self.likelihoods - self.likelihoods.max())
        return np.asarray(odds / odds.sum())

    def _gain(self, weights: Array) -> Array:
        """Covariances of the shares with a sum over classes, shape (variances, codes, classes)."""
        if weights.ndim > 1:
            return np.asarray((self.covariances @ weights[..., None])[..., 0])
        return np.reshape(self.covariances.reshape(-1, len(weights)) @ weights, self.means.shape)  # one product

    def _all_updated(self, weights: Array, shares: Array, variances: Array) -> Drift:
        """`updated`, with those that have become unlikely."""
        gain = self._gain(weights)
        variance = np.maximum((gain * weights).sum(axis=-1) + variances, _NOTHING)
        off = shares - (self.means * weights).sum(axis=-1)
        likelihoods = self.likelihoods - 0.5 * (np.log(variance) + off**2 / variance).sum(axis=1)
        less = gain[..., :, None] * (gain / variance[..., None])[..., None, :]
        return Drift(likelihoods, self.means + gain * (off / variance)[..., None], self.covariances - less)

    def _likely(self, best: float) -> tuple[Array, Array, Array]:
        """What this consists of, without what is much less likely than the best."""
        kept = self.likelihoods > best - _UNLIKELY
        return self.likelihoods[kept], self.means[kept], self.covariances[kept]


def _walk(classes: int) -> Array:
    """Covariances of a random walk from 0 with steps of variance 1, shape (classes, classes)."""
    places = np.arange(classes, dtype=float)
    return np.asarray(np.minimum.outer(places, places))


def _bend(classes: int) -> Array:
    """Covariances of the sums of a random walk that begins with its first step, shape (classes, classes)."""
    places = np.arange(classes)
    since = np.maximum(places[:, None] - places, 0.0)
    return np.asarray(since @ since.T)
