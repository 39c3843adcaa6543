"""Two ways that lead from a row to the same one: which there are, what views see of them, and how rows keep them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.group_codes import AGREEMENTS, index_coder
from privbench_core.errors import InternalError
from privbench_core.links.fanout import CommonReference, common_references, wanting_common
from privbench_core.links.parent_choice import ParentChoice, pick_parents
from privbench_core.privacy.features import SameReference
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from tests.helpers.databases import desk
from tests.helpers.planted import NoNoise, door_of, integer, owner_key, place_of, rows_of

CODER = index_coder("ways", AGREEMENTS)


def tickets(users: int = 1500) -> tuple[Schema, dict[str, pa.Table]]:
    """Three tickets of each user, about their own account, each with two labels: seven of eight of its project."""
    rng = np.random.default_rng(0)
    account, project = (Table(name, (integer("id"),), ("id",), public=True) for name in ("account", "project"))
    of_project = ForeignKey("label", ("project_id",), "project", ("id",))
    label = Table("label", (integer("id"), integer("project_id")), ("id",), (of_project,), public=True)
    user = Table(
        "user",
        (integer("id"), integer("account_id")),
        ("id",),
        (ForeignKey("user", ("account_id",), "account", ("id",)),),
    )
    names = ("id", "user_id", "account_id", "project_id")
    ticket = Table(
        "ticket",
        (*map(integer, names), integer("hours", 0, 3)),
        ("id",),
        (
            owner_key("ticket", "user_id", "user", 5),
            *(ForeignKey("ticket", (f"{name}_id",), name, ("id",)) for name in ("account", "project")),
        ),
    )
    tag = Table(
        "tag",
        (integer("ticket_id"), integer("label_id")),
        ("ticket_id", "label_id"),
        (owner_key("tag", "ticket_id", "ticket", 4), ForeignKey("tag", ("label_id",), "label", ("id",))),
    )
    number, projects, labels = 3 * users, 20, 200
    accounts, of_ticket = rng.integers(0, 50, users), rng.integers(0, projects, number)
    of_user, of_tag = np.repeat(np.arange(users), 3), np.repeat(np.arange(number), 2)
    own = (rng.integers(0, 5, 2 * number) * 2 + np.tile([0, 1], number)) * projects + of_ticket[of_tag]
    other = (own + np.arange(1, 2 * number + 1) % 8 // 7) % labels
    tables = {
        "account": rows_of(account, id=np.arange(50)),
        "project": rows_of(project, id=np.arange(projects)),
        "label": rows_of(label, id=np.arange(labels), project_id=np.arange(labels) % projects),
        "user": rows_of(user, id=np.arange(users), account_id=accounts),
        "ticket": rows_of(
            ticket, id=np.arange(number), user_id=of_user, account_id=accounts[of_user], project_id=of_ticket,
            hours=rng.integers(0, 4, number),
        ),
        "tag": rows_of(tag, ticket_id=of_tag, label_id=other),
    }  # fmt: skip
    return Schema("tickets", (account, project, label, user, ticket, tag), "user"), tables


def test_labels_are_of_the_project_of_their_ticket_as_often_and_accounts_always(tmp_path: Path) -> None:
    made = place_of(tmp_path / "tickets", *tickets()).drawn_with(NoNoise())
    user, ticket = (made[name].to_pandas().set_index("id") for name in ("user", "ticket"))
    tag, label = made["tag"].to_pandas(), made["label"].to_pandas().set_index("id")
    assert (ticket["account_id"] == ticket["user_id"].map(user["account_id"])).all()
    same = tag["ticket_id"].map(ticket["project_id"]) == tag["label_id"].map(label["project_id"])
    assert same.mean() == pytest.approx(7 / 8, abs=0.02)
    assert len(tag) == pytest.approx(9000, rel=0.02)


def test_ways_start_at_the_row_and_its_owner_and_meet_in_what_does_not_change() -> None:
    schema = desk(0).schema
    found = {
        way.key.name: way for t in schema.private_tables for k in t.foreign_keys for way in common_references(schema, k)
    }
    assert set(found) == {"ticket.account_id", "tag.label_id", "comment.folder_id"}
    tag = found["tag.label_id"]
    assert (tag.theirs, tag.of, tag.mine) == (
        schema.table("label").foreign_keys[0], schema.table("tag").owner_key, schema.table("ticket").foreign_keys[2],
    )  # fmt: skip
    user = schema.table("user")
    changing = replace(user, foreign_keys=(replace(user.foreign_keys[0], parent="folder"),))
    assert schema.keeps(user.foreign_keys[0])
    assert not replace(schema, tables=tuple(changing if table is user else table for table in schema.tables)).keeps(
        changing.foreign_keys[0]
    )


def test_views_refuse_ways_that_do_not_meet_or_that_another_unit_changes() -> None:
    database = desk(0)
    session, schema = door_of(database.schema, database.tables), database.schema
    ticket, tag, label = (schema.table(name) for name in ("ticket", "tag", "label"))
    right = SameReference(tag.foreign_keys[1], label.foreign_keys[0], tag.owner_key, ticket.foreign_keys[2])
    session.view(ViewSpec("tag", {"x": (right, CODER)}))
    wrong = {
        "to the same columns": replace(right, mine=ticket.foreign_keys[1]),
        "that meet": replace(right, of=None),
        "from a row or its owner": replace(right, of=ticket.owner_key, mine=schema.table("user").foreign_keys[0]),
        "not a foreign key as the schema declares it": replace(right, mine=replace(right.mine, optional=True)),
        "a code for each way": right,
    }
    for message, feature in wrong.items():
        coder = index_coder("ways", 2) if feature is right else CODER
        with pytest.raises(InternalError, match=message):
            session.view(ViewSpec("tag", {"x": (feature, coder)}))


def test_a_way_that_becomes_null_with_another_unit_is_not_looked_at() -> None:
    unit = Table("unit", (integer("id"),), ("id",))
    number = Column("unit_id", ColumnType.INTEGER)
    other = ForeignKey("row", ("other_id",), "unit", ("id",), 3, optional=True, on_unit_removed=OnUnitRemoved.SET_NULL)
    columns = (integer("id"), number, replace(number, name="other_id", nullable=True))
    row = Table("row", columns, ("id",), (owner_key("row", "unit_id", "unit", 3), other))
    mark = Table("mark", (integer("row_id"),), ("row_id",), (owner_key("mark", "row_id", "row", 1),))
    schema = Schema("s", (unit, row, mark), "unit")
    rows = {"unit": rows_of(unit, id=[1]), "mark": rows_of(mark, row_id=[1])}
    rows |= {"row": rows_of(row, id=[1], unit_id=[1], other_id=[1])}
    assert mark.owner_key is not None
    assert row.owner_key is not None
    way = SameReference(mark.owner_key, row.owner_key, mark.owner_key, other)
    with pytest.raises(InternalError, match="keys that do not become NULL"):
        door_of(schema, rows).view(ViewSpec("mark", {"x": (way, CODER)}))
    assert common_references(schema, other) == ()


def test_rows_take_parents_of_their_own_number_and_none_where_there_is_no_such_parent() -> None:
    rng = np.random.default_rng(0)
    of_parent, of_row = np.array([0, 0, 1, -1]), np.array([0, 1] * 500 + [-1, 7])
    common = CommonReference(("a",), ("b",), False, 1.0, 0.01)
    free = ParentChoice.free(len(of_row), len(of_parent))
    choice = wanting_common(free, common, (of_parent, of_row), np.ones(4), rng)
    found = pick_parents([], np.ones(len(of_row), dtype=bool), choice, rng)
    assert (of_parent[found[:1000]] == of_row[:1000]).all()
    assert (found >= 0).all()
    some = pick_parents([], np.ones(2, dtype=bool), choice.take(np.array([1, 0])), rng)
    assert of_parent[some].tolist() == [1, 0]
