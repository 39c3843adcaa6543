"""Learn the domains that a spec leaves out, for a part of a profile's price: ranges here, lists in `measure_lists`.

A range is found on a public grid (signed powers of two, or calendar years), and its cells follow the rows on it: about
as many rows in each. A step is the unit of which all values seem to be multiples. Where no range is significant, a
plausible one is assumed, and said to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from privbench_core.arrays import Array, Mask
from privbench_core.columns.codec import Codec
from privbench_core.columns.grid import sentinels_of
from privbench_core.columns.intervals import OrderedCodec, StepCodec, equal_width_codec, log_scale_codec
from privbench_core.columns.made_up import plausible_bounds
from privbench_core.columns.registry import codec_for
from privbench_core.estimators.segmentation import segment_and_smooth
from privbench_core.guards import (
    CELLS_PER_OCTAVE,
    EXACT_FLOAT,
    EXPECTED_LEAVES,
    GRID_STEPS,
    TINY,
    TOLERANCE,
    WRITTEN_DATES,
)
from privbench_core.marginals.measure_one_way import view_of_cells
from privbench_core.marginals.measure_scores import highest_noise
from privbench_core.privacy.budget import Measure, Price, zero
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.profiles.measure_documents import learn_shapes
from privbench_core.profiles.measure_lists import learn_lists
from privbench_core.schema.columns import Column, Learn, Values
from privbench_core.schema.documents import WHOLE, Leaf, documents_to_learn
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import RowCount, powers_up_to


@dataclass(frozen=True)
class Learned:
    """The codecs of a table's attributes, declared or learned.

    Attributes:
        codecs: Column -> codec.
        counted: Column -> rows of its cells that are known already, and their variances.
        guessed: Column -> what is assumed instead of what noise hid.
        rest: What is left of the price.
    """

    codecs: dict[str, Codec]
    counted: Mapping[str, tuple[Array, Array]]
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
    shares, listing = learning_shares(table), lists_to_learn(table)
    rest = price.share(1 - sum(shares.values())) if shares else price
    codecs: dict[str, dict[str, Codec]] = {column.name: {} for column in table.modelled}
    counted: Mapping[str, tuple[Array, Array]] = {}
    guessed: dict[str, str] = {}
    lists = [column for column in listing if not column.type.logical.structured]
    if lists:
        part = price.share(sum(shares[column.name] for column in lists))
        listed = learn_lists(session, table, lists, size, part.with_delta(delta * len(lists) / len(listing)))
        codecs |= {name: {name: codec} for name, codec in listed.codecs.items()}
        counted, rest = listed.counted, rest + listed.rest
        guessed |= listed.assumed
    for column in table.modelled:
        name = column.name
        if name not in shares:
            codecs[name][name] = codec_for(column, table=table.name)
        elif column.type.logical.structured:
            part = price.share(shares[name]).with_delta(delta / len(listing))
            codecs[name], whys, left = _learn_document(session, table, column, size, part)
            guessed |= whys
            rest += left
        elif not column.learns_list:
            codecs[name][name], why = _learn_range(session, table, column, price.share(shares[name]))
            guessed |= {name: why} if why else {}
    return Learned({name: each for found in codecs.values() for name, each in found.items()}, counted, guessed, rest)


def _learn_document(
    session: PrivateSession, table: Table, document: Column, size: RowCount | None, price: Price
) -> tuple[dict[str, Codec], dict[str, str], Price]:
    """Return the codecs of the shapes and the leaves of a column of documents; of opaque ones if noise hides them.

    What had to be assumed comes with them, and what is left of the price. Shapes and whole documents are lists like
    others, and have their part of it; the leaves of the shapes share the rest.
    """
    _, of_list = TUNING.learning_weights
    first = 2 * of_list / _weight(document)
    shapes = learn_shapes(session, table, document, price, first)
    if not (shapes.codecs or shapes.leaves):
        why = "noise hid the structure of documents, so"
        if document.is_array:
            whole = Leaf(document, WHOLE).column
            empty = codec_for(replace(whole, domain=Values(("[]",))), table=table.name)
            return {whole.name: empty}, {document.name: f"{why} they are empty arrays"}, shapes.rest.share(1.0)
        opaque = codec_for(replace(document, domain=None), table=table.name)
        return {document.name: opaque}, {document.name: f"{why} they are random"}, shapes.rest.share(1.0)
    families = dict.fromkeys(leaf.family.column for leaf in shapes.leaves)
    weights = {column: _weight(column) for column in families if column.domain is not None}
    of_all = sum(weights.values())
    found: dict[str, Codec] = {c.name: codec_for(c, table=table.name) for c in families if c.domain is None}
    guessed, rest = dict[str, str](), zero(price.measure)
    lists = [column for column in weights if column.learns_list]
    if lists:
        part = shapes.rest.share(sum(weights[column] for column in lists) / of_all)
        listed = learn_lists(session, table, lists, size, part.with_delta(shapes.rest.delta))
        found |= listed.codecs
        guessed |= listed.assumed
        rest = listed.rest
    for column, weight in weights.items():
        if not column.learns_list:
            found[column.name], why = _learn_range(session, table, column, shapes.rest.share(weight / of_all))
            guessed |= {column.name: why} if why else {}
    of_leaves = {leaf.name: found[leaf.family.name] for leaf in shapes.leaves}
    return {**shapes.codecs, **of_leaves}, guessed, rest


def _weight(column: Column) -> float:
    """Return what learning a domain costs, see `learning_weights`."""
    of_range, of_list = TUNING.learning_weights
    if column.type.logical.structured:
        return 2 * of_list + EXPECTED_LEAVES * (of_range + of_list) / 2
    return of_list if column.learns_list else of_range


def learning_shares(table: Table) -> dict[str, float]:
    """Return the share of a profile's price that each domain to learn costs, by column."""
    weights = {c.name: _weight(c) for c in table.modelled if isinstance(c.domain, Learn)}
    leaves = EXPECTED_LEAVES * len(documents_to_learn(table.modelled))
    return {name: weight / (len(table.attributes) + leaves + sum(weights.values())) for name, weight in weights.items()}


