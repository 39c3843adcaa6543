"""Fidelity figures of pairs with values that were made up, and of rows of units with many of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.made_up import MadeUp
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.steps.fidelity import rare_cells, rare_values, shuffled_apart
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import integer, place_of, rows_of, tvd


def coder(numbers: tuple[int, ...], rows: tuple[float, ...], binning: Binning | None = None) -> Discretizer:
    made = MadeUp(numbers, rows, (1.0,) * 9, 8)
    return Discretizer(CategoricalCodec("t.x", ColumnType.CATEGORY, ("a", "b"), False, made=made), binning)


def test_a_code_of_made_up_values_is_known_with_the_rows_that_share_one() -> None:
    assert rare_values(coder((10,), (30.0,)), 1.0) == (2, 3.0)
    assert rare_values(coder((1, 90), (10.0, 90.0)), 1.0) == (2, pytest.approx(1.9))
    assert rare_values(coder((90,), (90.0,)), 5.0) == (2, 5.0)
    merged = Binning((0, 1, 1), (1.0, 0.5, 0.5))
    assert rare_values(coder((10,), (30.0,), merged), 1.0) is None
    cells = rare_cells(("y", "x"), {"y": 2, "x": 3}, {"x": (2, 3.0)})
    assert cells.tolist() == [[False, False, True], [False, False, True]]


@pytest.mark.parametrize("share", [1, 4, 30])
def test_shuffled_columns_are_as_far_off_as_rows_that_share_a_value_differ(share: int) -> None:
    rng = np.random.default_rng(0)
    n, p = 6000, np.array([0.4, 0.3, 0.2, 0.1])
    values, codes = np.arange(n) // share, rng.choice(4, n, p=p)
    counts = [np.bincount(values * 4 + rng.permutation(codes), minlength=n // share * 4) / n for _ in range(2)]
    expected = np.outer([0.0, float(n)], p)
    single = {"id": np.array([0.0, float(n)]), "y": n * p}
    found = shuffled_apart(("id", "y"), expected, single, {"id": (1, float(share))})
    assert found / (2 * n) == pytest.approx(tvd(*counts), abs=0.12)


def test_pairs_with_made_up_values_are_not_called_close(tmp_path: Path) -> None:
    """Of four columns two are names that nobody shares: nothing that joins on them, or asks for them, finds a row."""
    rng = np.random.default_rng(0)
    names = tuple(Column(name, ColumnType.CATEGORY, Learn()) for name in ("name", "mail"))
    numbers = tuple(Column(name, ColumnType.INTEGER, Learn()) for name in ("x", "y"))
    table = Table("t", (integer("id"), *names, *numbers), ("id",))
    x = rng.integers(0, 20, 4000)
    texts = {column.name: [f"{column.name} {i}" for i in range(4000)] for column in names}
    rows = rows_of(table, id=np.arange(4000), x=x, y=x + rng.integers(0, 3, 4000), **texts)
    here = place_of(tmp_path, Schema("s", (table,), "t"), {"t": rows}, delta=1e-6)
    metrics = here.run_with(SeededNoise(0), 3.2).releases["fidelity", "t"].artifact.data["metrics"]
    two_way = next(metric for metric in metrics if metric["metric"] == "two-way TVD")
    assert two_way["value"] > 5 / 6 - 0.05  # of six pairs five have such a column
    assert two_way["shuffled"] > 0.75  # shuffled columns have the values, and nearly none of the pairs
