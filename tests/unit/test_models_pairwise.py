from __future__ import annotations

import numpy as np
import pytest

from privbench_core.marginals.measure_one_way import choose_remeasurement
from privbench_core.marginals.measure_pairs import PairwiseFit
from privbench_core.marginals.measure_scores import clear_scores, has_power, pair_scores
from privbench_core.marginals.one_way import OneWay
from privbench_core.marginals.spn import Leaf
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.queries import Marginal
from privbench_core.tuning import TUNING
from tests.helpers.planted import PLENTY, curator_of, joint_of, one_way_of, tvd

SIZES = {"a": 4, "b": 4, "c": 3, "d": 2}


def planted(n: int = 6000, seed: int = 0):
    """b follows a, d follows c, and the two pairs know nothing of each other."""
    rng = np.random.default_rng(seed)
    a, c = rng.integers(0, 4, n), rng.integers(0, 3, n)
    b = np.where(rng.random(n) < 0.7, a, rng.integers(0, 4, n))
    d = (rng.random(n) < np.array([0.1, 0.5, 0.9])[c]).astype(int)
    return {name: codes.astype(np.int32) for name, codes in zip("abcd", (a, b, c, d), strict=True)}


def test_the_planted_pairs_are_found_and_no_others():
    codes = planted()
    curator, account = curator_of(codes, SIZES, Price(Measure.GDP, 0.001))
    leaf = PairwiseFit().fit(curator, one_way_of(codes, SIZES, sigma=20.0), Price(Measure.GDP, 0.001), {}).fit()
    assert set(leaf.pairs) == {("a", "b"), ("c", "d")}
    assert account.spent.amount <= 0.001 * (1 + 1e-9)


def test_independent_columns_are_measured_one_by_one():
    rng = np.random.default_rng(1)
    codes = {name: rng.integers(0, SIZES[name], 3000).astype(np.int32) for name in SIZES}
    curator, account = curator_of(codes, SIZES, Price(Measure.GDP, 0.01))
    noisy = OneWay.with_sigma({n: c + 30.0 for n, c in one_way_of(codes, SIZES).counts.items()}, 100.0)
    leaf = PairwiseFit().fit(curator, noisy, Price(Measure.GDP, 0.01), {}).fit()
    assert leaf.pairs == {}
    exact = {name: joint_of(codes, SIZES, name) for name in SIZES}
    assert max(tvd(leaf.marginals[name], exact[name]) for name in SIZES) < 0.01  # the second look corrects the first
    assert account.spent.amount <= 0.01 * (1 + 1e-9)


@pytest.mark.parametrize("columns", [{"a": 4}, {"a": 4, "one code": 1}])
@pytest.mark.parametrize("price", [PLENTY, Price(Measure.PURE, 1e-4)], ids=["plenty", "little"])
def test_a_single_column_spends_all_on_its_marginal(columns, price):
    codes = {name: planted()["a"] % size for name, size in columns.items()}
    curator, account = curator_of(codes, columns, price)
    leaf = PairwiseFit().fit(curator, one_way_of(codes, columns, 50.0), price, {}).fit()
    assert isinstance(leaf, Leaf)
    assert (leaf.columns, leaf.pairs) == (tuple(columns), {})
    assert account.spent.amount == pytest.approx(price.amount)


@pytest.mark.parametrize("measure", list(Measure))
def test_no_price_is_exceeded_at_any_size_of_noise(measure):
    codes = planted(200)
    for amount in (1e-4, 0.1, 100.0):
        price = Price(measure, amount)
        curator, account = curator_of(codes, SIZES, price)
        PairwiseFit().fit(curator, one_way_of(codes, SIZES, 5.0), price, {}).fit()
        assert account.spent.fits(price)


