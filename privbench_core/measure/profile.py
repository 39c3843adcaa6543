"""Profile steps: learned domains, released one-way marginals, and the discretizers that everything later speaks in.

A column with a declared domain costs nothing but its share of the one-way marginals; `measure.learned` learns others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Discretizer, tails_of
from privbench_core.guards import MAX_CODES, NEGLIGIBLE
from privbench_core.measure.adaptive_bins import CellCounts, refine_bins, share_of
from privbench_core.measure.by_size import Features, RowLooks, best_counted, measure_by_size
from privbench_core.measure.lags import measure_own_lags, own_lag_share
from privbench_core.measure.learned import Learned, learn_domains, lists_to_learn
from privbench_core.measure.one_way import least_noise, remeasure
from privbench_core.measure.row_count import measure_row_count
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.models.row_count import RowCount
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.features import Own
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING

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

        Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
        """
        if not self.looks:
            return self
        counts = {name: look.counts for name, look in self.looks.items()}
        sigmas = {name: np.sqrt(look.variances) for name, look in self.looks.items()}
        features = {name: (Own(name), Discretizer(look.codec)) for name, look in self.looks.items()}
        view = session.view(ViewSpec(table.name, dict(features), (self.rows_per_unit,)), "second look")
        better = remeasure(view, OneWay(counts, sigmas), price)
        looks = {
            name: replace(look, counts=better.counts[name], variances=better.sigmas[name] ** 2)
            for name, look in self.looks.items()
        }
        return replace(self, looks=looks)


def profile_table(session: PrivateSession, table: Table, bound: int, price: Price) -> tuple[Cells, Profile]:
    """All that a profile measures, for ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise, δ-approximate where a list of values is
    learned, at the price given, for adding or removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1,
    4, 6, 7 and 9.

    Args:
        session: Open for the step.
        table: The table.
        bound: Most rows of a unit in it.
        price: Of everything here.

    Raises:
        UnsupportedBudgetError: A list of values is to be learned without a δ.
    """
    for_lags = price.share(own_lag_share(table))
    size, rest = measure_row_count(session, table.name, bound, Price(price.measure, price.amount - for_lags.amount))
    learned = learn_domains(session, table, size, rest, price.delta)
    first = first_share(size)
    cells = measure_cells(session, table, learned, size, learned.rest.share(first))
    cells, profile, _ = over_rows(session, table, cells, learned.rest.share(1 - first))
    return cells, measure_own_lags(session, table, profile, for_lags).of(profile)


def first_share(size: RowCount | None) -> float:
    """Part of the price of one-way marginals for a first look: all, where it counts all rows."""
    return 1.0 if size is None or size.in_full else TUNING.early_share


def over_rows(
    session: PrivateSession, table: Table, cells: Cells, price: Price
) -> tuple[Cells, Profile, RowLooks | None]:
    """One-way marginals over rows, and by the number of rows of a unit, for ``price``: none if the first look was all.

    The first look has found which codes there are, at little noise. How much the distributions of units with many rows
    differ decides up to how many rows of a unit are worth being counted in full.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
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

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    full = 1 if size is None else size.rows_per_unit
    codecs = learned.codecs
    telling = {name: codec for name, codec in codecs.items() if codec.size > 1}
    view = session.view(
        ViewSpec(table.name, {name: (Own(name), Discretizer(codec)) for name, codec in telling.items()}, (full,))
    )
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
