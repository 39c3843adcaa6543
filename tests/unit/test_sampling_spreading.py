from __future__ import annotations

import numpy as np
import pytest

from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.sampling.attributes import allocate_within_bins
from privbench_core.schema.columns import Column, ColumnType, Range

CELLS, CODES = 24, 4


def merged(name: str) -> Discretizer:
    """A range in 24 cells, 6 of them to a code, with unequal shares."""
    codec = codec_for(Column(name, ColumnType.INTEGER, Range(0, CELLS - 1)))
    code_of = np.minimum(np.arange(codec.size) * CODES // CELLS, CODES - 1)
    weights = np.where(np.arange(codec.size) < CELLS, 1.0 + np.arange(codec.size) % 3, 0.0)
    weights /= np.bincount(code_of, weights)[code_of]
    return Discretizer(codec, Binning(tuple(code_of.tolist()), tuple(weights.tolist()), CODES))


def plain(name: str) -> Discretizer:
    return Discretizer(codec_for(Column(name, ColumnType.INTEGER, Range(0, 4))))


CODERS = {"x": merged("x"), "y": merged("y"), "z": plain("z")}


def drawn(n: int):
    rng = np.random.default_rng(1)
    x = rng.integers(0, CODES, n).astype(np.uint8)
    y = np.where(rng.random(n) < 0.5, x, rng.integers(0, CODES, n)).astype(np.uint8)
    return {"x": x, "y": y, "z": rng.integers(0, 5, n).astype(np.uint8)}


def off(cells, codes, first: str, second: str) -> float:
    """How far pairs of cells are from their shares of the pairs of codes."""
    sides = [CODERS[name].shares for name in (first, second)]
    sizes = [CODERS[name].codec.size for name in (first, second)]
    found = np.zeros(sizes)
    np.add.at(found, (cells[first], cells[second]), 1)
    both = np.zeros([CODERS[name].size for name in (first, second)])
    np.add.at(both, (codes[first], codes[second]), 1)
    expected = both[np.ix_(sides[0][0], sides[1][0])] * np.outer(sides[0][1], sides[1][1])
    return float(np.abs(found - expected).sum())


@pytest.mark.parametrize(("first", "second"), [("x", "y"), ("x", "z"), ("y", "z")])
def test_cells_are_beside_each_other_as_their_shares_say(first, second):
    codes, ratios = drawn(6_000), []
    for seed in range(5):  # of two merged columns a ratio is .70 on average, more or less by seed and processor
        rng = np.random.default_rng(seed)
        by_chance = {name: discretizer.cells(codes[name], rng) for name, discretizer in CODERS.items()}
        evenly = allocate_within_bins(codes, CODERS, rng)
        ratios.append(off(evenly, codes, first, second) / off(by_chance, codes, first, second))
    assert np.mean(ratios) < 0.75


def test_cells_keep_their_codes_and_their_shares():
    codes = drawn(6_000)
    cells = allocate_within_bins(codes, CODERS, np.random.default_rng(3))
    for name, discretizer in CODERS.items():
        code_of, shares = discretizer.shares
        np.testing.assert_array_equal(code_of[cells[name]], codes[name])
        expected = np.bincount(codes[name], minlength=discretizer.size)[code_of] * shares
        assert np.abs(np.bincount(cells[name], minlength=discretizer.codec.size) - expected).max() <= 1
    np.testing.assert_array_equal(cells["z"], codes["z"])
