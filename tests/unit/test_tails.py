"""Long tails: what noise hides is drawn towards smooth shapes, and what stands out of it stays."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import pytest

from privbench_core.columns.intervals import equal_width_codec
from privbench_core.estimators.size_shapes import tail_counts
from privbench_core.marginals.one_way import OneWay
from privbench_core.schema.columns import Column, ColumnType

FALLING = 4000.0 * 0.4 ** np.arange(12)


def test_counts_that_stand_out_are_kept():
    found, sigmas = tail_counts(FALLING, np.full(12, 0.01))
    np.testing.assert_allclose(found, FALLING, rtol=0.05)
    assert (sigmas <= 0.01).all()


@pytest.mark.parametrize("wide", [1.0, 2**0.5])
def test_noise_makes_no_rows_far_out(wide: float):
    rng, sigmas = np.random.default_rng(0), 10.0 * wide ** np.arange(12)
    places = 2.0 ** np.arange(12)
    off = [tail_counts(FALLING + rng.normal(0, sigmas), sigmas)[0] @ places for _ in range(20)]
    plain = [np.maximum(FALLING + rng.normal(0, sigmas), 0) @ places for _ in range(20)]
    true = FALLING @ places
    assert np.median(np.abs(np.array(off) / true - 1)) < 0.6 * np.median(np.abs(np.array(plain) / true - 1))


def test_tails_of_a_column_are_drawn_towards_shapes_wherever_it_is_cleaned():
    counts, sigmas = np.append([9000.0, 500.0], [30.0, -20.0, 25.0, -30.0, 28.0]), np.full(7, 15.0)
    plain = OneWay({"x": counts}, {"x": sigmas})
    tailed = OneWay({"x": counts}, {"x": sigmas}, tails={"x": ((2, 6),)})
    assert tailed.clean()["x"][-1] < 0.1 * plain.clean()["x"][-1]
    assert tailed.clean()["x"].sum() == pytest.approx(plain.clean()["x"].sum())
    mirrored = OneWay({"x": counts[::-1]}, {"x": sigmas}, tails={"x": ((4, 0),)})
    np.testing.assert_allclose(mirrored.clean()["x"][::-1], tailed.clean()["x"])
    assert tailed.times(2.0).only(["x"]).tails == tailed.tails


@pytest.mark.parametrize(
    ("column", "low", "high", "least"),
    [
        (Column("x", ColumnType.DATE), "2000-01-01", "2019-12-31", dt.date(1980, 1, 2)),
        (Column("x", ColumnType.INTEGER), 100, 199, 1),
        (Column("x", ColumnType.INTEGER), 10, 199, 0),
        (Column("x", ColumnType.DECIMAL, precision=8, scale=2), "1.00", "9.99", 0),
        (Column("x", ColumnType.FLOAT), 1.0, 2.0, 0.0),
    ],
    ids=["dates", "integers", "integers near zero", "decimals", "floats"],
)
def test_values_beyond_open_ends_do_not_pile_up_in_the_last_cells(column, low, high, least):
    """Dates before an assumed range were all of its first six weeks."""
    codec = replace(equal_width_codec(column, low, high), open_ended=True)
    rows = np.ones(codec.size)
    rows[codec.below] = rows[codec.above] = 20.0
    drawn = codec.with_tails(rows).decode(np.repeat(codec.outside, 500).astype(np.int32), np.random.default_rng(0))
    values = drawn.to_pylist()
    first, last = codec.edges(0)[0], codec.edges(codec.ordered - 1)[1]
    kind = type(values[0])
    ends = [dt.date.fromisoformat(each) if kind is dt.date else kind(each) for each in (first, last)]
    assert max(values[:500]) < ends[0] <= ends[1] < min(values[500:])
    assert min(values) >= least
    assert max(values) - ends[1] <= ends[1] - ends[0]
    assert len(set(values[500:])) > 50
