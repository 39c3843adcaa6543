"""Query heat maps: selectivities that are known in advance, and trees that two tables share."""

from __future__ import annotations

import numpy as np
import pytest

from privbench_core.evaluation.marginals import EncodedTable
from privbench_core.privacy.split_rules import ByValue
from privbench_core.report import plots
from privbench_core.report.plots import (
    Heat,
    Network,
    grow_network,
    heat,
    random_queries,
    selectivity,
    worst_and_typical,
)


def table(rows: int, seed: int, *, linked: bool = True) -> EncodedTable:
    """The second column follows the first, the third is independent of both."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 10, rows)
    second = (first >= 5) * 2 + rng.integers(0, 2, rows) if linked else rng.integers(0, 4, rows)
    return EncodedTable(
        ("a", "b", "c"), np.stack([first, second, rng.integers(0, 6, rows)], axis=1), (10, 4, 6), (True, True, False)
    )


def test_the_network_splits_what_depends_and_separates_what_does_not() -> None:
    node = grow_network(table(4000, 0))
    assert node.rule is None
    parts = {part.columns: part for part in node.parts}
    assert not parts["c",].parts
    assert parts["a", "b"].rule is not None


def test_selectivities_multiply_across_products_and_average_over_parts() -> None:
    """Three quarters of the rows have a = 0; b is 1 for half of these, and for a fifth of the others."""
    inside = Network(("a", "b"), (Network(("a",)), Network(("b",))))
    network = Network(("a", "b"), (inside, inside), ByValue("a", (0, 1)))
    b = [0, 1] * 15 + [0] * 8 + [1] * 2
    rows = EncodedTable(("a", "b"), np.array([[0] * 30 + [1] * 10, b]).T, (2, 2), (True, True))
    found = heat(network, rows, {"a": np.array([False, True]), "b": np.array([False, True])})
    assert [part.share for part in found.parts] == [0.75, 0.25]
    assert [part.selectivity for part in found.parts] == pytest.approx([0, 0.2])
    assert found.selectivity == pytest.approx(0.05)
    assert (found.leaves, found.depth) == (4, 3)


def test_columns_without_a_condition_are_not_drawn() -> None:
    true = table(4000, 0)
    found = heat(grow_network(true), true, {"c": np.array([True, True, True, False, False, False])})
    assert (found.kind, found.label, found.parts) == ("leaf", "c", ())
    assert found.selectivity == pytest.approx(0.5, abs=0.05)


def test_both_trees_have_the_same_nodes_and_the_estimate_is_near_the_truth() -> None:
    true, other = table(4000, 0), table(3000, 1)
    node = grow_network(true)
    for query in random_queries(true, 20, np.random.default_rng(0)):
        left, right = (heat(node, rows, query) for rows in (true, other))
        assert shape(left) == shape(right)
        assert left.selectivity == pytest.approx(selectivity(true, query), abs=0.06)
        assert right.selectivity == pytest.approx(selectivity(other, query), abs=0.06)


def shape(node: Heat) -> object:
    return node.kind, node.label, [shape(part) for part in node.parts]


def test_a_lost_dependence_shows_in_the_worst_query_and_in_its_tree() -> None:
    worst, typical = worst_and_typical(table(4000, 0), table(4000, 2, linked=False), np.random.default_rng(1))
    assert {"a", "b"} <= set(worst.query)
    assert abs(worst.exact[0] - worst.exact[1]) / worst.exact[0] > 0.5
    assert abs(typical.exact[0] - typical.exact[1]) / typical.exact[0] < 0.5
    assert worst_and_typical(table(4000, 0), table(0, 0), np.random.default_rng(1)) == ()


def test_a_drawing_has_every_node_and_escapes_names() -> None:
    parts = (Heat("<b>", "leaf", 1.0, 0.5), Heat("c", "leaf", 1.0, 0.004))
    drawn = plots.tree(
        Heat("split by a", "sum", 1.0, 0.2, (Heat("×", "product", 0.3, 0.002, parts), Heat("c", "leaf", 0.7, 0.0))), "t"
    )
    assert "&lt;b&gt;" in drawn
    assert "<b>" not in drawn
    assert all(f">{text}<" in drawn for text in ("t", "30%", "70%", "50%", "0.4%", "0.2%", "20%", "0%", "split by a"))
