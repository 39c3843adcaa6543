"""Synthesizers of groups: what types, places and joints of members bring into the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.groups.group_model import GroupModel
from privbench_core.groups.measure_groups import reconciled
from privbench_core.links.fanout import Fanout
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Budget
from privbench_core.schema.columns import Column, ColumnType, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import load_synthesizer
from tests.helpers.databases import Database
from tests.helpers.noise import SeededNoise
from tests.helpers.plans import Trace, computing_steps, run_step


@pytest.mark.parametrize("latents", [1, 2])
def test_children_of_one_owner_are_of_one_kind(latents: int) -> None:
    """Each family is of one of two kinds, which nothing but its children shows: 0 and 1, or 2 and 3."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 2, 3000)
    homes = np.repeat(np.arange(3000), rng.integers(1, 5, 3000))
    trace = synthesized(family(homes, 2 * kinds[homes] + rng.integers(0, 2, len(homes))), 10.0, latents=latents)
    drawn = rows(trace, "child")
    kind = drawn["x"].to_numpy() // 2
    one = np.bincount(drawn["home"].to_numpy(), kind, 3000) / np.maximum(np.bincount(drawn["home"].to_numpy()), 1)
    mixed = (one > 0) & (one < 1)
    assert mixed.mean() < 0.05  # of independent children: more than half
    assert kind.mean() == pytest.approx(0.5, abs=0.05)


def test_a_group_has_one_member_in_each_role() -> None:
    """Each family has one child of code 2, whatever else: independent children would be none, or two."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, 3000)
    homes = np.repeat(np.arange(3000), sizes)
    codes = rng.choice([0, 1, 3], len(homes))
    codes[np.cumsum(sizes) - 1 - rng.integers(0, sizes)] = 2
    drawn = rows(synthesized(family(homes, codes), 10.0), "child")
    homes = drawn["home"].to_numpy()
    heads = np.bincount(homes, drawn["x"].to_numpy() == 2)[np.bincount(homes) > 0]
    assert (heads == 1).mean() > 0.95


def test_two_children_share_a_value_of_more_than_there_are_types() -> None:
    """Each of 3,000 families has one of 60 values, and at most 32 types: joints of two children tell."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, 3000)
    homes, values = np.repeat(np.arange(3000), sizes), rng.integers(0, 60, 3000)
    drawn = rows(synthesized(family(homes, values[homes], 60), 20.0), "child")
    homes, codes = drawn["home"].to_numpy(), drawn["x"].to_numpy()
    order = np.argsort(homes, kind="stable")
    siblings = np.diff(homes[order]) == 0
    assert (np.diff(codes[order]) == 0)[siblings].mean() > 0.8  # of independent children: 1 in 60, by types 1 in 2


