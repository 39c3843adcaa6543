"""Distributions that drift from class to class, from noisy counts: each class borrows from its neighbours.

Neighbouring classes of sizes have similar habits, and the largest ones few units and most rows. So the square roots of
a column's shares are a Gaussian process over classes: a random walk, and where the counts speak for it a walk of trends
(habits that go on changing as they did; Wahba 1978). Roots of small and of large shares drift at one scale, as their
sampling errors are (Anscombe 1948): a code that is rare in most classes may well be usual in the largest. What is
measured is not linear in roots, so it is linearised about what was expected, and again about what that makes of it. The
variances of steps and trends are averaged over by their posterior, so that classes which noise cannot distinguish are
pooled, and classes that differ keep what is their own. All that is measured of the column is a sum over classes, and
informs all of them (Kalman 1960, without time). Post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privbench_core.arrays import Array
from privbench_core.estimators.denoising import onto_simplex
from privbench_core.guards import LINEARISATIONS, SMOOTHING


@dataclass(frozen=True)
class _Measurement:
    """A sum over classes that was measured: the arguments of `Drift.updated`, with variances."""

    weights: Array
    shares: Array
    variances: Array


@dataclass(frozen=True)
class Drift:
    """What is known of a column's distribution in each class of sizes: an average over variances of steps and trends.

    Attributes:
        likelihoods: Logarithms of the probability of what was measured if steps and trends have certain variances, and
            of these variances beforehand; shape (variances,).
        means: Expected shares then, shape (variances, codes, classes).
        covariances: Of the shares of a code in different classes, shape (variances, codes, classes, classes).
        expected: Shares over all classes, before any drift; shape (codes,).
        least: Shares that are not distinguished from less.
        measured: All that was measured.
    """

    likelihoods: Array
    means: Array
    covariances: Array
    expected: Array
    least: float
    measured: tuple[_Measurement, ...] = ()

    @classmethod
    def of(cls, noisy: Array, sigmas: Array, rows: Array) -> Drift:
        """Return what noisy counts of each class say.

        Args:
            noisy: Counts of rows, shape (classes, codes).
            sigmas: Standard deviations of their noise, shape (classes,).
            rows: Number of rows of each class, shape (classes,).
        """
        classes, codes = noisy.shape
        there = np.flatnonzero(rows > 0)
        if not len(there):
            return cls._fitted((), np.full(codes, 1 / codes), SMOOTHING, np.full((codes, classes), 1 / codes), 1)
        shares = (noisy[there] / rows[there, None]).T
        noise = np.maximum((sigmas[there] / rows[there]) ** 2, SMOOTHING)
        pooled = onto_simplex(shares @ (1 / noise) / (1 / noise).sum(), 1.0)
        least = min(float(1 / np.sqrt((1 / noise).sum())), 1 / codes)
        measured = [
            _Measurement(np.eye(classes)[index], share, np.full(codes, variance))
            for index, share, variance in zip(there, shares.T, noise, strict=True)
        ]
        expected = np.maximum(pooled, least)
        return cls._fitted(measured, expected, least, np.tile(expected[:, None], classes), LINEARISATIONS)

    @classmethod
    def _fitted(
        cls, measured: Sequence[_Measurement], expected: Array, least: float, first: Array, rounds: int
    ) -> Drift:
        """Return what all that was measured says, linearised so often, at first about shares (codes, classes)."""
        beforehand, of_roots = _priors(first.shape[1])
        near, roots = np.tile(np.sqrt(first), (len(of_roots), 1, 1)), np.sqrt(expected)[:, None]
        for _ in range(rounds):  # shares are near² + 2 near (roots - near), as far as roots are near
            covariances = 4 * near[..., :, None] * near[..., None, :] * of_roots
            found = cls(beforehand, near * (2 * roots - near), covariances, expected, least, tuple(measured))
            for each in measured:
                found = found._given(each)
            near = np.sqrt(np.maximum(found.means, least))
        return found

    def updated(self, weights: Array, shares: Array, sigmas: Array) -> Drift:
        """Return what is known given a sum over classes.

        Args:
            weights: Of the classes, shape (classes,); or for each code by itself, shape (codes, classes).
            shares: The sum, shape (codes,).
            sigmas: Standard deviations of these, shape (codes,).
        """
        measured = (*self.measured, _Measurement(weights, shares, sigmas**2))
        return self._fitted(measured, self.expected, self.least, np.maximum(self._mean, self.least), 1)

    def average(self, weights: Array) -> tuple[Array, Array]:
        """Return an average over classes, and its standard deviations; shapes (codes,)."""
        odds, means = self._odds, self.means @ weights
        mean = odds @ means
        return mean, np.sqrt(np.maximum(odds @ (self._gain(weights) @ weights + (means - mean) ** 2), 0.0))

    def error(self, wanted: Array, weights: Array, sigmas: Array) -> float:
        """Return standard deviations of the average with weights ``wanted``, summed up, once `updated`.

        Args:
            wanted: Of the classes, shape (classes,).
            weights: As in `updated`.
            sigmas: As in `updated`.
        """
        gain = self._gain(weights)
        known = (gain @ wanted) ** 2 / np.maximum((gain * weights).sum(axis=-1) + sigmas**2, SMOOTHING)
        left = np.sqrt(np.maximum(self._gain(wanted) @ wanted - known, 0.0))
        return float(self._odds @ left.sum(axis=1))

    @property
    def shapes(self) -> Array:
        """Distributions in each class, shape (classes, codes); each adds up to 1."""
        return np.stack([onto_simplex(of_class, 1.0) for of_class in self._mean.T])

    @property
    def _mean(self) -> Array:
        """Expected shares, shape (codes, classes)."""
        return np.tensordot(self._odds, self.means, axes=1)

    @property
    def _odds(self) -> Array:
        odds = np.exp(self.likelihoods - self.likelihoods.max())
        return np.asarray(odds / odds.sum())

    def _gain(self, weights: Array) -> Array:
        """Return covariances of the shares with a sum over classes, shape (variances, codes, classes)."""
        if weights.ndim > 1:
            return np.asarray((self.covariances @ weights[..., None])[..., 0])
        return np.reshape(self.covariances.reshape(-1, len(weights)) @ weights, self.means.shape)  # one product

    def _given(self, measured: _Measurement) -> Drift:
        """Return the Kalman update by a measurement, without another linearisation."""
        gain = self._gain(measured.weights)
        variance = np.maximum((gain * measured.weights).sum(axis=-1) + measured.variances, SMOOTHING)
        off = measured.shares - (self.means * measured.weights).sum(axis=-1)
        likelihoods = self.likelihoods - 0.5 * (np.log(variance) + off**2 / variance).sum(axis=1)
        less = gain[..., :, None] * (gain / variance[..., None])[..., None, :]
        means = self.means + gain * (off / variance)[..., None]
        return replace(self, likelihoods=likelihoods, means=means, covariances=self.covariances - less)


def _priors(classes: int) -> tuple[Array, Array]:
    """Return logarithms of prior odds, and covariances of roots between classes, (variances, 1, classes, classes).

    In the first class a root is anything in [0, 1]. Steps and changes of trends are from none at all to as large as
    roots differ at most. Each variance of trends is as unlikely, compared with none, as there are combinations.
    """
    places = np.arange(classes, dtype=float)
    walk, since = np.minimum.outer(places, places), np.maximum(places[:, None] - places, 0.0)
    steps, trends = (np.append(0.0, np.geomspace(1e-4, 1.0, number) / 4) for number in (5, 4))
    each, of_trend = np.repeat(steps, len(trends)), np.tile(trends, len(steps))
    covariances = 1.0 + each[:, None, None] * walk + of_trend[:, None, None] * (since @ since.T)
    return np.where(of_trend > 0, -np.log(len(each)), 0.0), covariances[:, None]
