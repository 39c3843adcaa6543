"""Learn lists of values: those that many units share are named, and what the others are like is measured.

Values above a stability threshold are named. How many others there are, how often each occurs and how long they are is
measured, and such values are made up. Whole numbers that are codes are listed in their digits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.grid import Grid, qualified
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.made_up import MadeUp
from privbench_core.columns.opaque import OpaqueCodec, length_limit
from privbench_core.estimate.made_up import rank_blocks, value_blocks
from privbench_core.estimate.segmentation import ABSOLUTE, SIGNIFICANT
from privbench_core.models.row_count import RowCount
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Feature, Own
from privbench_core.privacy.queries import Marginal, RankSums
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Scalar
from privbench_core.schema.tables import Table

Array = NDArray[np.float64]
# Chosen by hand, as shares of what learning a list costs.
_UNNAMED_SHARE = 0.25  # for the values that are not named; the rest names values
_FIRST_NAMES = 0.3  # of that, for a first list; units then count for their other values alone (Swanberg et al. 2023)
_IN_TWO, _AT_ONCE = (_FIRST_NAMES, 1 - _FIRST_NAMES), (1.0,)  # a unit of one row has no other value
_LENGTHS_SHARE = 0.3  # of that, for their lengths and the rows that have them; the rest for how often each occurs
_SHAPE_NUMBERS = 25  # numbers that the shape of a list comes down to, as for parents (`measure.popularity`)
_OTHERWISE = 0.3  # how far units with more than T rows have other values, likewise


def learn_list(
    session: PrivateSession, table: Table, column: Column, size: RowCount | None, price: Price
) -> tuple[Codec, str]:
    """A codec for a list of values: those that may be named, and made-up ones for the others.

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
    naming = price.share(1 - _UNNAMED_SHARE)
    names: tuple[str, ...] = ()
    shares = _AT_ONCE if size is None else _IN_TWO
    for share in shares:
        part = naming.share(share).with_delta(price.delta / len(shares))
        found = session.discover(table.name, column.name, part, names)
        names += tuple(sorted(found.counts, key=lambda value: (-found.counts[value], value)))
    whole, bound = column.type is ColumnType.INTEGER, 1 << column.bits - 1
    # What does not fit into the column's SQL type could not be published: it is one of those that are not named.
    values: tuple[Scalar, ...] = tuple(n for n in map(int, names) if -bound <= n < bound) if whole else names
    codec = CategoricalCodec(qualified(column, table.name), column.type, values, column.nullable)
    made = _measure_unnamed(session, table, column, codec, size, Price(price.measure, price.amount * _UNNAMED_SHARE))
    if made is not None or values:
        return replace(codec, made=made), ""
    longest = _longest(column)
    hidden = MadeUp((1,), (1.0,), (float(not whole), *(1.0,) * longest), longest, whole)
    return replace(codec, made=hidden), "noise hid all of its values, so one was made up; declare a domain"


def _measure_unnamed(
    session: PrivateSession, table: Table, column: Column, codec: CategoricalCodec, size: RowCount | None, price: Price
) -> MadeUp | None:
    """What the values that were not named are like, None if noise hides all rows that have one."""
    lengths, spread = _lengths(column, table.name)
    code_of = np.zeros(codec.size, int)
    code_of[len(codec.values)] = 1
    other = Discretizer(codec, Binning(tuple(code_of.tolist()), tuple((1 - code_of / 2).tolist())))
    features: dict[str, tuple[Feature, Discretizer]] = {
        "unnamed": (Own(column.name), other),
        "length": (Own(column.name), lengths),
    }
    most, scale = _counted(session, table, size, price.share(1 - _LENGTHS_SHARE))
    view = session.view(ViewSpec(table.name, features, (most,)), f"values of {column.name}")
    asked = [Marginal(("unnamed",)), Marginal(("unnamed", "length"))]
    noisy = view.measure("lengths", asked, price.share(_LENGTHS_SHARE))
    rows, by_length = (float(noisy.values[0][1]) * scale, noisy.values[1][1] * scale)
    sigma = noisy.sigma * scale
    if rows <= SIGNIFICANT * sigma:
        return None
    curator = session.unnamed(table.name, column.name, tuple(map(str, codec.values)), most)
    left = price.share(1 - _LENGTHS_SHARE)
    noise = curator.sigma([RankSums((1,))], left) * scale
    ends = rank_blocks(rows, noise)
    sums = curator.measure("ranks", [RankSums(tuple(ends.tolist()))], left)
    numbers, of_rows = value_blocks(sums.values[0] * scale, ends, noise, rows)
    whole = column.type is ColumnType.INTEGER
    return MadeUp(numbers, of_rows, _by_length(by_length[: len(spread)], sigma, spread), _longest(column), whole)


def _counted(session: PrivateSession, table: Table, size: RowCount | None, price: Price) -> tuple[int, float]:
    """T with the least expected error, and what answers are to be multiplied with to stand for all rows."""
    if size is None:
        return 1, 1.0
    counted = np.array([max(1.0, float(size.counted(most).sum())) for most in size.classes])
    alone = session.view(ViewSpec(table.name, {}), "values").sigma([Marginal(())], price)
    lost = 1 - counted / max(size.rows, float(counted.max()))
    best = int(np.argmin(_OTHERWISE * lost + ABSOLUTE * _SHAPE_NUMBERS * alone * np.array(size.classes) / counted))
    return size.classes[best], float(max(size.rows, counted[best]) / counted[best])


def _longest(column: Column) -> int:
    """Most characters of a value; of a whole number, most digits that any of them may have."""
    return len(str(1 << column.bits - 1)) - 1 if column.type is ColumnType.INTEGER else length_limit(column)


def _lengths(column: Column, table: str) -> tuple[Discretizer, Array]:
    """A coder of the lengths of a column's values, and how its first codes are shared out over lengths from 0 on.

    Returns:
        The coder, and shares of shape (codes, lengths).
    """
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


def _by_length(rows: Array, sigma: float, spread: Array) -> tuple[float, ...]:
    """Rows by the length of their value, at least one length: cells of several lengths are shared out evenly."""
    visible = np.where(rows > SIGNIFICANT * sigma, rows, 0.0)
    visible = visible if visible.any() else np.maximum(rows, 0.0)
    result = visible @ spread
    return tuple((result / max(result.sum(), 1e-9)).round(6).tolist())
