"""Which constraints between the columns of a row may hold, by their types, names and released distributions.

If one holds, columns have distributions that agree with it; so what does not is left out at no cost.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, takewhile

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.row_constraints import (
    LISTS,
    Numbers,
    can_be_computed,
    can_be_equal,
    can_be_part,
    can_hold,
    expected_numbers,
    numbers_of,
    reals_of,
    rounding_of,
)
from privbench_core.guards import SCREENED, TINY
from privbench_core.profiles.profile import Profile
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.row_constraints import (
    MOST_PARTS,
    DatePart,
    Formula,
    InOrder,
    MissingTogether,
    MissingWhere,
    PartOfDate,
    RowConstraint,
    SameValue,
)
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING

_PARTS = (
    (r"year|yr", (DatePart.YEAR,)),
    (r"quarter|qtr", (DatePart.QUARTER,)),
    (r"month|mon", (DatePart.MONTH,)),
    (
        r"week.?day|dow|day.?of.?week",
        (
            DatePart.WEEKDAY_FROM_MONDAY,
            DatePart.WEEKDAY_ISO,
            DatePart.WEEKDAY_FROM_SUNDAY,
            DatePart.WEEKDAY_FROM_SUNDAY_1,
        ),
    ),
    (
        r"week|wk",
        (DatePart.WEEK, DatePart.WEEK_FROM_SUNDAY, DatePart.WEEK_FROM_MONDAY, DatePart.SEVEN_DAYS),
    ),
    (r"day.?of.?year|doy|yday", (DatePart.DAY_OF_YEAR,)),
    (r"day|dom", (DatePart.DAY,)),
    (r"hour|hr", (DatePart.HOUR,)),
)
"""What names say of which part of a date a number is; the first counts."""


_TOTALS = r"tot|sum|gross|overall|combined|all"
_PRODUCTS = r"total|amount|amt|value|cost|sales|revenue|turnover|price|net|gross"
_COUNTS = r"qty|quantity|units|count|number|num|hours|days|items|pieces|rate|percent|pct"


@dataclass(frozen=True)
class Candidate:
    """A constraint that may hold.

    Attributes:
        constraint: It.
        share: Of the rows that keep it if it holds, as far as is known.
        bar: Share of the rows that may break it, for all that is known, where it is taken to hold: half of those that
            would if columns were independent, and of values one in ten of those that keep it at most.
        order: Those that are more plausible come first.
    """

    constraint: RowConstraint
    share: float
    bar: float
    order: tuple[float, ...]

    @property
    def likely(self) -> bool:
        """Whether its names, or as many NULLs in several columns, speak for it: others share a part of the price."""
        return self.order[0] < 1


def candidates(table: Table, profile: Profile) -> Iterator[Candidate]:
    """Yield constraints that may hold, by types, names and what was released of each column."""
    columns = [c for c in table.attributes if c.relative is None and c.name in profile.discretizers]
    drawn = _Drawn(table, profile)
    yield from _missing(profile, columns)
    columns = [c for c in columns if c.type.ordered and drawn.varies(c.name)]
    for of, column in permutations(columns, 2):
        if can_be_part(column, of):
            is_date = column.type is ColumnType.DATE
            named = () if is_date else _parts(column.name)
            most = TUNING.strong if named else TUNING.least_share
            for part in named or DatePart:
                order = 0.0 if named or is_date else 1.0, -_common_start(column.name, of.name)
                constraint = PartOfDate(column.name, of.name, part)
                if can_hold(constraint, (column, of)):
                    yield from drawn.candidates(constraint, most, order)
    for of, column in combinations(columns, 2):
        if can_be_equal(column, of):
            yield from drawn.candidates(SameValue(column.name, of.name), TUNING.least_share, (2.0,))
    for first, last in permutations(columns, 2):
        if can_be_equal(first, last) and _comparable(first, last):
            yield from drawn.ordered(InOrder(first.name, last.name), 0.7 if first.type.logical.calendar else 1.2)
    yield from _formulas([column for column in columns if can_be_computed(column)], drawn)


def _formulas(numbers: Sequence[Column], drawn: _Drawn) -> Iterator[Candidate]:
    """Yield sums of columns that stand side by side, and products of two.

    A sum stands beside its parts or is called a total; that of many parts does both.
    """
    for size in range(2, len(numbers)):
        for start in range(len(numbers) - size + 1):
            parts = numbers[start : start + size]
            beside = [*numbers[max(start - 1, 0) : start], *numbers[start + size : start + size + 1]]
            many = size > MOST_PARTS
            for total in beside if many else numbers:
                named = re.search(_TOTALS, total.name, re.IGNORECASE) is not None
                if total not in parts and (named or (total in beside and not many)):
                    yield from drawn.formula(total, parts, product=False, named=named)
    for total in numbers:
        named = re.search(_PRODUCTS, total.name, re.IGNORECASE) is not None
        for pair in combinations(numbers, 2):
            counted = any(re.search(_COUNTS, each.name, re.IGNORECASE) for each in pair)
            if named and counted and total not in pair:
                yield from drawn.formula(total, pair, product=True, named=True)


def _missing(profile: Profile, columns: Sequence[Column]) -> Iterator[Candidate]:
    """Yield neighbouring columns that may be NULL together, the first of such groups that may be, and where it is."""
    nulls: dict[str, tuple[float, float]] = {}
    for name in (column.name for column in columns if column.nullable):
        code, part = null_of(profile.discretizers[name])
        counts, sigmas = profile.one_way.column(name)
        if counts[code] * part > TUNING.significant * sigmas[code]:
            nulls[name] = float(counts[code]) * part, float(sigmas[code])

    def corresponds(one: str, other: str) -> bool:
        (first, noise), (second, more) = nulls[one], nulls[other]
        return abs(first - second) <= TUNING.significant * math.hypot(noise, more)

    runs: list[list[str]] = []
    for name in nulls:
        if runs and corresponds(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    groups = [tuple(run) for run in runs if len(run) > 1]
    leads = [run[0] for run in runs]
    for place, lead in enumerate(leads):
        before = [other for other in leads[:place] if corresponds(other, lead)]
        groups += [(other, lead) for other in before[-1:]]
    for group in groups:
        shares = np.clip([nulls[name][0] / max(profile.total, 1.0) for name in group], 0.0, 1.0)
        some = 1 - np.prod(1 - shares) - np.prod(shares)
        yield Candidate(MissingTogether(group), float(shares.min()), float(some) / 2, (0.5, -len(group)))
    for run in runs:
        lists = [column.name for column in columns if column.type in LISTS and column.name not in run]
        yield from _missing_where(profile, run[0], lists, *nulls[run[0]])


def _missing_where(
    profile: Profile, column: str, lists: Sequence[str], null: float, sigma: float
) -> Iterator[Candidate]:
    """Yield one or two values of each list that occur as often as a column is NULL, or as often as it is not.

    The more sets of values are compared, and the larger the noise, the more of them agree by accident.
    """
    total, tried = profile.total, 0.0
    found: list[tuple[MissingWhere, int]] = []
    for name in lists:
        values = _single_values(profile.discretizers[name])
        counts, sigmas = (each[[*values]] for each in profile.one_way.column(name))
        single, (one, other) = np.arange(len(values)), np.triu_indices(len(values), 1)
        sets = np.stack([np.append(single, one), np.append(single, other)])  # a value is a pair with itself
        sizes = 1 + (sets[0] != sets[1])
        sums = counts[sets].sum(axis=0) * sizes / 2
        noise = np.sqrt(sigma**2 + (sigmas[sets] ** 2).sum(axis=0) * sizes / 2)
        tried += float(np.minimum(4 * TUNING.significant * noise / max(total, 1.0), 1.0).sum())
        for is_null, wanted in ((True, null), (False, total - null)):
            apart = np.abs(sums - wanted) / np.maximum(noise, TINY)
            agreeing = np.flatnonzero((apart <= TUNING.significant) & (sums > TUNING.significant * noise))
            for place in agreeing[np.lexsort((apart[agreeing], sizes[agreeing]))][:1]:
                texts = tuple(dict.fromkeys(values[[*values][each]] for each in sets[:, place]))
                found.append((MissingWhere(column, name, texts, is_null), len(texts)))
    share = min(null / max(total, 1.0), 1.0)
    for constraint, size in found:
        bar = _bar(2 * share * (1 - share))
        yield Candidate(constraint, 1.0, bar, (0.6 if tried < TUNING.strong else 1.6, size))


def _single_values(coder: Discretizer) -> dict[int, str]:
    """Return the value of each code that has a single one, of a list, as text."""
    if not isinstance(coder.codec, CategoricalCodec):
        return {}
    labels, code_of = coder.codec.value_labels(), coder.shares[0]
    alone = np.bincount(code_of)[code_of] == 1
    return {int(code_of[cell]): labels[cell] for cell in range(len(coder.codec.values)) if alone[cell]}


def null_of(coder: Discretizer) -> tuple[int, float]:
    """Return the code of NULL, which noise may have merged with others, and the share of its rows that are NULL."""
    if coder.codec.null is None:
        return 0, 0.0
    code_of, shares = coder.shares
    return int(code_of[coder.codec.null]), float(shares[coder.codec.null])


class _Drawn:
    """Values drawn from what was released of each column by itself: always the same ones."""

    def __init__(self, table: Table, profile: Profile) -> None:
        self._table, self._discretizers = table, profile.discretizers
        self._clean = profile.one_way.clean()
        self._values: dict[str, pa.Array] = {}
        self._numbers: dict[str, Array] = {}

    def present(self, name: str) -> float:
        """Return the share of the rows in which a column is not NULL."""
        (code, part), counts = null_of(self._discretizers[name]), self._clean[name]
        return 1 - part * float(counts[code] / max(counts.sum(), 1.0))

    def varies(self, name: str) -> bool:
        """Return whether a column has more than one value: of others, many things hold that mean nothing."""
        numbers = self.numbers(name)
        return len(numbers) > 0 and bool(numbers[0] < numbers[-1])

    def values(self, name: str) -> pa.Array:
        """Return values of a column."""
        if name not in self._values:
            counts, rng = self._clean[name], np.random.default_rng(0)
            steps = (np.arange(SCREENED) + 0.5) / SCREENED  # as many of each code as it has
            codes = np.minimum(np.searchsorted(np.cumsum(counts) / counts.sum(), steps), len(counts) - 1)
            self._values[name] = self._discretizers[name].decode(codes, rng)
        return self._values[name]

    def numbers(self, name: str) -> Array:
        """Return numbers of a column, in order."""
        if name not in self._numbers:
            self._numbers[name] = _in_order(*numbers_of(self._table.column(name), self.values(name)))
        return self._numbers[name]

    def candidates(
        self, constraint: PartOfDate | SameValue, most: float, order: tuple[float, ...]
    ) -> Iterator[Candidate]:
        """Yield a candidate unless both columns have distributions further apart than ``most``; if it held, in none."""
        apart = self.distance(constraint)
        if apart <= most:
            share = self.present(constraint.column) * self.present(constraint.of)
            yield Candidate(constraint, share, _bar(1 - self._agreeing(constraint)) * share, (*order, apart))

    def ordered(self, constraint: InOrder, order: float) -> Iterator[Candidate]:
        """Yield a candidate unless both columns have distributions in another order, or are in order by chance."""
        one, other = self.numbers(constraint.first), self.numbers(constraint.last)
        if not len(one) or not len(other):
            return
        chance = float(np.searchsorted(other, one).mean()) / len(other)
        points = np.concatenate([one, other])
        above = _shares(other, points) - _shares(one, points)
        if chance >= TUNING.least_share >= float(above.max()):
            share = self.present(constraint.first) * self.present(constraint.last)
            yield Candidate(constraint, share, min(TUNING.least_share, chance / 2) * share, (order, -chance))

    def formula(self, total: Column, parts: Sequence[Column], *, product: bool, named: bool) -> Iterator[Candidate]:
        """Yield a candidate unless the mean of a column is far from that of its parts, as if these were independent."""
        whole, *means = (self._mean(column) for column in (total, *parts))
        expected = math.prod(means) if product else math.fsum(means)
        apart = abs(expected - whole) / max(abs(whole), TINY)
        if apart <= (TUNING.strong if product else TUNING.least_share):
            constraint = Formula(total.name, tuple(part.name for part in parts), product, self._within(total))
            share = math.prod(self.present(name) for name in constraint.columns)
            yield Candidate(constraint, share, _bar(self._breaking(constraint)) * share, (0.2 if named else 1.5, apart))

    def _both(self, constraint: PartOfDate | SameValue) -> tuple[Array, Array]:
        """Return numbers of a column, and those that a constraint gives to it, each in order."""
        values = {constraint.of: self.values(constraint.of)}
        return self.numbers(constraint.column), _in_order(*expected_numbers(self._table, constraint, values))

    def _agreeing(self, constraint: PartOfDate | SameValue) -> float:
        """Return the share of rows that keep a constraint by chance: both columns are nearly always zero, say."""
        one, other = self._both(constraint)
        found, numbers = np.unique(one, return_counts=True)
        same = np.searchsorted(other, found, side="right") - np.searchsorted(other, found, side="left")
        return float(numbers @ same) / max(len(one) * len(other), 1)

    def _breaking(self, constraint: Formula) -> float:
        """Return the share of rows that break a formula if its columns are independent."""
        rng, of = np.random.default_rng(0), (constraint.column, *constraint.of)
        drawn = [reals_of(self._table.column(name), self.values(name)) for name in of]
        total, *parts = (rng.permutation(np.where(null, np.nan, numbers)) for numbers, null in drawn)
        made = np.prod(parts, axis=0) if constraint.product else np.sum(parts, axis=0)
        known = ~np.isnan(total - made)
        return float(np.mean(np.abs(total - made)[known] > constraint.within)) if known.any() else 0.0

    def _mean(self, column: Column) -> float:
        numbers, null = reals_of(column, self.values(column.name))
        return float(numbers[~null].mean()) if not null.all() else math.nan

    def _within(self, column: Column) -> float:
        """Return half of what a column's values are rounded to: two digits, of floats of which nothing is known."""
        codec = self._discretizers[column.name].codec
        spacing = codec.grid.spacing if isinstance(codec, OrderedCodec) else None
        return (spacing or 0.01) / 2 if column.type is ColumnType.FLOAT else rounding_of(column)

    def distance(self, constraint: PartOfDate | SameValue) -> float:
        """Return the largest difference of cumulative shares between a column and what a constraint makes of another.

        Kolmogorov's distance; 1 where one of them has no values.
        """
        one, other = self._both(constraint)
        if not len(one) or not len(other):
            return 1.0
        points = np.concatenate([one, other])
        return float(np.abs(_shares(one, points) - _shares(other, points)).max())


