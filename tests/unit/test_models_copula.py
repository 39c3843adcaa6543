"""The copula of signs: correlations found again, joints with the columns' marginals, and nothing made of noise."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from privbench_core.estimators.coarsening import merge_codes
from privbench_core.estimators.copula import SignSums, joint_by_copula, nearest_copula, sign_noise
from privbench_core.estimators.joints import NoisyTable, estimated_joints
from privbench_core.marginals.measure_one_way import Marginals
from privbench_core.marginals.measure_pairs import PairwiseFit, cuts_of, measure_signs
from privbench_core.marginals.measured import MeasuredLeaf
from privbench_core.marginals.sampler import Rows
from privbench_core.privacy.budget import Measure, Price
from privbench_core.tuning import TUNING
from tests.helpers.planted import curator_of, joint_of, one_way_of, tvd

N, CODES = 20_000, 12
NAMES = ("a", "b", "c", "d", "e", "f")
SIZES = dict.fromkeys(NAMES, CODES)


def planted(correlation: float, seed: int = 0, columns: tuple[str, ...] = NAMES):
    """Skewed intervals of normal variables with this correlation; the second one is turned around."""
    rng = np.random.default_rng(seed)
    d = len(columns)
    latent = rng.multivariate_normal(np.zeros(d), correlation + (1 - correlation) * np.eye(d), size=N)
    latent[:, 1] *= -1
    codes = np.clip(((latent + 1.5) * 3).astype(int), 0, CODES - 1)
    return {name: codes[:, i].astype(np.int32) for i, name in enumerate(columns)}


def sums_of(codes, cuts, sigma: float = 0.0, seed: int = 0) -> SignSums:
    signs = {name: cut.signs(CODES)[codes[name]] for name, cut in cuts.items()}
    exact = np.array([(signs[a] * signs[b]).sum() for a, b in combinations(cuts, 2)], dtype=float)
    return SignSums(cuts, exact + np.random.default_rng(seed).normal(0, sigma, len(exact)), sigma)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.7, 0.95])
def test_correlations_are_found_again(correlation: float) -> None:
    codes = planted(correlation)
    clean = one_way_of(codes, SIZES).clean()
    found = sums_of(codes, cuts_of(clean, SIZES)).correlations(clean)
    expected = np.array([-correlation if "b" in pair else correlation for pair in combinations(NAMES, 2)])
    assert np.abs(found - expected).max() < 0.04  # five standard deviations of a correlation of signs: 1.3 / √N each


def test_joints_follow_and_have_the_marginals_of_the_columns() -> None:
    codes = planted(0.7)
    clean = one_way_of(codes, SIZES).clean()
    joints = sums_of(codes, cuts_of(clean, SIZES)).joints(clean)
    assert set(joints) == set(combinations(NAMES, 2))
    for (a, b), joint in joints.items():
        np.testing.assert_allclose(joint.sum(axis=1), clean[a], atol=1e-6 * N)
        np.testing.assert_allclose(joint.sum(axis=0), clean[b], atol=1e-6 * N)
        assert joint.min() >= 0
        assert tvd(joint / N, joint_of(codes, SIZES, a, b)) < 0.05
        assert tvd(np.outer(clean[a], clean[b]) / N**2, joint_of(codes, SIZES, a, b)) > 0.2


def test_noise_alone_makes_no_correlations() -> None:
    codes = planted(0.0)
    clean = one_way_of(codes, SIZES).clean()
    cuts = cuts_of(clean, SIZES)
    sigma = 0.2 * N
    raw = [sums_of(codes, cuts, sigma, seed).sums / N for seed in range(20)]
    kept = [sums_of(codes, cuts, sigma, seed).correlations(clean) for seed in range(20)]
    assert np.mean(np.abs(kept)) < 0.5 * np.mean(np.abs(raw))


def test_few_factors_are_known_better_than_each_pair() -> None:
    columns = tuple(f"c{i:02d}" for i in range(24))
    codes = planted(0.5, columns=columns)
    clean = one_way_of(codes, dict.fromkeys(columns, CODES)).clean()
    cuts = cuts_of(clean, dict.fromkeys(columns, CODES))
    exact, noisy = (sums_of(codes, cuts, sigma).correlations(clean) for sigma in (0.0, 0.08 * N))
    error = float(np.sqrt(((exact - noisy) ** 2).mean()))
    assert error < 0.6 * sign_noise(clean, cuts, 0.08 * N)


@pytest.mark.parametrize("measure", list(Measure))
def test_signs_cost_little_where_noise_is_small_and_nothing_where_it_hides_all(measure: Measure) -> None:
    codes = planted(0.5)
    clean = one_way_of(codes, SIZES).clean()
    shares = []
    for amount in (1e-9, 0.2, 1e4):
        curator, account = curator_of(codes, SIZES, Price(measure, amount))
        found, left = measure_signs(curator, clean, SIZES, Price(measure, amount))
        assert (found is None) == (account.spent.amount == 0)
        assert account.spent.amount + left.amount == pytest.approx(amount)
        shares.append(account.spent.amount / amount)
    assert shares[0] == 0
    assert 2 * TUNING.score_share >= shares[1] > shares[2] > 0
    curator, account = curator_of(codes, SIZES)
    assert measure_signs(curator, clean, {}, Price(measure, 1.0)) == (None, Price(measure, 1.0))
    assert account.spent.amount == 0


def test_rows_follow_pairs_that_were_not_measured() -> None:
    """So little is paid that no pair is measured, and rows are drawn that are correlated all the same."""
    codes = planted(0.7)
    price = Price(Measure.GDP, 1e-4)
    curator, account = curator_of(codes, SIZES, price)
    found = PairwiseFit(max_pairs=0).find(Marginals(curator, one_way_of(codes, SIZES, sigma=60.0)), price, SIZES)
    assert isinstance(found, MeasuredLeaf)
    assert not found.tables
    assert account.spent.amount == pytest.approx(price.amount)
    stored = MeasuredLeaf.from_dict(found.to_dict())
    rows = Rows(N)
    stored.fit().draw(rows, np.random.default_rng(0))
    for pair in combinations(NAMES, 2):
        independent = np.outer(joint_of(codes, SIZES, pair[0]), joint_of(codes, SIZES, pair[1]))
        true = joint_of(codes, SIZES, *pair)
        assert tvd(joint_of(rows.codes, SIZES, *pair), true) < 0.5 * tvd(independent, true), pair


@pytest.mark.parametrize("correlation", [-0.9, -0.3, 0.5, 0.95])
def test_two_bits_have_the_joint_that_their_sign_product_says(correlation: float) -> None:
    clean = {"a": np.array([300.0, 700.0]), "b": np.array([800.0, 200.0])}
    joint = joint_by_copula(clean["a"], clean["b"], 2, 2, correlation)
    product = float(joint[0, 0] + joint[1, 1] - joint[0, 1] - joint[1, 0])
    found = SignSums(cuts_of(clean, {}), np.array([product]), 0.0).joints(clean)
    np.testing.assert_allclose(found["a", "b"], joint, atol=1.0)


WIDE = 40
EVEN = np.full(WIDE, 250.0)
GROUPS = (np.arange(WIDE) // 8,) * 2
NO_ORDER = (0, 0)


def measured_over_groups(correlation: float, sigma: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The true joint of all codes, and noisy counts of groups of 8 neighbours."""
    truth = joint_by_copula(EVEN, EVEN, WIDE, WIDE, correlation)
    coarse = merge_codes(truth, GROUPS)
    return truth, coarse + np.random.default_rng(seed).normal(0, sigma, coarse.shape)


def apart(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum() / 2 / one.sum())


@pytest.mark.parametrize("correlation", [0.8, -0.6])
def test_the_dependence_over_groups_goes_on_inside_of_them(correlation: float) -> None:
    truth, noisy = measured_over_groups(correlation, 20.0)
    clean, sides = {"a": EVEN, "b": EVEN}, ("a", "b")
    tables = {order: NoisyTable(noisy, 20.0, GROUPS, order) for order in (NO_ORDER, (WIDE, WIDE))}
    plain, better = (estimated_joints({sides: table}, clean)[sides] for table in tables.values())
    assert apart(truth, better) < 0.6 * apart(truth, plain)
    assert better.sum(axis=0) == pytest.approx(EVEN, rel=0.02)


def test_noise_alone_is_no_copula() -> None:
    found = [
        nearest_copula(noisy, 60.0, GROUPS, (EVEN, EVEN), (WIDE, WIDE))
        for _, noisy in (measured_over_groups(0.0, 60.0, seed) for seed in range(40))
    ]
    assert sum(joint is not None for joint in found) <= 1
