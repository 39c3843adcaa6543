"""What an asset shows in the UI about what it made. Only prices, released numbers, and facts about synthetic rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
import numpy as np

from privbench_assets import plots
from privbench_assets.resources import Session
from privbench_core.pipeline.places import bundle_folder
from privbench_core.pipeline.runner import Release
from privbench_core.privacy.budget import Measure
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Plan, Step, StepKind
from privbench_core.synthesizers.steps.sampled import SampledTable

_ROWS_SHOWN = 5
_CELL = 40  # characters of a value that are shown
SYMBOL = {Measure.PURE: "ε", Measure.ZCDP: "ρ"}


def step_metadata(session: Session, epsilon: str, step: Step, release: Release, made: Artifact) -> dict[str, Any]:
    """All that is shown about one step at one ε; ``made`` is what the release holds."""
    shown = {
        "ε": float(epsilon),
        **_payment(session.plans[epsilon], step, release),
        **session.balance(),
        **_rows(session.spec.schema, step, made),
        **_summary(step, made.data.get("summary", {})),
    }
    return {**shown, **_bundle(session, epsilon)} if step.kind is StepKind.PUBLISH else shown


def price_in_words(plans: Mapping[str, Plan], step: Step) -> str:
    """The price of a step at every ε: "12.9% of a release (ρ=0.0012 at ε=0.8, ρ=0.019 at ε=3.2)"."""
    each = ", ".join(f"{plan.step(step.key).price} at ε={epsilon}" for epsilon, plan in plans.items())
    return f"{_share(next(iter(plans.values())), step)} of a release ({each})"


def _share(plan: Plan, step: Step) -> str:
    return f"{step.price.amount / max(plan.price.amount, 1e-300):.1%}"


def _payment(plan: Plan, step: Step, release: Release) -> dict[str, Any]:
    if not step.reads:
        return {"price": "free: looks at no private row"}
    symbol = SYMBOL[step.price.measure]
    paid = 0.0 if release.paid is None else float(f"{release.paid.amount:.6g}")
    said = "nothing: bought before, reused" if release.reused else f"{release.paid}"
    return {
        "price": f"{step.price}, {_share(plan, step)} of a release",
        "paid by this run": said,
        f"paid {symbol}": paid,
    }


def _rows(schema: Schema, step: Step, made: Artifact) -> dict[str, Any]:
    if step.kind is not StepKind.SAMPLE or step.table not in schema.by_name:
        return {}
    sampled = SampledTable(made)
    rows = sampled.part_rows(0)
    table = schema.table(step.table)
    known = {column.name: column for column in table.columns}
    columns = [
        _column(table, known[name]) if name in known else dg.TableColumn(name, str(rows.schema.field(name).type))
        for name in rows.column_names
    ]
    head = rows.slice(0, _ROWS_SHOWN).to_pylist()
    lines = ["| " + " | ".join(rows.column_names) + " |", "|---" * rows.num_columns + "|"]
    lines += ["| " + " | ".join(_cell(value) for value in row.values()) + " |" for row in head]
    return {
        "dagster/row_count": sum(sampled.rows),
        "dagster/column_schema": dg.TableSchema(columns),
        "first synthetic rows": dg.MetadataValue.md("\n".join(lines)),
    }


def _cell(value: object) -> str:
    """A synthetic value as a cell of a Markdown table."""
    text = "NULL" if value is None else str(value)
    short = text if len(text) <= _CELL else f"{text[:_CELL]}…"
    return short.replace("|", "\\|").replace("\n", " ")


def _column(table: Table, column: Column) -> dg.TableColumn:
    unique = table.primary_key == (column.name,) or (column.name,) in table.unique
    said = [
        f"references {key.parent}({','.join(key.parent_columns)})"
        for key in table.foreign_keys
        if column.name in key.columns
    ]
    if column.name in table.primary_key:
        said.insert(0, "primary key")
    constraints = dg.TableColumnConstraints(nullable=column.nullable, unique=unique)
    return dg.TableColumn(column.name, str(column.type), "; ".join(said) or None, constraints)


def _summary(step: Step, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Released facts that a step chose to show, as they are."""
    shown = {str(label): _shown(value) for label, value in summary.items() if label != "bars"}
    if summary.get("bars"):
        shown["distributions"] = plots.bars(f"Noisy counts of {step.table or 'the database'}", summary["bars"])
    return shown


def _shown(value: object) -> Any:
    plain = _plain(value)
    return dg.MetadataValue.json(plain) if isinstance(plain, dict | list) else plain


def _plain(value: object) -> Any:
    """Numbers of numpy's kind as Python's own, which is all that Dagster stores."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _bundle(session: Session, epsilon: str) -> dict[str, Any]:
    folder = bundle_folder(session.spec, epsilon)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    records = [dg.TableRecord({"file": str(path.relative_to(folder)), "bytes": path.stat().st_size}) for path in files]
    schema = dg.TableSchema([dg.TableColumn("file"), dg.TableColumn("bytes", "int")])
    listed = {"files": dg.MetadataValue.table(records, schema)} if records else {}
    return {"bundle": dg.MetadataValue.path(str(folder)), **listed}
