"""How much of the claimed privacy loss the released numbers can really have: nothing above 1, and little wasted.

A white-box audit. A plan runs once with all inputs of noise recorded, and again on a neighbour with the same released
numbers. Gaussian noise of deviation σ on inputs that differ by d has exactly the loss of μ-GDP, μ = ‖d‖₂/σ, and what is
released one after the other adds up in μ² (Dong, Roth and Su 2022, Corollary 2); Laplace noise of scale b loses at most
‖d‖₁/b, which some output reaches. Choices count with their bound. What was claimed is μ = √(2ρ), or ε, of the plan.
The neighbours are units made to move as much as any can: with the most children, all alike or all different, with
typical, extreme and missing values, and without children.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.report import Row, machine, markdown
from privbench_core.privacy.budget import Budget, Measure
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import Plan, Synthesizer
from privbench_core.synthesizers.privbench import PrivBench
from privbench_core.synthesizers.privlava import PrivLava
from privbench_core.synthesizers.privpetal import PrivPetal
from privbench_core.synthesizers.privspn import PrivSPN
from privbench_core.synthesizers.relational.plan import Relational
from tests.helpers.databases import Database, database_from
from tests.helpers.noise import RecordingNoise, ReplayNoise, SeededNoise
from tests.helpers.plans import Trace, computing_steps, run_step

MOST = 8
"""Bound on the visits of a patient."""
UNITS = {
    "most children, all alike": 0,
    "most children, all extreme": 1,
    "most children, all NULL": 2,
    "most children, all different": 3,
    "one child": 4,
    "no children": 5,
    "ten times the bound": 6,
}
WARDS = ("east", "north", "west")
SYNTHESIZERS: Mapping[str, tuple[Callable[[], Synthesizer], Mapping[str, Any]]] = {
    "privbench, pairwise": (PrivBench, {}),
    "privspn": (PrivSPN, {}),
    "privpetal": (PrivPetal, {}),
    "privlava": (PrivLava, {}),
    "relational": (Relational, {}),
}
BUDGETS = {"Gaussian": Budget(3.2, 1e-9), "pure": Budget(3.2)}


def clinic(patients: int = 2000, seed: int = 0) -> Database:
    """Patients and their visits, whose columns depend on each other; the first ones are `UNITS`."""
    rng = np.random.default_rng(seed)
    patient = Table(
        "patient",
        (
            Column("id", ColumnType.INTEGER),
            Column("ward", ColumnType.CATEGORY, Values(WARDS), nullable=True),
            Column("age", ColumnType.INTEGER, Range(0, 100, cells=10), nullable=True),
        ),
        ("id",),
    )
    visit = Table(
        "visit",
        (
            Column("id", ColumnType.INTEGER),
            Column("patient_id", ColumnType.INTEGER),
            Column("urgent", ColumnType.BOOLEAN, nullable=True),
            Column("cost", ColumnType.INTEGER, Range(0, 1000, cells=20), nullable=True),
        ),
        ("id",),
        (ForeignKey("visit", ("patient_id",), "patient", ("id",), max_children=MOST, owner=True),),
    )
    patients_rows: list[tuple[object, ...]] = []
    visits: list[tuple[object, ...]] = []
    children = {0: MOST, 1: MOST, 2: MOST, 3: MOST, 4: 1, 5: 0, 6: 10 * MOST}
    for i in range(patients):
        ward = int(rng.integers(3))
        age = int(np.clip(rng.normal(30 + 20 * ward, 12), 0, 100))
        empty, extreme = i == UNITS["most children, all NULL"], i == UNITS["most children, all extreme"]
        patients_rows.append((i, None if empty else WARDS[ward], None if empty else 10**9 if extreme else age))
        for number in range(children.get(i, int(rng.binomial(MOST, 0.2 + 0.2 * ward)))):
            urgent = bool(rng.random() < age / 100)
            cost = int(np.clip(rng.normal(900 if urgent else 200, 100), 0, 1000))
            if i in {0, 6}:
                urgent, cost = False, 210
            elif i == UNITS["most children, all different"]:
                urgent, cost = number % 2 == 0, 125 * number
            row = (None, None) if empty else (True, 10**9) if extreme else (urgent, cost)
            visits.append((len(visits), i, *row))
    schema = Schema("clinic", (patient, visit), "patient")
    return database_from(schema, {"patient": patients_rows, "visit": visits})


@dataclass(frozen=True)
class Loss:
    """What a plan's released numbers can tell of one unit.

    Attributes:
        steps: Step -> loss over what the step was charged (in ρ, or ε).
        total: μ over claimed μ; for a pure plan ε over claimed ε.
    """

    steps: Mapping[str, float]
    total: float


def losses(plan: Plan, database: Database, units: Mapping[str, object], seed: int = 0) -> dict[str, Loss]:
    """Run ``plan`` and replay it without each of some units; raises `Violation` where more moves than declared."""
    tape, first = RecordingNoise(SeededNoise(seed)), Trace()
    steps = list(computing_steps(plan))
    for step in steps:
        run_step(step, database, tape, first)
    return {name: _replayed(plan, database.without(unit), tape) for name, unit in units.items()}


def _replayed(plan: Plan, neighbour: Database, tape: RecordingNoise) -> Loss:
    noise, trace, of_steps = ReplayNoise(tape.tape), Trace(), {}
    for step in computing_steps(plan):
        before = noise.loss
        run_step(step, neighbour, noise, trace)
        if step.reads:
            of_steps["/".join(step.key)] = (noise.loss - before) / step.price.amount
    noise.finish()
    claimed = plan.budget.total()
    share = noise.loss / claimed.amount
    return Loss(of_steps, math.sqrt(share) if claimed.measure is Measure.GDP else share)


def run(*, patients: int = 2000, progress: Callable[[str], None] = lambda _: None) -> str:
    """Return the table of all synthesizers and both kinds of budget."""
    rows: list[Row] = []
    database = clinic(patients)
    for name, (make, options) in SYNTHESIZERS.items():
        for kind, budget in BUDGETS.items():
            if not budget.delta and make in {PrivPetal, PrivLava}:
                continue  # it has no pure form
            progress(f"tightness: {name}, {kind}")
            found = losses(make().plan(database.schema, budget, options), database, UNITS)
            worst = max(found, key=lambda unit: found[unit].total)
            least = min(found[worst].steps, key=lambda step: found[worst].steps[step])
            rows.append(
                {
                    "synthesizer": name,
                    "noise": "Gaussian" if budget.delta else "Laplace",
                    "measured / claimed": found[worst].total,
                    "reached by the unit with": worst,
                    "no children": found["no children"].total,
                    "step that wastes most": f"`{least}` ({found[worst].steps[least]:.2f})",
                }
            )
    return f"{machine(1)}\n\n{markdown(rows)}"