def remaining(sigmas: dict[str, float], measured: dict[str, float], sizes: dict[str, int]) -> float:
    """Summed standard deviations of all counts if ``measured`` columns are known once more with that noise."""
    return sum(
        sizes[name] * sigma / np.sqrt(1 + (sigma / measured.get(name, np.inf)) ** 2) for name, sigma in sigmas.items()
    )


@pytest.mark.parametrize("first", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("measure", list(Measure))
def test_a_second_look_leaves_less_noise_than_one_at_all_columns_alike(measure, first):
    codes, price = planted(500), Price(measure, 0.1)
    curator, account = curator_of(codes, SIZES, price)
    look = choose_remeasurement(curator, one_way_of(codes, SIZES, sigma=first), price)
    assert sum(look.shares.values()) == pytest.approx(1.0)
    assert account.spent.amount == 0
    noise = {name: curator.sigma([Marginal((name,))], price.share(share)) for name, share in look.shares.items()}
    alike = curator.sigma([Marginal((name,)) for name in SIZES], price)
    assert look.noise == pytest.approx(remaining(dict.fromkeys(SIZES, first), noise, SIZES), rel=1e-6)
    assert look.noise <= remaining(dict.fromkeys(SIZES, first), dict.fromkeys(SIZES, alike), SIZES) * (1 + 1e-9)


def test_scores_cost_nothing_where_noise_hides_all():
    codes = planted()
    shares = []
    for amount in (1e-6, 0.1, 50.0):
        price = Price(Measure.PURE, amount)
        curator, account = curator_of(codes, SIZES, price)
        charged: list[tuple[str, float]] = []
        account.charge = lambda label, asked, to=charged: to.append((label, asked.amount))  # type: ignore[method-assign]
        PairwiseFit().fit(curator, one_way_of(codes, SIZES, sigma=20.0), price, {}).fit()
        shares.append(sum(paid for label, paid in charged if label.endswith("dependence scores")) / amount)
    assert shares[0] == 0
    assert 0 < shares[2] <= TUNING.score_share
    assert shares[1] == pytest.approx(TUNING.score_share)


def test_scores_of_independent_columns_are_nothing_beyond_the_noise_of_their_marginals():
    rng = np.random.default_rng(3)
    codes = {name: rng.integers(0, SIZES[name], 6000).astype(np.int32) for name in SIZES}
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    curator, _ = curator_of(codes, SIZES)
    exact = one_way_of(codes, SIZES)
    noisy = OneWay.with_sigma({n: c + rng.normal(0, 300, len(c)) for n, c in exact.counts.items()}, 300.0)
    plain = pair_scores(curator, noisy.clean(), pairs, PLENTY.share(0.4))
    assert plain.min() > 200
    assert clear_scores(curator, noisy, pairs, PLENTY.share(0.4)).max() < 0.5 * plain.max()
    dependent, _ = curator_of(planted(), SIZES)
    found = clear_scores(dependent, one_way_of(planted(), SIZES), [("a", "b"), ("a", "c")], PLENTY.share(0.4))
    assert found[0] == pytest.approx(
        pair_scores(dependent, one_way_of(planted(), SIZES).clean(), pairs[:1], PLENTY.share(0.4))[0]
    )
    assert found[1] < 0.1 * found[0]


@pytest.mark.parametrize("measure", list(Measure))
def test_dependences_are_looked_for_where_rows_and_price_are_many(measure):
    curator, account = curator_of(planted(100), SIZES)

    def looked_for(total, amount, pairs=10):
        return has_power(curator, pairs, total, Price(measure, amount))

    amounts = (0.2, 20.0) if measure is Measure.PURE else (0.0005, 0.1)
    assert [looked_for(total, amounts[0]) for total in (10.0, 100.0, 100_000.0)] == [False, False, True]
    assert [looked_for(100.0, amount) for amount in amounts] == [False, True]
    assert not looked_for(-300.0, amounts[0])
    assert not looked_for(1e9, amounts[1], pairs=0)
    assert account.spent.amount == 0
