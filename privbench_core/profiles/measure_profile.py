"""Profile steps: learned domains, one-way marginals, the discretizers that everything later speaks in, and joints.

A column with a declared domain costs nothing but its share of the one-way marginals; `measure_domains` learns others.
What is best spent on one-way marginals and what on joints depends on what has been released on the way: how many rows
there are, and whether any columns depend on each other. So both are measured in one step, for one price that is known
beforehand. Where noise would hide every joint, the cells of all columns get what is left, as if nothing else had been
looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Discretizer, ordered_codes, tails_of
from privbench_core.guards import MAX_CODES, NEGLIGIBLE
from privbench_core.marginals.measure_one_way import Marginals, least_noise, remeasure, view_of_cells
from privbench_core.marginals.measure_spn import PairwiseSPN
from privbench_core.marginals.measured import Counted, Measured, MeasuredLeaf
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Own
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.measure_bins import CellCounts, refine_bins, share_of
from privbench_core.profiles.measure_domains import Learned, learn_domains, lists_to_learn
from privbench_core.profiles.measure_lags import Pair, lag_joints, measure_own_lags, own_lag_share
from privbench_core.profiles.profile import Profile
from privbench_core.schema.identity import Identity
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import Features, RowLooks, best_counted, measure_by_size
from privbench_core.units.measure_row_count import measure_row_count
from privbench_core.units.row_count import RowCount

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """What has been released about the cells of a table's columns, before they are merged into codes.

    Attributes:
        codecs: Column -> codec of the first look, for all attributes.
        first: Column -> noisy counts of the first look, where there is more than one cell.
        looks: Column -> all that is known about its cells since, likewise.
        sigmas: Column -> standard deviation of the noise of the first look on each count, likewise.
        rows: Noisy number of rows and its standard deviation, where there are no columns to add up.
        size: Of the table, where it was measured for itself.
        guessed: Column -> what is assumed of it, where noise hid the domain that was to be learned.
    """

    codecs: Mapping[str, Codec]
    first: Mapping[str, Array]
    looks: Mapping[str, CellCounts]
    sigmas: Mapping[str, float]
    rows: tuple[float, float]
    size: RowCount | None = None
    guessed: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows_per_unit(self) -> int:
        """Up to how many rows of a unit are counted in full."""
        return 1 if self.size is None else self.size.rows_per_unit

    def profile(self) -> Profile:
        """The cells merged into codes."""
        merged = {name: look.merged(MAX_CODES) for name, look in self.looks.items()}
        codes = sum(binning.size for binning in merged.values())
        binnings: dict[str, Binning] = {}
        counts: dict[str, Array] = {}
        sigmas: dict[str, Array] = {}
        for name, binning in merged.items():
            beside = (codes - binning.size) / (len(merged) - 1) if len(merged) > 1 else 1.0
            binnings[name], counts[name], sigmas[name] = self.looks[name].cut(binning, beside, MAX_CODES)
        one_way = OneWay(counts, sigmas)
        total, sigma = (one_way.total, one_way.total_sigma) if counts else self.rows
        total = max(1.0, total)
        # A column of one cell (generated, never NULL) says nothing: it is coded, so that it is drawn, but not measured.
        discretizers = {
            name: Discretizer(self.looks[name].codec, binnings[name]) if name in binnings else Discretizer(codec)
            for name, codec in self.codecs.items()
        }
        one_way = OneWay(
            {name: counts.get(name, np.array([total])) for name in self.codecs},
            {name: sigmas.get(name, np.array([sigma])) for name in self.codecs},
            total,
            tails_of(discretizers),
        )
        return Profile(discretizers, one_way, self.size or RowCount(total, sigma), {}, self.guessed)

    def again(self, session: PrivateSession, table: Table, price: Price) -> Cells:
        """The same cells counted once more for ``price``, where that leaves the least noise, and averaged.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
        """
        if not self.looks:
            return self
        counts = {name: look.counts for name, look in self.looks.items()}
        sigmas = {name: np.sqrt(look.variances) for name, look in self.looks.items()}
        codecs = {name: look.codec for name, look in self.looks.items()}
        view = view_of_cells(session, table.name, codecs, self.rows_per_unit, "second look")
        better = remeasure(view, OneWay(counts, sigmas), price)
        looks = {
            name: replace(look, counts=better.counts[name], variances=better.sigmas[name] ** 2)
            for name, look in self.looks.items()
        }
        return replace(self, looks=looks)


class Network(Protocol):
    """What models the attributes of a table."""

    def identity(self) -> Identity:
        """Return all that a release depends on beside the coded rows."""
        ...

    def has_power(self, curator: Curator, columns: int, total: float, price: Price) -> bool:
        """Return whether dependences of so many columns would show for ``price``."""
        ...

    def find(self, marginals: Marginals, price: Price, by_lags: Mapping[Pair, Array]) -> Measured | Price:
        """A model for at most ``price``, or what is left of it if the columns by themselves are all there is.

        ``by_lags`` has counts of pairs of dates that follow from how far they are apart.
        """
        ...


@dataclass
class MarginalsOverRows(Marginals):
    """Marginals of a table's columns over all rows, while joints count up to so many rows of a unit.

    Attributes:
        session: Open for the step.
        table: The table.
        columns: Of its rows, those of ``looks``.
        looks: What is known of them.
        others: One-way marginals of the columns that have one code.
        most: T of the joints.
        best: `RowLooks.best_counted` for the first price that was asked about: the best T changes little with it.
    """

    one_way: OneWay = field(init=False)
    session: PrivateSession
    table: str
    columns: Features
    looks: RowLooks
    others: OneWay
    most: int
    best: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Say what is known."""
        self.one_way = self._known()

    def _known(self) -> OneWay:
        found = self.looks.one_way(self.most)
        counts, sigmas = {**self.others.counts, **found.counts}, {**self.others.sigmas, **found.sigmas}
        tails = tails_of({name: coder for name, (_, coder) in self.columns.items()})
        return OneWay(counts, sigmas, found.total, tails)

    @property
    def counted(self) -> OneWay:
        """Distributed like the rows that joints count."""
        return self._distributed_like(self.looks.size.counted(self.most))

    def rows_counted(self, gain: float = 1.0) -> Counted | None:
        """See `Marginals.rows_counted`."""
        size, every = self.looks.size, float(self.looks.size.rows_of.sum())
        rows = min(gain * float(size.counted(self.most).sum()), every)
        counted = size.counted(self.most, size.collisions(self.most, rows)) if gain > 1 else size.counted(self.most)
        return Counted(self._distributed_like(counted), rows / every) if rows < every else None

    def clipping_gain(self, columns: Iterable[str]) -> float:
        """See `Marginals`: two rows of a unit are in one cell no more often than they share the code of any column."""
        size = self.looks.size
        likely = min(self.looks.collisions(name) for name in columns)
        rows = size.counted(self.most, likely).sum() / max(float(size.counted(self.most).sum()), NEGLIGIBLE)
        return max(float(rows), 1.0)

    def _distributed_like(self, counted: Array) -> OneWay:
        size, shapes = self.looks.size, self.looks.shapes
        return self.one_way.moved({name: -size.left_out(shape, counted) for name, shape in shapes.items()})

    def noise(self, price: Price) -> float:
        """See `Marginals.noise`."""
        if not self.best and price.amount > 0:
            self.best = self.looks.best_counted(self.session, self.table, price)
        doubt = self.looks.doubt(self.session, self.table, price, self.best)
        return doubt * float(self.looks.size.counted(self.most).sum())

    def improve(self, price: Price) -> OneWay:
        """See `Marginals.improve`."""
        if price.amount > 0:
            self.looks = self.looks.again(self.session, self.table, self.columns, price)
            self.one_way = self._known()
        return self.one_way


