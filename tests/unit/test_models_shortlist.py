"""Choosing pairs before they are scored: under pure privacy, where noise would hide the scores of all of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from privbench_core.measure.one_way import MarginalsOfView
from privbench_core.measure.pairwise import PairwiseFit
from privbench_core.measure.shortlist import share_of_shortlist, shortlist, shortlist_size
from privbench_core.models.measured import MeasuredLeaf
from privbench_core.privacy.budget import Measure, Price
from tests.helpers.planted import curator_of, one_way_of

N = 20_000
NAMES = tuple(f"c{i:02d}" for i in range(20))
SIZES = dict.fromkeys(NAMES, 5)
PAIRS = list(combinations(NAMES, 2))
PLANTED = {("c00", "c01"), ("c02", "c03"), ("c04", "c05")}


def codes_of(seed: int = 0):
    """Lists of five values; the second of each of three pairs follows the first."""
    rng = np.random.default_rng(seed)
    codes = {name: rng.integers(0, 5, N).astype(np.int32) for name in NAMES}
    for first, second in PLANTED:
        codes[second] = np.where(rng.random(N) < 0.8, codes[first], codes[second]).astype(np.int32)
    return codes


def pure(amount: float) -> Price:
    return Price(Measure.PURE, amount)


def test_gaussian_noise_and_plenty_of_budget_score_all_pairs() -> None:
    curator, _ = curator_of(codes_of(), SIZES)
    assert shortlist_size(curator, 190, N, Price(Measure.ZCDP, 1e-6)) == 190
    assert shortlist_size(curator, 190, N, pure(100.0)) == 190
    assert share_of_shortlist(curator, 190, 190, N, pure(100.0)) == 0
    assert shortlist_size(curator, 0, N, pure(1.0)) == 0
    assert shortlist_size(curator, 190, N, pure(0.01)) == 190  # not even one choice would be good


@pytest.mark.parametrize("amount", [0.05, 0.1, 0.4])
def test_fewer_are_chosen_for_less_and_choices_leave_most_of_the_price(amount: float) -> None:
    curator, _ = curator_of(codes_of(), SIZES)
    number = shortlist_size(curator, 190, N, pure(amount))
    assert 0 < number < 190
    assert number <= shortlist_size(curator, 190, N, pure(2 * amount))
    assert share_of_shortlist(curator, 190, number, N, pure(amount)) <= 0.3


def test_the_best_pairs_are_chosen_each_once() -> None:
    codes, price = codes_of(), pure(0.25)
    curator, account = curator_of(codes, SIZES, price)
    chosen = shortlist(curator, one_way_of(codes, SIZES).clean(), PAIRS, 5, price, {})
    assert len(set(chosen)) == 5
    assert set(chosen[:3]) == PLANTED
    assert account.spent.amount == pytest.approx(price.amount)


def test_a_pair_that_is_known_is_not_chosen() -> None:
    codes, price = codes_of(), pure(0.15)
    curator, _ = curator_of(codes, SIZES, price)
    first, second = codes["c00"], codes["c01"]
    known = {("c00", "c01"): np.bincount(5 * first + second, minlength=25).reshape(5, 5).astype(float)}
    chosen = shortlist(curator, one_way_of(codes, SIZES).clean(), PAIRS, 2, price, known)
    assert set(chosen) == PLANTED - {("c00", "c01")}


def test_dependences_are_found_where_noise_hides_the_scores_of_all_pairs() -> None:
    codes, price = codes_of(), pure(0.2)
    curator, account = curator_of(codes, SIZES, price)
    fit, one_way = PairwiseFit(), one_way_of(codes, SIZES, sigma=30.0)
    assert fit.hopeless(curator, len(PAIRS), N, price.share(0.08))
    found = fit.find(curator, MarginalsOfView(curator, one_way), price, {})
    assert isinstance(found, MeasuredLeaf)
    assert set(found.tables) == PLANTED
    assert account.spent.amount == pytest.approx(price.amount)


def test_there_is_no_cliff() -> None:
    """Some budget that is too small for the scores of all pairs is promising, as some that is not."""
    curator, _ = curator_of(codes_of(), SIZES)
    codes = list(SIZES.values())
    promising = [PairwiseFit().promising(curator, codes, 0, N, pure(amount), 0.5) for amount in (0.001, 0.4, 4.0)]
    assert promising == [False, True, True]
