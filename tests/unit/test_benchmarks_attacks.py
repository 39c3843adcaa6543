"""Attacks of the benchmark: what a guarantee allows them to find, and how they are judged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.attacks import judge, most_auc
from privbench_core.privacy.budget import Budget

_COINS = np.random.default_rng(0).random((40, 30)) < 0.5


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.2])
def test_no_attack_has_a_larger_area_than_the_guarantee_allows(epsilon: float):
    rng, trials = np.random.default_rng(0), (500, 200)
    coins = rng.random(trials) < 0.5
    told = coins ^ (rng.random(trials) < 1 / (1 + math.exp(epsilon)))  # randomized response
    found = judge(told.astype(float), coins)
    assert found.auc < most_auc(Budget(epsilon)) + 3 * found.error
    assert most_auc(Budget(epsilon)) == pytest.approx(found.auc, abs=4 * found.error)
    mu = math.sqrt(2 * Budget(epsilon, 1e-9).total().rho)
    noisy = judge(mu * coins + rng.normal(size=trials), coins)
    assert noisy.auc == pytest.approx(most_auc(Budget(epsilon, 1e-9)), abs=4 * noisy.error)


def test_scores_are_judged_with_their_error():
    perfect = judge(_COINS.astype(float), _COINS)
    assert (perfect.auc, perfect.error, perfect.caught) == (1.0, 0.0, 1.0)
    assert perfect.proven > 3
    assert judge(np.zeros(_COINS.shape), _COINS).auc == 0.5
    by_chance = [judge(np.random.default_rng(seed).random(_COINS.shape), _COINS) for seed in range(1, 60)]
    standardized = [(found.auc - 0.5) / found.error for found in by_chance]
    assert 0.7 < np.std(standardized) < 1.3
    assert max(found.proven for found in by_chance) < 0.1
