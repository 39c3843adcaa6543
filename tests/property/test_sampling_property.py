"""Whatever small database comes, at whatever budget: the sample keeps every promise of its schema."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from privbench_core.privacy.budget import Budget
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.integrity import check_integrity, failures
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import draw_exactly, integer, owner_key

_KINDS: dict[str, tuple[Column, list[Any]]] = {
    "integer": (Column("", ColumnType.INTEGER, Range(-5, 300)), [-5, 0, 7, 300, 301, -(2**63), 2**63 - 1]),
    "wide": (Column("", ColumnType.INTEGER, Range(0, 2**60, cells=7)), [0, 1, 2**59, 2**60]),
    "listed": (Column("", ColumnType.INTEGER, Values((1, 5, 10))), [1, 5, 10, 11]),
    "learned": (Column("", ColumnType.INTEGER, Learn()), [-3, 0, 1000]),
    "decimal": (
        Column("", ColumnType.DECIMAL, Range("-1.50", "99.99"), precision=8, scale=2),
        [Decimal("-1.50"), Decimal("0.01"), Decimal("123456.78")],
    ),
    "float": (Column("", ColumnType.FLOAT, Range(-1.0, 1.0)), [-1.0, 0.0, 0.3, float("inf"), -1e308]),
    "learned float": (Column("", ColumnType.FLOAT, Learn()), [1e-9, 2.5, -1e12, float("-inf")]),
    "boolean": (Column("", ColumnType.BOOLEAN), [True, False]),
    "date": (
        Column("", ColumnType.DATE, Range("1990-01-01", "2020-12-31")),
        [dt.date(1990, 1, 1), dt.date(2020, 12, 31), dt.date(9999, 12, 31)],
    ),
    "timestamp": (
        Column("", ColumnType.TIMESTAMP, Range("2020-01-01T00:00:00", "2020-01-02T00:00:00")),
        [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 12, 0, 0, 1), dt.datetime(1, 1, 1)],
    ),
    "learned time": (Column("", ColumnType.TIMESTAMP, Learn()), [dt.datetime(1999, 5, 1), dt.datetime(2030, 1, 1)]),
    "category": (Column("", ColumnType.CATEGORY, Values(("a", "b", "ü"))), ["a", "b", "ü", "not listed", ""]),
    "text": (Column("", ColumnType.TEXT, max_length=10), ["", "word", "a text longer than declared"]),
}


@st.composite
def tables(draw: st.DrawFn, name: str, keys: tuple[Column, ...]) -> tuple[Table, list[list[Any]]]:
    """A table with up to four attributes, and for each a pool of values to take rows from."""
    kinds = draw(st.lists(st.sampled_from(sorted(_KINDS)), max_size=4))
    columns, pools = [], []
    for number, kind in enumerate(kinds):
        pattern, values = _KINDS[kind]
        nullable = draw(st.booleans())
        columns.append(
            Column(
                f"{name}_{number}",
                pattern.type,
                pattern.domain,
                nullable,
                pattern.precision,
                pattern.scale,
                pattern.max_length,
            )
        )
        some = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
        pools.append(some + [None] * (2 if nullable else 0))
    return Table(name, (integer("id"), *keys, *columns), ("id",)), pools


def filled(table: Table, pools: list[list[Any]], keys: dict[str, list[Any]], rng: np.random.Generator) -> pa.Table:
    n = len(next(iter(keys.values())))
    columns = dict(keys)
    for column, pool in zip(table.attributes, pools, strict=True):
        columns[column.name] = [pool[i] for i in rng.integers(0, len(pool), n)]
    arrays = [pa.array(columns[column.name], column.arrow_type) for column in table.columns]
    return pa.table(arrays, names=table.arrow_schema.names)


@st.composite
def databases(draw: st.DrawFn) -> tuple[Schema, dict[str, pa.Table]]:
    """A unit table, children of it, and a public table that the children may refer to; any of them may be tiny."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    units, bound, places = draw(st.integers(0, 30)), draw(st.integers(1, 20)), draw(st.integers(1, 5))
    public = Table("place", (integer("id"),), ("id",), public=True)
    unit, unit_pools = draw(tables("unit", ()))
    optional = draw(st.booleans())
    child, child_pools = draw(tables("child", (integer("unit_id"), integer("place_id", nullable=optional))))
    reference = ForeignKey("child", ("place_id",), "place", ("id",), optional=optional)
    keys = (owner_key("child", "unit_id", "unit", bound), reference)
    child = Table("child", child.columns, ("id",), keys)
    home = np.repeat(np.arange(units), rng.integers(0, 2 * bound, units))
    at: list[Any] = rng.integers(0, places, len(home)).tolist()
    if optional:
        at = [None if rng.random() < 0.3 else place for place in at]
    rows = {
        "place": pa.table({"id": pa.array(np.arange(places), pa.int64())}),
        "unit": filled(unit, unit_pools, {"id": list(range(units))}, rng),
        "child": filled(
            child, child_pools, {"id": list(range(len(home))), "unit_id": home.tolist(), "place_id": at}, rng
        ),
    }
    return Schema("random", (public, unit, child), "unit"), rows


# No shrinking: every attempt is a whole plan and two suites of expectations, so it would take minutes.
@settings(max_examples=15, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    database=databases(),
    budget=st.sampled_from(
        [Budget(0.01), Budget(1.0), Budget(1e4), Budget(0.1, 1e-9), Budget(3.2, 1e-6), Budget(1e5, 1e-3)]
    ),
    paper=st.booleans(),
    beta=st.sampled_from([1, 5, 10_000]),
    scale=st.sampled_from([0.1, 1.0, 3.0]),
    seed=st.integers(0, 1000),
)
def test_every_sample_keeps_its_schema(database, budget, paper, beta, scale, seed):
    schema, rows = database
    options = {"beta": beta, **({"alpha": 0.1} if paper else {})}
    samples = draw_exactly(schema, rows, noise=SeededNoise(seed), budget=budget, seed=seed, scale=scale, **options)
    made = {name: sample.table for name, sample in samples.items()}
    for table in schema.tables:
        assert [field.type for field in made[table.name].schema] == [field.type for field in table.arrow_schema]
    assert failures(check_integrity(schema, made)) == []
    assert made["unit"].num_rows >= 1
    for key in schema.table("child").foreign_keys:
        assert len(samples["child"].parents[key.name]) == made["child"].num_rows
