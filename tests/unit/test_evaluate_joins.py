"""Links, fanouts, correlations and counting queries against brute force on small databases."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import InternalError
from privbench_core.evaluation.joins import (
    CountingQuery,
    CountingShape,
    JoinValues,
    LinkedTables,
    Predicate,
    answer_counting,
    chains,
    correlations,
    counting_errors,
    counting_queries,
    junctions,
    link_junction,
    link_tables,
    pearson,
    sibling_agreement,
    sibling_pearson,
)
from privbench_core.evaluation.marginals import EncodedTable, crossing_subsets, mean_distances
from privbench_core.sampling.keys import parent_rows
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.row_figures import joint_tvd

KEY = ForeignKey("person", ("household_id",), "household", ("id",), max_children=9, owner=True)


def _database(rng: np.random.Generator, parents: int = 300) -> LinkedTables:
    """Children copy their parent's first attribute, so linking matters."""
    parent = rng.integers(0, [3, 4], (parents, 2))
    links = np.repeat(np.arange(parents), rng.integers(0, 5, parents))
    child = np.stack([parent[links, 0], rng.integers(0, 5, len(links))], axis=1)
    return LinkedTables(parent, (3, 4), child, (3, 5), links)


@pytest.mark.parametrize("first", [0, 5, 2**63 - 7])
def test_parents_numbered_without_a_gap_are_found_as_others_are(first: int) -> None:
    least, other = -(2**63), 2**62
    known = pa.table({"id": pa.array(range(first, first + 7), pa.int64())})
    wanted = pa.table({"household_id": pa.array([first, first + 6, least, other, first + 3, first - 1], pa.int64())})
    shuffled = known.take(pa.array([3, 1, 0, 2, 4, 5, 6]))
    rows = parent_rows(shuffled, wanted, KEY)
    expected = [int(shuffled["id"][row].as_py()) - first if row >= 0 else -1 for row in rows.tolist()]
    assert parent_rows(known, wanted, KEY).tolist() == expected == [0, 6, -1, -1, 3, -1]


def test_parent_rows_of_compound_keys() -> None:
    key = ForeignKey("c", ("x", "y"), "p", ("a", "b"))
    parent = pa.table({"a": ["u", "u", "v"], "b": [1, 2, 1]})
    child = pa.table({"x": ["v", "u", "v", None, "u"], "y": [1, 2, 2, 1, None]})
    assert parent_rows(parent, child, key).tolist() == [2, 1, -1, -1, -1]


def _coded(tables: dict[str, pa.Table]) -> dict[str, EncodedTable]:
    """The column x of each table as it is."""
    return {n: EncodedTable(("x",), t["x"].to_numpy()[:, None], (4,), (True,)) for n, t in tables.items()}


def test_joins_link_codes_along_keys_chains_and_junctions() -> None:
    tables = {
        "user": pa.table({"id": [7, 8], "x": [0, 1]}),
        "order": pa.table({"id": [1, 2, 3], "user": [8, 7, None], "x": [0, 0, 0]}),
        "item": pa.table({"id": [1, 2, 3, 4], "order": [2, 1, 3, None], "x": [0, 1, 2, 3]}),
    }
    upper, lower = ForeignKey("order", ("user",), "user", ("id",)), ForeignKey("item", ("order",), "order", ("id",))
    linked = link_tables((upper,), tables, _coded(tables))
    assert (linked.links.tolist(), linked.fanout.tolist(), linked.child_sizes) == ([1, 0, -1], [1, 1], (4,))
    linked = link_tables((lower, upper), tables, _coded(tables))
    assert linked.links.tolist() == [0, 1, -1, -1]
    assert linked.joined.tolist() == [[0, 0], [1, 1]]
    parents = {"a": pa.table({"id": [1, 2], "x": [0, 1]}), "b": pa.table({"id": [5, 6], "x": [2, 3]})}
    met = {**parents, "ab": pa.table({"a": [1, 2, 2, None], "b": [6, 5, None, 5]})}
    keys = ForeignKey("ab", ("a",), "a", ("id",)), ForeignKey("ab", ("b",), "b", ("id",))
    assert link_junction(*keys, met, _coded(parents)).joined.tolist() == [[0, 3], [1, 2]]


def _table(name: str, *keys: str, optional: bool = False) -> Table:
    """A table of integers that refers to the tables named in ``keys``."""
    columns = tuple(Column(c, ColumnType.INTEGER) for c in ("id", *keys, "x"))
    links = tuple(ForeignKey(name, (k,), k, ("id",), owner=i == 0, optional=optional) for i, k in enumerate(keys))
    return Table(name, columns, ("id",), links)


def test_chains_go_up_from_every_table_and_pass_none_twice() -> None:
    item = _table("item", "order", "product")
    schema = Schema("s", (_table("user"), _table("order", "user"), _table("product"), item), "user")
    found = {" ".join(key.name for key in chain) for chain in chains(schema)}
    assert found == {"item.order order.user"}
    assert [(a.name, b.name) for a, b in junctions(schema)] == [("item.order", "item.product")]
    circle = Schema("c", (_table("a", "b", optional=True), _table("b", "a", optional=True)), "a")
    assert chains(circle) == ()


def test_random_linking_keeps_fanouts_and_breaks_the_joint_marginal() -> None:
    rng = np.random.default_rng(3)
    true = _database(rng)
    shuffled = true.with_shuffled_links(rng)
    assert (shuffled.fanout == true.fanout).all()
    assert sorted(shuffled.links) == sorted(true.links)
    assert (joint_tvd(true, true) == 0).all()
    distances = joint_tvd(true, shuffled)
    assert distances.shape == (2, 2)
    assert distances[0, 0] > 0.5  # the copied attribute
    assert distances[1, 1] < 0.2  # attributes that were independent anyway
    crossing = mean_distances(true.joined, shuffled.joined, true.sizes, crossing_subsets(2, 2, 2))
    assert crossing.tvd == pytest.approx(distances.mean())


