"""What an asset shows in the UI about what it made. Only prices, released numbers, and facts about synthetic rows."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np

from privbench_assets.resources import Session
from privbench_core.pipeline.record import Manifest
from privbench_core.pipeline.runner import Made, Release
from privbench_core.pipeline.workspace import bundle_folder
from privbench_core.privacy.budget import Measure
from privbench_core.publishing.verdicts import FidelityFigure
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Plan, Step, StepKind
from privbench_core.synthesizers.steps.sampled import SampledTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _FILL = "#333333", "#4c78a8"
SYMBOL = {Measure.PURE: "ε", Measure.GDP: "ρ"}


def step_metadata(session: Session, epsilon: str, step: Step, made: Made, content: Artifact) -> dict[str, Any]:
    """Return all that is shown about one step at one ε; ``content`` is what its release holds."""
    figures = [*content.data.get("metrics", ()), *content.data.get("figures", ())]
    shown = {
        "ε": float(epsilon),
        **_payment(session.plans[epsilon], step, made.release),
        **session.balance(),
        **_rows(session.spec.schema, step, content),
        **_summary(step, content.data.get("summary", {})),
        **{n: v for figure in figures for n, v in FidelityFigure.from_dict(figure).numbers.items()},
        "made from": _made_from(made.manifest),
    }
    return {**shown, **_bundle(session, epsilon)} if step.kind is StepKind.PUBLISH else shown


def markdown_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> dg.MarkdownMetadataValue:
    """Return a table that Dagster shows without a click."""
    lines = [headers, ["---"] * len(headers), *rows]
    return dg.MetadataValue.md("\n".join(f"| {' | '.join(line)} |" for line in lines))


def price_in_words(plans: Mapping[str, Plan], step: Step) -> str:
    """Return the price of a step at every ε: "12.9% of a release (ρ=0.0012 at ε=0.8, ρ=0.019 at ε=3.2)"."""
    each = ", ".join(f"{plan.step(step.key).price} at ε={epsilon}" for epsilon, plan in plans.items())
    return f"{_share(next(iter(plans.values())), step)} of a release ({each})"


def _share(plan: Plan, step: Step) -> str:
    return f"{step.price.amount / max(plan.price.amount, 1e-300):.1%}"


def _payment(plan: Plan, step: Step, release: Release) -> dict[str, Any]:
    if not step.reads:
        return {"price": "free: reads no private row"}
    symbol = SYMBOL[step.price.measure]
    paid = 0.0 if release.paid is None else float(f"{release.paid.amount:.6g}")
    said = "nothing: bought before, reused" if release.reused else f"{release.paid}"
    return {
        "price": f"{step.price}, {_share(plan, step)} of a release",
        f"price {symbol}": float(f"{step.price.amount:.6g}"),
        "paid by this run": said,
        f"paid {symbol}": paid,
    }


def _made_from(manifest: Manifest) -> dg.TableMetadataValue:
    """Return the version of each step and source table that a step was made from; the graph shows the nearest alone."""
    sources = {f"source/{table}": fingerprint for table, fingerprint in manifest.sources.items()}
    versions = {**sources, **manifest.inputs}
    records = [dg.TableRecord({"asset": name, "version": version[:16]}) for name, version in versions.items()]
    return dg.MetadataValue.table(records, dg.TableSchema([dg.TableColumn("asset"), dg.TableColumn("version")]))


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
    head = rows.slice(0, 5).to_pylist()
    cells = [[_cell(value) for value in row.values()] for row in head]
    return {
        "dagster/row_count": sum(sampled.rows),
        "dagster/column_schema": dg.TableSchema(columns),
        "first synthetic rows": markdown_table(rows.column_names, cells),
    }


def _cell(value: object) -> str:
    """Return a synthetic value as a cell of a Markdown table."""
    text = "NULL" if value is None else str(value)
    short = text if len(text) <= 40 else f"{text[:40]}…"  # noqa: PLR2004 - characters
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
    shown: dict[str, Any] = {}
    for label, value in summary.items():
        plain = _plain(value)
        if isinstance(plain, dict) and all(isinstance(number, int | float) for number in plain.values()):
            shown |= {f"{label}: {name}": number for name, number in plain.items()}
        elif label != "bars":
            shown[label] = dg.MetadataValue.json(plain) if isinstance(plain, dict | list) else plain
    if summary.get("bars"):
        shown["distributions"] = _bar_charts(f"Noisy counts of {step.table or 'the database'}", summary["bars"])
    return shown


def _bar_charts(title: str, columns: Mapping[str, Mapping[str, Sequence[Any]]]) -> dg.MarkdownMetadataValue:
    """Return one small bar chart per column, as PNG inside Markdown: no file server needed."""
    from matplotlib.figure import Figure

    shown = dict(list(columns.items())[:12])  # panels: the event log keeps every image
    across = min(4, len(shown))  # plots in a row
    down = -(-len(shown) // across)
    figure = Figure(figsize=(2.5 * across, 2.0 * down), layout="constrained")
    for panel, (name, bar) in zip(figure.subplots(down, across, squeeze=False).flat, shown.items(), strict=False):
        _bar_chart(panel, name, bar)
    for panel in figure.axes[len(shown) :]:
        panel.set_axis_off()
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=80, metadata={"Software": None})
    text = base64.b64encode(sink.getvalue()).decode("ascii")
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{text})")


def _bar_chart(panel: Axes, name: str, bar: Mapping[str, Sequence[Any]]) -> None:
    counts = np.asarray(bar["counts"], dtype=float)
    labels = [str(label) for label in bar["labels"]]
    labelled = len(counts) <= 12  # noqa: PLR2004 - bars that still get a label each
    panel.bar(np.arange(len(counts)), counts, width=0.9 if labelled else 1.0, color=_FILL)
    panel.set_title(name, fontsize=8, color=_INK)
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_ylabel("rows", fontsize=6, color=_INK)
    panel.tick_params(labelsize=6, colors=_INK)
    panel.locator_params(axis="y", nbins=3)
    step = 1 if labelled else max(1, len(labels) // 4)
    at = np.arange(0, len(labels), step)
    longest = max((len(labels[i]) for i in at), default=0)
    upright = longest * len(at) <= 24  # noqa: PLR2004 - characters of labels that fit below a panel side by side
    panel.set_xticks(at, [labels[i] for i in at], rotation=0 if upright else 90, fontsize=6, color=_INK)


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
