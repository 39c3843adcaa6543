from __future__ import annotations

import numpy as np
import pytest

from privbench_core.marginals.measure_one_way import Marginals
from privbench_core.marginals.measure_spn import HistogramSPN, PairwiseSPN
from privbench_core.marginals.measured import MeasuredParts
from privbench_core.marginals.sampler import Rows
from privbench_core.marginals.spn import Leaf, Node, Sum, count_nodes
from privbench_core.privacy.budget import Measure, Price
from tests.helpers.planted import PLENTY, curator_of, joint_of, one_way_of, tvd

SIZES = {"a": 3, "b": 3, "x": 8, "y": 8, "z": 2}
ORDERED = {"x": 8, "y": 8}


def planted(n: int = 4000, seed: int = 0):
    """Two clusters of rows; a, b, x and y follow the cluster, z does not."""
    rng = np.random.default_rng(seed)
    side = (rng.random(n) < 0.4).astype(int)
    codes = {
        "a": np.where(rng.random(n) < 0.9, 2 * side, 1),
        "b": np.where(rng.random(n) < 0.9, 2 - 2 * side, 1),
        "x": np.clip(6 * side + rng.integers(0, 3, n), 0, 7),
        "y": np.clip(7 - 5 * side - rng.integers(0, 3, n), 0, 7),
        "z": rng.integers(0, 2, n),
    }
    return {name: values.astype(np.int32) for name, values in codes.items()}


def branches(node: Node) -> list[tuple[str, ...]]:
    """The columns that each way of choosing one part per sum node models, sorted."""
    if isinstance(node, Leaf):
        return [node.columns]
    if isinstance(node, Sum):
        return [columns for part in node.parts for columns in branches(part)]
    ways: list[tuple[str, ...]] = [()]
    for part in node.parts:
        ways = [before + more for before in ways for more in branches(part)]
    return ways


def papers_network(codes, price: Price = PLENTY, seed: int = 1, **options) -> tuple[Node, Price]:
    """The fitted network of histograms over these columns, and what it cost."""
    sizes = {name: SIZES[name] for name in codes}
    curator, account = curator_of(codes, sizes, price)
    spn = HistogramSPN(frozenset(ORDERED), rng=np.random.default_rng(seed), **options)
    return spn.build(curator, one_way_of(codes, sizes), price).fit(), account.spent


def drawn(node: Node, n: int = 4000) -> Rows:
    rows = Rows(n)
    node.draw(rows, np.random.default_rng(0))
    return rows


@pytest.mark.parametrize(("beta", "alpha"), [(100, 0.05), (400, 0.1), (100, 0.9), (1, 0.2)])
@pytest.mark.parametrize("measure", list(Measure))
def test_every_branch_of_the_papers_network_models_every_column_once(beta, alpha, measure):
    price = Price(measure, 1e6)
    node, spent = papers_network(planted(1500), price, alpha=alpha, beta=beta)
    assert {tuple(sorted(columns)) for columns in branches(node)} == {tuple(sorted(SIZES))}
    assert spent.fits(price)


def test_the_papers_network_reproduces_marginals_and_much_of_the_dependence():
    codes = planted()
    rows = drawn(papers_network(codes, alpha=0.05, beta=200)[0])
    for name in SIZES:
        assert tvd(joint_of(rows.codes, SIZES, name), joint_of(codes, SIZES, name)) < 0.01
    exact = joint_of(codes, SIZES, "a", "x")
    independent = np.outer(exact.sum(axis=1), exact.sum(axis=0))
    assert tvd(joint_of(rows.codes, SIZES, "a", "x"), exact) < 0.3 * tvd(independent, exact)


def test_the_default_grows_a_sum_node_only_where_parts_stay_large():
    codes = planted()
    for beta, sums in ((500, True), (3000, False)):
        curator, account = curator_of(codes, SIZES)
        node = PairwiseSPN(ORDERED, beta=beta).build(curator, one_way_of(codes, SIZES), PLENTY).fit()
        assert (count_nodes(node)["sum"] > 0) is sums
        assert {tuple(sorted(columns)) for columns in branches(node)} == {tuple(sorted(SIZES))}
        assert account.spent.fits(PLENTY)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_default_network_reproduces_all_pairs_it_is_made_of(depth):
    codes = planted()
    curator, _ = curator_of(codes, SIZES)
    node = PairwiseSPN(ORDERED, beta=200, max_depth=depth).build(curator, one_way_of(codes, SIZES), PLENTY).fit()
    rows = drawn(node)
    for pair in (("a", "b"), ("a", "x"), ("x", "y"), ("b", "z")):
        assert tvd(joint_of(rows.codes, SIZES, *pair), joint_of(codes, SIZES, *pair)) < 0.05


def test_the_parts_of_a_sum_add_up_to_all_rows():
    codes = planted()
    curator, _ = curator_of(codes, SIZES)
    node = PairwiseSPN(ORDERED, beta=500, max_depth=1).build(curator, one_way_of(codes, SIZES), PLENTY).fit()
    assert isinstance(node, Sum)
    assert node.total == pytest.approx(4000, abs=1)
    assert sorted(part.total for part in node.parts) == pytest.approx(
        sorted(np.bincount(node.rule.assign(codes)).astype(float)), abs=1
    )


def test_rows_are_not_split_where_no_columns_depend_on_each_other():
    rng = np.random.default_rng(0)
    sizes = {"a": 4, "b": 5, "c": 3}
    codes = {name: rng.integers(0, size, 30_000).astype(np.int32) for name, size in sizes.items()}
    price = Price(Measure.GDP, 0.01)
    curator, _ = curator_of(codes, sizes, price)
    network = PairwiseSPN({}, max_noise=1.0)
    assert network._affordable(curator, one_way_of(codes, sizes), price)
    found = network.find(Marginals(curator, one_way_of(codes, sizes, 30.0)), price)
    assert isinstance(found, Price) or not isinstance(found, MeasuredParts)
    codes["b"] = np.where(rng.random(30_000) < 0.7, codes["a"], codes["b"]).astype(np.int32)
    curator, _ = curator_of(codes, sizes, price)
    assert isinstance(network.find(Marginals(curator, one_way_of(codes, sizes, 30.0)), price), MeasuredParts)
