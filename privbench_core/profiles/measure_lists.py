"""Learn lists of values, for a part of a profile's price.

Values above a stability threshold are named. How many others there are, how often each occurs and how long they are is
measured, and such values are made up. Whole numbers that are codes are listed in their digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.grid import Grid, qualified
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.made_up import LIKE_FORMS, MadeUp
from privbench_core.columns.opaque import FormCodec, OpaqueCodec, length_limit
from privbench_core.estimators.segmentation import ABSOLUTE, SIGNIFICANT
from privbench_core.guards import MAX_CELLS, NEGLIGIBLE, RANK_BLOCKS
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Own
from privbench_core.privacy.queries import Marginal, RankSums
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Scalar
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import RowCount


@dataclass(frozen=True)
class LearnedLists:
    """Learned lists of values.

    Attributes:
        codecs: Column -> codec: values that may be named, and made-up ones for the others.
        counted: Column -> rows of each cell and their variance, infinite where they are not known; only of tables
            whose units have one row.
        assumed: Column -> what had to be assumed, where noise hid all of its values.
        rest: What is left of the price.
    """

    codecs: dict[str, CategoricalCodec]
    counted: dict[str, tuple[Array, Array]]
    assumed: dict[str, str]
    rest: Price


def learn_lists(
    session: PrivateSession, table: Table, columns: Sequence[Column], size: RowCount | None, price: Price
) -> LearnedLists:
    """Learn the lists of values of some columns for at most ``price``.

    What stands out is named first, where that is much: of units with several rows, or of many units. Then it is found
    out how often the most common other value of each column occurs, whatever it is. Lists that seem to be complete, or
    in which hardly a value repeats, leave their part of the last look to the others.

    Formal guarantee: satisfies δ-approximate √(2ρ)-GDP at the price given, for adding or removing one privacy unit;
    ``docs/privacy.md``, section 5, mechanisms 1, 6, 7 and 9.

    Args:
        session: Open for the step.
        table: The table.
        columns: Categories, or whole numbers that are codes; at least one.
        size: Released, of an owned table.
        price: Of everything here, with a δ.

    Raises:
        UnsupportedBudgetError: The price has no δ.
    """
    unnamed, first, _ = TUNING.list_shares
    of_unnamed, naming = price.share(unnamed / len(columns)), price.share(1 - unnamed)
    named = {column.name: _Named(dict.fromkeys(column.public_names, (0.0, math.inf))) for column in columns}
    hidden = {column: values for column, values in named.items() if not values.counts}
    early = naming.share(first).with_delta(price.delta / 2)
    check, rest = naming.share(TUNING.first_look), naming.share(1 - TUNING.first_look)
    likely = size is not None
    if size is None and len(columns) > 1:
        counting = naming.share(TUNING.number_share)
        rows = session.view(ViewSpec(table.name, {}), "values").measure("rows", [Marginal(())], counting)
        rest = naming.share(1 - TUNING.first_look - TUNING.number_share)
        least = session.threshold(table.name, columns[0].name, _of_each(early, len(columns)))
        likely = least < TUNING.least_share * float(rows.values[0])
    likely = likely and bool(hidden)
    if likely:
        named |= _look(session, table, hidden, early)
        rest = Price(rest.measure, rest.amount - early.amount)
    last = rest.with_delta(price.delta / (1 + likely))
    wanted = _wanted(session, table, named, size, last, check)
    if wanted:
        named |= _look(session, table, wanted, last)
        rest = rest.share(0.0)
    codecs: dict[str, CategoricalCodec] = {}
    counted: dict[str, tuple[Array, Array]] = {}
    assumed: dict[str, str] = {}
    for column in columns:
        found = named[column.name]
        counts, whole, bound = found.counts, column.type is ColumnType.INTEGER, 1 << column.bits - 1
        if whole:  # what does not fit into the column's SQL type could not be published
            counts = {value: count for value, count in counts.items() if -bound <= int(value) < bound}
        values: tuple[Scalar, ...] = tuple(map(int, counts)) if whole else tuple(counts)
        codec = CategoricalCodec(qualified(column, table.name), column.type, values, column.nullable)
        most_rows = _most_rows(found.least, size)
        made, left = _measure_unnamed(session, table, column, codec, size, most_rows, of_unnamed)
        rest += left
        if made.hidden and not values:
            made = replace(made, hidden=False)
            assumed[column.name] = "noise hid all values, so one was made up; declare a domain"
        codecs[column.name] = codec = replace(codec, made=made)
        if size is None and values:
            others = [(0.0, np.inf)] * (codec.size - len(values))
            rows_of, variances = np.array([*counts.values(), *others]).T
            counted[column.name] = rows_of, variances
    return LearnedLists(codecs, counted, assumed, rest)


@dataclass(frozen=True)
class _Named:
    """Values of a column that have been named.

    Attributes:
        counts: Value -> weight of the units that have it, and its variance; the most common ones of each look first.
        least: Weight from which on a value would have been named; infinite before the first look.
    """

    counts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    least: float = math.inf


def _of_each(price: Price, columns: int) -> Price:
    return price.share(1 / columns).with_delta(price.delta / columns)


def _look(session: PrivateSession, table: Table, named: Mapping[str, _Named], price: Price) -> dict[str, _Named]:
    """Return what is named after another look at some columns, for ``price`` in all."""
    result, each = {}, _of_each(price, len(named))
    for column, before in named.items():
        found = session.discover(table.name, column, each, tuple(before.counts))
        ordered = sorted(found.counts, key=lambda value: (-found.counts[value], value))
        more = {value: (found.counts[value], found.sigma**2) for value in ordered}
        result[column] = _Named({**before.counts, **more}, session.threshold(table.name, column, each))
    return result


def _wanted(
    session: PrivateSession,
    table: Table,
    named: Mapping[str, _Named],
    size: RowCount | None,
    last: Price,
    check: Price,
) -> dict[str, _Named]:
    """Return the columns that the last look is for: as many as may have a value that it names if it is for them.

    A unit of s rows has a value that the share p of the rows has with probability 1 - (1 - p)^s, if rows are
    independent, and a row with another one has another value at most.
    """
    tops, each = {}, check.share(1 / len(named))
    for column, before in named.items():
        curator = session.unnamed(table.name, column, tuple(before.counts), 1)
        noise = curator.sigma([RankSums((1,))], each)
        top = max(float(curator.measure("most common", [RankSums((1,))], each).values[0][0]) + noise, 0.0)
        if size is not None:
            units, of_unit = _units(size)
            share = min(top / units, 1.0)
            top = units * (1 - (1 - share) ** of_unit) / math.sqrt(1 + (of_unit - 1) * (1 - share))
        tops[column] = top
    ranked = sorted(tops, key=lambda column: -tops[column])
    least = [session.threshold(table.name, ranked[0], _of_each(last, 1 + place)) for place in range(len(ranked))]
    number = max((1 + place for place, column in enumerate(ranked) if tops[column] > least[place]), default=0)
    return {column: named[column] for column in ranked[:number]}


def _most_rows(least: float, size: RowCount | None) -> float:
    """Return how many rows a value has that weighs ``least``, see `_repeating`."""
    if size is None:
        return least
    units, of_unit = _units(size)
    return float(size.rows * (1 - (1 - min(least * math.sqrt(of_unit) / units, 1.0)) ** (1 / of_unit)))


def _units(size: RowCount) -> tuple[float, float]:
    """Return the number of units that have rows, and how many these have on average."""
    units = max(float(size.units_of.sum()), size.rows / size.classes[-1], 1.0)
    return units, max(size.rows / units, 1.0)


def _measure_unnamed(
    session: PrivateSession,
    table: Table,
    column: Column,
    codec: CategoricalCodec,
    size: RowCount | None,
    most_rows: float,
    price: Price,
) -> tuple[MadeUp, Price]:
    """Measure what the values that were not named are like, and return it with what is left of the price.

    That is most of it where their rows are below the noise. A value with more than ``most_rows`` would have a name.
    """
    lengths, spread = _lengths(column, table.name)
    code_of = np.zeros(codec.size, int)
    code_of[len(codec.values)] = 1
    other = Discretizer(codec, Binning(tuple(code_of.tolist()), tuple((1 - code_of / 2).tolist())))
    for_lengths, left = price.share(TUNING.list_shares[2]), price.share(1 - TUNING.list_shares[2])
    most, scale = _truncation(session, table, size, left)
    features = {"unnamed": (Own(column.name), other), "length": (Own(column.name), lengths)}
    asked = [Marginal(("unnamed",)), Marginal(("unnamed", "length"))]
    longest, whole = _longest(column), column.type is ColumnType.INTEGER
    nothing_named = not (whole or codec.values)  # then only their form says whether texts are numbers
    if nothing_named:
        features["form"] = Own(column.name), Discretizer(FormCodec(codec.where, codec.nullable))
        asked.append(Marginal(("form",)))
    view = session.view(ViewSpec(table.name, {**features}, (most,)), f"values of {column.name}")
    noisy = view.measure("lengths", asked, for_lengths)
    rows, sigma = float(noisy.values[0][1]) * scale, noisy.sigma * scale
    named = [min(len(str(value).lstrip("-")), longest) for value in codec.values] or range(1, longest + 1)
    of_named = np.bincount(named, minlength=longest + 1).astype(float)
    if rows <= SIGNIFICANT * sigma:
        return MadeUp((1,), (1.0,), tuple(of_named.tolist()), longest, whole, hidden=True), left
    curator = session.unnamed(table.name, column.name, tuple(map(str, codec.values)), most)
    noise = curator.sigma([RankSums((1,))], left) * scale
    ends = rank_blocks(rows, noise)
    sums = curator.measure("ranks", [RankSums(tuple(ends.tolist()))], left)
    numbers, of_rows = value_blocks(sums.values[0] * scale, ends, noise, rows)
    numbers = tuple(max(number, math.ceil(held / most_rows)) for number, held in zip(numbers, of_rows, strict=True))
    # Where noise hides all lengths, they are those of named values; cells of several lengths are shared out evenly.
    by_length = noisy.values[1][1][: len(spread)] * scale
    visible = np.where(by_length > SIGNIFICANT * sigma, by_length, 0.0) @ spread
    hidden = of_named if codec.values else np.maximum(by_length, 0.0) @ spread
    shared = visible if visible.any() else hidden
    likely = tuple((shared / max(shared.sum(), NEGLIGIBLE)).round(6).tolist())
    like = LIKE_FORMS[int(np.argmax(noisy.values[2][: len(LIKE_FORMS)]))] if nothing_named else ()
    return MadeUp(numbers, of_rows, likely, longest, whole, like=like), left.share(0.0)


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
    return Discretizer(codec, Binning.even(code_of, longest)), np.eye(longest + 1)[1:]


def rank_blocks(rows: float, sigma: float) -> NDArray[np.int64]:
    """Return one past the last rank of each block: growing blocks, as many as noise can distinguish.

    Noise of K blocks adds up to σ√K, so K is at most (rows / 4σ)².

    Args:
        rows: That have a value which was not named; there are at most so many such values.
        sigma: Standard deviation of the noise on the rows of a block.
    """
    most = min(max(1, math.ceil(rows)), MAX_CELLS)
    # A block that holds 4 standard deviations of noise on average has a clear sum.
    blocks = int(np.clip((rows / (4.0 * max(sigma, NEGLIGIBLE))) ** 2, *RANK_BLOCKS))
    return np.unique(np.geomspace(1, most, blocks).round().astype(np.int64))


def value_blocks(
    noisy: Array, ends: NDArray[np.int64], sigma: float, rows: float
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the number of values in each block of ranks, and their rows.

    Means of blocks do not increase (isotonic regression), and sums add up to ``rows``. A value has at least one row, so
    a block holds at most as many values as rows: in one that is not full, each has one. Where noise explains what sets
    them off from values that never repeat, they do not.

    >>> numbers, shared = value_blocks(np.array([50.0, 30.0, 20.0, 0.0]), np.array([1, 3, 33, 100]), 0.1, 100.0)
    >>> numbers, [round(each) for each in shared]
    ((1, 2, 20), [50, 30, 20])
    """
    widths = np.diff(ends, prepend=0).astype(np.float64)
    alone, blocks = np.diff(np.minimum(ends, max(rows, 1.0)), prepend=0.0), len(ends)
    explained = sigma**2 * (blocks + SIGNIFICANT * math.sqrt(2 * blocks))
    if blocks > RANK_BLOCKS[0] and ((noisy - alone) ** 2).sum() <= explained:
        return (round(float(alone.sum())),), (rows,)
    means = np.maximum(scipy.optimize.isotonic_regression(noisy / widths, weights=widths, increasing=False).x, 0.0)
    sums = means * widths
    # What noise leaves beyond the last value is spread thinly: less than half of a row per rank for most of its ranks.
    sums = np.where(np.cumsum(sums[::-1])[::-1] > SIGNIFICANT * sigma, sums, 0.0)
    sums = sums * (rows / sums.sum()) if sums.sum() > 0 else np.append(rows, np.zeros(len(widths) - 1))
    numbers = np.minimum(widths, np.rint(sums))
    kept = numbers > 0
    if not kept.any():
        return (1,), (1.0,)
    return tuple(numbers[kept].astype(int).tolist()), tuple(sums[kept].tolist())
