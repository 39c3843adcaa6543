"""Tables of any size for `benchmarks.scale`: JOB-light's two, the same with a second private parent, and a grid.

All are made in blocks of rows and written as Parquet.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tpch_schema import SCHEMA
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

_MAX_CASTS = 200
_MAX_REVIEWS = 2  # of a film
_MAX_CITED = 20  # rows that refer to one review
_MAX_CELLS = 400  # rows of a table of the grid that belong, or refer, to one unit
_CODES = 10  # of a column of the grid
_ROWS_A_BLOCK = 1 << 21  # of the larger table, made at a time


def schema_of(database: str) -> Schema:
    """Return the schema by a name: ``star``, ``two parents``, ``tpch``, or ``grid`` with numbers for `grid_schema`."""
    if database.startswith("grid "):
        return grid_schema(*map(int, database.split()[1:]))
    return {"star": star_schema, "two parents": two_parents_schema}.get(database, lambda: SCHEMA)()


def grid_schema(columns: int, tables: int, keys: int) -> Schema:
    """Return a table of units, and as many tables of their rows, each with so many columns and keys to other units."""
    whole = ColumnType.INTEGER
    listed = tuple(Column(f"a{place}", whole, Values(tuple(range(_CODES)))) for place in range(columns))
    found = [Table("unit", (Column("id", whole), *listed), ("id",))]
    for name in (f"t{place}" for place in range(tables)):
        others = [f"k{place}" for place in range(keys)]
        owner = ForeignKey(name, ("unit_id",), "unit", ("id",), owner=True, max_children=_MAX_CELLS)
        linked = (ForeignKey(name, (other,), "unit", ("id",), max_children=_MAX_CELLS) for other in others)
        named = tuple(Column(each, whole) for each in ("id", "unit_id", *others))
        found.append(Table(name, (*named, *listed), ("id",), (owner, *linked)))
    return Schema("grid", tuple(found), "unit")


def write_grid(folder: str, units: int, rows: int, columns: int, tables: int, keys: int) -> None:
    """Write the Parquet files of `grid_schema`: all tables but that of the units have ``rows`` rows together."""
    rng = np.random.default_rng(0)

    def attributes(first: np.ndarray) -> dict[str, np.ndarray]:
        made = {"a0": first}
        for place in range(1, columns):
            made[f"a{place}"] = (made[f"a{place - 1}"] + rng.binomial(3, 0.3, len(first))) % _CODES
        return made

    kind = rng.integers(0, _CODES, units)
    pq.write_table(pa.table({"id": np.arange(units), **attributes(kind)}), Path(folder) / "unit.parquet")
    for place in range(tables):
        owners = np.sort(rng.integers(0, units, rows // tables))
        others = {f"k{key}": rng.integers(0, units, len(owners)) for key in range(keys)}
        made = {"id": np.arange(len(owners)), "unit_id": owners, **others, **attributes(kind[owners])}
        pq.write_table(pa.table(made), Path(folder) / f"t{place}.parquet")


def star_schema() -> Schema:
    """Films and who took part in them: each row of the second table belongs to one of the first."""
    whole = ColumnType.INTEGER
    title = Table(
        "title",
        (
            Column("id", whole),
            Column("kind", whole, Values(tuple(range(7)))),
            Column("year", whole, Range(1880, 2019)),
            Column("season", whole, Range(0, 49)),
        ),
        ("id",),
    )
    key = ForeignKey("cast_info", ("title_id",), "title", ("id",), owner=True, max_children=_MAX_CASTS)
    cast = Table(
        "cast_info",
        (
            Column("id", whole),
            Column("title_id", whole),
            Column("role", whole, Values(tuple(range(12)))),
            Column("nr", whole, Range(1, 1000, 100)),
            Column("person", whole, Range(0, 39)),
        ),
        ("id",),
        (key,),
    )
    return Schema("star", (title, cast), "title")


def two_parents_schema() -> Schema:
    """The same, where each row of the second table refers to a review as well, which belongs to a film, too."""
    whole, star = ColumnType.INTEGER, star_schema()
    owner = ForeignKey("review", ("title_id",), "title", ("id",), owner=True, max_children=_MAX_REVIEWS)
    columns = (Column("id", whole), Column("title_id", whole), Column("stars", whole, Values(tuple(range(5)))))
    review = Table("review", columns, ("id",), (owner,))
    cast = star.table("cast_info")
    key = ForeignKey("cast_info", ("review_id",), "review", ("id",), max_children=_MAX_CITED)
    cast = replace(cast, columns=(*cast.columns, Column("review_id", whole)), foreign_keys=(*cast.foreign_keys, key))
    return Schema("two parents", (star.table("title"), review, cast), "title")


def write_star(folder: str, titles: int, casts: int) -> int:
    """Parquet files of `two_parents_schema`, and so of `star_schema`, made in blocks.

    Args:
        folder: For the files.
        titles: Rows of the first table.
        casts: About as many of the larger one.

    Returns:
        As many as there are.
    """
    rng, rows = np.random.default_rng(0), 0
    block = max(1, round(_ROWS_A_BLOCK * titles / casts))
    with ExitStack() as files:
        writers: dict[str, pq.ParquetWriter] = {}
        for first in range(0, titles, block):
            made = _star_block(rng, first, min(block, titles - first), casts / titles, rows)
            for name, table in made.items():
                if name not in writers:
                    path = Path(folder) / f"{name}.parquet"
                    writers[name] = files.enter_context(pq.ParquetWriter(path, table.schema))
                writers[name].write_table(table)
            rows += made["cast_info"].num_rows
    return rows


def _star_block(rng: np.random.Generator, first: int, titles: int, mean: float, first_cast: int) -> dict[str, pa.Table]:
    """Some titles and their casts, ``mean`` each, with numbers from ``first`` and ``first_cast`` on."""
    kind = rng.choice(7, titles, p=[0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02])
    year = np.clip(2019 - rng.exponential(20, titles), 1880, 2019).astype(np.int64)
    season = np.where(kind < 3, rng.integers(0, 50, titles), 0)
    films = {"id": first + np.arange(titles), "kind": kind, "year": year, "season": season}
    numbers = np.minimum(rng.geometric(1 / (mean + 1), titles) - 1, _MAX_CASTS)
    owners = np.repeat(np.arange(titles), numbers)
    rows = len(owners)
    role = (kind[owners] + rng.geometric(0.4, rows)) % 12
    person = (year[owners] - 1880) // 4 + rng.integers(0, 5, rows)
    people = {"role": role, "nr": np.minimum(rng.geometric(0.05, rows), 1000), "person": person}
    wide = titles * _MAX_REVIEWS
    stars = np.arange(wide) % 5
    cited = (wide * rng.random(rows) ** 1.1).astype(np.int64)  # some of them more often, by roles of their stars
    cited = np.minimum(cited - cited % 5 + role % 5, wide - 1)
    reviews = {"id": first * _MAX_REVIEWS + np.arange(wide), "title_id": first + np.arange(wide) // _MAX_REVIEWS}
    casts = {"id": first_cast + np.arange(rows), "title_id": first + owners, **people}
    casts["review_id"] = first * _MAX_REVIEWS + cited
    return {"title": pa.table(films), "review": pa.table({**reviews, "stars": stars}), "cast_info": pa.table(casts)}
