"""How a joint that was measured over groups of codes goes on inside of them."""

from __future__ import annotations

import numpy as np
import pytest

from privbench_core.estimators.coarsening import merge_codes
from privbench_core.estimators.copula import joint_by_copula, nearest_copula
from privbench_core.estimators.joints import NoisyTable, estimated_joints

CODES = 40
EVEN = np.full(CODES, 250.0)
GROUPS = (np.arange(CODES) // 8,) * 2
NO_ORDER = (0, 0)


def measured(correlation: float, sigma: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The true joint of all codes, and noisy counts of groups of 8 neighbours."""
    truth = joint_by_copula(EVEN, EVEN, CODES, CODES, correlation)
    coarse = merge_codes(truth, GROUPS)
    return truth, coarse + np.random.default_rng(seed).normal(0, sigma, coarse.shape)


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum() / 2 / one.sum())


@pytest.mark.parametrize("correlation", [0.8, -0.6])
def test_the_dependence_over_groups_goes_on_inside_of_them(correlation: float) -> None:
    truth, noisy = measured(correlation, 20.0)
    clean, sides = {"a": EVEN, "b": EVEN}, ("a", "b")
    tables = {order: NoisyTable(noisy, 20.0, GROUPS, order) for order in (NO_ORDER, (CODES, CODES))}
    plain, better = (estimated_joints({sides: table}, clean)[sides] for table in tables.values())
    assert apart(truth, better) < 0.6 * apart(truth, plain)
    assert better.sum(axis=0) == pytest.approx(EVEN, rel=0.02)


def test_noise_alone_is_no_copula() -> None:
    found = [
        nearest_copula(noisy, 60.0, GROUPS, (EVEN, EVEN), (CODES, CODES))
        for _, noisy in (measured(0.0, 60.0, seed) for seed in range(40))
    ]
    assert sum(joint is not None for joint in found) <= 1


def test_lists_and_pairs_of_values_have_no_neighbours() -> None:
    _, noisy = measured(0.8, 20.0)
    for order in (NO_ORDER, (CODES, 2), (0, CODES)):
        assert nearest_copula(noisy, 20.0, GROUPS, (EVEN, EVEN), order) is None


def test_parents_of_most_children_of_one_kind_have_most_of_another() -> None:
    """Numbers that grow with one heavy-tailed factor: the size of a join follows from groups that hide the tail."""
    rng = np.random.default_rng(3)
    activity = rng.pareto(1.5, 40_000) + 0.2
    numbers = [np.minimum(rng.poisson(activity * mean), 299) for mean in (2.0, 1.5)]
    truth = np.zeros((300, 300))
    np.add.at(truth, tuple(numbers), 1.0)
    of_codes = np.minimum(np.arange(300), 8)
    noisy = merge_codes(truth, (of_codes, of_codes)) + rng.normal(0, 50.0, (9, 9))
    clean = {"a": truth.sum(axis=1), "b": truth.sum(axis=0)}
    sizes = np.outer(np.arange(300), np.arange(300))
    joined = {
        ordered: float(
            (
                sizes
                * estimated_joints({("a", "b"): NoisyTable(noisy, 50.0, (of_codes,) * 2, ordered)}, clean)["a", "b"]
            ).sum()
        )
        for ordered in (NO_ORDER, (300, 300))
    }
    true = float((sizes * truth).sum())
    gaussian = joint_by_copula(clean["a"], clean["b"], 300, 300, float(np.corrcoef(*map(_ranks, numbers))[0, 1]))
    assert joined[300, 300] == pytest.approx(true, rel=0.2)
    assert joined[NO_ORDER] < 0.8 * true
    assert float((sizes * gaussian).sum()) < 0.8 * true


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values))
