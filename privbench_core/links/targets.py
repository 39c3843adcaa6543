"""Targets of keys: attributes of parents that references follow.

Those of a public parent are codings of the positions of its rows: the rows are public, and which one a private row
refers to is what a view may look at (`ParentRow`). So any function of the position is a column of the view, whatever
the type of the attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.grid import Grid
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.guards import MAX_PUBLIC_CODES, MAX_RUNS, TINY
from privbench_core.links.fanout import Fanout
from privbench_core.links.link_model import ROW, TARGET, coded_by_position
from privbench_core.privacy.features import Feature, OfParent, ParentFanout
from privbench_core.profiles.names import children_column
from privbench_core.profiles.profile import Profile
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


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


def marginals_of(targets: Mapping[str, Discretizer], counts: Array, none: float) -> dict[str, Array]:
    """Return the probabilities of the codes of a public parent's targets, if its rows are referred to so often.

    Args:
        targets: Codings of the positions of its rows.
        counts: How often each row is referred to, relative to the others, shape (parents,).
        none: Share of rows that refer to none, which is the last code then; 0 where they must refer to one.
    """
    often = counts if counts.any() else np.ones(len(counts))
    found = {}
    for name, codes in coded_by_position(targets, len(counts)).items():
        marginal = np.bincount(codes, often, targets[name].size) * ((1 - none) / often.sum())
        marginal[-1] += none
        found[name] = marginal
    return found


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
