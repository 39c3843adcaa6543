"""Distributions that drift from class to class, from noisy counts: each class leans on its neighbours.

Neighbouring classes of sizes have similar habits, and the largest ones few units and most rows. So the distributions of
a column are a Gaussian process over classes: a random walk, and where the counts speak for it a walk of trends (habits
that go on changing as they did; Wahba 1978). How far steps go is averaged over, by what the noisy counts make of it, so
that classes which noise cannot tell apart are pooled, and classes that differ keep what is their own. All that is
measured of the column is a sum over classes, and tells of all of them (Kalman 1960, without time). Post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

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
class _Walk:
    """What is known if steps and trends have certain variances.

    Attributes:
        likelihood: Logarithm of the probability of what was measured, and of these variances beforehand.
        means: Expected shares, shape (codes, classes).
        covariances: Of the shares of a code in different classes, shape (codes, classes, classes).
    """

    likelihood: float
    means: Array
    covariances: Array

    def updated(self, weights: Array, shares: Array, variances: Array) -> _Walk:
        gain = (self.covariances * weights[..., None, :]).sum(axis=-1)
        variance = np.maximum((gain * weights).sum(axis=1) + variances, _NOTHING)
        off = shares - (self.means * weights).sum(axis=1)
        likelihood = self.likelihood - 0.5 * float((np.log(variance) + off**2 / variance).sum())
        less = gain[:, :, None] * gain[:, None, :] / variance[:, None, None]
        return _Walk(likelihood, self.means + gain * (off / variance)[:, None], self.covariances - less)


@dataclass(frozen=True)
class Drift:
    """What is known of a column's distribution in each class of sizes: an average over `_Walk`."""

    walks: tuple[_Walk, ...]

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
            return cls(
                (_Walk(0.0, np.full((codes, classes), 1 / codes), np.full((codes, classes, classes), _UNKNOWN)),)
            )
        shares = (noisy[there] / rows[there, None]).T
        noise = np.maximum((sigmas[there] / rows[there]) ** 2, _NOTHING)
        pooled = onto_simplex(shares @ (1 / noise) / (1 / noise).sum(), 1.0)
        start = np.repeat(pooled[:, None], classes, axis=1)
        pooled = np.maximum(pooled, 1 / np.sqrt((1 / noise).sum()))  # less than that is not to be told from it
        walk, bend = _walk(classes), _bend(classes)
        found = []
        for step, trend in product(_STEPS, _TRENDS):
            prior = _UNKNOWN + pooled[:, None, None] * (step * walk + trend * bend)
            known = _Walk(-_AGAINST if trend else 0.0, start, prior)
            for place, share, variance in zip(there, shares.T, noise, strict=True):
                known = known.updated(np.eye(classes)[place], share, np.full(codes, variance))
            found.append(known)
        return cls(_likely(found))

    def updated(self, weights: Array, shares: Array, sigmas: Array) -> Drift:
        """The same, given what a sum over classes was found to be.

        Args:
            weights: Of the classes, shape (classes,); or for each code by itself, shape (codes, classes).
            shares: The sum, shape (codes,).
            sigmas: Standard deviations of these, shape (codes,).
        """
        return Drift(_likely([walk.updated(weights, shares, sigmas**2) for walk in self.walks]))

    def average(self, weights: Array) -> tuple[Array, Array]:
        """An average over classes, and its standard deviations; shapes (codes,)."""
        means = np.stack([walk.means @ weights for walk in self.walks])
        variances = np.stack([walk.covariances @ weights @ weights for walk in self.walks])
        mean = self._odds @ means
        return mean, np.sqrt(np.maximum(self._odds @ (variances + (means - mean) ** 2), 0.0))

    def doubt(self, wanted: Array, weights: Array, sigmas: Array) -> float:
        """Standard deviations of the average with weights ``wanted``, summed up, once `updated`.

        Args:
            wanted: Of the classes, shape (classes,).
            weights: As in `updated`.
            sigmas: As in `updated`.
        """
        found = []
        for walk in self.walks:
            gain = (walk.covariances * weights[..., None, :]).sum(axis=-1)
            known = (gain @ wanted) ** 2 / np.maximum((gain * weights).sum(axis=1) + sigmas**2, _NOTHING)
            found.append(float(np.sqrt(np.maximum(walk.covariances @ wanted @ wanted - known, 0.0)).sum()))
        return float(self._odds @ found)

    @property
    def shapes(self) -> Array:
        """Distributions in each class, shape (classes, codes); each adds up to 1."""
        means = np.tensordot(self._odds, np.stack([walk.means for walk in self.walks]), axes=1)
        return np.stack([onto_simplex(of_class, 1.0) for of_class in means.T])

    @property
    def _odds(self) -> Array:
        likelihoods = np.array([walk.likelihood for walk in self.walks])
        odds = np.exp(likelihoods - likelihoods.max())
        return np.asarray(odds / odds.sum())


def _likely(walks: Sequence[_Walk]) -> tuple[_Walk, ...]:
    """Without those that are much less likely than the best."""
    best = max(walk.likelihood for walk in walks)
    return tuple(walk for walk in walks if walk.likelihood > best - _UNLIKELY)


def _walk(classes: int) -> Array:
    """Covariances of a random walk from 0 with steps of variance 1, shape (classes, classes)."""
    places = np.arange(classes, dtype=float)
    return np.asarray(np.minimum.outer(places, places))


def _bend(classes: int) -> Array:
    """Covariances of the sums of a random walk that begins with its first step, shape (classes, classes)."""
    places = np.arange(classes)
    since = np.maximum(places[:, None] - places, 0.0)
    return np.asarray(since @ since.T)
