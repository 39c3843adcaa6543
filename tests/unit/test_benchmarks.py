"""Benchmarks: runs of peers are kept, and what is compared with is at the distance that it should be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from benchmarks.kept import KeptRuns, PeerRun
from benchmarks.measure import NotFinishedError
from benchmarks.one_unit import hidden, largest_shares
from benchmarks.operational_schema import Plan
from benchmarks.population import Population, households
from benchmarks.relations import Pair
from benchmarks.workloads import within_codes
from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.marginals.one_way import OneWay
from privbench_core.profiles.profile import Profile
from privbench_core.schema.tables import Schema, Table
from privbench_core.units.row_count import RowCount
from privbench_core.workload import Workload
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


@pytest.fixture(scope="module")
def planted() -> Population:
    return households(4000)


@pytest.fixture(scope="module")
def pair(planted: Population, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair.of(planted.save(tmp_path_factory.mktemp("planted"), "planted"))


def test_the_source_has_no_error_and_a_random_link_has(pair: Pair) -> None:
    itself = pair.score_join(pair.join)
    assert max(itself.values()) == pytest.approx(0, abs=1e-12)
    linked = pair.score_join(pair.join.with_shuffled_links(0)["random link"])
    assert linked["counting error, c2 k1"] > 0.2
    assert linked["Pearson, siblings"] > 0.1
    assert linked["fanout TVD"] == 0


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


def test_plans_are_alike_if_their_nodes_are_whatever_they_cost() -> None:
    scan = ("Seq Scan", None, [])
    plan = Plan(("Hash Join", "Inner", [scan, ("Hash", None, [scan])]), 2.0, 9.5)
    assert str(plan) == "Hash Join Inner (Seq Scan, Hash (Seq Scan)) [2 rows, cost 9.50]"
    assert plan.is_like(Plan(plan.nodes, 3.0, 1.0))
    assert not plan.is_like(Plan(("Hash Join", "Right Anti", [scan, ("Hash", None, [scan])])))
    assert not Plan(None).is_like(Plan(None))