def _bar(chance: float) -> float:
    """Return the share of rows that may break a constraint that so many break if columns are independent."""
    return min(TUNING.least_share, chance / 2)


def _parts(name: str) -> tuple[DatePart, ...]:
    """Return the parts of a date that a column may be, by its name."""
    return next((parts for words, parts in _PARTS if re.search(words, name, re.IGNORECASE)), ())


def _common_start(one: str, other: str) -> int:
    """Return how many letters two names begin with in common."""
    pairs = zip(one.lower(), other.lower(), strict=False)
    return sum(1 for _ in takewhile(lambda letters: letters[0] == letters[1], pairs))


def _comparable(first: Column, last: Column) -> bool:
    """Return whether one of two columns may be meant not to be above the other: dates, or numbers with like names."""
    one, other = first.name, last.name
    # Fewer letters than three are in common by chance, not by the meaning of the names.
    same = max(_common_start(one, other), _common_start(one[::-1], other[::-1])) >= 3  # noqa: PLR2004
    return first.type.logical.calendar or (same and not _parts(one) and not _parts(other))


def _shares(numbers: Array, points: Array) -> Array:
    """Return the share of numbers, in order, that are at most each point."""
    return np.searchsorted(numbers, points, side="right") / len(numbers)


def _in_order(numbers: Numbers, null: NDArray[np.bool_]) -> Array:
    return np.sort(numbers[~null].astype(np.float64))
