"""Truncation and weights on random forests: what one unit can change, and what it cannot."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privbench_core.engines.memory import PrivateDatabase
from privbench_core.errors import InternalError
from privbench_core.privacy.features import OwnFanout
from privbench_core.privacy.relations import WEIGHT_SCALE, stability
from privbench_core.privacy.view_building import build_view
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from tests.helpers.databases import SECRET, Database, forum
from tests.helpers.key_graphs import INTEGER, Positions, database_of, key, measure, shift, table

EXAMPLES = settings(max_examples=60)


@st.composite
def forests(draw: st.DrawFn) -> Database:
    """Units, children and grandchildren, with groups below and above their τ."""
    tau = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    schema = Schema(
        "forest",
        (
            table("unit"),
            table("child", key("child", "up", "unit", tau[0], owner=True)),
            table("leaf", key("leaf", "up", "child", tau[1], owner=True)),
        ),
        "unit",
    )
    units = draw(st.integers(1, 5))
    children = draw(st.lists(st.integers(0, units - 1), max_size=20))
    leaves = draw(st.lists(st.integers(0, len(children) - 1), max_size=40)) if children else []
    ids = draw(st.permutations(range(len(children))))  # so that the order of keys is not that of rows
    columns = {
        "unit": {"id": list(range(units))},
        "child": {"id": [7 * i for i in ids], "up": children},
        "leaf": {"id": list(range(len(leaves))), "up": [7 * ids[place] for place in leaves]},
    }
    return database_of(schema, columns)


def owner_of(database: Database, name: str) -> dict[int, int]:
    """Unit of each row, by primary key."""
    rows = database.tables[name]
    if name == database.schema.unit:
        return {k: k for k in rows.column("id").to_pylist()}
    up = database.schema.table(name).owner_key
    assert up is not None
    above = owner_of(database, up.parent)
    return {
        k: above[p] for k, p in zip(rows.column("id").to_pylist(), rows.column(up.columns[0]).to_pylist(), strict=True)
    }


@EXAMPLES
@given(forests())
def test_at_most_tau_are_kept_and_as_many_as_possible(database: Database) -> None:
    private = database.private()
    for name in ("child", "leaf"):
        up = database.schema.table(name).owner_key
        assert up is not None
        parents, kept = private.parent_rows(up), private.kept(name)
        alive = private.kept(up.parent)
        there = np.bincount(parents, minlength=len(alive))
        want = np.where(alive, np.minimum(there, up.max_children), 0)
        assert private.group_sizes(up).tolist() == want.tolist()
        assert np.bincount(parents[kept], minlength=len(alive)).tolist() == want.tolist()


COUNTED = st.sampled_from([(1,), (2,), (3,), (8,), (16,), (1, 2, 4), (1, 4, 16), (2, 8), (3, 5, 7)])
"""What weights may be shares of: released numbers of rows per unit."""


@EXAMPLES
@given(forests(), COUNTED)
def test_a_unit_weighs_at_most_one(database: Database, counted: tuple[int, ...]) -> None:
    for name in ("child", "leaf"):
        owners = owner_of(database, name)
        totals: dict[int, int] = {}
        rows: dict[int, int] = {}
        private = database.private()
        assert (private.weights(name, counted)[private.kept(name)] > 0).all()
        for row, weight in measure(database, name, counted).items():
            totals[owners[row]] = totals.get(owners[row], 0) + weight
            rows[owners[row]] = rows.get(owners[row], 0) + 1
        assert all(total <= WEIGHT_SCALE for total in totals.values())
        assert all(number <= database.schema.max_rows_per_unit(name) for number in rows.values())


def test_a_unit_weighs_at_most_one_however_large_its_groups_are() -> None:
    """The product of these group sizes is 2^63 and more, which 64 bits with a sign do not hold."""
    sizes = {"unit": 1, "a": 1 << 14, "b": 1 << 14, "c": 1 << 14, "leaf": (1 << 21) + 5}
    below = (table(child, key(child, "up", parent, 1 << 22, owner=True)) for parent, child in pairwise(sizes))
    schema = Schema("deep", (table("unit"), *below), "unit")
    rows = {name: pa.table({"id": np.arange(size), "up": np.zeros(size, np.int64)}) for name, size in sizes.items()}
    private = Database(schema, rows | {"unit": rows["unit"].drop_columns("up")}).private()
    assert private.kept("leaf").all()
    assert private.divisors("leaf", (1,)).min() > WEIGHT_SCALE  # what tuples of permutation views are weighed by
    assert np.abs(private.weights("leaf")).sum() <= WEIGHT_SCALE
    assert private.weights("a").sum() == WEIGHT_SCALE


@EXAMPLES
@given(forests(), COUNTED)
def test_rows_of_units_with_up_to_so_many_count_in_full(database: Database, counted: tuple[int, ...]) -> None:
    """In multiples of a share of the last number, a row counts as often as its unit's own number goes into that."""
    for name in ("child", "leaf"):
        owners = owner_of(database, name)
        weights = measure(database, name, counted)
        rows = Counter(owners[row] for row in weights)
        for row, weight in weights.items():
            most = next((number for number in counted if number >= rows[owners[row]]), rows[owners[row]])
            assert weight == WEIGHT_SCALE // most


@pytest.mark.parametrize("counted", [(), (0,), (1025,), (2, 1), (2, 2), (True,), (2.0,), (1 << 21,)])
def test_no_other_numbers_of_rows_are_counted(counted: tuple[int, ...]) -> None:
    database = forum(0)
    with pytest.raises(InternalError, match="no view can count"):
        build_view(database.private(), ViewSpec("post", {}, counted))
    with pytest.raises(InternalError, match="no view can count"):
        build_view(database.private(), ViewSpec("user", {}, (2,)))


