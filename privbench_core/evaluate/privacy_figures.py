"""The privacy figures of a report: what was promised and spent, what that means, and what attackers found in rehearsal.

The proof is the ledger's arithmetic and the tests; nothing measured here can replace it. These figures are for people:
they say what ε means, and they would catch gross mistakes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privbench_core.evaluate.membership import Attack, RunOnRows, attack
from privbench_core.evaluate.nearest import Nearest, nearest_records
from privbench_core.evaluate.subjects import Subject, Subjects
from privbench_core.evaluate.table_figures import SEED
from privbench_core.evaluate.traces import Trace, find_traces


@dataclass(frozen=True)
class BundleSpend:
    """The price of one step, from the bundle's receipt.

    Attributes:
        step: Its key.
        measure: Currency.
        amount: Price.
        share: Of all that the bundle cost.
    """

    step: str
    measure: str
    amount: float
    share: float


@dataclass(frozen=True)
class Odds:
    """What (ε, δ) means for one unit, whoever attacks and whatever else they know.

    Attributes:
        right: Largest probability to tell rightly whether the unit is in, for someone who took it to be even odds.
        advantage: The same above guessing, from 0 to 1: 2·right - 1.
        factor: e^ε, by which odds can change at most (but for δ).
    """

    right: float
    advantage: float
    factor: float


def odds(epsilon: float, delta: float) -> Odds:
    """The hypothesis-testing reading of differential privacy (Kairouz, Oh and Viswanath 2015).

    >>> round(odds(0.8, 0).right, 3)
    0.69
    """
    near_one = epsilon > _LARGE
    right = 1.0 if near_one else min(1.0, (math.exp(epsilon) + delta) / (1 + math.exp(epsilon)))
    return Odds(right, 2 * right - 1, math.inf if near_one else math.exp(epsilon))


_LARGE = 700.0  # e^ε is beyond floating point


@dataclass(frozen=True)
class PrivacyFigures:
    """Everything about privacy.

    Attributes:
        promise: (ε, δ) for adding or removing one unit; None if the manifest does not say.
        replace: The same for replacing one.
        so_far: (ε, δ) that all releases together had cost when the bundle was made; None if the manifest does not say.
        unit: The unit of protection, in words.
        spent: By step.
        nearest: Nearest-record checks by table.
        attacks: Membership attacks on a rehearsal; empty if none was made.
        traces: What of the source was looked for in the bundle.
    """

    promise: tuple[float, float] | None
    replace: tuple[float, float] | None
    so_far: tuple[float, float] | None
    unit: str
    spent: tuple[BundleSpend, ...]
    nearest: dict[str, Nearest]
    attacks: tuple[Attack, ...]
    traces: tuple[Trace, ...]

    @property
    def odds(self) -> Odds | None:
        """What the promise means; None without one."""
        return odds(*self.promise) if self.promise else None

    @property
    def alarms(self) -> tuple[str, ...]:
        """What must not be: each a reason to not publish before it is understood."""
        found = [
            f"{trace.where}: {trace.what}: {trace.found:g}; do not publish the bundle before you know why"
            for trace in self.traces
            if trace.suspicious
        ]
        found += [
            f"{name}: {n.synthetic_same:.1%} of the synthetic rows are rows of one half of the source, against"
            f" {n.source_same:.1%} of the other half's; that looks like copying"
            for name, n in self.nearest.items()
            if n.suspicious
        ]
        if self.promise:
            found += [
                f"attack ({a.name}): proves ε ≥ {a.epsilon:.2f}, but {self.promise[0]:g} was promised; report this bug"
                for a in self.attacks
                if a.epsilon > self.promise[0]
            ]
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        means = None
        if self.odds:
            means = asdict(self.odds) | {"factor": self.odds.factor if math.isfinite(self.odds.factor) else None}
        return {
            "unit": self.unit,
            "add_or_remove_one_unit": _terms(self.promise),
            "replace_one_unit": _terms(self.replace),
            "all_releases_so_far": _terms(self.so_far),
            "odds": means,
            "spent": [asdict(step) for step in self.spent],
            "nearest_record": {name: figures.to_dict() for name, figures in self.nearest.items()},
            "membership_attacks": [figures.to_dict() for figures in self.attacks],
            "traces": [trace.to_dict() for trace in self.traces],
            "alarms": list(self.alarms),
        }


def privacy_figures(subjects: Subjects, rehearse: RunOnRows | None) -> PrivacyFigures:
    """Work out the figures; looks at private rows.

    Args:
        subjects: Bundle and source.
        rehearse: The bundle's synthesizer at its budget, for the attack; None makes none.
    """
    about, pair = subjects.about, subjects.pair
    true, made = pair.coded
    rng = np.random.default_rng(SEED)
    nearest = {t.name: nearest_records(true[t.name], made[t.name], rng) for t in pair.schema.private_tables}
    guarantee: Mapping[str, Any] = about.receipt.get("guarantee", {})
    swap = guarantee.get("replace_one_unit")
    so_far = guarantee.get("all_releases_so_far")
    return PrivacyFigures(
        promise=about.promise,
        replace=(float(swap["epsilon"]), float(swap["delta"])) if swap else None,
        so_far=(float(so_far["epsilon_at_most"]), float(so_far["delta"])) if so_far else None,
        unit=str(guarantee.get("unit", pair.schema.unit_in_words)),
        spent=_spent(about),
        nearest={name: figures for name, figures in nearest.items() if figures is not None},
        attacks=attack(pair.schema, pair.source, rehearse, SEED) if rehearse else (),
        traces=find_traces(pair.schema, (pair.source, pair.synthetic), pair.coded, subjects.papers, rng),
    )


def _spent(about: Subject) -> tuple[BundleSpend, ...]:
    steps: Sequence[Mapping[str, Any]] = about.receipt.get("spend", [])
    total = sum(float(step["amount"]) for step in steps) or 1.0
    return tuple(BundleSpend(s["step"], s["measure"], float(s["amount"]), float(s["amount"]) / total) for s in steps)


def _terms(pair: tuple[float, float] | None) -> dict[str, float] | None:
    return {"epsilon": pair[0], "delta": pair[1]} if pair else None
