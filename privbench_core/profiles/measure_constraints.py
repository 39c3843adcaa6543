"""Find what holds between the columns of each row: candidates by types and released numbers, one priced count for each.

Rows that keep a candidate, and rows that do not, are counted once per unit: noise is least then, and what always holds
holds for every unit. No more is paid than tells a constraint that holds from one that one row in twenty breaks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, takewhile

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.grid import Grid
from privbench_core.columns.group_codes import index_coder
from privbench_core.columns.row_constraints import (
    SATISFIED,
    VERDICTS,
    VIOLATED,
    Numbers,
    can_be_equal,
    can_be_part,
    expected_numbers,
    numbers_of,
)
from privbench_core.estimators.fitting import fit_margins
from privbench_core.guards import FEW, FITTING_ROUNDS, MAX_CONSTRAINTS, SCREENED, SHOWN_DEVIATIONS, SMOOTHING, TINY
from privbench_core.marginals.measure_one_way import noise_power
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Satisfies
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.profile import Profile
from privbench_core.schema.row_constraints import DatePart, MissingTogether, PartOfDate, RowConstraint, SameValue
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
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


@dataclass(frozen=True)
class _Candidate:
    """A constraint that may hold.

    Attributes:
        constraint: It.
        share: Of the rows that keep it if it holds, as far as is known.
        bar: Share of the rows that may break it, for all that is known, where it is taken to hold: of values, one in
            ten of those that keep it; of NULLs, half of those that would if columns were independent.
        order: Those that are more plausible come first.
    """

    constraint: RowConstraint
    share: float
    bar: float
    order: tuple[float, ...]


def measure_constraints(
    session: PrivateSession, table: Table, profile: Profile, price: Price
) -> tuple[tuple[RowConstraint, ...], Price]:
    """Return the constraints of a table's rows that hold beyond noise, for at most ``price``, and what was paid.

    Nothing is paid where nothing is plausible, or where noise would hide it: each candidate gets what its noise has to
    be, as long as there is enough. It is taken to hold if what breaks it, its noisy number and twice its standard
    deviation, is less than what keeps it and less than what may break it (`_Candidate.bar`).

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    found = sorted(_candidates(table, profile), key=lambda each: each.order)[:MAX_CONSTRAINTS]
    paid = 0.0
    if not found or price.amount <= 0:
        return (), price.share(0)
    units = profile.size.rows if profile.size.units is None else float(profile.size.units_of.sum())
    coder = index_coder("#verdict", VERDICTS)
    features = {str(n): (Satisfies(each.constraint), coder) for n, each in enumerate(found)}
    view = session.view(ViewSpec(table.name, dict(features)), "constraints")
    noise, power = view.sigma([Marginal(("0",))], price), noise_power(price.measure)
    shares: dict[str, float] = {}
    for name, each in zip(features, found, strict=True):
        wanted = min(each.bar, each.share) * units / (2 * SHOWN_DEVIATIONS)
        share = min(noise / max(wanted, TINY), 1 / SMOOTHING) ** (1 / power)
        if paid + share <= 1:
            shares[name], paid = share, paid + share
    if not shares:
        return (), price.share(0)
    more = min(2 ** (1 / power), 1 / paid)  # half the noise, where there is enough for that
    view.expect([Marginal((name,)) for name in shares])
    kept: dict[RowConstraint, float] = {}
    for name, share in shares.items():
        noisy, each = view.measure("constraint", [Marginal((name,))], price.share(more * share)), found[int(name)]
        broken, keeping = (max(float(noisy.values[0][verdict]), 0.0) for verdict in (VIOLATED, SATISFIED))
        if broken + SHOWN_DEVIATIONS * noisy.sigma <= min(each.bar * units, keeping):
            kept[each.constraint] = broken / keeping
    return _settled(sorted(kept, key=kept.__getitem__)), price.share(more * paid)


def _settled(found: list[RowConstraint]) -> tuple[RowConstraint, ...]:
    """Return constraints, best first, without those that give another value to a column, in order of computation.

    A column is computed from one other, and what is computed comes after what it is computed from.
    """
    values = [each for each in found if not isinstance(each, MissingTogether)]
    first = {each.column: each for each in reversed(values)}
    settled: list[RowConstraint] = [each for each in found if isinstance(each, MissingTogether)]
    done: set[str] = set()
    waiting = list(first.values())
    while waiting:  # the base of a number is a date, and of two equal columns the one before
        ready = [each for each in waiting if each.of in done or each.of not in first]
        settled += ready
        done |= {each.column for each in ready}
        waiting = [each for each in waiting if each not in ready]
    return tuple(settled)


def _candidates(table: Table, profile: Profile) -> Iterator[_Candidate]:
    """Yield constraints that may hold, by types, names and what was released of each column."""
    columns = [c for c in table.attributes if c.relative is None and c.name in profile.discretizers]
    drawn = _Drawn(table, profile)
    yield from _missing(profile, [column.name for column in columns if column.nullable])
    for of, column in permutations(columns, 2):
        if can_be_part(column, of):
            named = _parts(column.name)
            for part in named or DatePart:
                order = 0.0 if named else 1.0, -_alike(column.name, of.name)
                yield from drawn.candidates(PartOfDate(column.name, of.name, part), order)
    for of, column in combinations(columns, 2):
        if can_be_equal(column, of):
            yield from drawn.candidates(SameValue(column.name, of.name), (2.0,))


