"""Counts of units that are clipped in L2 norm: what they are, and where they are refused."""

from __future__ import annotations

from itertools import pairwise
from math import isqrt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.engines.sql.counting import next_siblings, whole_units
from privbench_core.engines.sql.views import ORDER, OWNER_ROW, UNIT
from privbench_core.errors import InternalError
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.clipping import UnitsOfRows
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import CoMember, OfParent, Own
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.queries import Marginal, ParentCounts, Query
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.split_rules import ByValue
from privbench_core.privacy.view_building import build_references, build_view
from privbench_core.privacy.views import CodedView, HeldRows, ViewSpec
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from privbench_core.units.measure_by_size import vector_lengths
from privbench_core.units.row_count import RowCount
from tests.helpers.databases import Row, database_from, shop, town
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import integer, owner_key

PRICE = Price(Measure.GDP, 1.0)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=60),
    st.integers(1, 9),
    st.lists(st.integers(1, 64), min_size=4, max_size=4) | st.just([1, 1, 1, 1]),
    st.sampled_from([1, 1000]),
)
def test_a_unit_adds_its_counts_over_the_length_of_their_vector(
    rows: list[tuple[int, int]], most: int, lengths: list[int], apart: int
) -> None:
    units, cells = (np.array([row[place] for row in rows], dtype=np.int64) for place in (0, 1))
    expected = np.zeros(4, dtype=np.int64)
    for unit in set(units.tolist()):
        vector = np.bincount(cells[units == unit], minlength=4)
        squared = int(((vector * lengths) ** 2).sum())
        weight = min(WEIGHT_SCALE // most, isqrt(WEIGHT_SCALE**2 // squared))
        expected += vector * weight
        assert weight**2 * squared <= WEIGHT_SCALE**2
        assert weight == WEIGHT_SCALE // most or (weight + 1) ** 2 * squared > WEIGHT_SCALE**2
    of_rows = UnitsOfRows(most, units, np.bincount(units, minlength=5)[units])
    found = of_rows.counts(cells * apart, 4 * apart, np.repeat(lengths, apart))  # many cells are counted by sorting
    np.testing.assert_array_equal(found[::apart], expected)
    assert found.sum() == expected.sum()


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9), max_size=4))
def test_parts_of_rows_that_come_by_unit_do_not_end_within_one(units: list[int], cuts: list[int]) -> None:
    ordered = pa.table({UNIT: pa.array(sorted(units), pa.int64())}).combine_chunks()
    ends = [0, *(min(cut, len(units)) for cut in sorted(cuts)), len(units)]
    parts = list(whole_units(b for one, end in pairwise(ends) for b in ordered.slice(one, end - one).to_batches()))
    assert [unit for part in parts for unit in part[UNIT].to_pylist()] == sorted(units)
    seen = [unit for part in parts for unit in set(part[UNIT].to_pylist())]
    assert len(seen) == len(set(seen))


def test_rows_that_do_not_come_by_unit_are_refused() -> None:
    parts = [pa.record_batch({UNIT: pa.array(units, pa.int64())}) for units in ([1, 2], [2, 3], [2])]
    assert len(list(whole_units(parts[:2]))) > 0
    with pytest.raises(InternalError, match="order of their units"):
        list(whole_units(parts))
    siblings = pa.table({UNIT: [1, 1, 1, 2, 2], OWNER_ROW: [4, 4, 5, None, 6], ORDER: [1, 9, 2, 3, 3]})
    assert next_siblings(siblings).tolist() == [1, 0, -1, -1, -1]
    for wrong in ([1, 0, 2], [0, 2, 1]):
        with pytest.raises(InternalError, match="owners and hashes"):
            next_siblings(siblings.take(wrong))


def test_a_unit_with_more_rows_than_weights_can_share_counts_nowhere() -> None:
    rows = WEIGHT_SCALE + 1
    units = UnitsOfRows(1, np.zeros(rows, dtype=np.int64), np.full(rows, rows))
    assert units.counts(np.arange(rows) % 3, 3).tolist() == [0, 0, 0]


