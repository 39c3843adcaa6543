"""Benchmarks: kept runs of peers, populations and workloads, baselines, and skewed references are what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.kept import KeptRuns, PeerRun
from benchmarks.measure import NotFinishedError
from benchmarks.one_unit import hidden, largest_shares
from benchmarks.operational_schema import Loss, Plan, lost_lines
from benchmarks.population import LARGEST, Population, california, households
from benchmarks.refinement import GivenRows, _place
from benchmarks.relations import Pair
from benchmarks.rivals import _given, _said, _tables
from benchmarks.rivals_schemas import small_databases
from benchmarks.tpch import refer_by_zipf
from benchmarks.workloads import within_codes
from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.marginals.one_way import OneWay
from privbench_core.marginals.sampler import Rows
from privbench_core.profiles.profile import Profile
from privbench_core.schema.tables import Schema, Table
from privbench_core.units.row_count import RowCount
from privbench_core.workload.statements import Workload
from tests.helpers.planted import integer, owner_key, rows_of


def test_a_run_is_found_again_for_the_same_rows_budget_and_seed_alone(tmp_path: Path) -> None:
    codes, path = np.arange(12).reshape(6, 2), tmp_path / "peers.json"
    kept = KeptRuns.of("small", codes, path=path)
    assert kept.get("mst", 0.2, 1e-5, 0) is None
    kept.keep("mst", 0.2, 1e-5, 0, PeerRun({"error": 0.25}, packages="dpmm 0.1.9"))
    kept.keep("aim", 0.2, 1e-5, 0, PeerRun(reached=120.0))
    again = KeptRuns.of("small", codes.astype(np.int32), path=path)
    assert again.get("mst", 0.2, 1e-5, 0) == PeerRun({"error": 0.25}, packages="dpmm 0.1.9")
    assert again.get("aim", 0.2, 1e-5, 0) == PeerRun(reached=120.0)
    for other in (("mst", 0.8, 1e-5, 0), ("mst", 0.2, 0.0, 0), ("mst", 0.2, 1e-5, 1), ("privbayes", 0.2, 1e-5, 0)):
        assert again.get(*other) is None
    assert KeptRuns.of("small", codes + 1, path=path).get("mst", 0.2, 1e-5, 0) is None
    assert KeptRuns.of("small", codes.reshape(2, 6), path=path).get("mst", 0.2, 1e-5, 0) is None
    assert PeerRun({"error": 0.1}).settles(1e9)
    assert PeerRun(reached=120.0).settles(120.0)
    assert not PeerRun(reached=120.0).settles(600.0)


def test_a_peer_is_tried_again_only_for_longer_and_where_it_is_installed(tmp_path: Path) -> None:
    kept, tried = KeptRuns.of("small", np.arange(4), path=tmp_path / "peers.json"), []

    def made() -> PeerRun:
        tried.append(1)
        if len(tried) < 3:
            raise NotFinishedError("slow")
        return PeerRun({"error": 0.5})

    run = (0.8, 1e-9, 0)
    assert kept.settled("aim", run, 10.0, None) is None
    assert [kept.settled("aim", run, 10.0, made) for _ in range(2)] == [PeerRun(reached=10.0)] * 2
    assert kept.settled("aim", run, 20.0, made) == PeerRun(reached=20.0)
    assert kept.settled("aim", run, 40.0, made) == kept.settled("aim", run, 80.0, made) == PeerRun({"error": 0.5})
    assert len(tried) == 3


def test_rivals_are_given_and_give_back_every_column_of_a_database() -> None:
    for small in small_databases():
        given, declared = _given(small.schema, small.tables)
        made = _tables(small.schema, given)
        assert {n: rows.to_pydict() for n, rows in made.items()} == {n: t.to_pydict() for n, t in small.tables.items()}
        assert all(f"{child}.{column}" in given for child, column, *_ in declared["keys"])


def test_a_refusal_is_the_first_paragraph_of_the_last_exception() -> None:
    said = "peer failed:\nValueError: first\n  at a line\nsdv.errors.InputError: too\n  deep.\n\nBuy more."
    assert _said(said) == "sdv.errors.InputError: too deep."


def test_places_count_equal_numbers_before():
    rows = pa.table({"user": [3, 1, 3, 3, 1, 2]})
    assert _place(rows, "user").tolist() == [0, 0, 1, 2, 1, 0]


def test_given_rows_are_drawn_whole_and_equally_often():
    given = GivenRows({"a": np.arange(5), "b": 10 - np.arange(5)}, {"a": 5, "b": 11})
    rows = Rows(12)
    given.draw(rows, np.random.default_rng(0))
    assert (rows.codes["a"] + rows.codes["b"] == 10).all()
    assert sorted(np.bincount(rows.codes["a"]).tolist()) == [2, 2, 2, 3, 3]
    assert rows.sizes == {"a": 5, "b": 11}


def test_references_by_zipfs_law_go_to_rows_that_are_there():
    parent = pa.table({"a": [1, 1, 2, 2], "b": [1, 2, 1, 2]})
    rows = pa.table({"x": np.zeros(2000, np.int64), "y": np.zeros(2000, np.int64)})
    made = refer_by_zipf(rows, ("x", "y"), parent, ("a", "b"), 1.0, np.random.default_rng(0))
    pairs, counts = np.unique(np.column_stack([made["x"], made["y"]]), axis=0, return_counts=True)
    assert len(pairs) == 4
    assert np.allclose(np.sort(counts)[::-1] / 2000, np.array([12, 6, 4, 3]) / 25, atol=0.04)


@pytest.fixture(scope="module")
def planted() -> Population:
    return households(4000)


@pytest.fixture(scope="module")
def pair(planted: Population, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair.of(planted.save(tmp_path_factory.mktemp("planted"), "planted"))


def _head(population: Population) -> np.ndarray:
    """The row of each person's head."""
    return np.searchsorted(population.home, population.home)


