"""A profile, as released: how a table's attributes are coded, and how often each code occurs.

Points in time are its dates, times and years. A column that is coded as its difference from another one of the row is
one as well: the sum of the two, taken to be independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.lags import far_from_zero
from privbench_core.estimators.segmentation import SIGNIFICANT
from privbench_core.guards import HIDDEN_PARTS, SHOWN_DEVIATIONS, TINY
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.features import Feature, OfParent, Own
from privbench_core.profiles.lags import Lag, Ties
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.row_constraints import RowConstraint
from privbench_core.schema.tables import Table
from privbench_core.stored import Storable
from privbench_core.tuning import TUNING
from privbench_core.units.row_count import RowCount


@dataclass(frozen=True)
class Profile(Storable):
    """Released: how a table's attributes are coded, and how often each code occurs.

    Attributes:
        discretizers: Column -> discretizer.
        one_way: Noisy counts of the codes: of as many rows as there are if units with more than ``size.rows_per_unit``
            have so many, but distributed like all rows.
        size: Of the table.
        by_size: Column -> joint of the class of the number of rows of a row's unit (`RowCount.classes`) and its code.
        guessed: Column -> what is assumed of its values, where noise hid the domain that was to be learned.
        lags: How far dates of a row are from earlier ones in it, where that is another thing than chance.
        ties: How often rows of one owner have the same date or number, where noise leaves something of it.
        relatives: Dates that are coded as differences from another one of the row -> that one.
        constraints: What holds between the columns of each row, in the order in which columns follow from others.
    """

    discretizers: Mapping[str, Discretizer]
    one_way: OneWay
    size: RowCount
    by_size: Mapping[str, Array] = field(default_factory=dict)
    guessed: Mapping[str, str] = field(default_factory=dict)
    lags: tuple[Lag, ...] = ()
    ties: tuple[Ties, ...] = ()
    relatives: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[RowConstraint, ...] = ()

    def own(self, names: Iterable[str] | None = None) -> dict[str, tuple[Feature, Discretizer]]:
        """Return coded columns of a row, all or some of them, as a view of the table has them."""
        return {name: (Own(name), self.discretizers[name]) for name in (self.discretizers if names is None else names)}

    def of_owner(self, key: ForeignKey) -> dict[str, tuple[Feature, Discretizer]]:
        """Return the columns of an owner along a key, as a view of its children has them: see `parent_column`."""
        return {parent_column(name): (OfParent(key, name), coder) for name, coder in self.discretizers.items()}

    @property
    def hidden(self) -> tuple[str, ...]:
        """The columns of which noise leaves nothing: their domain, or one code of rows whose quarters it would hide."""
        found = list(self.guessed)
        for name, coder in self.discretizers.items():
            if name not in self.guessed and coder.codec.size > 1 == coder.size:
                parts = min(coder.codec.size, HIDDEN_PARTS)
                if self.total <= SIGNIFICANT * float(self.one_way.sigmas[name][0]) * math.sqrt(parts):
                    found.append(name)
        return tuple(found)

    @property
    def made_up(self) -> dict[str, float]:
        """Column -> share of its rows, by the released counts, whose values are made up: too few units share them."""
        found = {}
        for name, discretizer in self.discretizers.items():
            codec, binning = discretizer.codec, discretizer.binning
            if not isinstance(codec, CategoricalCodec) or codec.made is None or codec.other is None:
                continue
            code, share = (0, 1.0) if binning is None else (binning.code_of[codec.other], binning.weights[codec.other])
            counts = np.maximum(self.one_way.counts[name], 0.0)
            found[name] = float(counts[code] * share / max(float(counts.sum()), 1.0))
        return found

    @property
    def all_noise(self) -> bool:
        """Whether the released numbers show that they say nothing about the table: its rows, or all of its columns."""
        rows_show = self.size.rows > SIGNIFICANT * self.size.sigma
        return not rows_show or 0 < self._comparable == len(self.hidden)

    @property
    def noise_in_words(self) -> str:
        """How many rows, more or less, and how many columns noise hides."""
        rows = f"{max(0, round(self.size.rows)):,} ± {round(SHOWN_DEVIATIONS * self.size.sigma):,} rows"
        return f"{rows}; noise hides {len(self.hidden)} of {self._comparable} columns" if self.hidden else rows

    @property
    def _comparable(self) -> int:
        """Number of columns of which something was to be measured."""
        codecs = {name: discretizer.codec for name, discretizer in self.discretizers.items()}
        several = {name for name, codec in codecs.items() if codec.size > 1 or isinstance(codec, CategoricalCodec)}
        return len(several.union(self.guessed))

    @property
    def total(self) -> float:
        """Noisy number of rows, counted as in ``one_way``."""
        return self.one_way.total

    @property
    def shapes(self) -> dict[str, Array]:
        """Distributions of columns in each class of ``by_size``, shapes (classes, codes)."""
        return {name: joint / joint.sum(axis=1, keepdims=True) for name, joint in self.by_size.items()}

    @property
    def counted(self) -> OneWay:
        """``one_way`` distributed like the rows that were counted: what joints of these are to be compared with."""
        return self.one_way.moved({name: -shift for name, shift in self.truncation_biases().items()})

    def truncation_biases(self) -> dict[str, Array]:
        """Return what counts of up to ``size.rows_per_unit`` rows of a unit leave out: `RowCount.truncation_bias`."""
        counted = self.size.counted(self.size.rows_per_unit)
        return {name: self.size.truncation_bias(shape, counted) for name, shape in self.shapes.items()}


OWN_FANOUT = "#children"
OWNER_FANOUT = "#siblings"
PLACE = "#place"
PARENT = "parent."


def children_column(key: str) -> str:
    """Return the name, among a parent's columns, of the number of its children along another owner key."""
    return f"{OWN_FANOUT} along {key}"


