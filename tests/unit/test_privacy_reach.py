"""Truncation against an attacker: keys written differently, dropped rows, units that reach into others."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.exact_sums import contingency
from privbench_core.columns.registry import codec_for
from privbench_core.engines.memory import PrivateDatabase
from privbench_core.privacy.features import OfParent, Own
from privbench_core.privacy.relations import WEIGHT_SCALE, reference_moves, stability
from privbench_core.privacy.view_building import build_view, distinct_weights
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from tests.helpers.databases import SECRET, Database
from tests.helpers.key_graphs import INTEGER, key, moved, seen_along, shift, table

CASCADE, SET_NULL = OnUnitRemoved.CASCADE, OnUnitRemoved.SET_NULL
owned, cascading = partial(key, owner=True), partial(key, removed=CASCADE)
UNIT = Table("unit", (Column("id", INTEGER),), ("id",))


def integers(values: object) -> pa.Array:
    """An Arrow column of 64-bit integers."""
    return pa.array(values, pa.int64())


def posts_with(of_author: int, answers: int) -> Table:
    """Posts that may answer others, with these bounds, and whether each is long."""
    keys = (
        key("post", "author", "unit", of_author, owner=True),
        key("post", "answers", "post", answers, removed=SET_NULL),
    )
    made = table("post", *keys)
    return replace(made, columns=(*made.columns, Column("long", ColumnType.BOOLEAN)))


@pytest.mark.parametrize("odd", [dt.time(3, 4, 5), dt.time(3, 4, 5, 678), dt.time(0)])
def test_other_units_timestamps_do_not_decide_which_rows_are_kept(odd: dt.time) -> None:
    event = Table(
        "event",
        (Column("unit_id", INTEGER), Column("at", ColumnType.TIMESTAMP)),
        ("unit_id", "at"),
        (ForeignKey("event", ("unit_id",), "unit", ("id",), max_children=2, owner=True),),
    )
    rows = [
        (u, dt.datetime.combine(dt.date(2020, 1, d), odd if u == 20 else dt.time(0)))
        for u in range(21)
        for d in range(1, 7)
    ]
    events = {"unit_id": integers([u for u, _ in rows]), "at": pa.array([at for _, at in rows], pa.timestamp("us"))}
    tables = {"unit": pa.table({"id": integers(range(21))}), "event": pa.table(events)}
    database = Database(Schema("d", (UNIT, event), "unit"), tables)
    kept, without = database.private().kept("event"), database.without(20).private().kept("event")
    assert kept[:120].tolist() == without.tolist()


def test_dropped_rows_do_not_name_values() -> None:
    row = Table(
        "row",
        (Column("id", INTEGER), Column("up", INTEGER), Column("word", ColumnType.CATEGORY, Learn())),
        ("id",),
        (owned("row", "up", "unit", 2),),
    )
    words = [f"word {i}" for i in range(500)]
    rows = pa.table({"id": integers(range(500)), "up": integers([1] * 500), "word": pa.array(words)})
    private = PrivateDatabase(
        Schema("d", (UNIT, row), "unit"), {"unit": pa.table({"id": integers([1])}), "row": rows}, SECRET
    )
    exact, view = distinct_weights(private, "row", "word", ())
    assert len(exact) == view.touched == 2


def test_a_parent_beyond_its_bound_reaches_nobody() -> None:
    schema = Schema(
        "d",
        (
            UNIT,
            table("post", owned("post", "author", "unit", 2)),
            table("vote", owned("vote", "voter", "unit", 3), cascading("vote", "post", "post", 1)),
        ),
        "unit",
    )
    others = range(1, 40)  # unit 0 has 39 posts, and everybody else votes once, on one of them
    tables = {
        "unit": pa.table({"id": integers(range(40))}),
        "post": pa.table({"id": integers([*others, 99]), "author": integers([0] * 39 + [1])}),
        "vote": pa.table({"id": integers(others), "voter": integers(others), "post": integers(others)}),
    }
    database = Database(schema, tables)
    declared = stability(schema, "vote")
    assert shift(database, database.without(0), "vote")[0] <= declared
    views = [build_view(d.private(), ViewSpec("vote", {})) for d in (database, database.without(0))]
    totals = [int(view.data.held().weights.sum()) for view in views if view.data.held().weights is not None]
    assert abs(totals[0] - totals[1]) <= views[0].stability


def test_what_is_removed_along_the_way_takes_its_children_with_it() -> None:
    schema = Schema(
        "d",
        (
            UNIT,
            table("post", owned("post", "author", "unit", 1), cascading("post", "editor", "unit", 5)),
            table("comment", owned("comment", "post", "post", 20)),
            table("like", owned("like", "fan", "unit", 1), cascading("like", "comment", "comment", 1)),
        ),
        "unit",
    )
    fans = range(10, 110)  # unit 0 edits the posts of units 1 to 5; their 100 comments are liked by 100 others
    tables = {
        "unit": pa.table({"id": integers(range(110))}),
        "post": pa.table({"id": integers(range(1, 6)), "author": integers(range(1, 6)), "editor": integers([0] * 5)}),
        "comment": pa.table({"id": integers(fans), "post": integers([1 + fan % 5 for fan in fans])}),
        "like": pa.table({"id": integers(fans), "fan": integers(fans), "comment": integers(fans)}),
    }
    database = Database(schema, tables)
    assert shift(database, database.without(0), "like")[0] <= stability(schema, "like")


@pytest.mark.parametrize("last", [2**60 + 2, None])
def test_large_keys_find_their_parents_whether_or_not_another_is_null(last: int | None) -> None:
    row = table("row", owned("row", "up", "unit", 2), cascading("row", "other", "unit", 3))
    ids = [2**60, 2**60 + 1, 2**60 + 2]
    rows = pa.table({"id": integers([1, 2, 3]), "up": integers(ids), "other": integers([*ids[:2], last])})
    private = PrivateDatabase(
        Schema("d", (UNIT, row), "unit"), {"unit": pa.table({"id": integers(ids)}), "row": rows}, SECRET
    )
    assert private.parent_rows(row.foreign_keys[1]).tolist()[:2] == [0, 1]


@st.composite
def networks(draw: st.DrawFn) -> Database:
    """Random tables, each owned by an earlier one, with more private parents whose declared bounds the data keeps.

    Some of these other keys cascade, some become NULL; of some it is declared how many rows refer to a whole unit.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    names = ["unit", "a", "b", "c", "d"]
    tables, rows = [UNIT], {"unit": {"id": list(range(int(rng.integers(2, 6))))}}
    units = {"unit": rows["unit"]["id"]}
    for place, name in enumerate(names[1:], start=1):
        up = names[int(rng.integers(place))]
        keys = [key(name, "up", up, int(rng.integers(1, 4)), owner=True)]
        count = int(rng.integers(0, 14)) if rows[up]["id"] else 0
        columns: dict[str, list[int | None]] = {"id": list(range(count))}
        columns["up"] = [int(v) for v in rng.choice(rows[up]["id"], count)] if count else []
        units[name] = [units[up][owner] for owner in columns["up"]]
        for number in range(int(rng.integers(0, 3))):
            other, most = names[int(rng.integers(place))], int(rng.integers(1, 4))
            removed = CASCADE if rng.random() < 0.5 else SET_NULL
            slots = rng.permutation([v for v in rows[other]["id"] for _ in range(most)]).tolist()
            refs = [int(slots.pop()) if slots and rng.random() < 0.7 else None for _ in range(count)]
            columns[f"other{number}"] = refs
            of_units = Counter(units[other][ref] for ref in refs if ref is not None)
            per_unit = max(of_units.values(), default=1) if rng.random() < 0.7 else None
            keys.append(key(name, f"other{number}", other, most, removed=removed, per_unit=per_unit))
        tables.append(table(name, *keys))
        rows[name] = columns
    arrow = {n: pa.table({c: integers(v) for c, v in cols.items()}) for n, cols in rows.items()}
    return Database(Schema("network", tuple(tables), "unit"), arrow)


