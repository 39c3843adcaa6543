"""A table is learned for one price: what joints do not need goes to the cells of all columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.intervals import OrderedCodec
from privbench_core.marginals.measure_one_way import least_noise
from privbench_core.marginals.measure_spn import PairwiseSPN
from privbench_core.marginals.spn import Leaf, Node
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.noise import Sensitivity, noise_std
from privbench_core.profiles.measure_domains import learn_domains
from privbench_core.profiles.measure_lists import learn_lists
from privbench_core.profiles.measure_profile import Cells
from privbench_core.schema.columns import Column, ColumnType, Learn, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.tuning import TUNING
from privbench_core.units.measure_row_count import measure_row_count, measure_units
from privbench_core.units.row_count import RowCount
from tests.conftest import Town
from tests.helpers.noise import SeededNoise
from tests.helpers.plans import plan_with
from tests.helpers.planted import PLENTY, door_of, integer, learn_counted, made_exactly, owner_key, rows_of, texts

WIDTHS = (2, 4, 4, 9)
MEASURES = {"pure": Price(Measure.PURE, 1.0), "Gaussian": Budget(1.0, 1e-9).total()}


@dataclass(frozen=True)
class Learned:
    """What came of it, and (look, amount) of each charge."""

    cells: Cells
    node: Node
    charged: list[tuple[str, float]]

    @property
    def measured(self) -> list[str]:
        return [what for what, _ in self.charged]


def table_of(widths: tuple[int, ...] = WIDTHS) -> Table:
    names = [f"c{i}" for i in range(len(widths))]
    columns = [Column(n, ColumnType.INTEGER, Values(tuple(range(w)))) for n, w in zip(names, widths, strict=True)]
    return Table("t", (integer("id"), *columns), ("id",))


def learned(price: Price, n: int, tied: float, widths: tuple[int, ...] = WIDTHS, seed: int = 0) -> Learned:
    """A table whose columns follow the first one in a share of the rows."""
    rng = np.random.default_rng(5)
    first = rng.integers(0, max(widths), n)
    values = [np.where(rng.random(n) < tied, first, rng.integers(0, width, n)) % width for width in widths]
    table = table_of(widths)
    rows = rows_of(table, id=np.arange(n), **{f"c{i}": column for i, column in enumerate(values)})
    charged: list[tuple[str, float]] = []

    def record(label: str, cost: Price) -> None:
        charged.append((label.rsplit("/", maxsplit=1)[-1], cost.amount))

    session = door_of(Schema("s", (table,), "t"), {"t": rows}, price, SeededNoise(seed), record)
    cells, _, measured = learn_counted(session, table, 1, price, 0.5, PairwiseSPN)
    return Learned(cells, measured.fit(), charged)


@pytest.mark.parametrize("price", MEASURES.values(), ids=MEASURES)
@pytest.mark.parametrize("tied", [0.0, 0.8])
@pytest.mark.parametrize("n", [50, 15_000])
def test_the_price_is_spent_and_no_more(price, tied, n):
    found = learned(price, n, tied)
    assert sum(amount for _, amount in found.charged) == pytest.approx(price.amount)


@pytest.mark.parametrize("budget", [Budget(1.0), Budget(1.0, 1e-9)], ids=MEASURES)
def test_tables_whose_released_number_of_rows_is_none_are_learned(budget: Budget, town: Town) -> None:
    made = made_exactly(town.schema, {name: rows.slice(0, 0) for name, rows in town.tables.items()}, budget=budget)
    assert made["sample", "household"].table is not None


@pytest.mark.parametrize("price", MEASURES.values(), ids=MEASURES)
def test_dependences_are_looked_for_where_there_are_rows_enough_and_found(price):
    few, many = learned(price, 50, 0.8), learned(price, 15_000, 0.8)
    assert "dependence scores" not in few.measured
    assert "dependence scores" in many.measured
    assert isinstance(few.node, Leaf)
    assert isinstance(many.node, Leaf)
    assert not few.node.pairs
    assert len(many.node.pairs) >= 3


@pytest.mark.parametrize("n", [50, 4000])
def test_where_nothing_depends_gaussian_loses_nothing_but_what_looked_for_it(n):
    price = MEASURES["Gaussian"]
    found = learned(price, n, 0.0)
    assert isinstance(found.node, Leaf)
    assert not found.node.pairs
    looked_for = {"rows", "dependence scores", "triple scores", "constraint"}
    scores = sum(amount for what, amount in found.charged if what in looked_for)
    assert ("dependence scores" in dict(found.charged)) == (n > 50)
    shares = least_noise({name: look.codec.size for name, look in found.cells.known.items()}, Measure.GDP)
    for name, look in found.cells.known.items():
        whole = Price(Measure.GDP, (price.amount - scores) * shares[name])
        assert np.sqrt(look.variances) == pytest.approx(noise_std(Sensitivity(1, 1), whole), rel=1e-3)


def test_marginals_of_the_model_are_those_of_the_last_look():
    found = learned(MEASURES["Gaussian"], 4000, 0.0)
    one_way = found.cells.profile().one_way
    assert isinstance(found.node, Leaf)
    for name, counts in one_way.clean().items():
        np.testing.assert_allclose(found.node.marginals[name], counts / one_way.total)


@pytest.mark.parametrize("measure", list(Measure))
def test_shares_of_wide_columns_leave_the_least_noise_in_sum(measure):
    counts = {"narrow": 2, "middle": 10, "wide": 100}

    def noise(shares):
        power = 1.0 if measure is Measure.PURE else 0.5
        return sum(number * shares[name] ** -power for name, number in counts.items())

    shares = least_noise(counts, measure)
    assert sum(shares.values()) == pytest.approx(1)
    assert noise(shares) < 0.85 * noise(dict.fromkeys(counts, 1 / 3))
    for name in counts:
        for factor in (0.98, 1.02):
            other = {**shares, name: shares[name] * factor}
            assert noise(shares) <= noise({k: v / sum(other.values()) for k, v in other.items()})


@pytest.mark.parametrize("options", [{"alpha": 0.2}, {"profile": 0.3}, {"beta": 2}])
def test_what_the_model_depends_on_is_part_of_the_profile_steps_identity(options):
    schema = Schema("s", (table_of(),), "t")
    plain, other = (plan_with(schema, Budget(1.0), given).step(("profile", "t")) for given in ({}, options))
    assert plain.parameters != other.parameters


def test_a_table_without_rows_has_a_number_of_rows_whatever_noise_says() -> None:
    """Likely sizes may promise some rows where a count below zero denies them: what is fitted is finite."""
    owner, child = (
        Table("p", (integer("id"),), ("id",)),
        Table("c", (integer("id"), integer("p_id")), ("id",), (owner_key("c", "p_id", "p", 4),)),
    )
    rows = {"p": rows_of(owner, id=np.arange(30)), "c": rows_of(child, id=np.zeros(0), p_id=np.zeros(0))}
    schema, price = Schema("s", (owner, child), "p"), Price(Measure.GDP, 0.1)
    for seed in range(200):
        session = door_of(schema, rows, PLENTY, SeededNoise(seed))
        found, _ = measure_row_count(session, "c", measure_units(session, "c", 4, price.share(0.16)), price)
        assert found is not None
        assert 0 < found.rows < 100


def test_a_number_of_rows_that_noise_hides_is_not_that_noise() -> None:
    """Links refer to others' pages as well, which scales noise up 2,001 times: one of 400 rows had 60,000."""
    page = Table("page", (integer("id"), integer("user_id")), ("id",), (owner_key("page", "user_id", "user", 30),))
    to = ForeignKey("link", ("to_id",), "page", ("id",), max_children=1000, max_children_per_unit=1000)
    of_link = (integer("id"), integer("page_id"), integer("to_id"))
    link = Table("link", of_link, ("id",), (owner_key("link", "page_id", "page", 30), to))
    user = Table("user", (integer("id"),), ("id",))
    numbers = np.arange(400)
    rows = {
        "user": rows_of(user, id=numbers),
        "page": rows_of(page, id=numbers, user_id=numbers),
        "link": rows_of(link, id=numbers, page_id=numbers, to_id=numbers[::-1]),
    }
    schema, price, found = Schema("web", (user, page, link), "user"), Price(Measure.GDP, 0.01), []
    for seed in range(7):
        session = door_of(schema, rows, PLENTY, SeededNoise(seed))
        size, _ = measure_row_count(session, "link", measure_units(session, "link", 900, price.share(0.16)), price)
        assert size is not None
        assert size.rows < size.sigma
        found.append(size.rows)
    assert np.median(found) < 20_000


