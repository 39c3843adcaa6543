"""Profile steps: learned domains, one-way marginals, the discretizers that everything later speaks in, and joints.

A column with a declared domain costs nothing but its share of the one-way marginals; `measure_domains` learns others.
What is best spent on one-way marginals and what on joints depends on what has been released on the way: how many rows
there are, and whether any columns depend on each other. So both are measured in one step, for one price that is known
beforehand. Where noise would hide every joint, the cells of all columns get what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from privbench_core.arrays import Array
from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Discretizer, ordered_codes, tails_of
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.guards import MAX_CODES, NEGLIGIBLE
from privbench_core.marginals.measure_one_way import Marginals, least_noise, remeasure, view_of_cells
from privbench_core.marginals.measure_spn import PairwiseSPN
from privbench_core.marginals.measured import Counted, Measured, MeasuredLeaf
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.measure_bins import CellCounts, refine_bins, share_of
from privbench_core.profiles.measure_constraints import constraint_joints, measure_constraints
from privbench_core.profiles.measure_domains import Learned, learn_domains
from privbench_core.profiles.measure_lags import Pair, lag_joints, measure_own_lags, own_lag_share
from privbench_core.profiles.profile import Profile
from privbench_core.schema.identity import Identity
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import (
    SizeStratifiedMarginals,
    choose_truncation,
    measure_by_size,
)
from privbench_core.units.measure_row_count import measure_row_count
from privbench_core.units.row_count import RowCount, UnitCount


@dataclass(frozen=True)
class Cells:
    """What has been released about the cells of a table's columns, before they are merged into codes.

    Attributes:
        codecs: Column -> codec that was measured first, for all attributes.
        first: Column -> its noisy counts, where there is more than one cell.
        known: Column -> all that is known about its cells since, likewise.
        sigmas: Column -> standard deviation of the noise of each first count, likewise.
        rows: Noisy number of rows and its standard deviation, by itself; of an owned table where units may have several
            rows, only if there are no columns to add up.
        size: Of the table, where it was measured for itself.
        guessed: Column -> what is assumed of it, where noise hid the domain that was to be learned.
    """

    codecs: Mapping[str, Codec]
    first: Mapping[str, Array]
    known: Mapping[str, CellCounts]
    sigmas: Mapping[str, float]
    rows: tuple[float, float] | None = None
    size: RowCount | None = None
    guessed: Mapping[str, str] = field(default_factory=dict)

    def profile(self) -> Profile:
        """Return the cells merged into codes."""
        merged = {name: cells.merged(MAX_CODES) for name, cells in self.known.items()}
        codes = sum(binning.size for binning in merged.values())
        # A column of one cell (generated, never NULL) says nothing: it is coded, so that it is drawn, but not measured.
        discretizers = {name: Discretizer(codec) for name, codec in self.codecs.items()}
        counts: dict[str, Array] = {}
        sigmas: dict[str, Array] = {}
        for name, binning in merged.items():
            others = (codes - binning.size) / (len(merged) - 1) if len(merged) > 1 else 1.0
            binning, counts[name], sigmas[name] = self.known[name].cut(binning, others, MAX_CODES)  # noqa: PLW2901
            codec = self.known[name].shown
            if isinstance(codec, OrderedCodec):
                codec = codec.with_tails(
                    np.maximum(counts[name], 0.0)[list(binning.code_of)] * np.array(binning.weights)
                )
            discretizers[name] = Discretizer(codec, binning)
        one_way, alone = OneWay(counts, sigmas), [self.rows] if self.rows else []
        total, sigma = averaged([*alone, *([(one_way.total, one_way.total_sigma)] if counts else [])])
        total = max(1.0, total)
        for name, of_codes in sigmas.items():  # columns add up to what is known of rows
            counts[name] = counts[name] + (total - one_way.total) * of_codes**2 / (of_codes**2).sum()
        one_way = OneWay(
            dict.fromkeys(self.codecs, np.array([total])) | counts,
            dict.fromkeys(self.codecs, np.array([sigma])) | sigmas,
            total,
            tails_of(discretizers),
        )
        return Profile(discretizers, one_way, self.size or RowCount(total, sigma), {}, self.guessed)

    def remeasure(self, session: PrivateSession, table: Table, price: Price) -> Cells:
        """Measure the same cells once more for ``price``, where that leaves the least noise, and average.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
        """
        if not self.known:
            return self
        counts = {name: cells.counts for name, cells in self.known.items()}
        sigmas = {name: np.sqrt(cells.variances) for name, cells in self.known.items()}
        codecs = {name: cells.codec for name, cells in self.known.items()}
        full = 1 if self.size is None else self.size.rows_per_unit
        view = view_of_cells(session, table.name, codecs, full, "second look")
        better = remeasure(view, OneWay(counts, sigmas), price)
        known = {
            name: replace(cells, counts=better.counts[name], variances=better.sigmas[name] ** 2)
            for name, cells in self.known.items()
        }
        return replace(self, known=known)


class Network(Protocol):
    """What models the attributes of a table."""

    def identity(self) -> Identity:
        """Return all that a release depends on, but for the coded rows."""
        ...

    def has_power(self, curator: Curator, columns: int, total: float, price: Price) -> bool:
        """Return whether dependences of so many columns would show for ``price``."""
        ...

    def find(self, marginals: Marginals, price: Price, by_lags: Mapping[Pair, Array]) -> Measured | Price:
        """Measure a model for at most ``price``, or return what is left of it if single columns are all there is.

        ``by_lags`` has counts of pairs of dates that follow from how far they are apart.
        """
        ...


@dataclass
class MarginalsOverRows(Marginals):
    """Marginals of a table's columns over all rows, while joints count up to so many rows of a unit.

    Attributes:
        session: Open for the step.
        profile: Of the table; its columns with several codes are in ``known``.
        table: The table.
        known: Its columns by class of sizes.
        most: T of the joints.
        truncations: Of the columns, for the first price that was asked about: the best T changes little with it.
    """

    one_way: OneWay = field(init=False)
    session: PrivateSession
    table: str
    profile: Profile
    known: SizeStratifiedMarginals
    most: int
    truncations: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Say what is known."""
        self.one_way = self._over_rows()

    def _over_rows(self) -> OneWay:
        others = self.profile.one_way.only(name for name in self.profile.discretizers if name not in self.known.drifts)
        found = self.known.one_way(self.most)
        tails = tails_of({name: self.profile.discretizers[name] for name in self.known.drifts})
        return OneWay({**others.counts, **found.counts}, {**others.sigmas, **found.sigmas}, found.total, tails)

    @property
    def counted(self) -> OneWay:
        """Distributed like the rows that joints count."""
        return self._distributed_like(self.known.size.counted(self.most))

    def rows_counted(self, gain: float = 1.0) -> Counted | None:
        """See `Marginals.rows_counted`."""
        size, every = self.known.size, float(self.known.size.rows_of.sum())
        rows = min(gain * float(size.counted(self.most).sum()), every)
        counted = size.counted(self.most, size.collisions(self.most, rows)) if gain > 1 else size.counted(self.most)
        return Counted(self._distributed_like(counted), rows / every) if rows < every else None

    def clipping_gain(self, columns: Iterable[str]) -> float:
        """See `Marginals`: two rows of a unit are in one cell no more often than they share the code of any column."""
        size, likely = self.known.size, min(self.known.collisions(name) for name in columns)
        rows = size.counted(self.most, likely).sum() / max(float(size.counted(self.most).sum()), NEGLIGIBLE)
        return max(float(rows), 1.0)

    def _distributed_like(self, counted: Array) -> OneWay:
        size, shapes = self.known.size, self.known.shapes
        return self.one_way.moved({name: -size.truncation_bias(shape, counted) for name, shape in shapes.items()})

    def noise(self, price: Price) -> float:
        """See `Marginals.noise`."""
        if not self.truncations and price.amount > 0:
            self.truncations = self.known.truncations(self.session, self.table, price)
        error = self.known.error(self.session, self.table, price, self.truncations)
        return error * float(self.known.size.counted(self.most).sum())

    def improve(self, price: Price) -> OneWay:
        """See `Marginals.improve`."""
        if price.amount > 0:
            columns = self.profile.own(self.known.drifts)
            self.known = self.known.remeasure(self.session, self.table, columns, price)
            self.one_way = self._over_rows()
        return self.one_way


