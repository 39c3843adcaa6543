"""What one unit moves in the answers about how often parents are referred to: all neighbours, keys of every kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privbench_core.links.measure_popularity import row_popularity
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.noise import NoiseSource
from privbench_core.privacy.queries import ParentCounts, RankSums
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.view_building import build_references, build_values, distinct_weights
from privbench_core.units.row_count import RowCount
from tests.helpers.databases import Database, adversaries, forum, shop, town
from tests.helpers.key_graphs import diamond, mixed
from tests.helpers.noise import RecordingNoise, ReplayNoise, SeededNoise
from tests.property.test_privacy_references import blog, staff

EXAMPLES = settings(max_examples=10, deadline=None)
ENDS = ((1, 2, 3, 5, 8, 100), (1 << 40,), (2, 4))
CATEGORIES = [(town, "person", "job"), (shop, "item", "colour")]


def moved(query: ParentCounts | RankSums, database: Database, neighbour: Database, name: str, most: int) -> float:
    """L1 or L2 distance of the exact answers, relative to what the query claims, whichever is more."""
    key = next(k for t in database.schema.tables for k in t.foreign_keys if k.name == name)
    one, other = (build_references(d.private(), key, most) for d in (database, neighbour))
    assert one.stability == other.stability
    l1, squared = query.moves(one)
    assert getattr(query, "clipped", False) or l1 <= one.stability
    assert squared <= l1**2
    apart = (query.evaluate(one) - query.evaluate(other)).astype(float)
    return max(float(np.abs(apart).sum()) / l1, float(np.sqrt((apart**2).sum() / squared)))


def private_keys(database: Database) -> list[str]:
    """Keys to private parents, off the ownership path."""
    tables = database.schema.private_tables
    public = {table.name for table in database.schema.tables if table.public}
    return [key.name for table in tables for key in table.foreign_keys if not key.owner and key.parent not in public]


@EXAMPLES
@given(st.sampled_from([blog, staff, diamond, mixed]), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10_000))
def test_no_unit_moves_the_ranks_beyond_the_stability(
    make: Callable[[int, int, int], Database], one: int, other: int, seed: int
) -> None:
    database = make(one, other, seed)
    units = database.tables[database.schema.unit].column("id").to_pylist()
    for unit in units:
        neighbour = database.without(unit, database.schema.unit)
        for name in private_keys(database):
            for most in (1, 2, 50):
                for ends in ENDS:
                    assert moved(RankSums(ends), database, neighbour, name, most) <= 1


@pytest.mark.parametrize("make", [shop, forum])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_one_unit_moves_popularity_no_further_than_claimed_and_some_as_far(
    make: Callable[[int], Database], seed: int
) -> None:
    database = make(seed)
    shifts, longest = [], 0.0
    for unit in adversaries(database, seed, 5):
        neighbour = database.without(unit)
        if make is shop:
            by_row, by_group = ParentCounts(np.arange(5)), ParentCounts(np.array([0, 1, 0, 1, 1]))
            shifts += [moved(query, database, neighbour, "item.product_id", 1) for query in (by_row, by_group)]
            shifts += [moved(RankSums(ends), database, neighbour, "item.product_id", 1) for ends in ENDS]
            clipped = ParentCounts(np.arange(5), clipped=True)
            in_l2 = [moved(clipped, database, neighbour, "item.product_id", most) for most in (1, 2, 3)]
            assert max(in_l2) <= 1
            longest = max(longest, *in_l2)
        else:
            shifts += [moved(RankSums(ends), database, neighbour, "vote.user_id", 1) for ends in ENDS]
    assert max(shifts) <= 1
    assert longest > 0.9 or make is forum
    assert max(shifts) > (0.9 if make is shop else 0.05)  # forum: the bound allows for more votes than there are


@pytest.mark.parametrize("price", [Price(Measure.GDP, 0.3), Price(Measure.PURE, 0.45)])
def test_public_parents_counted_in_steps_cost_what_they_should(price: Price) -> None:
    """Most units have one row, most rows are of units with many."""
    database = shop(0)
    (key,) = (k for k in database.schema.table("item").foreign_keys if k.name == "item.product_id")
    classes, rows = (1, 2, 4, 8, 16, 32), np.array([50.0, 1.0, 1.0, 1.0, 1.0, 300.0])
    size = RowCount(float(rows.sum()), 1.0, 1, classes, rows, rows / np.array(classes), 32)

    def found(of: Database, noise: NoiseSource) -> tuple[bytes, list[str]]:
        labels: list[str] = []
        account = PrivacyFilter(price + price, lambda label, _: labels.append(label))
        session = PrivateSession(of.private(), account, noise, "link")
        popularity, none = row_popularity(session, key, size, 5, price).remeasured(price).popularity
        return np.append(popularity.counts, none).tobytes(), labels

    recorded = RecordingNoise(SeededNoise(1))
    first, labels = found(database, recorded)
    assert [label.rsplit("/", 1)[1] for label in labels] == ["parents, early", "parents", "parents again"]
    for unit in adversaries(database, 0, 5):
        noise = ReplayNoise(recorded.tape)
        assert found(database.without(unit), noise)[0] == first
        noise.finish()
        assert noise.loss <= 2 * price.amount * (1 + 1e-9)


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_the_rows_of_a_unit_together_weigh_at_most_one(most: int) -> None:
    database = shop(0)
    (key,) = (k for k in database.schema.table("item").foreign_keys if k.name == "item.product_id")
    whole = build_references(database.private(), key, most)
    for unit in database.units():
        left = build_references(database.without(unit).private(), key, most)
        assert 0 <= whole.counts(()) - left.counts(()) <= WEIGHT_SCALE


def test_the_order_of_private_rows_moves_nothing() -> None:
    database = forum(0)
    (key,) = (k for k in database.schema.table("vote").foreign_keys if k.name == "vote.user_id")
    answers = [
        RankSums((1, 2, 3, 100)).evaluate(build_references(d.private(), key, 2))
        for d in (database, database.shuffled(1))
    ]
    assert answers[0].tolist() == answers[1].tolist()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("make", "table", "column"), CATEGORIES)
def test_no_unit_moves_the_ranks_of_values_beyond_the_stability(
    make: Callable[[int], Database], table: str, column: str, seed: int
) -> None:
    database = make(seed)
    found = database.tables[table].column(column).drop_null().unique().to_pylist()
    shifts = []
    for unit in adversaries(database, seed, 5):
        neighbour = database.without(unit)
        for named in ((), tuple(sorted(found)[:2])):
            for most in (1, 4):
                for ends in ENDS:
                    one, other = (build_values(d.private(), table, column, named, most) for d in (database, neighbour))
                    query = RankSums(ends)
                    apart = (query.evaluate(one) - query.evaluate(other)).astype(float)
                    l1, squared = query.moves(one)
                    assert l1 <= one.stability
                    shifts += [np.abs(apart).sum() / l1, np.sqrt((apart**2).sum() / squared)]
    assert max(shifts) <= 1
    assert max(shifts) > 0.1


def test_named_values_and_null_are_in_no_rank() -> None:
    database = town(0)
    jobs = database.tables["person"].column("job").to_pylist()
    named, ends = ("red",), (1, 2, 3, 100)
    answers = RankSums(ends).evaluate(build_values(database.private(), "person", "job", named, 1))
    assert 0 < answers.sum() <= sum(job not in {None, *named} for job in jobs) * WEIGHT_SCALE
    everything = RankSums(ends).evaluate(build_values(database.private(), "person", "job", (), 1))
    assert everything.sum() > answers.sum()


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("make", "table", "column"), CATEGORIES)
def test_no_unit_moves_the_weights_of_values_beyond_the_stability(
    make: Callable[[int], Database], table: str, column: str, seed: int
) -> None:
    database = make(seed)
    found = database.tables[table].column(column).drop_null().unique().to_pylist()
    shifts = []
    for unit in adversaries(database, seed, 5):
        for named in ((), tuple(sorted(found)[:2])):
            (one, view), (other, _) = (
                distinct_weights(d.private(), table, column, named) for d in (database, database.without(unit))
            )
            apart = np.array([one.get(text, 0) - other.get(text, 0) for text in one.keys() | other.keys()], dtype=float)
            alone = [one.get(text, 0) + other.get(text, 0) for text in one.keys() ^ other.keys()]
            assert max(alone, default=0) <= view.stability
            assert len(alone) <= view.touched
            shifts.append(float(np.sqrt((apart**2).sum())) / view.stability)
    assert max(shifts) <= 1
    assert max(shifts) > 0.1


def test_a_unit_is_heard_in_each_of_its_values_that_no_list_names() -> None:
    database = shop(0)
    exact, view = distinct_weights(database.private(), "item", "colour", ())
    first = max(exact, key=lambda name: exact[name])
    later, _ = distinct_weights(database.private(), "item", "colour", (first,))
    assert later.keys() == exact.keys() - {first}
    assert all(later[name] >= exact[name] for name in later)
    assert sum(later.values()) > sum(exact[name] for name in later)
    alone, _ = distinct_weights(database.private(), "item", "colour", tuple(sorted(exact)[1:]))
    (units,) = (weight / view.weight_scale for weight in alone.values())
    assert units == round(units), "a unit with one value counts 1 in it"
