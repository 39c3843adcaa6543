"""Relationships: marginals across tables and degrees, of each way to link tables, on several kinds of databases.

- *junction*: 100,000 users, 10,000 public items and a million links with attributes between them, generated: items
  follow Zipf's law, and what a user takes follows both tables' columns, by pairs and by threes.
- *sandag*: households and persons of San Diego, one-to-many.
- *sakila*: films, which are private here, with the actors and categories of a rental shop; made up, without
  correlations, and small: whether links make anything worse.
- *movielens*: users, films and ratings, where the data folder has MovieLens 100K (``ml-100k/u.user``, ``u.item``,
  ``u.data``): its licence does not let it be passed on.
- *stats*: users, posts, votes, badges and links of a question-and-answer site, chains of keys.

Beside *relational* and *privbench* stands random linking: the tables of relational with their links shuffled, so that
tables and the degrees of both sides stay, and only who belongs to whom is lost. *True tables* are the source's own.
What learning takes away of the error of random links is the protocol of Alimohammadi et al.: their ten rounds of
refinement take away a third (average errors of 31.5 and 20.9, AIM tables).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from benchmarks import sandag, stats
from benchmarks.data import data_folder, read_table
from benchmarks.measure import Runs, call_in_child
from benchmarks.report import Row, machine, markdown, medians
from benchmarks.workloads import Case, Tables, run_pipeline
from privbench_core.evaluation.joins import (
    LinkedTables,
    chains,
    junctions,
    link_junction,
    link_tables,
)
from privbench_core.evaluation.marginals import EncodedTable, crossing_subsets, encode_tables, mean_distances
from privbench_core.publishing import read_bundle
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from tests.helpers.row_figures import popularity_distance, size_class_distance

EPSILONS = (0.4, 1.6, 3.2)
DELTA = 1e-9
RUNS = Runs(1, EPSILONS, (DELTA,))
USERS, ITEMS, LINKS = 100_000, 10_000, 1_000_000
_METHODS = ("relational", "privbench")
_ORDERS = (2, 3)
_MOST_SUBSETS = 300  # marginals per join
_AGES, _REGIONS, _GENRES, _PRICES = 8, 5, 12, 10
_MOST_LINKS = 200  # of one user
_SEED = 0
MOVIELENS_KINDS = tuple(f"g{k}" for k in range(19))  # of films: a film may be of several

Joins = Mapping[str, LinkedTables]


def run(name: str, runs: Runs = RUNS, data: Path | None = None) -> str | None:
    """Measure one of `DATABASES` and return Markdown text, None where the data folder lacks it."""
    rows: list[Row] = []
    with TemporaryDirectory() as place:
        case = _CASES[name](data_folder(data), Path(place))
        if case is None:
            runs.progress(f"relationships: {name} is left out: {data_folder(data)} has no such data")
            return None
        true = _joins(case.spec.schema, case.source, encode_tables(case.spec.schema, case.source))
        exact = {"δ": "-", "ε": "-", "method": "true tables, random links"}
        rows.append({**exact, **_figures(true, _shuffled(true, _SEED))})
        for delta, epsilon in runs.budgets:
            for method in _METHODS:
                for seed in range(runs.seeds):
                    runs.progress(f"relationships: {name}, {method}, ε={epsilon:g}, δ={delta:g}, seed {seed}")
                    rows += _measured(case, true, (method, epsilon, delta, seed))
        sizes = ", ".join(f"{rows.num_rows:,} {table}" for table, rows in case.source.items())
    return f"**{name}**: {sizes}. {machine(runs.seeds)}\n\n{markdown(medians(rows, ['δ', 'ε', 'method']))}"


def _junction(_: Path, place: Path) -> Case:
    return Case.of(junction_spec(place / "junction", USERS, ITEMS, LINKS), lambda *_: {})


def _sandag(_: Path, place: Path) -> Case:
    return Case.of(replace(load_spec(sandag.SPEC), path=place / "sandag.yaml"), lambda *_: {})


def _sakila(data: Path, place: Path) -> Case:
    return Case.of(_sakila_spec(data / "sakila", place / "sakila"), lambda *_: {})


def _movielens(data: Path, place: Path) -> Case | None:
    source = data / "ml-100k"
    return Case.of(_movielens_spec(source, place / "movielens"), lambda *_: {}) if source.is_dir() else None


def _stats(data: Path, place: Path) -> Case:
    source = place / "stats"
    source.mkdir()
    stats.prepare(data / "stats", source)
    return Case.of(stats.spec(source, place), lambda *_: {})


def _measured(case: Case, true: Joins, how: tuple[str, float, float, int]) -> Iterator[Row]:
    method, epsilon, delta, seed = how
    with TemporaryDirectory() as out:
        arguments = {"spec": str(case.spec.path), "epsilon": epsilon, "delta": delta, "seed": seed, "out": out}
        target = "benchmarks.relationships:timed_pipeline"
        (seconds, processor), peak = call_in_child(target, {**arguments, "synthesizer": method})
        bundle = read_bundle(Path(out) / "bundle")
        made = {table.name: bundle.table(table.name) for table in case.spec.schema.tables}
    schema = case.spec.schema
    found = _joins(schema, made, encode_tables(schema, made, case.source))
    keys: Row = {"δ": f"{delta:g}", "ε": f"{epsilon:g}"}
    cost = {"s": seconds, "CPU s": processor, "peak MB": peak}
    learned, random = (_figures(true, joins) for joins in (found, _shuffled(found, seed)))
    gained = {f"taken away, {n}-way": 1 - learned[f"{n}-way TVD"] / random[f"{n}-way TVD"] for n in _ORDERS}
    yield {**keys, "method": method, **learned, **gained, **cost}
    if method == _METHODS[0]:
        yield {**keys, "method": "its tables, random links", **random, **cost}


def timed_pipeline(**arguments: Any) -> tuple[float, float]:
    """`run_pipeline`, and the CPU time of the run; returns seconds and CPU seconds."""
    before = process_time()
    return run_pipeline(**arguments), process_time() - before


def _joins(schema: Schema, tables: Tables, coded: Mapping[str, EncodedTable]) -> Joins:
    """All joins along keys, along chains of them, and between the parents of junction tables."""
    keys = [key for table in schema.private_tables for key in table.foreign_keys]
    found = {f"{'owner' if key.owner else 'key'} {key.name}": link_tables((key,), tables, coded) for key in keys}
    found |= {" → ".join(key.name for key in chain): link_tables(chain, tables, coded) for chain in chains(schema)}
    return found | {
        f"{one.name} and {other.name}": link_junction(one, other, tables, coded) for one, other in junctions(schema)
    }


def _shuffled(joins: Joins, seed: int) -> Joins:
    rng = np.random.default_rng(seed)
    return {name: linked.with_shuffled_links(rng) for name, linked in joins.items()}


def _figures(true: Joins, made: Joins) -> dict[str, float]:
    """Mean distances of marginals with columns of both tables over all joins, and of the degrees of both sides."""
    result = {}
    for order in _ORDERS:
        distances = []
        for name, linked in true.items():
            sizes = len(linked.parent_sizes), len(linked.child_sizes)
            subsets = crossing_subsets(*sizes, order, _MOST_SUBSETS, _SEED)
            if subsets.subsets:
                distances.append(mean_distances(linked.joined, made[name].joined, linked.sizes, subsets).tvd)
        result[f"{order}-way TVD"] = float(np.mean(distances)) if distances else float("nan")
    owners = [size_class_distance(true[n].fanout, made[n].fanout) for n in true if n.startswith("owner ")]
    others = [popularity_distance(true[n], made[n]) for n in true if n.startswith("key ")]
    return {**result, "fanout TVD": float(np.mean(owners)), "popularity": float(np.mean(others or [np.nan]))}


_CASES: Mapping[str, Callable[[Path, Path], Case | None]] = {
    "junction": _junction,
    "sandag": _sandag,
    "sakila": _sakila,
    "movielens": _movielens,
    "stats": _stats,
}
DATABASES = tuple(_CASES)


def junction_spec(folder: Path, users: int, items: int, links: int) -> Spec:
    """Write a many-to-many database with planted correlations to ``folder``; returns its spec."""
    whole, category = ColumnType.INTEGER, ColumnType.CATEGORY
    user = Table(
        "user",
        (
            Column("id", whole),
            Column("age", whole, Range(0, _AGES - 1)),
            Column("region", category, Values(_names("r", _REGIONS))),
            Column("tier", whole, Range(0, 2)),
        ),
        ("id",),
    )
    item = Table(
        "item",
        (
            Column("id", whole),
            Column("genre", category, Values(_names("g", _GENRES))),
            Column("price", whole, Range(0, _PRICES - 1)),
        ),
        ("id",),
        public=True,
    )
    link = Table(
        "link",
        (
            Column("user_id", whole),
            Column("item_id", whole),
            Column("rating", whole, Range(0, 4)),
            Column("device", category, Values(_names("d", 3))),
        ),
        ("user_id", "item_id"),
        (
            ForeignKey("link", ("user_id",), "user", ("id",), owner=True, max_children=_MOST_LINKS),
            ForeignKey("link", ("item_id",), "item", ("id",)),
        ),
    )
    return saved_spec(Schema("junction", (user, item, link), "user"), folder, _junction_rows(users, items, links))


def _sakila_spec(source: Path, folder: Path) -> Spec:
    """Films with their actors and categories; returns the spec."""
    whole, category = ColumnType.INTEGER, ColumnType.CATEGORY
    ratings = Values(("G", "PG", "PG-13", "R", "NC-17"))
    columns = (
        Column("film_id", whole),
        Column("rental_duration", whole, Range(3, 7)),
        Column("rental_rate", ColumnType.FLOAT, Range(0.99, 4.99, 4)),
        Column("length", whole, Range(40, 200, 16)),
        Column("replacement_cost", ColumnType.FLOAT, Range(9.99, 29.99, 20)),
        Column("rating", category, ratings),
    )
    film = Table("film", columns, ("film_id",))
    actor = Table(
        "actor", (Column("actor_id", whole), Column("last_name", ColumnType.TEXT)), ("actor_id",), public=True
    )
    genre = Table(
        "category", (Column("category_id", whole), Column("name", ColumnType.TEXT)), ("category_id",), public=True
    )
    between = [
        Table(
            f"film_{other.name}",
            (Column("film_id", whole), Column(f"{other.name}_id", whole)),
            ("film_id", f"{other.name}_id"),
            (
                ForeignKey(f"film_{other.name}", ("film_id",), "film", ("film_id",), owner=True, max_children=most),
                ForeignKey(f"film_{other.name}", (f"{other.name}_id",), other.name, (f"{other.name}_id",)),
            ),
        )
        for other, most in ((actor, 20), (genre, 2))
    ]
    tables = (film, actor, genre, *between)
    rows = {table.name: read_table(source, table.name) for table in tables}
    return saved_spec(Schema("sakila", tables, "film"), folder, rows)


def _movielens_spec(source: Path, folder: Path) -> Spec:
    """Users who rate films, which are public; returns the spec."""
    whole = ColumnType.INTEGER
    tables = movielens_tables(source)
    films = tables["film"]
    kinds = np.stack([films.column(name).to_numpy() for name in MOVIELENS_KINDS], axis=1)
    tables["film"] = pa.table({"id": films.column("id"), "genre": kinds.argmax(axis=1), "year": films.column("year")})
    film = Table("film", (Column("id", whole), Column("genre", whole), Column("year", whole)), ("id",), public=True)
    keys = (
        ForeignKey("rated", ("user_id",), "user", ("id",), owner=True, max_children=_MOST_LINKS),
        ForeignKey("rated", ("film_id",), "film", ("id",)),
    )
    columns = (Column("user_id", whole), Column("film_id", whole), Column("rating", whole, Range(1, 5)))
    between = Table("rated", columns, ("user_id", "film_id"), keys)
    return saved_spec(Schema("movielens", (movielens_user(tables), film, between), "user"), folder, tables)


def movielens_tables(source: Path) -> dict[str, pa.Table]:
    """Users, films with a column for each of `MOVIELENS_KINDS`, and ratings, from the files of MovieLens 100K."""
    users = _columns(source / "u.user", ["id", "age", "gender", "occupation", "zip"], "|")
    films = _columns(source / "u.item", ["id", "title", "released", "video", "url", *MOVIELENS_KINDS], "|")
    rated = _columns(source / "u.data", ["user_id", "film_id", "rating", "at"], "\t")
    years = pc.cast(pc.utf8_slice_codeunits(pc.fill_null(films.column("released"), ""), -4, None), pa.string())
    year = pa.array([int(text) if text else 1995 for text in years.to_pylist()])
    return {
        "user": users.select(["id", "age", "gender", "occupation"]),
        "film": films.select(["id", *MOVIELENS_KINDS]).append_column("year", year),
        "rated": rated.select(["user_id", "film_id", "rating"]),
    }


def movielens_user(tables: Tables) -> Table:
    """The table of users; the list of occupations is that of the data's own README."""
    whole, category = ColumnType.INTEGER, ColumnType.CATEGORY
    jobs = Values(tuple(sorted(set(tables["user"].column("occupation").to_pylist()))))
    columns = (
        Column("id", whole),
        Column("age", whole, Range(0, 99, 20)),
        Column("gender", category, Values(("F", "M"))),
        Column("occupation", category, jobs),
    )
    return Table("user", columns, ("id",))