@pytest.mark.parametrize(
    ("kind", "name", "spread", "least"),
    [
        # Grid cells are years: births, plausible by their name, of which no year stands out; then a few recent years.
        (ColumnType.DATE, "birth_date", lambda rng, n: rng.normal(-5_700, 6_600, n), 0.91),
        (ColumnType.DATE, "issued", lambda rng, n: rng.normal(10_000, 500, n), 0.98),
        # Powers of two.
        (ColumnType.INTEGER, "amount", lambda rng, n: np.exp(rng.normal(8, 1, n)), 0.98),
    ],
    ids=["births", "years", "amounts"],
)
def test_the_tails_of_a_range_are_learned(
    kind: ColumnType, name: str, spread: Callable[..., np.ndarray], least: float
) -> None:
    """A learned range holds most rows; .85, .96 and .97 of them if tails had to be as certain as what is anywhere."""
    table = Table("unit", (integer("id"), Column(name, kind, Learn())), ("id",))
    values = spread(np.random.default_rng(3), 5_000)
    rows = {"unit": rows_of(table, id=np.arange(5_000), **{name: pa.array(values.astype(np.int32))})}
    schema, price, inside = Schema("units", (table,), "unit"), Price(Measure.GDP, 0.0025), []
    for seed in range(20):
        session = door_of(schema, rows, price, SeededNoise(seed))
        codec = learn_domains(session, table, None, price, 0.0).codecs[name]
        assert isinstance(codec, OrderedCodec)
        inside.append(float(np.mean((values >= codec.starts[0]) & (values <= codec.last))))
    assert np.mean(inside) > least


