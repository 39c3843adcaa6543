"""Learn the domains that a spec leaves out, for a part of a profile's price.

A range is found on a public grid (signed powers of two, or calendar years), and its cells follow the rows on it: about
as many rows in each. A step is the coarsest unit of which all values seem to be multiples. Lists are learned in
`measure.learned_lists`. Where noise hides a range, a plausible one is assumed, and said to be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import OrderedCodec, StepCodec, equal_width_codec, log_scale_codec
from privbench_core.columns.plausible import plausible_bounds
from privbench_core.columns.registry import codec_for
from privbench_core.estimate.segmentation import segment_and_smooth
from privbench_core.measure.learned_lists import learn_list
from privbench_core.measure.scores import highest_noise
from privbench_core.models.row_count import RowCount
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Feature, Own
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, Learn, Scalar
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
# Chosen by hand: shares of what learning a column costs.
_RANGE = 0.43  # of what counting a column's values costs: 0.3 of all, where all columns have ranges to learn
# Likewise for a list. A value needs a count of about 7.1σ to be named, where counting one leaves an error of 0.8σ: were
# a value lost three times rarer than it is miscounted, errors balance at (7.1 / 0.8 / 3)^(2/3). On Adult, baseball
# players, sakila and chinook 1.5 to 2.5 were alike, and 0.43 was worse.
_LIST = 2.2
_STEP_CLEAR = 1.65  # standard deviations: a unit is then wrong for about one column in twenty
_STEP_SHARE = 0.2  # for the step, where a type has steps; the rest finds the range
_RARER = 100  # times less often than a spike does noise alone make a stretch of the grid significant
# Cells of the grid that are looked at together: what a column counts spans a few powers of two, but its dates decades.
_OCTAVES, _YEARS = (1, 2, 4, 8), (1, 2, 4, 8, 16, 32, 64, 128)
_LEAST_PARTS = 4  # of a cell of the grid that holds rows: its ends are found to a quarter of an octave
_UNKNOWN_CODES = 32  # that a column is taken to have before its domain is learned


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

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise, δ-approximate where a list of values is
    learned, at the price given, for adding or removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1,
    4, 6, 7 and 9.

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
    weights = {c.name: _LIST if c.learns_list else _RANGE for c in table.modelled if isinstance(c.domain, Learn)}
    return {name: weight / (len(table.attributes) + sum(weights.values())) for name, weight in weights.items()}


def expected_codes(table: Table) -> list[int]:
    """Return the number of codes of each attribute that has several, before anything is learned."""
    declared = [c for c in table.modelled if not isinstance(c.domain, Learn)]
    sizes = [codec_for(column, table=table.name).size for column in declared]
    return [size for size in sizes if size > 1] + [_UNKNOWN_CODES] * (len(table.attributes) - len(declared))


def lists_to_learn(table: Table) -> list[Column]:
    """Columns whose list of values is to be learned, which takes a δ."""
    return [c for c in table.modelled if c.learns_list]


def _learn_range(session: PrivateSession, table: Table, column: Column, price: Price) -> tuple[Codec, str]:
    """A codec for an ordered column, and what had to be assumed."""
    grid, classes = log_scale_codec(column, table=table.name), StepCodec.of(column, table=table.name)
    features: dict[str, tuple[Feature, Discretizer]] = {column.name: (Own(column.name), Discretizer(grid))}
    view = session.view(ViewSpec(table.name, features), f"range of {column.name}")
    noisy = view.measure("grid", [Marginal((column.name,))], price.share(1 - _STEP_SHARE) if classes else price)
    counts = noisy.values[0][: grid.ordered]
    low, high = plausible_bounds(column)
    windows = _YEARS if grid.grid.logical.calendar else _OCTAVES
    seen = _seen(counts, noisy.sigma, price, windows)
    seen = _likely_seen(counts, seen, noisy.sigma, price, windows, _cells_between(grid, low, high))
    step = 1
    if classes is not None:
        features = {column.name: (Own(column.name), Discretizer(classes))}
        of_steps = session.view(ViewSpec(table.name, features), f"step of {column.name}")
        found = of_steps.measure("multiples", [Marginal((column.name,))], price.share(_STEP_SHARE))
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
    tests = _RARER * len(counts) * len(windows)
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
    bars = np.minimum(bars, np.maximum(rows / 3, _STEP_CLEAR * sigmas))
    clear = _STEP_CLEAR * sigmas <= rows / 3
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
        wanted = max(_LEAST_PARTS, round(TUNING.cells * float(share[cell]))) if rows[cell] > 0 else 1
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