def expected_codes(table: Table) -> list[int]:
    """Return the number of codes of each attribute that has several, before anything is learned."""
    declared = [c for c in table.modelled if not isinstance(c.domain, Learn)]
    sizes = [codec_for(column, table=table.name).size for column in declared]
    # A column is taken to have 32 codes before its domain is learned.
    return [size for size in sizes if size > 1] + [32] * (len(table.attributes) - len(declared))


def lists_to_learn(table: Table) -> list[Column]:
    """Return the columns whose list of values is to be learned, which takes a δ."""
    return [c for c in table.modelled if c.learns_list]


def _learn_range(session: PrivateSession, table: Table, column: Column, price: Price) -> tuple[Codec, str]:
    """Learn a codec for an ordered column, and return with it what had to be assumed."""
    grid, classes = log_scale_codec(column, table=table.name), StepCodec.of(column, table=table.name)
    view = view_of_cells(session, table.name, {column.name: grid}, 1, f"range of {column.name}")
    noisy = view.measure("grid", [Marginal((column.name,))], price.share(1 - TUNING.detail_share) if classes else price)
    counts = noisy.values[0][: grid.ordered]
    low, high = plausible_bounds(column)
    seen = _occupied(grid, counts, noisy.sigma, price, _cells_between(grid, *map(grid.grid.number, (low, high))))
    sentinel = _sentinel(grid, counts, seen, sentinels_of(column))
    step: float | None = 0.0
    if classes is not None:
        of_steps = view_of_cells(session, table.name, {column.name: classes}, 1, f"step of {column.name}")
        found = of_steps.measure("multiples", [Marginal((column.name,))], price.share(TUNING.detail_share))
        others = seen.copy()  # than zero, which is a multiple of every unit
        others[_cells_between(grid, 0, 0)] &= grid.grid.logical.calendar
        rows = float(counts[others].sum())
        step = _step(found.values[0][: len(classes.units)], found.sigma, classes, rows, price.measure)
    if seen.any():
        rows_seen, cells = np.zeros(len(counts)), np.flatnonzero(seen)
        for run in np.split(cells, np.flatnonzero(np.diff(cells) > 1) + 1):
            rows_seen[run] = segment_and_smooth(counts[run], noisy.sigma, np.ones(len(run)))[1]
        learned = replace(learned_codec(grid, rows_seen, step), sentinel=sentinel)
        dates = column.written_dates and learned.grid.step == 1
        dates &= WRITTEN_DATES[0] <= learned.cuts[0] and learned.last < WRITTEN_DATES[1]
        return replace(learned, dates=dates), ""
    assumed = equal_width_codec(column, low, high, table=table.name)
    open_ended = _in_steps(replace(assumed, open_ended=True, dates=column.written_dates, sentinel=sentinel), step)
    what = "the range" if column.relative is None else f"the range of the difference from {column.relative.to}"
    return open_ended, f"noise hid {what}, so {low} to {high} is assumed from name and type; declare a domain"


