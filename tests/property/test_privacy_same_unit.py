"""Keys that stay inside of a unit: they are enforced, and a removed unit then moves nobody else's rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench_core.engines.memory import PrivateDatabase
from privbench_core.errors import InternalError
from privbench_core.privacy.features import Feature, OwnerFanout, OwnFanout, ParentFanout, ParentRow
from privbench_core.privacy.relations import (
    WEIGHT_SCALE,
    deciding_tables,
    moved_rows,
    reference_moves,
    stability,
)
from privbench_core.privacy.view_building import build_view, distinct_weights
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema
from tests.helpers.databases import SECRET, Database
from tests.helpers.examples import examples
from tests.helpers.key_graphs import (
    Ids,
    Positions,
    cascading,
    database_of,
    diamond,
    key,
    measure,
    mixed,
    moved,
    seen_along,
    shift,
    table,
)

CASCADE = OnUnitRemoved.CASCADE
EXAMPLES = examples(8, 20)
Make = Callable[[int, int, int], Database]


def diamond_cascading(tau: int, most: int, seed: int) -> Database:
    """`diamond`, where rows go with what their optional keys refer to."""
    return cascading(diamond(tau, most, seed))


def mixed_cascading(tau: int, most: int, seed: int) -> Database:
    """`mixed`, likewise."""
    return cascading(mixed(tau, most, seed))


DIAMONDS = pytest.mark.parametrize("make", [diamond, diamond_cascading])
SHAPES = pytest.mark.parametrize("make", [diamond, diamond_cascading, mixed, mixed_cascading])


def neighbours(database: Database) -> Iterator[tuple[Database, set[tuple[str, int]]]]:
    """Every database with a unit less, and the rows of that unit."""
    owners = database.tables["a"].column("user_id").to_pylist()
    alone = [("a", row) for row, owner in enumerate(owners) if owner is None]
    for name, row in [*(("user", user) for user in range(4)), *alone]:
        yield database.without(row, name), owned(database, name, row)


def owned(database: Database, name: str, row: int) -> set[tuple[str, int]]:
    """A row and all that it owns, over any number of tables, kept or not."""
    found = {(name, row)}
    for t in database.schema.sampling_order:
        if t.owner_key is not None:
            owners = database.tables[t.name].column(t.owner_key.columns[0]).to_pylist()
            found |= {(t.name, i) for i, owner in enumerate(owners) if (t.owner_key.parent, owner) in found}
    return found


def shown(database: Database, name: str) -> dict[int, tuple[int, ...]]:
    """What views may see of each kept row: weight, group sizes, and the rows it refers to along all keys, by id."""
    private, schema = database.private(), database.schema
    columns = [private.weights(name)]
    for k in schema.table(name).foreign_keys:
        ids = database.tables[k.parent].column("id").to_numpy()
        parents = private.kept_parent_rows(k)
        columns.append(np.append(ids, -1)[parents])
        if k.owner:
            columns.append(np.append(private.group_sizes(k), 1)[parents])
    for t in schema.tables:
        columns += [private.group_sizes(k) for k in t.foreign_keys if k.owner and k.parent == name]
    ids = database.tables[name].column("id").to_pylist()
    rows = zip(ids, private.kept(name), zip(*columns, strict=True), strict=True)
    return {i: tuple(int(v) for v in values) for i, keep, values in rows if keep}


@DIAMONDS
@EXAMPLES
@given(st.integers(1, 3), st.integers(0, 10_000))
def test_a_unit_moves_its_own_rows_alone(make: Make, tau: int, seed: int) -> None:
    database = make(tau, 1, seed)
    before = {t.name: shown(database, t.name) for t in database.schema.tables}
    assert all(stability(database.schema, name) == 1 for name in before)
    for smaller, mine in neighbours(database):
        for name, rows in before.items():
            others = {i: values for i, values in rows.items() if (name, i) not in mine}
            assert shown(smaller, name) == others
            assert sum(rows[i][0] for i in rows if (name, i) in mine) <= WEIGHT_SCALE
            assert len(rows) - len(others) <= moved_rows(database.schema, name)


@SHAPES
@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 10_000))
def test_no_more_moves_than_the_stability_says(make: Make, tau: int, most: int, seed: int) -> None:
    database = make(tau, most, seed)
    schema = database.schema
    for smaller, _ in neighbours(database):
        for t in schema.tables:
            weight, rows = shift(database, smaller, t.name)
            assert weight <= stability(schema, t.name) * (1 + 1e-9)
            assert rows <= moved_rows(schema, t.name)


@SHAPES
@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 10_000))
def test_views_along_keys_move_no_more_than_they_say(make: Make, tau: int, most: int, seed: int) -> None:
    """What a row refers to is told by the id of the row, so that any change of it counts."""
    database = make(tau, most, seed)
    schema = database.schema
    keys = [k for t in schema.tables for k in t.foreign_keys]
    spec = {k: ViewSpec(k.child, {"to": (ParentRow(k), Positions())}) for k in keys}  # type: ignore[dict-item]
    private = database.private()
    views = {k: build_view(private, spec[k]) for k in keys}
    before = {k: seen_along(database, private, k) for k in keys}
    for smaller, _ in neighbours(database):
        left = smaller.private()
        for k, view in views.items():
            shifted = moved(before[k], seen_along(smaller, left, k))
            assert view.stability == (stability(schema, k.child) + reference_moves(schema, k)) * view.weight_scale
            assert shifted <= view.stability / view.weight_scale * WEIGHT_SCALE * (1 + 1e-9)


@SHAPES
@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 10_000))
def test_the_weight_of_texts_moves_no_more_in_l2_than_the_stability_says(
    make: Make, tau: int, most: int, seed: int
) -> None:
    database = with_words(make(tau, most, seed), seed)
    for smaller, _ in neighbours(database):
        private, left = database.private(), smaller.private()
        for t in database.schema.tables:
            (one, view), (other, _) = (distinct_weights(rows, t.name, "word", ()) for rows in (private, left))
            shifts = np.array([one.get(word, 0) - other.get(word, 0) for word in one.keys() | other.keys()])
            assert np.sqrt((shifts.astype(float) ** 2).sum()) <= view.stability
            alone = [(one | other)[word] for word in one.keys() ^ other.keys()]
            assert max(alone, default=0) <= view.stability
            assert len(alone) <= view.touched


def with_words(database: Database, seed: int) -> Database:
    """The same database with a text in every row."""
    rng = np.random.default_rng(seed)
    column = Column("word", ColumnType.CATEGORY, Learn(), nullable=True)
    tables = tuple(replace(t, columns=(*t.columns, column)) for t in database.schema.tables)
    rows = {
        n: r.append_column("word", pa.array(rng.choice(["a", "b", "c", "d", None], r.num_rows), pa.string()))
        for n, r in database.tables.items()
    }
    return Database(replace(database.schema, tables=tables), rows)


@DIAMONDS
@EXAMPLES
@given(st.integers(1, 3), st.integers(0, 10_000))
def test_a_reference_that_stays_inside_keeps_its_row(make: Make, tau: int, seed: int) -> None:
    """No more is dropped than has to be: of rows that keep to their unit, and whose parents are kept, τ per owner."""
    database = make(tau, 1, seed)
    private = database.private()
    unit_of = {row: (name, i) for name, i in _units(database) for row in owned(database, name, i)}
    for t in database.schema.tables:
        owner = t.owner_key
        if owner is None:
            continue
        kept, alive = private.kept(t.name), np.ones(private.rows(t.name), dtype=bool)
        for k in t.foreign_keys:
            if not k.cascades:
                continue
            for i, to in enumerate(database.tables[t.name].column(k.columns[0]).to_pylist()):
                fine = to is None or (unit_of[k.parent, to] == unit_of[t.name, i] and private.kept(k.parent)[to])
                alive[i] &= fine
        assert not (kept & ~alive).any()
        owners = database.tables[t.name].column(owner.columns[0]).to_pylist()
        for parent in range(private.rows(owner.parent)):
            group = np.array([to == parent for to in owners])
            assert (kept & group).sum() == min((alive & group).sum(), tau)
        assert kept[[to is None for to in owners] & alive].all()


def _units(database: Database) -> list[tuple[str, int]]:
    owners = database.tables["a"].column("user_id").to_pylist()
    return [*(("user", u) for u in range(4)), *(("a", i) for i, owner in enumerate(owners) if owner is None)]


def test_rows_that_leave_their_unit_take_no_slot() -> None:
    """One visit per person is kept; whichever pays another person's bill, it is one of the others."""
    schema = Schema(
        "clinic",
        (
            table("person"),
            table("bill", key("bill", "person", "person", 1, owner=True)),
            table(
                "visit",
                key("visit", "person", "person", 1, owner=True),
                key("visit", "bill", "bill", None, same_unit=True),
            ),
        ),
        "person",
    )
    for bills, stays in (([7, 8], 0), ([8, 7], 1)):
        rows = {
            "person": {"id": [1, 2]},
            "bill": {"id": [7, 8], "person": [1, 2]},
            "visit": {"id": [0, 1], "person": [1, 1], "bill": bills},
        }
        assert set(measure(database_of(schema, rows), "visit")) == {stays}
    for away in range(3):  # of three, so that there is one too many besides the one that leaves, wherever it ranks
        rows = {
            "person": {"id": [1, 2]},
            "bill": {"id": [7, 8], "person": [1, 2]},
            "visit": {"id": [0, 1, 2], "person": [1, 1, 1], "bill": [8 if visit == away else 7 for visit in range(3)]},
        }
        (stayed,) = measure(database_of(schema, rows), "visit")
        assert stayed != away


