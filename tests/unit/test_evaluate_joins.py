"""Links, joint marginals, fanout and counting queries against brute force on small databases."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import InternalError
from privbench_core.evaluation.counting import (
    CountingQuery,
    CountingShape,
    Predicate,
    answer_counting,
    counting_errors,
    counting_queries,
)
from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.joins import (
    LinkedTables,
    chains,
    cross_distances,
    fanout_wasserstein,
    junctions,
    link_junction,
    link_tables,
)
from privbench_core.evaluation.marginals import codes_tvd, crossing_subsets
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.validate.references import NO_PARENT, parent_rows
from tests.helpers.marginals import marginal_distances
from tests.helpers.row_figures import joint_tvd

KEY = ForeignKey("person", ("household_id",), "household", ("id",), max_children=9, owner=True)


def _database(rng: np.random.Generator, parents: int = 300) -> LinkedTables:
    """Children copy their parent's first attribute, so linking matters."""
    parent = rng.integers(0, [3, 4], (parents, 2))
    links = np.repeat(np.arange(parents), rng.integers(0, 5, parents))
    child = np.stack([parent[links, 0], rng.integers(0, 5, len(links))], axis=1)
    return LinkedTables(parent, (3, 4), child, (3, 5), links)


def test_parent_rows_of_simple_keys() -> None:
    parent = pa.table({"id": [7, 3, 5]})
    child = pa.table({"household_id": pa.array([5, 7, None, 9, 7], pa.int32())})
    assert parent_rows(parent, child, KEY).tolist() == [2, 0, NO_PARENT, NO_PARENT, 0]


@pytest.mark.parametrize("first", [0, 5, 2**63 - 7])
def test_parents_numbered_without_a_gap_are_found_as_others_are(first: int):
    least, other = -(2**63), 2**62
    known = pa.table({"id": pa.array(range(first, first + 7), pa.int64())})
    wanted = pa.table({"household_id": pa.array([first, first + 6, least, other, first + 3, first - 1], pa.int64())})
    shuffled = known.take(pa.array([3, 1, 0, 2, 4, 5, 6]))
    places = parent_rows(shuffled, wanted, KEY)
    expected = [int(shuffled["id"][place].as_py()) - first if place >= 0 else NO_PARENT for place in places.tolist()]
    assert parent_rows(known, wanted, KEY).tolist() == expected == [0, 6, -1, -1, 3, -1]


def test_parent_rows_of_compound_keys() -> None:
    key = ForeignKey("c", ("x", "y"), "p", ("a", "b"))
    parent = pa.table({"a": ["u", "u", "v"], "b": [1, 2, 1]})
    child = pa.table({"x": ["v", "u", "v", None, "u"], "y": [1, 2, 2, 1, None]})
    assert parent_rows(parent, child, key).tolist() == [2, 1, NO_PARENT, NO_PARENT, NO_PARENT]


def test_parent_rows_of_empty_tables() -> None:
    parent, child = pa.table({"id": pa.array([], pa.int64())}), pa.table({"household_id": pa.array([1], pa.int64())})
    assert parent_rows(parent, child, KEY).tolist() == [NO_PARENT]
    assert parent_rows(parent, child.slice(0, 0), KEY).tolist() == []


def test_link_tables_puts_codes_and_links_together() -> None:
    tables = {"household": pa.table({"id": [1, 2]}), "person": pa.table({"household_id": [2, 2, 1]})}
    coded = {
        "household": EncodedTable(("h",), np.array([[0], [1]]), (2,), (True,)),
        "person": EncodedTable(("p",), np.array([[0], [1], [2]]), (3,), (False,)),
    }
    linked = link_tables((KEY,), tables, coded)
    assert linked.links.tolist() == [1, 1, 0]
    assert linked.fanout.tolist() == [1, 2]
    assert linked.child_sizes == (3,)


