"""The audit of each noise primitive: as private as its price, and the audit would notice half the noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from privbench_core.errors import InternalError, UnsupportedBudgetError
from privbench_core.privacy import noise as noise_module
from privbench_core.privacy.budget import Measure, Price, delta_for
from privbench_core.privacy.noise import (
    OpenDPNoise,
    Sensitivity,
    bounded_range,
    fineness,
    noise_scale,
    noise_std,
    threshold,
)
from tests.helpers.audit import at_least, epsilon_at_least

NOISE = OpenDPNoise()
QUICK, LONG = 6_000, 300_000
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
sizes = pytest.mark.parametrize("n", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)])


def added(value: int, sensitivity: int, price: Price) -> Callable[[int], NDArray[np.int64]]:
    """Draws of ``value`` plus noise."""
    both = Sensitivity(float(sensitivity), float(sensitivity))
    return lambda n: NOISE.add("audit", np.full(n, value, dtype=np.int64), both, price)


def chosen(scores: list[int], sensitivity: int, price: Price) -> Callable[[int], NDArray[np.int64]]:
    """Draws of the index chosen."""
    exact = np.array(scores, dtype=np.int64)
    return lambda n: np.array([NOISE.choose("audit", exact, sensitivity, price) for _ in range(n)])


@sizes
@pytest.mark.parametrize("sensitivity", [1, 1 << 20])
def test_laplace_noise_is_worth_its_epsilon(n: int, sensitivity: int) -> None:
    price = Price(Measure.PURE, 1.0)
    found = epsilon_at_least(added(0, sensitivity, price), added(sensitivity, sensitivity, price), n)
    assert found <= 1.0
    assert found > (0.6 if n == QUICK else 0.9), "the audit has lost its power"


@sizes
def test_half_the_laplace_noise_is_caught(n: int) -> None:
    double = Price(Measure.PURE, 2.0)
    assert epsilon_at_least(added(0, 1, double), added(1, 1, double), n) > 1.0


@pytest.mark.parametrize("rho", [0.02, 0.5])
@pytest.mark.parametrize("sensitivity", [1, 10, 64])
@pytest.mark.parametrize("draws", [1, 4])
def test_discrete_noise_is_no_less_private_than_the_gaussian_of_its_rho(
    rho: float, sensitivity: int, draws: int
) -> None:
    """The privacy loss of several draws is a function of their sum, whose distribution is exact here."""
    sigma = noise_scale(Sensitivity(sensitivity, sensitivity), Price(Measure.GDP, rho))
    reach = math.ceil(30 * sigma * math.sqrt(draws)) + draws * sensitivity
    numbers = np.arange(-reach, reach + 1)
    one = np.exp(-(numbers**2) / (2 * sigma**2))
    total = one = one / one.sum()
    for _ in range(draws - 1):
        total = np.convolve(total, one, "same")
    loss = sensitivity * (draws * sensitivity - 2 * numbers) / (2 * sigma**2)
    for epsilon in np.linspace(0.05, 4, 40):
        delta = float(total @ -np.expm1(np.minimum(0, epsilon - loss)))
        bound = delta_for(draws * rho, epsilon)
        assert delta <= bound + 1e-12
        if sensitivity == 64 and bound > 1e-9:
            assert delta > 0.99 * bound, "noise is wasted"


@sizes
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_gaussian_noise_is_worth_its_rho(n: int, epsilon: float) -> None:
    price, sensitivity = Price(Measure.GDP, 0.5), 1 << 10
    delta = delta_for(price.amount, epsilon)
    pair = (added(0, sensitivity, price), added(sensitivity, sensitivity, price))
    assert epsilon_at_least(*pair, n, delta=delta) <= epsilon
    assert epsilon_at_least(*pair, n, delta=delta / 2) > 0, "the audit has lost its power"


@sizes
def test_half_the_gaussian_noise_is_caught(n: int) -> None:
    price, sensitivity = Price(Measure.GDP, 0.5), 1 << 10
    halved = Price(Measure.GDP, 4 * price.amount)  # σ goes with 1/√ρ
    pair = (added(0, sensitivity, halved), added(sensitivity, sensitivity, halved))
    assert epsilon_at_least(*pair, n, delta=delta_for(price.amount, 1.0)) > 1.0


few = pytest.mark.parametrize("n", [3_000, pytest.param(30_000, marks=pytest.mark.slow)])


@few
@pytest.mark.parametrize("price", [Price(Measure.PURE, 1.0), Price(Measure.GDP, math.pi / 16)], ids=["pure", "GDP"])
def test_a_choice_is_worth_its_price(n: int, price: Price) -> None:
    # The worst case: the score of an unlikely candidate rises while the likely one's falls. ε = 1 in both currencies.
    pair = chosen([-12, 0], 3, price), chosen([-9, -3], 3, price)
    found = epsilon_at_least(*pair, 2 * n)  # of fewer, chance may select the less telling event, which shows .1 at most
    assert found <= 1.0
    assert found > 0.1, "the audit has lost its power"


@few
def test_half_the_noise_of_a_choice_is_caught(n: int) -> None:
    double = Price(Measure.PURE, 2.0)
    assert epsilon_at_least(chosen([-6, 0], 3, double), chosen([-3, -3], 3, double), n) > 1.0


def test_a_clear_winner_is_chosen_and_a_tie_is_fair() -> None:
    price = Price(Measure.GDP, 0.5)
    assert set(chosen([0, 500, 0], 1, price)(200)) == {1}
    wins = np.bincount(chosen([7, 7], 1, price)(1000), minlength=2)
    assert wins.min() > 400


LONELY = {f"key {i}": 1 << 20 for i in range(QUICK)}  # each of them could be the only trace of one unit


def named(share_of_noise: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """Lower bound on the probability that a key of a single unit is named, with a threshold for too little noise."""
    price, one = Price(Measure.GDP, 0.01, 0.05), Sensitivity(float(1 << 20), float(1 << 20))
    bar = one.l1 + share_of_noise * (threshold(one, price, 1) - one.l1)
    monkeypatch.setattr(noise_module, "threshold", lambda *_: bar)
    kept = NOISE.keep("audit", LONELY, one, price, 1)
    return at_least(len(kept), len(LONELY), 1e-6)


def test_a_key_of_one_unit_is_named_with_at_most_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(1.0, monkeypatch) <= 0.05


def test_a_threshold_for_half_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named(0.5, monkeypatch) > 0.05


def test_what_many_units_share_is_named() -> None:
    price, one = Price(Measure.GDP, 0.5, 1e-9), Sensitivity(1.0, 1.0)
    kept = NOISE.keep("audit", {"common": 1000, "rare": 1}, one, price, 1)
    assert set(kept) == {"common"}
    assert abs(kept["common"] - 1000) < 20
    assert NOISE.keep("audit", {}, one, price, 1) == {}


def test_the_threshold_grows_with_the_keys_a_unit_touches() -> None:
    price, one = Price(Measure.GDP, 0.005, 1e-9), Sensitivity(1.0, 1.0)
    bars = [threshold(one, price, touched) for touched in (1, 10, 100)]
    sigma = noise_scale(one, price)
    assert bars == sorted(bars)
    numbers = np.arange(-300, 301)
    weights = np.exp(-((numbers / sigma) ** 2) / 2)  # of the discrete Gaussian
    for bar, touched in zip(bars, (1, 10, 100), strict=True):
        assert touched * weights[numbers + 1 >= bar].sum() / weights.sum() <= price.delta
    with pytest.raises(UnsupportedBudgetError, match="delta > 0"):
        threshold(one, Price(Measure.PURE, 1.0), 1)


@pytest.mark.parametrize("price", [Price(Measure.PURE, 0.5), Price(Measure.GDP, 0.02)], ids=["laplace", "gaussian"])
def test_noise_has_the_announced_deviation_and_no_bias(price: Price) -> None:
    sensitivity = Sensitivity(3.0, 2.0)
    drawn = NOISE.add("audit", np.zeros((100, 60), dtype=np.int64), sensitivity, price)
    assert drawn.shape == (100, 60)
    assert drawn.dtype == np.int64
    sigma = noise_std(sensitivity, price)
    assert abs(drawn.mean()) < 6 * sigma / math.sqrt(drawn.size)
    assert drawn.std() == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 1e4])
@pytest.mark.parametrize("sensitivity", [1.0, math.sqrt(2), 1 << 20])
def test_the_grid_of_gaussian_noise_is_fine_and_costs_nothing(rho: float, sensitivity: float) -> None:
    price, one = Price(Measure.GDP, rho), Sensitivity(sensitivity, sensitivity)
    factor = fineness(one, price)
    finer = one.times(factor)
    assert fineness(finer, price) == 1
    assert noise_std(one, price) == pytest.approx(noise_scale(finer, price) / factor)
    assert noise_std(one, price) == pytest.approx(sensitivity / math.sqrt(2 * rho), rel=1e-3)
    assert fineness(one, Price(Measure.PURE, rho)) == 1


@pytest.mark.parametrize("likely", np.linspace(0.01, 0.99, 9))
@pytest.mark.parametrize("rho", [1e-4, 0.1, 4.0])
def test_a_choice_is_no_easier_to_tell_than_the_gaussian_of_its_price(rho: float, likely: float) -> None:
    """Two outcomes whose odds change by all of the range: μ of such a choice is exactly Φ⁻¹(p) - Φ⁻¹(q)."""
    other = 1 / (1 + math.exp(bounded_range(rho)) * (1 - likely) / likely)
    assert norm.ppf(likely) - norm.ppf(other) <= math.sqrt(2 * rho) * (1 + 1e-9)


def test_two_draws_differ() -> None:
    price, one = Price(Measure.PURE, 0.01), Sensitivity(1.0, 1.0)
    exact = np.zeros(50, dtype=np.int64)
    assert NOISE.add("a", exact, one, price).tolist() != NOISE.add("a", exact, one, price).tolist()
    assert not exact.any()


def test_noise_of_no_budget_is_refused() -> None:
    with pytest.raises(InternalError, match="a price above zero"):
        NOISE.add("a", np.zeros(1, dtype=np.int64), Sensitivity(1.0, 1.0), Price(Measure.PURE, 0.0))