@pytest.mark.parametrize(("size", "looks"), [(None, 1), (RowCount(300.0, 1.0), 2)], ids=["one row", "several"])
def test_a_list_is_learned_in_one_look_where_no_unit_has_another_value_or_it_is_complete(
    size: RowCount | None, looks: int
) -> None:
    table = Table("unit", (integer("id"), Column("code", ColumnType.CATEGORY, Learn())), ("id",))
    rows = rows_of(table, id=np.arange(300), code=texts(np.arange(300) % 3))
    price, spent = Price(Measure.GDP, 1.0), []
    schema, limit = Schema("units", (table,), "unit"), price.with_delta(1e-6)
    session = door_of(schema, {"unit": rows}, limit, record=lambda label, cost: spent.append((label, cost)))
    found = learn_domains(session, table, size, price, 1e-6)
    named = [cost for label, cost in spent if "discover" in label]
    assert len(named) == 1
    assert named[0].delta == pytest.approx(1e-6 / looks)
    assert sum(cost.amount for _, cost in spent) + found.rest.amount <= 1 + 1e-9
    assert len(found.codecs["code"].values) == 3


def test_where_no_value_repeats_none_is_looked_for_and_others_get_the_price() -> None:
    rng, rows = np.random.default_rng(1), 2_000
    kinds = rng.choice(40, rows, p=1 / np.arange(1, 41) / (1 / np.arange(1, 41)).sum())
    columns = {"name": texts(np.arange(rows)), "flag": texts(kinds % 2), "kind": texts(kinds)}
    table = Table("unit", (integer("id"), *(Column(name, ColumnType.CATEGORY, Learn()) for name in columns)), ("id",))
    price, spent = Price(Measure.GDP, 0.3), []
    schema, limit = Schema("units", (table,), "unit"), price.with_delta(1e-6)
    tables = {"unit": rows_of(table, id=np.arange(rows), **columns)}
    session = door_of(schema, tables, limit, SeededNoise(4), lambda label, cost: spent.append((label, cost.amount)))
    found = learn_lists(session, table, table.modelled, None, limit)
    looks = [(label.rsplit(" ", 1)[-1], amount) for label, amount in spent if "discover" in label]
    assert [column for column, _ in looks] == ["name", "flag", "kind", "kind"]
    unnamed, first, _ = TUNING.list_shares
    naming = 0.3 * (1 - unnamed)
    assert looks[0][1] == pytest.approx(naming * first / 3)
    assert looks[3][1] == pytest.approx(naming * (1 - first - TUNING.first_look - TUNING.number_share))
    assert sum(amount for _, amount in spent) + found.rest.amount == pytest.approx(0.3)
    assert found.codecs["name"].made is not None
    assert found.codecs["name"].made.distinct == pytest.approx(rows, rel=0.05)
    counts, variances = found.counted["kind"]
    exact = np.array([columns["kind"].to_pylist().count(value) for value in found.codecs["kind"].values])
    assert (np.abs(counts[: len(exact)] - exact) < 4 * np.sqrt(variances[: len(exact)])).all()
    assert np.isinf(variances[len(exact) :]).all()
