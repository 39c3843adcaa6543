"""Dates and numbers in references to public rows: drafted, admitted, and drawn like attributes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.draft.draft import Decisions, reflect
from privbench_core.errors import InternalError
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.features import Own
from privbench_core.privacy.views import ViewSpec
from privbench_core.sampling.references import Parent, nearest_public
from privbench_core.schema.columns import Column, ColumnType, Learn, Range
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.databases import Database
from tests.helpers.plans import plan_with, record, replay_within_prices
from tests.helpers.planted import NoNoise, door_of, integer, owner_key, place_of, rows_of

YEAR = Column("year", ColumnType.INTEGER, Learn())


def careers(players: int = 600) -> tuple[Schema, dict[str, pa.Table]]:
    """Three seasons of each player, one after the other, from the age of 20 on; public teams in every second year."""
    rng = np.random.default_rng(0)
    born = rng.integers(1940, 1980, players)
    team = Table("team", (integer("year"), integer("no")), ("year", "no"), public=True)
    player = Table("player", (integer("id"), integer("born", 1940, 1979)), ("id",))
    season = Table(
        "season",
        (integer("player_id"), YEAR, integer("no")),
        ("player_id", "year", "no"),
        (
            owner_key("season", "player_id", "player", 5),
            ForeignKey("season", ("year", "no"), "team", ("year", "no")),
        ),
    )
    of_player = np.repeat(np.arange(players), 3)
    year = (born[of_player] + 20 + 2 * np.tile(np.arange(3), players)) // 2 * 2
    years = np.arange(1950, 2010, 2)
    tables = {
        "team": rows_of(team, year=np.repeat(years, 4), no=np.tile(np.arange(4), len(years))),
        "player": rows_of(player, id=np.arange(players), born=born),
        "season": rows_of(season, player_id=of_player, year=year, no=rng.integers(0, 4, len(year))),
    }
    return Schema("careers", (team, player, season), "player"), tables


def test_seasons_follow_the_birth_of_their_player_in_teams_that_there_are(tmp_path: Path) -> None:
    made = place_of(tmp_path / "careers", *careers()).drawn_with(NoNoise(), seed=1)
    season, born = made["season"].to_pandas(), made["player"].to_pandas().set_index("id")["born"]
    age = season["year"] - season["player_id"].map(born)
    assert ((age >= 12) & (age <= 34)).mean() > 0.8  # independent years: 0.4
    assert set(season["year"] % 2) == {0}
    assert set(zip(season["year"], season["no"], strict=True)) <= set(
        made["team"].select(["year", "no"]).to_pandas().itertuples(index=False, name=None)
    )


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ((1984, 3, "x"), (1984, 3)),
        ((1983, 9, "x"), (1984, 3)),
        ((None, 9, "x"), (None, 9)),  # no row agrees with NULL
        ((1700, 1, "x"), (1980, 1)),
        ((2100, 1, "x"), (1990, 7)),
    ],
)
def test_each_column_takes_the_nearest_value_of_the_rows_that_agree_in_those_before_it(
    wanted: tuple[int | None, int, str], found: tuple[int | None, int]
) -> None:
    there = pa.table({"year": [1990, 1980, 1980, 1984, None], "round": [7, 1, 2, 3, 1], "name": list("xyxyx")})
    columns = (replace(YEAR, nullable=True), replace(YEAR, name="round"), Column("name", ColumnType.TEXT))
    key = ForeignKey("t", ("year", "round", "name"), "p", ("year", "round", "name"), optional=True)
    table = Table("t", columns, ("name",), (key,))
    drawn = {name: pa.array([value]) for name, value in zip(("year", "round"), wanted[:2], strict=True)}
    drawn = {name: values.cast(pa.int64()) for name, values in drawn.items()}
    result = nearest_public(table, {key.name: Parent(there, {}, {}, None)}, drawn)
    assert tuple(result[name][0].as_py() for name in ("year", "round")) == found


def test_a_column_that_a_private_key_shares_is_not_measured_even_with_a_domain() -> None:
    schema, tables = careers()
    season = schema.table("season")
    of_unit = replace(season.foreign_keys[0], columns=("year",))
    wrong = replace(season, foreign_keys=(of_unit, season.foreign_keys[1]))
    schemas = schema, replace(schema, tables=(*schema.tables[:2], wrong))
    coder = Discretizer(codec_for(replace(YEAR, domain=Range(1950, 2010))))
    spec = ViewSpec("season", {"year": (Own("year"), coder)})
    door_of(schemas[0], tables).view(spec, "view")
    with pytest.raises(InternalError, match=r"season\.year: only columns that are not part of a key may be measured"):
        door_of(schemas[1], tables).view(spec, "view")


def test_periods_and_dates_in_references_to_public_tables_are_drafted_as_attributes(tmp_path: Path) -> None:
    source = tmp_path / "source.duckdb"
    with duckdb.connect(str(source)) as connection:
        connection.execute(
            """
            CREATE TABLE day (day DATE PRIMARY KEY);
            CREATE TABLE shop (id INTEGER PRIMARY KEY);
            CREATE TABLE offer (yearID INTEGER, shop_id INTEGER REFERENCES shop (id), no INTEGER, round INTEGER,
                                PRIMARY KEY (yearID, shop_id, no, round));
            CREATE TABLE customer (id INTEGER PRIMARY KEY, shop_id INTEGER REFERENCES shop (id));
            CREATE TABLE sale (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer (id),
                               sold DATE REFERENCES day (day),
                               yearID INTEGER, shop_id INTEGER, no INTEGER, round INTEGER,
                               FOREIGN KEY (yearID, shop_id, no, round) REFERENCES offer (yearID, shop_id, no, round));
            """
        )
    draft = reflect(str(source), decisions=Decisions("customer", ("day", "shop", "offer")))
    sale = draft.partition("\n  sale:")[2].partition("\n\n")[0]
    learned = {line.split(":")[0].strip() for line in sale.splitlines() if "domain: learn" in line}
    assert learned == {"sold", "yearID", "round"}


@pytest.mark.parametrize("listed", [False, True], ids=["text", "codes"])
def test_values_of_a_public_key_of_the_same_name_need_no_learning(tmp_path: Path, listed: bool) -> None:
    """Fifty people are too few for any of nine places to be named, and no key is declared."""
    codes = np.arange(101, 110)
    kind, domain = (ColumnType.INTEGER, Learn(listed=True)) if listed else (ColumnType.CATEGORY, Learn())
    of_public = replace(integer("zone"), type=ColumnType.INTEGER if listed else ColumnType.TEXT)
    zone = Table("zone", (of_public,), ("zone",), public=True)
    person = Table("person", (integer("id"), Column("zone", kind, domain)), ("id",))
    values = codes if listed else np.array([f"z{code}" for code in codes])
    tables = {
        "zone": pa.table({"zone": values}, zone.arrow_schema),
        "person": pa.table({"id": np.arange(50), "zone": values[np.arange(50) % 3]}, person.arrow_schema),
    }
    made = place_of(tmp_path / "zones", Schema("zones", (zone, person), "person"), tables).drawn_with(NoNoise())
    found = made["person"]["zone"].to_pandas().value_counts(normalize=True)
    assert set(found.index) <= set(values)
    assert found.reindex(values[:3]).min() > 0.2


def test_learning_beyond_public_values_releases_nothing_around_the_noise() -> None:
    """Some values are no public ones, and one of these is a single person's."""
    zone = Table("zone", (Column("zone", ColumnType.TEXT),), ("zone",), public=True)
    learned = Column("zone", ColumnType.CATEGORY, Learn())
    person = Table("person", (integer("id"), learned), ("id",))
    visit = Table(
        "visit", (integer("id"), integer("person"), learned), ("id",), (owner_key("visit", "person", "person", 4),)
    )
    numbers = np.arange(120)
    values = np.array([*(f"z{n % 7}" for n in numbers[1:]), "alone"])
    tables = {
        "zone": pa.table({"zone": [f"z{n}" for n in range(5)]}, zone.arrow_schema),
        "person": pa.table({"id": numbers, "zone": values}, person.arrow_schema),
        "visit": pa.table(
            {"id": np.arange(240), "person": np.arange(240) // 2, "zone": np.repeat(values, 2)}, visit.arrow_schema
        ),
    }
    database = Database(Schema("zones", (zone, person, visit), "person"), tables)
    plan = plan_with(database.schema, Budget(100.0, 1e-6), {})
    recorded, first = record(plan, database, 0)
    for unit in (0, 5, 119):
        assert replay_within_prices(plan, recorded, first, database.without(unit))["moved",] > 0