def learn_table(
    session: PrivateSession,
    table: Table,
    counted: UnitCount,
    price: Price,
    first: float = 1.0,
    network: Callable[[Mapping[str, int]], Network] = PairwiseSPN,
) -> tuple[Cells, Profile, Measured]:
    """Measure a table's attributes, and as many of their joints as the price supports, for ``price`` in all.

    Under pure privacy two measurements of a marginal are worth less than one for the price of both (Laplace noise does
    not average as prices add up): there the number of rows says whether anything else can be found.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 6, 7, 8
    and 9, and section 6, *Adaptive choices*.

    Args:
        session: Open for the step.
        table: The table.
        counted: Released: how many units have rows in it.
        price: Of everything here.
        first: Share of one-way marginals; with all of it, there are no joints.
        network: `ordered_codes` of the columns -> what models them.

    Raises:
        UnsupportedBudgetError: A list of values is to be learned without a δ.
    """
    for_lags = price.share(own_lag_share(table))
    size, rest = measure_row_count(session, table.name, counted, Price(price.measure, price.amount - for_lags.amount))
    learned = learn_domains(session, table, size, rest, price.delta)
    sizes, rest = [codec.size for codec in learned.codecs.values() if codec.size > 1], learned.rest
    share = first if len(sizes) > 1 else 1.0
    if share < 1 and price.measure is Measure.PURE:
        view = session.view(ViewSpec(table.name, {}, (1 if size is None else size.rows_per_unit,)), "size")
        rows = float(counted.units[0]) if size is None else size.rows
        found = network({}).has_power(view, len(sizes), max(1.0, rows), rest.share(1 - share))
        share = share if found else 1.0
    early = 1.0 if size is None or size.in_full else TUNING.early_share  # all, where the first cells count all rows
    cells = measure_cells(session, table, learned, size, counted, rest.share(share * early))
    cells, profile, known = over_rows(session, table, cells, rest.share(share * (1 - early)))
    lags = measure_own_lags(session, table, profile, for_lags)
    profile = lags.of(profile)
    if share < 1:
        unspent = for_lags.amount if not (lags.features or lags.tied or lags.sums) else 0.0
        for_joints = Price(price.measure, rest.share(1 - share).amount + unspent)
        constraints, paid = measure_constraints(session, table, profile, for_joints.share(TUNING.first_look))
        profile = replace(profile, constraints=constraints)
        for_joints = Price(price.measure, for_joints.amount - paid.amount)
        measured = _find_joints(session, table, profile, known, network, for_joints)
        if not isinstance(measured, Price):
            return cells, profile, measured
        if known is None:
            cells = cells.remeasure(session, table, measured)
            profile = lags.of(cells.profile())
        else:
            known = known.remeasure(session, table.name, profile.own(known.drifts), measured)
            profile = lags.of(with_size_strata(profile, known))
        profile = replace(profile, constraints=constraints)
    return cells, profile, MeasuredLeaf(profile.one_way, lags=implied_joints(table, profile))


