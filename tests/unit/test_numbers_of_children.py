"""Numbers of children of two kinds: who has many of one has many of the other, though no column of theirs says so.

And who has many rows is often referred to by those of others.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from privbench_core import guards
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.engines.memory import PrivateDatabase
from privbench_core.errors import InternalError
from privbench_core.privacy.features import ParentFanout
from privbench_core.privacy.view_building import build_view
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.profile import children_column
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.steps.link import counted_along
from tests.helpers.heavy_tails import zipf_sizes
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import integer, owner_key, place_of, rows_of, tvd

USERS = 3000
POST, BADGE = (owner_key(name, "user_id", "user", 60) for name in ("post", "badge"))
RECIPIENT = ForeignKey("message", ("to_id",), "user", ("id",), 100, on_unit_removed=OnUnitRemoved.SET_NULL)


def site(seed: int = 0) -> tuple[Schema, dict[str, pa.Table]]:
    """Users without columns; their badges are as many as their posts, more or less."""
    rng = np.random.default_rng(seed)
    posts = zipf_sizes(rng, USERS, most=60, power=1.8, none=0.3)
    badges = rng.binomial(posts, 0.8)
    user = Table("user", (integer("id"),), ("id",))
    owned = {
        key.child: Table(key.child, (integer("id"), integer("user_id"), integer("x", 0, 3)), ("id",), (key,))
        for key in (POST, BADGE)
    }
    tables = {"user": rows_of(user, id=np.arange(USERS))}
    for name, sizes in (("post", posts), ("badge", badges)):
        owners = np.repeat(np.arange(USERS), sizes)
        tables[name] = rows_of(
            owned[name], id=np.arange(len(owners)), user_id=owners, x=rng.integers(0, 4, len(owners))
        )
    return Schema("site", (user, *owned.values()), "user"), tables


def joined(tables: dict[str, pa.Table]) -> int:
    """Rows of posts and badges joined by their user."""
    ids = tables["user"]["id"].to_numpy()
    order = np.argsort(ids)
    numbers = [
        np.bincount(order[np.searchsorted(ids[order], tables[name]["user_id"].to_numpy())], minlength=len(ids))
        for name in ("post", "badge")
    ]
    return int(numbers[0] @ numbers[1])


@pytest.mark.parametrize(
    ("synthesizer", "most"),
    [
        ("privbench", 1 << 20),
        ("privpetal", 1 << 20),
        ("privlava", 1 << 20),
        ("relational", 1 << 20),
        pytest.param("privbench", 1000, marks=pytest.mark.slow),
    ],
)
def test_a_join_of_two_children_is_as_large_as_in_the_source(
    tmp_path: Path, synthesizer: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "RANGE_ROWS", most)
    schema, tables = site()
    place = place_of(tmp_path / "place", schema, tables, delta=1e-9, synthesizer=synthesizer, options={})
    made = place.drawn_with(SeededNoise(0), 100.0)
    independent = tables["post"].num_rows * tables["badge"].num_rows / USERS
    assert joined(tables) > 3 * independent
    assert joined(made) == pytest.approx(joined(tables), rel=0.15)


@pytest.mark.parametrize("most", [1 << 20, pytest.param(1000, marks=pytest.mark.slow)])
def test_columns_of_children_follow_how_many_others_their_owner_has(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who writes much has other badges: nothing else of the users or of their badges says who writes much."""
    monkeypatch.setattr(guards, "RANGE_ROWS", most)
    schema, tables = site()
    rng = np.random.default_rng(1)
    once = np.arange(USERS)
    follows = np.minimum(np.bincount(tables["post"]["user_id"].to_numpy(), minlength=USERS) // 2, 3)
    owner = np.repeat(once, 2)
    x = np.where(rng.random(len(owner)) < 0.8, follows[owner], rng.integers(0, 4, len(owner)))
    tables["badge"] = rows_of(schema.table("badge"), id=np.arange(len(owner)), user_id=owner, x=x)
    place = place_of(tmp_path / "place", schema, tables, delta=1e-9)
    made = place.drawn_with(SeededNoise(0), 100.0)
    assert tvd(over_posts(tables), np.full(4, 0.25)) > 0.3
    assert tvd(over_posts(made), over_posts(tables)) < 0.05


def over_posts(tables: dict[str, pa.Table]) -> np.ndarray:
    """Shares of the codes of badges in the join of posts and badges by their user."""
    counted = tables["post"].group_by("user_id").aggregate([([], "count_all")])
    found = tables["badge"].join(counted, "user_id", join_type="inner")
    weights = np.bincount(found["x"].to_numpy(), found["count_all"].to_numpy(), 4)
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("synthesizer", "of", "most"),
    [
        ("privbench", "message", 1 << 20),
        ("privlava", "post", 1 << 20),
        pytest.param("relational", "message", 1000, marks=pytest.mark.slow),
        pytest.param("privbench", "message", 1000, marks=pytest.mark.slow),
        pytest.param("privbench", "post", 1000, marks=pytest.mark.slow),
    ],
)
def test_who_has_many_rows_is_often_referred_to(
    tmp_path: Path, synthesizer: str, of: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who writes much hears much, and no column of users says who writes: messages they send, or posts."""
    monkeypatch.setattr(guards, "RANGE_ROWS", most)
    schema, tables = messages(of)
    place = place_of(tmp_path / "place", schema, tables, delta=1e-9, synthesizer=synthesizer, options={})
    made = place.drawn_with(SeededNoise(0), 10_000.0)  # so that it is known how popular users are
    independent = tables[of].num_rows * (tables["message"]["to_id"].to_numpy() >= 0).sum() / USERS
    assert exchanged(tables, of) > 2 * independent
    assert exchanged(made, of) == pytest.approx(exchanged(tables, of), rel=0.15)


def messages(of: str) -> tuple[Schema, dict[str, pa.Table]]:
    """Users without columns; who has many rows of a table gets many messages."""
    schema, tables = site()
    rng = np.random.default_rng(2)
    posts = np.bincount(tables["post"]["user_id"].to_numpy(), minlength=USERS)
    sent = posts if of == "message" else np.ones(USERS, dtype=np.int64)
    sender = np.repeat(np.arange(USERS), sent)
    to = rng.choice(USERS, len(sender), p=posts / posts.sum())
    message = Table(
        "message",
        (integer("id"), integer("user_id"), integer("to_id"), integer("x", 0, 3)),
        ("id",),
        (owner_key("message", "user_id", "user", 60), RECIPIENT),
    )
    tables["message"] = rows_of(
        message, id=np.arange(len(sender)), user_id=sender, to_id=to, x=rng.integers(0, 4, len(sender))
    )
    return Schema("messages", (schema.table("user"), schema.table("post"), message), "user"), tables


def exchanged(tables: dict[str, pa.Table], of: str) -> int:
    """Pairs of a row of a user and a message that the user gets."""
    owned, to = (pc.value_counts(tables[name][column]) for name, column in ((of, "user_id"), ("message", "to_id")))
    numbers = [{count["values"]: count["counts"] for count in counts.to_pylist()} for counts in (owned, to)]
    return sum(number * numbers[1].get(user, 0) for user, number in numbers[0].items())


def test_references_follow_numbers_of_children_that_are_known_and_go_with_their_own_unit() -> None:
    schema, tables = messages("post")
    sent = schema.table("message").owner_key
    assert counted_along(schema, RECIPIENT) == (sent, POST)
    cascading = replace(RECIPIENT, on_unit_removed=OnUnitRemoved.CASCADE)
    other = replace(schema.table("message"), foreign_keys=(sent, cascading))
    crossed = Schema("messages", (schema.table("user"), schema.table("post"), other), "user")
    assert counted_along(crossed, cascading) == (POST,), "messages go with those who get them, too"
    for of, its, refused in ((sent, schema, False), (POST, crossed, False), (sent, crossed, True)):
        key = its.table("message").foreign_keys[1]
        spec = ViewSpec("message", {"number": (ParentFanout(key, of), Discretizer(FanoutCodec(60)))})
        message = "not what a view of message can look along"
        with pytest.raises(InternalError, match=message) if refused else nullcontext():
            build_view(PrivateDatabase(its, tables, bytes(16)), spec)


def test_siblings_are_drawn_before_and_have_the_same_owner() -> None:
    schema, _ = site()
    assert counted_along(schema, POST) == ()
    assert counted_along(schema, BADGE) == (POST,)
    assert POST.name in children_column(POST.name)


def test_a_sibling_whose_rows_go_with_other_units_is_not_looked_at() -> None:
    schema, _ = site()
    best = ForeignKey("post", ("best",), "badge", ("id",), 5)
    post, badge = schema.table("post"), schema.table("badge")
    other = Table("post", (*post.columns, integer("best")), ("id",), (POST, best))
    mixed = Schema("site", (schema.table("user"), badge, other), "user")
    assert counted_along(mixed, POST) == (BADGE,), "badges go with their own units alone"
    likes = ForeignKey("badge", ("liked",), "post", ("id",), 5)
    liked = Table("badge", (*badge.columns, integer("liked")), ("id",), (BADGE, likes))
    third = owner_key("vote", "user_id", "user", 9)
    vote = Table("vote", (integer("id"), integer("user_id")), ("id",), (third,))
    crossed = Schema("site", (schema.table("user"), post, liked, vote), "user")
    found = counted_along(crossed, third) + counted_along(crossed, BADGE)
    assert BADGE not in found
    assert POST in found
