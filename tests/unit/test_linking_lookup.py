from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.engines.memory import PrivateDatabase
from privbench_core.guards import MAX_PUBLIC_CODES
from privbench_core.links.lookup import ROW, Lookup
from privbench_core.links.measure_lookup import fit_lookup
from privbench_core.links.measure_targets import PublicParent, Referred
from privbench_core.marginals.sampler import Rows
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import (
    PLENTY,
    NoNoise,
    category,
    codes_of,
    door_of,
    draw_exactly,
    integer,
    owner_key,
    profile_of,
    rows_of,
    texts,
)

UNIT = Table("unit", (integer("id"), category("a", 3)), ("id",))


def to_public(optional: bool) -> tuple[Table, Table]:
    """A public list of places, and a unit that lives at one of them (or at none)."""
    place = Table("place", (integer("id"), category("kind", 2)), ("id",), public=True)
    key = ForeignKey("unit", ("place_id",), "place", ("id",), optional=optional)
    unit = Table("unit", (integer("id"), integer("place_id", nullable=optional), category("a", 3)), ("id",), (key,))
    return place, unit


def at_places(places: int, units: int = 3000, optional: bool = False):
    """Units with a = 0 live at the first third of the places, and so on; of those with a = 2 half live nowhere."""
    place, unit = to_public(optional)
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, units)
    at = (a * places) // 3 + rng.integers(0, places // 3, units)
    none = optional & (a == 2) & (rng.random(units) < 0.5)
    schema = Schema("places", (place, unit), "unit")
    ids = rng.permutation(places) + 10**9  # the public order is not that of the ids
    tables = {
        "place": rows_of(place, id=ids, kind=texts(rng.integers(0, 2, places))),
        "unit": rows_of(unit, id=np.arange(units), place_id=pa.array(ids[at], mask=none), a=texts(a)),
    }
    return schema, tables, a, at, none


