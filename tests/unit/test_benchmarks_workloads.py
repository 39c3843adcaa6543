"""The floor that stands beside bundles: the source with its values drawn again within released codes."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from benchmarks.workloads import within_codes
from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.models.row_count import RowCount
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import integer, rows_of

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