@settings(max_examples=40)
@given(networks())
def test_stability_and_touched_rows_hold_on_random_networks(database: Database) -> None:
    for unit in database.units():
        smaller = database.without(unit)
        for each in database.schema.tables:
            view = build_view(database.private(), ViewSpec(each.name, {}))
            weight, changed = shift(database, smaller, each.name)
            assert weight * view.weight_scale <= view.stability
            assert changed <= view.touched
            for k in each.foreign_keys:
                one, other = (seen_along(d, d.private(), k) for d in (database, smaller))
                declared = stability(database.schema, each.name) + reference_moves(database.schema, k)
                assert moved(one, other) <= declared * WEIGHT_SCALE


def test_a_reference_that_is_set_to_null_moves_no_more_than_declared() -> None:
    post = posts_with(2, 2)
    schema = Schema("d", (UNIT, post), "unit")
    answers = post.foreign_keys[1]
    assert schema.deferred_keys == {answers.name}
    discretizer = Discretizer(codec_for(post.column("long"), table="post"))
    spec = ViewSpec("post", {"of": (OfParent(answers, "long"), discretizer), "own": (Own("long"), discretizer)})
    furthest = 0.0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        slots = rng.permutation(np.repeat(np.arange(30), 2))[:30]
        posts = {
            "id": integers(range(30)),
            "author": integers(rng.integers(0, 10, 30)),
            "answers": pa.array(
                [int(s) if s != i and rng.random() < 0.8 else None for i, s in enumerate(slots)], pa.int64()
            ),
            "long": pa.array(rng.random(30) < 0.5),
        }
        database = Database(schema, {"unit": pa.table({"id": integers(range(10))}), "post": pa.table(posts)})
        for unit in range(10):
            one, other = (build_view(each.private(), spec) for each in (database, database.without(unit)))
            held = [view.data.held() for view in (one, other)]
            tables = [contingency(rows.codes, one.sizes, ("of", "own"), rows.weights) for rows in held]
            shifted = np.abs(tables[0] - tables[1]).sum()
            assert shifted <= one.stability
            furthest = max(furthest, shifted / one.weight_scale)
    assert furthest > 1, "no reference was cleared: the test looks at nothing"


