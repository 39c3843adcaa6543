"""Fixtures for every test: a tiny town of households and persons, in memory and as a folder with its spec."""

from __future__ import annotations

import gc
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings

from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.ledgers import Place, new_place
from tests.helpers.noise import seed_noise
from tests.helpers.sail import Sail

# The machine is shared: how long examples take says nothing about the code.
_ANY_SPEED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
# The same examples in every run, so that no run fails by chance; `make slow` looks for others.
settings.register_profile("privbench", derandomize=True, **_ANY_SPEED)
settings.register_profile("exploring", derandomize=False, **_ANY_SPEED)
settings.load_profile("privbench")
# For seeded bugs, of which only whether they are found is asked.
settings.register_profile(
    "no-shrinking",
    derandomize=False,
    database=None,
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.generate),
    **_ANY_SPEED,
)

_IN_MEMORY = Path("/dev/shm")
_ROOM = 1 << 30  # bytes, more than the folders of two processes take at once

MAX_PERSONS = 4
REGIONS = ("east", "north", "west")

TOWN = Schema(
    "town",
    (
        Table(
            "household",
            (
                Column("id", ColumnType.INTEGER),
                Column("region", ColumnType.CATEGORY, Values(REGIONS)),
                Column("rooms", ColumnType.INTEGER, Range(1, 8)),
                Column("income", ColumnType.FLOAT, Range(0.0, 1000.0), nullable=True),
            ),
            primary_key=("id",),
        ),
        Table(
            "person",
            (
                Column("id", ColumnType.INTEGER),
                Column("household_id", ColumnType.INTEGER),
                Column("age", ColumnType.INTEGER, Range(0, 110)),
                Column("works", ColumnType.BOOLEAN, nullable=True),
            ),
            primary_key=("id",),
            foreign_keys=(
                ForeignKey("person", ("household_id",), "household", ("id",), max_children=MAX_PERSONS, owner=True),
            ),
        ),
    ),
    unit="household",
)

SPEC = """\
database: town
source: .
privacy: {unit: household, delta: 1.0e-9, epsilons: [0.8, 3.2], lifetime: {epsilon: 20, delta: 1.0e-8}}
tables:
  household:
    primary_key: id
    columns:
      id: integer
      region: {type: category, domain: {values: [east, north, west]}}
      rooms: {type: integer, domain: {min: 1, max: 8}}
      income: {type: float, domain: {min: 0.0, max: 1000.0}, nullable: true}
  person:
    primary_key: id
    foreign_keys:
      - {columns: household_id, references: household, max_children: 4, owner: true}
    columns:
      id: integer
      household_id: integer
      age: {type: integer, domain: {min: 0, max: 110}}
      works: {type: boolean, nullable: true}
"""


@dataclass(frozen=True)
class Town:
    """A tiny database.

    Attributes:
        schema: Two tables; a household with its persons is the privacy unit.
        tables: Their rows, by table name, in the column order of the schema.
    """

    schema: Schema
    tables: dict[str, pa.Table]


def build_town(households: int = 60, seed: int = 0) -> Town:
    """A town whose columns depend on each other, inside a table and along the key.

    Rooms and income depend on the region, the number of persons (0 to 4) and their ages on the rooms; some incomes are
    NULL, and whether children work always is.
    """
    rng = np.random.default_rng(seed)
    ids = np.arange(households, dtype=np.int64) * 3 + 100
    region = rng.integers(0, len(REGIONS), households)
    rooms = np.clip(1 + 2 * region + rng.integers(0, 3, households), 1, 8)
    income = np.clip(80.0 * rooms + rng.normal(0.0, 60.0, households), 0.0, 1000.0).round(2)
    size = rng.binomial(MAX_PERSONS, rooms / 8.0)
    home = np.repeat(np.arange(households), size)
    age = np.clip(90 - 9 * rooms[home] + rng.integers(-15, 16, len(home)), 0, 110)
    household = pa.table(
        {
            "id": pa.array(ids),
            "region": pa.array(np.array(REGIONS)[region].tolist(), pa.string()),
            "rooms": pa.array(rooms, pa.int64()),
            "income": pa.array(income, pa.float64(), mask=rng.random(households) < 0.1),
        }
    )
    person = pa.table(
        {
            "id": pa.array(np.arange(len(home), dtype=np.int64) + 5000),
            "household_id": pa.array(ids[home]),
            "age": pa.array(age, pa.int64()),
            "works": pa.array(rng.random(len(home)) < 0.7, pa.bool_(), mask=age < 16),
        }
    )
    return Town(TOWN, {"household": household, "person": person})


def pytest_configure() -> None:
    """Keep the folders of tests in memory where there is room: ledgers and stores wait until a disk has each change."""
    gc.disable()  # until all tests are collected, which leaves no garbage to speak of
    if not _IN_MEMORY.is_dir():
        return
    memory = os.statvfs(_IN_MEMORY)
    started = not memory.f_flag & os.ST_NOEXEC  # some tests start what they write
    if started and memory.f_bavail * memory.f_frsize > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_IN_MEMORY))


def pytest_collection_finish() -> None:
    """Collect no garbage among the tests themselves: each full collection would go through half a million objects."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Let everything be collected at the end, as else libraries report leaks."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _same_noise(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same noise in every run, each test its own, so that no run fails by chance.

    Real noise is for tests of it, those in processes of their own, slow ones, and `make slow`.
    """
    module, exploring = getattr(request.node, "module", None), request.config.getoption("--hypothesis-profile")
    if exploring or "slow" in request.keywords or hasattr(module, "OpenDPNoise"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        seed_noise(patch, zlib.crc32(request.node.nodeid.encode()))
        yield


@pytest.fixture
def make_town() -> Callable[..., Town]:
    """The builder itself: ``make_town(households=60, seed=0)``."""
    return build_town


@pytest.fixture
def town() -> Town:
    """A town of 60 households."""
    return build_town()


@pytest.fixture
def town_spec(town: Town, tmp_path: Path) -> Path:
    """The same town as a folder of Parquet files; the path of its spec file."""
    return write_town(town, tmp_path / "town")


def write_town(town: Town, folder: Path) -> Path:
    """Write a town as a folder of Parquet files; return the path of its spec file."""
    folder.mkdir()
    for name, rows in town.tables.items():
        pq.write_table(rows, folder / f"{name}.parquet")
    path = folder / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a PostgreSQL database of the session; tests make schemas of their own in it."""
    with temporary_postgres({"fsync": "off"}) as server:  # no test cuts the power
        yield server.url


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Spark Connect of the session: of the cluster in PRIVBENCH_CLUSTER, else of a Sail of its own."""
    if "PRIVBENCH_CLUSTER" in os.environ:
        yield os.environ["PRIVBENCH_CLUSTER"]
        return
    with Sail(tmp_path_factory.mktemp("sail")) as server:
        yield server.url


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a ledger may be made: in a file, then in PostgreSQL."""
    return new_place(request.param, tmp_path, lambda: str(request.getfixturevalue("postgres")))
