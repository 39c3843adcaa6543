"""How often parents are referred to: measured, estimated, and kept by sampling."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import InternalError
from privbench_core.links.popularity import ByRank, allocated_degrees
from privbench_core.links.popularity_shapes import rank_ends, truncated_mean
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.queries import Marginal, ParentCounts, RankSums
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import (
    PLENTY,
    category,
    codes_of,
    door_of,
    draw_exactly,
    integer,
    owner_key,
    rows_of,
    texts,
    tvd,
)

BEYOND = Budget(1e14, 1e-6)
"""Beyond any noise, where a bound of 500 references to a product multiplies that of all sales by 2,001."""


def degrees_of(places, parents):
    return np.bincount(places[places >= 0], minlength=parents)


def degree_distance(one, other):
    most = max(one.max(), other.max()) + 1
    return tvd(np.bincount(one, minlength=most) / len(one), np.bincount(other, minlength=most) / len(other))


def store(sales: int = 6000, *, optional: bool = False):
    """Customers buy variants of a public list and products of other customers; both have bestsellers."""
    rng = np.random.default_rng(0)
    customer = Table("customer", (integer("id"), category("kind", 2)), ("id",))
    columns = (integer("id"), integer("seller"), category("colour", 2))
    product = Table("product", columns, ("id",), (owner_key("product", "seller", "customer", 2),))
    variant = Table("variant", (integer("id"), category("size", 3)), ("id",), public=True)
    keys = (
        owner_key("sale", "customer_id", "customer", 12),
        ForeignKey("sale", ("product_id",), "product", ("id",), max_children=500, optional=optional),
        ForeignKey("sale", ("variant_id",), "variant", ("id",), optional=optional),
    )
    more = (integer("product_id", nullable=optional), integer("variant_id", nullable=optional), category("way", 2))
    sale = Table("sale", (integer("id"), integer("customer_id"), *more), ("id",), keys)
    colour, size = rng.integers(0, 2, 400), rng.integers(0, 3, 300)
    weight = 1 / np.arange(1, 401) * np.where(colour == 0, 4, 1)
    popular = rng.permutation(1 / np.arange(1, 301))
    none = optional & (rng.random(sales) < 0.3)
    bought = rng.choice(400, sales, p=weight / weight.sum())
    of_variant = rng.choice(300, sales, p=popular / popular.sum())
    tables = {
        "customer": rows_of(customer, id=np.arange(1500), kind=texts(rng.integers(0, 2, 1500))),
        "product": rows_of(product, id=np.arange(400), seller=rng.permutation(1500)[:400], colour=texts(colour)),
        "variant": rows_of(variant, id=np.arange(300), size=texts(size)),
        "sale": rows_of(
            sale,
            id=np.arange(sales),
            customer_id=np.arange(sales) % 1500,
            product_id=pa.array(bought, mask=none),
            variant_id=pa.array(of_variant, mask=none),
            way=texts(rng.integers(0, 2, sales)),
        ),
    }
    return Schema("store", (customer, product, variant, sale), "customer"), tables, bought[~none], of_variant[~none]


@pytest.mark.parametrize("optional", [False, True])
def test_popularity_converges_to_the_source(optional):
    schema, tables, bought, of_variant = store(optional=optional)
    made = draw_exactly(schema, tables, budget=BEYOND)
    places = made["sale"].parents
    products = made["product"].table
    assert degree_distance(degrees_of(places["sale.product_id"], 400), np.bincount(bought, minlength=400)) < 0.02
    drawn = degrees_of(places["sale.variant_id"], 300)
    there = np.bincount(of_variant, minlength=300)
    assert tvd(drawn / drawn.sum(), there / there.sum()) < 0.02  # row by row: its rows are public
    at = places["sale.product_id"]
    of_kind = np.bincount(codes_of(products.column("colour"))[at[at >= 0]], minlength=2)
    truly = np.bincount(codes_of(tables["product"].column("colour"))[bought], minlength=2)
    assert of_kind / of_kind.sum() == pytest.approx(truly / truly.sum(), abs=0.02)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_the_most_popular_are_as_popular_at_every_scale(scale):
    schema, tables, bought, _ = store()
    made = draw_exactly(schema, tables, budget=BEYOND, scale=scale)
    drawn = np.sort(degrees_of(made["sale"].parents["sale.product_id"], made["product"].table.num_rows))[::-1]
    there = np.sort(np.bincount(bought, minlength=400))[::-1]
    assert drawn[0] == pytest.approx(there[: max(1, round(1 / scale))].mean(), rel=0.05)
    top = max(1, len(drawn) // 20)
    assert drawn[:top].sum() / drawn.sum() == pytest.approx(there[:20].sum() / there.sum(), abs=0.03)


def test_a_junction_keeps_the_degrees_of_its_other_side_and_its_pairs():
    rng = np.random.default_rng(1)
    film = Table("film", (integer("id"), category("kind", 2)), ("id",))
    actor = Table("actor", (integer("id"), integer("film_id"), category("a", 2)), ("id",),
                  (owner_key("actor", "film_id", "film", 3),))  # fmt: skip
    key = ForeignKey("part", ("actor_id",), "actor", ("id",), max_children=200)
    part = Table("part", (integer("film_id"), integer("actor_id")), ("film_id", "actor_id"),
                 (owner_key("part", "film_id", "film", 8), key))  # fmt: skip
    weight = 1 / np.arange(5, 205)
    pairs = [
        (f, a) for f in range(500) for a in rng.choice(200, rng.integers(1, 8), replace=False, p=weight / weight.sum())
    ]
    films, actors = np.array(pairs).T
    tables = {
        "film": rows_of(film, id=np.arange(500), kind=texts(rng.integers(0, 2, 500))),
        "actor": rows_of(actor, id=np.arange(200), film_id=np.arange(200), a=texts(rng.integers(0, 2, 200))),
        "part": rows_of(part, film_id=films, actor_id=actors),
    }
    made = draw_exactly(Schema("cinema", (film, actor, part), "film"), tables, budget=Budget(1e12, 1e-6))["part"]
    assert made.table.num_rows > 0.99 * len(films)
    found = degrees_of(made.parents["part.actor_id"], 200)
    there = np.bincount(actors, minlength=200)
    assert np.abs(np.sort(found) - np.sort(there)).sum() < 0.03 * there.sum()


def test_noise_does_not_send_all_some_of_all_or_to_one_parent():
    """59 rows under a noise of 2,400: a noisy number cut at all rows left one reference, so one parent had them all."""
    rng = np.random.default_rng(0)
    hidden = [truncated_mean(20 + 2400 * rng.normal(), 2400.0, 59.0) for _ in range(50)]
    assert min(hidden) > 20
    assert max(hidden) < 40
    assert truncated_mean(20.0, 0.1, 59.0) == pytest.approx(20, abs=0.01)
    assert truncated_mean(-3.0, 1.0, 59.0) == pytest.approx(0.28, abs=0.01)  # there may be a few
    assert truncated_mean(-30.0, 1.0, 59.0) == 0.0
    assert truncated_mean(59.0, 0.0, 59.0) == 59.0
    # Twice the noise beyond all rows is no reason to believe that no row refers to any parent.
    assert truncated_mean(8000.0, 2000.0, 4000.0) < 0.9 * 4000


def test_only_public_parents_are_counted_row_by_row():
    schema, tables, bought, of_variant = store()
    to_product, to_variant = schema.table("sale").foreign_keys[1:]
    session = door_of(schema, tables)
    with pytest.raises(InternalError, match="public"):
        session.references(to_product, 12, "x").measure("rows", [ParentCounts(np.arange(400))], PLENTY.share(0.1))
    with pytest.raises(InternalError, match="with a group per row"):
        session.references(to_variant, 12, "x").measure("rows", [ParentCounts(np.arange(299))], PLENTY.share(0.1))
    counts = session.references(to_variant, 12, "x").measure("r", [ParentCounts(np.arange(300))], PLENTY.share(0.1))
    assert counts.values[0] * 12 == pytest.approx(np.append(np.bincount(of_variant, minlength=300), 0), rel=1e-3)
    ranks = session.references(to_product, 12, "x").measure("ranks", [RankSums((1, 2, 400))], PLENTY.share(0.1))
    there = np.sort(np.bincount(bought))[::-1]
    assert ranks.values[0] * 12 == pytest.approx([there[0], there[1], there[2:].sum()], rel=1e-3)


def test_references_are_asked_about_in_views_of_references_along_known_keys():
    schema, tables, _, _ = store()
    session = door_of(schema, tables)
    foreign = ForeignKey("sale", ("product_id",), "product", ("id",), max_children=1)
    with pytest.raises(InternalError, match="not a foreign key as the schema declares it"):
        session.references(foreign, 12, "x")
    with pytest.raises(InternalError, match="only a view of references can count"):
        session.view(ViewSpec("sale", {})).measure("ranks", [RankSums((1,))], PLENTY.share(0.1))


@pytest.mark.parametrize("most", [1, 5, 100])
def test_rows_of_a_unit_weigh_at_most_one_and_count_in_full_up_to_the_bound(most):
    schema, tables, _, _ = store(sales=5000)  # customers have 3 or 4 sales
    view = door_of(schema, tables).references(schema.table("sale").foreign_keys[1], most, "x")
    total = float(view.measure("rows", [Marginal(())], PLENTY.share(0.1)).values[0]) * most
    sizes = np.bincount(np.arange(5000) % 1500)
    assert total == pytest.approx(np.minimum(sizes, most).sum(), rel=1e-3)


@pytest.mark.parametrize("parents", [1, 2, 7, 1000])
def test_degrees_are_whole_and_add_up(parents):
    ends = rank_ends(1000)
    curve = ByRank(ends, 1000 / ends**0.5, 1e-6, 5000.0)
    degrees = curve.degrees(parents, 777)
    assert degrees.sum() == 777
    assert (degrees == np.rint(degrees)).all()
    assert degrees.min() >= 0


def test_columns_that_rows_do_not_ask_for_tell_who_is_popular():
    """Two columns and the kind that rows ask for all get what they are to have, though few parents have most of it."""
    rng = np.random.default_rng(3)
    parents = 4000
    degrees = np.minimum(rng.zipf(1.8, parents) - 1, 400).astype(float)
    kinds = rng.integers(0, 4, parents)
    busy = np.argsort(np.argsort(rng.normal(size=parents) + np.log1p(degrees))) * 30 // parents
    other = np.where(rng.random(parents) < 0.7, busy // 3, rng.integers(0, 10, parents))
    margins = [(codes, np.bincount(codes, degrees)) for codes in (busy, other)]
    wanted = np.bincount(kinds, degrees)
    given = allocated_degrees(degrees, kinds, wanted, rng, margins)
    assert np.sort(given).tolist() == np.sort(degrees).tolist()
    for codes, references in (*margins, (kinds, wanted)):
        assert np.abs(np.bincount(codes, given) - references).sum() / 2 < 0.03 * degrees.sum()
    alone = allocated_degrees(degrees, kinds, wanted, rng)
    assert np.abs(np.bincount(busy, alone) - margins[0][1]).sum() / 2 > 0.2 * degrees.sum()


@pytest.mark.parametrize("epsilon", [0.8, 3.2])
def test_units_with_many_rows_count_in_full_however_many_parents_a_public_table_has(epsilon: float):
    """Planes with few flights land at another airport than those with many, which have nearly all flights."""
    rng = np.random.default_rng(0)
    numbers = np.where(rng.random(2500) < 0.5, rng.integers(1, 4, 2500), rng.integers(80, 160, 2500))
    plane = np.repeat(np.arange(2500), numbers)
    place = np.where(np.repeat(numbers > 50, numbers), rng.choice([700, 900], len(plane), p=[0.7, 0.3]), 100)
    airport = Table("airport", (integer("id"), category("zone", 5)), ("id",), public=True)
    owner = Table("plane", (integer("id"), category("kind", 3)), ("id",))
    keys = owner_key("flight", "plane_id", "plane", 200), ForeignKey("flight", ("place_id",), "airport", ("id",))
    flight = Table("flight", (integer("id"), integer("plane_id"), integer("place_id")), ("id",), keys)
    tables = {
        "airport": rows_of(airport, id=np.arange(1458), zone=texts(rng.integers(0, 5, 1458))),
        "plane": rows_of(owner, id=np.arange(2500), kind=texts(rng.integers(0, 3, 2500))),
        "flight": rows_of(flight, id=np.arange(len(plane)), plane_id=plane, place_id=place),
    }
    schema, budget = Schema("flights", (airport, owner, flight), "plane"), Budget(epsilon, 1e-9)
    source = np.bincount(tables["flight"]["place_id"].to_numpy(), minlength=1458) / len(plane)
    apart = []
    for seed in range(3):
        made = draw_exactly(schema, tables, noise=SeededNoise(seed), budget=budget)["flight"].table
        drawn = np.bincount(made["place_id"].to_numpy(), minlength=1458) / made.num_rows
        apart.append(float(np.abs(source - drawn).sum()) / 2)
    assert sorted(apart)[1] < 0.08


@pytest.mark.parametrize("epsilon", [0.8, 3.2])
def test_flights_without_a_plane_say_little_of_where_planes_fly(epsilon: float):
    """Most units are single flights without a plane, most flights those of planes: from three airports of 1,458."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(60, 120, 2500)
    plane = np.append(np.repeat(np.arange(2500), numbers), np.full(40_000, -1))
    shares = np.where(plane[:, None] < 0, [0.7, 0.2, 0.1], [0.1, 0.4, 0.5])
    place = np.array([100, 700, 900])[(shares.cumsum(axis=1) < rng.random((len(plane), 1))).sum(axis=1)]
    airport = Table("airport", (integer("id"), category("zone", 5)), ("id",), public=True)
    owner = Table("plane", (integer("id"), category("kind", 3)), ("id",))
    owned = ForeignKey("flight", ("plane_id",), "plane", ("id",), owner=True, optional=True, max_children=200)
    keys = owned, ForeignKey("flight", ("place_id",), "airport", ("id",))
    columns = integer("id"), integer("plane_id", nullable=True), integer("place_id")
    flight = Table("flight", columns, ("id",), keys)
    tables = {
        "airport": rows_of(airport, id=np.arange(1458), zone=texts(rng.integers(0, 5, 1458))),
        "plane": rows_of(owner, id=np.arange(2500), kind=texts(rng.integers(0, 3, 2500))),
        "flight": rows_of(flight, id=np.arange(len(plane)), plane_id=pa.array(plane, mask=plane < 0), place_id=place),
    }
    schema, budget = Schema("flights", (airport, owner, flight), "plane"), Budget(epsilon, 1e-9)
    made = draw_exactly(schema, tables, noise=SeededNoise(1), budget=budget)["flight"].table
    source, drawn = (np.bincount(rows["place_id"].to_numpy(), minlength=1458) for rows in (tables["flight"], made))
    assert np.abs(source / source.sum() - drawn / drawn.sum()).sum() / 2 < 0.1


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_references_are_null_only_where_that_shows(missing: float):
    """Sales may be of no customer, and of no product, as the schema says."""
    rng = np.random.default_rng(0)
    product = Table("product", (integer("id"), category("kind", 3)), ("id",), public=True)
    customer = Table("customer", (integer("id"), category("kind", 3)), ("id",))
    keys = (
        ForeignKey("sale", ("customer",), "customer", ("id",), owner=True, optional=True, max_children=20),
        ForeignKey("sale", ("product",), "product", ("id",), optional=True),
    )
    columns = integer("id"), integer("customer", nullable=True), integer("product", nullable=True)
    sale = Table("sale", columns, ("id",), keys)
    n, units = 6000, 2000
    tables = {
        "product": rows_of(product, id=np.arange(50), kind=texts(np.arange(50) % 3)),
        "customer": rows_of(customer, id=np.arange(units), kind=texts(rng.integers(0, 3, units))),
        "sale": rows_of(sale, id=np.arange(n), **{
            name: pa.array(there, mask=rng.random(n) < missing)
            for name, there in (("customer", rng.integers(0, units, n)), ("product", rng.integers(0, 50, n)))
        }),
    }  # fmt: skip
    schema, budget = Schema("shop", (product, customer, sale), "customer"), Budget(3.2, 1e-9)
    made = draw_exactly(schema, tables, noise=SeededNoise(1), budget=budget)["sale"].table
    for key in keys:
        share = made[key.columns[0]].null_count / made.num_rows
        assert share == missing if not missing else share == pytest.approx(missing, abs=0.03), key.name