def test_which_rows_are_dropped_depends_on_the_secret() -> None:
    """Else anybody could work out which rows count, and write keys that push others out."""
    row = table("row", owned("row", "up", "unit", 3))
    rows = pa.table({"id": integers(range(300)), "up": integers([i // 10 for i in range(300)])})
    tables = {"unit": pa.table({"id": integers(range(30))}), "row": rows}
    schema = Schema("d", (UNIT, row), "unit")
    secrets = (SECRET, SECRET[::-1], bytes(16))
    kept = [tuple(PrivateDatabase(schema, tables, secret).kept("row")) for secret in secrets]
    assert len(set(kept)) == 3  # of 120^30 ways
    assert kept[0] == tuple(PrivateDatabase(schema, tables, SECRET).kept("row"))


def test_of_many_rows_no_owner_keeps_more_than_the_bound() -> None:
    """Numbers of owners are 32 bits wide. Multiplied by the number of rows they are not: no order may rest on that."""
    row = table("row", owned("row", "up", "unit", 2))
    owners = np.random.default_rng(0).permutation(np.repeat(np.arange(60_000), 3))
    rows = pa.table({"id": integers(range(180_000)), "up": pa.array(owners)})
    tables = {"unit": pa.table({"id": integers(range(60_000))}), "row": rows}
    kept = PrivateDatabase(Schema("d", (UNIT, row), "unit"), tables, SECRET).kept("row")
    assert np.bincount(owners[kept], minlength=60_000).tolist() == [2] * 60_000


def test_no_view_sees_a_row_that_is_not_kept() -> None:
    post = posts_with(1, 9)
    posts = {
        "id": integers(range(6)),
        "author": integers([0, 0, 0, 1, 2, 3]),  # two of the first three are dropped
        "answers": integers([None, None, None, 0, 1, 2]),
        "long": pa.array([True] * 6),
    }
    schema = Schema("d", (UNIT, post), "unit")
    database = Database(schema, {"unit": pa.table({"id": integers(range(4))}), "post": pa.table(posts)})
    private, answers = database.private(), post.foreign_keys[1]
    assert private.kept("post").sum() == 4
    seen = private.kept_parent_rows(answers)[3:]
    assert sorted(seen >= 0) == [False, False, True]
    assert (private.parent_rows(answers)[3:] >= 0).all()
    discretizer = Discretizer(codec_for(post.column("long"), table="post"))
    view = build_view(private, ViewSpec("post", {"of": (OfParent(answers, "long"), discretizer)}))
    assert (view.counts(("of",)) > 0).sum() == 2  # of one, and of none
    assert view.counts(("of",))[discretizer.size] == 3 * WEIGHT_SCALE


def test_keys_of_bytes_are_truncated_too() -> None:
    """Bytes that are no text must not stop a run, which they would only where a group is too large."""
    row = Table(
        "row",
        (Column("id", ColumnType.BYTES), Column("up", INTEGER)),
        ("id",),
        (ForeignKey("row", ("up",), "unit", ("id",), max_children=2, owner=True),),
    )
    rows = pa.table({"id": pa.array([bytes([255, i]) for i in range(9)]), "up": integers([0] * 9)})
    tables = {"unit": pa.table({"id": integers([0])}), "row": rows}
    database = Database(Schema("d", (UNIT, row), "unit"), tables)
    kept = rows.filter(pa.array(database.private().kept("row"))).column("id").to_pylist()
    assert len(kept) == 2
    moved = database.shuffled(1)
    again = moved.tables["row"].filter(pa.array(moved.private().kept("row"))).column("id").to_pylist()
    assert set(again) == set(kept)
