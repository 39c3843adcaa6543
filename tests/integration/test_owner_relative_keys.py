"""Days relative to the owner's in tables with keys of every kind: drawn, looked at by keys, and completed later."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core import guards
from privbench_core.schema.columns import Column, ColumnType, Range, Relative
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.steps.sample import sampled_key
from privbench_core.synthesizers.steps.sampled import SampledTable
from tests.helpers.planted import integer, made_exactly, owner_key, rows_of

USERS, LATE = 500, 5
DATE = ColumnType.DATE


def board() -> tuple[Schema, dict[str, pa.Table]]:
    """Posts up to 9 days after their user, comments up to 9 after their post; all within 4 days, or all after them.

    A comment is about a post of the same unit, and in reply to a comment of any unit that was as fast or as slow: a key
    of its own table that is filled in last.
    """
    rng = np.random.default_rng(0)
    user = Table("user", (integer("id"), Column("since", DATE, Range("2010-01-01", "2020-12-31"))), ("id",))
    made = Column("made", DATE, relative=Relative("user.since", Range(0, 9)))
    post = Table("post", (integer("id"), integer("user_id"), made), ("id",), (owner_key("post", "user_id", "user", 4),))
    said = Column("said", DATE, relative=Relative("post.made", Range(0, 9)))
    let_go = OnUnitRemoved.SET_NULL
    comment = Table(
        "comment",
        (integer("id"), integer("post_id"), integer("about", nullable=True), integer("reply", nullable=True), said),
        ("id",),
        (
            owner_key("comment", "post_id", "post", 5),
            ForeignKey("comment", ("about",), "post", ("id",), None, optional=True, same_unit=True),
            ForeignKey("comment", ("reply",), "comment", ("id",), 2, optional=True, on_unit_removed=let_go),
        ),
    )
    since = rng.integers(15_000, 18_000, USERS)
    of_user = np.repeat(np.arange(USERS), rng.integers(1, 4, USERS))
    slow_post = rng.random(len(of_user)) < 0.5
    made_on = since[of_user] + rng.integers(0, LATE, len(of_user)) + LATE * slow_post
    of_post = np.repeat(np.arange(len(of_user)), rng.integers(0, 4, len(of_user)))
    n = len(of_post)
    slow = rng.random(n) < 0.4
    posts_of = [np.flatnonzero(of_user == user) for user in range(USERS)]
    reply = np.full(n, -1)
    for group in (slow, ~slow):
        rows = np.flatnonzero(group)
        later = rows[len(rows) // 2 :]  # so that there is no cycle
        reply[later] = rng.permutation(rows[: len(rows) // 2])[np.arange(len(later)) % (len(rows) // 2)]
    tables = {
        "user": rows_of(user, id=np.arange(USERS), since=pa.array(since.astype(np.int32))),
        "post": rows_of(post, id=np.arange(len(of_user)), user_id=of_user, made=pa.array(made_on.astype(np.int32))),
        "comment": rows_of(
            comment,
            id=np.arange(n),
            post_id=of_post,
            about=pa.array([int(rng.choice(posts_of[u])) for u in of_user[of_post]]),
            reply=pa.array(reply, mask=reply < 0),
            said=pa.array((made_on[of_post] + rng.integers(0, LATE, n) + LATE * slow).astype(np.int32)),
        ),
    }
    return Schema("board", (user, post, comment), "user"), tables


def days(rows: pa.Table, name: str) -> np.ndarray:
    return rows.column(name).cast(pa.int32()).to_numpy()


@pytest.mark.parametrize("most", [1 << 20, 400])
def test_days_follow_their_owners_whatever_keys_a_table_has(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "RANGE_ROWS", most)
    schema, tables = board()
    made = made_exactly(schema, tables)
    drawn = {table.name: SampledTable(made[sampled_key(schema, table)]) for table in schema.tables}
    assert (len(drawn["comment"].rows) > 1) == (most == 400)
    user, post, comment = (drawn[name].whole_rows() for name in ("user", "post", "comment"))
    since = dict(zip(user.column("id").to_pylist(), days(user, "since"), strict=True))
    made_on = dict(zip(post.column("id").to_pylist(), days(post, "made"), strict=True))
    of_posts = days(post, "made") - np.array([since[u] for u in post.column("user_id").to_pylist()])
    of_comments = days(comment, "said") - np.array([made_on[p] for p in comment.column("post_id").to_pylist()])
    for found in (of_posts, of_comments):
        assert found.min() >= 0
        assert found.max() <= 9
    assert abs((of_comments >= LATE).mean() - 0.4) < 0.05
    np.testing.assert_array_equal(
        drawn["comment"].whole().bases["post.made"], [made_on[p] for p in comment.column("post_id").to_pylist()]
    )
    owner = dict(zip(post.column("id").to_pylist(), post.column("user_id").to_pylist(), strict=True))
    pairs = zip(comment.column("post_id").to_pylist(), comment.column("about").to_pylist(), strict=True)
    assert all(owner[of] == owner[about] for of, about in pairs if about is not None)
    slow = dict(zip(comment.column("id").to_pylist(), of_comments >= LATE, strict=True))
    replies = zip(comment.column("id").to_pylist(), comment.column("reply").to_pylist(), strict=True)
    alike = [slow[one] == slow[other] for one, other in replies if other is not None]
    assert len(alike) > 0.35 * comment.num_rows
    assert np.mean(alike) > 0.9, "0.52 if the days themselves, or none, were looked at"