def test_rows_without_an_owner_are_units_of_their_own() -> None:
    """An order without a customer may ship its own lines' parcels, and those of nobody else without a customer."""
    schema = Schema(
        "mail",
        (
            table("customer"),
            table("order", key("order", "customer", "customer", 3, owner=True, optional=True)),
            table("parcel", key("parcel", "order", "order", 3, owner=True)),
            table(
                "line",
                key("line", "order", "order", 3, owner=True),
                key("line", "parcel", "parcel", None, same_unit=True),
            ),
        ),
        "customer",
    )
    rows = {
        "customer": {"id": [0, 1]},
        "order": {"id": [0, 1, 2], "customer": [None, None, 1]},
        "parcel": {"id": [10, 11, 12], "order": [0, 1, 2]},
        "line": {"id": [0, 1, 2, 3], "order": [0, 0, 1, 2], "parcel": [10, 11, 12, 12]},
    }
    assert set(measure(database_of(schema, rows), "line")) == {0, 3}


def test_what_decides_about_rows_includes_the_unit_where_its_keys_differ() -> None:
    """Two columns of the unit's table are one person's only by its rows."""
    by_name = ForeignKey("bill", ("who",), "person", ("name",), max_children=2, owner=True)
    visit = table(
        "visit", key("visit", "person", "person", 2, owner=True), key("visit", "bill", "bill", None, same_unit=True)
    )
    alike = Schema("c", (table("person"), table("bill", key("bill", "who", "person", 2, owner=True)), visit), "person")
    mapped = replace(alike, tables=(alike.tables[0], table("bill", by_name), visit))
    assert set(deciding_tables(alike, "visit")) == {"visit", "bill"}
    assert set(deciding_tables(mapped, "visit")) == {"visit", "bill", "person"}
    assert set(deciding_tables(mapped, "bill")) == {"bill"}
    later = table(
        "visit",
        key("visit", "person", "person", 2, owner=True),
        key("visit", "bill", "bill", None, optional=True, same_unit=True),
    )
    both = (table("person"), later, table("bill", by_name, key("bill", "visit", "visit", 1, optional=True)))
    cycle = replace(mapped, tables=both)
    assert "visit.bill" in cycle.deferred_keys
    assert set(deciding_tables(cycle, "visit", "bill")) == {"visit", "bill", "person"}


