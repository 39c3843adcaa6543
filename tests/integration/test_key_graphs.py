"""Every kind of foreign key in one run: all of them resolve, at every ε, and what they link stays linked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.backends.integrity import check_rows
from privbench_core.errors import SpecError
from privbench_core.privacy.budget import Budget
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import names
from privbench_core.synthesizers.privbench import PrivBench
from tests.helpers.databases import forum, keyed
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import (
    broken_expectations,
    category,
    draw_exactly,
    integer,
    owner_key,
    place_of,
    rows_of,
    samples_of,
    texts,
)

Tables = dict[str, pa.Table]


def to(child: str, columns: str, parent: str, targets: str = "id", **more: object) -> ForeignKey:
    """A foreign key; several columns are separated by blanks."""
    return ForeignKey(child, tuple(columns.split()), parent, tuple(targets.split()), **more)  # type: ignore[arg-type]


def unresolved(schema: Schema, made: Tables) -> dict[str, int]:
    """References that find no row, and repetitions of what must be unique: nothing, where all is well."""
    wrong = {}
    for table in schema.tables:
        rows = made[table.name]
        for key in table.foreign_keys:
            known = {row for row in keys_of(made[key.parent], key.parent_columns) if None not in row}
            lost = [row for row in keys_of(rows, key.columns) if None not in row and row not in known]
            missing = [row for row in keys_of(rows, key.columns) if None in row and not key.optional]
            wrong[key.name] = len(lost) + len(missing)
        for unique in (table.primary_key, *table.unique):
            complete = [row for row in keys_of(rows, unique) if None not in row]
            wrong[f"{table.name} {unique}"] = len(complete) - len(set(complete))
    return {where: number for where, number in wrong.items() if number}


def keys_of(rows: pa.Table, columns: tuple[str, ...]) -> list[tuple[object, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))


def null(rows: pa.Table, column: str) -> float:
    """Share of NULLs."""
    return rows.column(column).null_count / max(1, rows.num_rows)


def company(people: int = 250, seed: int = 0) -> tuple[Schema, Tables]:
    """One database with every case.

    employee: a self-reference, an optional unique reference, a cycle with office, a unique badge that others refer to;
    passport: its primary key is its foreign key; booking: a junction, by that badge; sale, parcel, item: several
    columns per key, and the item's two keys overlap; task: an owner key that may be NULL; memo: two private parents.
    """
    rng = np.random.default_rng(seed)
    country = Table("country", (integer("id"), integer("near", nullable=True)), ("id",), public=True)
    country = Table(
        *(country.name, country.columns, country.primary_key),
        (to("country", "near", "country", optional=True),),
        public=True,
    )
    spot = Table(
        "spot",
        (integer("country_id"), integer("no")),
        ("country_id", "no"),
        (to("spot", "country_id", "country"),),
        public=True,
    )
    employee = keyed(
        "employee",
        integer("badge", 1, 10**6),
        integer("boss", nullable=True),
        integer("office_id", nullable=True),
        integer("spot_country", nullable=True),
        integer("spot_no", nullable=True),
        category("grade", 3),
        keys=(
            to("employee", "boss", "employee", max_children=10, optional=True),
            to("employee", "office_id", "office", max_children=10, optional=True),
            to("employee", "spot_country spot_no", "spot", "country_id no", optional=True),
        ),
        unique=(("badge",), ("spot_country", "spot_no")),
    )
    office = keyed(
        "office", integer("tenant"), category("floor", 3), keys=(owner_key("office", "tenant", "employee", 2),)
    )
    passport = keyed("passport", category("kind", 2), keys=(owner_key("passport", "id", "employee", 1),))
    booking = Table(
        "booking",
        (integer("badge"), integer("country_id"), category("mood", 2)),
        ("badge", "country_id"),
        (
            to("booking", "badge", "employee", "badge", owner=True, max_children=4),
            to("booking", "country_id", "country"),
        ),
    )
    sale = Table(
        "sale",
        (integer("seller"), integer("no"), category("state", 2)),
        ("seller", "no"),
        (owner_key("sale", "seller", "employee", 3),),
    )
    parcel = Table(
        "parcel",
        (integer("seller"), integer("no"), integer("piece"), category("size", 2)),
        ("seller", "no", "piece"),
        (to("parcel", "seller no", "sale", "seller no", owner=True, max_children=2),),
    )
    item = Table(
        "item",
        (integer("seller"), integer("no"), integer("line"), integer("piece", nullable=True), category("size", 2)),
        ("seller", "no", "line"),
        (
            to("item", "seller no", "sale", "seller no", owner=True, max_children=3),
            to("item", "seller no piece", "parcel", "seller no piece", max_children=3, optional=True),
        ),
    )
    task = keyed(
        "task",
        integer("who", nullable=True),
        category("what", 3),
        keys=(to("task", "who", "employee", owner=True, max_children=3, optional=True),),
    )
    memo = keyed(
        "memo",
        integer("sender"),
        integer("receiver"),
        category("tone", 2),
        keys=(owner_key("memo", "sender", "employee", 2), to("memo", "receiver", "employee", max_children=2)),
    )
    n = people
    grade = rng.integers(0, 3, n)
    chiefs = [np.flatnonzero(grade > g) for g in range(3)]
    boss = np.array([rng.choice(chiefs[g]) if len(chiefs[g]) else -1 for g in grade])
    tenants = np.repeat(np.arange(n), rng.integers(0, 3, n))
    floor = rng.integers(0, 3, len(tenants))
    by_floor = [np.flatnonzero(floor == f) for f in range(3)]
    sits = np.array([rng.choice(by_floor[g]) for g in grade])
    parks = rng.permutation(n) < n // 4
    places = np.array([(c, p) for c in range(20) for p in range(n // 60 + 1)])
    parked = np.zeros((n, 2), np.int64)
    parked[parks] = places[rng.permutation(len(places))[: parks.sum()]]
    badge = rng.permutation(10**5)[:n] + 1
    booked = [(b, int(c)) for b in badge for c in rng.choice(20, rng.integers(0, 5), replace=False)]
    sales = [(s, k) for s in range(n) for k in range(rng.integers(0, 4))]
    parcels = [(s, k, p) for s, k in sales for p in range(rng.integers(0, 3))]
    sized = rng.integers(0, 2, len(parcels))
    of_sale: dict[tuple[int, int], list[int]] = {}
    for number, (s, k, _) in enumerate(parcels):
        of_sale.setdefault((s, k), []).append(number)
    items = [(s, k, line) for s, k in sales for line in range(rng.integers(0, 4))]
    packed = [rng.choice(of_sale[s, k]) if (s, k) in of_sale and rng.random() < 0.8 else -1 for s, k, _ in items]
    who = np.repeat(np.arange(n), rng.integers(0, 4, n))
    nobody = n // 2
    sender = np.repeat(np.arange(n), rng.integers(0, 3, n))
    tables = {
        "country": rows_of(country, id=np.arange(20), near=pa.array([None, *range(19)])),
        "spot": rows_of(spot, country_id=places[:, 0], no=places[:, 1]),
        "employee": rows_of(
            employee,
            id=np.arange(n),
            badge=badge,
            boss=pa.array(boss, mask=boss < 0),
            office_id=pa.array(sits, mask=rng.random(n) < 0.3),
            spot_country=pa.array(parked[:, 0], mask=~parks),
            spot_no=pa.array(parked[:, 1], mask=~parks),
            grade=texts(grade),
        ),
        "office": rows_of(office, id=np.arange(len(tenants)), tenant=tenants, floor=texts(floor)),
        "passport": rows_of(passport, id=np.flatnonzero(grade > 0), kind=texts(grade[grade > 0] - 1)),
        "booking": rows_of(
            booking,
            badge=[b for b, _ in booked],
            country_id=[c for _, c in booked],
            mood=texts(rng.integers(0, 2, len(booked))),
        ),
        "sale": rows_of(
            sale, seller=[s for s, _ in sales], no=[k for _, k in sales], state=texts(rng.integers(0, 2, len(sales)))
        ),
        "parcel": rows_of(
            parcel,
            seller=[p[0] for p in parcels],
            no=[p[1] for p in parcels],
            piece=[p[2] for p in parcels],
            size=texts(sized),
        ),
        "item": rows_of(
            item,
            seller=[i[0] for i in items],
            no=[i[1] for i in items],
            line=[i[2] for i in items],
            piece=pa.array([parcels[p][2] if p >= 0 else None for p in packed], pa.int64()),
            size=texts(np.array([sized[p] if p >= 0 else 0 for p in packed])),
        ),
        "task": rows_of(
            task,
            id=np.arange(len(who) + nobody),
            who=pa.array([*who.tolist(), *[None] * nobody]),
            what=texts(np.array([*rng.integers(0, 2, len(who)), *[2] * nobody])),
        ),
        "memo": rows_of(
            memo,
            id=np.arange(len(sender)),
            sender=sender,
            receiver=rng.permutation(np.repeat(np.arange(n), 2))[: len(sender)],
            tone=texts(rng.integers(0, 2, len(sender))),
        ),
    }
    order = (country, spot, employee, office, passport, booking, sale, parcel, item, task, memo)
    return Schema("company", order, "employee"), tables


@pytest.fixture(scope="module")
def exact() -> tuple[Schema, Tables, Tables]:
    schema, tables = company()
    made = draw_exactly(schema, check_rows(schema, tables, {}))
    return schema, tables, {name: sample.table for name, sample in made.items()}


@pytest.mark.parametrize("epsilon", [0.1, 3.2])
def test_all_keys_resolve_at_every_epsilon_and_the_bundle_is_published(epsilon: float, tmp_path: Path) -> None:
    schema, tables = company(120)
    place = place_of(tmp_path, schema, tables)
    result = place.run(epsilon)
    assert unresolved(schema, samples_of(result)) == {}
    assert broken_expectations(result) == []
    assert (place.out / "data" / "employee.parquet").exists()


def test_sizes_and_null_rates_are_those_of_the_source(exact: tuple[Schema, Tables, Tables]) -> None:
    schema, source, made = exact
    assert unresolved(schema, made) == {}
    assert schema.deferred_keys == {"employee.boss", "employee.office_id"}
    for name, rows in source.items():
        assert made[name].num_rows == pytest.approx(rows.num_rows, rel=0.06), name
    optional = [("employee", "boss"), ("employee", "office_id"), ("employee", "spot_no"), ("task", "who")]
    for name, column in optional:
        assert null(made[name], column) == pytest.approx(null(source[name], column), abs=0.04), (name, column)


def test_a_self_reference_follows_attributes_and_has_no_circles(exact: tuple[Schema, Tables, Tables]) -> None:
    _, _, made = exact
    rows = made["employee"].to_pydict()
    boss, grade = dict(zip(rows["id"], rows["boss"], strict=True)), dict(zip(rows["id"], rows["grade"], strict=True))
    for start in boss:
        seen, here = set(), start
        while here is not None:
            assert here not in seen, "a circle"
            seen.add(here)
            here = boss[here]
    higher = [grade[b] > grade[e] for e, b in boss.items() if b is not None]
    assert np.mean(higher) > 0.95


def test_a_cycle_of_tables_is_closed_by_attributes(exact: tuple[Schema, Tables, Tables]) -> None:
    _, _, made = exact
    floor = dict(keys_of(made["office"], ("id", "floor")))
    same = [floor[o] == g for o, g in keys_of(made["employee"], ("office_id", "grade")) if o is not None]
    assert np.mean(same) > 0.9


def test_an_overlapping_key_stays_inside_its_owner_and_follows_attributes(exact: tuple[Schema, Tables, Tables]) -> None:
    _, source, made = exact
    sizes: dict[tuple[object, ...], dict[object, object]] = {}
    for seller, no, piece, size in keys_of(made["parcel"], ("seller", "no", "piece", "size")):
        sizes.setdefault((seller, no), {})[piece] = size
    items = [r for r in keys_of(made["item"], ("seller", "no", "piece", "size")) if r[2] is not None]
    choosing = [r for r in items if len(set(sizes[r[:2]].values())) == 2]
    assert np.mean([sizes[r[:2]][r[2]] == r[3] for r in choosing]) > 0.9
    assert len(choosing) > 20  # enough to tell .9 from the .5 of chance
    assert len(items) > 0.6 * (source["item"].num_rows - source["item"].column("piece").null_count)


def test_rows_without_an_owner_keep_their_own_distribution(exact: tuple[Schema, Tables, Tables]) -> None:
    _, _, made = exact
    alone = [what == "v2" for who, what in keys_of(made["task"], ("who", "what")) if who is None]
    owned = [what == "v2" for who, what in keys_of(made["task"], ("who", "what")) if who is not None]
    assert np.mean(alone) > 0.95
    assert np.mean(owned) < 0.05


def test_one_to_one_tables_have_the_parents_keys(exact: tuple[Schema, Tables, Tables]) -> None:
    _, _, made = exact
    grade = dict(keys_of(made["employee"], ("id", "grade")))
    kinds = [int(kind[1:]) + 1 == int(grade[i][1:]) for i, kind in keys_of(made["passport"], ("id", "kind"))]
    assert np.mean(kinds) > 0.95


def test_unique_references_use_every_parent_at_most_once_even_when_all_are_taken() -> None:
    """As many parents as rows: the last rows must find the last free ones, and a full junction has every pair."""
    seat = Table("seat", (integer("id"), category("row", 2)), ("id",), public=True)
    guest = keyed(
        "guest",
        integer("seat_id"),
        category("class", 2),
        keys=(to("guest", "seat_id", "seat"),),
        unique=(("seat_id",),),
    )
    dish = Table(
        "dish",
        (integer("guest_id"), integer("seat_id")),
        ("guest_id", "seat_id"),
        (owner_key("dish", "guest_id", "guest", 60), to("dish", "seat_id", "seat")),
    )
    n = 60
    row = np.arange(n) % 2
    pairs = [(g, s) for g in range(n) for s in range(n)]
    tables = {
        "seat": rows_of(seat, id=np.arange(n), row=texts(row)),
        "guest": rows_of(guest, id=np.arange(n), seat_id=np.arange(n), **{"class": texts(row)}),
        "dish": rows_of(dish, guest_id=[g for g, _ in pairs], seat_id=[s for _, s in pairs]),
    }
    schema = Schema("dinner", (seat, guest, dish), "guest")
    samples = draw_exactly(schema, tables)
    made = {name: sample.table for name, sample in samples.items()}
    assert unresolved(schema, made) == {}
    assert made["guest"].num_rows == n
    assert made["dish"].num_rows > 0.9 * n * n
    assert all(not sample.dropped for sample in samples.values())


def test_orphans_that_are_dropped_take_their_dependants_and_empty_deferred_references() -> None:
    schema, tables = company(60)
    broken = tables["employee"].column("spot_country").to_pylist()
    first = next(i for i, value in enumerate(broken) if value is not None)
    broken[first] = 999
    where = tables["employee"].schema.get_field_index("spot_country")
    tables["employee"] = tables["employee"].set_column(where, "spot_country", pa.array(broken, pa.int64()))
    clean = check_rows(schema, tables, {"employee.(spot_country,spot_no)": "drop"})
    assert clean["employee"].num_rows == 59
    assert unresolved(schema, clean) == {}
    assert clean["employee"].column("boss").null_count >= tables["employee"].column("boss").null_count


def two(*keys: ForeignKey, nullable: tuple[str, ...] = ()) -> Schema:
    """A unit with columns a, b, c and two public tables to refer to."""
    one = Table("one", (integer("x"), integer("y")), ("x", "y"), public=True)
    other = Table("other", (integer("x"), integer("z")), ("x", "z"), public=True)
    columns = (integer("id"), *(integer(name, nullable=name in nullable) for name in "abc"))
    return Schema("two", (one, other, Table("unit", columns, ("id",), keys)), "unit")


def test_keys_that_cannot_be_left_empty_are_refused_before_anything_is_spent() -> None:
    both = (to("unit", "a b", "one", "x y", optional=True), to("unit", "a c", "other", "x z", optional=True))
    with pytest.raises(
        SpecError, match=r"unit\.a: is part of unit\.\(a,b\) and of unit\.\(a,c\), which may all be NULL"
    ):
        PrivBench().plan(two(*both, nullable=("a", "b", "c")), Budget(1.0), {})
    with pytest.raises(SpecError, match=r"unit\.a: not nullable, but in the optional key unit\.\(a,b\)"):
        PrivBench().plan(two(both[0], nullable=("b",)), Budget(1.0), {})


def test_two_required_keys_that_share_a_column_agree_on_it() -> None:
    schema = two(to("unit", "a b", "one", "x y"), to("unit", "a c", "other", "x z"))
    pairs = {"x": np.repeat(np.arange(5), 4), "n": np.tile(np.arange(4), 5)}
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 5, 200), rng.integers(0, 4, 200), rng.integers(0, 4, 200)
    tables = {
        "one": pa.table({"x": pairs["x"], "y": pairs["n"]}),
        "other": pa.table({"x": pairs["x"], "z": pairs["n"]}),
        "unit": pa.table({"id": np.arange(200), "a": a, "b": b, "c": c}),
    }
    made = {name: sample.table for name, sample in draw_exactly(schema, tables).items()}
    assert unresolved(schema, made) == {}
    assert made["unit"].num_rows == 200


@pytest.mark.parametrize("synthesizer", names() or ["privbench"])
def test_every_row_refers_to_another_along_a_required_key_that_lets_go(synthesizer: str, tmp_path: Path) -> None:
    """Views may see rows that refer to nothing; no bundle has one, even where noise hides all references."""
    database = forum(0, 100, required=True)
    rows = {name: found.cast(database.schema.table(name).arrow_schema) for name, found in database.tables.items()}
    place = place_of(tmp_path / "place", database.schema, rows, synthesizer=synthesizer, delta=1e-6)
    for epsilon in (0.2, 20.0):
        result = place.run_with(SeededNoise(1), epsilon)
        votes = samples_of(result)["vote"]
        assert votes.num_rows > 0
        assert votes.column("user_id").null_count == 0
        assert broken_expectations(result) == []
