"""The noise that a plan announces in rows is the noise that a profile gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.commands.plan import report_noise
from privbench_core.pipeline.noise import noise_of
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.noise import Sensitivity, noise_std
from privbench_core.profiles.expected_noise import ExpectedNoise, effective_units, expected_noise, link_noise
from privbench_core.profiles.profile import Profile
from privbench_core.schema.columns import Column, ColumnType, Values
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.privbench import PrivBench
from privbench_core.synthesizers.steps.profile import released_units
from privbench_core.units.measure_row_count import forecast_row_count
from privbench_core.units.row_count import RowCount
from tests.helpers.heavy_tails import optional_keys
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import door_of, integer, learn_counted, owner_key, place_of, rows_of


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("columns", [1, 4])
def test_a_cell_has_the_noise_that_is_announced(delta: float, columns: int) -> None:
    names = [f"x{i}" for i in range(columns)]
    attributes = tuple(Column(name, ColumnType.CATEGORY, Values(("a", "b", "c"))) for name in names)
    table = Table("t", (integer("id"), *attributes), ("id",))
    schema, price = Schema("s", (table,), "t"), Budget(0.5, delta).total()
    values = {name: pa.array(["a", "b", "c"] * 4000) for name in names}
    rows = rows_of(table, id=np.arange(12_000), **values)
    profile = learn_counted(door_of(schema, {"t": rows}, price), table, 1, price)[1]
    announced = expected_noise(schema, "t", price)
    assert announced.most == 1
    measured = float(np.mean([profile.one_way.sigmas[name].min() for name in names]))
    assert announced.cell == pytest.approx(2 * measured, rel=0.1)
    assert announced.rows == pytest.approx(2 * profile.one_way.total_sigma, rel=0.1)


def test_a_cell_has_the_noise_of_the_rows_that_count(capsys: pytest.CaptureFixture[str]) -> None:
    unit = Table("u", (integer("id"), Column("x", ColumnType.CATEGORY, Values(("a", "b")))), ("id",))
    columns = (integer("id"), integer("u_id"), Column("x", ColumnType.CATEGORY, Values(("a", "b"))))
    schema = Schema("s", (unit, Table("t", columns, ("id",), (owner_key("t", "u_id", "u", 8),))), "u")
    plan = PrivBench().plan(schema, Budget(0.01, 1e-9), {})
    noise = expected_noise(schema, "t", cast(Price, plan.learning_price("t")))
    for counted in (1, 4):
        size = replace(RowCount(1e6, 1.0), rows_per_unit=counted)
        report_noise(cast(Spec, SimpleNamespace(schema=schema)), [plan], {"t": size})
        assert f"{noise.cell * counted:,.0f}" in capsys.readouterr().out


def test_a_table_shows_what_stands_out_of_the_noise_to_a_quarter() -> None:
    """± is two standard deviations, three of which are to be below a quarter of the rows, or of a column's."""
    noise = ExpectedNoise(rows=20.0, cell=40.0, most=50)
    shown = [str(noise.expected(units)) for units in (119, 121, 241, 1358)]
    assert shown == ["all noise", "number of rows only", "single columns", "pairs and joins"]
    assert effective_units(1e9, 1000) == pytest.approx(500)
    size = RowCount(400.0, 1.0, 8, (1, 8), np.array([200.0, 200.0]), np.array([200.0, 25.0]), 8)
    assert size.effective_units == pytest.approx(400**2 / (200 + 25 * 64))
    assert RowCount(400.0, 1.0).effective_units == 400


def test_a_key_that_noise_hides_is_said_to_be_all_noise_before_and_after(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two thousand votes, of which 600 may change with a unit: their voters are noise at ε = 1, and known at 1e6."""
    schema, tables = optional_keys(users=400)
    place = place_of(tmp_path / "place", schema, tables, delta=1e-9)
    hidden = "vote.voter_id: links to user are all noise at this ε (about "
    results = {}
    for epsilon in (1.0, 1e6):
        results[epsilon] = result = place.run_with(SeededNoise(0), epsilon)
        told = [hidden in text for text in ("\n".join(result.warnings), (place.out / "README.md").read_text("utf-8"))]
        assert told == [epsilon == 1.0] * 2
        sizes = {
            table.name: Profile.from_dict(result.releases["profile", table.name].artifact.data["profile"]).size
            for table in schema.tables
        }
        capsys.readouterr()
        report_noise(place.spec, [result.plan], sizes)
        said = capsys.readouterr().out
        assert "Noise along the other foreign keys" in said
        assert (hidden in said) == (epsilon == 1.0)
    small = results[1.0]
    sizes = {"vote": forecast_row_count(released_units(result.releases["count", "vote"].artifact), Measure.GDP)}
    steps = [small.plan.step(("fanout", name)) for name in ("vote.voter_id", "vote.post_id")]
    found = noise_of(schema, small.plan, steps, sizes)
    assert {key: noise.subject for key, noise in found.items()} == {steps[0].key: "links along vote.voter_id"}


def test_the_noise_of_a_key_follows_its_bound_and_what_is_known_of_rows() -> None:
    schema, _ = optional_keys(users=10)
    voter = schema.table("vote").foreign_keys[1]
    price = Budget(1.0, 1e-9).total()
    unknown = link_noise(schema, voter, price)
    assert not unknown.all_noise
    assert unknown.links == pytest.approx(2 * noise_std(Sensitivity(1201, 1201), price))
    large, little = (link_noise(schema, voter, price, RowCount(rows, 1.0)) for rows in (1e7, 1e3))
    assert (large.all_noise, little.all_noise) == (False, True)
