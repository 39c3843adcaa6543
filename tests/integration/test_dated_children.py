"""Children are dated after their owners: where no column says what it is relative to, a histogram of lags does."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.tables import Schema, Table
from tests.helpers.covering import covering
from tests.helpers.heavy_tails import Database
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import broken_expectations, integer, owner_key, place_of, rows_of, samples_of
from tests.helpers.relatives import OWNERS, distances, mail_order, numbers, of_owners
from tests.helpers.row_figures import row_figures

OPTIONS = {"relational": {"tables": "independent"}}
CASES = covering(["privbench", "relational", "privlava", "privpetal"], [3.2, 10_000.0])
DAYS = np.array([-np.inf, 0, 1, 2, 4, 8, 16, 32, 64, 128, 256, np.inf])


def units(epsilon: float) -> int:
    """As many as noise needs; without any to speak of, fewer say the same."""
    return 3_000 if epsilon < 10 else 600


def lags(database: Database, tables: dict[str, pa.Table], later: str) -> np.ndarray:
    """Shares of the rows by days after their owner's, the first of them before it."""
    found = distances(of_owners(database[0], tables, later), later.split(".")[1], OWNERS[later])
    found = found[~np.isnan(found)]
    return np.asarray(np.histogram(found, DAYS)[0] / len(found))


@pytest.mark.parametrize(("synthesizer", "epsilon"), CASES)
def test_children_come_after_their_owners(synthesizer: str, epsilon: float, tmp_path: Path):
    """Before lags were measured, a fifth to a half of them came before, and pairs of dates were .3 apart at 3.2."""
    schema, tables = mail_order(units(epsilon), relative=False)
    options = OPTIONS.get(synthesizer, {})
    place = place_of(tmp_path, schema, tables, options=options, synthesizer=synthesizer)
    result = place.run_with(SeededNoise(0), epsilon)
    made = samples_of(result)
    assert broken_expectations(result) == []
    for later in OWNERS:
        true, found = lags((schema, tables), tables, later), lags((schema, tables), made, later)
        assert true[0] == 0
        assert found[0] < (0.17 if synthesizer == "relational" else 0.12), later
        assert np.abs(true - found).sum() / 2 < (0.4 if synthesizer == "relational" else 0.2), later
    figures = row_figures(schema, tables, made).mean()
    assert figures["joined"] < 0.13
    assert figures["one_way"] < 0.06


def projects(n: int) -> Database:
    """Projects with a first and, most of them, a last day; tasks between both, with two days of their own."""
    rng = np.random.default_rng(0)
    day = {"type": ColumnType.DATE, "domain": Range("2015-01-01", "2024-12-31")}
    project = Table(
        "project", (integer("id"), Column("opened", **day), Column("closed", nullable=True, **day)), ("id",)
    )
    columns = (integer("id"), integer("project_id"), Column("begun", **day), Column("ended", nullable=True, **day))
    task = Table("task", columns, ("id",), (owner_key("task", "project_id", "project", 30),))
    opened = rng.integers(16_436, 19_000, n)
    length = rng.integers(100, 900, n)
    of_project = np.repeat(np.arange(n), rng.poisson(3.0, n))
    begun = opened[of_project] + (rng.beta(1, 3, len(of_project)) * length[of_project]).astype(np.int64)
    ended = np.minimum(begun + rng.geometric(0.1, len(begun)), (opened + length)[of_project])
    rows = {
        "project": rows_of(
            project,
            id=np.arange(n),
            opened=pa.array(opened.astype(np.int32)),
            closed=pa.array((opened + length).astype(np.int32), mask=rng.random(n) < 0.2),
        ),
        "task": rows_of(
            task,
            id=np.arange(len(begun)),
            project_id=of_project,
            begun=pa.array(begun.astype(np.int32)),
            ended=pa.array(ended.astype(np.int32), mask=rng.random(len(begun)) < 0.1),
        ),
    }
    return Schema("projects", (project, task), "project"), rows


@cache
def made_projects(synthesizer: str, epsilon: float) -> dict[str, pa.Table]:
    """Return synthetic projects and tasks."""
    with TemporaryDirectory() as folder:
        place = place_of(Path(folder), *projects(units(epsilon)), synthesizer=synthesizer)
        return place.drawn_with(SeededNoise(0), epsilon)


@pytest.mark.parametrize(("synthesizer", "epsilon"), CASES)
def test_two_days_of_a_row_are_as_far_apart_as_they_should(synthesizer: str, epsilon: float):
    """Before, 3 to 426 days; half to a quarter of the tasks ended before they began."""
    tables, made = projects(units(epsilon))[1], made_projects(synthesizer, epsilon)

    def shares(rows: dict[str, pa.Table], table: str, first: str, last: str) -> np.ndarray:
        apart = numbers(rows[table].column(last)) - numbers(rows[table].column(first))
        apart = apart[~np.isnan(apart)]
        return np.asarray(np.histogram(apart, DAYS)[0] / len(apart))

    for case in (("task", "begun", "ended"), ("project", "opened", "closed")):
        true, found = shares(tables, *case), shares(made, *case)
        assert found[0] < 0.05, case
        assert np.abs(true - found).sum() / 2 < 0.15, case


@pytest.mark.parametrize("synthesizer", ["privbench", "privlava"])
def test_two_days_come_after_one_and_before_another(synthesizer: str):
    tables, made = projects(units(3.2))[1], made_projects(synthesizer, 3.2)

    def outside(rows: dict[str, pa.Table]) -> dict[str, float]:
        ids = rows["project"].column("id").to_numpy()
        places = np.searchsorted(ids, rows["task"].column("project_id").to_numpy())
        assert (np.diff(ids) > 0).all()
        found = {}
        for name, early in product(("begun", "ended"), (True, False)):
            bound = numbers(rows["project"].column("opened" if early else "closed"))[places]
            apart = numbers(rows["task"].column(name)) - bound
            apart = apart[~np.isnan(apart)]
            found[f"{name}, {early}"] = float(((apart < 0) if early else (apart > 0)).mean())
        return found

    assert max(outside(tables).values()) == 0
    assert {name: share for name, share in outside(made).items() if share > 0.1} == {}
