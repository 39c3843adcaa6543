"""The receipt: what a bundle says about its own privacy, for both notions of neighbours, with every step's price.

It says what all releases of its account had cost when it was written, so that forgotten spending is noticed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

from privbench_core.errors import LedgerError
from privbench_core.pipeline.record import step_name
from privbench_core.pipeline.runner import Run
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.relations import reference_moves, stability
from privbench_core.publishing import MANIFEST, is_bundle
from privbench_core.schema.columns import Learn, Range, Values
from privbench_core.schema.constraints import OnUnitRemoved
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan
from privbench_core.synthesizers.steps.link import bounded_keys
from privbench_core.version import __version__

_DAY = len("2026-01-31")  # of an ISO 8601 time
COHORT_TERMS = (
    "no unit of this cohort is in another one; a unit that is in several is protected only by the sums of their ε and δ"
)


def receipt_for(spec: Spec, plan: Plan, ledger: Ledger, run: Run) -> dict[str, Any]:
    """Guarantee, unit, spend tree and what counted as public; nothing in it depends on private rows.

    Of the dates of the ledger only the last day on which something was bought for this run is given, so that the same
    releases give the same bundle.
    """
    schema = spec.schema
    budget = plan.budget
    bounded = bounded_keys(plan)
    bought = [entry.at for entry in ledger.entries(spec.cohort) if entry.run == run.name]
    balance = ledger.balance(spec.cohort)
    cohort = {"cohort": {"name": spec.cohort, "declared": COHORT_TERMS}} if spec.cohort else {}
    return {
        "created": max(bought)[:_DAY] if bought else None,
        "software": {"name": "privbench", "version": __version__, "synthesizer": plan.synthesizer},
        "guarantee": {
            "unit": schema.unit_in_words,
            **guarantee_of(budget),
            "note": "holds for this bundle alone; further releases on the same people add up",
            "all_releases_so_far": {"epsilon_at_most": round(balance.spent, 9), "delta": balance.delta},
            **cohort,
        },
        "spend": [
            {
                "step": step_name(step.key),
                "measure": str(step.price.measure),
                "amount": step.price.amount,
                "delta": step.price.delta,
            }
            for step in plan.steps
            if step.reads
        ],
        "tables": {table.name: _table_terms(schema, table.name, bounded) for table in schema.tables},
        "public": {**_public(schema), "workload_texts": sorted(run.workload)},
        "sampling": {"seed": run.seed, "scale": run.scale},
    }


def guarantee_of(budget: Budget) -> dict[str, dict[str, float]]:
    """Return what a budget guarantees, for both notions of neighbours, and the μ that gives δ for every other ε."""
    swap, total = budget.replace_one(), budget.total()
    gaussian = {"gaussian_dp": {"mu": math.sqrt(2 * total.amount), "delta": total.delta}} if budget.delta else {}
    return {
        **gaussian,
        "add_or_remove_one_unit": {"epsilon": budget.epsilon, "delta": budget.delta},
        "replace_one_unit": {"epsilon": swap.epsilon, "delta": swap.delta},
    }


def refuse_forgotten(spec: Spec, ledger: Ledger, out: Path) -> None:
    """Refuse to replace a bundle that records more spending than the ledger knows of.

    A ledger that knows of less has lost entries, or is another one; to replace the bundle would publish a smaller total
    than the true one.

    Args:
        spec: Of the database; a bundle of another database, cohort or unit says nothing about its account.
        ledger: Of the database.
        out: Folder of the bundle, which may not be there.

    Raises:
        LedgerError: The bundle knows of more; nothing was spent.
    """
    if not is_bundle(out):
        return
    manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    try:
        guarantee = manifest["privacy"]["guarantee"]
        epsilon = float(guarantee["all_releases_so_far"]["epsilon_at_most"])
        delta = float(guarantee["all_releases_so_far"]["delta"])
        account = manifest["database"], guarantee.get("cohort", {}).get("name", ""), guarantee["unit"]
    except (KeyError, TypeError, ValueError):
        return  # of another version, or by another program: it records no total
    if account != (spec.schema.name, spec.cohort, spec.schema.unit_in_words):
        return
    known = ledger.spent_at(delta, spec.cohort)
    if epsilon > known * (1 + 1e-6):  # far above what manifests round (1e-9), far below any release
        raise LedgerError(
            f"{out}: this bundle records that ε={epsilon:.4g} was spent by all releases so far (δ={delta:.2g}), but"
            f" the ledger of {spec.schema.name} records only ε={known:.4g}. Earlier spending is missing from it,"
            " so the bundle is not replaced, and nothing was spent. Restore the state folder and the ledger with which"
            " the bundle was made. If they are lost, keep the bundle, write to another --out, and tell recipients that"
            " the two totals add up"
        )


def _table_terms(schema: Schema, name: str, bounded: Collection[str]) -> dict[str, Any]:
    table = schema.table(name)
    if table.empty:
        return {"protection": "left empty: none of its rows is read"}
    if table.public:
        return {"protection": "public: published as it is"}
    path = schema.ownership_path(name)
    others = [
        {
            "key": key.name,
            "parent": key.parent,
            "declared_max_children": key.max_children,
            "declared_max_children_per_unit": key.max_children_per_unit,
            "on_unit_removed": str(OnUnitRemoved.CASCADE if key.cascades else OnUnitRemoved.SET_NULL),
            "stability_along": stability(schema, name) + reference_moves(schema, key),
        }
        for key in table.foreign_keys
        if not (key.owner or key.same_unit or key.name in bounded or schema.table(key.parent).public)
    ]
    along = [{"key": key.name, "parent": key.parent} for key in table.foreign_keys if key.name in bounded]
    inside = [{"key": key.name, "parent": key.parent} for key in table.foreign_keys if key.same_unit]
    terms: dict[str, Any] = {
        "protection": "enforced",
        "ownership_path": [key.name for key in path],
        "max_rows_per_unit": schema.max_rows_per_unit(name),
        "stability": stability(schema, name),
    }
    named = {
        "enforced_along": along,
        "enforced_inside_of_a_unit": inside,
        "protected_only_by_the_declared_bound": others,
    }
    return terms | {name: keys for name, keys in named.items() if keys}


def _public(schema: Schema) -> dict[str, Any]:
    """Return what the owner declared public, and what was learned and paid for instead."""
    declared, learned = [], []
    for table in schema.private_tables:
        for column in table.modelled:
            where = f"{table.name}.{column.name}"
            if isinstance(column.domain, Range | Values):
                declared.append(where)
            elif isinstance(column.domain, Learn):
                learned.append(where)
    return {
        "schema": "names, types, keys, nullability and bounds on children per parent of all tables",
        "tables": [table.name for table in schema.public_tables],
        "declared_domains": declared,
        "learned_domains_paid_for": learned,
    }