def implied_joints(table: Table, profile: Profile) -> dict[Pair, Array]:
    """Return counts of the pairs of columns that follow from lags, or constraints, within the rows of a table."""
    return lag_joints(profile) | constraint_joints(table, profile)


def _find_joints(
    session: PrivateSession,
    table: Table,
    profile: Profile,
    known: SizeStratifiedMarginals | None,
    network: Callable[[Mapping[str, int]], Network],
    price: Price,
) -> Measured | Price:
    """Measure joints for at most ``price``, or return what is left of it if noise would hide them."""
    most = profile.size.rows_per_unit
    if known is not None and price.measure is not Measure.PURE:
        most = choose_truncation(session, table.name, known, price, clipped=True).rows_per_unit
    view = session.view(ViewSpec(table.name, profile.own(), (most,)), "spn")
    marginals = Marginals(view, profile.one_way)
    if known is not None:
        marginals = MarginalsOverRows(view, session, table.name, profile, known, most)
    return network(ordered_codes(profile.discretizers)).find(marginals, price, implied_joints(table, profile))


def over_rows(
    session: PrivateSession, table: Table, cells: Cells, price: Price
) -> tuple[Cells, Profile, SizeStratifiedMarginals | None]:
    """Measure columns over rows, and by the number of rows of a unit, for ``price``; not at all where it is nothing.

    Cells were measured first, which found what codes there are at little noise. How much the distributions of units
    with many rows differ decides up to how many rows of a unit are worth being counted in full.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    profile = cells.profile()
    if price.amount <= 0:
        return cells, profile, None
    size, several = profile.size, [name for name, discretizer in profile.discretizers.items() if discretizer.size > 1]
    if not several:  # noise has merged all cells of all columns
        cells = cells.remeasure(session, table, price)
        return cells, cells.profile(), None
    columns, rest = profile.own(several), price.share(1 - TUNING.early_share)
    known = measure_by_size(session, table.name, columns, size, price.share(TUNING.early_share))
    known = known.updated(size.rows_per_unit, profile.one_way.only(several))
    known = known.remeasure(session, table.name, columns, rest)
    known = replace(known, size=choose_truncation(session, table.name, known, rest))
    return cells, with_size_strata(profile, known), known


def with_size_strata(profile: Profile, known: SizeStratifiedMarginals) -> Profile:
    """Return a profile with what is known of its columns by size, as counts of up to T rows of a unit."""
    size = known.size
    found = known.one_way(size.rows_per_unit)
    counts = dict.fromkeys(profile.discretizers, np.array([found.total])) | dict(found.counts)
    sigmas = dict.fromkeys(profile.discretizers, np.array([found.total_sigma])) | dict(found.sigmas)
    counted = size.counted(size.rows_per_unit) + NEGLIGIBLE
    by_size = {name: shape * (counted / counted.sum())[:, None] for name, shape in known.shapes.items()}
    one_way = OneWay(counts, sigmas, found.total, profile.one_way.tails)
    return Profile(profile.discretizers, one_way, size, by_size, profile.guessed)


def measure_cells(
    session: PrivateSession, table: Table, learned: Learned, size: RowCount | None, counted: UnitCount, price: Price
) -> Cells:
    """Measure all cells for ``price``, heavy ones more closely; of rows, where the table's ``size`` says how many.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    alone = (float(counted.units[0]), counted.sigma) if size is None else None
    full = 1 if size is None else size.rows_per_unit
    codecs = learned.codecs
    several = {name: codec for name, codec in codecs.items() if codec.size > 1}
    view = view_of_cells(session, table.name, several, full, "view")
    if not several:
        rows = view.measure("rows", [Marginal(())], price)
        measured = [(float(rows.values[0]), rows.sigma), *([alone] if alone else [])]
        return Cells(codecs, {}, {}, {}, averaged(measured), size, learned.guessed)
    closer = share_of(table, several)
    shares = least_noise({name: min(codec.size, MAX_CODES) for name, codec in several.items()}, price.measure)
    together = {share: [name for name in several if shares[name] == share] for share in sorted(set(shares.values()))}
    view.expect([Marginal((name,)) for names in together.values() for name in names])
    found: dict[str, Array] = {}
    sigmas: dict[str, float] = {}
    for share, names in together.items():
        part = price.share(1 - closer).share(share * len(names))
        noisy = view.measure("one-way", [Marginal((name,)) for name in names], part)
        found |= zip(names, noisy.values, strict=True)
        sigmas |= dict.fromkeys(names, noisy.sigma)
    lists = {name for name, codec in several.items() if isinstance(codec, CategoricalCodec)}
    named = {name for name in lists if table.column(name).learns_list and not table.column(name).public_names}
    laplace = price.measure is Measure.PURE
    known = {
        name: CellCounts.first(codec, found[name], sigmas[name], named=name in named, laplace=laplace)
        for name, codec in several.items()
    }
    known |= {name: known[name].combined(*of_cells) for name, of_cells in learned.counted.items() if name in known}
    known = refine_bins(session, table, known, full, price.share(closer)) if closer else known
    return Cells(codecs, found, known, sigmas, alone, size, learned.guessed)


def averaged(measured: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean of noisy numbers by precision, and its standard deviation, given theirs."""
    numbers, sigmas = np.array(measured).T
    precisions = np.maximum(sigmas, NEGLIGIBLE) ** -2.0
    return float(np.average(numbers, weights=precisions)), float(precisions.sum() ** -0.5)
