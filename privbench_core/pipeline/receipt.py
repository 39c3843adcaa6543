"""The receipt: what a bundle says about its own privacy, for both notions of neighbours, with every step's price."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from privbench_core.pipeline.runner import Run
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.relations import reference_moves, stability
from privbench_core.schema.columns import Learn, Range, Values
from privbench_core.schema.constraints import OnUnitRemoved
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan
from privbench_core.synthesizers.steps.link import bounded_keys
from privbench_core.version import __version__

_DAY = len("2026-01-31")  # of an ISO 8601 time
COHORT_TERMS = (
    "no unit of this cohort is in another one; a unit that is in several is protected by the sum of their figures"
)


def receipt_for(spec: Spec, plan: Plan, ledger: Ledger, run: Run) -> dict[str, Any]:
    """Guarantee, unit, spend tree and what counted as public; nothing in it depends on private rows.

    Of the dates of the ledger only the last day on which something was bought for this run is given, so that the same
    releases give the same bundle.
    """
    schema = spec.schema
    budget = plan.budget
    swap = budget.replace_one()
    bounded = bounded_keys(plan)
    bought = [entry.at for entry in ledger.entries(spec.cohort) if entry.run == run.name]
    return {
        "created": max(bought)[:_DAY] if bought else None,
        "software": {"name": "privbench", "version": __version__, "synthesizer": plan.synthesizer},
        "guarantee": {
            "unit": schema.unit_in_words,
            "add_or_remove_one_unit": {"epsilon": budget.epsilon, "delta": budget.delta},
            "replace_one_unit": {"epsilon": swap.epsilon, "delta": swap.delta},
            "note": "holds for this bundle alone; further releases on the same people add up",
            "all_releases_so_far": _cumulative(ledger, spec.cohort),
            **_cohort(spec),
        },
        "spend": [
            {
                "step": "/".join(step.key),
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


def _cumulative(ledger: Ledger, cohort: str) -> dict[str, float]:
    balance = ledger.balance(cohort)
    return {"epsilon_at_most": round(balance.spent, 9), "delta": balance.delta}


def _cohort(spec: Spec) -> dict[str, Any]:
    """What it means that this population is declared to be another one than those before."""
    return {"cohort": {"name": spec.cohort, "declared": COHORT_TERMS}} if spec.cohort else {}


def _table_terms(schema: Schema, name: str, bounded: Collection[str]) -> dict[str, Any]:
    table = schema.table(name)
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
    inside = [{"key": key.name, "parent": key.parent} for key in table.foreign_keys if key.same_unit]
    terms: dict[str, Any] = {
        "protection": "enforced",
        "ownership_path": [key.name for key in path],
        "max_rows_per_unit": schema.max_rows_per_unit(name),
        "stability": stability(schema, name),
    }
    if along := [{"key": key.name, "parent": key.parent} for key in table.foreign_keys if key.name in bounded]:
        terms["enforced_along"] = along
    if inside:
        terms["enforced_inside_of_a_unit"] = inside
    if others:
        terms["protected_only_by_the_declared_bound"] = others
    return terms


def _public(schema: Schema) -> dict[str, Any]:
    """What the owner declared public, and what was learned and paid for instead."""
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
        "tables": [table.name for table in schema.tables if table.public],
        "declared_domains": declared,
        "learned_domains_paid_for": learned,
    }
