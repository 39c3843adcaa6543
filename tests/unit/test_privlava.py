"""PrivLava's plan: what it refuses, what it costs, and what types and places bring into the synthetic rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import SpecError, UnsupportedBudgetError
from privbench_core.privacy.budget import Budget
from privbench_core.schema.columns import Column, ColumnType, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.privlava import Options, PrivLava
from privbench_core.synthesizers.registry import load_synthesizer, names
from tests.helpers.databases import Database, forum, shop, town
from tests.helpers.noise import SeededNoise
from tests.helpers.plans import Trace, computing_steps, run_step

NUMBER = ColumnType.INTEGER


def test_it_is_found_by_its_name() -> None:
    assert "privlava" in names()
    assert isinstance(load_synthesizer("privlava"), PrivLava)


def test_pure_budgets_are_refused_before_anything_is_spent() -> None:
    with pytest.raises(UnsupportedBudgetError, match="delta > 0"):
        PrivLava().plan(town(0, learned=False).schema, Budget(1.0), {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"latent": 1}, "did you mean 'latents'"),
        ({"latents": 0}, "less than 1"),
        ({"iterations": 0}, "less than 1"),
        ({"types": 1}, "share strictly between 0 and 1"),
        ({"usefulness": "much"}, "not a number"),
    ],
)
def test_options_are_checked(given: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Options.parse(given)


def test_every_option_changes_the_plan_or_what_it_releases() -> None:
    database = shop(0)
    budget = Budget(1.0, 1e-6)

    def identity(options: Mapping[str, Any]) -> list[object]:
        steps = PrivLava().plan(database.schema, budget, options).steps
        return [(step.key, step.price, sorted(step.parameters.items())) for step in steps]

    default = identity({})
    for field in fields(Options):
        value = getattr(Options(), field.name)
        assert identity({field.name: value + 1 if isinstance(value, int) else value * 0.7}) != default, field.name


@pytest.mark.parametrize("epsilon", [0.5, 300.0])
@pytest.mark.parametrize("make", [town, shop, forum])
def test_the_whole_budget_is_planned_and_each_step_spends_no_more_than_its_price(
    make: Callable[[int], Database], epsilon: float
) -> None:
    database = make(0)
    budget = Budget(epsilon, 1e-6)
    plan = PrivLava().plan(database.schema, budget, {})
    assert sum(step.price.amount for step in plan.steps) == pytest.approx(budget.total().amount, rel=1e-9)
    trace = synthesized(database, epsilon)
    for step in plan.steps:
        if step.key in trace.accounts:
            assert trace.accounts[step.key].spent.amount <= step.price.amount * (1 + 1e-9)


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


def clicks_of_one_kind() -> Database:
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 2, 2000)
    of_visit = np.repeat(np.arange(2000), rng.integers(1, 4, 2000))
    of_click = np.repeat(np.arange(len(of_visit)), rng.integers(1, 4, len(of_visit)))
    return chain(of_visit, of_click, 2 * kinds[of_visit][of_click] + rng.integers(0, 2, len(of_click)))


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
