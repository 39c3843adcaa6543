"""Learn the domains that a spec leaves out, for a part of a profile's price.

A range is found on a public grid (signed powers of two, or calendar years), and its cells follow the rows on it: about
as many rows in each. A step is the coarsest unit of which all values seem to be multiples. Where noise hides a range, a
plausible one is assumed, and said to be.

Of a list, values above a stability threshold are named. How many others there are, how often each occurs and how long
they are is measured, and such values are made up. Whole numbers that are codes are listed in their digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.grid import Grid, qualified
from privbench_core.columns.intervals import OrderedCodec, StepCodec, equal_width_codec, log_scale_codec
from privbench_core.columns.made_up import MadeUp
from privbench_core.columns.opaque import OpaqueCodec, length_limit
from privbench_core.columns.plausible import plausible_bounds
from privbench_core.columns.registry import codec_for
from privbench_core.estimators.segmentation import ABSOLUTE, SIGNIFICANT, segment_and_smooth
from privbench_core.guards import CELLS_PER_OCTAVE, MAX_OCTAVES, MAX_YEARS, NEGLIGIBLE, RARER, UNKNOWN_CODES
from privbench_core.marginals.measure_one_way import view_of_cells
from privbench_core.marginals.measure_scores import highest_noise
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Feature, Own
from privbench_core.privacy.queries import Marginal, RankSums
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.made_up import rank_blocks, value_blocks
from privbench_core.schema.columns import Column, ColumnType, Learn, Scalar
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import RowCount, powers_up_to

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Learned:
    """The codecs of a table's attributes, declared or learned.

    Attributes:
        codecs: Column -> codec.
        guessed: Column -> what is assumed instead of what noise hid.
        rest: What is left of the price.
    """

    codecs: dict[str, Codec]
    guessed: dict[str, str]
    rest: Price


def learn_domains(session: PrivateSession, table: Table, size: RowCount | None, price: Price, delta: float) -> Learned:
    """Learn the domain of every attribute that declares none.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4, 6, 7 and 9.

    Args:
        session: Open for the step.
        table: The table.
        size: Released, of an owned table.
        price: Of this and of all that is measured of the table afterwards.
        delta: For thresholds, of all lists together.

    Raises:
        UnsupportedBudgetError: A list of values is to be learned without a δ.
    """
    wanted = [column for column in table.modelled if isinstance(column.domain, Learn)]
    codecs: dict[str, Codec] = {}
    guessed: dict[str, str] = {}
    shares = learning_shares(table)
    for column in wanted:
        each = price.share(shares[column.name])
        if column.learns_list:
            part = delta / len(lists_to_learn(table))
            codecs[column.name], why = learn_list(session, table, column, size, each.with_delta(part))
        else:
            codecs[column.name], why = _learn_range(session, table, column, each)
        guessed |= {column.name: why} if why else {}
    for column in table.modelled:
        if column.name not in codecs:
            codecs[column.name] = codec_for(column, table=table.name)
    in_order = {column.name: codecs[column.name] for column in table.modelled}
    return Learned(in_order, guessed, price.share(1 - sum(shares.values())) if wanted else price)


def learning_shares(table: Table) -> dict[str, float]:
    """Return the share of a profile's price that each domain to learn costs, by column."""
    of_range, of_list = TUNING.learning_weights
    weights = {c.name: of_list if c.learns_list else of_range for c in table.modelled if isinstance(c.domain, Learn)}
    return {name: weight / (len(table.attributes) + sum(weights.values())) for name, weight in weights.items()}


def expected_codes(table: Table) -> list[int]:
    """Return the number of codes of each attribute that has several, before anything is learned."""
    declared = [c for c in table.modelled if not isinstance(c.domain, Learn)]
    sizes = [codec_for(column, table=table.name).size for column in declared]
    return [size for size in sizes if size > 1] + [UNKNOWN_CODES] * (len(table.attributes) - len(declared))


def lists_to_learn(table: Table) -> list[Column]:
    """Columns whose list of values is to be learned, which takes a δ."""
    return [c for c in table.modelled if c.learns_list]


