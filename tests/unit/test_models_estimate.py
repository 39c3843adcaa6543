from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from privbench_core.estimators.denoising import onto_simplex, shrink_haar
from privbench_core.estimators.fitting import combine, fit_margins, mutual_information, row_shares, with_row_shares
from privbench_core.marginals.sampler import draw_grouped


@pytest.mark.parametrize("seed", range(6))
def test_the_projection_is_the_nearest_point_of_the_simplex(seed):
    rng = np.random.default_rng(seed)
    noisy, total = rng.normal(0, 5, 6), float(rng.uniform(0.5, 20))
    ours = onto_simplex(noisy, total)
    found = minimize(
        lambda p: ((p - noisy) ** 2).sum(),
        np.full(6, total / 6),
        bounds=[(0, None)] * 6,
        constraints={"type": "eq", "fun": lambda p: p.sum() - total},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert ours.min() >= 0
    assert ours.sum() == pytest.approx(total)
    np.testing.assert_allclose(ours, found.x, atol=1e-3)


def test_fitting_reaches_all_margins_and_keeps_the_odds_ratios():
    start = np.array([[3.0, 1.0], [2.0, 6.0]])
    rows, columns = np.array([0.3, 0.7]), np.array([0.6, 0.4])
    fitted = fit_margins(start, [((0,), rows), ((1,), columns)], 50)
    np.testing.assert_allclose(fitted.sum(axis=1), rows, atol=1e-9)
    np.testing.assert_allclose(fitted.sum(axis=0), columns, atol=1e-9)
    odds = fitted[0, 0] * fitted[1, 1] / (fitted[0, 1] * fitted[1, 0])
    assert odds == pytest.approx(3 * 6 / 2)


def test_fitting_three_axes_to_pair_tables_of_a_chain_gives_the_chain():
    rng = np.random.default_rng(1)
    first = rng.dirichlet(np.ones(6)).reshape(2, 3)
    step = rng.dirichlet(np.ones(4), size=3)
    chain = first[:, :, None] * step[None, :, :]
    fitted = fit_margins(np.ones((2, 3, 4)), [((0, 1), chain.sum(axis=2)), ((1, 2), chain.sum(axis=0))], 30)
    np.testing.assert_allclose(fitted, chain, atol=1e-9)


def test_the_projection_moves_what_is_noisy():
    noisy, variances = np.array([100.0, 100.0, 5.0]), np.array([1.0, 9.0, 0.01])
    ours = onto_simplex(noisy, 195.0, variances)
    np.testing.assert_allclose(ours, noisy - 10 * variances / variances.sum())
    assert onto_simplex(noisy, 100.0, np.array([1.0, 1.0, 100.0]))[2] == 0.0


def test_mutual_information_is_that_of_the_definition():
    assert mutual_information(np.full((3, 4), 1.0)) == pytest.approx(0.0, abs=1e-12)
    assert mutual_information(np.eye(4)) == pytest.approx(math.log(4))
    nearly_empty = np.full((2, 3), 1e-300)
    nearly_empty[1] = [0.2, 0.8, 1e-300]
    assert mutual_information(nearly_empty) == pytest.approx(0.0, abs=1e-12)
    assert mutual_information(np.zeros((2, 3))) == 0


def test_two_measurements_are_weighted_by_their_variances():
    merged, sigma = combine(np.array([0.0]), 1.0, np.array([10.0]), 3.0)
    assert merged[0] == pytest.approx(1.0)
    assert sigma == pytest.approx(math.sqrt(0.9))
    each, sigmas = combine(np.zeros(2), np.array([1.0, 3.0]), np.array([10.0, 10.0]), 1.0)
    np.testing.assert_allclose(each, [5.0, 9.0])
    np.testing.assert_allclose(sigmas, np.sqrt([0.5, 0.9]))
    exact, none = combine(np.array([4.0]), 0.0, np.array([10.0]), 3.0)
    assert (exact[0], none) == (4.0, 0.0)


def test_each_group_gets_its_expected_counts_up_to_one():
    rng = np.random.default_rng(3)
    conditionals = rng.dirichlet(np.ones(5), size=4)
    groups = rng.choice(4, 1000, p=[0.6, 0.3, 0.1, 0.0])
    drawn = draw_grouped(conditionals, groups, rng)
    for group in range(4):
        members = drawn[groups == group]
        expected = len(members) * conditionals[group]
        assert np.abs(np.bincount(members, minlength=5) - expected).max(initial=0.0) < 1


def test_every_row_has_the_distribution_of_its_group():
    conditionals = np.array([[0.2, 0.5, 0.3], [0.0, 0.9, 0.1]])
    groups = np.array([0, 1, 0, 1, 1])
    draws = np.stack([draw_grouped(conditionals, groups, np.random.default_rng(seed)) for seed in range(4000)])
    for row, group in enumerate(groups):
        found = np.bincount(draws[:, row], minlength=3) / len(draws)
        np.testing.assert_allclose(found, conditionals[group], atol=4 * 0.5 / math.sqrt(len(draws)))


def test_what_has_no_weight_is_never_drawn_unless_nothing_has_any():
    conditionals = np.array([[0.0, 1.0, 0.0, 2.0, 0.0]] * 300)
    drawn = draw_grouped(conditionals, np.arange(30_000) % 300, np.random.default_rng(0))
    assert set(np.unique(drawn)) == {1, 3}
    drawn = draw_grouped(np.zeros((1, 4)), np.zeros(400, dtype=np.int64), np.random.default_rng(0))
    assert np.bincount(drawn, minlength=4).tolist() == [100] * 4


def test_counts_are_shrunk_to_a_guess_as_far_as_noise_explains_the_difference():
    rng = np.random.default_rng(0)
    guess = np.full(50, 100.0)
    pure_noise = shrink_haar(guess + rng.normal(0, 30, 50), 30.0, guess)
    assert np.abs(pure_noise - guess).mean() < 8
    apart = guess + np.where(np.arange(50) < 25, 90.0, -90.0)
    kept = shrink_haar(apart + rng.normal(0, 3, 50), 3.0, guess)
    assert np.abs(kept - apart).mean() < 5


SIZES = np.array([0.0, 1.0, 4.0, 30.0])
NUMBERS = np.array([0.5, 0.3, 0.15, 0.05])
PARENTS = np.array([0.6, 0.3, 0.1])


@pytest.mark.parametrize("shares", [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.9, 0.05, 0.05]])
def test_only_the_shares_of_the_children_change(shares: list[float]) -> None:
    found = with_row_shares(np.outer(PARENTS, NUMBERS), SIZES, np.array(shares))
    np.testing.assert_allclose(row_shares(found, SIZES), shares, atol=0.01)
    np.testing.assert_allclose(found.sum(axis=0), NUMBERS)
    np.testing.assert_allclose(found.sum(axis=1), PARENTS, atol=0.005)
    assert (found >= 0).all()


def test_parents_without_children_take_no_share() -> None:
    joint = np.outer(PARENTS, [1.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(with_row_shares(joint, SIZES, np.array([0.1, 0.1, 0.8])), joint)
