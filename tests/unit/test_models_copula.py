"""The copula of signs: correlations found again, joints with the columns' marginals, and nothing made of noise."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from privbench_core.estimate.copula import Copula, Cut, SignSums, joint_of_bits, sign_noise
from privbench_core.measure.one_way import MarginalsOfView
from privbench_core.measure.pairwise import PairwiseFit
from privbench_core.measure.signs import cuts_of, determined_by_signs, share_for_signs
from privbench_core.models.measured import MeasuredLeaf, measured_from_dict, measured_to_dict
from privbench_core.models.rows import Rows
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.queries import Marginal
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
    found = sums_of(codes, cuts_of(clean, SIZES)).copula(clean).correlations
    signs = np.ones(len(NAMES))
    signs[1] = -1
    expected = np.outer(signs, signs) * (correlation + (1 - correlation) * np.eye(len(NAMES)))
    assert np.abs(found - expected).max() < 0.04  # five standard deviations of a correlation of signs: 1.3 / √N each


def test_joints_follow_and_have_the_marginals_of_the_columns() -> None:
    codes = planted(0.7)
    clean = one_way_of(codes, SIZES).clean()
    joints = sums_of(codes, cuts_of(clean, SIZES)).copula(clean).joints()
    assert set(joints) == set(combinations(NAMES, 2))
    for (a, b), joint in joints.items():
        np.testing.assert_allclose(joint.sum(axis=1), clean[a], atol=1e-6 * N)
        np.testing.assert_allclose(joint.sum(axis=0), clean[b], atol=1e-6 * N)
        assert joint.min() >= 0
        assert tvd(joint / N, joint_of(codes, SIZES, a, b)) < 0.05
        assert tvd(np.outer(clean[a], clean[b]) / N**2, joint_of(codes, SIZES, a, b)) > 0.2


def test_codes_without_order_are_independent_of_the_other_column() -> None:
    clean = {"a": np.array([100.0, 200, 300, 400]), "b": np.array([400.0, 600])}
    copula = Copula({"a": Cut(3, 2), "b": Cut(2, 1)}, clean, np.array([[1, 0.8], [0.8, 1]]))
    joint = copula.joints()["a", "b"]
    np.testing.assert_allclose(joint[3], [160, 240])
    np.testing.assert_allclose(joint.sum(axis=0), clean["b"])
    assert joint[0, 0] > 60  # independent: 40


def test_noise_alone_makes_no_correlations() -> None:
    codes = planted(0.0)
    clean = one_way_of(codes, SIZES).clean()
    cuts = cuts_of(clean, SIZES)
    sigma = 0.2 * N
    raw = [sums_of(codes, cuts, sigma, seed).sums / N for seed in range(20)]
    kept = [sums_of(codes, cuts, sigma, seed).copula(clean).correlations for seed in range(20)]
    off = np.triu_indices(len(NAMES), 1)
    assert np.mean([np.abs(each[off]).mean() for each in kept]) < 0.5 * np.mean(np.abs(raw))


def test_few_factors_are_known_better_than_each_pair() -> None:
    columns = tuple(f"c{i:02d}" for i in range(24))
    codes = planted(0.5, columns=columns)
    clean = one_way_of(codes, dict.fromkeys(columns, CODES)).clean()
    cuts = cuts_of(clean, dict.fromkeys(columns, CODES))
    exact, noisy = (sums_of(codes, cuts, sigma).copula(clean).correlations for sigma in (0.0, 0.08 * N))
    off = np.triu_indices(len(columns), 1)
    error = float(np.sqrt(((exact - noisy)[off] ** 2).mean()))
    assert error < 0.6 * sign_noise(clean, cuts, 0.08 * N)


def test_a_column_without_order_has_no_cut() -> None:
    assert Cut.nearest_median(np.ones(5), 0) is None
    assert Cut.nearest_median(np.ones(5), 1) is None
    assert Cut.nearest_median(np.array([9.0, 1.0]), 0) == Cut(2, 1)
    assert Cut.nearest_median(np.array([1.0, 2, 3, 4, 90]), 4) == Cut(4, 3)


@pytest.mark.parametrize("measure", list(Measure))
def test_signs_cost_little_where_noise_is_small_and_nothing_where_it_hides_all(measure: Measure) -> None:
    codes = planted(0.5)
    one_way = one_way_of(codes, SIZES)
    cuts = cuts_of(one_way.clean(), SIZES)
    curator, account = curator_of(codes, SIZES)
    shares = [share_for_signs(curator, one_way, cuts, Price(measure, amount)) for amount in (1e-9, 0.2, 1e4)]
    assert shares[0] == 0
    assert 0.2 >= shares[1] > shares[2] > 0
    assert share_for_signs(curator, one_way, {}, Price(measure, 1.0)) == 0
    assert account.spent.amount == 0


def test_rows_follow_pairs_that_were_not_measured() -> None:
    """So little is paid that no pair is measured, and rows are drawn that are correlated all the same."""
    codes = planted(0.7)
    price = Price(Measure.ZCDP, 1e-4)
    curator, account = curator_of(codes, SIZES, price)
    found = PairwiseFit(max_pairs=0).find(
        curator, MarginalsOfView(curator, one_way_of(codes, SIZES, sigma=60.0)), price, SIZES
    )
    assert isinstance(found, MeasuredLeaf)
    assert not found.tables
    assert account.spent.amount == pytest.approx(price.amount)
    stored = measured_from_dict(measured_to_dict(found))
    rows = Rows(N)
    stored.fit().draw(rows, np.random.default_rng(0))
    for pair in combinations(NAMES, 2):
        independent = np.outer(joint_of(codes, SIZES, pair[0]), joint_of(codes, SIZES, pair[1]))
        true = joint_of(codes, SIZES, *pair)
        assert tvd(joint_of(rows.codes, SIZES, *pair), true) < 0.5 * tvd(independent, true), pair


def bits_of(columns: int, rows: int = N, seed: int = 0) -> dict[str, np.ndarray]:
    """Skewed bits that depend on each other by a common number; the last one repeats the first."""
    rng = np.random.default_rng(seed)
    common = rng.random(rows)
    codes = {f"b{i}": (rng.random(rows) < 0.8 * common).astype(np.int32) for i in range(columns)}
    return {**codes, "again": codes["b0"]}


def test_the_sign_product_of_two_bits_is_their_joint() -> None:
    codes = bits_of(4)
    sizes = dict.fromkeys(codes, 2)
    clean = one_way_of(codes, sizes).clean()
    cuts = cuts_of(clean, {})
    signs = {name: cut.signs(2)[codes[name]] for name, cut in cuts.items()}
    exact = np.array([(signs[a] * signs[b]).sum() for a, b in combinations(cuts, 2)], dtype=float)
    joints = SignSums(cuts, exact, 0.0).joints(clean)
    assert set(joints) == set(combinations(codes, 2))
    for pair, joint in joints.items():
        assert joint.min() > 0
        assert tvd(joint / N, joint_of(codes, sizes, *pair)) < (0.01 if "again" in pair else 1e-9), pair
    assert len(SignSums(cuts, exact, 0.0).joints(clean, most=3)) == 3


@pytest.mark.parametrize("excess", [-5.0, -0.1, 0.0, 0.2, 5.0])
def test_joints_of_bits_have_their_marginals_and_rule_nothing_out(excess: float) -> None:
    first, second = np.array([30.0, 70.0]), np.array([95.0, 5.0])
    joint = joint_of_bits(first, second, excess)
    np.testing.assert_allclose(joint.sum(axis=1), first)
    np.testing.assert_allclose(joint.sum(axis=0), second)
    assert (joint >= 0.02 * np.outer(first, second) / 100 - 1e-9).all()


@pytest.mark.parametrize(("measure", "amount"), [(Measure.ZCDP, 2e-3), (Measure.PURE, 1.0)])
def test_bits_get_what_takes_most_off_their_pairs_and_no_table(measure: Measure, amount: float) -> None:
    codes = bits_of(12)
    sizes, price = dict.fromkeys(codes, 2), Price(measure, amount)
    one_way = one_way_of(codes, sizes, sigma=40.0)
    curator, account = curator_of(codes, sizes, price)
    assert 0.4 < share_for_signs(curator, one_way, cuts_of(one_way.clean(), {}), price) < 1
    found = PairwiseFit().find(curator, MarginalsOfView(curator, one_way), price, {})
    assert isinstance(found, MeasuredLeaf)
    assert found.signs is not None
    assert not found.tables
    assert account.spent.amount == pytest.approx(price.amount)
    joints = found.joints()
    apart = [tvd(joint / joint.sum(), joint_of(codes, sizes, *pair)) for pair, joint in joints.items()]
    noise = 0.4 * curator.sigma([Marginal(pair) for pair in combinations(codes, 2)], price) / N
    assert np.mean(apart) < 2 * noise  # half of what a table for each pair has, before margins and sharing


def test_two_bits_among_many_columns_may_have_a_table() -> None:
    codes = {**planted(0.5), **bits_of(1)}
    sizes, price = {**SIZES, "b0": 2, "again": 2}, Price(Measure.ZCDP, 0.01)
    one_way = one_way_of(codes, sizes, sigma=40.0)
    curator, _ = curator_of(codes, sizes, price)
    cuts = cuts_of(one_way.clean(), SIZES)
    share = share_for_signs(curator, one_way, cuts, price)
    assert determined_by_signs(one_way.clean(), cuts, share) == set()
    assert determined_by_signs(one_way.clean(), cuts, 0.5) == {("b0", "again")}


@pytest.mark.parametrize("measure", list(Measure))
def test_bits_get_nothing_where_noise_would_hide_them(measure: Measure) -> None:
    codes = bits_of(12)
    one_way = one_way_of(codes, dict.fromkeys(codes, 2))
    curator, _ = curator_of(codes, dict.fromkeys(codes, 2))
    assert share_for_signs(curator, one_way, cuts_of(one_way.clean(), {}), Price(measure, 1e-9)) == 0
