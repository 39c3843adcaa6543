"""Merging cells by released counts, and spreading codes over cells again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from privbench_core.columns.discretizer import (
    Binning,
    Discretizer,
    merge_cells,
    parts_worth_cutting,
)
from privbench_core.columns.registry import codec_for
from privbench_core.errors import InternalError
from privbench_core.estimators.segmentation import ABSOLUTE, segment_and_smooth, segments
from privbench_core.schema.columns import Column, ColumnType, Range, Values


def a_list(n, *, nullable=False):
    return codec_for(Column("x", ColumnType.INTEGER, Values(tuple(range(n))), nullable=nullable))


def a_range(n, *, nullable=False):
    return codec_for(Column("x", ColumnType.INTEGER, Range(1, n, cells=n), nullable=nullable))


def merged(noisy, codec, sigma=10.0, max_codes=100):
    return merge_cells(np.array(noisy, float), codec, sigma, max_codes)


def test_rare_values_become_one_code():
    binning = merged([500, 20, 400, 5, -5, 0], a_list(5))
    assert binning.code_of == (0, 2, 1, 2, 2, 2)
    assert binning.ordered == 0
    # Noisy counts, none below zero, and a fifth of a standard deviation each; other values were not significant.
    each = 10 * ABSOLUTE / 2
    expected = np.array([20 + each, 5 + each, each, 0]) / (25 + 3 * each)
    np.testing.assert_allclose(np.array(binning.weights)[[1, 3, 4, 5]], expected)


def test_insignificant_null_is_never_drawn():
    binning = merged([500, 400, 3, 3], a_list(2, nullable=True))
    assert binning.code_of == (0, 1, 1, 1)  # no rare code, so the smaller one takes them
    rows = binning.expand(np.array([0, 1] * 5000, np.int32), np.random.default_rng(0))
    assert set(rows.tolist()) == {0, 1}


def test_lists_keep_to_the_bound_on_codes():
    binning = merged([500, 400, 300, 200, 0], a_list(4), max_codes=3)
    assert binning.code_of[:4] == (0, 1, 2, 2)
    each = 10 * ABSOLUTE / 2
    np.testing.assert_allclose(binning.weights[2:4], np.array([300 + each, 200 + each]) / (500 + 2 * each))
    assert merged([500, 400, 300, 200, 0], a_list(4), max_codes=1).size == 1


def test_values_that_another_release_has_shown_keep_their_codes():
    noisy = np.array([500.0, -5.0, 400.0, 5.0, 20.0, 0.0])
    found = merge_cells(noisy, a_list(5), 10.0, 100, visible=True)
    assert found.code_of[:5] == (0, 1, 2, 3, 4)
    assert found.weights[:5] == (1.0,) * 5
    assert found.code_of[5] == 1  # other values are not listed, and noise hides them: with the smallest, never drawn
    assert found.weights[5] == 0
    # Where there are more of them than codes, the largest keep theirs.
    assert merge_cells(noisy, a_list(5), 10.0, 3, visible=True).code_of[:5] == (0, 2, 1, 2, 2)


def test_exact_counts_work():
    assert merged([5, 0, 0, 7, 0, 0], a_range(4), sigma=0.0).code_of[:4] == (0, 1, 2, 3)
    everything_empty = merged([0, 0, 0, 0], a_list(3), sigma=0.0)
    np.testing.assert_allclose(everything_empty.weights, [1 / 3, 1 / 3, 1 / 3, 0])
    np.testing.assert_allclose(merged([0, 0, 0, 0], a_range(2), sigma=0.0).weights, [1, 1, 0, 0])


def test_expanding_has_low_variance_and_a_random_order():
    binning = Binning((0, 0, 0, 1), (0.5, 0.25, 0.25, 1.0))
    codes = np.array([0] * 1000 + [1] * 10, np.int32)
    cells = binning.expand(codes, np.random.default_rng(0))
    assert np.bincount(cells).tolist() == [500, 250, 250, 10]
    # Sorted cells would put all of cell 0 into the first half.
    assert 200 < (cells[:500] == 0).sum() < 300
    assert (cells == binning.expand(codes, np.random.default_rng(0))).all()
    assert binning.expand(np.array([], np.int32), np.random.default_rng(0)).tolist() == []


def test_segments_follow_steps_and_single_heavy_cells_whatever_the_noise():
    rng = np.random.default_rng(0)
    steps = np.repeat([100.0, 400.0, 400.0, 50.0], 25)
    steps[60] = 5000.0
    found = segments(steps + rng.normal(0, 20, 100), 20.0).tolist()
    assert {25, 60, 61, 75} <= set(found)
    assert len(found) <= 8
    assert segments(rng.normal(0, 20, 100), 20.0).tolist() == [0]
    assert segments(np.array([3.0, 3.0]), 0.0).tolist() == [0, 1]


def test_counts_that_do_not_fit_are_a_bug():
    with pytest.raises(InternalError, match="3 cells"):
        merged([1, 2], a_list(2))
    with pytest.raises(InternalError, match="into 0 codes"):
        merged([1, 2, 3], a_list(2), max_codes=0)


def test_a_slope_inside_of_a_segment_is_kept_and_steps_are_not_made():
    truth = 3000 * np.exp(-(np.linspace(-1.5, 2.5, 60) ** 2))
    noisy = truth + np.random.default_rng(0).normal(0, 250, 60)
    binning = merge_cells(np.append(noisy, [0.0, 0.0]), a_range(60), 250.0, 100)
    codes = np.array(binning.code_of)
    steps = (np.bincount(codes, np.append(truth, [0, 0])) / np.bincount(codes))[codes][:60]
    ours = (np.bincount(codes, np.append(truth, [0, 0]))[codes] * np.array(binning.weights))[:60]
    assert np.abs(ours - truth).sum() < 0.8 * np.abs(steps - truth).sum()


def rough(seed: int, n: int = 60) -> np.ndarray:
    """Counts of neighbours that have nothing to do with each other."""
    return np.random.default_rng(seed).exponential(300.0, n)


def bell(_: int, n: int = 60) -> np.ndarray:
    return 600 * np.exp(-(np.linspace(-3, 3, n) ** 2))


def mean_error(shape, sigma: float, estimate) -> float:
    rng = np.random.default_rng(1)
    errors = [
        np.abs(estimate(exact + rng.normal(0, sigma, len(exact))) - exact).sum() for exact in map(shape, range(20))
    ]
    return float(np.mean(errors))


@pytest.mark.parametrize("sigma", [20.0, 60.0])
def test_rough_counts_are_not_smoothed_and_smooth_ones_are(sigma):
    def found(noisy):
        return segment_and_smooth(noisy, sigma, np.ones(len(noisy)))[1]

    def plain(noisy):
        return np.maximum(noisy, 0)

    assert mean_error(rough, sigma, found) < mean_error(rough, sigma, plain)
    assert mean_error(bell, sigma, found) < 0.9 * mean_error(bell, sigma, plain)


def test_codes_are_cut_that_hide_more_than_the_noise_of_a_count():
    """A column without structure is one code: 100 cells of 300 rows each, noise of 100."""
    flat = Binning((0,) * 100, (0.01,) * 100, 1)
    rows = np.array([30_000.0])
    number = [int(parts_worth_cutting(flat, rows, sigma, 1.0, 100)[0]) for sigma in (1e5, 100.0, 50.0, 1e-6)]
    assert number[0] == 1  # noise hides all of it
    assert 10 <= number[1] < number[2] < number[3] == 32  # each a 32nd of all rows
    beside = [int(parts_worth_cutting(flat, rows, 100.0, codes, 100)[0]) for codes in (1.0, 4.0, 1000.0)]
    assert beside[0] > beside[1] > beside[2] == 1  # a code of its own has a count for each code of the other column
    # Each part hides about as much as the noise of its cells' sum takes away.
    held, cells = 1 / number[1], 100 / number[1]
    assert held**2 * 30_000 == pytest.approx(0.4 * 100 * cells**0.5, rel=0.2)


def test_a_long_tail_is_cut_into_pieces_that_double():
    codec, counts = a_range(1000), np.zeros(1002)
    counts[:10], counts[10:] = 100.0, 0.01
    plain = merged(counts, codec)
    binning = plain.with_tails(codec.widths, plain.sums(counts))
    assert binning.tails == ((1, 7),)
    sizes = np.bincount(binning.code_of)
    np.testing.assert_allclose(sizes[1:7] / sizes[0], 2.0 ** np.arange(6), rtol=0.1)
    assert binning.ordered == binning.size == 8
    np.testing.assert_allclose(np.bincount(binning.code_of, binning.weights), 1.0)
    coder = Discretizer(codec, binning)
    assert Discretizer.from_dict(json.loads(json.dumps(coder.to_dict()))) == coder


@pytest.mark.parametrize("laplace", [False, True])
def test_noise_alone_makes_hardly_a_peak_among_thousands_of_empty_cells(laplace: bool):
    rng = np.random.default_rng(0)
    peaks = 0
    for _ in range(4):
        noise = rng.laplace(0, 10 / np.sqrt(2), 4096) if laplace else rng.normal(0, 10, 4096)
        peaks += len(segment_and_smooth(noise, 10.0, np.ones(4096), laplace=laplace)[0]) - 1
    assert peaks <= 2  # a cut for every ten that would save the usual penalty
