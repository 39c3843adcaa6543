"""Columns over all rows, where most units have one row and most rows are of units with many: measured, and drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.estimators.fitting import fit_margins
from privbench_core.estimators.joints import NoisyTable
from privbench_core.marginals.measured import Counted, MeasuredLeaf
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Budget
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.units.row_count import RowCount
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import (
    category,
    codes_of,
    draw_exactly,
    integer,
    place_of,
    rows_of,
    samples_of,
    texts,
    tvd,
)

CODES, COLUMNS = 16, 6


def flights(planes: int = 500, alone: int = 40_000) -> tuple[Schema, dict[str, pa.Table], RowCount]:
    """Flights of planes and flights of no plane, in columns that follow each other, and which kind it is.

    Returns:
        The schema, the rows, and the exact size of the flights.
    """
    rng = np.random.default_rng(0)
    numbers = rng.integers(40, 120, planes)
    plane = np.append(np.repeat(np.arange(planes), numbers), np.full(alone, -1))
    n, common = len(plane), rng.normal(size=len(plane))
    owner = Table("plane", (integer("id"), category("kind", 3)), ("id",))
    owned = ForeignKey("flight", ("plane_id",), "plane", ("id",), owner=True, optional=True, max_children=200)
    columns = [integer("id"), integer("plane_id", nullable=True)]
    values = {"id": np.arange(n), "plane_id": pa.array(plane, mask=plane < 0)}
    for i in range(COLUMNS):
        shift = np.where(plane < 0, 2.5 * (-1) ** i, 0.0)
        codes = np.clip(np.floor(8 + 3 * (common + 0.3 * rng.normal(size=n)) + shift), 0, CODES - 1)
        columns.append(category(f"c{i}", CODES))
        values[f"c{i}"] = texts(codes.astype(int))
    flight = Table("flight", tuple(columns), ("id",), (owned,))
    tables = {
        "plane": rows_of(owner, id=np.arange(planes), kind=texts(rng.integers(0, 3, planes))),
        "flight": rows_of(flight, **values),
    }
    classes = np.array([1, 2, 4, 8, 16, 32, 64, 128])
    sizes = np.append(numbers, np.ones(alone, dtype=int))
    of_class = np.searchsorted(classes, sizes)
    rows, units = (
        np.bincount(of_class, sizes, len(classes)),
        np.bincount(of_class, minlength=len(classes)).astype(float),
    )
    size = RowCount(float(n), 1.0, 1, tuple(classes.tolist()), rows, units, 128)
    return Schema("flights", (owner, flight), "plane"), tables, size


def shares(rows: pa.Table, name: str) -> np.ndarray:
    return np.bincount(codes_of(rows.column(name)), minlength=CODES) / rows.num_rows


def test_columns_are_drawn_as_they_were_measured_over_rows() -> None:
    """Drawn in the measure of units, most of which are no planes, they were .15 to .26 off; noise is .05 to .1."""
    schema, tables, _ = flights()
    made = draw_exactly(schema, tables, noise=SeededNoise(0), budget=Budget(3.2, 1e-9))["flight"].table
    off = [tvd(shares(tables["flight"], f"c{i}"), shares(made, f"c{i}")) for i in range(COLUMNS)]
    assert np.mean(off) < 0.1
    # By what is known of planes and of others: as if most rows were of others, these were .20 off; noise is .02.
    alone = [rows.filter(rows["plane_id"].is_null()) for rows in (tables["flight"], made)]
    off = [tvd(shares(alone[0], f"c{i}"), shares(alone[1], f"c{i}")) for i in range(COLUMNS)]
    assert np.mean(off) < 0.14


def test_rows_that_joints_leave_out_have_the_same_odds_ratios_and_their_own_marginals() -> None:
    odds = np.array([[4.0, 1.0], [1.0, 4.0]])
    counted, left = (fit_margins(odds, [((0,), m[0]), ((1,), m[1])], 50) for m in (([7, 3], [6, 4]), ([1, 9], [2, 8])))
    whole, exact = (counted + 3 * left) / 4, 1e-6

    def columns(joint: np.ndarray) -> OneWay:
        return OneWay.with_sigma({"a": 40 * joint.sum(axis=1), "b": 40 * joint.sum(axis=0)}, exact)

    leaf = MeasuredLeaf(
        columns(whole), {("a", "b"): NoisyTable(40 * counted, exact)}, counted=Counted(columns(counted), 1 / 4)
    )
    again = MeasuredLeaf.from_dict(leaf.to_dict())
    assert again.fit().pairs["a", "b"] == pytest.approx(whole / whole.sum(), abs=1e-4)
    all_alike = replace(leaf, counted=None).fit().pairs["a", "b"]  # as if all rows had been counted
    assert tvd(all_alike.ravel(), whole.ravel() / whole.sum()) > 0.03


def test_published_figures_are_of_rows(tmp_path: Path) -> None:
    """Of units they would be of flights without a plane, whatever became of the others."""
    schema, tables, _ = flights()
    result = place_of(tmp_path, schema, tables, delta=1e-9).run_with(SeededNoise(0), 3.2)
    metrics = result.releases["fidelity", "flight"].artifact.data["metrics"]
    one_way = next(metric for metric in metrics if metric["metric"] == "one-way TVD")
    made = samples_of(result)["flight"]
    off = np.mean([tvd(shares(tables["flight"], f"c{i}"), shares(made, f"c{i}")) for i in range(COLUMNS)])
    assert one_way["value"] == pytest.approx(off, abs=3 * one_way["noise"] + 0.02)
    assert one_way["noise"] < 0.05
