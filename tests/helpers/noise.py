"""Noise for tests: seeded, recorded, and replayed on a neighbouring database with every input checked.

Record and replay needs no statistics. A mechanism runs once with its noise recorded. It runs again on a neighbour, and
each noise call returns what it returned before; so everything the mechanism has released is the same in both runs, and
the calls must come in the same order with the same sites, shapes, sensitivities and prices, on inputs that differ by no
more than the declared sensitivity. What the calls really cost between the two databases adds up in `ReplayNoise.loss`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.noise import (
    Counts,
    NoiseSource,
    OpenDPNoise,
    Sensitivity,
    bounded_range,
    noise_scale,
    threshold,
)

_SLACK = 1 + 1e-9  # sensitivities are floats


class Violation(AssertionError):  # noqa: N818 - the word of the method
    """The mechanism did on a neighbour what its declared sensitivities do not cover."""


@dataclass
class SeededNoise:
    """Rounded Laplace, Gaussian and Gumbel noise from NumPy: the right scale, and far too weak for production."""

    seed: int
    secure: bool = False
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def add(self, site: str, exact: Counts, sensitivity: Sensitivity, price: Price) -> Counts:
        draw = self._rng.laplace if price.measure is Measure.PURE else self._rng.normal
        noise = np.rint(draw(0.0, noise_scale(sensitivity, price), np.shape(exact)))
        return exact + np.clip(noise, -(1 << 62), 1 << 62).astype(np.int64)

    def choose(self, site: str, scores: Counts, sensitivity: int, price: Price) -> int:
        epsilon = price.amount if price.measure is Measure.PURE else bounded_range(price.amount)
        return int(np.argmax(scores + self._rng.gumbel(0.0, 2 * sensitivity / epsilon, len(scores))))

    def keep(
        self, site: str, exact: dict[str, int], sensitivity: Sensitivity, price: Price, touched: int
    ) -> dict[str, int]:
        bar = threshold(sensitivity, price, touched)
        keys = sorted(exact)
        noisy = self.add(site, np.array([exact[key] for key in keys], dtype=np.int64), sensitivity, price)
        return {key: int(count) for key, count in zip(keys, noisy, strict=True) if count >= bar}


def seed_noise(patch: pytest.MonkeyPatch, seed: int = 0) -> None:
    """Have production's noise seeded, for tests that hold what whole runs in this process release to figures."""
    seeded = SeededNoise(seed)
    for name in ("add", "choose", "keep"):
        patch.setattr(OpenDPNoise, name, getattr(seeded, name))


@dataclass(frozen=True)
class Call:
    """One noise call: what must be the same on a neighbour, what may move, and what was returned.

    Attributes:
        head: Kind, site, shape, sensitivity, price: all that must not depend on private rows.
        exact: The private input: an array, or a dict of counts.
        answer: The released output.
    """

    head: tuple[Any, ...]
    exact: Any
    answer: Any


@dataclass
class RecordingNoise:
    """Passes every call on to ``source`` and writes it down."""

    source: NoiseSource
    tape: list[Call] = field(default_factory=list)
    secure: bool = False

    def add(self, site: str, exact: Counts, sensitivity: Sensitivity, price: Price) -> Counts:
        answer = self.source.add(site, exact, sensitivity, price)
        return self._note(("add", site, np.shape(exact), sensitivity, price), np.array(exact), answer)

    def choose(self, site: str, scores: Counts, sensitivity: int, price: Price) -> int:
        answer = self.source.choose(site, scores, sensitivity, price)
        return self._note(("choose", site, np.shape(scores), sensitivity, price), np.array(scores), answer)

    def keep(
        self, site: str, exact: dict[str, int], sensitivity: Sensitivity, price: Price, touched: int
    ) -> dict[str, int]:
        answer = self.source.keep(site, exact, sensitivity, price, touched)
        return self._note(("keep", site, touched, sensitivity, price), dict(exact), answer)

    def _note(self, head: tuple[Any, ...], exact: Any, answer: Any) -> Any:
        self.tape.append(Call(head, exact, answer))
        return answer.copy() if hasattr(answer, "copy") else answer