def test_random_linking_keeps_fanouts_and_breaks_the_joint_marginal() -> None:
    rng = np.random.default_rng(3)
    true = _database(rng)
    shuffled = true.with_shuffled_links(rng)
    assert (shuffled.fanout == true.fanout).all()
    assert (joint_tvd(true, true) == 0).all()
    distances = joint_tvd(true, shuffled)
    assert distances.shape == (2, 2)
    assert distances[0, 0] > 0.5  # the copied attribute
    assert distances[1, 1] < 0.2  # attributes that were independent anyway
    assert sorted(shuffled.links) == sorted(true.links)


def test_joint_tvd_leaves_out_children_without_a_parent() -> None:
    true = LinkedTables(np.array([[0], [1]]), (2,), np.array([[0], [1], [1]]), (2,), np.array([0, 1, NO_PARENT]))
    kept = LinkedTables(true.parent, (2,), true.child[:2], (2,), true.links[:2])
    assert joint_tvd(true, kept).tolist() == [[0.0]]


def test_fanout_distance_in_children() -> None:
    assert fanout_wasserstein(np.array([0, 2, 2, 4]), np.array([1, 3])) == pytest.approx(1.0)
    assert fanout_wasserstein(np.array([1, 1]), np.array([3])) == pytest.approx(2.0)
    assert fanout_wasserstein(np.array([0, 2]), np.array([2, 0, 0, 2])) == 0
    assert codes_tvd(np.array([0, 2]), np.array([2, 0, 0, 2])) == 0
    assert codes_tvd(np.array([0, 1]), np.array([1, 1])) == pytest.approx(0.5)


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


@pytest.mark.parametrize("children", [1, 2])
@pytest.mark.parametrize("max_fanout", [1, 3])
def test_counting_queries_agree_with_brute_force(children: int, max_fanout: int) -> None:
    rng = np.random.default_rng(children)
    linked = _database(rng, parents=60)
    shape = CountingShape(children=children, attributes=2, selectivity=0.6, max_fanout=max_fanout)
    queries = counting_queries(linked, ((False, True), (False, True)), shape, 15, rng)
    answers = answer_counting(linked, queries)
    assert answers.tolist() == [_brute_force(linked, query) for query in queries]
    assert answers.sum() > 0 or (children, max_fanout) == (2, 1)


def test_one_child_cannot_stand_for_two() -> None:
    both = ((0, np.array([True, False])),)
    linked = LinkedTables(np.zeros((2, 1), int), (1,), np.array([[0], [0], [0], [1]]), (2,), np.array([0, 0, 1, 1]))
    assert answer_counting(linked, [CountingQuery(2, (), (both, both))]).tolist() == [1]


def test_predicates_admit_equal_shares_of_the_domain() -> None:
    linked = LinkedTables(np.zeros((0, 1), int), (100,), np.zeros((0, 1), int), (100,), np.zeros(0, np.int64))
    shape = CountingShape(selectivity=0.25)
    queries = counting_queries(linked, ((True,), (False,)), shape, 20, np.random.default_rng(0))
    for query in queries:
        (_, run), (_, scattered) = query.parent[0], query.children[0][0]
        assert run.sum() == scattered.sum() == 50
        assert np.diff(np.flatnonzero(run)).max() == 1
    assert any(np.diff(np.flatnonzero(query.children[0][0][1])).max() > 1 for query in queries)


def test_counting_errors_scale_to_the_size_of_the_source() -> None:
    rng = np.random.default_rng(4)
    true = _database(rng)
    parents = len(true.parent)
    twice = LinkedTables(
        np.vstack([true.parent] * 2),
        (3, 4),
        np.vstack([true.child] * 2),
        (3, 5),
        np.r_[true.links, true.links + parents],
    )
    queries = counting_queries(true, ((False, False), (False, False)), CountingShape(max_fanout=4), 30, rng)
    assert counting_errors(true, twice, queries).max() == pytest.approx(0)
    assert counting_errors(true, true.with_shuffled_links(rng), queries).mean() > 0.05
    empty = LinkedTables(true.parent[:0], (3, 4), true.child[:0], (3, 5), true.links[:0])
    with pytest.raises(InternalError, match="at least one parent"):
        counting_errors(true, empty, queries)


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


