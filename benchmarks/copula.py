"""The rival on dense ordered columns: a plain differentially private Gaussian copula (Gaussian DP, add or remove).

30% of the budget for one-way histograms, 70% for the second moments of normal scores, whose rows are clipped to a
squared norm of 1.5 columns, so that one row moves the matrix by at most that in Frobenius norm. One release gives every
pair; a list of values is taken for ordered. Numpy noise is good enough here: nothing is released.
"""

from __future__ import annotations

import math
from time import perf_counter

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from benchmarks.measure import Codes

_HISTOGRAMS = 0.3  # of the budget
_NORM = 1.5  # squared norm of a row's scores, per column
_TAIL = 1e-3  # probability beyond the outermost scores
_LARGEST = 2.5  # score


def fit_sample(
    codes: Codes, sizes: list[int], ordered: list[bool], epsilon: float, delta: float, seed: int
) -> tuple[Codes, float, float]:
    """As many rows as there are, seconds to learn, seconds to sample; needs δ > 0."""
    del ordered
    rng, start, (rows, columns) = np.random.default_rng(seed), perf_counter(), codes.shape
    whole = _gaussian_mu(epsilon, delta)
    for_counts, for_moments = whole * math.sqrt(_HISTOGRAMS), whole * math.sqrt(1 - _HISTOGRAMS)
    shares, scores = [], []
    for column, size in enumerate(sizes):
        noisy = np.bincount(codes[:, column], minlength=size) + rng.normal(0, math.sqrt(columns) / for_counts, size)
        share = np.clip(noisy, 1e-9, None) / np.clip(noisy, 1e-9, None).sum()
        middle = np.clip(np.cumsum(share) - share / 2, _TAIL, 1 - _TAIL)
        shares.append(share)
        scores.append(np.clip(norm.ppf(middle), -_LARGEST, _LARGEST)[codes[:, column]])
    values, bound = np.column_stack(scores), _NORM * columns
    values *= np.minimum(1, np.sqrt(bound / np.maximum((values**2).sum(axis=1), 1e-9)))[:, None]
    noise = np.triu(rng.normal(0, bound / for_moments, (columns, columns)))
    correlations = _correlations((values.T @ values + noise + np.triu(noise, 1).T) / rows)
    learned = perf_counter()
    latent = rng.multivariate_normal(np.zeros(columns), correlations, size=rows)
    drawn = [np.searchsorted(np.cumsum(share)[:-1], norm.cdf(latent[:, j])) for j, share in enumerate(shares)]
    return np.column_stack(drawn), learned - start, perf_counter() - learned


def _correlations(moments: np.ndarray) -> np.ndarray:
    """The nearest correlation matrix by clipping eigenvalues."""
    scale = np.sqrt(np.maximum(np.diag(moments), 1e-9))
    values, vectors = np.linalg.eigh(moments / np.outer(scale, scale))
    positive = (vectors * np.clip(values, 1e-3, None)) @ vectors.T
    return np.asarray(positive / np.sqrt(np.outer(np.diag(positive), np.diag(positive))))


def _gaussian_mu(epsilon: float, delta: float) -> float:
    """μ of Gaussian differential privacy that implies (ε, δ) (Dong, Roth and Su 2022, Corollary 2.13)."""

    def excess(mu: float) -> float:
        below = norm.cdf(-epsilon / mu - mu / 2)
        return float(norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * below - delta)

    return float(brentq(excess, 1e-3, 50))
