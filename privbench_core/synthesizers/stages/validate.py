"""Validate steps: integrity of the synthetic table, and its fidelity, measured under differential privacy.

Comparing with the source is looking at private rows, so it is priced like everything else: sums of L1 distances to the
synthetic marginals move by at most the stability per marginal, which a small share of the budget measures well. The
figures may therefore be shown, logged and published (unpriced reports are `privbench evaluate`'s, and internal).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.counts.contingency import contingency
from privbench_core.domain.coder import Coder
from privbench_core.errors import InternalError
from privbench_core.evaluate.derived import integrity_frame
from privbench_core.evaluate.expectations import fidelity_frame, fidelity_suite, integrity_suite, run_suite
from privbench_core.linking.fanout import parent_column
from privbench_core.privacy.budget import Price
from privbench_core.privacy.door import Door
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.views import Feature, OfParent, Own, ViewSpec
from privbench_core.schema.model import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.stages.profile import Profile

Array = NDArray[np.float64]
_MOST_PAIRS = 300
_WEIGHT = 1 << 20


@dataclass(frozen=True)
class FidelityLimits:
    """Largest mean total variation distances that pass; 1 passes everything."""

    one_way: float = 0.25
    two_way: float = 0.45
    join: float = 0.45


def validate_step(schema: Schema, table: Table, price: Price, limits: FidelityLimits) -> Step:
    """The step that checks a private table; it spends ``price`` on fidelity."""
    parents = sorted({key.parent for key in table.foreign_keys})
    private = sorted(name for name in parents if not schema.table(name).public)
    inputs: list[Key] = [("profile", table.name), ("sample", table.name)]
    inputs += [("sample", name) for name in parents] + [("profile", name) for name in private]

    def run(context: StepContext) -> Artifact:
        metrics = _fidelity(schema, table, price, limits, context)
        expectations = _expectations(table, context, metrics)
        shown = {row["metric"]: round(row["value"], 4) for row in metrics.to_dict("records")}
        return Artifact({"expectations": expectations, "metrics": metrics.to_dict("records"), "summary": shown})

    owner = [table.owner_key.parent] if table.owner_key else []
    reads = tuple(dict.fromkeys([*schema.grouping_tables(table.name), *owner]))
    parameters = {"columns": repr(table.columns), "limits": asdict(limits)}
    return Step(("validate", table.name), StepKind.VALIDATE, table.name, tuple(inputs), reads, price, run, parameters)


def public_validate_step(table: Table, parents: tuple[str, ...], free: Price) -> Step:
    """The step that checks a public table's integrity."""
    inputs: tuple[Key, ...] = (("sample", table.name), *(("sample", name) for name in parents))

    def run(context: StepContext) -> Artifact:
        return Artifact({"expectations": _expectations(table, context, pd.DataFrame()), "summary": {}})

    return Step(
        ("validate", table.name), StepKind.VALIDATE, table.name, inputs, (), free, run, {"columns": repr(table.columns)}
    )


def _expectations(table: Table, context: StepContext, metrics: pd.DataFrame) -> list[dict[str, Any]]:
    tables: dict[str, pa.Table] = {}
    for key in [table.name, *(key.parent for key in table.foreign_keys)]:
        rows = context.inputs["sample", key].table
        if rows is None:
            raise InternalError(f"{key}: a sample step without rows")
        tables[key] = rows
    results = run_suite(table.name, integrity_frame(table, tables), integrity_suite(table))
    found = [{**asdict(r), "table": table.name, "suite": "integrity", "value": None, "limit": None} for r in results]
    if len(metrics):
        verdicts = run_suite(f"{table.name} fidelity", fidelity_frame(metrics), fidelity_suite(metrics))
        shown = [row for row in metrics.to_dict("records") for _ in range(2)]
        for verdict, row in zip(verdicts, shown, strict=True):
            found.append(
                {
                    **asdict(verdict),
                    "table": table.name,
                    "suite": "fidelity",
                    "value": row["value"],
                    "limit": row["limit"],
                }
            )
    return found


def _fidelity(schema: Schema, table: Table, price: Price, limits: FidelityLimits, context: StepContext) -> pd.DataFrame:
    """Mean total variation distances of one-way, two-way and join marginals, noisy."""
    door = context.opened()
    profile = Profile.from_dict(context.inputs["profile", table.name].data["profile"])
    sample = context.inputs["sample", table.name]
    if sample.table is None:
        raise InternalError(f"{table.name}: a sample step without rows")
    own: dict[str, tuple[Feature, Coder]] = {name: (Own(name), coder) for name, coder in profile.coders.items()}
    codes = {name: coder.encode(sample.table.column(name)) for name, coder in profile.coders.items()}
    columns, owner = dict(own), table.owner_key
    if owner is not None:
        above = Profile.from_dict(context.inputs["profile", owner.parent].data["profile"])
        rows = context.inputs["sample", owner.parent].table
        places = dict(sample.data["parents"])[owner.name]
        for name, coder in above.coders.items():
            columns[parent_column(name)] = (OfParent(owner, name), coder)
            codes[parent_column(name)] = coder.encode(rows.column(name))[places] if rows is not None else codes[name]
    wanted = {
        "one-way TVD": (limits.one_way, [(name,) for name in own]),
        "two-way TVD": (limits.two_way, _some(list(combinations(own, 2)))),
        "join TVD": (limits.join, _some([(n, m) for n in columns if n not in own for m in own])),
    }
    wanted = {name: (limit, sets) for name, (limit, sets) in wanted.items() if sets}
    if not wanted:
        return _no_columns(door, table, price, profile)
    sizes = {name: coder.size for name, (_, coder) in columns.items()}
    weights = sample.data["weights"]
    integers = None if weights is None else np.rint(weights * _WEIGHT).astype(np.int64)
    view = door.view(ViewSpec(table.name, columns), "fidelity")
    values = []
    for limit, sets in wanted.values():
        groups = (tuple((cols, _reference(codes, sizes, cols, integers, profile.total)) for cols in sets),)
        answer = view.measure("distances", [Distances(groups)], price.share(1 / len(wanted)))
        tvd = float(answer.values[0][0]) / (2 * len(sets) * profile.total)
        values.append((limit, min(1.0, max(0.0, tvd))))
    frame = pd.DataFrame({"table": table.name, "metric": list(wanted)})
    return frame.assign(value=[v for _, v in values], limit=[limit for limit, _ in values])


def _no_columns(door: Door, table: Table, price: Price, profile: Profile) -> pd.DataFrame:
    """A table of keys alone: its number of rows is all there is to compare."""
    again = door.view(ViewSpec(table.name, {}), "fidelity").measure("rows", [Marginal(())], price)
    off = abs(float(again.values[0]) - profile.total) / max(profile.total, 1.0)
    return pd.DataFrame({"table": [table.name], "metric": ["size, relative"], "value": [off], "limit": [1.0]})


def _reference(
    codes: Mapping[str, NDArray[np.int32]],
    sizes: Mapping[str, int],
    columns: tuple[str, ...],
    weights: NDArray[np.int64] | None,
    total: float,
) -> Array:
    """Synthetic counts, scaled to the released number of rows."""
    counts = contingency(codes, sizes, columns, weights).astype(float)
    return np.asarray(counts * (total / max(counts.sum(), 1.0)), dtype=float)


def _some(sets: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """All column sets, or a choice of `_MOST_PAIRS` of them that is the same in every run."""
    if len(sets) <= _MOST_PAIRS:
        return sets
    chosen = np.random.default_rng(0).choice(len(sets), _MOST_PAIRS, replace=False)
    return [sets[i] for i in sorted(chosen)]