def _columns(path: Path, names: list[str], delimiter: str) -> pa.Table:
    """A file without names of columns."""
    read, parse = csv.ReadOptions(column_names=names, encoding="latin-1"), csv.ParseOptions(delimiter=delimiter)
    return csv.read_csv(path, read, parse)


def saved_spec(schema: Schema, folder: Path, tables: Tables) -> Spec:
    """Write the rows to ``folder``; returns the spec, which is to stand beside it."""
    folder.mkdir()
    for table in schema.tables:
        rows = tables[table.name].select([column.name for column in table.columns])
        pq.write_table(rows, folder / f"{table.name}.parquet")
    path = folder.with_suffix(".yaml")
    return Spec(schema, str(folder), path, EPSILONS, DELTA, 20.0, 1e-7, state=folder.with_suffix(".state"))


def _names(prefix: str, number: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{k}" for k in range(number))


def _texts(prefix: str, codes: NDArray[np.int64]) -> pa.Array:
    return pa.array(_names(prefix, int(codes.max()) + 1)).take(pa.array(codes))


def _junction_rows(users: int, items: int, links: int) -> dict[str, pa.Table]:
    """Users and items that meet: genre by age and region, price by tier, ratings by age, genre and price."""
    rng = np.random.default_rng(7)
    age, region = rng.binomial(_AGES - 1, 0.4, users), rng.choice(_REGIONS, users, p=[0.35, 0.25, 0.2, 0.12, 0.08])
    tier = np.minimum(rng.geometric(0.55, users) - 1, 2)
    genre = rng.choice(_GENRES, items, p=_zipf(_GENRES, 0.7))
    price = rng.binomial(_PRICES - 1, 0.2 + 0.05 * genre)
    # Sizes grow with the tier; an item's share of its cell follows Zipf's law.
    activity = rng.lognormal(0.5 * tier, 1.0)
    taken = np.minimum(rng.poisson(activity * links / activity.sum()), _MOST_LINKS)
    of_user = np.repeat(np.arange(users), taken)
    taste = rng.normal(0, 1.2, (_AGES, _REGIONS, _GENRES)) + rng.normal(0, 1.2, (_AGES, 1, _GENRES))
    odds = np.exp(taste) * np.bincount(genre, minlength=_GENRES)
    wanted = _drawn(rng, odds.reshape(-1, _GENRES), (age * _REGIONS + region)[of_user])
    means = np.array([0.2, 0.45, 0.75])[tier[of_user]]
    of_price = np.clip(rng.binomial(_PRICES - 1, means), 0, _PRICES - 1)
    cell = genre * _PRICES + price
    order = np.lexsort((rng.random(items), cell))
    counts = np.bincount(cell, minlength=_GENRES * _PRICES)
    chosen = wanted * _PRICES + of_price
    while (empty := counts[chosen] == 0).any():  # nothing of that price: the next cheaper one, else anything
        chosen[empty] = np.where(
            chosen[empty] % _PRICES > 0, chosen[empty] - 1, cell[rng.integers(0, items, empty.sum())]
        )
    rank = np.floor(counts[chosen] ** rng.random(len(chosen)) - 1e-9).astype(np.int64)  # Zipf's law, nearly
    item = order[(np.cumsum(counts) - counts)[chosen] + np.minimum(rank, counts[chosen] - 1)]
    pairs = np.unique(of_user * items + item)
    of_user, item = pairs // items, pairs % items
    liked = 1.5 + taste[age[of_user], region[of_user], genre[item]] / 2 + price[item] / 8
    rating = np.clip(np.rint(liked + rng.normal(0, 0.7, len(item))), 0, 4).astype(np.int64)
    device = _drawn(rng, np.array([[6, 3, 1], [4, 3, 3], [2, 3, 5], [1, 2, 7]], dtype=float), age[of_user] // 2)
    return {
        "user": pa.table({"id": np.arange(users), "age": age, "region": _texts("r", region), "tier": tier}),
        "item": pa.table({"id": np.arange(items), "genre": _texts("g", genre), "price": price}),
        "link": pa.table({"user_id": of_user, "item_id": item, "rating": rating, "device": _texts("d", device)}),
    }


def _zipf(number: int, power: float) -> NDArray[np.float64]:
    weights = np.arange(1, number + 1) ** -power
    return np.asarray(weights / weights.sum())


def _drawn(rng: np.random.Generator, odds: NDArray[np.float64], which: NDArray[np.int64]) -> NDArray[np.int64]:
    """A code for each row from the odds of its kind, shape (rows,)."""
    ends = np.cumsum(odds, axis=1)
    ends /= ends[:, -1:]
    return np.asarray((rng.random(len(which))[:, None] > ends[which]).sum(axis=1), dtype=np.int64)
