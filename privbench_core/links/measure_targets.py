"""Targets of keys: attributes of parents that references follow, and what is taken to be so where noise hides them.

Those of a public parent are codings of the positions of its rows: the rows are public, and which one a private row
refers to is what a view may look at (`ParentRow`). So any function of the position is a column of the view, whatever
the type of the attribute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from privbench_core.arrays import Array, Numbers, dense
from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.grid import Grid
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.estimators.denoising import onto_simplex, shrink_haar
from privbench_core.estimators.fitting import relative_entropy
from privbench_core.guards import MAX_PUBLIC_CODES, NEGLIGIBLE, SHOWN_DEVIATIONS, TINY
from privbench_core.links.fanout import Fanout
from privbench_core.links.lookup import ROW, TARGET, coded_by_position
from privbench_core.links.measure_popularity import ParentReferences, row_popularity
from privbench_core.links.popularity_shapes import rows_without_reference
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Feature, OfParent, ParentFanout
from privbench_core.privacy.session import PrivateSession
from privbench_core.profiles.profile import Profile, children_column
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import RowCount


@dataclass(frozen=True)
class Referred:
    """What is released of the rows of a private parent that references may follow.

    Attributes:
        profile: Of its columns.
        numbers: Links along owner keys of other tables, whose numbers of children references may follow too.
    """

    profile: Profile
    numbers: Mapping[ForeignKey, Fanout] = field(default_factory=dict)

    def targets(self, key: ForeignKey) -> dict[str, tuple[Feature, Discretizer]]:
        """Return columns of a view, by target."""
        found: dict[str, tuple[Feature, Discretizer]] = {
            f"{TARGET}{name}": (OfParent(key, name), coder) for name, coder in self.profile.discretizers.items()
        }
        for of, link in self.numbers.items():
            found[f"{TARGET}{children_column(of.name)}"] = ParentFanout(key, of), link.sizes
        return found

    def usual_shares(self) -> dict[str, Array]:
        """Return the released distributions among all parents, by target."""
        clean = self.profile.one_way.clean()
        known = {name: clean[name] for name in self.profile.discretizers}
        known |= {children_column(of.name): link.counts for of, link in self.numbers.items()}
        return {f"{TARGET}{name}": counts / counts.sum() for name, counts in known.items()}

    def telling(self, marginals: Mapping[str, Array]) -> dict[str, float]:
        """Return `Lookup.telling`: targets that noise hides have been taken to be distributed as among all parents."""
        found = {}
        for name, usual in self.usual_shares().items():
            shares = marginals[name][: len(usual)]
            apart = relative_entropy(shares / max(float(shares.sum()), TINY), usual)
            if apart > NEGLIGIBLE:
                found[name] = apart
        return found


@dataclass(frozen=True)
class PublicParent:
    """A public table that rows refer to."""

    table: Table
    rows: pa.Table

    @cached_property
    def place(self) -> Numbers:
        """Place of each row among those that are alike (`order_of_alike`), shape (rows,)."""
        return order_of_alike(self.rows, tuple(column.name for column in self.table.attributes))

    def targets(self, counts: Array, *, optional: bool) -> dict[str, Discretizer]:
        """Return codings of the row positions: by each attribute that rows share, and by blocks of rows.

        Codes hold about as many references each, where there are more values than codes; the values of a list that most
        rows refer to have one each, and the others share one.

        Args:
            counts: References to each row, as far as known, shape (rows,).
            optional: Whether the key may be NULL: one more code, the last.
        """
        often = counts / max(float(counts.sum()), TINY) if counts.any() else np.ones(len(counts)) / len(counts)
        found, most = {}, 1 << 14  # runs of rows with one code, whose ends an engine's statements list
        for column in self.table.attributes:
            values = _ranks(self.rows.column(column.name))
            ordered = column.type.ordered
            if not ordered and 2 * values.max() >= len(values):  # as good as one for each row
                continue
            codes = _intervals(values, often) if ordered else _values(values, often)
            if codes.max() > 0 and np.count_nonzero(np.diff(codes)) < most:
                found[f"{TARGET}{column.name}"] = _by_position(codes, optional=optional, ordered=ordered)
        place = self.place if len(often) < most else np.arange(len(often))
        blocks = _intervals(place, often)
        return {**found, ROW: _by_position(blocks, optional=optional, ordered=False)}


def clean_target(noisy: Array, sigma: float, usual: Array, total: float, *, or_none: bool = False) -> Array:
    """Return counts of a target with so many in all, near what they are among all parents as far as noise explains it.

    Args:
        noisy: Counts of its codes.
        sigma: Standard deviation of the noise on each.
        usual: Distribution among all parents, shape (codes,).
        total: Of the clean counts.
        or_none: Whether there is a last code of rows that refer to none: estimated first, from all counts.
    """
    codes = len(usual)
    if or_none:
        found = (codes * noisy[-1] + total - noisy[:-1].sum()) / (codes + 1)
        none = rows_without_reference(float(found), sigma * math.sqrt(codes / (codes + 1)), total)
        return np.append(clean_target(noisy[:-1], sigma, usual, total - none), none)
    guess = usual * total
    apart = float(((noisy - guess) ** 2).sum()) / max(sigma, TINY) ** 2
    if apart < codes + SHOWN_DEVIATIONS * math.sqrt(2 * codes):
        return guess
    return onto_simplex(shrink_haar(noisy, sigma, guess), total)


def public_references(
    session: PrivateSession, key: ForeignKey, size: RowCount, parent: PublicParent, price: Price
) -> tuple[ParentReferences, dict[str, Discretizer]]:
    """Count references to the rows of a public table, and to its attributes, and return codings of the positions, too.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Refers to the public table.
        size: Released, of the table that has the key.
        parent: The public table, of at least one row.
        price: Of everything here.
    """
    references = row_popularity(session, key, size, parent.rows.num_rows, price.share(1 - TUNING.size_share))
    targets = parent.targets(references.popularity[0].counts, optional=key.optional)
    codes = coded_by_position(targets, parent.rows.num_rows)
    shared = (found.astype(np.int64) for name, found in codes.items() if name != ROW)
    attributes = [found for found in shared if 2 * found.max() < len(found)]  # else as good as one code for each row
    return references.with_attributes(attributes, price.share(TUNING.size_share)), targets


def order_of_alike(parent: pa.Table, attributes: tuple[str, ...]) -> Numbers:
    """Place of each row of a public table in the order of its attributes, the roughest first, shape (rows,).

    Public rows say how they are to be grouped: those with the same attributes are likely to be as popular.
    """
    ranks = [_ranks(parent.column(name)) for name in attributes]
    ranks.sort(key=lambda rank: -int(rank.max(initial=0)))
    places = np.empty(parent.num_rows, dtype=np.int64)
    places[np.lexsort([np.arange(parent.num_rows), *ranks])] = np.arange(parent.num_rows)
    return places


def _ranks(values: pa.ChunkedArray) -> Numbers:
    """Return the rank of each row's value among all values; NULL is a value of its own, the last."""
    series = values.to_pandas()
    present = series.notna().to_numpy()
    values_of, found = np.unique(series[present].to_numpy(), return_inverse=True)
    ranks = np.full(len(series), len(values_of), dtype=np.int64)
    ranks[present] = found
    return ranks