def _missing(profile: Profile, names: list[str]) -> Iterator[_Candidate]:
    """Yield neighbouring columns that may be NULL together, and the first of such groups that may be."""
    nulls: dict[str, tuple[float, float]] = {}
    for name in names:
        code = _null_code(profile.discretizers[name])
        counts, sigmas = profile.one_way.column(name)
        if code is not None and counts[code] > TUNING.significant * sigmas[code]:
            nulls[name] = float(counts[code]), float(sigmas[code])

    def alike(one: str, other: str) -> bool:
        (first, noise), (second, more) = nulls[one], nulls[other]
        return abs(first - second) <= TUNING.significant * math.hypot(noise, more)

    runs: list[list[str]] = []
    for name in nulls:
        if runs and alike(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    groups = [tuple(run) for run in runs if len(run) > 1]
    leads = [run[0] for run in runs]
    for place, lead in enumerate(leads):
        before = [other for other in leads[:place] if alike(other, lead)]
        groups += [(other, lead) for other in before[-1:]]
    for group in groups:
        shares = np.clip([nulls[name][0] / max(profile.total, 1.0) for name in group], 0.0, 1.0)
        some = 1 - np.prod(1 - shares) - np.prod(shares)
        yield _Candidate(MissingTogether(group), float(shares.min()), float(some) / 2, (0.5, -len(group)))


def _null_code(coder: Discretizer) -> int | None:
    """Return the code of NULL; None if there is none."""
    return None if coder.codec.null is None else int(coder.shares[0][coder.codec.null])


class _Drawn:
    """Values drawn from what was released of each column by itself: always the same ones."""

    def __init__(self, table: Table, profile: Profile) -> None:
        self._table, self._discretizers = table, profile.discretizers
        self._clean = profile.one_way.clean()
        self._values: dict[str, pa.Array] = {}
        self._numbers: dict[str, Array] = {}

    def present(self, name: str) -> float:
        """Return the share of the rows in which a column is not NULL."""
        code, counts = _null_code(self._discretizers[name]), self._clean[name]
        return 1.0 if code is None else 1 - float(counts[code] / max(counts.sum(), 1.0))

    def values(self, name: str) -> pa.Array:
        """Return values of a column."""
        if name not in self._values:
            counts, rng = self._clean[name], np.random.default_rng(0)
            codes = rng.choice(len(counts), SCREENED, p=counts / counts.sum())
            self._values[name] = self._discretizers[name].decode(codes, rng)
        return self._values[name]

    def numbers(self, name: str) -> Array:
        """Return numbers of a column, in order."""
        if name not in self._numbers:
            self._numbers[name] = _in_order(*numbers_of(self._table.column(name), self.values(name)))
        return self._numbers[name]

    def candidates(self, constraint: PartOfDate | SameValue, order: tuple[float, ...]) -> Iterator[_Candidate]:
        """Yield a candidate unless both columns have other distributions than they would if it held."""
        apart = self.distance(constraint)
        if apart <= TUNING.least_share:
            share = self.present(constraint.column) * self.present(constraint.of)
            yield _Candidate(constraint, share, TUNING.least_share * share, (*order, apart))

    def distance(self, constraint: PartOfDate | SameValue) -> float:
        """Return the largest difference of cumulative shares between a column and what a constraint makes of another.

        Kolmogorov's distance; 1 where one of them has no values.
        """
        values = {constraint.of: self.values(constraint.of)}
        one, other = self.numbers(constraint.column), _in_order(*expected_numbers(self._table, constraint, values))
        if not len(one) or not len(other):
            return 1.0
        points = np.concatenate([one, other])
        shares = [np.searchsorted(each, points, side="right") / len(each) for each in (one, other)]
        return float(np.abs(shares[0] - shares[1]).max())


def constraint_joints(table: Table, profile: Profile) -> dict[tuple[str, str], Array]:
    """Return counts of the pairs of columns of which one is computed from the other, by their released margins."""
    clean, found = profile.one_way.clean(), {}
    for constraint in profile.constraints:
        if isinstance(constraint, MissingTogether):
            continue
        of, own = (profile.discretizers[name] for name in (constraint.of, constraint.column))
        first, second = clean[constraint.of], clean[constraint.column]
        codes = np.repeat(np.arange(of.size), SCREENED // of.size + 1)
        values = of.decode(codes, np.random.default_rng(0))
        expected, unknown = expected_numbers(table, constraint, {constraint.of: values})
        grid = Grid.of(table.column(constraint.column))
        made = own.encode(pa.chunked_array([grid.array(expected[~unknown])]))
        pairs = np.bincount(codes[~unknown] * own.size + made, minlength=of.size * own.size)
        chances = pairs.reshape(of.size, own.size) / np.maximum(np.bincount(codes), 1)[:, None]
        independent = np.outer(first, second) / max(float(second.sum()), 1.0)
        told = np.bincount(codes[~unknown], minlength=of.size) > 0
        start = first[:, None] * chances + np.where(told, FEW, 1.0)[:, None] * independent
        margins = [((0,), first), ((1,), second)]
        found[constraint.of, constraint.column] = fit_margins(start, margins, FITTING_ROUNDS)
    return found


def _parts(name: str) -> tuple[DatePart, ...]:
    """Return the parts of a date that a column may be, by its name."""
    return next((parts for words, parts in _PARTS if re.search(words, name, re.IGNORECASE)), ())


def _alike(one: str, other: str) -> int:
    """Return how many letters two names begin with in common."""
    pairs = zip(one.lower(), other.lower(), strict=False)
    return sum(1 for _ in takewhile(lambda letters: letters[0] == letters[1], pairs))


def _in_order(numbers: Numbers, null: NDArray[np.bool_]) -> Array:
    return np.sort(numbers[~null].astype(np.float64))