@dataclass
class ReplayNoise:
    """Returns what the tape holds, after checking that a neighbour's inputs are covered by the declared sensitivities.

    Attributes:
        tape: Recorded on the other database.
        claim: Factor on the declared sensitivities: below 1 it tests the test.
        loss: What the calls so far cost between the two databases: Σ ε·shift/Δ₁, or Σ ρ·(shift/Δ₂)².
        moved: Number of calls whose input differed.
    """

    tape: list[Call]
    claim: float = 1.0
    secure: bool = False
    loss: float = 0.0
    moved: int = 0
    _next: int = 0

    def add(self, site: str, exact: Counts, sensitivity: Sensitivity, price: Price) -> Counts:
        call = self._expect(("add", site, np.shape(exact), sensitivity, price))
        return self._within(site, np.asarray(exact) - call.exact, sensitivity, price, call).copy()

    def choose(self, site: str, scores: Counts, sensitivity: int, price: Price) -> int:
        call = self._expect(("choose", site, np.shape(scores), sensitivity, price))
        shift = float(np.abs(np.asarray(scores) - call.exact).max())
        self._check(site, "score", shift, sensitivity)
        self._spend(shift / sensitivity, price)
        return int(call.answer)

    def keep(
        self, site: str, exact: dict[str, int], sensitivity: Sensitivity, price: Price, touched: int
    ) -> dict[str, int]:
        call = self._expect(("keep", site, touched, sensitivity, price))
        lonely = exact.keys() ^ call.exact.keys()
        if len(lonely) > touched:
            raise Violation(f"{site}: {len(lonely)} keys come or go with one unit, declared at most {touched}")
        bar = threshold(sensitivity, price, touched)
        top = max((exact.get(key, 0) + call.exact.get(key, 0) for key in lonely), default=0)
        self._check(site, "count of a key of one unit", top, sensitivity.l2)
        if top >= bar:
            raise Violation(f"{site}: a key of one unit is named without any noise")
        union = sorted(exact.keys() | call.exact.keys())
        shift = np.array([exact.get(key, 0) - call.exact.get(key, 0) for key in union], dtype=float)
        return dict(self._within(site, shift, sensitivity, price, call))

    def finish(self) -> None:
        """No calls may be missing."""
        if self._next != len(self.tape):
            raise Violation(f"{len(self.tape) - self._next} calls fewer than on the neighbour")

    def _expect(self, head: tuple[Any, ...]) -> Call:
        if self._next >= len(self.tape):
            raise Violation(f"{head[1]}: a call more than on the neighbour")
        call = self.tape[self._next]
        self._next += 1
        if call.head != head:
            raise Violation(f"control flow, shape or price depends on private rows: {call.head} became {head}")
        return call

    def _within(self, site: str, shift: Any, sensitivity: Sensitivity, price: Price, call: Call) -> Any:
        l1, l2 = float(np.abs(shift).sum()), float(np.sqrt((np.asarray(shift, dtype=float) ** 2).sum()))
        self._check(site, "L1", l1, sensitivity.l1)
        self._check(site, "L2", l2, sensitivity.l2)
        self._spend(l1 / sensitivity.l1 if price.measure is Measure.PURE else l2 / sensitivity.l2, price)
        return call.answer

    def _check(self, site: str, norm: str, shift: float, declared: float) -> None:
        if shift > declared * self.claim * _SLACK:
            raise Violation(f"{site}: {norm} shift {shift:.6g}, declared {declared * self.claim:.6g}")

    def _spend(self, fraction: float, price: Price) -> None:
        self.moved += fraction > 0
        self.loss += price.amount * (fraction if price.measure is Measure.PURE else fraction**2)