@EXAMPLES
@given(forests(), st.data(), COUNTED)
def test_removing_a_unit_changes_nothing_elsewhere(
    database: Database, data: st.DataObject, counted: tuple[int, ...]
) -> None:
    gone = data.draw(st.sampled_from(database.units()))
    smaller = database.without(gone)
    for name in ("unit", "child", "leaf"):
        owners = owner_of(database, name)
        before = {row: weight for row, weight in measure(database, name, counted).items() if owners[row] != gone}
        assert measure(smaller, name, counted) == before


@EXAMPLES
@given(forests(), st.integers(0, 1000))
def test_the_order_of_rows_does_not_matter(database: Database, seed: int) -> None:
    moved = database.shuffled(seed)
    for name in ("child", "leaf"):
        assert measure(moved, name) == measure(database, name)


@given(forests(), st.binary(min_size=16, max_size=16))
def test_the_secret_decides_which_rows_not_how_many(database: Database, secret: bytes) -> None:
    one, other = database.private(), PrivateDatabase(database.schema, database.tables, secret)
    for name in ("child", "leaf"):
        up = database.schema.table(name).owner_key
        assert up is not None
        if name == "child":
            assert one.group_sizes(up).tolist() == other.group_sizes(up).tolist()
        assert other.group_sizes(up).max(initial=0) <= (up.max_children or 0)


def test_stability_covers_several_private_parents() -> None:
    worst = 0.0
    for seed in range(25):
        database = forum(seed, units=12, most_votes=4, removed=OnUnitRemoved.CASCADE)
        for unit in database.units()[:4]:
            smaller = database.without(unit)
            for name in ("user", "post", "vote"):
                declared = stability(database.schema, name)
                moved = max(shift(database, smaller, name, counted)[0] for counted in ((1,), (4,), (1, 2, 8)))
                assert moved <= declared * (1 + 1e-9)
                worst = max(worst, moved if name == "vote" else 0.0)
    assert worst > 2, "no unit reached into others: the test looks at nothing"


def test_stability_covers_the_number_of_children_of_others() -> None:
    schema = forum(0).schema
    votes = schema.table("vote").owner_key
    assert votes is not None
    for seed in range(15):
        database = forum(seed, units=12, most_votes=4, removed=OnUnitRemoved.CASCADE)
        spec = ViewSpec("post", {"n": (OwnFanout(votes), Positions())})  # type: ignore[dict-item]
        for unit in database.units()[:3]:
            one, other = (build_view(d.private(), spec) for d in (database, database.without(unit)))
            counts = [np.bincount(v.codes["n"], v.data.held().weights, minlength=Positions.size) for v in (one, other)]
            assert np.abs(counts[0] - counts[1]).sum() <= one.stability


@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10_000))
def test_stability_covers_random_data_within_declared_bounds(tau: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = Schema(
        "d",
        (
            table("unit"),
            table("row", key("row", "up", "unit", tau, owner=True), key("row", "other", "unit", most, optional=True)),
        ),
        "unit",
    )
    units = 6
    slots = rng.permutation([u for u in range(units) for _ in range(most)])
    rows = int(rng.integers(0, 3 * units))
    other = [int(slots[i]) if i < len(slots) and rng.random() < 0.8 else None for i in range(rows)]
    row = {"id": list(range(rows)), "up": rng.integers(0, 3, rows).tolist(), "other": other}
    database = database_of(schema, {"unit": {"id": list(range(units))}, "row": row})
    for unit in range(units):
        assert shift(database, database.without(unit), "row")[0] <= stability(schema, "row") * (1 + 1e-9)


def test_composite_keys_of_every_type_are_truncated_alike_in_any_order() -> None:
    events = Table(
        "event",
        (
            Column("user_id", INTEGER),
            Column("day", ColumnType.DATE),
            Column("code", ColumnType.CATEGORY),
            Column("n", ColumnType.DECIMAL, precision=6, scale=2),
        ),
        ("user_id", "day", "code", "n"),
        (ForeignKey("event", ("user_id",), "user", ("id",), max_children=3, owner=True),),
    )
    schema = Schema("d", (table("user"), events), "user")
    rows = [(u, dt.date(2020, 1, d), c, n) for u, d, c, n in product(range(4), (1, 2), ("a", "b\x1f", ""), (0, 1))]
    arrow = pa.table(
        {
            "user_id": pa.array([r[0] for r in rows], pa.int64()),
            "day": pa.array([r[1] for r in rows], pa.date32()),
            "code": pa.array([r[2] for r in rows], pa.string()),
            "n": pa.array([r[3] for r in rows], pa.int64()).cast(pa.decimal128(21, 2)).cast(pa.decimal128(6, 2)),
        }
    )
    database = Database(schema, {"user": pa.table({"id": pa.array(range(4), pa.int64())}), "event": arrow})
    kept = {row for row, keep in zip(_rows(arrow), database.private().kept("event"), strict=True) if keep}
    moved = database.shuffled(1)
    again = {row for row, keep in zip(_rows(moved.tables["event"]), moved.private().kept("event"), strict=True) if keep}
    assert kept == again
    assert len(kept) == 4 * 3


def _rows(rows: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_rows_without_an_owner_are_units_of_their_own() -> None:
    schema = Schema(
        "d",
        (
            table("unit"),
            table("row", key("row", "up", "unit", 2, owner=True, optional=True)),
        ),
        "unit",
    )
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "up": pa.array([None, 5, None], pa.int64())})
    private = PrivateDatabase(schema, {"unit": pa.table({"id": pa.array([5], pa.int64())}), "row": rows}, SECRET)
    assert private.kept("row").tolist() == [True, True, True]
    assert private.weights("row").tolist() == [WEIGHT_SCALE] * 3
