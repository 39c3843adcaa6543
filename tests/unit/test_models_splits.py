from __future__ import annotations

import numpy as np
import pytest

from privbench_core.marginals.measure_spn import lloyd_split
from privbench_core.marginals.spn import split_by_attribute
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.split_rules import ByValue, Centres
from tests.helpers.planted import curator_of


def clusters(n: int = 2000, seed: int = 0):
    """Two clear clusters in an ordered column of 20 codes and two lists of values; which row is in which."""
    rng = np.random.default_rng(seed)
    side = (rng.random(n) < 0.3).astype(int)
    codes = {
        "x": np.clip(np.where(side == 1, 16, 4) + rng.integers(-3, 4, n), 0, 19).astype(np.int32),
        "k": np.where(rng.random(n) < 0.95, side, rng.integers(0, 3, n)).astype(np.int32),
        "l": np.where(rng.random(n) < 0.95, 2 - side, rng.integers(0, 3, n)).astype(np.int32),
    }
    return codes, {"x": 20, "k": 3, "l": 3}, side


@pytest.mark.parametrize("seed", range(5))
def test_lloyd_finds_two_planted_clusters_from_any_start(seed):
    codes, sizes, side = clusters()
    curator, account = curator_of(codes, sizes)
    price = Price(Measure.GDP, 1e12)
    rule = lloyd_split(curator, ["x", "k", "l"], {"x"}, 3, price, np.random.default_rng(seed))
    assert isinstance(rule, Centres)
    agreement = (rule.assign(codes) == side).mean()
    assert max(agreement, 1 - agreement) > 0.97
    assert account.spent.amount == pytest.approx(price.amount)


def test_lloyd_spends_its_iterations_and_no_more():
    codes, sizes, _ = clusters(100)
    labels = []
    curator, account = curator_of(codes, sizes)
    account.record = lambda label, price: labels.append((label, price.amount))
    lloyd_split(curator, ["x", "k"], {"x"}, 4, Price(Measure.GDP, 1.0), np.random.default_rng(0))
    assert [label for label, _ in labels] == [f"test/centres {i}" for i in range(4)]
    assert [amount for _, amount in labels] == [0.25] * 4


def test_lloyd_starts_without_looking_at_rows():
    """With a price that drowns everything the centres stay near the start, which depends on the generator alone."""
    sizes = {"x": 20, "k": 3}
    rules = []
    for value in (0, 19):
        codes = {"x": np.full(3, value, dtype=np.int32), "k": np.zeros(3, dtype=np.int32)}
        curator, _ = curator_of(codes, sizes)
        tiny = Price(Measure.GDP, 1e-9)  # σ says that three rows mean nothing
        rules.append(lloyd_split(curator, ["x", "k"], {"x"}, 2, tiny, np.random.default_rng(7)))
    assert rules[0] == rules[1]


HALF = np.array([50.0, 50.0])


@pytest.mark.parametrize(("ordered", "scores", "clean", "rule"), [
    ({"a"}, {"ab": 30, "ac": 25, "bc": 5},
     {"a": np.array([10.0, 20.0, 30.0, 40.0]), "b": HALF, "c": np.array([99.0, 1.0])}, ByValue("a", (0, 0, 0, 1))),
    (set(), {"kl": 1}, {"k": np.array([40.0, 30.0, 20.0, 10.0]), "l": np.ones(1)}, ByValue("k", (0, 1, 1, 0))),
    ({"a"}, {"ab": 1}, {"a": np.array([1.0, 1.0, 98.0]), "b": np.ones(1)}, ByValue("a", (0, 0, 1))),
    ({"a"}, {"ab": 1}, {"a": np.ones(1), "b": np.ones(1)}, None),
    (set(), {"ab": 1, "ac": -100, "bc": -100}, dict.fromkeys("abc", HALF), ByValue("a", (0, 1))),
], ids=["median of the strongest", "list by count", "mass at the end", "one code", "negative scores"])  # fmt: skip
def test_the_attribute_with_the_strongest_dependence_is_halved(ordered, scores, clean, rule):
    by_pair = {(pair[0], pair[1]): float(score) for pair, score in scores.items()}
    assert split_by_attribute(ordered, by_pair, clean) == rule