def learn_table(
    session: PrivateSession,
    table: Table,
    bound: int,
    price: Price,
    first: float = 1.0,
    network: Callable[[Mapping[str, int]], Network] = PairwiseSPN,
) -> tuple[Cells, Profile, Measured]:
    """Measure a table's attributes, and as many of their joints as the price supports, for ``price`` in all.

    Under pure privacy two looks at a marginal are worth less than one for the price of both (Laplace noise does not
    average as prices add up), so the number of rows comes first: it tells whether to look for anything else.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 6, 7, 8
    and 9, and *Learning a table*.

    Args:
        session: Open for the step.
        table: The table.
        bound: Most rows of a unit in it.
        price: Of everything here.
        first: Share of one-way marginals; with all of it, there are no joints.
        network: `ordered_codes` of the columns -> what models them.

    Raises:
        UnsupportedBudgetError: A list of values is to be learned without a δ.
    """
    for_lags = price.share(own_lag_share(table))
    size, rest = measure_row_count(session, table.name, bound, Price(price.measure, price.amount - for_lags.amount))
    learned = learn_domains(session, table, size, rest, price.delta)
    sizes, rest = [codec.size for codec in learned.codecs.values() if codec.size > 1], learned.rest
    share = first if len(sizes) > 1 else 1.0
    if share < 1 and price.measure is Measure.PURE:
        view = session.view(ViewSpec(table.name, {}, (1 if size is None else size.rows_per_unit,)), "size")
        if size is None:
            rows = float(view.measure("rows", [Marginal(())], rest.share(TUNING.number_share)).values[0])
            rest = rest.share(1 - TUNING.number_share)
        else:
            rows = size.rows
        rows = max(1.0, rows)  # of few rows noise may leave none, or less
        share = share if network({}).has_power(view, len(sizes), rows, rest.share(1 - share)) else 1.0
    early = 1.0 if size is None or size.in_full else TUNING.early_share  # all, where a first look counts all rows
    cells = measure_cells(session, table, learned, size, rest.share(share * early))
    cells, profile, looks = over_rows(session, table, cells, rest.share(share * (1 - early)))
    lags = measure_own_lags(session, table, profile, for_lags)
    profile = lags.of(profile)
    left = rest.share(1 - share)
    if share < 1:
        most = profile.size.rows_per_unit
        if looks is not None and price.measure is not Measure.PURE:
            of_units = session.view(ViewSpec(table.name, {}), "by size")
            most = best_counted(of_units, looks, left, clipped=True).rows_per_unit
        chosen, by_lags = network(ordered_codes(profile.discretizers)), lag_joints(profile)
        features = own_columns(profile, profile.discretizers)
        view = session.view(ViewSpec(table.name, dict(features), (most,)), "spn")
        marginals = Marginals(view, profile.one_way)
        if looks is not None:
            columns = own_columns(profile, looks.drifts)
            others = profile.one_way.only(name for name in profile.discretizers if name not in looks.drifts)
            marginals = MarginalsOverRows(view, session, table.name, columns, looks, others, most)
        found = chosen.find(marginals, left, by_lags)
        if not isinstance(found, Price):
            return cells, profile, found
        if looks is not None:
            looks = looks.again(session, table.name, own_columns(profile, looks.drifts), found)
            profile = lags.of(with_looks(profile, looks))
        else:
            cells = cells.again(session, table, found)
            profile = lags.of(cells.profile())
    return cells, profile, MeasuredLeaf(profile.one_way, lags=lag_joints(profile))


