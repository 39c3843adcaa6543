"""PrivPetal's plan: what it refuses, what it costs, and how sizes of groups are merged."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.errors import SpecError, UnsupportedBudgetError
from privbench_core.groups.group_model import GroupModel
from privbench_core.groups.measure_groups import FanoutClasses, reconciled
from privbench_core.links.fanout import Fanout
from privbench_core.links.measure_children import expected_context
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Budget
from privbench_core.profiles.names import OWNER_FANOUT, parent_column
from privbench_core.schema.columns import Column, ColumnType, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.privpetal import Options, PrivPetal
from privbench_core.synthesizers.registry import load_synthesizer, names
from privbench_core.units.row_count import RowCount
from tests.helpers.databases import Database, forum, shop, town
from tests.helpers.noise import SeededNoise
from tests.helpers.plans import Trace, computing_steps, run_step


def test_it_is_found_by_its_name() -> None:
    assert "privpetal" in names()
    assert isinstance(load_synthesizer("privpetal"), PrivPetal)


def test_pure_budgets_are_refused_before_anything_is_spent() -> None:
    with pytest.raises(UnsupportedBudgetError, match="delta > 0"):
        PrivPetal().plan(town(0, learned=False).schema, Budget(1.0), {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"usefullness": 1}, "did you mean 'usefulness'|unknown"),
        ({"scores": 1}, "share strictly between 0 and 1"),
        ({"members": -1}, "not a number of at least 0"),
        ({"usefulness": "much"}, "not a number"),
        ({"links": float("inf")}, "not a number"),
    ],
)
def test_options_are_checked(given: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Options.parse(given)


def test_every_option_changes_the_plan_or_what_it_releases() -> None:
    """No option is there for show: each changes prices, or parameters that a release is known by."""
    database = shop(0)
    budget = Budget(1.0, 1e-6)

    def identity(options: dict[str, float]) -> list[object]:
        return [
            (s.key, s.price, sorted(s.parameters.items()))
            for s in PrivPetal().plan(database.schema, budget, options).steps
        ]

    default = identity({})
    for field in fields(Options):
        changed = getattr(Options(), field.name) * 0.7
        assert identity({field.name: changed}) != default, field.name


@pytest.mark.parametrize("make", [town, shop, forum])
def test_the_whole_budget_is_planned_and_each_step_spends_no_more_than_its_price(make) -> None:  # type: ignore[no-untyped-def]
    database = make(0)
    budget = Budget(2.0, 1e-6)
    plan = PrivPetal().plan(database.schema, budget, {})
    total = budget.total()
    assert sum(step.price.amount for step in plan.steps) == pytest.approx(total.amount, rel=1e-9)
    trace = Trace()
    for step in computing_steps(plan):
        run_step(step, database, SeededNoise(0), trace)
    for step in plan.steps:
        if step.key in trace.accounts:
            assert trace.accounts[step.key].spent.amount <= step.price.amount * (1 + 1e-9)


def test_columns_in_three_members_are_measured_where_pairs_do_not_explain_them() -> None:
    """In each family of three the parity of the codes is even: pairs are independent, triples are not."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 2, (2, 3000))
    codes = np.stack([first, second, first ^ second], axis=1)
    codes = rng.permuted(codes, axis=1).ravel()
    database = family(codes.tolist())
    plan, trace = PrivPetal().plan(database.schema, Budget(30.0, 1e-6), {}), Trace()
    for step in computing_steps(plan):
        run_step(step, database, SeededNoise(0), trace)
    model = GroupModel.from_dict(trace.artifacts["model", "child"].data["model"])
    assert [list(group.triples) for group in model.classes] == [["x"]]
    drawn = trace.artifacts["sample", "child"].table
    assert drawn is not None
    odd = np.bincount(drawn["home"].to_numpy(), weights=drawn["x"].to_numpy()) % 2
    assert odd.mean() < 0.05


