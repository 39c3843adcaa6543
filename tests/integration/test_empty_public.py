"""A key to a public table without rows: no row can refer to one, in any synthesizer, and nothing is asked about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privbench_core.privacy.budget import Budget
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import Synthesizer
from privbench_core.synthesizers.privbench import PrivBench
from privbench_core.synthesizers.privlava import PrivLava
from privbench_core.synthesizers.privpetal import PrivPetal
from privbench_core.synthesizers.relational.plan import Relational
from privbench_core.synthesizers.steps.sampled import SampledTable
from tests.helpers.databases import Database, database_from
from tests.helpers.noise import SeededNoise
from tests.helpers.plans import Trace, computing_steps, run_step

INTEGER = ColumnType.INTEGER


def firm() -> Database:
    """Visits must name a kind, and may name a place; there are no kinds, and no places."""
    score = Column("score", INTEGER, Range(0, 9))
    kind = Table("kind", (Column("id", INTEGER), Column("label", ColumnType.TEXT)), ("id",), public=True)
    place = Table("place", (Column("id", INTEGER), Column("far", INTEGER, nullable=True)), ("id",), public=True)
    person = Table("person", (Column("id", INTEGER), score), ("id",))
    visit = Table(
        "visit",
        (Column("id", INTEGER), Column("person_id", INTEGER), Column("kind_id", INTEGER), score),
        ("id",),
        (
            ForeignKey("visit", ("person_id",), "person", ("id",), max_children=3, owner=True),
            ForeignKey("visit", ("kind_id",), "kind", ("id",)),
        ),
    )
    note = Table(
        "note",
        (Column("id", INTEGER), Column("visit_id", INTEGER), score),
        ("id",),
        (ForeignKey("note", ("visit_id",), "visit", ("id",), max_children=3, owner=True),),
    )
    call = Table(
        "call",
        (Column("id", INTEGER), Column("person_id", INTEGER), Column("place_id", INTEGER, nullable=True), score),
        ("id",),
        (
            ForeignKey("call", ("person_id",), "person", ("id",), max_children=3, owner=True),
            ForeignKey("call", ("place_id",), "place", ("id",), optional=True),
        ),
    )
    rng = np.random.default_rng(0)
    people: list[tuple[Any, ...]] = [(i, int(rng.integers(10))) for i in range(60)]
    calls: list[tuple[Any, ...]] = [(i, int(rng.integers(60)), None, int(rng.integers(10))) for i in range(90)]
    rows: dict[str, list[tuple[Any, ...]]] = {"person": people, "call": calls}
    schema = Schema("firm", (kind, place, person, visit, note, call), "person")
    return database_from(schema, {table.name: rows.get(table.name, []) for table in schema.tables})


@pytest.mark.parametrize("synthesizer", [PrivBench(), PrivPetal(), PrivLava(), Relational()], ids=lambda s: s.name)
def test_a_key_to_a_public_table_without_rows(synthesizer: Synthesizer) -> None:
    database, trace = firm(), Trace()
    for step in computing_steps(synthesizer.plan(database.schema, Budget(3.0, 1e-6), {})):
        run_step(step, database, SeededNoise(1), trace)
    made = {name: SampledTable(trace.artifacts["sample", name]).whole_rows() for name in ("visit", "note", "call")}
    assert made["visit"].num_rows == made["note"].num_rows == 0
    assert made["call"].num_rows > 0
    assert made["call"].column("place_id").null_count == made["call"].num_rows
    assert not trace.charges["fanout", "visit.kind_id"] + trace.charges["fanout", "call.place_id"]
