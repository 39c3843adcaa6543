"""Rows of Formula 1 from the YAML files of f1db: drivers, races since 1950, and what each driver did in each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from benchmarks.unseen_columns import entries

Entry = dict[str, str]


def formula_tables(data: Path) -> dict[str, pa.Table]:
    """Read all tables by name; every value is text, empty ones are NULL."""
    single = {
        "drivers": ("id", "firstName", "lastName", "gender", "dateOfBirth", "dateOfDeath", "nationalityCountryId"),
        "constructors": ("id", "name", "countryId"),
        "circuits": ("id", "name", "type", "direction", "countryId", "latitude", "longitude", "length", "turns"),
    }
    tables = {
        f"read_{name}": _table(columns, (entries(file)[0] for file in sorted((data / name).glob("*.yml"))))
        for name, columns in single.items()
    }
    places = sorted((data / "seasons").glob("*/races/*"))
    races = {place: entries(place / "race.yml")[0] for place in places}
    columns = ("year", "round", "date", "grandPrixId", "circuitId", "laps", "distance")
    tables["read_races"] = _table(columns, ({**each, "year": place.parents[1].name} for place, each in races.items()))
    of_driver = {
        "race-results": ("position", "constructorId", "laps", "time", "reasonRetired", "points", "gridPosition"),
        "qualifying-results": ("position", "constructorId", "time", "q1", "q2", "q3"),
        "pit-stops": ("stop", "lap", "constructorId", "time"),
        "driver-standings": ("position", "points"),
    }
    for name, columns in of_driver.items():
        given = (
            {**each, "year": place.parents[1].name, "round": races[place]["round"]}
            for place in places
            if (place / f"{name}.yml").is_file()
            for each in entries(place / f"{name}.yml")
        )
        tables[f"read_{name.replace('-', '_')}"] = _table(("year", "round", "driverId", *columns), given)
    return tables


def _table(columns: Iterable[str], rows: Iterable[Entry]) -> pa.Table:
    found = list(rows)
    return pa.table({name: pa.array([each.get(name) or None for each in found], pa.string()) for name in columns})
