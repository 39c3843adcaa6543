"""The curator: what a synthesizer holds instead of rows.

Its methods are `Curator.measure` (answers plus noise), `Curator.select` (a noisy choice) and `Curator.split` (disjoint
parts by a released rule); `PrivateSession.view` and `PrivateSession.discover` belong to the session. Each measurement
is charged to the step's privacy filter and recorded in the ledger before rows are read, and refused if the filter has
too little left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.exact_sums import LARGEST
from privbench_core.errors import InternalError
from privbench_core.privacy.admission import admit_price, admit_queries, admit_rule
from privbench_core.privacy.budget import Price
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.noise import Counts, NoiseSource, Sensitivity, fineness, noise_std
from privbench_core.privacy.queries import Distances, Query
from privbench_core.privacy.split_rules import Rule
from privbench_core.privacy.views import CodedView


@dataclass(frozen=True)
class Measurement:
    """Released answers.

    Attributes:
        values: One array per query, in counts (not multiplied by the weight scale).
        sigma: Standard deviation of the noise on each number, in counts.
    """

    values: tuple[NDArray[np.float64], ...]
    sigma: float


class Curator:
    """Answer priced queries on one coded view. Holds private rows and exposes none."""

    def __init__(self, view: CodedView, privacy_filter: PrivacyFilter, noise: NoiseSource, label: str) -> None:
        self._view = view
        self._filter = privacy_filter
        self._noise = noise
        self._label = label
        self._expected: list[Query] = []

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of codes per column: public."""
        return dict(self._view.sizes)

    @property
    def stability(self) -> float:
        """Return the largest total count that one unit moves: public."""
        return self._view.stability / self._view.weight_scale

    def expect(self, queries: Sequence[Query]) -> None:
        """Say what will be measured later, to have it counted in the same scan as what is measured next.

        Free, and nothing is read: rows are looked at when the next measurement is paid for.

        Raises:
            InternalError: A query that is not of `privacy.queries`.
        """
        self._expected += admit_queries(self._label, queries, self._view.sizes)

    def measure(self, what: str, queries: Sequence[Query], price: Price) -> Measurement:
        """Measure all ``queries`` jointly, with noise calibrated to ``price``.

        Formal guarantee: satisfies ε-DP for a pure price (discrete Laplace noise), √(2ρ)-GDP otherwise (discrete
        Gaussian noise), for adding or removing one unit; ``docs/privacy.md``, section 5, mechanisms 1 to 4.

        Args:
            what: A short name for the ledger, say "one-way".
            queries: Measured jointly: the noise follows from their joint sensitivity.
            price: Charged before any row is read.

        Raises:
            BudgetExhaustedError: The step has less than ``price`` left.
            InternalError: A query that is not of `privacy.queries`; nothing was charged.
        """
        site = f"{self._label}/{what}"
        admit_price(site, price)
        asked = admit_queries(site, queries, self._view.sizes)
        scale, *others = {query.scale(self._view) for query in asked}
        if others:
            raise InternalError(f"{site}: queries of different scales in one measurement")
        sensitivity = self._sensitivity(asked)
        factor = fineness(sensitivity, price)
        self._filter.charge(site, price)
        exact = self._exact(asked)
        most = LARGEST // factor
        flat = np.concatenate([answer.ravel() for answer in exact]).clip(-most, most) * factor
        noisy = self._noise.add(site, flat, sensitivity.times(factor), price) / factor
        parts = np.split(noisy, np.cumsum([answer.size for answer in exact])[:-1])
        values = tuple(part.reshape(answer.shape) / scale for part, answer in zip(parts, exact, strict=True))
        return Measurement(values, noise_std(sensitivity, price) / scale)

    def _exact(self, asked: Sequence[Query]) -> list[Counts]:
        """Return exact answers: private."""
        self._view.data.prepare([columns for query in (*asked, *self._expected) for columns in query.marginals()])
        self._expected.clear()
        return [query.evaluate(self._view) for query in asked]

    def sigma(self, queries: Sequence[Query], price: Price) -> float:
        """Return the standard deviation of the noise that `measure` would add: public, for planning, free."""
        asked = admit_queries(self._label, queries, self._view.sizes)
        return noise_std(self._sensitivity(asked), price) / asked[0].scale(self._view)

    def select(self, what: str, candidates: Distances, price: Price) -> int:
        """Select a group of ``candidates`` with (noisily) the largest distance, by the exponential mechanism.

        All groups must hold equally many distances, k; one unit then moves every score by at most k times the
        stability.

        Formal guarantee: satisfies ε-DP for a pure price, √(2ρ)-GDP otherwise (bounded range), for adding or removing
        one unit; ``docs/privacy.md``, section 5, mechanism 5.

        Raises:
            BudgetExhaustedError: The step has less than ``price`` left.
            InternalError: ``candidates`` are not `Distances`; nothing was charged.
        """
        site = f"{self._label}/{what}"
        admit_price(site, price)
        if type(candidates) is not Distances:
            raise InternalError(f"{site}: only candidates of the type privacy.queries.Distances can be selected")
        admit_queries(site, (candidates,), self._view.sizes)
        lengths = {len(group) for group in candidates.groups}
        if len(lengths) != 1 or 0 in lengths:
            raise InternalError(f"{site}: candidates must sum equally many distances")
        sensitivity = self._view.stability * lengths.pop()
        self._filter.charge(site, price)
        self._view.data.prepare(candidates.marginals())
        sensitivity = min(sensitivity, LARGEST)  # scores are from 0 to that
        return self._noise.choose(site, candidates.evaluate(self._view), sensitivity, price)

    def split(self, rule: Rule) -> tuple[Curator, ...]:
        """Return curators of the disjoint parts of a released rule; together they cost what the most expensive costs.

        Sound because a row's part depends on the row's own values only, and because the privacy loss of each
        measurement is at most proportional to the weight that a unit moves in its part (ε·w/s, or μ·w/s), while the
        weights moved in all parts add up to at most s.
        """
        admit_rule(self._label, rule, self._view.sizes)
        assigned = rule.assign(self._view.codes)
        return tuple(
            Curator(self._view.take(assigned == part), part_filter, self._noise, f"{self._label}/{part}")
            for part, part_filter in enumerate(self._filter.split(rule.parts))
        )

    def _sensitivity(self, asked: Sequence[Query]) -> Sensitivity:
        """Return the joint sensitivity of several queries: L1 adds, L2² adds."""
        moves = [query.moves(self._view) for query in asked]
        return Sensitivity(sum(l1 for l1, _ in moves), float(np.sqrt(sum(l2 for _, l2 in moves))))