@pytest.mark.parametrize("places", [3, 30, 1000])
def test_public_parents_are_referred_to_by_position(places):
    schema, tables, _, _, _ = at_places(places)
    made = draw_exactly(schema, tables)
    assert made["place"].table.equals(tables["place"])
    rows, at = made["unit"].table, made["unit"].parents["unit.place_id"]
    assert (at * 3 // places == codes_of(rows.column("a"))).mean() > 0.97
    assert rows.column("place_id").to_pylist() == [tables["place"].column("id")[int(i)].as_py() for i in at]
    assert len(np.unique(at)) > 0.9 * min(places, 900)


def test_rows_choose_among_many_public_parents_by_their_attributes():
    """Noise hides which of 1,000 places, whose kinds follow no order, but not which kind."""
    place, unit = to_public(optional=False)
    rng = np.random.default_rng(1)
    kind, a = rng.integers(0, 2, 1000), rng.integers(0, 3, 3000)
    of_kind = [np.flatnonzero(kind == each) for each in (0, 1)]
    at = np.array([rng.choice(of_kind[int(each == 2)]) for each in a])
    tables = {
        "place": rows_of(place, id=np.arange(1000), kind=texts(kind)),
        "unit": rows_of(unit, id=np.arange(3000), place_id=at, a=texts(a)),
    }
    budget = Budget(3.2, 1e-9)
    made = draw_exactly(Schema("places", (place, unit), "unit"), tables, noise=SeededNoise(0), budget=budget)["unit"]
    drawn = codes_of(made.table.column("a"))
    assert (kind[made.parents["unit.place_id"]] == (drawn == 2)).mean() > 0.95


def test_references_follow_the_owner_where_a_row_has_no_attributes():
    """A junction table: members of one kind go to places of one kind."""
    place = Table("place", (integer("id"), category("kind", 2)), ("id",), public=True)
    keys = (owner_key("visit", "unit_id", "unit", 4), ForeignKey("visit", ("place_id",), "place", ("id",)))
    visit = Table("visit", (integer("id"), integer("unit_id"), integer("place_id")), ("id",), keys)
    rng = np.random.default_rng(2)
    kind, a, who = rng.integers(0, 2, 40), rng.integers(0, 3, 1000), np.repeat(np.arange(1000), 3)
    of_kind = [np.flatnonzero(kind == each) for each in (0, 1)]
    tables = {
        "place": rows_of(place, id=np.arange(40), kind=texts(kind)),
        "unit": rows_of(UNIT, id=np.arange(1000), a=texts(a)),
        "visit": rows_of(
            visit,
            id=np.arange(3000),
            unit_id=who,
            place_id=np.array([rng.choice(of_kind[int(a[w] == 2)]) for w in who]),
        ),
    }
    made = draw_exactly(Schema("visits", (UNIT, place, visit), "unit"), tables)
    owners = codes_of(made["unit"].table.column("a"))[made["visit"].parents["visit.unit_id"]]
    assert (kind[made["visit"].parents["visit.place_id"]] == (owners == 2)).mean() > 0.97


def test_codes_of_public_rows_hold_about_as_many_references_each():
    columns = (
        integer("id"),
        Column("size", ColumnType.INTEGER),
        Column("name", ColumnType.TEXT),
        category("kind", 200),
    )
    table = Table("place", columns, ("id",), public=True)
    rng = np.random.default_rng(3)
    size, kind, often = rng.permutation(2000), rng.integers(0, 200, 2000), np.zeros(2000)
    often[rng.permutation(2000)[:100]] = 1 + rng.random(100) / 10
    names = pa.array([f"place {number}" for number in range(2000)])
    rows = rows_of(table, id=np.arange(2000), size=size, name=names, kind=texts(kind))
    targets = PublicParent(table, rows).targets(often, optional=False)
    codes = {name: coding.encode_numbers(np.arange(2000)) for name, coding in targets.items()}
    assert codes.keys() == {"target.size", "target.kind", ROW}  # a name says no more than the row
    held = np.bincount(codes["target.size"], often)
    assert len(held) <= MAX_PUBLIC_CODES
    assert held.max() <= 6
    assert (np.diff(codes["target.size"][np.argsort(size)].astype(int)) >= 0).all()
    assert np.bincount(codes[ROW], often).max() < 1.1  # those that are referred to have one each
    likely = np.argsort(-np.bincount(kind, often))[:20]
    assert all(
        len(np.unique(kind[codes["target.kind"] == codes["target.kind"][kind == each][0]])) == 1 for each in likely
    )
    assert len(np.unique(codes["target.kind"])) == min(len(np.unique(kind)), MAX_PUBLIC_CODES)


@pytest.mark.parametrize("public", [True, False], ids=["public", "private"])
def test_what_joints_leave_of_the_price_tells_how_popular_parents_are(public: bool):
    """So small a price hides all joints; half of it was not spent."""
    schema, tables, *_ = at_places(30) if public else visits()
    price, spent = Price(Measure.GDP, 1e-5), []
    key = next(key for table in schema.tables for key in table.foreign_keys if not key.owner)
    account = PrivacyFilter(price, lambda label, cost: spent.append((label, cost.amount)))
    session = PrivateSession(PrivateDatabase(schema, tables, bytes(16)), account, NoNoise(), "test")
    child = profile_of(schema.table(key.child), tables[key.child])
    parent = schema.table(key.parent)
    rows = tables[key.parent]
    of_parent = PublicParent(parent, rows) if public else Referred(profile_of(parent, rows))
    found, _ = fit_lookup(session, key, child, of_parent, price)
    assert not found.pair_tables
    assert sum(cost for _, cost in spent) == pytest.approx(price.amount)
    for_popularity = sum(cost for label, cost in spent if "rows/" in label)
    assert for_popularity > 0.7 * price.amount


def test_an_empty_parent_has_nothing_to_refer_to():
    lookup = Lookup({}, {}, {})
    assert lookup.draw(Rows(3), {}, 0, np.random.default_rng(0)).tolist() == [-1, -1, -1]


def visits(optional: bool = False, attributes: bool = True):
    """A unit's visits refer to a private doctor of another unit; children see doctors of their own kind."""
    kind = (category("kind", 3),) if attributes else ()
    doctor = Table(
        "doctor", (integer("id"), integer("unit_id"), *kind), ("id",), (owner_key("doctor", "unit_id", "unit", 2),)
    )
    other = ForeignKey("visit", ("doctor_id",), "doctor", ("id",), max_children=40, optional=optional)
    visit = Table(
        "visit",
        (integer("id"), integer("unit_id"), integer("doctor_id", nullable=optional), category("why", 3)),
        ("id",),
        (owner_key("visit", "unit_id", "unit", 4), other),
    )
    rng = np.random.default_rng(0)
    n = 1500
    doctor_of = rng.integers(0, 3, 400)
    home = np.repeat(np.arange(n), rng.integers(0, 5, n))
    why = rng.integers(0, 3, len(home))
    of_kind = [np.flatnonzero(doctor_of == k) for k in range(3)]
    seen = np.array([rng.choice(of_kind[w]) if rng.random() < 0.9 else rng.integers(400) for w in why])
    none = optional & (rng.random(len(home)) < np.where(why == 0, 0.5, 0.1))
    more = {"kind": texts(doctor_of)} if attributes else {}
    tables = {
        "unit": rows_of(UNIT, id=np.arange(n), a=texts(rng.integers(0, 3, n))),
        "doctor": rows_of(doctor, id=np.arange(400) + 10_000, unit_id=np.arange(400), **more),
        "visit": rows_of(
            visit, id=np.arange(len(home)), unit_id=home, doctor_id=pa.array(seen + 10_000, mask=none), why=texts(why)
        ),
    }
    return Schema("clinic", (UNIT, doctor, visit), "unit"), tables, none, why


@pytest.mark.parametrize("attributes", [True, False])
def test_a_reference_to_a_private_parent_keeps_its_share_of_nulls(attributes):
    schema, tables, none, why = visits(optional=True, attributes=attributes)
    visit = draw_exactly(schema, tables)["visit"].table
    missing = visit.column("doctor_id").is_null().to_numpy()
    assert missing.mean() == pytest.approx(none.mean(), abs=0.02)
    reasons = codes_of(visit.column("why"))
    for reason in range(3):
        assert missing[reasons == reason].mean() == pytest.approx(none[why == reason].mean(), abs=0.05)


def test_only_null_or_not_is_kept_of_a_parent_without_attributes():
    """The order of private rows must not be measured, not even which row is first."""
    schema, tables, _, _ = visits(optional=True, attributes=False)
    visit = schema.tables[2]
    own = profile_of(visit, tables["visit"], rows_per_unit=4)
    parent = Referred(profile_of(schema.tables[1], tables["doctor"]))
    lookup, _ = fit_lookup(door_of(schema, tables), visit.foreign_keys[1], own, parent, PLENTY)
    (discretizer,) = lookup.targets.values()
    assert discretizer.size == 2
    assert discretizer.encode_numbers(np.array([-1, 0, 1, 2**40])).tolist() == [1, 0, 0, 0]


def test_who_refers_to_none_follows_columns_of_the_row_and_of_its_owner():
    """Along a key that lets go: the columns of the few rows that refer, in the few groups that noise leaves."""
    rng = np.random.default_rng(5)
    users, posts = 4000, 20_000
    user = Table("user", (integer("id"), integer("age", 0, 63)), ("id",))
    editor = ForeignKey("post", ("editor_id",), "user", ("id",), 60, optional=True)
    columns = integer("id"), integer("user_id"), integer("editor_id", nullable=True), integer("size", 0, 40)
    post = Table("post", columns, ("id",), (owner_key("post", "user_id", "user", 40), editor))
    age = rng.integers(0, 64, users)
    owner = np.sort(rng.integers(0, users, posts))
    size = np.minimum(rng.geometric(0.2, posts), 40)
    edited = rng.random(posts) < np.where(size > 5, 0.7, 0.2) * np.where(age[owner] < 20, 0.3, 1.0)
    by = rng.permutation(users)[rng.integers(0, users, posts)]
    tables = {
        "user": rows_of(user, id=np.arange(users), age=age),
        "post": rows_of(
            post, id=np.arange(posts), user_id=owner, editor_id=pa.array(by, mask=~edited), size=size.astype(np.int64)
        ),
    }
    made = draw_exactly(Schema("site", (user, post), "user"), tables)
    rows = made["post"].table
    refers = rows.column("editor_id").is_valid().to_numpy()
    sizes = rows.column("size").to_numpy()
    ages = made["user"].table.column("age").to_numpy()[made["post"].parents["post.user_id"]]
    assert refers.mean() == pytest.approx(edited.mean(), abs=0.02)
    for drawn, true in ((sizes > 5, size > 5), (ages < 20, age[owner] < 20)):
        for side in (True, False):
            assert refers[drawn == side].mean() == pytest.approx(edited[true == side].mean(), abs=0.06)
