"""What attackers find: who knows a unit against who knows a row of it, and anonymeter beside our form of its attacks.

Each synthesizer runs on a random half of the units of the example. Those that keep rows as they are protect nobody:
they show what the attacks would find.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import run_child
from benchmarks.peers import python_of_peers
from benchmarks.report import Row, machine, markdown
from privbench_core.backends.registry import open_source
from privbench_core.errors import SourceError
from privbench_core.evaluation.attacks import TARGETS, Rehearsal, RunOnRows, attribute_risks, rehearse_half, run_attacks
from privbench_core.pipeline.plans import plan_for
from privbench_core.pipeline.rehearsal import rehearse
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec

_EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "households" / "spec.yaml"
_SCRIPT = Path(__file__).with_name("anonymeter_child.py")
_TABLE = "person"
_EPSILONS = (0.8, 3.2, 1000.0)
_KEPT = (0.3, 1.0)


def run(*, progress: Callable[[str], None] = print) -> str:
    """Membership by what the attacker knows, then the three risks of one table, ours and anonymeter's."""
    spec = load_spec(_EXAMPLE)
    source = open_source(spec, b"")
    tables = {table.name: source.read(table) for table in spec.schema.tables}
    synthesizers = {f"keeps {share:.0%} of the rows": _keeping(share) for share in _KEPT}
    synthesizers |= {f"privbench, ε = {epsilon:g}": _privbench(spec, epsilon) for epsilon in _EPSILONS}
    membership: list[Row] = []
    risks: list[Row] = []
    for name, synthesizer in synthesizers.items():
        progress(f"attacks: {name}")
        rng = np.random.default_rng(0)
        rehearsal = rehearse_half(spec.schema, tables, synthesizer, rng)
        if rehearsal is None:
            raise SourceError("attacks: the example has too few units")
        membership += [
            {"synthesizer": name, "attacker knows": a["name"], "AUC": a["auc"], "proves ε ≥": a["epsilon"]}
            for a in run_attacks(rehearsal, rng)
        ]
        theirs = _anonymeter(rehearsal)
        for ours in (risk for risk in attribute_risks(rehearsal, rng) if risk["table"] == _TABLE):
            found: dict[str, str | float] = {"synthesizer": name, "attack": ours["name"]}
            found |= {figure: ours[figure] for figure in ("members", "others", "risk")}
            found |= dict(zip(("anonymeter: members", "others ", "risk "), theirs[ours["name"]], strict=True))
            risks.append(found)
        progress(markdown([*membership[-3:]]))
    return "\n\n".join([machine(1), markdown(membership), f"The table `{_TABLE}`:", markdown(risks)])


def _privbench(spec: Spec, epsilon: float) -> RunOnRows:
    plan = plan_for(spec, epsilon)
    return lambda tables: rehearse(spec, plan, tables)


def _keeping(share: float) -> RunOnRows:
    """Keep some rows of each table as they are; the columns of the others are shuffled, each for itself."""

    def keep(tables: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
        rng = np.random.default_rng(1)
        return {name: _partly_shuffled(rows, share, rng) for name, rows in tables.items()}

    return keep


def _partly_shuffled(rows: pa.Table, share: float, rng: np.random.Generator) -> pa.Table:
    moved = np.flatnonzero(rng.random(rows.num_rows) >= share)
    columns = {}
    for name in rows.column_names:
        places = np.arange(rows.num_rows)
        places[moved] = rng.permutation(moved)
        columns[name] = rows[name].take(pa.array(places))
    return pa.table(columns)


def _anonymeter(rehearsal: Rehearsal) -> dict[str, tuple[float, float, float]]:
    """Success on members and on others, and anonymeter's risk, by attack; one row of the table per unit."""
    true, made = (codes[_TABLE] for codes in rehearsal.codes)
    of = rehearsal.units[_TABLE]
    sides = rehearsal.pool[rehearsal.member], rehearsal.pool[~rehearsal.member]
    members, others = (true.codes[np.isin(of, units)] for units in sides)
    size = min(len(members), len(others))
    with TemporaryDirectory() as place:
        folder = Path(place)
        np.savez(folder / "in.npz", members=members[:size], others=others[:size], synthetic=made.codes)
        parameters: dict[str, Any] = {"ordered": list(true.ordered), "targets": TARGETS}
        (folder / "parameters.json").write_text(json.dumps(parameters), encoding="utf-8")
        run_child([str(python_of_peers("anonymeter")), str(_SCRIPT), str(folder)])
        found = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    shares = {name: np.mean(rates, axis=0).tolist() for name, rates in found.items()}  # of inference, over columns
    return {name: (m, o, max(0.0, (m - o) / (1 - o)) if o < 1 else 0.0) for name, (m, o) in shares.items()}