def parent_column(name: str) -> str:
    """Return the name of a parent's column in the context of its children."""
    return f"{PARENT}{name}"


Point: TypeAlias = tuple[Discretizer, Array]
"""The coder of a point in time, and counts or shares of the rows by its codes; rows without an owner may follow."""


def relative_dates(table: Table) -> dict[str, str]:
    """Return the points in time of a table that are coded as differences from another one of the row: public."""
    return {
        column.name: base.name
        for column, base in table.relatives
        if column.type.logical.calendar and base.name not in table.owner_bases
    }


def points_in_time(profile: Profile, counts: Mapping[str, Array]) -> dict[str, Point]:
    """Return the points in time of a table by column, given counts or shares of rows by the codes of all columns."""
    found = {
        name: (coder, counts[name])
        for name, coder in profile.discretizers.items()
        if name not in profile.relatives
        and isinstance(codec := coder.codec, OrderedCodec)
        and (codec.grid.logical.calendar or far_from_zero(codec))  # a date, a time, or a number that may be a year
    }
    waiting = [name for name in profile.relatives if name in profile.discretizers]
    for name in waiting:  # a base stands before what is relative to it
        base = found.get(profile.relatives[name])
        summed = None if base is None else _sum(base, (profile.discretizers[name], counts[name]))
        if summed is not None:
            found[name] = summed
    return {name: found[name] for name in profile.discretizers if name in found}


def _sum(base: Point, difference: Point) -> Point | None:
    """Return the point in time that lies a difference above another one, in cells of the same width."""
    codec = base[0].codec
    if not isinstance(codec, OrderedCodec):
        return None
    (first, of_first), (second, of_second) = _cells(base), _cells(difference)
    grid = replace(codec.grid, step=1, origin=0)
    low, high = (min(max(int(first[end] + second[end]), grid.extent[0]), grid.extent[1]) for end in (0, -1))
    width = max(1, -((low - high - 1) // TUNING.cells))
    cuts = range(low, high + 1, width)
    middles = np.clip((first[:, None] + second) - low, 0, high - low) // width
    rows = np.bincount(middles.ravel(), np.outer(of_first, of_second).ravel(), len(cuts))
    total, known = float(difference[1].sum()), float(of_second.sum())
    ordered = rows * (known / max(float(rows.sum()), TINY))
    of_codes = np.concatenate([ordered, [0, 0, max(total - known, 0.0)]])
    return Discretizer(OrderedCodec(grid, True, tuple(cuts), high)), of_codes


def _cells(point: Point) -> tuple[NDArray[np.int64], Array]:
    """Return the middle of each cell of a point in time, or a difference, as numbers of its type, and its rows."""
    coder, counts = point
    codec, (code_of, shares) = coder.codec, coder.shares
    if not isinstance(codec, OrderedCodec):
        return np.zeros(1, np.int64), np.zeros(1)
    rows = counts[code_of] * shares
    ends = codec.starts.astype(np.int64), codec.ends.astype(np.int64)
    middles = (ends[0] + (ends[1] - ends[0]) // 2) * codec.grid.step + codec.grid.origin
    inside = rows[: codec.ordered]
    inside[0] += rows[codec.below]
    inside[-1] += rows[codec.above] if codec.sentinel is None else 0.0
    return middles, inside
