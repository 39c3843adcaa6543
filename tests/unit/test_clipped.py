"""What counts of clipped units say of all rows, where units have codes of their own."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from privbench_core.privacy.clipping import UnitsOfRows
from privbench_core.privacy.relations import WEIGHT_SCALE
from privbench_core.units.measure_by_size import CollisionPosterior, SizeStratifiedMarginals, vector_lengths
from privbench_core.units.random_walk import Drift
from privbench_core.units.row_count import RowCount, size_classes

CLASSES = (1, 2, 4, 8, 16, 32, 64)
SHARES = np.array([0.6, 0.25, 0.12, 0.03])
MOST = 8


def table(alike: float, units: int = 200_000) -> tuple[RowCount, UnitsOfRows, NDArray[np.int64]]:
    """Units of up to 64 rows, so many of which have the unit's own code that two of them do so likely."""
    rng = np.random.default_rng(0)
    numbers = np.minimum(rng.zipf(1.8, units), 64)
    unit = np.repeat(np.arange(units), numbers)
    own, others = rng.choice(4, units, p=SHARES), rng.choice(4, len(unit), p=SHARES)
    codes = np.where(rng.random(len(unit)) < alike**0.5, own[unit], others)
    place = size_classes(numbers, CLASSES)
    rows_of, units_of = np.bincount(place, numbers, 7).astype(float), np.bincount(place, minlength=7).astype(float)
    size = RowCount(float(len(unit)), 0.0, 1, CLASSES, rows_of, units_of, 64)
    return size, UnitsOfRows(MOST, unit, numbers[unit]), codes


@pytest.mark.parametrize("alike", [0.0, 0.3, 0.6, 1.0])
def test_rows_of_each_code_count_as_long_as_vectors_of_their_units_are(alike: float) -> None:
    size, rows, codes = table(alike)
    every = np.bincount(codes, minlength=4)
    lengths = vector_lengths(every / every.sum(), MOST)
    assert lengths.tolist() == [1, 2, 2, 4]
    counts = rows.counts(codes, 4, lengths) / WEIGHT_SCALE * MOST
    found = CollisionPosterior().updated(
        *_expected(size, lengths), float(counts.sum()), np.full(12, 0.01 * counts.sum())
    )
    assert found.expected == pytest.approx(alike, abs=0.06)
    counted = found.mean(_counted(size, lengths)).sum(axis=1) / size.rows
    np.testing.assert_allclose(counts / every, counted, rtol=0.1)
    if alike == 1:
        assert counted[3] < counted[0] / 1.3


def test_columns_over_all_rows_are_found_however_hard_units_with_rare_codes_are_clipped() -> None:
    size, rows, codes = table(0.6)
    every = np.bincount(codes, minlength=4)
    shapes = np.repeat((every / every.sum())[None], 7, axis=0)
    nothing = Drift.of(size.rows_of[:, None] * shapes, np.full(7, 0.1 * size.rows), size.rows_of)
    known = SizeStratifiedMarginals(size, {"x": nothing})
    lengths = known.lengths("x", MOST)
    assert lengths[3] > lengths[0]
    counts = rows.counts(codes, 4, lengths) / WEIGHT_SCALE * MOST * lengths
    drift = known.clipped(MOST, {"x": counts}, 1.0).drifts["x"]
    found = drift.average(size.rows_of / size.rows_of.sum())[0]
    biased, exact = counts / lengths / (counts / lengths).sum(), every / every.sum()
    assert biased[3] < 0.9 * exact[3]
    assert abs(found[3] - exact[3]) < 0.5 * abs(biased[3] - exact[3])


def test_what_noise_hides_stays_open_and_is_said_to_be() -> None:
    size, _, codes = table(0.6)
    every = np.bincount(codes, minlength=4)
    lengths = vector_lengths(every / every.sum(), MOST)
    totals = _expected(size, lengths)[0]
    hidden, clear = (CollisionPosterior().updated(totals, float(totals[6]), np.full(12, off)) for off in (1e6, 10.0))
    assert hidden.expected == pytest.approx(0.5, abs=0.01)
    assert clear.expected == pytest.approx(6 / 11, abs=0.01)
    assert hidden.deviation(totals) > 100 * clear.deviation(totals)


def _counted(size: RowCount, lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    return CollisionPosterior.counted(size, lengths, np.repeat(SHARES[None], 7, axis=0), MOST)


def _expected(size: RowCount, lengths: NDArray[np.int64]) -> tuple[NDArray[np.float64]]:
    return ((_counted(size, lengths) * SHARES[:, None]).sum(axis=(1, 2)),)