def test_crossing_subsets_are_all_or_a_seeded_sample_of_those_with_both_sides() -> None:
    every = crossing_subsets(3, 4, 3)
    assert set(every.subsets) == {s for s in combinations(range(7), 3) if s[0] < 3 <= s[-1]}
    assert every.total == len(every.subsets)
    some = crossing_subsets(3, 4, 3, limit=9, seed=2)
    assert len(set(some.subsets)) == 9
    assert set(some.subsets) <= set(every.subsets)
    assert str(some) == "9 of 30 3-way marginals (seed 2)"
    assert crossing_subsets(0, 4, 2).subsets == ()


def _holds(codes: np.ndarray, predicate: Predicate) -> bool:
    return all(admitted[codes[column]] for column, admitted in predicate)


def _brute_force(linked: LinkedTables, query: CountingQuery) -> int:
    """Try every ordered choice of distinct children."""
    count = 0
    for number, parent in enumerate(linked.parent):
        children = linked.child[linked.links == number]
        found = any(
            all(_holds(child, p) for child, p in zip(chosen, query.children, strict=True))
            for chosen in permutations(children, len(query.children))
        )
        count += len(children) == query.fanout and found and _holds(parent, query.parent)
    return count


def test_counting_queries_agree_with_brute_force() -> None:
    rng = np.random.default_rng(1)
    linked = _database(rng, parents=60)
    queries = [
        query
        for children in (1, 2)
        for most in (1, 3)
        for query in counting_queries(
            linked, ((False, True), (False, True)), CountingShape(children, 2, 0.6, most), 15, rng
        )
    ]
    mixed = [queries[i] for i in rng.permutation(len(queries))]
    answers = answer_counting(linked, mixed)
    assert answers.tolist() == [_brute_force(linked, query) for query in mixed]
    assert (answers > 0).sum() > 10
    both = ((0, np.array([True, False])),)  # one child cannot stand for two
    linked = LinkedTables(np.zeros((2, 1), int), (1,), np.array([[0], [0], [0], [1]]), (2,), np.array([0, 0, 1, 1]))
    assert answer_counting(linked, [CountingQuery(2, (), (both, both))]).tolist() == [1]


def test_counting_errors_scale_to_the_size_of_the_source() -> None:
    rng = np.random.default_rng(4)
    true = _database(rng)
    rows = np.vstack([true.parent] * 2), (3, 4), np.vstack([true.child] * 2), (3, 5)
    twice = LinkedTables(*rows, np.r_[true.links, true.links + len(true.parent)])
    queries = counting_queries(true, ((False, False), (False, False)), CountingShape(max_fanout=4), 30, rng)
    assert counting_errors(true, twice, queries).max() == pytest.approx(0)
    assert counting_errors(true, true.with_shuffled_links(rng), queries).mean() > 0.05
    empty = LinkedTables(true.parent[:0], (3, 4), true.child[:0], (3, 5), true.links[:0])
    with pytest.raises(InternalError, match="at least one parent"):
        counting_errors(true, empty, queries)


def _values(seed: int, likeness: float) -> JoinValues:
    """Siblings and their parents share a part of their values; some values are NULL, some children have no parent."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=300)
    links = np.repeat(np.arange(300), rng.integers(0, 5, 300))
    child = 1000 + likeness * base[links] + (1 - likeness) * rng.normal(size=len(links))
    child[::17] = np.nan
    links[::23] = -1
    return {"p": base}, {"c": child}, links


@pytest.mark.parametrize("likeness", [0.0, 0.7])
def test_siblings_agree_with_the_self_join(likeness: float) -> None:
    _, children, links = _values(1, likeness)
    child = children["c"]
    pairs = [
        (child[i], child[j])
        for parent in range(300)
        for i, j in permutations(np.flatnonzero((links == parent) & ~np.isnan(child)), 2)
    ]
    found = sibling_pearson(links, child)
    assert found == pytest.approx(np.corrcoef(np.array(pairs).T)[0, 1], abs=1e-9)
    assert (found or 0) > 0.5 * likeness


def test_parents_and_children_agree_with_the_join() -> None:
    true, lost = _values(1, 0.7), _values(2, 0.0)
    (between,), (among,) = correlations(true, lost)
    parents, children, links = true
    kept = (links >= 0) & ~np.isnan(children["c"])
    expected = np.corrcoef(parents["p"][links[kept]], children["c"][kept])[0, 1]
    assert (between["columns"], among["columns"]) == (("p", "c"), ("c", "c"))
    assert between["source"] == pytest.approx(expected)
    assert abs(between["synthetic"]) < 0.15
    assert between["source"] > 0.5


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0], [np.nan, 1.0]])
def test_a_coefficient_that_is_not_defined_is_none(values: list[float]) -> None:
    x = np.array(values)
    assert pearson(x, x) is None
    assert sibling_pearson(np.zeros(len(x), np.int64), x) is None


def test_agreement_of_siblings_is_that_of_all_pairs_of_a_parent() -> None:
    rng = np.random.default_rng(0)
    links, codes = rng.integers(-1, 20, 200), rng.integers(0, 3, 200)
    shares = []
    for row in np.flatnonzero(links >= 0):
        others = np.flatnonzero((links == links[row]) & (np.arange(200) != row))
        if len(others):
            shares.append((codes[others] == codes[row]).mean())
    assert sibling_agreement(links, codes) == pytest.approx(np.mean(shares))
    assert sibling_agreement(np.arange(5), np.zeros(5, dtype=np.int64)) is None
    assert sibling_agreement(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)) is None
