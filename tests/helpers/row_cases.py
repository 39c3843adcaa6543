"""Databases on which models of the average parent were found wrong about rows, each as small as the fault needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from tests.helpers.heavy_tails import Database, Ints, following, magnitudes, zipf_sizes
from tests.helpers.planted import category, integer, owner_key, rows_of, texts

_BATTING = {"at_bats": (3.4, 700), "runs": (0.45, 160), "hits": (0.9, 250), "doubles": (0.16, 60), "homers": (0.08, 60)}
FEW_GAMES = 30
"""A season with fewer is one with few games."""


def seasons(players: int = 8000, seed: int = 0) -> Database:
    """Seasons of players, who play on the longer the more games they get: most seasons are those of few players.

    In half of the average *player's* seasons, and in three in ten of all *seasons*, there are fewer than `FEW_GAMES`.
    """
    rng = np.random.default_rng(seed)
    played = zipf_sizes(rng, players, most=26, power=1.25)
    of_player = np.repeat(np.arange(players), played)
    games = np.rint(rng.beta(0.28 + 0.22 * magnitudes(played)[of_player], 1.6) * 160).astype(np.int64)
    year = rng.integers(0, 100, players)[of_player] + np.arange(len(of_player)) - np.searchsorted(of_player, of_player)
    player = Table("player", (integer("id"), category("bats", 3), integer("height", 0, 15)), ("id",))
    season = Table(
        "season",
        (
            integer("id"),
            integer("player_id"),
            integer("year", 0, 129),
            integer("games", 0, 162),
            *(integer(name, 0, most) for name, (_, most) in _BATTING.items()),
            category("league", 4),
        ),
        ("id",),
        (owner_key("season", "player_id", "player", 30),),
    )
    tables = {
        "player": rows_of(
            player,
            id=np.arange(players),
            bats=texts(rng.choice(3, players, p=[0.6, 0.3, 0.1])),
            height=following(rng, np.full(players, 8.0), 16, 2.5),
        ),
        "season": rows_of(
            season,
            id=np.arange(len(of_player)),
            player_id=of_player,
            year=np.minimum(year, 129),
            games=games,
            **{name: np.minimum(rng.poisson(games * rate), most) for name, (rate, most) in _BATTING.items()},
            league=texts(rng.choice(4, len(of_player), p=[0.45, 0.4, 0.1, 0.05])),
        ),
    }
    return Schema("seasons", (player, season), "player"), tables


def few_customers(customers: int = 89, orders: int = 830, seed: int = 0) -> Database:
    """A small shop: 830 orders of 89 customers."""
    rng = np.random.default_rng(seed)
    return _owned(
        "shop", ("customer", customers), [("order", rng.multinomial(orders, _shares(rng, customers)), 60)], seed
    )


def hospital_stays(stays: int = 2520, seed: int = 0) -> Database:
    """Stays with three charts each: 42,080, 38,256 and 5,436 rows, most of them of long stays."""
    rng = np.random.default_rng(seed)
    shares = _shares(rng, stays)
    charts = [
        (name, rng.multinomial(rows, shares), bound)
        for name, rows, bound in (("chart", 42_080, 5000), ("input", 38_256, 5000), ("output", 5_436, 5000))
    ]
    return _owned("hospital", ("stay", stays), charts, seed)


def returns(sales: int = 5000, share: float = 0.03, seed: int = 0) -> Database:
    """Sales, few of which have a return and none has two, though as many as 20 are declared."""
    rng = np.random.default_rng(seed)
    return _owned("returns", ("sale", sales), [("return", (rng.random(sales) < share).astype(np.int64), 20)], seed)


def bestsellers(customers: int = 5000, products: int = 400, seed: int = 0) -> Database:
    """Sales to customers of public products, two of which make 60% of all sales and look like others."""
    rng = np.random.default_rng(seed)
    bought = zipf_sizes(rng, customers, most=60, power=1.8, none=0.1)
    of_customer = np.repeat(np.arange(customers), bought)
    shares = np.full(products, 0.4 / (products - 2))
    shares[[17, 230]] = 0.4, 0.2
    customer = Table("customer", (integer("id"), category("segment", 4)), ("id",))
    product = Table("product", (integer("id"), category("line", 8)), ("id",), public=True)
    sale = Table(
        "sale",
        (integer("id"), integer("customer_id"), integer("product_id"), integer("quantity", 0, 9)),
        ("id",),
        (owner_key("sale", "customer_id", "customer", 60), ForeignKey("sale", ("product_id",), "product", ("id",))),
    )
    tables = {
        "customer": rows_of(customer, id=np.arange(customers), segment=texts(following(rng, magnitudes(bought), 4))),
        "product": rows_of(product, id=np.arange(products), line=texts(rng.integers(0, 8, products))),
        "sale": rows_of(
            sale,
            id=np.arange(len(of_customer)),
            customer_id=of_customer,
            product_id=rng.choice(products, len(of_customer), p=shares),
            quantity=following(rng, 1.5 * magnitudes(bought)[of_customer], 10),
        ),
    }
    return Schema("bestsellers", (customer, product, sale), "customer"), tables


def _shares(rng: np.random.Generator, parents: int) -> np.ndarray:
    """Log-normal shares of the rows: a heavy tail, and nobody without a chance."""
    weights = rng.lognormal(0.0, 1.1, parents)
    return np.asarray(weights / weights.sum())


def messages(users: int = 5000, seed: int = 0) -> Database:
    """Posts of users and messages between them: who writes much gets many, and no column of users says who."""
    rng = np.random.default_rng(seed)
    active = rng.lognormal(0, 1.2, users)
    user = Table("user", (integer("id"), category("country", 4)), ("id",))
    tables = {"user": rows_of(user, id=np.arange(users), country=texts(rng.choice(4, users, p=[0.5, 0.3, 0.1, 0.1])))}
    of = {name: np.repeat(np.arange(users), np.minimum(rng.poisson(active), 200)) for name in ("post", "message")}
    recipient = rng.choice(users, len(of["message"]), p=active / active.sum())
    recipient[rng.random(len(recipient)) < 0.1] = -1
    to = ForeignKey("message", ("to_id",), "user", ("id",), 200, optional=True, on_unit_removed=OnUnitRemoved.SET_NULL)
    more = {"post": {}, "message": {"to_id": pa.array(recipient, mask=recipient < 0)}}
    owned = []
    for name, rows in of.items():
        columns = (integer("id"), integer("user_id"), *(replace(integer(n), nullable=True) for n in more[name]))
        keys = (owner_key(name, "user_id", "user", 200), *((to,) if more[name] else ()))
        owned.append(Table(name, (*columns, category("kind", 3)), ("id",), keys))
        kind = texts(rng.choice(3, len(rows), p=[0.6, 0.3, 0.1]))
        tables[name] = rows_of(owned[-1], id=np.arange(len(rows)), user_id=rows, kind=kind, **more[name])
    return Schema("messages", (user, *owned), "user"), tables


def _owned(name: str, unit: tuple[str, int], children: list[tuple[str, Ints, int]], seed: int) -> Database:
    """A unit's table with children of given sizes (name, rows per unit, bound), columns following the sizes."""
    rng = np.random.default_rng([seed, 1])
    parent, count = unit
    first = children[0][1]
    tables = [Table(parent, (integer("id"), category("kind", 4), integer("level", 0, 7)), ("id",))]
    rows = {
        parent: rows_of(
            tables[0],
            id=np.arange(count),
            kind=texts(rng.choice(4, count, p=[0.4, 0.3, 0.2, 0.1])),
            level=following(rng, magnitudes(first), 8),
        )
    }
    for child, sizes, bound in children:
        columns = (integer("id"), integer(f"{parent}_id"), category("sort", 6), integer("value", 0, 9))
        table = Table(child, columns, ("id",), (owner_key(child, f"{parent}_id", parent, bound),))
        home = np.repeat(np.arange(count), sizes)
        rows[child] = rows_of(
            table,
            id=np.arange(len(home)),
            **{f"{parent}_id": home},
            sort=texts(rng.choice(6, len(home), p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05])),
            value=following(rng, 1.2 * magnitudes(sizes)[home], 10),
        )
        tables.append(table)
    return Schema(name, tuple(tables), parent), rows


CASES: dict[str, Callable[[], Database]] = {
    "seasons": seasons,
    "shop": few_customers,
    "hospital": hospital_stays,
    "returns": returns,
    "bestsellers": bestsellers,
    "messages": messages,
}
"""Each by its name."""