def _sentinel(grid: OrderedCodec, counts: Array, seen: Mask, points: Sequence[int]) -> int | None:
    """Return the sentinel that most values beyond all dates are, if any show, and mark their cells as not seen.

    ``points`` are those of `sentinels_of`; all else is as in `_occupied`.
    """
    beyond = np.flatnonzero(seen & (grid.starts >= points[0])) if points else np.empty(0, np.int64)
    if not beyond.size:
        return None
    seen[beyond] = False
    return int(grid.ends[beyond[np.argmax(counts[beyond])]])


def _occupied(grid: OrderedCodec, counts: Array, sigma: float, price: Price, plausible: range) -> Mask:
    """Return which cells of the grid hold rows, as far as noise shows, shape (ordered,).

    Stretches of several cells are tested as well, for thin tails. Then, with a far lower bar, the few stretches that
    are likely to hold rows: the plausible range by type and name, which would be assumed if noise hid everything, and
    what lies next to all that was seen.
    """
    seen = np.zeros(len(counts), bool)
    # Windows of cells that are tested together: numbers span a few powers of two, dates span decades.
    windows = [w for w in powers_up_to(128 if grid.grid.logical.calendar else 8) if w <= len(counts)]
    # Noise alone makes one of these stretches significant 100 times less often than a spike does.
    bar = highest_noise(price.measure, sigma, 100 * len(counts) * len(windows))
    for width in windows:
        unseen = np.where(seen, 0.0, counts)
        summed = np.append(0.0, np.cumsum(unseen))
        sums = summed[width:] - summed[:-width]
        for first in np.flatnonzero(sums > bar * math.sqrt(width)).tolist():
            _mark_occupied(seen, unseen, slice(first, first + width), sums[first] / width)
    bar, found = highest_noise(price.measure, sigma, 1), True
    while found:
        found, unseen = False, np.where(seen, 0.0, counts)
        for stretch in _likely_stretches(seen, windows, plausible):
            total, number = float(unseen[stretch].sum()), max(1, int((~seen[stretch]).sum()))
            if total > bar * math.sqrt(number):
                _mark_occupied(seen, unseen, stretch, total / number)
                found = True
                break
    return seen


def _likely_stretches(seen: Mask, windows: Iterable[int], plausible: range) -> Iterable[slice]:
    yield slice(plausible.start, plausible.stop)
    if (cells := np.flatnonzero(seen)).size:
        first, end = int(cells[0]), int(cells[-1]) + 1
        yield from (slice(max(0, first - width), first) for width in windows)
        yield from (slice(end, min(len(seen), end + width)) for width in windows)


def _mark_occupied(seen: Mask, unseen: Array, stretch: slice, mean: float) -> None:
    """Mark the run of cells of a stretch that is likeliest to be all that holds rows, given counts not seen before.

    If such cells hold the mean, each is as likely to hold rows as not where its count is half of that.
    """
    start, end = _largest_run(unseen[stretch] - np.where(seen[stretch], 0.0, mean / 2))
    seen[stretch.start + start : stretch.start + end] = True


def _cells_between(grid: OrderedCodec, low: float, high: float) -> range:
    """Return the cells of a grid that hold numbers from ``low`` to ``high``."""
    first, last = (int(np.searchsorted(grid.starts, end, side="right")) - 1 for end in (low, high))
    return range(max(0, first), max(0, last) + 1)


def _largest_run(values: Array) -> tuple[int, int]:
    """Return the run of neighbours with the largest sum: its first index and the one after its last.

    >>> _largest_run(np.array([-1.0, 3.0, -1.0, 2.0, -5.0, 1.0]))
    (1, 4)
    """
    sums = np.append(0.0, np.cumsum(values))
    before = np.minimum.accumulate(sums)[:-1]
    end = int(np.argmax(sums[1:] - before)) + 1
    return int(np.argmin(sums[:end])), end


