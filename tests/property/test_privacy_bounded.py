"""Bounded references: what one unit moves in views along keys that let go, however often it is referred to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench_core.errors import InternalError
from privbench_core.privacy.admission import admit_view
from privbench_core.privacy.features import CoMember, MemberPlace, OfParent, Own
from privbench_core.privacy.queries import Marginal, RankSums
from privbench_core.privacy.relations import WEIGHT_SCALE, is_set_null_across_units
from privbench_core.privacy.view_building import build_references, build_view
from privbench_core.privacy.views import BoundedReferences, CodedView, ViewSpec
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema
from tests.helpers.databases import Database
from tests.helpers.examples import examples
from tests.helpers.key_graphs import Ids, database_of, key, table, with_attributes
from tests.helpers.networks import PLACE, X

UNITS, PAGES, NOTES = 12, 15, 60


def crowd(seed: int, *, carried: bool = False, required: bool = False) -> Database:
    """Units with several notes, most of which refer to one page and one unit; units like each other.

    Pages and units that are referred to go with their own unit alone; notes go with their page where they are carried.
    Where it is required, each note refers to a unit, and no longer where that is gone.
    """
    rng = np.random.default_rng(seed)
    removed = OnUnitRemoved.CASCADE if carried else OnUnitRemoved.SET_NULL
    about = key("note", "about", "page", 2 if carried else NOTES, removed=removed)
    by = replace(key("note", "by", "unit", NOTES, removed=OnUnitRemoved.SET_NULL), optional=not required)
    schema = Schema(
        "crowd",
        (
            table("unit", key("unit", "likes", "unit", UNITS, optional=True)),
            table("page", key("page", "unit_id", "unit", 4, owner=True, optional=True)),
            table("note", key("note", "unit_id", "unit", 6, owner=True), about, by),
        ),
        "unit",
    )

    def mostly_one(parents: int, rows: int) -> Ids:
        found = np.where(rng.random(rows) < 0.6, 0, rng.integers(0, parents, rows))
        return [None if rng.random() < 0.1 else int(each) for each in found]

    slots = rng.permutation(np.repeat(np.arange(PAGES), 2)).tolist()
    owners = [None if rng.random() < 0.2 else int(rng.integers(UNITS)) for _ in range(PAGES)]
    notes: dict[str, Ids] = {
        "id": list(range(NOTES)),
        "unit_id": rng.integers(0, UNITS, NOTES).tolist(),
        "about": [*slots, *[None] * (NOTES - len(slots))] if carried else mostly_one(PAGES, NOTES),
        "by": [0 if required and each is None else each for each in mostly_one(UNITS, NOTES)],
    }
    rows: dict[str, dict[str, Ids]] = {
        "unit": {"id": list(range(UNITS)), "likes": mostly_one(UNITS, UNITS)},
        "page": {"id": list(range(PAGES)), "unit_id": owners},
        "note": notes,
    }
    return with_attributes(database_of(schema, rows), seed)


def keys_of(schema: Schema) -> list[ForeignKey]:
    """The keys along which references can be bounded."""
    return [k for t in schema.private_tables for k in t.foreign_keys if is_set_null_across_units(schema, k)]


def moved(asked: Marginal | RankSums, one: CodedView, other: CodedView) -> tuple[float, float]:
    """How much cells lose and gain, as a share of what is claimed, and never more than that."""
    apart = (asked.evaluate(one) - asked.evaluate(other)).astype(float)
    assert one.shifts == other.shifts
    lost, gained = (float(np.maximum(each, 0).sum()) for each in (apart, -apart))
    shares = lost / one.shifts[0], gained / one.shifts[1]
    assert max(shares) <= 1 + 1e-9
    l1, squared = asked.moves(one)
    assert lost + gained <= l1 * (1 + 1e-9)
    assert (apart**2).sum() <= squared * (1 + 1e-9)
    return shares


@pytest.mark.parametrize(
    ("carried", "required"),
    [(False, False), (True, False), (False, True)],
    ids=["alone", "beside a key that cascades", "required"],
)
@examples(8, 20)
@given(st.integers(0, 10_000), st.sampled_from([1, 2, 3, 8]), st.sampled_from([1, 2, 5, 64]))
def test_no_unit_moves_bounded_references_beyond_what_is_claimed(
    carried: bool, required: bool, seed: int, per_unit: int, most: int
) -> None:
    database = crowd(seed, carried=carried, required=required)
    schema = database.schema
    alone = [row for row, owner in enumerate(database.tables["page"].column("unit_id").to_pylist()) if owner is None]
    for where, gone in [*(("unit", unit) for unit in range(0, UNITS, 2)), *(("page", row) for row in alone[:2])]:
        smaller = database.without(gone, where)
        for along in keys_of(schema):
            rows_per_unit = per_unit if schema.table(along.child).owner_key is not None else 1
            columns = {"mine": (Own("x"), X), "theirs": (OfParent(along, "x"), X)}
            spec = ViewSpec(along.child, columns, (rows_per_unit,), BoundedReferences(along, most))  # type: ignore[arg-type]
            one, other = (build_view(each.private(), spec) for each in (database, smaller))
            for names in (("mine",), ("theirs",), ("mine", "theirs"), ()):
                moved(Marginal(names), one, other)
            one, other = (build_references(each.private(), along, per_unit, most) for each in (database, smaller))
            moved(RankSums((1, 2, 5, 100)), one, other)


def test_the_claim_is_reached() -> None:
    """A note that others wait behind goes with its unit, and the one that refers to this unit: 1 + c, and 1 comes."""
    found = []
    for gone in range(1, UNITS - 1):
        database = crowd(gone)
        everyone = list(range(UNITS))
        notes: dict[str, Ids] = {"id": everyone, "unit_id": everyone, "about": [None] * UNITS, "by": [0] * UNITS}
        notes["by"][UNITS - 1] = gone
        rows = {name: rows.drop(["x"]).to_pydict() for name, rows in database.tables.items()} | {"note": notes}
        database = with_attributes(database_of(database.schema, rows), gone)
        along = next(k for k in keys_of(database.schema) if k.name == "note.by")
        database = replace(database, schema=crowd(gone).schema)
        spec = ViewSpec("note", {"mine": (Own("x"), X)}, (1,), BoundedReferences(along, 1))
        one, other = (build_view(each.private(), spec) for each in (database, database.without(gone, "unit")))
        assert one.shifts == (2 * WEIGHT_SCALE, WEIGHT_SCALE)
        found.append(moved(Marginal(("mine",)), one, other))
    assert (1.0, 1.0) in found


def test_the_order_of_rows_does_not_matter() -> None:
    database = crowd(3)
    turned = {name: rows.take(np.arange(rows.num_rows)[::-1]) for name, rows in database.tables.items()}
    for along in keys_of(database.schema):
        spec = ViewSpec(along.child, {"mine": (Own("x"), X)}, (1,), BoundedReferences(along, 2))
        one, other = (build_view(each.private(), spec) for each in (database, replace(database, tables=turned)))
        np.testing.assert_array_equal(one.counts(["mine"]), other.counts(["mine"]))


def test_references_to_one_unit_count_as_often_as_they_may_and_all_others_in_full() -> None:
    database = crowd(0)
    private = database.private()
    along = next(k for k in keys_of(database.schema) if k.name == "note.about")
    pages = private.kept_parent_rows(along)[private.kept("note")]  # beyond τ, neither notes nor pages count
    own = private.unit_of("page")[pages[pages >= 0]].tolist()
    for most in (1, 2, 5, 64):
        spec = ViewSpec("note", {}, (8,), BoundedReferences(along, most))  # a unit has at most 6 notes: all in full
        counted = int(build_view(private, spec).counts(())) / (WEIGHT_SCALE // 8)
        assert counted == sum(min(own.count(unit), most) for unit in set(own))


def test_only_references_that_become_null_are_bounded_and_each_by_itself() -> None:
    schema = crowd(0, carried=True).schema
    owner, about, by = schema.table("note").foreign_keys
    for along in (owner, about):
        with pytest.raises(InternalError, match="become NULL"):
            admit_view(schema, ViewSpec("note", {}, (1,), BoundedReferences(along, 1)))
    with pytest.raises(InternalError, match="whole number"):
        admit_view(schema, ViewSpec("note", {}, (1,), BoundedReferences(by, 0)))
    for spec in (
        ViewSpec("page", {}, (1,), BoundedReferences(by, 1)),
        ViewSpec("note", {}, (1, 2), BoundedReferences(by, 1)),
        ViewSpec("note", {"x": (CoMember(owner, 1, "x"), X)}, (1,), BoundedReferences(by, 1)),
        # Siblings that refer to none have places, too, and one that only loses its reference keeps its place.
        ViewSpec(
            "note", {"x": (MemberPlace(owner, "x", X, np.arange(X.size), 3), PLACE)}, (1,), BoundedReferences(by, 1)
        ),
    ):
        with pytest.raises(InternalError, match="references of its own rows"):
            build_view(crowd(0, carried=True).private(), admit_view(schema, spec))