def _intervals(ranks: Numbers, often: Array) -> Numbers:
    """Return a code for each rank, in order; neighbours share one where there are too many."""
    if ranks.max() < MAX_PUBLIC_CODES:
        return dense(ranks)
    held = np.bincount(ranks, often)
    block = ((np.cumsum(held) - held / 2) * MAX_PUBLIC_CODES).astype(np.int64)
    return dense(np.minimum(block, MAX_PUBLIC_CODES - 1)[ranks])


def _values(ranks: Numbers, often: Array) -> Numbers:
    """Return a code for each value of a list; those that are referred to least share the last where there are too many.

    Of values that are referred to as often, those of more rows come first.
    """
    if ranks.max() < MAX_PUBLIC_CODES:
        return dense(ranks)
    order = np.lexsort((-np.bincount(ranks), -np.bincount(ranks, often)))
    code = np.full(len(order), MAX_PUBLIC_CODES - 1, dtype=np.int64)
    code[order[: MAX_PUBLIC_CODES - 1]] = np.arange(MAX_PUBLIC_CODES - 1)
    return dense(code[ranks])


def _by_position(code_of: Numbers, *, optional: bool, ordered: bool) -> Discretizer:
    """Return the discretizer of row positions that gives each row its code: a cell for each run of equal codes."""
    starts = np.flatnonzero(np.diff(code_of, prepend=-1))
    grid = Grid.of(Column(ROW, ColumnType.INTEGER), "")
    codec = OrderedCodec(grid, False, tuple(starts.tolist()), len(code_of) - 1)
    size = int(code_of.max()) + 1
    cells = np.zeros(codec.size, dtype=np.int64)
    cells[: len(starts)] = code_of[starts]
    if optional:
        cells[codec.below] = size
    return Discretizer(codec, Binning.even(cells, size if ordered else 0))
