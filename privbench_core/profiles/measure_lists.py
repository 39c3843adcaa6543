"""Learn lists of values, for a part of a profile's price.

Values above a stability threshold are named. How many others there are, how often each occurs and how long they are is
measured, and such values are made up. Whole numbers that are codes are listed in their digits.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.grid import Grid, qualified
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.made_up import MadeUp
from privbench_core.columns.opaque import OpaqueCodec, length_limit
from privbench_core.estimators.segmentation import ABSOLUTE, SIGNIFICANT
from privbench_core.guards import CLEAR_BLOCK, MAX_CELLS, NEGLIGIBLE, RANK_BLOCKS
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Own
from privbench_core.privacy.queries import Marginal, RankSums
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Scalar
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import RowCount

Array = NDArray[np.float64]


def learn_list(
    session: PrivateSession, table: Table, column: Column, size: RowCount | None, price: Price
) -> tuple[Codec, str]:
    """Return a codec for a list of values: those that may be named, and made-up ones for the others.

    Formal guarantee: satisfies δ-approximate ρ-zCDP at the price given, for adding or removing one privacy unit;
    ``docs/privacy.md``, section 5, mechanisms 1, 6, 7 and 9.

    Args:
        session: Open for the step.
        table: The table.
        column: A category, or whole numbers that are codes.
        size: Released, of an owned table.
        price: Of everything here, with a δ.

    Returns:
        The codec, and what had to be assumed; empty for nothing.

    Raises:
        UnsupportedBudgetError: The price has no δ.
    """
    unnamed, first, _ = TUNING.list_shares
    naming = price.share(1 - unnamed)
    names: tuple[str, ...] = ()
    shares = (1.0,) if size is None else (first, 1 - first)  # a unit of one row has no other value
    for share in shares:
        part = naming.share(share).with_delta(price.delta / len(shares))
        found = session.discover(table.name, column.name, part, names)
        names += tuple(sorted(found.counts, key=lambda value: (-found.counts[value], value)))
    whole, bound = column.type is ColumnType.INTEGER, 1 << column.bits - 1
    # What does not fit into the column's SQL type could not be published: it is one of those that are not named.
    values: tuple[Scalar, ...] = tuple(n for n in map(int, names) if -bound <= n < bound) if whole else names
    codec = CategoricalCodec(qualified(column, table.name), column.type, values, column.nullable)
    made = _measure_unnamed(session, table, column, codec, size, Price(price.measure, price.amount * unnamed))
    if made is not None or values:
        return replace(codec, made=made), ""
    longest = _longest(column)
    hidden = MadeUp((1,), (1.0,), (float(not whole), *(1.0,) * longest), longest, whole)
    return replace(codec, made=hidden), "noise hid all of its values, so one was made up; declare a domain"


def _measure_unnamed(
    session: PrivateSession, table: Table, column: Column, codec: CategoricalCodec, size: RowCount | None, price: Price
) -> MadeUp | None:
    """Measure what the values that were not named are like; None if all rows that have one are below the noise."""
    lengths, spread = _lengths(column, table.name)
    code_of = np.zeros(codec.size, int)
    code_of[len(codec.values)] = 1
    other = Discretizer(codec, Binning(tuple(code_of.tolist()), tuple((1 - code_of / 2).tolist())))
    for_lengths, left = price.share(TUNING.list_shares[2]), price.share(1 - TUNING.list_shares[2])
    most, scale = _truncation(session, table, size, left)
    features = {"unnamed": (Own(column.name), other), "length": (Own(column.name), lengths)}
    view = session.view(ViewSpec(table.name, {**features}, (most,)), f"values of {column.name}")
    noisy = view.measure("lengths", [Marginal(("unnamed",)), Marginal(("unnamed", "length"))], for_lengths)
    rows, sigma = float(noisy.values[0][1]) * scale, noisy.sigma * scale
    if rows <= SIGNIFICANT * sigma:
        return None
    curator = session.unnamed(table.name, column.name, tuple(map(str, codec.values)), most)
    noise = curator.sigma([RankSums((1,))], left) * scale
    ends = rank_blocks(rows, noise)
    sums = curator.measure("ranks", [RankSums(tuple(ends.tolist()))], left)
    numbers, of_rows = value_blocks(sums.values[0] * scale, ends, noise, rows)
    # At least one length; cells of several lengths are shared out evenly.
    by_length = noisy.values[1][1][: len(spread)] * scale
    visible = np.where(by_length > SIGNIFICANT * sigma, by_length, 0.0)
    shared = (visible if visible.any() else np.maximum(by_length, 0.0)) @ spread
    of_lengths = tuple((shared / max(shared.sum(), NEGLIGIBLE)).round(6).tolist())
    return MadeUp(numbers, of_rows, of_lengths, _longest(column), column.type is ColumnType.INTEGER)


def _truncation(session: PrivateSession, table: Table, size: RowCount | None, price: Price) -> tuple[int, float]:
    """Return the T with the least expected error, and what answers are multiplied with to stand for all rows."""
    if size is None:
        return 1, 1.0
    counted = np.array([max(1.0, float(size.counted(most).sum())) for most in size.classes])
    alone = session.view(ViewSpec(table.name, {}), "values").sigma([Marginal(())], price)
    lost = 1 - counted / max(size.rows, float(counted.max()))
    best = int(np.argmin(lost + ABSOLUTE * TUNING.list_cells * alone * np.array(size.classes) / counted))
    return size.classes[best], float(max(size.rows, counted[best]) / counted[best])


def _longest(column: Column) -> int:
    """Return most characters of a value; of a whole number, most digits that any of them may have."""
    return len(str(1 << column.bits - 1)) - 1 if column.type is ColumnType.INTEGER else length_limit(column)


def _lengths(column: Column, table: str) -> tuple[Discretizer, Array]:
    """Return a coder of lengths of values, and how its first codes are shared out, shape (codes, lengths from 0)."""
    longest = _longest(column)
    if column.type is not ColumnType.INTEGER:
        lengths = OpaqueCodec(qualified(column, table), longest, column.nullable, ColumnType.TEXT)
        spread = np.zeros((lengths.ordered + 1, longest + 1))
        for cell, (low, high) in enumerate(zip(lengths.lengths.starts, lengths.lengths.ends, strict=True)):
            spread[cell, low : high + 1] = 1.0
        spread[lengths.outside[0], -1] = 1.0
        return Discretizer(lengths), spread
    powers = [10**digits for digits in range(1, longest)]
    cuts = (*(1 - 10**digits for digits in range(longest, 0, -1)), *powers)
    codec = OrderedCodec(Grid.of(column, table), column.nullable, cuts, 10**longest - 1, True)
    digits = np.abs(np.arange(codec.ordered) - (longest - 1))  # less one: the cell in the middle has both signs
    code_of = np.append(digits, longest + np.arange(codec.size - codec.ordered))
    weights = 1 / np.bincount(code_of)[code_of]
    binning = Binning(tuple(code_of.tolist()), tuple(weights.tolist()), longest)
    return Discretizer(codec, binning), np.eye(longest + 1)[1:]


def rank_blocks(rows: float, sigma: float) -> NDArray[np.int64]:
    """Return one past the last rank of each block: growing blocks, as many as noise can distinguish.

    Noise of K blocks adds up to σ√K, so K is at most (rows / 4σ)².

    Args:
        rows: That have a value which was not named; there are at most so many such values.
        sigma: Standard deviation of the noise on the rows of a block.
    """
    most = min(max(1, math.ceil(rows)), MAX_CELLS)
    blocks = int(np.clip((rows / (CLEAR_BLOCK * max(sigma, NEGLIGIBLE))) ** 2, *RANK_BLOCKS))
    return np.unique(np.geomspace(1, most, blocks).round().astype(np.int64))


def value_blocks(
    noisy: Array, ends: NDArray[np.int64], sigma: float, rows: float
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the number of values in each block of ranks, and their rows.

    Means of blocks do not increase (isotonic regression), and sums add up to ``rows``. A value has at least one row, so
    a block holds at most as many values as rows: in one that is not full, each has one.

    >>> numbers, shared = value_blocks(np.array([50.0, 30.0, 20.0, 0.0]), np.array([1, 3, 33, 100]), 0.1, 100.0)
    >>> numbers, [round(each) for each in shared]
    ((1, 2, 20), [50, 30, 20])
    """
    widths = np.diff(ends, prepend=0).astype(np.float64)
    means = np.maximum(scipy.optimize.isotonic_regression(noisy / widths, weights=widths, increasing=False).x, 0.0)
    sums = means * widths
    # What noise leaves beyond the last value is spread thinly: less than half of a row per rank for most of its ranks.
    sums = np.where(np.cumsum(sums[::-1])[::-1] > sigma, sums, 0.0)
    sums = sums * (rows / sums.sum()) if sums.sum() > 0 else np.append(rows, np.zeros(len(widths) - 1))
    numbers = np.minimum(widths, np.rint(sums))
    kept = numbers > 0
    if not kept.any():
        return (1,), (1.0,)
    return tuple(numbers[kept].astype(int).tolist()), tuple(sums[kept].tolist())
