"""Triples: a parity is found, rows follow it, and nothing is measured where pairs explain all there is."""

from __future__ import annotations

import numpy as np
import pytest

from privbench_core.estimators.joints import NoisyTable, estimated_triples, explained
from privbench_core.marginals.measure_one_way import Marginals
from privbench_core.marginals.measure_pairs import PairwiseFit
from privbench_core.marginals.measured import MeasuredLeaf
from privbench_core.marginals.record_swapping import TargetTable, swap
from privbench_core.marginals.sampler import Rows
from privbench_core.marginals.spn import node_to_dict
from privbench_core.privacy.budget import Measure, Price
from privbench_core.stored import restored
from tests.helpers.planted import PLENTY, curator_of, joint_of, one_way_of

N = 20_000
SIZES = {"a": 2, "b": 2, "c": 2, "d": 3}


def parity(seed: int = 0, broken: float = 0.05):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 2, (2, N))
    c = a ^ b ^ (rng.random(N) < broken)
    return {name: codes.astype(np.int32) for name, codes in zip("abcd", (a, b, c, rng.integers(0, 3, N)), strict=True)}


def chain(seed: int = 0):
    """b follows a, c follows b: pairs explain all three."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, N)
    b = a ^ (rng.random(N) < 0.2)
    c = b ^ (rng.random(N) < 0.1)
    return {name: codes.astype(np.int32) for name, codes in zip("abcd", (a, b, c, rng.integers(0, 3, N)), strict=True)}


@pytest.mark.parametrize("price", [Price(Measure.GDP, 0.002), Price(Measure.PURE, 0.5)], ids=["Gaussian", "pure"])
def test_rows_follow_a_parity_that_no_pair_shows(price: Price) -> None:
    codes = parity()
    curator, account = curator_of(codes, SIZES, price)
    found = PairwiseFit().find(Marginals(curator, one_way_of(codes, SIZES, sigma=20.0)), price, {})
    assert isinstance(found, MeasuredLeaf)
    assert set(found.triples) == {("a", "b", "c")}
    assert account.spent.amount == pytest.approx(price.amount)
    leaf = restored(node_to_dict(MeasuredLeaf.from_dict(found.to_dict()).fit()))
    rows = Rows(N)
    leaf.draw(rows, np.random.default_rng(0))
    assert set(rows.codes) == set(SIZES)
    assert (rows.codes["c"] != rows.codes["a"] ^ rows.codes["b"]).mean() < 0.1


def test_nothing_is_measured_where_pairs_explain_all() -> None:
    codes = chain()
    curator, account = curator_of(codes, SIZES)
    found = PairwiseFit().find(Marginals(curator, one_way_of(codes, SIZES, sigma=20.0)), PLENTY, {})
    assert isinstance(found, MeasuredLeaf)
    assert found.tables
    assert not found.triples
    assert account.spent.amount == pytest.approx(PLENTY.amount)


def test_an_estimate_has_the_margins_of_its_pairs_and_no_zeros() -> None:
    codes = parity()
    clean = one_way_of(codes, SIZES).clean()
    exact = N * joint_of(codes, SIZES, "a", "b", "c")
    pairs = {("b", "a"): N * joint_of(codes, SIZES, "b", "a"), ("a", "c"): N * joint_of(codes, SIZES, "a", "c")}
    noisy = NoisyTable(exact + np.random.default_rng(0).normal(0, 30.0, exact.shape), 30.0)
    (found,) = estimated_triples({("a", "b", "c"): noisy}, pairs, clean).values()
    assert found.min() > 0
    np.testing.assert_allclose(found.sum(axis=2), pairs["b", "a"].T, rtol=1e-3)
    np.testing.assert_allclose(found.sum(axis=1), pairs["a", "c"], rtol=1e-3)
    assert np.abs(found - exact).sum() < 0.1 * np.abs(explained(("a", "b", "c"), pairs, clean) - exact).sum()


def test_swaps_keep_a_table_of_three_columns() -> None:
    """Swaps for a pair would break a parity that they cannot see."""
    codes = parity(broken=0.0)
    exact = N * joint_of(codes, SIZES, "a", "b", "c")
    tables = [TargetTable(("a", "d"), np.array([[5000.0, 3000, 2000], [1000, 4000, 5000]]))]
    tables.append(TargetTable(("c", "a", "b"), np.moveaxis(exact, 2, 0)))
    before = joint_of(codes, SIZES, "a", "d")
    swap(codes, tables, ["a", "b", "c", "d"], np.random.default_rng(0), sweeps=3)
    assert (codes["c"] != codes["a"] ^ codes["b"]).mean() < 0.05
    after, wanted = joint_of(codes, SIZES, "a", "d"), tables[0].counts / N
    assert np.abs(after - wanted).sum() < 0.5 * np.abs(before - wanted).sum()
