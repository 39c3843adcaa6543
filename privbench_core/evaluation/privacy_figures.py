"""The privacy figures of a report: guarantee, spend, their meaning, traces of the source, and attacks on a rehearsal.

These figures explain ε and would reveal gross mistakes. They prove nothing: the guarantee rests on the mechanisms, the
ledger and the tests.

Traces are values of the source that no model can have carried into the bundle. Values of declared or learned domains
are released by design. Values of single rows must not appear: opaque texts, which are modelled by their length only,
and text keys; neither in the data nor in the bundle's documents. Numeric keys coincide by chance (both count from 1),
so the check is whether rows with equal keys agree more than rows paired at random.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.evaluation.attacks import Attack, Risk, RunOnRows, attribute_risks, rehearse_half, run_attacks
from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.inputs import BundleAndSource, DatabasePair
from privbench_core.evaluation.marginals import SEED
from privbench_core.evaluation.nearest import REFERENCE, NearestRecords, nearest_records
from privbench_core.schema.columns import Column, Pattern
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.validate.references import NO_PARENT, parent_rows

_WORDS = re.compile(r"[^\s\"'`,;()|]+")
Terms = tuple[float, float]
"""(ε, δ)."""


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
class Trace:
    """The result of one search.

    Attributes:
        where: Table and columns, or file.
        what: What is searched for.
        looked_at: Number of values of the source, or of compared rows.
        found: Number of values found; for numeric keys, by how many percentage points rows with equal keys agree
            more than others.
        suspicious: Whether this must not occur.
    """

    where: str
    what: str
    looked_at: int
    found: float
    suspicious: bool


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

    guarantee: Terms | None
    replace: Terms | None
    so_far: Terms | None
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
    replace, so_far = guarantee.get("replace_one_unit"), guarantee.get("all_releases_so_far")
    steps: Sequence[Mapping[str, Any]] = summary.receipt.get("spend", [])
    total = sum(float(step["amount"]) for step in steps) or 1.0
    return PrivacyFigures(
        guarantee=summary.guarantee,
        replace=(float(replace["epsilon"]), float(replace["delta"])) if replace else None,
        so_far=(float(so_far["epsilon_at_most"]), float(so_far["delta"])) if so_far else None,
        unit=str(guarantee.get("unit", pair.schema.unit_in_words)),
        spent=tuple(
            BundleSpend(s["step"], s["measure"], float(s["amount"]), float(s["amount"]) / total) for s in steps
        ),
        nearest={name: figures for name, figures in nearest.items() if figures is not None},
        attacks=run_attacks(rehearsal, coins) if rehearsal else (),
        risks=attribute_risks(rehearsal, coins) if rehearsal else (),
        traces=find_traces(pair, inputs.documents, rng),
    )


def _terms(pair: Terms | None) -> dict[str, float] | None:
    return {"epsilon": pair[0], "delta": pair[1]} if pair else None


def find_traces(pair: DatabasePair, documents: Mapping[str, str], rng: np.random.Generator) -> tuple[Trace, ...]:
    """Search the bundle for values of the source.

    Args:
        pair: Rows of the source and of the bundle.
        documents: Texts of the bundle's other files, by name.
        rng: Pairs rows at random.
    """
    found: list[Trace] = []
    owned: set[str] = set()

    def search(where: str, texts: set[str], among: set[str]) -> None:
        common = len(texts & among)
        found.append(Trace(where, "texts of the source", len(texts), common, bool(common)))

    for table in pair.schema.private_tables:
        rows = pair.source[table.name], pair.synthetic[table.name]
        for column in (c for c in table.columns if _owned_by_rows(pair.schema, table, c)):
            theirs, made = (_long_texts(side[column.name]) for side in rows)
            search(f"{table.name}.{column.name}", theirs, made)
            owned |= theirs
        found += _by_key(table, rows, (pair.encoded[0][table.name], pair.encoded[1][table.name]), rng)
    for name, text in documents.items() if owned else ():
        search(name, owned, set(_WORDS.findall(text)))
    return tuple(found)


def _owned_by_rows(schema: Schema, table: Table, column: Column) -> bool:
    """Return whether a value of the column belongs to a row, not to a domain, a public table or a public pattern."""
    if isinstance(column.domain, Pattern) or column.type.ordered or column.logical.fixed_values:
        return False
    if any(column.name in key.columns and schema.table(key.parent).public for key in table.foreign_keys):
        return False
    return column.type.opaque or column.name in table.key_columns


def _long_texts(values: pa.ChunkedArray) -> set[str]:
    """Return the distinct values of eight characters or bytes at least: shorter ones appear by chance."""
    known = (value if isinstance(value, bytes) else str(value) for value in pc.unique(values).drop_null().to_pylist())
    return {value.hex() if isinstance(value, bytes) else value for value in known if len(value) >= 8}  # noqa: PLR2004


def _by_key(
    table: Table, rows: tuple[pa.Table, pa.Table], encoded: tuple[EncodedTable, EncodedTable], rng: np.random.Generator
) -> list[Trace]:
    """Check whether rows of the bundle agree with the rows of the source that have the same key.

    Keys of several columns are left out: a line number is related to its row in any database.
    """
    if len(table.primary_key) != 1 or not encoded[0].names:
        return []
    same = ForeignKey(table.name, table.primary_key, table.name, table.primary_key)
    links = parent_rows(rows[0], rows[1], same)
    mine = np.flatnonzero(links != NO_PARENT)
    mine = rng.permutation(mine)[:REFERENCE]
    if len(mine) < 30:  # noqa: PLR2004 - fewer show nothing
        return []
    true, made = encoded[0].codes, encoded[1].codes[mine]
    agree = (true[links[mine]] == made).mean(axis=1)
    # The same rows, shuffled: rows whose keys are in the bundle may differ from the others.
    chance = (true[rng.permutation(links[mine])] == made).mean(axis=1)
    excess = float(agree.mean() - chance.mean())
    error = float(np.sqrt((agree.var() + chance.var()) / len(mine)))
    what = "agreement with the source's row of the same key, in percentage points above chance"
    suspicious = excess > max(5 * error, 0.01)
    return [Trace(f"{table.name}.{table.primary_key[0]}", what, len(mine), round(100 * excess, 2), suspicious)]