def _learn_range(session: PrivateSession, table: Table, column: Column, price: Price) -> tuple[Codec, str]:
    """A codec for an ordered column, and what had to be assumed."""
    grid, classes = log_scale_codec(column, table=table.name), StepCodec.of(column, table=table.name)
    view = view_of_cells(session, table.name, {column.name: grid}, 1, f"range of {column.name}")
    noisy = view.measure("grid", [Marginal((column.name,))], price.share(1 - TUNING.detail_share) if classes else price)
    counts = noisy.values[0][: grid.ordered]
    low, high = plausible_bounds(column)
    windows = powers_up_to(MAX_YEARS if grid.grid.logical.calendar else MAX_OCTAVES)
    seen = _seen(counts, noisy.sigma, price, windows)
    seen = _likely_seen(counts, seen, noisy.sigma, price, windows, _cells_between(grid, low, high))
    step = 1
    if classes is not None:
        of_steps = view_of_cells(session, table.name, {column.name: classes}, 1, f"step of {column.name}")
        found = of_steps.measure("multiples", [Marginal((column.name,))], price.share(TUNING.detail_share))
        rows = float(np.where(seen, counts, 0.0).sum())
        step = _step(found.values[0][: len(classes.units)], found.sigma, classes, rows, price)
    if seen.any():
        return learned_codec(grid, _rows_seen(counts, seen, noisy.sigma), step), ""
    assumed = equal_width_codec(column, low, high, table=table.name)
    open_ended = _in_steps(replace(assumed, open_ended=True), step)
    what = "its range" if column.relative is None else f"the range of its difference from {column.relative.to}"
    return open_ended, f"noise hid {what}, so {low} to {high} is assumed, by its name and type; declare a domain"


def _seen(counts: Array, sigma: float, price: Price, windows: Sequence[int]) -> NDArray[np.bool_]:
    """Which cells of the grid hold rows: stretches of several cells are looked at as well, for thin tails.

    A stretch counts by the cells that were not seen before. Of these it keeps the run that is likeliest to be all that
    holds rows, if such cells hold as many as the stretch on average: each of them is then as likely to hold rows as
    not where its count is half of that.
    """
    seen = np.zeros(len(counts), bool)
    tests = RARER * len(counts) * len(windows)
    for width in (width for width in windows if width <= len(counts)):
        unseen = np.where(seen, 0.0, counts)
        summed = np.append(0.0, np.cumsum(unseen))
        sums = summed[width:] - summed[:-width]
        for first in np.flatnonzero(sums > highest_noise(price.measure, sigma * math.sqrt(width), tests)).tolist():
            half = np.where(seen[first : first + width], 0.0, sums[first] / width / 2)
            start, end = _largest_run(unseen[first : first + width] - half)
            seen[first + start : first + end] = True
    return seen


def _likely_seen(
    counts: Array, seen: NDArray[np.bool_], sigma: float, price: Price, windows: Sequence[int], plausible: range
) -> NDArray[np.bool_]:
    """Which cells hold rows, with those of a few stretches that are likely to, whatever noise says of others.

    These are the plausible range by type and name, which would be assumed if noise hid everything, and what lies next
    to all that was seen: tails of a distribution. They are so few that far smaller sums tell them from noise than tell
    any stretch of the grid. Nothing is measured for it.
    """
    seen = seen.copy()
    bar = highest_noise(price.measure, sigma, 1)
    while True:
        stretches = [plausible]
        if (places := np.flatnonzero(seen)).size:
            first, end = int(places[0]), int(places[-1]) + 1
            stretches += [range(max(0, first - width), first) for width in windows]
            stretches += [range(end, min(len(counts), end + width)) for width in windows]
        for stretch in stretches:
            inside = slice(stretch.start, stretch.stop)
            new = ~seen[inside]
            values = np.where(new, counts[inside], 0.0)
            if values.sum() > bar * math.sqrt(max(1, new.sum())):
                start, stop = _largest_run(values - np.where(new, values.sum() / new.sum() / 2, 0.0))
                seen[stretch.start + start : stretch.start + stop] = True
                break
        else:
            return seen


def _cells_between(grid: OrderedCodec, low: Scalar, high: Scalar) -> range:
    """Return the cells of a grid that hold values from ``low`` to ``high``."""
    ends = [grid.grid.number(value) for value in (low, high)]
    first, last = (int(np.searchsorted(grid.starts, end, side="right")) - 1 for end in ends)
    return range(max(0, first), max(0, last) + 1)


def _largest_run(values: Array) -> tuple[int, int]:
    """The run of neighbours with the largest sum: its first place and the one after its last.

    >>> _largest_run(np.array([-1.0, 3.0, -1.0, 2.0, -5.0, 1.0]))
    (1, 4)
    """
    sums = np.append(0.0, np.cumsum(values))
    before = np.minimum.accumulate(sums)[:-1]
    end = int(np.argmax(sums[1:] - before)) + 1
    return int(np.argmin(sums[:end])), end


def _rows_seen(counts: Array, seen: NDArray[np.bool_], sigma: float) -> Array:
    """Rows of each cell of the grid: 0 in those that were not seen, smoothed where noise hides single ones."""
    rows = np.zeros(len(counts))
    places = np.flatnonzero(seen)
    for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
        rows[run] = segment_and_smooth(counts[run], sigma, np.ones(len(run)))[1]
    return rows


