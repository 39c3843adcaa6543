"""Paired comparisons: what the same seeds make of two states of the code, as ratios with their standard errors.

A figure's change is the mean over seeds of ln(after / before); its standard error is that of the paired differences, so
what both states owe to the same noise cancels out. Databases are a fixed list, not a sample of one: the error of their
mean is what chance of seeds leaves of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, stdev

FIGURES = {
    "rows": "rows",
    "columns": "single columns",
    "pairs": "pairs in a table",
    "triples": "triples in a table",
    "joined": "joined pairs",
    "further": "two keys apart",
    "fanout": "fanout",
    "popularity": "popularity",
    "means": "means",
    "siblings": "siblings",
    "q_median": "Q-error, median",
    "q_95th": "Q-error, 95th",
}
"""Title of each figure, all of them smaller where the synthetic database is better."""
NO_DISTANCE = 1e-3
"""Figures below this count as this: what is left of a distance then is the chance of drawing thousands of rows."""
ON_A_CASE, ON_ALL = 0.05, 0.03
"""What a mechanism has to gain, on a case that it was declared for or on the mean of all databases."""
FEWEST_PAIRS = 8
"""Fewer seeds say too little of their own spread for a verdict."""
_ERRORS = 2.0  # standard errors that a gain has to exceed


@dataclass(frozen=True)
class Side:
    """A state of the code.

    Attributes:
        code: Fingerprint of its sources.
        off: The mechanisms that are left out, joined by "+"; "" for none.
        patch: Fingerprint of what leaves them out.
    """

    code: str
    off: str = ""
    patch: str = ""


@dataclass(frozen=True)
class Cell:
    """What a run is of, whichever the state of the code.

    Attributes:
        database: Its name.
        case: Fingerprint of its rows, its spec, its queries and of the code that measures.
        epsilon: ε.
        delta: δ.
        seed: Of noise and sampling.
        synthesizer: Its name.
    """

    database: str
    case: str
    epsilon: float
    delta: float
    seed: int
    synthesizer: str


@dataclass(frozen=True)
class Change:
    """A mean log-ratio.

    Attributes:
        log: ln(after / before), the mean of the pairs.
        error: Its standard error; NaN for one pair.
        pairs: Number of pairs.
    """

    log: float
    error: float
    pairs: int

    @classmethod
    def of(cls, differences: Sequence[float]) -> Change:
        """Of the log-ratios of pairs, at least one."""
        n = len(differences)
        return cls(fmean(differences), stdev(differences) / math.sqrt(n) if n > 1 else math.nan, n)

    @classmethod
    def mean_of(cls, changes: Sequence[Change]) -> Change:
        """The mean of independent changes, at least one."""
        error = math.sqrt(sum(each.error**2 for each in changes)) / len(changes)
        return cls(fmean(each.log for each in changes), error, min(each.pairs for each in changes))

    @property
    def ratio(self) -> float:
        """After / before."""
        return math.exp(self.log)

    def __neg__(self) -> Change:
        return Change(-self.log, self.error, self.pairs)

    def __str__(self) -> str:
        """The ratio and its standard error.

        >>> print(Change(0.02, 0.03, 8), Change(0.0, math.nan, 1))
        1.02 ± .03 1.00 ± ?
        """
        spread = self.error * self.ratio
        return f"{self.ratio:.2f} ± {'?' if math.isnan(spread) else f'{spread:.2f}'.removeprefix('0')}"


@dataclass(frozen=True)
class Pair:
    """ln(after / before) of one figure with one seed."""

    cell: Cell
    figure: str
    log: float


Runs = Mapping[Side, Mapping[Cell, Mapping[str, float]]]


def pairs_of(runs: Runs, before: Side, after: Side) -> list[Pair]:
    """Return the log-ratios of all figures that both sides have of the same cell, in the order of the runs."""
    others = runs.get(after, {})
    return [
        Pair(cell, name, math.log(max(others[cell][name], NO_DISTANCE) / max(value, NO_DISTANCE)))
        for cell, found in runs.get(before, {}).items()
        if cell in others
        for name, value in found.items()
        if name in FIGURES and name in others[cell]
    ]


def change_of(pairs: Iterable[Pair]) -> Change:
    """Return the mean over databases of the changes of some pairs; pairs of one seed count together."""
    by_database: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_database.setdefault(pair.cell.database, []).append(pair)
    return Change.mean_of([_over_seeds(each) for each in by_database.values()])


def _over_seeds(pairs: Iterable[Pair]) -> Change:
    """The change of one database: figures and budgets with one seed share noise, so they are one difference."""
    by_seed: dict[int, list[float]] = {}
    for pair in pairs:
        by_seed.setdefault(pair.cell.seed, []).append(pair.log)
    return Change.of([fmean(logs) for logs in by_seed.values()])


@dataclass(frozen=True)
class Case:
    """What a mechanism was made for.

    Attributes:
        figure: One of `FIGURES`.
        database: Where; "" for the mean of all databases.
        epsilon: At which ε; None for all.
    """

    figure: str
    database: str = ""
    epsilon: float | None = None

    @classmethod
    def read(cls, text: str) -> Case:
        """From "DATABASE:FIGURE" or "DATABASE:FIGURE@EPSILON"; without a database, of the mean of all.

        Raises:
            ValueError: There is no such figure.
        """
        where, _, what = text.rpartition(":")
        figure, _, epsilon = what.partition("@")
        if figure not in FIGURES:
            raise ValueError(f"{text}: there is no figure {figure!r}; figures are {', '.join(FIGURES)}")
        return cls(figure, where, float(epsilon) if epsilon else None)

    def has(self, pair: Pair) -> bool:
        """Whether a pair is of this case."""
        return (
            pair.figure == self.figure
            and self.database in {"", pair.cell.database}
            and self.epsilon in {None, pair.cell.epsilon}
        )

    def __str__(self) -> str:
        place = self.database or "all databases"
        return f"{place}, {FIGURES[self.figure]}" + ("" if self.epsilon is None else f", ε = {self.epsilon:g}")


class Verdict(StrEnum):
    """What is known of a gain."""

    PAYS = "pays"
    DOES_NOT_PAY = "does not pay"
    UNDECIDED = "undecided"


def verdict_of(gain: Change, least: float) -> Verdict:
    """Judge a gain: it pays if it is ``least`` and more than two standard errors, and does not if it cannot well be.

    Of fewer than `FEWEST_PAIRS` nothing is decided.

    >>> [verdict_of(Change(0.10, error, 8), 0.05).value for error in (0.01, 0.06)]
    ['pays', 'undecided']
    >>> verdict_of(Change(0.0, 0.01, 8), 0.05).value
    'does not pay'
    """
    needed, spread = math.log1p(least), _ERRORS * gain.error
    if gain.pairs < FEWEST_PAIRS:
        return Verdict.UNDECIDED
    if gain.log >= needed and gain.log > spread:
        return Verdict.PAYS
    return Verdict.DOES_NOT_PAY if gain.log + spread < needed else Verdict.UNDECIDED


@dataclass(frozen=True)
class Judged:
    """A case, what was gained on it, and what that means; the gain is None where no run is of it."""

    name: str
    gain: Change | None
    verdict: Verdict


def judge(pairs: Sequence[Pair], cases: Sequence[Case], *, off: bool) -> list[Judged]:
    """Judge each declared case, and the mean of all figures and databases last.

    Args:
        pairs: All of them.
        cases: That were declared.
        off: Whether *after* lacks the mechanism that is judged: then what grows is its gain.
    """
    asked = [(str(case), [pair for pair in pairs if case.has(pair)], ON_A_CASE) for case in cases]
    judged = []
    for name, chosen, least in [*asked, ("mean of all", list(pairs), ON_ALL)]:
        change = change_of(chosen) if chosen else None
        gain = change if change is None or off else -change
        judged.append(Judged(name, gain, Verdict.UNDECIDED if gain is None else verdict_of(gain, least)))
    return judged


def whole_verdict(judged: Iterable[Judged]) -> Verdict:
    """Return the verdict of all cases together: one that pays is enough, and all have to fail."""
    found = {each.verdict for each in judged}
    if Verdict.PAYS in found:
        return Verdict.PAYS
    return Verdict.UNDECIDED if Verdict.UNDECIDED in found else Verdict.DOES_NOT_PAY