def test_vectors_longer_than_weights_can_share_count_nowhere() -> None:
    rows = WEIGHT_SCALE // 64
    units = UnitsOfRows(1, np.zeros(rows, dtype=np.int64), np.full(rows, rows))
    cells, lengths = np.zeros(rows, dtype=np.int64), np.array([4096, 4096])
    assert units.counts(cells, 2, lengths).tolist() == [0, 0]
    assert units.counts(cells, 2, lengths // 64).tolist() == [rows, 0]


def _session(charged: list[str]) -> PrivateSession:
    account = PrivacyFilter(PRICE, lambda label, _: charged.append(label))
    return PrivateSession(town(0).private(), account, SeededNoise(0), "step")


def test_counts_are_clipped_only_where_a_proof_says_how_far_they_move() -> None:
    database, charged = town(0), list[str]()
    session = _session(charged)
    owner = database.schema.table("person").owner_key
    (column,) = (c.name for c in database.schema.table("person").columns if c.name == "works")
    works = Discretizer(codec_for(database.schema.table("person").column(column)))
    views = {
        "several T": ViewSpec("person", {"works": (Own("works"), works)}, (1, 2)),
        "co-members": ViewSpec("person", {"works": (CoMember(owner, 1, "works"), works)}),
    }
    for name, spec in views.items():
        view = session.view(spec, name)
        with pytest.raises(InternalError, match="cannot be clipped"):
            view.measure("works", [Marginal(("works",), clipped=True)], PRICE)
    whole = session.view(ViewSpec("person", {"works": (Own("works"), works)}, (2,)), "whole")
    for part in whole.split(ByValue("works", (0,) * works.size)):
        with pytest.raises(InternalError, match="cannot be clipped"):
            part.measure("works", [Marginal(("works",), clipped=True)], PRICE)
    for asked in (Marginal((), clipped=True), Marginal(("works", "works"), clipped=True)):
        with pytest.raises(InternalError, match="to clip"):
            whole.measure("works", [asked], PRICE)
    alike, groups = (1,) * works.size, (np.zeros(works.size, dtype=np.int64),)
    wrong = {
        "where units are clipped": Marginal(("works",), scales=(alike,)),
        "as a tuple": Marginal(("works",), clipped=True, scales=[alike]),  # type: ignore[arg-type]
        "each column": Marginal(("works",), clipped=True, scales=(alike, alike)),
        "a scale from 1": Marginal(("works",), groups, clipped=True, scales=(alike,)),
    }
    for match, asked in wrong.items():
        with pytest.raises(InternalError, match=match):
            whole.measure("works", [asked], PRICE)
    for scale in (0, 65, 1.0, True):
        asked = Marginal(("works",), clipped=True, scales=((*alike[1:], scale),))  # type: ignore[arg-type]
        with pytest.raises(InternalError, match="a scale from 1"):
            whole.measure("works", [asked], PRICE)
    held = HeldRows({}, {f"f{place}": 2 for place in range(4)}, np.ones(0, dtype=np.int64), 0)
    several = Curator(
        CodedView(held, dict(held.sizes), WEIGHT_SCALE, 1, 1, own=WEIGHT_SCALE, clipped=WEIGHT_SCALE),
        PrivacyFilter(PRICE, lambda label, _: charged.append(label)),
        SeededNoise(0),
        "several",
    )
    with pytest.raises(InternalError, match="scaled by at most 1048576"):
        several.measure("4", [Marginal(tuple(held.sizes), clipped=True, scales=((1, 64),) * 4)], PRICE)
    (rooms,) = (c for c in database.schema.table("household").columns if c.name == "rooms")
    coded = Discretizer(codec_for(rooms))
    households = session.view(ViewSpec("household", {"rooms": (Own("rooms"), coded)}), "households")
    with pytest.raises(InternalError, match="every row is a unit"):
        households.measure("rooms", [Marginal(("rooms",), clipped=True, scales=((1,) * coded.size,))], PRICE)
    assert charged == []
    whole.measure("works", [Marginal(("works",), clipped=True)], PRICE)
    assert charged == ["step/whole/works"]


def test_references_are_clipped_by_parent_and_of_public_ones_alone() -> None:
    database, charged = shop(0), list[str]()
    account = PrivacyFilter(PRICE, lambda label, _: charged.append(label))
    session = PrivateSession(database.private(), account, SeededNoise(0), "step")
    keys = [key for table in database.schema.tables for key in table.foreign_keys]
    (public,) = (key for key in keys if key.name == "item.product_id")
    with pytest.raises(InternalError, match="a group for each parent"):
        session.references(public, 2, "groups").measure(
            "them", [ParentCounts(np.array([0, 1, 0, 1, 1]), clipped=True)], PRICE
        )
    (private, *_) = (key for key in keys if not database.schema.table(key.parent).public)
    with pytest.raises(InternalError, match="cannot be clipped"):
        session.references(private, 2, "private").measure("them", [ParentCounts(np.arange(5), clipped=True)], PRICE)
    assert charged == []


def test_how_many_rows_count_says_how_long_vectors_are() -> None:
    classes, rows = (1, 4, 16, 64), np.array([100.0, 400.0, 1600.0, 6400.0])
    size = RowCount(8500.0, 0.0, 1, classes, rows, rows / np.array([1, 3, 12, 50]), 64)
    np.testing.assert_allclose(size.counted(3, 1.0), size.counted(3))
    totals = [float(size.counted(3, collisions).sum()) for collisions in (0.0, 0.1, 0.5, 1.0)]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] > 1.5 * totals[-1]
    for collisions in (0.05, 0.3, 0.9):
        assert size.collisions(3, float(size.counted(3, collisions).sum())) == pytest.approx(collisions, abs=1e-6)
    assert size.collisions(3, 1e9) == pytest.approx(0, abs=1e-6)
    assert size.collisions(3, 0.0) == 1