def family(codes: list[int]) -> Database:
    """Families of three children with a column ``x`` of two values."""
    number = ColumnType.INTEGER
    home = ForeignKey("child", ("home",), "family", ("id",), max_children=3, owner=True)
    child = Table(
        "child", (Column("id", number), Column("home", number), Column("x", number, Values((0, 1)))), ("id",), (home,)
    )
    schema = Schema("families", (Table("family", (Column("id", number),), ("id",)), child), "family")
    rows = np.arange(len(codes))
    tables = {
        "family": pa.table({"id": rows[: len(codes) // 3]}),
        "child": pa.table({"id": rows, "home": rows // 3, "x": pa.array(codes, pa.int64())}),
    }
    return Database(schema, tables)


def fanout(probabilities: list[float], ownerless: float = 0.0) -> Fanout:
    return Fanout(Discretizer(FanoutCodec(len(probabilities) - 1)), np.array(probabilities), {}, {}, 150.0, ownerless)


def test_sizes_are_counted_from_released_numbers() -> None:
    sizes = FanoutClasses.of(fanout([0.1, 0.4, 0.3, 0.2], ownerless=7.0), 100.0, 1, of_units=True)
    np.testing.assert_allclose(sizes.rows, [[0, 47, 30, 20], [0, 0, 30, 20], [0, 0, 0, 20]])
    np.testing.assert_allclose(sizes.shares(np.array([False, True, True, False])), [1, 30 / 77, 0])
    two = FanoutClasses.of(fanout([0.1, 0.4, 0.3, 0.2], ownerless=7.0), 100.0, 2, of_units=True)
    np.testing.assert_allclose(two.rows, [[0, 47, 60, 40], [0, 0, 60, 40], [0, 0, 0, 40]])


@pytest.mark.parametrize(
    ("least", "classes"),
    [
        (10, (0, 0, 1, 2)),
        (25, (0, 0, 1, 1)),
        (45, (0, 0, 1, 1)),
        (60, (0, 0, 0, 0)),
        (100, (0, 0, 0, 0)),
        (1e9, (0, 0, 0, 0)),
    ],
)
def test_classes_are_the_shortest_intervals_with_enough_groups(least: float, classes: tuple[int, ...]) -> None:
    assert (
        FanoutClasses.of(fanout([0.1, 0.4, 0.3, 0.2], ownerless=7.0), 100.0, 1, of_units=True).classes(least) == classes
    )


def test_expected_owners_follow_the_released_sizes() -> None:
    """Every second owner has x = 1 and all of these have two children; of the others each half have one and three."""
    pair_tables = {"x": np.array([[0.0, 0.25, 0.0, 0.25], [0.0, 0.0, 0.5, 0.0]])}
    released = Fanout(
        Discretizer(FanoutCodec(3)), np.array([0.0, 0.25, 0.5, 0.25]), pair_tables, {}, 125.0, ownerless=50.0
    )
    parent = OneWay.alike({"x": np.array([50.0, 50.0]), "y": np.array([80.0, 20.0])}, 1.0)
    size = RowCount(175, 1.0, 1, (1,), np.array([175.0]), np.array([175.0]), 3)

    def owners(inside: list[bool], *, optional: bool) -> dict[str, np.ndarray]:
        key = ForeignKey("child", ("parent_id",), "parent", ("id",), 3, owner=True, optional=optional)
        above = SimpleNamespace(one_way=parent, size=SimpleNamespace(units=np.zeros(1)))
        context = (OWNER_FANOUT, parent_column("x"), parent_column("y"))
        return expected_context(key, above, size, released, context, {}, np.array(inside))

    small = owners([True, True, False, False], optional=True)
    np.testing.assert_allclose(75 * small[OWNER_FANOUT], [0, 75, 0, 0])
    np.testing.assert_allclose(75 * small[parent_column("x")], [25, 0, 50], atol=0.1)
    np.testing.assert_allclose(75 * small[parent_column("y")], [20, 5, 50], atol=0.1)
    large = owners([False, False, True, True], optional=False)
    np.testing.assert_allclose(large[OWNER_FANOUT], [0, 0, 4 / 7, 3 / 7])
    np.testing.assert_allclose(large[parent_column("x")], [3 / 7, 4 / 7], atol=0.001)
    assert min(values.min() for name, values in large.items() if name != OWNER_FANOUT) > 0


def test_counts_of_parts_agree_with_those_of_the_whole_by_their_noise() -> None:
    """Exact counts of the whole are met; with equal noise two parts and the whole each give way by a third."""
    parts = [OneWay.alike({"x": np.array([10.0, 4.0])}, 2.0), OneWay.alike({"x": np.array([20.0, 5.0])}, 2.0)]
    exact = reconciled(parts, OneWay.alike({"x": np.array([36.0, 9.0])}, 0.0))
    np.testing.assert_allclose([look.counts["x"] for look in exact], [[13, 4], [23, 5]])
    np.testing.assert_allclose([look.sigmas["x"] for look in exact], np.full((2, 2), np.sqrt(2)))
    noisy = reconciled(parts, OneWay.alike({"x": np.array([36.0, 9.0])}, 2.0))
    np.testing.assert_allclose([look.counts["x"] for look in noisy], [[12, 4], [22, 5]])
    rng = np.random.default_rng(0)
    draws = rng.normal(0, [[3.0], [1.0], [2.0]], (3, 4000))
    looks = [OneWay.alike({"x": values}, sigma) for values, sigma in zip(draws[:2], (3.0, 1.0), strict=True)]
    for look in reconciled(looks, OneWay.alike({"x": draws[2]}, 2.0)):
        assert look.counts["x"].std() == pytest.approx(look.sigmas["x"][0], rel=0.05)
