"""The curator: what a synthesizer holds instead of rows.

Its verbs are `Curator.measure` (answers plus noise), `Curator.select` (a noisy choice), `Curator.split` (disjoint
parts by a released rule) and, on the session, `PrivateSession.view` and `PrivateSession.discover`. Each is priced before it looks, charged
to the step's account, written to the ledger, and refused when the account has too little left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.privacy.budget import Price
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.noise import NoiseSource, Sensitivity, noise_std
from privbench_core.privacy.queries import CentreSums, Distances, Marginal, Query
from privbench_core.privacy.split_rules import ByValue, Centres, Rule
from privbench_core.privacy.views import CodedView

# Exactly these, no subclasses: each has a proof of its sensitivity, or of its indifference to other rows.
_QUERIES = (Marginal, Distances, CentreSums)
_RULES = (ByValue, Centres)


@dataclass(frozen=True)
class Measurement:
    """Released answers.

    Attributes:
        values: One array per query, in counts (not weight units).
        sigma: Standard deviation of the noise on each number, in counts.
    """

    values: tuple[NDArray[np.float64], ...]
    sigma: float


class Curator:
    """Answers priced questions about one coded view. Holds private rows; shows none."""

    def __init__(self, view: CodedView, account: PrivacyFilter, noise: NoiseSource, label: str) -> None:
        self._view = view
        self._account = account
        self._noise = noise
        self._label = label

    @property
    def sizes(self) -> dict[str, int]:
        """Number of codes per column: public."""
        return dict(self._view.sizes)

    @property
    def stability(self) -> float:
        """Largest total count that one unit moves: public."""
        return self._view.stability / self._view.unit

    def measure(self, what: str, queries: Sequence[Query], price: Price) -> Measurement:
        """Answer all ``queries`` with noise, together worth ``price``.

        Args:
            what: A short name for the ledger, say "one-way".
            queries: Asked jointly: the noise follows from their joint sensitivity.
            price: Charged before anything is looked at.

        Raises:
            BudgetExhaustedError: The step has less than ``price`` left.
        """
        if not queries or any(type(query) not in _QUERIES for query in queries):
            raise InternalError(
                f"{self._label}/{what}: only the queries of privacy.queries may be asked, and at least one"
            )
        site = f"{self._label}/{what}"
        self._account.charge(site, price)
        scales = {query.scale(self._view) for query in queries}
        if len(scales) > 1:
            raise InternalError(f"{site}: queries of different scales in one measurement")
        moves = [query.moves(self._view) for query in queries]
        sensitivity = Sensitivity(sum(l1 for l1, _ in moves), float(np.sqrt(sum(l2 for _, l2 in moves))))
        exact = [query.evaluate(self._view) for query in queries]
        flat = np.concatenate([answer.ravel() for answer in exact])
        noisy = self._noise.add(site, flat, sensitivity, price)
        scale = scales.pop()
        ends = np.cumsum([answer.size for answer in exact])[:-1]
        parts = [p.reshape(a.shape) / scale for p, a in zip(np.split(noisy, ends), exact, strict=True)]
        return Measurement(tuple(parts), noise_std(sensitivity, price) / scale)

    def sigma(self, queries: Sequence[Query], price: Price) -> float:
        """The noise that `measure` would add, without asking: public, for planning."""
        moves = [query.moves(self._view) for query in queries]
        sensitivity = Sensitivity(sum(l1 for l1, _ in moves), float(np.sqrt(sum(l2 for _, l2 in moves))))
        return noise_std(sensitivity, price) / queries[0].scale(self._view)

    def select(self, what: str, candidates: Distances, price: Price) -> int:
        """Index of a group of ``candidates`` with (noisily) the largest distance: the exponential mechanism.

        All groups must hold equally many distances, k; one unit then moves every score by at most k times the
        stability.
        """
        lengths = {len(group) for group in candidates.groups}
        if len(lengths) != 1 or 0 in lengths:
            raise InternalError(f"{self._label}/{what}: candidates must sum equally many distances")
        sensitivity = self._view.stability * lengths.pop()
        site = f"{self._label}/{what}"
        self._account.charge(site, price)
        return self._noise.choose(site, candidates.evaluate(self._view), sensitivity, price)

    def split(self, rule: Rule) -> tuple[Curator, ...]:
        """Curators of the disjoint parts of a released rule; together they cost what the dearest of them costs.

        Sound because a part depends on a row's own values, and because every verb's privacy loss is at most
        proportional to the weight that a unit moves in its part (ε·w/s, or ρ·w²/s²) while the weights moved in all
        parts add up to at most s.
        """
        if type(rule) not in _RULES:
            raise InternalError(f"{self._label}: rows are split by the rules of privacy.rules only")
        assigned = rule.assign(self._view.codes)
        accounts = self._account.split(rule.parts)
        return tuple(
            Curator(self._view.take(assigned == part), account, self._noise, f"{self._label}/{part}")
            for part, account in enumerate(accounts)
        )
