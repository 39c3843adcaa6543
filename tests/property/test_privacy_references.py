"""What one unit can move through keys off the ownership path: cascades, self-references, cycles, no owners."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench_core.privacy.budget import Budget
from privbench_core.privacy.features import ParentRow
from privbench_core.privacy.relations import WEIGHT_SCALE, moved_rows, reference_moves, stability
from privbench_core.privacy.view_building import build_view
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.tables import Schema
from privbench_core.synthesizers.contract import Synthesizer
from privbench_core.synthesizers.privbench import PrivBench
from privbench_core.synthesizers.privpetal import PrivPetal
from tests.helpers.databases import Database
from tests.helpers.examples import examples
from tests.helpers.key_graphs import (
    Positions,
    capped,
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
    with_attributes,
)
from tests.helpers.plans import record, replay_within_prices

EXAMPLES = examples(25, 80)


def blog(tau: int, most: int, seed: int, *, none: float = 0.2) -> Database:
    """User, post (maybe without owner), note on a post, that may also quote another post; far more posts than τ."""
    schema = Schema(
        "blog",
        (
            table("user"),
            table("post", key("post", "user_id", "user", tau, owner=True, optional=True)),
            table(
                "note", key("note", "post_id", "post", 2, owner=True), key("note", "quote", "post", most, optional=True)
            ),
        ),
        "user",
    )
    rng = np.random.default_rng(seed)
    posts, notes = list(range(12)), list(range(15))
    rows = {
        "user": {"id": list(range(4))},
        "post": {"id": posts, "user_id": [None if rng.random() < none else int(rng.integers(4)) for _ in posts]},
        "note": {"id": notes, "post_id": rng.integers(0, 12, 15).tolist(), "quote": capped(rng, 15, posts, most, 0.2)},
    }
    return database_of(schema, rows)


def blog_cascading(tau: int, most: int, seed: int, *, none: float = 0.2) -> Database:
    """`blog`, where notes go with what they quote."""
    return cascading(blog(tau, most, seed, none=none))


BLOGS = pytest.mark.parametrize("make", [blog, blog_cascading])


@BLOGS
@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10_000))
def test_a_unit_with_more_rows_than_its_bound_moves_no_more_of_the_others(
    make: Callable[..., Database], tau: int, most: int, seed: int
) -> None:
    database = make(tau, most, seed)
    for user in range(4):
        smaller = database.without(user, "user")
        for name in ("user", "post", "note"):
            weight, rows = shift(database, smaller, name)
            assert weight <= stability(database.schema, name) * (1 + 1e-9)
            assert rows <= moved_rows(database.schema, name)


@BLOGS
@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10_000))
def test_a_row_without_an_owner_is_a_unit(make: Callable[..., Database], tau: int, most: int, seed: int) -> None:
    database = make(tau, most, seed, none=0.6)
    owners = database.tables["post"].column("user_id").to_pylist()
    alone = [i for i, owner in enumerate(owners) if owner is None]
    for post in alone:
        assert measure(database, "post")[post] == WEIGHT_SCALE
        smaller = database.without(post, "post")
        for name in ("user", "post", "note"):
            assert shift(database, smaller, name)[0] <= stability(database.schema, name) * (1 + 1e-9)


def staff(most: int, tau: int, seed: int) -> Database:
    """Persons report to persons and own shops, of which each may prefer one: a self-reference and a cycle."""
    schema = Schema(
        "staff",
        (
            table(
                "person",
                key("person", "boss", "person", most, optional=True),
                key("person", "shop", "shop", most, optional=True),
            ),
            table("shop", key("shop", "owner", "person", tau, owner=True)),
        ),
        "person",
    )
    rng = np.random.default_rng(seed)
    rows = {
        "person": {
            "id": list(range(9)),
            "boss": capped(rng, 9, list(range(9)), most, 0.2),
            "shop": capped(rng, 9, list(range(14)), most, 0.2),
        },
        "shop": {"id": list(range(14)), "owner": rng.integers(0, 5, 14).tolist()},
    }
    return database_of(schema, rows)


@EXAMPLES
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 10_000))
def test_self_references_and_cycles_move_only_the_views_that_look_along_them(most: int, tau: int, seed: int) -> None:
    database = staff(most, tau, seed)
    schema = database.schema
    assert schema.deferred_keys == {"person.boss", "person.shop"}
    assert stability(schema, "person") == stability(schema, "shop") == 1
    for person in range(9):
        smaller = database.without(person, "person")
        for name in ("person", "shop"):
            assert shift(database, smaller, name)[0] <= 1
        for k in schema.table("person").foreign_keys:
            shifted = moved(*(seen_along(d, d.private(), k) for d in (database, smaller)))
            view = build_view(database.private(), ViewSpec("person", {"to": (ParentRow(k), Positions())}))  # type: ignore[dict-item]
            assert view.stability == 1 + reference_moves(schema, k)
            assert shifted <= view.stability * WEIGHT_SCALE


@EXAMPLES
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 10_000))
def test_where_references_become_null_no_other_row_or_weight_moves(tau: int, most: int, seed: int) -> None:
    """Of other units' notes nothing changes but what they quote, and of that no more than the bound on quotes says."""
    database = blog(tau, most, seed)
    schema = database.schema
    (quote,) = (k for k in schema.table("note").foreign_keys if not k.owner)
    assert not schema.deferred_keys, "no second pass: privacy has nothing to do with the order of sampling"
    assert [stability(schema, t.name) for t in schema.tables] == [1, 1, 1]
    assert reference_moves(schema, quote) == 2 * tau * most
    before, notes = measure(database, "note"), database.tables["note"].to_pydict()
    above = dict(zip(*(database.tables["post"].column(c).to_pylist() for c in ("id", "user_id")), strict=True))
    owner = {note: above[post] for note, post in zip(notes["id"], notes["post_id"], strict=True)}
    for user in range(4):
        smaller = database.without(user, "user")
        others = {note: weight for note, weight in before.items() if owner[note] != user}
        assert measure(smaller, "note") == others
        assert sum(before.values()) - sum(others.values()) <= WEIGHT_SCALE
        shifted = moved(*(seen_along(d, d.private(), quote) for d in (database, smaller)))
        assert shifted <= (1 + reference_moves(schema, quote)) * WEIGHT_SCALE