@pytest.mark.parametrize(
    ("name", "least", "most"), [("privlava", 0.0, 0.1), ("privpetal", 0.3, 1.0), ("privbench", 0.6, 1.0)]
)
def test_types_are_columns_of_the_tables_above(name: str, least: float, most: float) -> None:
    """Users own visits without attributes, and visits own clicks of the user's kind: only types of types tell.

    How many users have clicks of both kinds, of which there are none; docs/choosing.md has these figures.
    """
    trace = synthesized(clicks_of_one_kind(), 20.0, name)
    clicks, visits = rows(trace, "click"), rows(trace, "visit")
    user = visits["user"].to_numpy()[clicks["visit"].to_numpy()]
    share = np.bincount(user, clicks["x"].to_numpy() // 2) / np.maximum(np.bincount(user), 1)
    assert least <= ((share > 0) & (share < 1)).mean() <= most
    assert set(visits.column_names) == {"id", "user"}, "a latent attribute is published"


def test_where_noise_hides_types_there_are_none() -> None:
    trace = synthesized(clicks_of_one_kind(), 0.01)
    assert trace.artifacts["fanout", "click.visit"].data["latents"] is None
    assert trace.artifacts["sample", "click"].table is not None


def test_columns_in_three_members_are_measured_where_pairs_do_not_explain_them() -> None:
    """In each family of three the parity of the codes is even: pairs are independent, triples are not."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 2, (2, 3000))
    codes = np.stack([first, second, first ^ second], axis=1)
    codes = rng.permuted(codes, axis=1).ravel()
    trace = synthesized(family(np.repeat(np.arange(3000), 3), codes, 2), 30.0, "privpetal")
    model = GroupModel.from_dict(trace.artifacts["model", "child"].data["model"])
    assert [list(group.triples) for group in model.classes] == [["x"]]
    drawn = rows(trace, "child")
    odd = np.bincount(drawn["home"].to_numpy(), weights=drawn["x"].to_numpy()) % 2
    assert odd.mean() < 0.05


def clicks_of_one_kind() -> Database:
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 2, 2000)
    of_visit = np.repeat(np.arange(2000), rng.integers(1, 4, 2000))
    of_click = np.repeat(np.arange(len(of_visit)), rng.integers(1, 4, len(of_visit)))
    return chain(of_visit, of_click, 2 * kinds[of_visit][of_click] + rng.integers(0, 2, len(of_click)))


NUMBER = ColumnType.INTEGER


def synthesized(database: Database, epsilon: float, name: str = "privlava", **options: Any) -> Trace:
    """What all steps made."""
    trace = Trace()
    for step in computing_steps(load_synthesizer(name).plan(database.schema, Budget(epsilon, 1e-6), options)):
        run_step(step, database, SeededNoise(0), trace)
    return trace


def rows(trace: Trace, table: str) -> pa.Table:
    """A synthetic table, its keys as numbers from 0."""
    made = trace.artifacts["sample", table].table
    assert made is not None
    for place, name in enumerate(made.column_names):
        if name != "x":
            made = made.set_column(place, name, pa.array(made[name].to_numpy() - 1))
    return made


def family(homes: np.ndarray[Any, Any], codes: np.ndarray[Any, Any], values: int = 4) -> Database:
    """Families of up to four children with a column ``x`` of so many values."""
    home = ForeignKey("child", ("home",), "family", ("id",), max_children=4, owner=True)
    columns = (Column("id", NUMBER), Column("home", NUMBER), Column("x", NUMBER, Values(tuple(range(values)))))
    schema = Schema(
        "families",
        (Table("family", (Column("id", NUMBER),), ("id",)), Table("child", columns, ("id",), (home,))),
        "family",
    )
    tables = {
        "family": pa.table({"id": np.arange(int(homes.max()) + 1)}),
        "child": pa.table({"id": np.arange(len(homes)), "home": homes, "x": codes}),
    }
    return Database(schema, tables)


def chain(of_visit: np.ndarray[Any, Any], of_click: np.ndarray[Any, Any], codes: np.ndarray[Any, Any]) -> Database:
    """Users, their visits, and the clicks of these, which alone have an attribute."""
    user = ForeignKey("visit", ("user",), "user", ("id",), max_children=3, owner=True)
    visit = ForeignKey("click", ("visit",), "visit", ("id",), max_children=3, owner=True)
    identity = Column("id", NUMBER)
    click = (identity, Column("visit", NUMBER), Column("x", NUMBER, Values((0, 1, 2, 3))))
    schema = Schema(
        "clicks",
        (
            Table("user", (identity,), ("id",)),
            Table("visit", (identity, Column("user", NUMBER)), ("id",), (user,)),
            Table("click", click, ("id",), (visit,)),
        ),
        "user",
    )
    tables = {
        "user": pa.table({"id": np.arange(int(of_visit.max()) + 1)}),
        "visit": pa.table({"id": np.arange(len(of_visit)), "user": of_visit}),
        "click": pa.table({"id": np.arange(len(of_click)), "visit": of_click, "x": codes}),
    }
    return Database(schema, tables)


def fanout(probabilities: list[float], ownerless: float = 0.0) -> Fanout:
    return Fanout(Discretizer(FanoutCodec(len(probabilities) - 1)), np.array(probabilities), {}, {}, 150.0, ownerless)


def test_counts_of_parts_agree_with_those_of_the_whole_by_their_noise() -> None:
    """Exact counts of the whole are met; with equal noise two parts and the whole each give way by a third."""
    parts = [OneWay.with_sigma({"x": np.array([10.0, 4.0])}, 2.0), OneWay.with_sigma({"x": np.array([20.0, 5.0])}, 2.0)]
    exact = reconciled(parts, OneWay.with_sigma({"x": np.array([36.0, 9.0])}, 0.0))
    np.testing.assert_allclose([look.counts["x"] for look in exact], [[13, 4], [23, 5]])
    np.testing.assert_allclose([look.sigmas["x"] for look in exact], np.full((2, 2), np.sqrt(2)))
    noisy = reconciled(parts, OneWay.with_sigma({"x": np.array([36.0, 9.0])}, 2.0))
    np.testing.assert_allclose([look.counts["x"] for look in noisy], [[12, 4], [22, 5]])
    rng = np.random.default_rng(0)
    draws = rng.normal(0, [[3.0], [1.0], [2.0]], (3, 4000))
    looks = [OneWay.with_sigma({"x": values}, sigma) for values, sigma in zip(draws[:2], (3.0, 1.0), strict=True)]
    for look in reconciled(looks, OneWay.with_sigma({"x": draws[2]}, 2.0)):
        assert look.counts["x"].std() == pytest.approx(look.sigmas["x"][0], rel=0.05)
