"""A distinguishing audit: a lower bound on ε that holds with a stated confidence, whatever the mechanism claims.

An event is fixed on selection samples; its probabilities on two neighbours are then bounded on fresh ones (Clopper and
Pearson).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

Draw = Callable[[int], NDArray[np.int64]]


def at_least(hits: int, of: int, alpha: float) -> float:
    """Lower Clopper-Pearson bound of a probability."""
    return float(beta.ppf(alpha, hits, of - hits + 1)) if hits else 0.0


def at_most(hits: int, of: int, alpha: float) -> float:
    """Upper Clopper-Pearson bound of a probability."""
    return float(beta.ppf(1 - alpha, hits + 1, of - hits)) if hits < of else 1.0


def bound(hits: int, other: int, of: int, confidence: float, delta: float) -> float:
    """Lower bound on ε from one event: log((P - δ) / Q)."""
    alpha = (1 - confidence) / 2
    p, q = at_least(hits, of, alpha), at_most(other, of, alpha)
    return math.log((p - delta) / q) if p > delta else 0.0


def epsilon_at_least(one: Draw, other: Draw, n: int, *, delta: float = 0.0, confidence: float = 1 - 1e-6) -> float:
    """What ε is at least, given that two neighbours' outputs are drawn like this.

    Args:
        one: Draws outputs on one database.
        other: The same on its neighbour.
        n: Fresh samples from each; half as many again select the event, among thresholds and single values.
        delta: Of the guarantee under test.
        confidence: Probability with which the bound holds.
    """
    first, second = one(n // 2), other(n // 2)
    cuts = np.unique(np.quantile(np.r_[first, second], np.linspace(0.001, 0.999, 64)))
    events: list[tuple[bool, Callable[[NDArray[np.int64]], NDArray[np.bool_]]]] = []
    for cut in cuts:
        for swap in (False, True):
            events += [
                (swap, lambda x, c=cut: x >= c),
                (swap, lambda x, c=cut: x <= c),
                (swap, lambda x, c=cut: x == c),
            ]

    def score(
        samples: tuple[NDArray[np.int64], NDArray[np.int64]], swap: bool, event: Callable[..., NDArray[np.bool_]]
    ) -> float:
        a, b = samples[::-1] if swap else samples
        return bound(int(event(a).sum()), int(event(b).sum()), len(a), confidence, delta)

    swap, event = max(events, key=lambda e: score((first, second), *e))
    return score((one(n), other(n)), swap, event)
