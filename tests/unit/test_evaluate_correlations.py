"""Pearson coefficients against the self-join and the join made in full."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.evaluation.joins import (
    JoinValues,
    inter_table,
    intra_group,
    ordered_values,
    pearson,
    sibling_agreement,
    sibling_pearson,
)
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.tables import Table
from privbench_core.validate.references import NO_PARENT


def database(seed: int, likeness: float) -> JoinValues:
    """Siblings and their parents share a part of their values; some values are NULL, some children have no parent."""
    rng = np.random.default_rng(seed)
    parents = 300
    base = rng.normal(size=parents)
    links = np.repeat(np.arange(parents), rng.integers(0, 5, parents))
    child = 1000 + likeness * base[links] + (1 - likeness) * rng.normal(size=len(links))
    child[::17] = np.nan
    links[::23] = NO_PARENT
    return JoinValues({"p": base}, {"c": child}, links)


@pytest.mark.parametrize("likeness", [0.0, 0.7])
def test_siblings_agree_with_the_self_join(likeness: float) -> None:
    side = database(1, likeness)
    child = side.child["c"]
    pairs = [
        (child[i], child[j])
        for parent in range(300)
        for i, j in permutations(np.flatnonzero((side.links == parent) & ~np.isnan(child)), 2)
    ]
    x, y = np.array(pairs).T
    assert sibling_pearson(side.links, child) == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
    assert (sibling_pearson(side.links, child) or 0) > 0.5 * likeness


def test_parents_and_children_agree_with_the_join() -> None:
    true, lost = database(1, 0.7), database(2, 0.0)
    (found,) = inter_table(true, lost)
    kept = (true.links != NO_PARENT) & ~np.isnan(true.child["c"])
    expected = np.corrcoef(true.parent["p"][true.links[kept]], true.child["c"][kept])[0, 1]
    assert found.source == pytest.approx(expected)
    assert abs(found.synthetic or 0) < 0.15
    assert found.difference is not None
    assert found.difference > 0.5
    assert intra_group(true, lost)[0].columns == ("c", "c")


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0], [np.nan, 1.0]])
def test_a_coefficient_that_is_not_defined_is_none(values: list[float]) -> None:
    x = np.array(values)
    assert pearson(x, x) is None
    assert sibling_pearson(np.zeros(len(x), np.int64), x) is None


def test_infinite_values_are_left_out() -> None:
    x, y = np.array([1.0, np.inf, 2.0, 4.0]), np.array([2.0, 1.0, 4.0, 8.0])
    assert pearson(x, y) == pytest.approx(1)
    assert sibling_pearson(np.array([0, 0, 0, 1, 1]), np.array([5.0, np.inf, 5.0, 9.0, 9.0])) == pytest.approx(1)


def test_equal_siblings_of_different_groups_are_fully_correlated() -> None:
    assert sibling_pearson(np.array([0, 0, 1, 1]), np.array([5.0, 5.0, 9.0, 9.0])) == pytest.approx(1)


def test_only_what_has_distances_is_correlated() -> None:
    table = Table(
        "t",
        (
            Column("id", ColumnType.INTEGER),
            Column("age", ColumnType.INTEGER, Range(0, 9), nullable=True),
            Column("kind", ColumnType.INTEGER, Values((1, 2))),
            Column("name", ColumnType.TEXT),
        ),
        ("id",),
    )
    rows = pa.table({"id": [1, 2], "age": [3, None], "kind": [1, 2], "name": ["a", "b"]})
    found = ordered_values(table, rows)
    assert list(found) == ["age"]
    assert np.array_equal(found["age"], [3.0, np.nan], equal_nan=True)


def test_agreement_of_siblings_is_that_of_all_pairs_of_a_parent() -> None:
    rng = np.random.default_rng(0)
    links, codes = rng.integers(-1, 20, 200), rng.integers(0, 3, 200)
    shares = []
    for row in np.flatnonzero(links != NO_PARENT):
        others = np.flatnonzero((links == links[row]) & (np.arange(200) != row))
        if len(others):
            shares.append((codes[others] == codes[row]).mean())
    assert sibling_agreement(links, codes) == pytest.approx(np.mean(shares))
    assert sibling_agreement(np.arange(5), np.zeros(5, dtype=np.int64)) is None
    assert sibling_agreement(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)) is None