def test_a_unit_that_reaches_into_another_moves_what_depends_on_it_there() -> None:
    """Same-unit keys pass on what an ordinary key lets in: the bound must see through them."""
    schema = mixed_cascading(2, 1, 0).schema
    assert stability(schema, "a") == 1
    reached = {name: stability(schema, name) for name in ("b", "c", "d", "e", "f")}
    rows = moved_rows(schema, "a")
    assert reached["b"] == reached["c"] == reached["d"] == 1 + 2 * rows
    assert reached["e"] == reached["f"] == 1 + 2 * (rows + moved_rows(schema, "c"))
    assert moved_rows(schema, "c") > moved_rows(schema, "a") * 2


def test_a_bound_for_whole_units_replaces_the_product() -> None:
    """It counts for the removed unit, and for each other that changes in the parent."""

    def linked(per_unit: int | None, *more: ForeignKey) -> Schema:
        post = table("post", key("post", "user", "user", 20, owner=True), *more)
        pair = key("link", "post", "post", 5, owner=True), key("link", "to", "post", 10, per_unit=per_unit)
        return Schema("site", (table("user"), post, table("link", *pair)), "user")

    assert stability(linked(None), "link") == 1 + 2 * 20 * 10
    assert stability(linked(30), "link") == 1 + 2 * 30
    assert stability(linked(1000), "link") == 1 + 2 * 20 * 10
    assert moved_rows(linked(30), "link") == 20 * 5 + 2 * 30
    editor = key("post", "editor", "user", 3, removed=CASCADE)
    assert stability(linked(30, editor), "post") == 1 + 2 * 3
    assert stability(linked(30, editor), "link") == 1 + 2 * 3 + 2 * (1 + 3) * 30
    set_null = linked(30, replace(editor, on_unit_removed=None))
    assert stability(set_null, "link") == 1 + 2 * 30