def _step(counts: Array, sigma: float, classes: StepCodec, rows: float, measure: Measure) -> float | None:
    """Return the unit of which all values are multiples, as far as noise can tell.

    Half of the multiples of a unit or more are none of the next one: of those of 5, half are none of 10. Where noise is
    below a quarter of all rows, these are significant, and the unit is the coarsest below which no count is. Else it is
    the likeliest of these units: either all of its multiples are equally frequent, or some proportion of the values are
    multiples of a coarser one; both models have the same prior probability. Where noise could be a third of all rows,
    one unit in ten would be wrong: `StepCodec.usual` is taken, and of floats nothing (None).

    Args:
        counts: Rows by the coarsest unit that divides them, shape (units,).
        sigma: Of their noise.
        classes: The units.
        rows: About how many rows are not zero, by another release; 0 if they are below the noise.
        measure: Of the noise.
    """
    if float(scipy.stats.norm.isf(TUNING.clear)) * sigma > rows / 3:
        return None if classes.grid.continuous else classes.units[classes.usual]
    most, known = highest_noise(measure, sigma, len(counts)), slice(len(counts) - 1)
    sums = np.cumsum(counts[known]) <= most * np.sqrt(np.arange(1, len(counts)))
    coarsest = int(np.cumprod(sums & (counts[known] <= most)).sum())
    if most < rows / 4:
        return classes.units[coarsest]
    # Zeros are in the last class, which rows leave out.
    shares, proportions = classes.shares[:, known], np.arange(1, GRID_STEPS + 1)[:, None, None] / GRID_STEPS

    def fit(mixed: Array) -> Array:
        """Return the logarithms of how likely distributions of rows are, shape (..)."""
        return np.asarray(rows * (mixed @ counts[known]) - rows**2 * (mixed**2).sum(axis=-1) / 2) / sigma**2

    fits = fit(shares)
    for place, pure in enumerate(shares[:-1]):
        mixed = fit(proportions * pure + (1 - proportions) * shares[place + 1 :])
        fits[place] = np.logaddexp(fits[place], scipy.special.logsumexp(mixed) - math.log(mixed.size)) - math.log(2)
    return classes.units[int(np.argmax(fits[: coarsest + 1]))]


def learned_codec(grid: OrderedCodec, rows: Array, step: float | None = 0.0) -> OrderedCodec:
    """Return cells for the part of a grid that holds rows, with about as many rows in each.

    Zero is a cell of its own. Values beyond the ends are taken to lie in the last cells: nothing piles up at a bound.

    Args:
        grid: The public grid.
        rows: Of each of its interval cells, 0 where nothing was seen; shape (ordered,), not all 0.
        step: From one value to the next, see `StepCodec.units`; 0 if none was learned.
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
        # Of two values in each cell it would take another look to tell which one the rows have.
        values = int(grid.values_in[cell])
        cuts += grid.starts_of_parts(cell, values if values <= 2 * wanted else int(wanted))
    return _in_steps(OrderedCodec(grid.grid, grid.nullable, tuple(sorted(set(cuts))), end, open_ended=True), step)


def _in_steps(codec: OrderedCodec, step: float | None) -> OrderedCodec:
    """Return a codec whose cells begin at the next multiple of a step, see `StepCodec.units`; 0 leaves it as it is.

    Where noise hid the step of floats (None), they get decimals enough for ten thousand values of the range.
    """
    if step is None:
        # Of floats whose step is not significant: 4 digits after the first one of their range.
        step = float(f"1e{math.floor(math.log10(max(codec.last - codec.cuts[0], TINY))) - 4}")
    if not step:
        return codec
    if codec.grid.continuous:
        if max(abs(codec.cuts[0]), abs(codec.last)) > EXACT_FLOAT * step:
            return codec
        firsts = ((start, math.ceil(start / step - TOLERANCE)) for start in codec.cuts)
        starts = sorted({max(first, 1) if start > 0 else first for start, first in firsts})
    else:
        starts = sorted({-(-int(start) // int(step)) for start in codec.cuts})
    final = max(int(codec.last // step), starts[0])
    kept = tuple(start for start in starts if start <= final)
    return replace(codec, grid=codec.grid.in_multiples(step), cuts=kept, last=final)