def test_without_clipping_classes_count_in_full_or_as_t_rows_a_unit() -> None:
    rng, classes = np.random.default_rng(0), (1, 2, 4, 8, 16)
    for _ in range(300):
        units = rng.uniform(5, 1000, 5)
        rows = units * rng.uniform((1, 1, 2, 4, 8), classes)
        size = RowCount(float(rows.sum()), 0.0, 1, classes, rows, units, 16)
        for place, most in enumerate(classes):
            counted = size.counted(most)
            np.testing.assert_allclose(counted[: place + 1], rows[: place + 1], rtol=1e-12)
            np.testing.assert_allclose(counted[place + 1 :], most * units[place + 1 :], rtol=1e-12)


def test_rows_that_count_grow_with_t_and_with_rows_in_cells_of_their_own_and_never_jump() -> None:
    rng, classes = np.random.default_rng(0), (1, 2, 4, 8, 16)
    numbers = np.minimum(rng.zipf(1.7, 3000), 16).astype(float)
    place = np.searchsorted(classes, numbers)
    rows, units = np.bincount(place, numbers, 5), np.bincount(place, minlength=5).astype(float)
    size = RowCount(float(rows.sum()), 0.0, 1, classes, rows, units, 16)
    likely = np.linspace(0, 1, 2001)
    every = [size.counted(most).sum() / rows.sum() for most in (12, 15, 16)]
    assert every[0] < every[1] < 1 - 1e-4 < every[2]  # units may have as many rows as their class allows
    for most in (1, 2, 3, 4, 6, 8, 12):
        drops = -np.diff([size.counted(most, collisions).sum() for collisions in likely])
        assert drops.min() >= 0
        assert drops.max() < 0.01 * rows.sum()
        for collisions in (0.0, 0.1, 0.5, 1.0):
            vectors = np.sqrt(numbers + numbers * (numbers - 1) * collisions)
            expected = (numbers * np.minimum(1, most / vectors)).sum()
            assert size.counted(most, collisions).sum() == pytest.approx(expected, rel=0.02)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30).filter(any), st.integers(1, 500))
def test_rare_cells_are_scaled_and_no_row_is_longer_than_a_unit_may_be(shares: list[float], most: int) -> None:
    given_shares = np.array(shares) / sum(shares)
    lengths = vector_lengths(given_shares, most)
    assert lengths.max() <= min(most, 64)
    assert lengths[np.argmax(given_shares)] == lengths.min() == 1
    assert (np.diff(lengths[np.argsort(-given_shares)]) >= 0).all()
    # Noise of all cells, for as many rows that count of units with many: but for powers of two not more than without.
    scaled, plain = (
        (1 / each).sum() * np.linalg.norm(given_shares * each) for each in (lengths, np.ones(len(lengths)))
    )
    assert scaled <= 2**0.5 * plain