def _step(counts: Array, sigma: float, classes: StepCodec, rows: float, price: Price) -> int:
    """The coarsest unit below which noise explains all counts, as far as noise can tell; else the usual one.

    Rows that are no multiples of a unit are most rows, if there are any: a second is a whole minute in one of sixty.
    So if noise is well below a third of all rows, such rows show; where it is not, nothing coarser than
    `StepCodec.usual` is taken for learned. They are all of one unit, as a rule, so they may show there and not in sums.

    Args:
        counts: Rows by the coarsest unit that divides them, shape (units,).
        sigma: Of their noise.
        classes: The units.
        rows: About how many rows there are, by another release; 0 if noise hides them.
        price: Of the release.
    """
    finer = np.append(0.0, np.cumsum(counts)[:-1])
    sigmas = sigma * np.sqrt(np.arange(len(counts)))
    bars = np.array([highest_noise(price.measure, deviation, len(counts)) for deviation in sigmas])
    usual = float(scipy.stats.norm.isf(TUNING.clear)) * sigmas  # a unit is wrong for about one column in twenty
    bars = np.minimum(bars, np.maximum(rows / 3, usual))
    clear = usual <= rows / 3
    coarser = np.arange(len(counts)) > classes.usual
    alone = np.append(False, counts[:-1] > highest_noise(price.measure, sigma, len(counts)))
    possible = (finer <= bars) & ~alone & (clear | ~coarser)
    return classes.units[int(np.flatnonzero(np.cumprod(possible))[-1])]


def learned_codec(grid: OrderedCodec, rows: Array, step: int = 1) -> OrderedCodec:
    """Return cells for the part of a grid that holds rows, with about as many rows in each.

    Zero is a cell of its own. Values beyond the ends are taken to lie in the last cells: nothing piles up at a bound.

    Args:
        grid: The public grid.
        rows: Of each of its interval cells, 0 where nothing was seen; shape (ordered,), not all 0.
        step: Grid points from one value to the next.
    """
    seen = np.flatnonzero(rows > 0)
    first, last = int(seen[0]), int(seen[-1])
    share, end = rows / rows.sum(), grid.ends[last].item()
    cuts: list[int | float] = []
    for cell in range(first, last + 1):
        low, high = grid.starts[cell].item(), grid.ends[cell].item()
        after_zero = grid.grid.continuous and low > 0 >= grid.starts[cell - 1]
        if rows[cell] <= 0 and (after_zero or (rows[cell - 1] <= 0 and low != 0)):
            continue  # a gap is one cell
        if grid.grid.continuous and low <= 0 <= high:
            cuts += [0.0, float(np.nextafter(0.0, 1.0))] if cell < last else [0.0]
            end = 0.0 if cell == last else end
            continue
        wanted = max(CELLS_PER_OCTAVE, round(TUNING.cells * float(share[cell]))) if rows[cell] > 0 else 1
        cuts += grid.starts_of_parts(cell, int(min(wanted, grid.values_in[cell])))
    return _in_steps(OrderedCodec(grid.grid, grid.nullable, tuple(sorted(set(cuts))), end, open_ended=True), step)


def _in_steps(codec: OrderedCodec, step: int) -> OrderedCodec:
    """Return a codec whose cells begin at the next whole step."""
    if step == 1:
        return codec
    starts = sorted({-(-int(start) // step) for start in codec.cuts})
    final = max(int(codec.last) // step, starts[0])
    kept = tuple(start for start in starts if start <= final)
    return replace(codec, grid=replace(codec.grid, step=step), cuts=kept, last=final)


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
    """What the values that were not named are like, None if noise hides all rows that have one."""
    lengths, spread = _lengths(column, table.name)
    code_of = np.zeros(codec.size, int)
    code_of[len(codec.values)] = 1
    other = Discretizer(codec, Binning(tuple(code_of.tolist()), tuple((1 - code_of / 2).tolist())))
    features: dict[str, tuple[Feature, Discretizer]] = {
        "unnamed": (Own(column.name), other),
        "length": (Own(column.name), lengths),
    }
    of_lengths = TUNING.list_shares[2]
    for_lengths, left = price.share(of_lengths), price.share(1 - of_lengths)
    most, scale = _counted(session, table, size, left)
    view = session.view(ViewSpec(table.name, features, (most,)), f"values of {column.name}")
    asked = [Marginal(("unnamed",)), Marginal(("unnamed", "length"))]
    noisy = view.measure("lengths", asked, for_lengths)
    rows, by_length = (float(noisy.values[0][1]) * scale, noisy.values[1][1] * scale)
    sigma = noisy.sigma * scale
    if rows <= SIGNIFICANT * sigma:
        return None
    curator = session.unnamed(table.name, column.name, tuple(map(str, codec.values)), most)
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
    best = int(np.argmin(lost + ABSOLUTE * TUNING.list_cells * alone * np.array(size.classes) / counted))
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
    return tuple((result / max(result.sum(), NEGLIGIBLE)).round(6).tolist())
