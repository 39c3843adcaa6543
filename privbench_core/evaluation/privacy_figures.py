"""The privacy figures of a report: guarantee, spend, their meaning, traces of the source, and attacks on a rehearsal.

These figures explain ε and would reveal gross mistakes. They prove nothing: the guarantee rests on the mechanisms, the
ledger and the tests.

Traces are values of the source that no model can have carried into the bundle. Values of declared or learned domains
are released by design. Values of single rows must not appear: opaque texts, which are modelled by their length only,
and text keys; neither in the data nor in the bundle's documents. Numeric keys coincide by chance (both count from 1),
so the check is whether rows with equal keys match more than rows with neighbouring keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.evaluation import BundleAndSource, DatabasePair
from privbench_core.evaluation.attacks import (
    REFERENCE,
    RunOnRows,
    attribute_risks,
    nearest_records,
    rehearse_half,
    run_attacks,
)
from privbench_core.evaluation.marginals import SEED, EncodedTable, Figures
from privbench_core.sampling.keys import parent_rows
from privbench_core.schema.columns import Column, Learn, Pattern
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

_WORDS = re.compile(r"[^\s\"'`,;()|]+")


def privacy_figures(inputs: BundleAndSource, rehearse: RunOnRows | None) -> Figures:
    """Return the privacy figures, as in metrics.json; reads private rows.

    Args:
        inputs: Bundle and source.
        rehearse: The bundle's synthesizer at its budget, for the attacks; None skips them.

    Returns:
        What the manifest says (None where it does not) and what it means (`odds`); "spent": by "step" the "amount" in
        its "measure" (ε is "pure") and its "share" of the total price; `nearest_records` by table; `run_attacks` and
        `attribute_risks` on a rehearsal; `find_traces`; and "alarms".
    """
    summary, pair = inputs.summary, inputs.pair
    source, synthetic = pair.encoded
    rng = np.random.default_rng(SEED)
    nearest = {t.name: nearest_records(source[t.name], synthetic[t.name], rng) for t in pair.schema.private_tables}
    coins = np.random.default_rng(SEED)
    rehearsal = rehearse_half(pair.schema, pair.source, rehearse, coins) if rehearse else None
    guarantee: Mapping[str, Any] = summary.receipt.get("guarantee", {})
    steps: Sequence[Mapping[str, Any]] = summary.receipt.get("spend", [])
    prices = [{"step": s["step"], "measure": s["measure"], "amount": float(s["amount"])} for s in steps]
    total = sum(price["amount"] for price in prices) or 1.0
    figures: Figures = {
        "unit": str(guarantee.get("unit", pair.schema.unit_in_words)),
        "add_or_remove_one_unit": _terms(guarantee.get("add_or_remove_one_unit")),
        "replace_one_unit": _terms(guarantee.get("replace_one_unit")),
        "all_releases_so_far": _terms(guarantee.get("all_releases_so_far"), "epsilon_at_most"),
        "odds": odds(*summary.guarantee) if summary.guarantee else None,
        "spent": [price | {"share": price["amount"] / total} for price in prices],
        "nearest_record": {name: found for name, found in nearest.items() if found is not None},
        "membership_attacks": run_attacks(rehearsal, coins) if rehearsal else [],
        "attribute_risks": attribute_risks(rehearsal, coins) if rehearsal else [],
        "traces": find_traces(pair, inputs.documents, rng),
    }
    return figures | {"alarms": list(alarms_of(figures))}


def _terms(stated: Mapping[str, Any] | None, epsilon: str = "epsilon") -> dict[str, float] | None:
    return {"epsilon": float(stated[epsilon]), "delta": float(stated["delta"])} if stated else None


def odds(epsilon: float, delta: float) -> Figures:
    """Return what (ε, δ) means for one unit, for any attacker with any other knowledge (Kairouz, Oh, Viswanath 2015).

    Returns:
        The largest probability of guessing correctly whether the unit is in the data, from prior odds of 1 to 1
        ("right"); the "advantage" over random guessing, 2·right - 1; and e^ε, the largest "factor" by which odds change
        (except with probability at most δ), None if it is infinite.

    >>> round(odds(0.8, 0)["right"], 3)
    0.69
    """
    try:
        factor = math.exp(epsilon)
    except OverflowError:
        return {"right": 1.0, "advantage": 1.0, "factor": None}
    right = min(1.0, (factor + delta) / (1 + factor))
    return {"right": right, "advantage": 2 * right - 1, "factor": factor}


def alarms_of(figures: Figures) -> Iterator[str]:
    """Yield findings that must not occur; each is a reason not to publish before it is explained."""
    for trace in figures["traces"]:
        if trace["suspicious"]:
            yield (
                f"{trace['where']}: {trace['found']:g} {trace['what']}. Copied rows look like this."
                " Do not publish the bundle before you know why"
            )
    for name, found in figures["nearest_record"].items():
        if found["suspicious"]:
            yield (
                f"{name}: {found['synthetic_same']:.1%} of the synthetic rows equal a row that one half of the source"
                f" has once, against {found['source_same']:.1%} of the other half's rows; this looks like copying"
            )
    promise = figures["add_or_remove_one_unit"]
    for attack in figures["membership_attacks"]:
        if promise and attack["epsilon"] > promise["epsilon"]:
            proven = f"proves ε ≥ {attack['epsilon']:.2f}, but {promise['epsilon']:g} was promised"
            yield f"attack ({attack['name']}): {proven}; report this bug"


def find_traces(pair: DatabasePair, documents: Mapping[str, str], rng: np.random.Generator) -> list[Figures]:
    """Search the bundle's rows and other files, texts by name, for values of the source.

    Returns:
        "where" (table and columns, or file); "what" is searched for; how many values of the source, or rows, were
        "looked_at"; how many values are "found", or for numeric keys by how many percentage points rows with equal keys
        match more than rows with neighbouring keys; and whether that is "suspicious", because it must not occur.
    """
    found: list[Figures] = []
    owned: set[str] = set()

    def search(where: str, texts: set[str], among: set[str]) -> None:
        common = len(texts & among)
        found.append(_trace(where, "texts of the source", len(texts), common, suspicious=bool(common)))

    for table in pair.schema.private_tables:
        rows = pair.source[table.name], pair.synthetic[table.name]
        for column in (c for c in table.columns if _owned_by_rows(pair.schema, table, c)):
            theirs, made = (_long_texts(side[column.name]) for side in rows)
            search(f"{table.name}.{column.name}", theirs, made)
            owned |= theirs
        found += _by_key(table, rows, (pair.encoded[0][table.name], pair.encoded[1][table.name]), rng)
    for name, text in documents.items() if owned else ():
        search(name, owned, set(_WORDS.findall(text)))
    return found


def _trace(where: str, what: str, looked_at: int, found: float, *, suspicious: bool) -> Figures:
    return {"where": where, "what": what, "looked_at": looked_at, "found": found, "suspicious": suspicious}


def _owned_by_rows(schema: Schema, table: Table, column: Column) -> bool:
    """Return whether a value of the column belongs to a row, not to a domain, a public table or a public pattern."""
    if isinstance(column.domain, Pattern | Learn) or column.type.ordered or column.logical.fixed_values:
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
) -> list[Figures]:
    """Check whether rows of the bundle match the rows of the source that have the same key, as copies would.

    Where keys number rows in the order in which they were added, rows with equal keys agree in all that follows
    from this order: dates, what depends on them, the owner. But so are rows whose keys are a few numbers apart, and
    only a copy matches the one row. So the reference is the best of the ten keys on either side.

    Keys of several columns are left out: a line number is related to its row in any database.
    """
    if len(table.primary_key) != 1 or not encoded[0].names:
        return []
    same = ForeignKey(table.name, table.primary_key, table.name, table.primary_key)
    links = parent_rows(rows[0], rows[1], same)
    mine = rng.permutation(np.flatnonzero(links >= 0))[:REFERENCE]
    if len(mine) < 30:  # noqa: PLR2004 - fewer show nothing
        return []
    made, in_order = encoded[1].codes[mine], pc.sort_indices(rows[0][table.primary_key[0]]).to_numpy()
    true, place = encoded[0].codes[in_order], np.argsort(in_order)[links[mine]]
    agree = (true[place] == made).mean(axis=1)
    steps = [step for step in range(-10, 11) if step]
    beside = max(((true[(place + step) % len(true)] == made).mean(axis=1) for step in steps), key=np.mean)
    excess = float(agree.mean() - beside.mean())
    error = float(np.sqrt((agree.var() + beside.var()) / len(mine)))
    what = "points more matches with the source's row of the same key than with rows of neighbouring keys"
    suspicious = excess > max(5 * error, 0.01)
    where = f"{table.name}.{table.primary_key[0]}"
    return [_trace(where, what, len(mine), round(100 * max(excess, 0.0), 2), suspicious=suspicious)]