def test_a_chain_links_grandchildren_to_grandparents() -> None:
    tables = {
        "user": pa.table({"id": [7, 8], "x": [0, 1]}),
        "order": pa.table({"id": [1, 2, 3], "user": [8, 7, None], "x": [0, 0, 0]}),
        "item": pa.table({"id": [1, 2, 3, 4], "order": [2, 1, 3, None], "x": [0, 1, 2, 3]}),
    }
    coded = {name: EncodedTable(("x",), rows["x"].to_numpy()[:, None], (4,), (True,)) for name, rows in tables.items()}
    chain = (ForeignKey("item", ("order",), "order", ("id",)), ForeignKey("order", ("user",), "user", ("id",)))
    linked = link_tables(chain, tables, coded)
    assert linked.links.tolist() == [0, 1, NO_PARENT, NO_PARENT]
    assert linked.joined.tolist() == [[0, 0], [1, 1]]


def test_parents_meet_in_the_rows_that_have_both() -> None:
    tables = {
        "a": pa.table({"id": [1, 2], "x": [0, 1]}),
        "b": pa.table({"id": [5, 6], "x": [2, 3]}),
        "ab": pa.table({"a": [1, 2, 2, None], "b": [6, 5, None, 5]}),
    }
    coded = {name: EncodedTable(("x",), tables[name]["x"].to_numpy()[:, None], (4,), (True,)) for name in "ab"}
    keys = ForeignKey("ab", ("a",), "a", ("id",)), ForeignKey("ab", ("b",), "b", ("id",))
    assert link_junction(*keys, tables, coded).joined.tolist() == [[0, 3], [1, 2]]


def test_cross_marginals_take_columns_of_both_tables() -> None:
    rng = np.random.default_rng(5)
    true = _database(rng)
    for order in (2, 3):
        subsets = crossing_subsets(2, 2, order)
        sizes = true.parent_sizes + true.child_sizes
        shuffled = true.with_shuffled_links(rng)
        each = [marginal_distances(true.joined, shuffled.joined, s, sizes).tvd for s in subsets.subsets]
        assert cross_distances(true, shuffled, subsets).tvd == pytest.approx(np.mean(each))
    assert cross_distances(true, shuffled, crossing_subsets(2, 2, 2)).tvd == pytest.approx(
        joint_tvd(true, shuffled).mean()
    )


def test_crossing_subsets_are_all_or_a_seeded_sample_of_those_with_both_sides() -> None:
    every = crossing_subsets(3, 4, 3)
    assert set(every.subsets) == {s for s in combinations(range(7), 3) if s[0] < 3 <= s[-1]}
    assert every.total == len(every.subsets)
    some = crossing_subsets(3, 4, 3, limit=9, seed=2)
    assert len(set(some.subsets)) == 9
    assert set(some.subsets) <= set(every.subsets)
    assert str(some) == "9 of 30 3-way marginals (seed 2)"
    assert crossing_subsets(0, 4, 2).subsets == ()


def test_a_batch_of_queries_of_many_kinds_is_answered_as_one_by_one() -> None:
    rng = np.random.default_rng(8)
    linked = _database(rng, parents=200)
    queries = [
        query
        for children in (1, 2)
        for most in (2, 4)
        for query in counting_queries(
            linked, ((False, True), (False, True)), CountingShape(children, 2, 0.5, most), 40, rng
        )
    ]
    mixed = [queries[i] for i in rng.permutation(len(queries))]
    assert answer_counting(linked, mixed).tolist() == [int(answer_counting(linked, [q])[0]) for q in mixed]