def test_references_that_become_null_do_move_views_along_them() -> None:
    """The bound on such views is not idle: other units' quotes do change, by more than one unit's weight."""
    furthest = 0.0
    for seed in range(40):
        database = blog(1, 3, seed)
        (quote,) = (k for k in database.schema.table("note").foreign_keys if not k.owner)
        for user in range(4):
            pair = (database, database.without(user, "user"))
            furthest = max(furthest, moved(*(seen_along(d, d.private(), quote) for d in pair)) / WEIGHT_SCALE)
    assert 2 < furthest <= 7


def test_a_lost_reference_of_a_unit_with_few_rows_moves_all_of_its_weight() -> None:
    """Counted by classes of units, a row of a small unit weighs 1, whatever T the largest class has."""
    to_plan = key("visit", "plan", "plan", 1, optional=True)
    schema = Schema(
        "practice",
        (
            table("user"),
            table("plan", key("plan", "user", "user", 1, owner=True)),
            table("visit", key("visit", "user", "user", 8, owner=True), to_plan),
        ),
        "user",
    )
    rows: dict[str, dict[str, list[int | None]]] = {
        "user": {"id": [1, 2]},
        "plan": {"id": [5, 6], "user": [1, 2]},
        "visit": {"id": [7, 8], "user": [2, 1], "plan": [5, 6]},
    }
    database = database_of(schema, rows)
    spec = ViewSpec("visit", {"to": (ParentRow(to_plan), Positions())}, (1, 4))  # type: ignore[dict-item]
    one, other = (build_view(d.private(), spec) for d in (database, database.without(1, "user")))
    assert np.abs(one.counts(["to"]) - other.counts(["to"])).sum() == one.stability == 3 * WEIGHT_SCALE


