"""The peer to beat: one noisy histogram per column, sampled independently.

Numpy noise is good enough here: nothing is released, the question is only how much error the privacy costs.
"""

from __future__ import annotations

import math
from time import perf_counter

import numpy as np

from benchmarks.measure import Codes, Fit, fit_target_in_child
from privbench_core.privacy.budget import rho_for


def fit_sample_single(
    codes: Codes, sizes: list[int], ordered: list[bool], epsilon: float, delta: float, seed: int
) -> Fit:
    """Fit and sample in a process of its own."""
    parameters = {"epsilon": epsilon, "delta": delta, "seed": seed}
    return fit_target_in_child("benchmarks.histograms:fit_sample", codes, sizes, ordered, parameters)


def fit_sample(
    codes: Codes,
    sizes: list[int],
    ordered: list[bool],
    epsilon: float,
    delta: float,
    seed: int,
    sensitivity: float = 1.0,
    share: float = 1.0,
) -> tuple[Codes, float, float]:
    """Independent noisy histograms at (ε, δ), add/remove: Gaussian noise, or Laplace noise for δ = 0.

    Args:
        codes: Codes of shape (rows, columns).
        sizes: Domain size per column.
        ordered: Not used: every cell is measured.
        epsilon: ε of the whole database.
        delta: δ of the whole database.
        seed: Of noise and sampling.
        sensitivity: Rows of this table that one privacy unit may own.
        share: This table's share of the budget (of ρ for δ > 0).

    Returns:
        As many synthetic rows as the noisy histograms count, seconds to learn, seconds to sample.
    """
    del ordered
    rng, start = np.random.default_rng(seed), perf_counter()
    columns = len(sizes)
    noisy = []
    for column, size in enumerate(sizes):
        exact = np.bincount(codes[:, column], minlength=size)
        if delta:
            rho = rho_for(epsilon, delta) * share / columns
            noise = rng.normal(0, sensitivity / math.sqrt(2 * rho), size)
        else:
            noise = rng.laplace(0, sensitivity * columns / (epsilon * share), size)
        noisy.append(exact + noise)
    rows = max(1, round(float(np.mean([histogram.sum() for histogram in noisy]))))
    shares = [np.maximum(histogram, 0) for histogram in noisy]
    learned = perf_counter()
    synthetic = np.stack([rng.permutation(_rounded(s, rows, rng)) for s in shares], axis=1)
    return synthetic, learned - start, perf_counter() - learned


def _rounded(weights: np.ndarray, rows: int, rng: np.random.Generator) -> np.ndarray:
    """``rows`` codes whose counts are the expected ones, rounded up or down (systematic sampling)."""
    total = weights.sum()
    cumulative = np.cumsum(weights / total if total > 0 else np.full(len(weights), 1 / len(weights)))
    points = (np.arange(rows) + rng.random()) / rows
    return np.minimum(np.searchsorted(cumulative, points, side="right"), len(weights) - 1)
