"""Bounds that are far too large, as a draft proposes them: nothing is as large as one of them, or their product."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import SpecError
from privbench_core.guards import HIDDEN_ROWS
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.views import Engine
from privbench_core.profiles.profile import Profile
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import Plan, StepKind, load_synthesizer
from privbench_core.synthesizers.steps.sampled import SampledTable
from privbench_core.units import measure_row_count
from tests.helpers.covering import covering
from tests.helpers.databases import Database
from tests.helpers.engines import engine_of
from tests.helpers.noise import SeededNoise
from tests.helpers.plans import Trace, computing_steps, run_step
from tests.helpers.planted import category, integer, owner_key, rows_of, texts

LARGEST = (1 << 31) - 1
NAMES = "abcde"
UNITS = 150
MB = 1 << 20
GAUSSIAN_ONLY = ("privpetal", "privlava")
CASES = [
    case
    for case in covering(["privbench", "privspn", "privlava", "relational", "privpetal"], [1e-6, 0.0])
    if case.values[0] not in GAUSSIAN_ONLY or case.values[1]
]


def chain(bound: int) -> Database:
    """Five tables in a row: each key is declared to have up to ``bound`` rows per parent, and has one or two."""
    rng = np.random.default_rng(0)
    tables, rows, owners = list[Table](), dict[str, pa.Table](), np.arange(UNITS)
    for level, name in enumerate(NAMES):
        number = len(owners)
        columns = (integer("id"), category("kind", 3), integer("amount", 0, 9), *([integer("of")] if level else []))
        kind, amount = texts(rng.integers(0, 3, number)), rng.integers(0, 10, number)
        keys = (owner_key(name, "of", NAMES[level - 1], bound),) if level else ()
        tables.append(Table(name, columns, ("id",), keys))
        of = {"of": owners} if level else {}
        rows[name] = rows_of(tables[-1], id=np.arange(number), kind=kind, amount=amount, **of)
        owners = np.repeat(np.arange(number), rng.integers(1, 3, number) if level < 2 else 1)
    return Database(Schema("chain", tuple(tables), "a"), rows)


def planned(name: str, database: Database, delta: float) -> Plan:
    return load_synthesizer(name).plan(database.schema, Budget(20.0, delta), {})


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail if more than a few hundred MB are needed beyond what is in use, and do not let a mistake take all there is.

    `tracemalloc` does not get on with the threads of other libraries.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2048 * MB, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < 300  # KB


def ran(plan: Plan, database: Database, engine: Engine | None = None) -> Trace:
    trace = Trace()
    for step in computing_steps(plan):
        run_step(step, database, SeededNoise(1), trace, engine=engine)
        if engine is not None:
            engine.end_step()
    return trace


def drawn(trace: Trace) -> Mapping[str, int]:
    """Synthetic rows by table."""
    found = {key[1]: SampledTable(left).whole_rows() for key, left in trace.artifacts.items() if key[0] == "sample"}
    return {name: rows.num_rows for name, rows in found.items() if rows is not None}


def near(trace: Trace, database: Database) -> bool:
    """Whether tables have as many rows as they should, give or take what so few units and so much noise make of it."""
    sizes = {name: rows.num_rows for name, rows in database.tables.items()}
    return all(size / 4 < drawn(trace)[name] < 4 * size for name, size in sizes.items())


@pytest.mark.parametrize(("name", "delta"), CASES)
def test_four_bounds_of_a_thousand_in_a_chain_work(name: str, delta: float) -> None:
    """10¹² rows of a unit are declared, as by the draft: memory and results are those of what there is."""
    database = chain(1000)
    with little_memory():
        trace = ran(planned(name, database, delta), database)
    assert near(trace, database), drawn(trace)


@pytest.mark.parametrize(
    ("bound", "which"), covering([10**6, LARGEST, 10**9], [("privbench", 1e-6), ("relational", 0.0)])
)
def test_bounds_whose_product_no_integer_holds_work(bound: int, which: tuple[str, float]) -> None:
    name, delta = which
    database = chain(bound)
    assert database.schema.max_rows_per_unit("e") == bound**4
    with little_memory():
        trace = ran(planned(name, database, delta), database)
    assert {name: rows > 0 for name, rows in drawn(trace).items()} == dict.fromkeys(NAMES, True)
    assert sum(drawn(trace).values()) < 100_000
    sizes = [Profile.from_dict(trace.artifacts["profile", name].data["profile"]).size for name in NAMES]
    assert max(size.rows_per_unit for size in sizes) <= 1 << 20
    assert max(size.bound for size in sizes) <= 1 << 20


def test_engines_in_databases_count_the_same_with_such_bounds(tmp_path: Path) -> None:
    database = chain(LARGEST)
    plan = planned("privbench", database, 1e-6)
    with closing(engine_of(database, tmp_path)) as engine:
        there = ran(plan, database, engine).artifacts
    here = ran(plan, database).artifacts
    assert {key: each.to_bytes() for key, each in there.items()} == {k: each.to_bytes() for k, each in here.items()}


def beside(bound: int, removed: OnUnitRemoved | None, per_unit: int | None = None) -> Database:
    """A chain whose last table refers to the second one as well, in any unit."""
    database = chain(bound)
    *above, last = database.schema.tables
    optional = removed is not OnUnitRemoved.CASCADE
    column = replace(integer("beside"), nullable=optional)
    key = ForeignKey("e", ("beside",), "b", ("id",), bound, optional=optional, on_unit_removed=removed,
                     max_children_per_unit=per_unit)  # fmt: skip
    table = Table(last.name, (*last.columns, column), ("id",), (*last.foreign_keys, key))
    rows = database.tables["e"]
    referred = np.arange(rows.num_rows) % database.tables["b"].num_rows
    rows = rows_of(table, **{name: rows.column(name) for name in rows.column_names}, beside=referred)
    return Database(Schema("chain", (*above, table), "a"), {**database.tables, "e": rows})


@pytest.mark.parametrize(
    ("name", "delta"),
    [("privbench", 1e-6), pytest.param("privbench", 0.0, marks=pytest.mark.slow), ("relational", 1e-6)],
)
def test_keys_that_become_null_may_be_as_generous(name: str, delta: float) -> None:
    database = beside(LARGEST, OnUnitRemoved.SET_NULL)
    with little_memory():
        trace = ran(planned(name, database, delta), database)
    assert sum(drawn(trace).values()) < 100_000


@pytest.mark.parametrize(("name", "delta"), [("privbench", 1e-6), ("relational", 0.0)])
def test_a_table_that_noise_of_millions_of_units_hides_is_not_as_large_as_the_noise(
    name: str, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit takes up to 400,000,000 rows of others away: rows that noise makes up would fill any memory."""
    most = HIDDEN_ROWS >> 5  # a million rows take half a minute to draw
    monkeypatch.setattr(measure_row_count, "HIDDEN_ROWS", most)
    database = beside(20_000, OnUnitRemoved.CASCADE)
    trace = ran(planned(name, database, delta), database)
    size = Profile.from_dict(trace.artifacts["profile", "e"].data["profile"]).size
    assert size.sigma > 1e8
    assert size.rows <= most <= size.noise
    assert size.rows <= size.sigma
    assert drawn(trace)["e"] <= 2 * most


@pytest.mark.parametrize(("name", "delta"), CASES)
def test_a_table_that_no_noise_could_leave_visible_is_refused_by_the_plan(name: str, delta: float) -> None:
    with pytest.raises(SpecError) as refused:
        planned(name, beside(10**5, OnUnitRemoved.CASCADE), delta)
    (problem,) = refused.value.problems
    assert problem.startswith("e: removing a row of a may also remove up to 10,000,000,000 rows of other units, along ")
    assert "e.beside (100,000 b per unit, 100,000 e each)" in problem
    assert "Declare max_children_per_unit or a smaller max_children" in problem
    plan = planned(name, beside(10**5, OnUnitRemoved.CASCADE, per_unit=10), delta)
    assert any(step.kind is StepKind.PROFILE and step.table == "e" for step in plan.steps)
