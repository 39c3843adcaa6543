"""Links between rows of two tables: classes, degrees, cross-table marginals, junctions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from privbench_core.links.linked_lookup import LinkedLookup
from privbench_core.links.linking import CrossMarginal, link_rows
from privbench_core.links.measure_linking import Reference, _Candidate, _cross_marginal
from privbench_core.links.parent_choice import Distinct, ParentChoice
from privbench_core.links.popularity import ByRow
from privbench_core.marginals.sampler import Rows
from privbench_core.privacy.budget import Budget, Price
from privbench_core.privacy.curator import Measurement
from privbench_core.synthesizers.privbench import PrivBench
from privbench_core.synthesizers.relational.plan import Relational
from privbench_core.synthesizers.steps.learned_link import completes_junction
from privbench_core.units.row_count import RowCount
from tests.helpers.databases import Database, club, forum, shop
from tests.helpers.heavy_tails import many_to_many, optional_keys
from tests.helpers.noise import SeededNoise
from tests.helpers.plans import Trace, computing_steps, run_step
from tests.helpers.planted import place_of

JOINT = np.array([[0.4, 0.1], [0.1, 0.4]])


def pair(joint: np.ndarray = JOINT) -> CrossMarginal:
    return CrossMarginal("a", "b", (), joint)


def answered(noisy: np.ndarray, sigma: float, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """What is made of the answer for a pair, shape (left codes, right codes)."""
    codes = np.arange(len(left)), np.arange(len(right))
    found = Measurement((noisy,), sigma)
    alone = Reference(Rows(1), {}, None, 1.0, RowCount(1.0, 0.0))
    return _cross_marginal(_Candidate("a", "b", codes), found, (left, right), alone).counts


def counted(left: np.ndarray, right: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return np.bincount(left.astype(int) * shape[1] + right, minlength=shape[0] * shape[1]).reshape(shape)


def test_every_row_is_linked_to_another_one_exactly_once_and_marginals_are_met():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 2, 3000), rng.integers(0, 2, 3000)
    order = link_rows(Rows(3000, {"a": a}), {"b": b}, [pair()], rng)
    assert sorted(order.tolist()) == list(range(3000))
    assert counted(a, b[order], (2, 2)) / 3000 == pytest.approx(JOINT, abs=0.02)


def test_noise_leaves_independent_columns_independent():
    rng = np.random.default_rng(3)
    n = 5000
    even = np.full((8, 8), n / 64)
    found = answered(even + rng.normal(0, 200, (8, 8)), 200.0, even.sum(axis=1), even.sum(axis=0))
    assert np.abs(found - even).sum() / 2 < 0.3 * n  # the noise itself is 1.0


def test_degrees_and_pairs_of_a_junction_are_kept():
    """Popular parents have nearly as many references as there are scopes, and no scope repeats a parent."""
    rng = np.random.default_rng(5)
    degrees = np.array([180, 150, 90, 60, 20])
    lookup = LinkedLookup({}, {}, {}, ByRow(degrees.astype(float)))
    scope = np.concatenate([np.repeat(np.arange(100), 3), np.repeat(np.arange(100, 200), 2)])
    choice = ParentChoice(np.zeros(500, int), np.zeros(5, int), (Distinct(scope, np.arange(5)),))
    found = lookup.draw(Rows(500), {"x": np.zeros(5, dtype=np.uint8)}, 5, rng, choice)
    assert len(np.unique(scope * 5 + found)) == 500
    assert np.abs(np.bincount(found, minlength=5) - degrees).sum() <= 10


def test_a_junction_of_privbench_is_linked_by_what_both_sides_say():
    """Within its price; a key that is no part of the primary key is measured as before."""
    database = club(0)
    trace = Trace()
    for step in computing_steps(PrivBench().plan(database.schema, Budget(3000.0, 1e-6), {})):
        run_step(step, database, SeededNoise(0), trace)
    link = LinkedLookup.from_dict(trace.artifacts["fanout", "enrolment.course_id"].data["link"])
    assert isinstance(link, LinkedLookup)
    assert link.cross_marginals
    assert {cross.left for cross in link.cross_marginals} <= {"parent.age", "#siblings", "paid"}
    shop_keys = shop(0).schema.table("item").foreign_keys
    assert not any(completes_junction(shop(0).schema, key) for key in shop_keys)


@pytest.mark.parametrize(
    ("method", "epsilon", "least"), [("independent", 100.0, 2), ("pairwise", 3000.0, 3), ("privspn", 3000.0, 3)]
)
def test_links_are_selected_and_measured_within_the_price_of_their_step(method: str, epsilon: float, least: int):
    database = forum(0)
    plan = Relational().plan(database.schema, Budget(epsilon, 1e-6), {"tables": method})
    trace = Trace()
    for step in computing_steps(plan):
        run_step(step, database, SeededNoise(0), trace)
    labels = {key: [label for label, _ in charges if "/links/" in label] for key, charges in trace.charges.items()}
    assert sum(bool(found) for found in labels.values()) >= least, "the replays of this database look at nothing"
    chosen = [label for found in labels.values() for label in found if "cross-table marginal" in label]
    assert chosen, "not all are measured everywhere"
    for key, charges in trace.charges.items():
        assert sum(price.amount for _, price in charges) <= plan.step(key).price.amount * (1 + 1e-9)


def test_hopeless_links_cost_nothing_beyond_degrees():
    database = forum(0)
    plan = Relational().plan(database.schema, Budget(0.01, 1e-6), {"tables": "independent"})
    trace = Trace()
    for step in computing_steps(plan):
        run_step(step, database, SeededNoise(0), trace)
    assert not any("cross-table" in label for charges in trace.charges.values() for label, _ in charges)
    assert isinstance(plan.step(("fanout", "post.user_id")).price, Price)


@pytest.mark.parametrize("method", [PrivBench(), Relational()])
def test_rows_of_keys_alone_leave_nothing_of_their_links_unspent(method: PrivBench | Relational):
    """Their owner key has numbers of children to measure, and what is not needed for that goes to other links."""
    schema, rows = many_to_many(600)
    enrolment = schema.table("enrolment")
    kept = tuple(column for column in enrolment.columns if column not in enrolment.attributes)
    alone = replace(enrolment, columns=kept)
    schema = replace(schema, tables=tuple(alone if t is enrolment else t for t in schema.tables))
    rows = {**rows, "enrolment": rows["enrolment"].select([column.name for column in kept])}
    database, plan = Database(schema, rows), method.plan(schema, Budget(8.0, 1e-6), {})
    trace = Trace()
    for step in computing_steps(plan):
        run_step(step, database, SeededNoise(0), trace)
    owner = alone.owner_key
    assert owner is not None
    spent = trace.accounts["fanout", owner.name].spent.amount
    price = next(step.price for step in plan.steps if step.key == ("fanout", owner.name))
    assert spent == pytest.approx(price.amount)
    assert price.amount < sum(step.price.amount for step in plan.steps if step.key[0] == "fanout") / 2


def test_a_sample_in_which_no_row_refers_to_another_ends_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where few rows refer to any: there is nothing to compare the source's marginals across the tables with."""
    monkeypatch.setattr(LinkedLookup, "linked", lambda _self, _referred, n: np.zeros(n, dtype=bool))
    schema, tables = optional_keys(300)
    here = place_of(tmp_path / "place", schema, tables, delta=1e-9, synthesizer="relational", options={})
    made = here.drawn_with(SeededNoise(0), 9e8)
    found, wanted = (rows["post"].column("editor_id").null_count for rows in (made, tables))
    assert found == pytest.approx(wanted, rel=0.05)
