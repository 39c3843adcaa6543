"""What stands beside bundles: the source, drawn again within released codes, and what one unit makes up of answers."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from benchmarks.one_unit import hidden, largest_shares
from benchmarks.workloads import within_codes
from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.marginals.one_way import OneWay
from privbench_core.profiles.profile import Profile
from privbench_core.schema.tables import Schema, Table
from privbench_core.units.row_count import RowCount
from privbench_core.workload.statements import Workload
from tests.helpers.planted import integer, owner_key, rows_of

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