def over_rows(
    session: PrivateSession, table: Table, cells: Cells, price: Price
) -> tuple[Cells, Profile, RowLooks | None]:
    """One-way marginals over rows, and by the number of rows of a unit, for ``price``: none if the first look was all.

    The first look has found which codes there are, at little noise. How much the distributions of units with many rows
    differ decides up to how many rows of a unit are worth being counted in full.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    profile = cells.profile()
    if price.amount <= 0:
        return cells, profile, None
    size, several = profile.size, [name for name, discretizer in profile.discretizers.items() if discretizer.size > 1]
    if not several:  # noise has merged all cells of all columns
        cells = cells.again(session, table, price)
        return cells, cells.profile(), None
    first = profile.one_way.only(several)
    columns = own_columns(profile, several)
    looks = measure_by_size(session, table.name, columns, size, price.share(TUNING.early_share)).updated(
        size.rows_per_unit, first
    )
    rest = price.share(1 - TUNING.early_share)
    looks = looks.again(session, table.name, columns, rest)
    counted = best_counted(session.view(ViewSpec(table.name, {}), "by size"), looks, rest)
    looks = replace(looks, size=counted)
    return cells, with_looks(profile, looks), looks


def own_columns(profile: Profile, names: Iterable[str]) -> Features:
    """Columns of a table's own rows as views have them."""
    return {name: (Own(name), profile.discretizers[name]) for name in names}


def with_looks(profile: Profile, looks: RowLooks) -> Profile:
    """A profile with what looks say of its columns, as counts of up to T rows of a unit."""
    most = looks.size.rows_per_unit
    found = looks.one_way(most)
    one_way = OneWay(
        {name: found.counts.get(name, np.array([found.total])) for name in profile.discretizers},
        {name: found.sigmas.get(name, np.array([found.total_sigma])) for name in profile.discretizers},
        found.total,
        profile.one_way.tails,
    )
    counted = looks.size.counted(most) + NEGLIGIBLE
    by_size = {name: shape * (counted / counted.sum())[:, None] for name, shape in looks.shapes.items()}
    return Profile(profile.discretizers, one_way, looks.size, by_size, profile.guessed)


def measure_cells(
    session: PrivateSession, table: Table, learned: Learned, size: RowCount | None, price: Price
) -> Cells:
    """All cells counted for ``price``, heavy ones more closely; of rows, where the table's ``size`` says how many.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    full = 1 if size is None else size.rows_per_unit
    codecs = learned.codecs
    telling = {name: codec for name, codec in codecs.items() if codec.size > 1}
    view = view_of_cells(session, table.name, telling, full, "view")
    if not telling:
        rows = view.measure("rows", [Marginal(())], price)
        return Cells(codecs, {}, {}, {}, (float(rows.values[0]), rows.sigma), size, learned.guessed)
    closer = share_of(table, telling)
    first = price.share(1 - closer)
    shares = least_noise({name: min(codec.size, MAX_CODES) for name, codec in telling.items()}, price.measure)
    groups = {tuple(name for name in telling if shares[name] == share): share for share in sorted(set(shares.values()))}
    looks_at = [([Marginal((name,)) for name in alike], share * len(alike)) for alike, share in groups.items()]
    view.expect([marginal for asked, _ in looks_at for marginal in asked])
    found: dict[str, Array] = {}
    sigmas: dict[str, float] = {}
    for alike, (asked, part) in zip(groups, looks_at, strict=True):
        noisy = view.measure("one-way", asked, first.share(part))
        found |= zip(alike, noisy.values, strict=True)
        sigmas |= dict.fromkeys(alike, noisy.sigma)
    named = {column.name for column in lists_to_learn(table)}
    looks = {
        name: CellCounts.first(
            codec, found[name], sigmas[name], named=name in named, laplace=price.measure is Measure.PURE
        )
        for name, codec in telling.items()
    }
    looks = refine_bins(session, table, looks, full, price.share(closer)) if closer else looks
    return Cells(codecs, found, looks, sigmas, (0.0, 0.0), size, learned.guessed)