def test_a_reference_inside_of_a_unit_is_lost_with_a_row_that_another_unit_takes_away() -> None:
    """User 1 helps with a plan of user 2, whose visit refers to it: all that a view along the key claims is reached."""
    plan = table(
        "plan",
        key("plan", "user", "user", 1, owner=True),
        key("plan", "helper", "user", 1, removed=CASCADE),
    )
    to_plan = key("visit", "plan", "plan", None, same_unit=True, optional=True)
    visit = table("visit", key("visit", "user", "user", 1, owner=True), to_plan)
    rows: dict[str, dict[str, Ids]] = {
        "user": {"id": [1, 2]},
        "plan": {"id": [5], "user": [2], "helper": [1]},
        "visit": {"id": [7, 8], "user": [2, 1], "plan": [5, None]},
    }
    database = database_of(Schema("practice", (table("user"), plan, visit), "user"), rows)
    smaller = database.without(1, "user")
    assert smaller.tables["visit"].column("plan").to_pylist() == [None]
    one, other = (seen_along(each, each.private(), to_plan) for each in (database, smaller))
    claimed = stability(database.schema, "visit") + reference_moves(database.schema, to_plan)
    assert moved(one, other) == claimed * WEIGHT_SCALE == 3 * WEIGHT_SCALE


def test_where_optional_keys_become_null_nothing_is_passed_on() -> None:
    schema = mixed(2, 1, 0).schema
    assert all(stability(schema, t.name) == 1 for t in schema.tables)
    optional = [k for t in schema.tables for k in t.foreign_keys if not k.cascades]
    along = {k.name: reference_moves(schema, k) for k in optional}
    assert along == {k.name: 0 if k.same_unit else 2 * moved_rows(schema, k.parent) for k in optional}
    assert set(along.values()) == {0, 4, 8}


@SHAPES
@examples(2, 3)
@given(st.integers(1, 3), st.integers(0, 10_000))
def test_where_a_private_row_stands_is_in_no_view(make: Make, tau: int, seed: int) -> None:
    """Positions shift with the rows before: a view that told them would change for units that are still there."""
    database = make(tau, 1, seed)
    for k in (k for t in database.schema.tables for k in t.foreign_keys):
        spec = ViewSpec(k.child, {"to": (ParentRow(k), Positions())})  # type: ignore[dict-item]
        view = build_view(database.private(), spec)
        assert set(view.codes["to"].tolist()) <= {0, Positions.size - 1}
        for smaller, _ in neighbours(database):
            shifted = np.abs(view.counts(["to"]) - build_view(smaller.private(), spec).counts(["to"])).sum()
            assert shifted <= view.stability, k.name