def test_codes_of_units_whose_rows_are_alike_are_as_many_as_they_are() -> None:
    """Half of the units have 200 rows, all NULL, the others as many in 20 cells: NULL is half of the rows."""
    units, rng = np.repeat(np.arange(400), 200), np.random.default_rng(0)
    cells = np.where(units < 200, 0, 1 + rng.integers(0, 20, len(units)))
    rows, shares = UnitsOfRows(32, units, np.full(len(units), 200)), np.bincount(cells) / len(cells)
    lengths = vector_lengths(shares, 32)
    counts = [rows.counts(cells, 21, each) for each in (np.ones(1, dtype=np.int64), lengths)]
    plain, scaled = (float(each[0] / each.sum()) for each in counts)
    assert plain < 0.2
    assert scaled == pytest.approx(0.5, abs=0.1)


def _moves_as_claimed(asked: Query, one: CodedView, other: CodedView) -> tuple[float, float]:
    """How far a query moves in L2, and how far it says that it may."""
    shift = (asked.evaluate(one) - asked.evaluate(other)).astype(float)
    return float(np.sqrt((shift**2).sum())) / WEIGHT_SCALE, asked.moves(one)[1] ** 0.5 / WEIGHT_SCALE


def test_a_lost_reference_may_change_what_all_rows_of_its_unit_weigh() -> None:
    """One row of unit 1 loses its reference: that takes .23 of a unit from a cell, where a row weighs .2."""
    unit, file = Table("unit", (integer("id"),), ("id",)), integer("y", 0, 1)
    owned = owner_key("file", "unit_id", "unit", 1)
    files = Table("file", (integer("id"), integer("unit_id"), file), ("id",), (owned,))
    set_null = ForeignKey(
        "item", ("file_id",), "file", ("id",), max_children=1, optional=True, on_unit_removed=OnUnitRemoved.SET_NULL
    )
    columns = integer("id"), integer("unit_id"), integer("file_id", nullable=True)
    item = Table("item", columns, ("id",), (owner_key("item", "unit_id", "unit", 9), set_null))
    rows: dict[str, list[Row]] = {
        "unit": [(number,) for number in range(8)],
        "file": [(number, number, 0) for number in range(8)],
        "item": [(number, 0, 3 + number) for number in range(5)]
        + [(10 + number, 1, number) for number in range(3)]
        + [(20 + number, 1, None) for number in range(4)],
    }
    database = database_from(Schema("files", (unit, files, item), "unit"), rows)
    spec = ViewSpec("item", {"y": (OfParent(set_null, "y"), Discretizer(codec_for(file)))}, (5,))
    one, other = (build_view(each.private(), spec) for each in (database, database.without(0)))
    moved, claimed = _moves_as_claimed(Marginal(("y",), clipped=True), one, other)
    if_rows_kept_their_weights = np.hypot(1 + 1 / 5, 1 / 5)
    assert if_rows_kept_their_weights < moved <= claimed


def test_other_units_that_lose_rows_move_clipped_references() -> None:
    """Removing unit 0 takes one of two rows of unit 1 away along another key, and the other row weighs more."""
    unit, place = Table("unit", (integer("id"),), ("id",)), Table("place", (integer("id"),), ("id",), public=True)
    files = Table("file", (integer("id"), integer("unit_id")), ("id",), (owner_key("file", "unit_id", "unit", 1),))
    cascades = ForeignKey("item", ("file_id",), "file", ("id",), max_children=1)
    refers = ForeignKey("item", ("place_id",), "place", ("id",))
    columns = integer("id"), integer("unit_id"), integer("file_id"), integer("place_id")
    item = Table("item", columns, ("id",), (owner_key("item", "unit_id", "unit", 9), cascades, refers))
    rows: dict[str, list[Row]] = {
        "unit": [(number,) for number in range(3)],
        "place": [(0,), (1,)],
        "file": [(number, number) for number in range(3)],
        "item": [(0, 0, 2, 0), (1, 1, 0, 0), (2, 1, 1, 1)],
    }
    database = database_from(Schema("places", (unit, place, files, item), "unit"), rows)
    one, other = (build_references(each.private(), refers, 1) for each in (database, database.without(0)))
    moved, claimed = _moves_as_claimed(ParentCounts(np.arange(2), clipped=True), one, other)
    assert 1.5 < moved <= claimed
