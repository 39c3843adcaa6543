"""Loaders of real databases of sports: baseball, tennis, and Formula 1; see `unseen`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.unseen_columns import child_rows, child_table, entries, learned, listed, number, numbered, read_rows
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from tests.helpers.heavy_tails import Database
from tests.helpers.planted import integer, owner_key, rows_of

_OF_MATCH = [
    "tourney_id",
    "surface",
    "draw_size",
    "tourney_level",
    "winner_id",
    "loser_id",
    "round",
    "best_of",
    "minutes",
    "w_ace",
    "w_df",
    "l_ace",
    "l_df",
]


def lahman(folder: Path) -> Database:
    """Baseball players with salaries, postseason batting, all-star games and years at college."""
    people = read_rows(folder / "core" / "People.csv")
    player = Table(
        "player",
        (
            integer("id"),
            number("born", 1830, 2005, nullable=True),
            learned("country", nullable=True),
            number("weight", 60, 330, nullable=True),
            number("height", 40, 90, nullable=True),
            listed("bats", "R L B", nullable=True),
            listed("throws", "R L S", nullable=True),
        ),
        ("id",),
    )
    names = people["playerID"].to_pylist()
    tables = {
        "player": rows_of(
            player,
            id=np.arange(len(names)),
            born=people["birthYear"],
            country=people["birthCountry"],
            **{name: people[name] for name in ("weight", "height", "bats", "throws")},
        )
    }
    year = number("year", 1870, 2025)
    children = {
        "salary": ("Salaries", (year, listed("league", "AL NL"), number("salary", 0, 40_000_000, 4000)), 40),
        "postseason": (
            "BattingPost",
            (year, learned("round"), *(number(n, 0, m) for n, m in (("G", 10), ("AB", 40), ("H", 20), ("BB", 15)))),
            60,
        ),
        "allstar": ("AllstarFull", (year, listed("league", "AL NL"), number("position", 0, 10, nullable=True)), 40),
        "college": ("CollegePlaying", (year,), 10),
    }
    renamed = {"year": "yearID", "league": "lgID", "position": "startingPos"}
    owned = []
    for name, (file, columns, most) in children.items():
        table = child_table(name, "player_id", player, most, columns)
        rows = read_rows(folder / "core" / f"{file}.csv")
        rows = rows.filter(pc.is_valid(rows["yearID"]))
        given = {column.name: rows[renamed.get(column.name, column.name)] for column in columns}
        tables[name] = child_rows(table, "player_id", numbered(rows["playerID"], names), given)
        owned.append(table)
    return Schema("lahman", (player, *owned), "player"), tables


def tennis(folder: Path) -> Database:
    """Ten years of matches between players, at public tournaments; the winner owns a match, and the loser may leave."""
    matches = pa.concat_tables(
        [read_rows(file).select(_OF_MATCH) for file in sorted(folder.glob("atp_matches_20??.csv"))],
        promote_options="permissive",
    )
    people = read_rows(folder / "atp_players.csv")
    playing = pc.unique(pa.chunked_array([*matches["winner_id"].chunks, *matches["loser_id"].chunks]))
    people = people.filter(pc.is_in(people["player_id"], playing))
    player = Table(
        "player",
        (
            integer("id"),
            listed("hand", "R L U A", nullable=True),
            number("born", 1960, 2012, nullable=True),
            learned("country", nullable=True),
            number("height", 150, 215, nullable=True),
        ),
        ("id",),
    )
    names = people["player_id"].to_pylist()
    first = matches.group_by("tourney_id", use_threads=False).aggregate(
        [("surface", "first"), ("draw_size", "first"), ("tourney_level", "first")]
    )
    event = Table(
        "event",
        (
            integer("id"),
            Column("surface", ColumnType.TEXT, nullable=True),
            integer("size", 0, 200),
            Column("level", ColumnType.TEXT),
        ),
        ("id",),
        public=True,
    )
    counts = {"minutes": 400, "w_ace": 60, "w_df": 30, "l_ace": 60, "l_df": 30}
    match = Table(
        "match",
        (
            integer("id"),
            integer("winner_id"),
            integer("loser_id"),
            integer("event_id"),
            listed("round", "R128 R64 R32 R16 QF SF F RR BR ER", nullable=True),
            listed("best_of", "3 5"),
            *(number(name, 0, most, nullable=True) for name, most in counts.items()),
        ),
        ("id",),
        (
            owner_key("match", "winner_id", "player", 1000),
            ForeignKey("match", ("loser_id",), "player", ("id",), 500, on_unit_removed=OnUnitRemoved.SET_NULL),
            ForeignKey("match", ("event_id",), "event", ("id",)),
        ),
    )
    sides = {side: numbered(matches[side], names) for side in ("winner_id", "loser_id")}
    known = pa.array((sides["winner_id"] >= 0) & (sides["loser_id"] >= 0))
    kept = matches.filter(known)
    tables = {
        "player": rows_of(
            player,
            id=np.arange(len(names)),
            hand=people["hand"],
            born=pc.divide(people["dob"].cast(pa.float64()), 10_000).cast(pa.int64(), safe=False),
            country=people["ioc"],
            height=people["height"].cast(pa.int64(), safe=False),
        ),
        "event": rows_of(
            event,
            id=np.arange(first.num_rows),
            surface=first["surface_first"],
            size=first["draw_size_first"],
            level=first["tourney_level_first"],
        ),
        "match": rows_of(
            match,
            id=np.arange(kept.num_rows),
            **{side: rows[known.to_numpy(zero_copy_only=False)] for side, rows in sides.items()},
            event_id=numbered(kept["tourney_id"], first["tourney_id"].to_pylist()),
            round=kept["round"],
            best_of=kept["best_of"].cast(pa.string()),
            **{name: kept[name] for name in counts},
        ),
    }
    return Schema("tennis", (player, event, match), "player"), tables


def formula_1(folder: Path) -> Database:
    """Drivers and their results in all races since 1950; constructors and races are public."""
    data = folder / "src" / "data"
    drivers = [entries(file)[0] for file in sorted((data / "drivers").glob("*.yml"))]
    makers = [file.stem for file in sorted((data / "constructors").glob("*.yml"))]
    races = sorted((data / "seasons").glob("*/races/*/race-results.yml"))
    results = [(number, entry) for number, file in enumerate(races) for entry in entries(file)]
    known = {driver["id"]: number for number, driver in enumerate(drivers)}
    results = [(race, entry) for race, entry in results if entry["driverId"] in known]
    driver = Table("driver", (integer("id"), number("born", 1890, 2012), learned("country")), ("id",))
    maker = Table("constructor", (integer("id"), Column("name", ColumnType.TEXT)), ("id",), public=True)
    race = Table("race", (integer("id"), integer("year", 1950, 2030)), ("id",), public=True)
    result = Table(
        "result",
        (
            integer("id"),
            integer("driver_id"),
            integer("constructor_id"),
            integer("race_id"),
            number("position", 1, 40, nullable=True),
            number("grid", 0, 40, nullable=True),
            number("laps", 0, 210, nullable=True),
            number("points", 0, 60),
            learned("retired", nullable=True),
        ),
        ("id",),
        (
            owner_key("result", "driver_id", "driver", 500),
            ForeignKey("result", ("constructor_id",), "constructor", ("id",)),
            ForeignKey("result", ("race_id",), "race", ("id",)),
        ),
    )

    def numbers(name: str) -> pa.Array:
        found = (re.match(r"\d+", entry.get(name, "")) for _, entry in results)
        return pa.array([int(each[0]) if each else None for each in found], pa.int64())

    tables = {
        "driver": rows_of(
            driver,
            id=np.arange(len(drivers)),
            born=np.array([int(each["dateOfBirth"][:4]) for each in drivers]),
            country=pa.array([each["nationalityCountryId"] for each in drivers]),
        ),
        "constructor": rows_of(maker, id=np.arange(len(makers)), name=pa.array(makers)),
        "race": rows_of(race, id=np.arange(len(races)), year=np.array([int(file.parents[2].name) for file in races])),
        "result": rows_of(
            result,
            id=np.arange(len(results)),
            driver_id=np.array([known[entry["driverId"]] for _, entry in results]),
            constructor_id=numbered(pa.array([entry["constructorId"] for _, entry in results]), makers),
            race_id=np.array([race for race, _ in results]),
            position=numbers("position"),
            grid=numbers("gridPosition"),
            laps=numbers("laps"),
            points=pc.fill_null(numbers("points"), 0),
            retired=pa.array([entry.get("reasonRetired") or None for _, entry in results]),
        ),
    }
    return Schema("formula_1", (driver, maker, race, result), "driver"), tables
