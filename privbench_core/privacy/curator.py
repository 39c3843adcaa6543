"""The curator: what a synthesizer holds instead of rows.

Its verbs are `Curator.measure` (answers plus noise), `Curator.select` (a noisy choice), `Curator.split` (disjoint
parts by a released rule) and, on the session, `PrivateSession.view` and `PrivateSession.discover`. Each is priced
before it looks, charged to the step's account, written to the ledger, and refused when the account has too little left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.privacy.admission import admit_price, admit_queries, admit_rule
from privbench_core.privacy.budget import Price
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.noise import NoiseSource, Sensitivity, noise_std
from privbench_core.privacy.queries import Distances, Query
from privbench_core.privacy.split_rules import Rule
from privbench_core.privacy.views import CodedView


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

        Formal guarantee: satisfies ε-DP for a pure price (discrete Laplace noise), ρ-zCDP otherwise (discrete Gaussian
        noise), for adding or removing one unit; ``docs/privacy.md``, section 5, mechanisms 1 to 4.

        Args:
            what: A short name for the ledger, say "one-way".
            queries: Asked jointly: the noise follows from their joint sensitivity.
            price: Charged before anything is looked at.

        Raises:
            BudgetExhaustedError: The step has less than ``price`` left.
            InternalError: Something else than the queries of `privacy.queries`; nothing was charged.
        """
        site = f"{self._label}/{what}"
        admit_price(site, price)
        asked = admit_queries(site, queries, self._view.sizes)
        scales = {query.scale(self._view) for query in asked}
        if len(scales) > 1:
            raise InternalError(f"{site}: queries of different scales in one measurement")
        sensitivity = self._sensitivity(asked)
        self._account.charge(site, price)
        exact = [query.evaluate(self._view) for query in asked]
        flat = np.concatenate([answer.ravel() for answer in exact])
        noisy = self._noise.add(site, flat, sensitivity, price)
        scale = scales.pop()
        ends = np.cumsum([answer.size for answer in exact])[:-1]
        parts = [p.reshape(a.shape) / scale for p, a in zip(np.split(noisy, ends), exact, strict=True)]
        return Measurement(tuple(parts), noise_std(sensitivity, price) / scale)

    def sigma(self, queries: Sequence[Query], price: Price) -> float:
        """The noise that `measure` would add, without asking: public, for planning."""
        asked = admit_queries(self._label, queries, self._view.sizes)
        return noise_std(self._sensitivity(asked), price) / asked[0].scale(self._view)

    def select(self, what: str, candidates: Distances, price: Price) -> int:
        """Index of a group of ``candidates`` with (noisily) the largest distance: the exponential mechanism.

        All groups must hold equally many distances, k; one unit then moves every score by at most k times the
        stability.

        Formal guarantee: satisfies ε-DP for a pure price, ρ-zCDP otherwise (bounded range), for adding or removing one
        unit; ``docs/privacy.md``, section 5, mechanism 5.

        Raises:
            BudgetExhaustedError: The step has less than ``price`` left.
            InternalError: Something else than `Distances`; nothing was charged.
        """
        site = f"{self._label}/{what}"
        admit_price(site, price)
        if type(candidates) is not Distances:
            raise InternalError(f"{site}: only the distances of privacy.queries may be selected by")
        admit_queries(site, (candidates,), self._view.sizes)
        lengths = {len(group) for group in candidates.groups}
        if len(lengths) != 1 or 0 in lengths:
            raise InternalError(f"{site}: candidates must sum equally many distances")
        sensitivity = self._view.stability * lengths.pop()
        self._account.charge(site, price)
        return self._noise.choose(site, candidates.evaluate(self._view), sensitivity, price)

    def split(self, rule: Rule) -> tuple[Curator, ...]:
        """Curators of the disjoint parts of a released rule; together they cost what the dearest of them costs.

        Sound because a part depends on a row's own values, and because every verb's privacy loss is at most
        proportional to the weight that a unit moves in its part (ε·w/s, or ρ·w²/s²) while the weights moved in all
        parts add up to at most s.
        """
        admit_rule(self._label, rule, self._view.sizes)
        assigned = rule.assign(self._view.codes)
        accounts = self._account.split(rule.parts)
        return tuple(
            Curator(self._view.take(assigned == part), account, self._noise, f"{self._label}/{part}")
            for part, account in enumerate(accounts)
        )

    def _sensitivity(self, asked: Sequence[Query]) -> Sensitivity:
        """Of all queries asked together: L1 adds, L2² adds."""
        moves = [query.moves(self._view) for query in asked]
        return Sensitivity(sum(l1 for l1, _ in moves), float(np.sqrt(sum(l2 for _, l2 in moves))))
