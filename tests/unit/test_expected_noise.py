"""The noise that a plan announces in rows is the noise that a profile gets."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.commands.plan import tell_noise
from privbench_core.measure.expected_noise import expected_noise
from privbench_core.measure.profile import profile_table
from privbench_core.models.row_count import RowCount
from privbench_core.privacy.budget import Budget
from privbench_core.schema.columns import Column, ColumnType, Values
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.privbench import PrivBench
from tests.helpers.planted import door_of, integer, owner_key, rows_of


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
    assert announced.rows == pytest.approx(2 * profile.one_way.total_sigma, rel=0.1)


def test_a_unit_of_many_rows_and_columns_to_learn_are_announced() -> None:
    one = Table("t", (integer("id"), Column("x", ColumnType.CATEGORY, Values(("a", "b")))), ("id",))
    two = Table("t", (*one.columns, Column("y", ColumnType.CATEGORY, Values(("a", "b")))), ("id",))
    price = Budget(1.0, 1e-9).total()
    cells = [expected_noise(Schema("s", (table,), "t"), "t", price).cell for table in (one, two)]
    assert cells[1] / cells[0] == pytest.approx(math.sqrt(2))


def test_a_cell_has_the_noise_of_the_rows_that_count(capsys: pytest.CaptureFixture[str]) -> None:
    unit = Table("u", (integer("id"), Column("x", ColumnType.CATEGORY, Values(("a", "b")))), ("id",))
    columns = (integer("id"), integer("u_id"), Column("x", ColumnType.CATEGORY, Values(("a", "b"))))
    schema = Schema("s", (unit, Table("t", columns, ("id",), (owner_key("t", "u_id", "u", 8),))), "u")
    plan = PrivBench().plan(schema, Budget(0.01, 1e-9), {})
    noise = expected_noise(schema, "t", plan.step(("profile", "t")).price)
    for counted in (1, 4):
        size = replace(RowCount(1e6, 1.0), rows_per_unit=counted)
        tell_noise(cast(Spec, SimpleNamespace(schema=schema)), [plan], {"t": size})
        assert f"{noise.cell * counted:,.0f}" in capsys.readouterr().out
