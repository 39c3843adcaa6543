"""privbench on one coded table: the single place where the benchmarks call the project for it."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from benchmarks.measure import Codes, Fit, fit_target_in_child
from privbench_core.engines.memory import PrivateDatabase
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.noise import OpenDPNoise
from privbench_core.privacy.session import open_session
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, StepContext, StepKind, Synthesizer, load_synthesizer
from privbench_core.synthesizers.steps.sampled import SampledTable

DEFAULT = "privbench"
_LEARNING = {StepKind.COUNT, StepKind.PROFILE, StepKind.MODEL}


def fit_sample_single(
    synthesizer: str, codes: Codes, sizes: list[int], ordered: list[bool], epsilon: float, delta: float, seed: int
) -> Fit:
    """Fit a synthesizer's table model and sample as many rows as it counts, in a process of its own."""
    parameters = {"epsilon": epsilon, "delta": delta, "seed": seed, "synthesizer": synthesizer}
    return fit_target_in_child("benchmarks.subject:fit_sample", codes, sizes, ordered, parameters)


def fit_sample(
    codes: Codes,
    sizes: list[int],
    ordered: list[bool],
    epsilon: float,
    delta: float,
    seed: int,
    synthesizer: str | Synthesizer = DEFAULT,
) -> tuple[Codes, float, float]:
    """Run a synthesizer's plan for a database of one table, with real noise and a ledger in memory.

    The validation step is left out of the clock, but its share of the budget is set aside all the same.

    Returns:
        Synthetic codes, seconds to learn (profile and model, encoding included), seconds to sample and decode.
    """
    names = [f"c{i:03d}" for i in range(len(sizes))]
    columns = [Column("id", ColumnType.INTEGER), *map(_column, names, sizes, ordered)]
    data = {"id": np.arange(len(codes))} | {name: codes[:, i].astype(np.int64) for i, name in enumerate(names)}
    table = Table("rows", tuple(columns), ("id",))
    sampled, learn, sample = learn_and_sample(table, pa.table(data), epsilon, delta, seed, synthesizer)
    return np.column_stack([sampled.column(name).to_numpy() for name in names]), learn, sample


def learn_and_sample(
    table: Table, rows: pa.Table, epsilon: float, delta: float, seed: int, synthesizer: str | Synthesizer = DEFAULT
) -> tuple[pa.Table, float, float]:
    """Synthetic rows of a database of one table, and the seconds to learn and to sample; see `fit_sample`."""
    schema = Schema("benchmark", (table,), table.name)
    private = PrivateDatabase(schema, {table.name: rows}, bytes(16))
    chosen = load_synthesizer(synthesizer) if isinstance(synthesizer, str) else synthesizer
    plan = chosen.plan(schema, Budget(epsilon, delta), {})
    ledger = Ledger(":memory:", schema.name, "one row", Budget(epsilon, delta * 4))
    done: dict[Key, Artifact] = {}
    seconds = {"learn": 0.0, "sample": 0.0}
    for step in plan.steps:
        if step.kind not in {*_LEARNING, StepKind.SAMPLE}:
            continue
        start = time.perf_counter()
        session = None
        if step.reads:
            name = "/".join(step.key)
            session, _ = open_session(
                private, ledger, OpenDPNoise(), release=name, step=name, run="benchmark", price=step.price
            )
        done[step.key] = step.run(StepContext({key: done[key] for key in step.inputs}, session, {}, seed))
        seconds["learn" if step.kind in _LEARNING else "sample"] += time.perf_counter() - start
    sampled = SampledTable(done["sample", table.name])
    return sampled.whole_rows(), seconds["learn"], seconds["sample"]


def _column(name: str, size: int, ordered: bool) -> Column:
    domain = Range(0, size - 1, size) if ordered else Values(tuple(range(size)))
    return Column(name, ColumnType.INTEGER, domain)
