"""Rows of one owner that have the same date or number, such as results of one visit, are as many as in the source."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.compare_maker import sample_tables
from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import equal_width_codec
from privbench_core.profiles.lags import Lags, Ties
from privbench_core.profiles.measure_lags import tied_columns
from privbench_core.sampling.lags import dated_columns
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Relative
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import place_of

NUMBER = Column("id", ColumnType.INTEGER)
DAY = Column("day", ColumnType.DATE, Learn())
OWNER = ForeignKey("visit", ("patient_id",), "patient", ("id",), max_children=100, owner=True)


def table(*columns: Column, key: ForeignKey = OWNER) -> Table:
    return Table("visit", (NUMBER, Column("patient_id", ColumnType.INTEGER), *columns), ("id",), (key,))


def tied(numbers: np.ndarray, owners: np.ndarray) -> float:
    """Share of the rows that come after another one of their owner, of those that have its date."""
    order = np.lexsort((numbers, owners))
    following = np.diff(owners[order]) == 0
    return float((np.diff(numbers[order])[following] == 0).mean())


def drawn(share: float, owners: np.ndarray, numbers: np.ndarray) -> Array:
    """Days of rows that were ``numbers`` before, by a released share."""
    coder = Discretizer(equal_width_codec(DAY, "2000-01-01", "2019-12-31"))
    values = pa.array(numbers.astype(np.int32)).view(pa.date32())
    codes = coder.encode(pa.chunked_array([values]))
    parents = pa.table({"id": np.arange(int(owners.max()) + 1)})
    rows = dated_columns(Lags(ties=[Ties("day", share)]), {"day": coder}, (parents, owners))["day"]
    rng = np.random.default_rng(0)
    moved, days = rows.drawn(codes, values, np.arange(len(values)), {"day": values}, rng)
    assert (moved == coder.encode(pa.chunked_array([days]))).all()
    return np.asarray(days.view(pa.int32()).to_numpy())


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_as_many_rows_have_the_date_of_another_one_and_no_date_becomes_more_likely(share: float) -> None:
    rng = np.random.default_rng(1)
    owners = rng.integers(0, 6000, 48_000)
    numbers = 10_957 + (rng.beta(2, 5, len(owners)) * 7000).astype(np.int64)
    found = drawn(share, owners, numbers)
    assert tied(found, owners) == pytest.approx(max(share, tied(numbers, owners)), abs=0.01)
    deciles = np.quantile(numbers, np.linspace(0.1, 0.9, 9))
    assert np.searchsorted(np.sort(found), deciles) / len(found) == pytest.approx(np.linspace(0.1, 0.9, 9), abs=0.025)


def test_dates_of_different_owners_and_of_none_stay_apart() -> None:
    numbers = np.array([11_000, 11_400, 12_000, 13_000, 13_400])
    assert drawn(1.0, np.array([0, 1, 2, -1, -1]), numbers).tolist() == numbers.tolist()
    found = drawn(1.0, np.array([0, 0, 1, -1, 1]), numbers)
    assert found[0] == found[1]
    assert found[2] == found[4]
    assert found[3] == 13_000


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ((Column("n", ColumnType.INTEGER, Learn()), DAY), ["day", "n"]),
        ((Column("end", ColumnType.DATE, relative=Relative("day", Learn())), DAY), ["day"]),
        (
            (Column("year", ColumnType.INTEGER, Range(1950, 2020)), Column("age", ColumnType.INTEGER, Range(0, 99))),
            ["year", "age"],
        ),
        ((Column("word", ColumnType.CATEGORY, Learn()),), []),
    ],
)
def test_dates_and_whole_numbers_may_be_tied(columns: tuple[Column, ...], expected: list[str]) -> None:
    assert tied_columns(table(*columns)) == expected
    alone = ForeignKey("visit", ("patient_id",), "patient", ("id",), max_children=1, owner=True)
    assert tied_columns(table(*columns, key=alone)) == []


@pytest.mark.parametrize("synthesizer", ["privbench", "privpetal"])
@pytest.mark.parametrize("year", [False, True])
def test_results_of_one_visit_have_one_date(tmp_path: Path, year: bool, synthesizer: str) -> None:
    """Each patient comes two or three times, and has four results or so each time."""
    rng = np.random.default_rng(2)
    n = 1500
    visits = np.repeat(np.arange(n), rng.integers(2, 4, n))
    when = rng.integers(1950, 2020, len(visits)) if year else rng.integers(0, 15_000, len(visits))
    of_visit = np.repeat(np.arange(len(visits)), rng.integers(3, 6, len(visits)))
    owner, days = visits[of_visit], when[of_visit]
    column = Column("day", ColumnType.INTEGER, Learn()) if year else DAY
    kind = Column("kind", ColumnType.BOOLEAN)
    patient = Table("patient", (NUMBER, kind), ("id",))
    tables = {
        "patient": pa.table({"id": np.arange(n), "kind": rng.random(n) < 0.5}),
        "visit": pa.table(
            {
                "id": np.arange(len(days)),
                "patient_id": owner,
                "day": pa.array(days) if year else pa.array(days.astype(np.int32)).view(pa.date32()),
            }
        ),
    }
    spec = place_of(tmp_path, Schema("ward", (patient, table(column)), "patient"), tables).spec
    made = sample_tables(spec, tables, 10.0, 1e-9, 0, synthesizer)["visit"].to_pandas()
    numbers = made["day"].to_numpy() if year else made["day"].to_numpy().astype("datetime64[D]").astype(np.int64)
    assert tied(numbers, made["patient_id"].to_numpy()) == pytest.approx(tied(days, owner), abs=0.05)
