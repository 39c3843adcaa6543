"""The noise that a plan announces in rows is the noise that a profile gets."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.measure.expected_noise import expected_noise
from privbench_core.measure.profile import profile_table
from privbench_core.privacy.budget import Budget
from privbench_core.schema.columns import Column, ColumnType, Values
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import door_of, integer, rows_of


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("columns", [1, 4])
def test_a_cell_has_the_noise_that_is_announced(delta: float, columns: int) -> None:
    names = [f"x{i}" for i in range(columns)]
    attributes = tuple(Column(name, ColumnType.CATEGORY, Values(("a", "b", "c"))) for name in names)
    table = Table("t", (integer("id"), *attributes), ("id",))
    schema, price = Schema("s", (table,), "t"), Budget(0.5, delta).total()
    values = {name: pa.array(["a", "b", "c"] * 4000) for name in names}
    rows = rows_of(table, id=np.arange(12_000), **values)
    profile = profile_table(door_of(schema, {"t": rows}, price), table, 1, price)[1]
    announced = expected_noise(schema, "t", price)
    assert announced.most == 1
    measured = float(np.mean([profile.one_way.sigmas[name].min() for name in names]))
    assert announced.cell == pytest.approx(2 * measured, rel=0.1)
    assert announced.rows <= announced.cell


def test_a_unit_of_many_rows_and_columns_to_learn_are_announced() -> None:
    one = Table("t", (integer("id"), Column("x", ColumnType.CATEGORY, Values(("a", "b")))), ("id",))
    two = Table("t", (*one.columns, Column("y", ColumnType.CATEGORY, Values(("a", "b")))), ("id",))
    price = Budget(1.0, 1e-9).total()
    cells = [expected_noise(Schema("s", (table,), "t"), "t", price).cell for table in (one, two)]
    assert cells[1] / cells[0] == pytest.approx(math.sqrt(2))
