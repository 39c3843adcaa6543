"""The privacy figures of a report: guarantee, spend, their meaning, and the results of attacks on a rehearsal.

These figures explain ε and would reveal gross mistakes. They prove nothing: the guarantee rests on the mechanisms, the
ledger and the tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privbench_core.evaluation.attributes import Risk, attribute_risks
from privbench_core.evaluation.inputs import BundleAndSource, BundleSummary
from privbench_core.evaluation.membership import Attack, run_attacks
from privbench_core.evaluation.nearest import NearestRecords, nearest_records
from privbench_core.evaluation.rehearsed import RunOnRows, rehearse_half
from privbench_core.evaluation.subsets import SEED
from privbench_core.evaluation.traces import Trace, find_traces


@dataclass(frozen=True)
class BundleSpend:
    """The price of one step, from the bundle's receipt.

    Attributes:
        step: Its key.
        measure: Unit of the price, ε ("pure") or ρ.
        amount: The price.
        share: Its share of the bundle's total price.
    """

    step: str
    measure: str
    amount: float
    share: float


@dataclass(frozen=True)
class Odds:
    """The meaning of (ε, δ) for one privacy unit, for any attacker with any other knowledge.

    Attributes:
        right: Largest probability of guessing correctly whether the unit is in the data, from prior odds of 1 to 1.
        advantage: Advantage over random guessing, from 0 to 1: 2·right - 1.
        factor: e^ε, the largest factor by which odds change (except with probability at most δ).
    """

    right: float
    advantage: float
    factor: float


def odds(epsilon: float, delta: float) -> Odds:
    """Return the odds by hypothesis testing (Kairouz, Oh and Viswanath 2015).

    >>> round(odds(0.8, 0).right, 3)
    0.69
    """
    try:
        factor = math.exp(epsilon)
    except OverflowError:
        return Odds(1.0, 1.0, math.inf)
    right = min(1.0, (factor + delta) / (1 + factor))
    return Odds(right, 2 * right - 1, factor)


@dataclass(frozen=True)
class PrivacyFigures:
    """Everything about privacy.

    Attributes:
        guarantee: (ε, δ) for adding or removing one unit; None if the manifest does not say.
        replace: The same for replacing one.
        so_far: (ε, δ) of all releases up to this bundle together; None if the manifest does not say.
        unit: The privacy unit, in words.
        spent: Price by step.
        nearest: Nearest-record checks by table.
        attacks: Membership attacks on a rehearsal; empty without one.
        risks: Singling out, linkability and inference on the same rehearsal.
        traces: Searches for values of the source in the bundle.
    """

    guarantee: tuple[float, float] | None
    replace: tuple[float, float] | None
    so_far: tuple[float, float] | None
    unit: str
    spent: tuple[BundleSpend, ...]
    nearest: dict[str, NearestRecords]
    attacks: tuple[Attack, ...]
    risks: tuple[Risk, ...]
    traces: tuple[Trace, ...]

    @property
    def odds(self) -> Odds | None:
        """The meaning of the guarantee; None without one."""
        return odds(*self.guarantee) if self.guarantee else None

    @property
    def alarms(self) -> tuple[str, ...]:
        """Findings that must not occur; each is a reason not to publish before it is explained."""
        found = [
            f"{trace.where}: {trace.what}: {trace.found:g}; do not publish the bundle before you know why"
            for trace in self.traces
            if trace.suspicious
        ]
        found += [
            f"{name}: {n.synthetic_same:.1%} of the synthetic rows are rows of one half of the source, against"
            f" {n.source_same:.1%} of the other half's; this looks like copying"
            for name, n in self.nearest.items()
            if n.suspicious
        ]
        if self.guarantee:
            epsilon = self.guarantee[0]
            found += [
                f"attack ({a.name}): proves ε ≥ {a.epsilon:.2f}, but {epsilon:g} was promised; report this bug"
                for a in self.attacks
                if a.epsilon > epsilon
            ]
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able."""
        means = None
        if self.odds:
            means = asdict(self.odds) | {"factor": self.odds.factor if math.isfinite(self.odds.factor) else None}
        return {
            "unit": self.unit,
            "add_or_remove_one_unit": _terms(self.guarantee),
            "replace_one_unit": _terms(self.replace),
            "all_releases_so_far": _terms(self.so_far),
            "odds": means,
            "spent": [asdict(step) for step in self.spent],
            "nearest_record": {name: figures.to_dict() for name, figures in self.nearest.items()},
            "membership_attacks": [asdict(attack) for attack in self.attacks],
            "attribute_risks": [asdict(found) | {"risk": found.risk, "error": found.error} for found in self.risks],
            "traces": [asdict(trace) for trace in self.traces],
            "alarms": list(self.alarms),
        }


def privacy_figures(inputs: BundleAndSource, rehearse: RunOnRows | None) -> PrivacyFigures:
    """Return the privacy figures; reads private rows.

    Args:
        inputs: Bundle and source.
        rehearse: The bundle's synthesizer at its budget, for the attacks; None skips them.
    """
    summary, pair = inputs.summary, inputs.pair
    source, synthetic = pair.encoded
    rng = np.random.default_rng(SEED)
    nearest = {t.name: nearest_records(source[t.name], synthetic[t.name], rng) for t in pair.schema.private_tables}
    coins = np.random.default_rng(SEED)
    rehearsal = rehearse_half(pair.schema, pair.source, rehearse, coins) if rehearse else None
    guarantee: Mapping[str, Any] = summary.receipt.get("guarantee", {})
    replace = guarantee.get("replace_one_unit")
    so_far = guarantee.get("all_releases_so_far")
    return PrivacyFigures(
        guarantee=summary.guarantee,
        replace=(float(replace["epsilon"]), float(replace["delta"])) if replace else None,
        so_far=(float(so_far["epsilon_at_most"]), float(so_far["delta"])) if so_far else None,
        unit=str(guarantee.get("unit", pair.schema.unit_in_words)),
        spent=_spent(summary),
        nearest={name: figures for name, figures in nearest.items() if figures is not None},
        attacks=run_attacks(rehearsal, coins) if rehearsal else (),
        risks=attribute_risks(rehearsal, coins) if rehearsal else (),
        traces=find_traces(pair.schema, (pair.source, pair.synthetic), pair.encoded, inputs.documents, rng),
    )


def _spent(summary: BundleSummary) -> tuple[BundleSpend, ...]:
    steps: Sequence[Mapping[str, Any]] = summary.receipt.get("spend", [])
    total = sum(float(step["amount"]) for step in steps) or 1.0
    return tuple(BundleSpend(s["step"], s["measure"], float(s["amount"]), float(s["amount"]) / total) for s in steps)


def _terms(pair: tuple[float, float] | None) -> dict[str, float] | None:
    return {"epsilon": pair[0], "delta": pair[1]} if pair else None
