"""Public parents: attributes of what a row refers to, as codings of the positions of public rows.

The rows are public, and which one a private row refers to is what a view may look at (`ParentRow`): so any function of
the position is a column of the view, whatever the type of the attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.grid import Grid
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.estimate.denoising import onto_simplex, shrink_haar
from privbench_core.guards import FITTING_ROUNDS, MAX_PUBLIC_CODES, MAX_RUNS, TINY
from privbench_core.models.lookup import ROW, TARGET
from privbench_core.models.popularity import ByRow
from privbench_core.models.profile import Profile
from privbench_core.models.targets import coded_by_position, marginals_of
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Feature, ParentRow
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


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
        found = {}
        for column in self.table.attributes:
            values = _ranks(self.rows.column(column.name))
            ordered = column.type.ordered
            if not ordered and 2 * values.max() >= len(values):  # as good as one for each row
                continue
            codes = _intervals(values, often) if ordered else _values(values, often)
            if codes.max() > 0 and np.count_nonzero(np.diff(codes)) < MAX_RUNS:
                found[f"{TARGET}{column.name}"] = _by_position(codes, optional=optional, ordered=ordered)
        place = self.place if len(often) < MAX_RUNS else np.arange(len(often))
        blocks = _intervals(place, often)
        return {**found, ROW: _by_position(blocks, optional=optional, ordered=False)}


def fitted_to_attributes(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    targets: Mapping[str, Discretizer],
    popularity: tuple[ByRow, float],
    price: Price,
) -> ByRow:
    """How often the rows of a public parent are referred to, by what its attributes are referred to, for ``price``.

    Each row is counted at the noise of one count; an attribute that many rows share is counted at that noise once. What
    it was counted to be is believed as far as noise does not explain how it differs from the sum of its rows; then
    these are fitted to all attributes in turn.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        key: Refers to the public table.
        child: Released profile of the table that has the key.
        targets: Codings of the positions of the public rows.
        popularity: How often each row is referred to, as far as known, and the share of rows that refer to none.
        price: Of everything here.
    """
    single, none = popularity
    attributes = [name for name in targets if name != ROW]
    if not attributes or price.amount <= 0:
        return single
    features: dict[str, tuple[Feature, Discretizer]] = {name: (ParentRow(key), targets[name]) for name in attributes}
    view = session.view(ViewSpec(key.child, features, (child.size.rows_per_unit,)), "references")
    noisy = view.measure("attributes", [Marginal((name,)) for name in attributes], price)
    total, counts = child.one_way.total, single.counts
    codes, known = coded_by_position(targets, len(counts)), marginals_of(targets, counts, none)
    wanted = {
        name: onto_simplex(shrink_haar(found, noisy.sigma, known[name] * total), total)
        for name, found in zip(attributes, noisy.values, strict=True)
    }
    for _ in range(FITTING_ROUNDS):
        for name, marginal in wanted.items():
            current = np.bincount(codes[name], counts, len(marginal))
            counts = counts * np.divide(marginal, current, out=np.zeros_like(marginal), where=current > 0)[codes[name]]
    return ByRow(counts * (single.counts.sum() / counts.sum())) if counts.any() else single


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
        return _dense(ranks)
    held = np.bincount(ranks, often)
    block = ((np.cumsum(held) - held / 2) * MAX_PUBLIC_CODES).astype(np.int64)
    return _dense(np.minimum(block, MAX_PUBLIC_CODES - 1)[ranks])


def _values(ranks: Numbers, often: Array) -> Numbers:
    """Return a code for each value of a list; those that are referred to least share the last where there are too many.

    Of values that are referred to as often, those of more rows come first.
    """
    if ranks.max() < MAX_PUBLIC_CODES:
        return _dense(ranks)
    order = np.lexsort((-np.bincount(ranks), -np.bincount(ranks, often)))
    code = np.full(len(order), MAX_PUBLIC_CODES - 1, dtype=np.int64)
    code[order[: MAX_PUBLIC_CODES - 1]] = np.arange(MAX_PUBLIC_CODES - 1)
    return _dense(code[ranks])


def _dense(codes: Numbers) -> Numbers:
    return np.asarray(np.unique(codes, return_inverse=True)[1], dtype=np.int64)


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
    shares = 1 / np.bincount(cells)[cells]
    return Discretizer(codec, Binning(tuple(cells.tolist()), tuple(shares.tolist()), size if ordered else 0))
