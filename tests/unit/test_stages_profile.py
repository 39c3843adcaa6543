from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import UnsupportedBudgetError
from privbench_core.measure.profile import profile_table
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Values
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.privbench import PrivBench
from privbench_core.synthesizers.steps.profile import profile_step
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import PLENTY, door_of, draw_exactly, integer, owner_key, planted_pair, rows_of


def profiled(column: Column, values: pa.Array, price: Price = PLENTY) -> Profile:
    table = Table("t", (integer("id"), column), ("id",))
    rows = rows_of(table, id=np.arange(len(values)), **{column.name: values})
    return profile_table(door_of(Schema("s", (table,), "t"), {"t": rows}, price), table, 1, price)[1]


@pytest.mark.parametrize(
    ("column", "values", "low", "high"),
    [
        (Column("x", ColumnType.INTEGER, Learn()), [5, 7, 100, 1000], 4, 1023),
        (Column("x", ColumnType.INTEGER, Learn()), [-9, 0, 3], -15, 3),
        (Column("x", ColumnType.INTEGER, Learn()), [0, 0, 0], 0, 0),
        (Column("x", ColumnType.FLOAT, Learn()), [0.3, 1.5], 0.25, 2.0),
        (Column("x", ColumnType.DATE, Learn()), [dt.date(1999, 5, 1), dt.date(2003, 1, 1)], "1999-01-01", "2003-12-31"),
    ],
)
def test_a_learned_range_covers_the_values_and_ends_on_the_public_grid(column, values, low, high):
    codec = profiled(column, pa.array(values * 50)).discretizers["x"].codec
    assert codec.edges(0)[0] == low  # type: ignore[attr-defined]
    last = codec.edges(codec.ordered - 1)[1]  # type: ignore[attr-defined]
    assert last == (pytest.approx(high) if isinstance(high, float) else high)


def test_a_learned_list_holds_the_values_most_common_first():
    values = pa.array(["b"] * 60 + ["a"] * 30 + ["c"] * 10)
    price = PLENTY.with_delta(1e-9)
    profile = profiled(Column("x", ColumnType.CATEGORY, Learn()), values, price)
    assert profile.discretizers["x"].codec.labels()[:3] == ["b", "a", "c"]
    with pytest.raises(UnsupportedBudgetError, match=r"t\.x: learning a list of values needs delta > 0"):
        profiled(Column("x", ColumnType.CATEGORY, Learn()), values, PLENTY)


def test_a_declared_column_has_the_codec_of_its_declaration_and_exact_counts_without_noise():
    profile = profiled(Column("x", ColumnType.CATEGORY, Values(("a", "b", "c"))), pa.array(["a"] * 7 + ["c"] * 3))
    discretizer = profile.discretizers["x"]
    codes = discretizer.encode(pa.chunked_array([["a", "b", "c"]]))
    counts = profile.one_way.counts["x"]
    assert (counts[codes[0]], counts[codes[2]]) == (7.0, 3.0)
    assert profile.total == 10.0
    back = Profile.from_dict(Artifact.from_bytes(Artifact({"p": profile.to_dict()}).to_bytes()).data["p"])
    assert back.discretizers == profile.discretizers
    assert back.total == profile.total


def test_the_counts_of_an_owned_table_are_of_rows():
    schema, tables = planted_pair(500)
    session = door_of(schema, tables)
    _, profile = profile_table(session, schema.table("child"), schema.max_rows_per_unit("child"), PLENTY)
    assert profile.size.in_full
    assert profile.size.rows == pytest.approx(tables["child"].num_rows, rel=1e-3)
    assert profile.total == pytest.approx(tables["child"].num_rows, rel=1e-3)
    back = Profile.from_dict(Artifact.from_bytes(Artifact({"p": profile.to_dict()}).to_bytes()).data["p"])
    assert back.size.classes == profile.size.classes
    assert back.size.rows_of.tolist() == profile.size.rows_of.tolist()


def test_a_profile_spends_its_price_whatever_is_learned():
    table = Table(
        "t", (integer("id"), Column("x", ColumnType.INTEGER, Learn()), Column("y", ColumnType.BOOLEAN)), ("id",)
    )
    rows = rows_of(table, id=np.arange(20), x=np.arange(20), y=[True] * 20)
    for measure in Measure:
        price = Price(measure, 1.0)
        session = door_of(Schema("s", (table,), "t"), {"t": rows}, price)
        profile_table(session, table, 1, price)
        assert session._filter.spent.amount == pytest.approx(1.0)


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_learned_domains_work_at_any_noise(delta):
    columns = (
        integer("id"),
        Column("x", ColumnType.INTEGER, Learn(), nullable=True),
        Column("y", ColumnType.FLOAT, Learn()),
    )
    table = Table("t", columns, ("id",))
    rows = rows_of(table, id=np.arange(5), x=pa.array([1, None, 3, 4, 5]), y=[1.0] * 5)
    for seed in range(10):
        made = draw_exactly(
            Schema("s", (table,), "t"), {"t": rows}, noise=SeededNoise(seed), budget=Budget(0.05, delta), seed=seed
        )
        assert made["t"].table.column("y").null_count == 0


def parameters(schema: Schema, table: str) -> object:
    price = Price(Measure.PURE, 1.0)
    return dict(profile_step(schema, schema.table(table), price).parameters)


def test_every_bound_on_the_ownership_path_is_part_of_a_releases_identity():
    """A release bought under another τ of a table further up held other rows, at other weights."""

    def chain(bound: int) -> Schema:
        top = Table("top", (integer("id"),), ("id",))
        middle = Table("middle", (integer("id"), integer("up")), ("id",), (owner_key("middle", "up", "top", bound),))
        low = Table("low", (integer("id"), integer("up")), ("id",), (owner_key("low", "up", "middle", 2),))
        return Schema("chain", (top, middle, low), "top")

    assert parameters(chain(3), "low") == parameters(chain(3), "low")
    assert parameters(chain(3), "low") != parameters(chain(4), "low")
    assert parameters(chain(3), "top") == parameters(chain(4), "top")


def test_values_beyond_a_declared_domain_are_reported():
    table = Table("t", (integer("id"), Column("x", ColumnType.INTEGER, Range(0, 9))), ("id",))
    rows = rows_of(table, id=np.arange(200), x=np.where(np.arange(200) < 60, 99, 5))
    schema = Schema("s", (table,), "t")
    step = PrivBench().plan(schema, Budget(1e6), {}).step(("profile", "t"))

    class Context:
        @staticmethod
        def opened():
            return door_of(schema, {"t": rows}, step.price)

    summary = step.run(Context()).data["summary"]  # type: ignore[arg-type]
    assert next(v for k, v in summary.items() if "clamped" in k) == {"t.x": 60}
    assert sum(summary["bars"]["x"]["counts"]) == 200