@pytest.mark.parametrize("feature", [OwnerFanout, OwnFanout])
def test_groups_are_those_of_the_kept_rows(feature: type[Feature]) -> None:
    database = diamond_cascading(3, 1, 3)
    private = database.private()
    k = database.schema.table("c").owner_key
    assert k is not None
    everybody = np.bincount(private.parent_rows(k), minlength=private.rows("a"))
    assert (private.group_sizes(k) < np.minimum(everybody, 3)).any(), "no row is dropped: the test looks at nothing"
    name = "c" if feature is OwnerFanout else "a"
    view = build_view(private, ViewSpec(name, {"n": (feature(k), Positions())}))  # type: ignore[dict-item,call-arg]
    sizes = private.group_sizes(k)
    expected = sizes[private.parent_rows(k)][private.kept("c")] if name == "c" else sizes[private.kept("a")]
    assert view.codes["n"].tolist() == expected.tolist()


def test_a_view_of_two_counts_moves_where_either_does() -> None:
    """A removed unit takes children of two others away, along one key each: two rows change their counts."""
    schema = Schema(
        "town",
        (
            table("home"),
            table("spring", key("spring", "home", "home", 1, owner=True)),
            table(
                "well", key("well", "home", "home", 1, owner=True), key("well", "spring", "spring", 1, removed=CASCADE)
            ),
            table(
                "pond", key("pond", "home", "home", 1, owner=True), key("pond", "spring", "spring", 1, removed=CASCADE)
            ),
        ),
        "home",
    )
    rows = {
        "home": {"id": [0, 1, 2]},
        "spring": {"id": [0], "home": [0]},
        "well": {"id": [0, 1], "home": [1, 0], "spring": [0, None]},
        "pond": {"id": [0, 1], "home": [2, 0], "spring": [0, None]},
    }
    database = database_of(schema, rows)
    counted = {name: (OwnFanout(owner_of(schema, name)), Positions()) for name in ("well", "pond")}
    views = [
        build_view(d.private(), ViewSpec("home", counted))  # type: ignore[arg-type]
        for d in (database, database.without(0, "home"))
    ]
    cells = [list(zip(*(view.codes[name].tolist() for name in counted), strict=True)) for view in views]
    shifted = sum(abs(cells[0].count(cell) - cells[1].count(cell)) for cell in {*cells[0], *cells[1]})
    assert shifted == views[0].stability == 5


def owner_of(schema: Schema, name: str) -> ForeignKey:
    found = schema.table(name).owner_key
    assert found is not None
    return found


def test_views_look_only_where_their_stability_was_worked_out() -> None:
    database = mixed(2, 1, 0)
    schema = database.schema
    strays: list[tuple[str, Feature]] = [
        ("a", OwnFanout(schema.table("b").foreign_keys[1])),  # not their owner key
        ("b", OwnFanout(owner_of(schema, "c"))),
        ("b", OwnerFanout(owner_of(schema, "c"))),
        ("b", OwnerFanout(schema.table("b").foreign_keys[1])),
        ("b", ParentRow(owner_of(schema, "c"))),
        ("b", ParentFanout(owner_of(schema, "b"), schema.table("b").foreign_keys[1])),
        ("b", ParentFanout(schema.table("b").foreign_keys[1], owner_of(schema, "b"))),
        ("c", ParentFanout(owner_of(schema, "c"), owner_of(schema, "b"))),
        ("a", ParentFanout(owner_of(schema, "c"), owner_of(schema, "c"))),
    ]
    for name, feature in strays:
        with pytest.raises(InternalError, match=f"not what a view of {name} can look along"):
            build_view(database.private(), ViewSpec(name, {"x": (feature, Positions())}))  # type: ignore[dict-item]


def test_the_order_of_rows_decides_nothing() -> None:
    database = diamond(1, 1, 5)
    shuffled = database.shuffled(1)
    assert all(measure(database, t.name) == measure(shuffled, t.name) for t in database.schema.tables)
    secrets = [PrivateDatabase(database.schema, database.tables, SECRET[::-1]), database.private()]
    assert any(not np.array_equal(secrets[0].kept(t.name), secrets[1].kept(t.name)) for t in database.schema.tables)