def test_members_take_after_the_head(planted: Population) -> None:
    person, head = planted.person, _head(planted)
    others = np.arange(len(head)) != head
    alike = (person["race"] == person["race"][head])[others].mean()
    assert alike == pytest.approx(0.92 + 0.08 / 5, abs=0.02)
    spouse = person["rel"] == 1
    assert (person["sex"] != person["sex"][head])[spouse].mean() == pytest.approx(0.96, abs=0.02)
    gap = (person["age"][head] - person["age"])[person["rel"] == 2]
    assert gap.max() <= 8
    assert gap.mean() > 4


def test_household_income_is_the_sum_of_the_persons(planted: Population) -> None:
    total = np.bincount(planted.home, planted.person["income"])
    np.testing.assert_array_equal(planted.household["hincome"], np.minimum(total // 2, 11))


def test_california_has_exactly_as_many_rows_as_asked_for_and_all_attributes() -> None:
    made = california(500, 1372)
    assert (len(made.household), len(made.person)) == (10, 23)
    assert (len(made.household["region"]), len(made.home)) == (500, 1372)
    assert np.bincount(made.home).max() <= LARGEST
    for name, values in {**made.household, **made.person}.items():
        assert values.min() >= 0, name
        assert values.max() < made.domains[name], name


def test_california_has_the_domains_of_the_paper() -> None:
    made = california(10, 27)
    of_household, of_person = (np.prod([float(made.domains[n]) for n in t]) for t in (made.household, made.person))
    assert of_household == pytest.approx(3.24e7, rel=0.005)
    assert of_person == pytest.approx(6.77e12, rel=0.005)


def test_a_population_is_determined_by_its_seed() -> None:
    first, again, other = (households(300, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.person["income"], again.person["income"])
    assert not np.array_equal(first.household["region"], other.household["region"])


def test_queries_admit_codes_of_the_declared_domain_alone(pair: Pair, planted: Population) -> None:
    names = pair.coded["person"].names
    for queries in pair.queries.values():
        for query in queries[:200]:
            for column, admitted in query.children[0]:
                assert len(admitted) == pair.coded["person"].sizes[column]
                assert not admitted[planted.domains[names[column]] :].any()
                assert admitted.any()


def test_random_links_keep_rows_and_sizes_of_groups(pair: Pair) -> None:
    true = pair.join.linked
    allocated = {name: join.linked for name, join in pair.join.with_shuffled_links(0).items()}
    np.testing.assert_array_equal(allocated["random link, sizes kept"].fanout, true.fanout)
    np.testing.assert_array_equal(np.sort(allocated["random link"].fanout), np.sort(true.fanout))
    assert not np.array_equal(allocated["random link"].fanout, true.fanout)


def test_the_source_has_no_error_and_a_random_link_has(pair: Pair) -> None:
    itself = pair.score_join(pair.join)
    assert max(itself.values()) == pytest.approx(0, abs=1e-12)
    linked = pair.score_join(pair.join.with_shuffled_links(0)["random link"])
    assert linked["counting error, c2 k1"] > 0.2
    assert linked["Pearson, siblings"] > 0.1
    assert linked["fanout TVD"] == 0


def test_a_saved_population_is_read_back(planted: Population, tmp_path: Path) -> None:
    spec = planted.save(tmp_path, "again")
    assert spec.delta == 1 / len(planted.home)
    assert {path.name for path in tmp_path.iterdir()} == {"again.yaml", "household.parquet", "person.parquet"}


OWNER = owner_key("item", "user_id", "user", 2000)
TABLE = Table("user", (integer("id"), integer("age", 0, 7), integer("score", 0, 7)), ("id",))


def test_values_stay_within_their_codes_and_rows_where_they_are() -> None:
    codec = codec_for(TABLE.column("age"), table="user")
    halves = Binning(tuple(int(cell >= 4) for cell in range(codec.size)), (1 / 4,) * codec.size, 2)
    coder = Discretizer(codec, halves)
    profile = Profile({"age": coder}, OneWay({"age": np.ones(2)}, {"age": np.ones(2)}), RowCount(800.0, 1.0))
    rng = np.random.default_rng(0)
    rows = {"user": rows_of(TABLE, id=np.arange(800), age=rng.integers(0, 8, 800), score=rng.integers(0, 8, 800))}
    made = within_codes(Schema("s", (TABLE,), "user"), rows, {"user": profile}, seed=1)["user"]
    assert made.schema == rows["user"].schema
    assert made.drop_columns(["age"]) == rows["user"].drop_columns(["age"])
    np.testing.assert_array_equal(coder.encode(made["age"]), coder.encode(rows["user"]["age"]))
    same = (made["age"].to_numpy() == rows["user"]["age"].to_numpy()).mean()
    assert 0.15 < same < 0.35  # one in four values of a code is the row's own
    assert set(pc.unique(made["age"]).to_pylist()) == set(range(8))


def test_what_one_unit_makes_up_of_a_query_bounds_how_well_it_can_be_answered() -> None:
    """A user has half of all items, and nearly all of one kind."""
    item = Table("item", (integer("id"), integer("user_id"), integer("kind", 0, 3)), ("id",), (OWNER,))
    owners = np.concatenate([np.zeros(1000, dtype=np.int64), np.arange(1, 801), np.arange(1, 201)])
    kinds = np.where(owners == 0, 1, 0)
    kinds[1000:1004] = 1
    rows = {
        "user": rows_of(TABLE, id=np.arange(801), age=np.zeros(801, dtype=int), score=np.zeros(801, dtype=int)),
        "item": rows_of(item, id=np.arange(2000), user_id=owners, kind=kinds),
    }
    schema = Schema("s", (TABLE, item), "user")
    join = 'SELECT COUNT(*) FROM "user" AS u, item AS i WHERE u.id = i.user_id'
    workload = Workload.of([join, f"{join} AND i.kind = 1", f"{join} AND i.kind = 3"])
    counted, shares = largest_shares(schema, rows, workload)
    assert counted.tolist() == [2000, 1004]
    np.testing.assert_allclose(shares, [0.5, 1000 / 1004])
    much, little = (hidden(schema, rows, workload, epsilon, 0.0) for epsilon in (1000.0, 0.5))
    assert float(much["Q-error, 95th"]) < 1.01
    assert float(little["Q-error, median"]) > 1.5


def test_lines_that_a_dump_lacks_are_counted_by_kind_whatever_their_order() -> None:
    table = (
        "-- Name: {0}; Type: TABLE; Schema: public; Owner: -\nCREATE TABLE public.{0} (\n    id integer,\n    {1}\n);\n"
    )
    view = "-- Name: v; Type: VIEW; Schema: billing; Owner: -\n--\nCREATE VIEW billing.v AS\n SELECT 1;\n"
    source = "SET x = 1;\n" + table.format("a", "name text") + table.format("b", "at date") + view
    found = lost_lines(source, table.format("b", "at date") + table.format("a", "name varchar"))
    assert found == [Loss("TABLE", 6, 1, ["a"]), Loss("VIEW", 2, 2, ["billing.v"])]


def test_plans_are_alike_if_their_nodes_are_whatever_they_cost() -> None:
    scan = ("Seq Scan", None, [])
    plan = Plan(("Hash Join", "Inner", [scan, ("Hash", None, [scan])]), 2.0, 9.5)
    assert str(plan) == "Hash Join Inner (Seq Scan, Hash (Seq Scan)) [2 rows, cost 9.50]"
    assert plan.is_like(Plan(plan.nodes, 3.0, 1.0))
    assert not plan.is_like(Plan(("Hash Join", "Right Anti", [scan, ("Hash", None, [scan])])))
    assert not Plan(None).is_like(Plan(None))