def test_rows_are_kept_whatever_becomes_of_what_they_refer_to() -> None:
    """A note that quotes a post beyond its author's bound stays, with its weight, and is read as quoting none."""
    database = blog(1, 3, 0)
    private = database.private()
    (quote,) = (k for k in database.schema.table("note").foreign_keys if not k.owner)
    emptied = private.parent_rows(quote).copy()
    lost = (emptied >= 0) & ~np.append(private.kept("post"), True)[emptied]
    assert (lost & private.kept("note")).any()
    emptied[lost] = -1
    assert private.kept_parent_rows(quote).tolist() == emptied.tolist()
    column = pa.array([None if p < 0 else p for p in emptied.tolist()], pa.int64())  # a post's id is its place
    where = database.tables["note"].schema.get_field_index("quote")
    without_them = database.tables["note"].set_column(where, "quote", column)
    read = replace(database, tables={**database.tables, "note": without_them})
    assert measure(read, "note") == measure(database, "note")


def test_what_depends_on_truncated_rows_is_not_kept() -> None:
    database = blog_cascading(1, 3, 0)
    private = database.private()
    kept = set(np.flatnonzero(private.kept("post")))
    assert len(kept) < 12
    notes = database.tables["note"].to_pydict()
    for row in np.flatnonzero(private.kept("note")):
        assert notes["post_id"][row] in kept
        assert notes["quote"][row] is None or notes["quote"][row] in kept


SHAPES: dict[str, tuple[Callable[..., Database], str, str | None]] = {
    "blog": (blog, "user", "post"),
    "blog cascading": (blog_cascading, "user", "post"),
    "staff": (staff, "person", None),
    "diamond": (diamond, "user", "a"),
    "mixed": (mixed, "user", "a"),
    "mixed cascading": (lambda *size: cascading(mixed(*size)), "user", "a"),
}
PLANS: dict[str, tuple[Budget, Synthesizer, dict[str, float]]] = {
    "pure": (Budget(30.0), PrivBench(), {"beta": 2}),
    "Gaussian": (Budget(30.0, 1e-6), PrivBench(), {"beta": 2}),
    "groups": (Budget(3000.0, 1e-6), PrivPetal(), {"usefulness": 0.1}),
}
# Every shape and every plan in every run, all pairs of them in the slow one.
_QUICK = {*product([*SHAPES][:-1], ["Gaussian"], [0]), ("mixed", "pure", 0), ("blog cascading", "groups", 0)}


@pytest.mark.parametrize(
    ("shape", "kind", "seed"),
    [pytest.param(*case, marks=[] if case in _QUICK else pytest.mark.slow) for case in product(SHAPES, PLANS, (0, 1))],
)
def test_a_whole_plan_moves_no_noise_beyond_its_price(shape: str, kind: str, seed: int) -> None:
    """Record on a database, replay on a neighbour: all artifacts are the same, every call stays in its bounds."""
    (make, unit, alone), (budget, synthesizer, options) = SHAPES[shape], PLANS[kind]
    database = with_attributes(make(2, 2, seed), seed)
    plan = synthesizer.plan(database.schema, budget, options)
    recorded, first = record(plan, database, seed)
    gone = [(unit, number) for number in range(4)]
    if alone is not None:
        owners = database.tables[alone].column("user_id").to_pylist()
        gone += [(alone, number) for number, owner in enumerate(owners) if owner is None][:2]
    for name, number in gone:
        losses = replay_within_prices(plan, recorded, first, database.without(number, name))
        assert losses["moved",] > 0
