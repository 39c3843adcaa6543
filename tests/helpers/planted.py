"""Planted databases, curators without noise, and whole runs over both: for tests of models, links and pipelines."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.engines.memory import PrivateDatabase
from privbench_core.marginals.measured import Measured
from privbench_core.marginals.one_way import OneWay
from privbench_core.pipeline import plan_for, run_name
from privbench_core.pipeline.executor import Executor, RunResult, run_spec
from privbench_core.pipeline.runner import Release, Run, Runner
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.noise import Counts, NoiseSource, Sensitivity
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import CodedView, HeldRows
from privbench_core.profiles.measure_profile import Cells, learn_table
from privbench_core.profiles.profile import Profile
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import dump_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, StepContext, StepKind
from privbench_core.synthesizers.steps.sampled import Sample, SampledTable
from privbench_core.tuning import TUNING
from privbench_core.units.measure_row_count import measure_units
from privbench_core.units.row_count import RowCount
from tests.helpers.plans import plan_with

Codes = NDArray[np.int32]
Rng = np.random.Generator
PLENTY = Price(Measure.GDP, 1e14)
"""A price so large that noise worth it is below a thousandth of a row: models then trust what they measure."""


class NoNoise:
    """Exact answers. Insecure, so a durable ledger refuses it."""

    secure = False

    def add(self, site: str, exact: Counts, sensitivity: Sensitivity, price: Price) -> Counts:
        """The answer itself."""
        return np.asarray(exact, dtype=np.int64).copy()

    def choose(self, site: str, scores: Counts, sensitivity: int, price: Price) -> int:
        """The first of the largest scores."""
        return int(np.argmax(scores))

    def keep(
        self, site: str, exact: dict[str, int], sensitivity: Sensitivity, price: Price, touched: int
    ) -> dict[str, int]:
        """All keys."""
        return dict(exact)


def curator_of(
    codes: Mapping[str, Codes], sizes: Mapping[str, int], limit: Price = PLENTY
) -> tuple[Curator, PrivacyFilter]:
    """A curator without noise over rows that all count 1, and the account it charges."""
    n = len(next(iter(codes.values())))
    view = CodedView(HeldRows(dict(codes), sizes, None, n), dict(sizes), 1, 1, 1)
    account = PrivacyFilter(limit, lambda _label, _price: None)
    return Curator(view, account, NoNoise(), "test"), account


def one_way_of(codes: Mapping[str, Codes], sizes: Mapping[str, int], sigma: float = 1e-6) -> OneWay:
    """Exact one-way counts that pass for released ones."""
    return OneWay.with_sigma({n: np.bincount(c, minlength=sizes[n]).astype(float) for n, c in codes.items()}, sigma)


def joint_of(codes: Mapping[str, Codes], sizes: Mapping[str, int], *names: str) -> NDArray[np.float64]:
    """Relative frequencies of the code combinations of some columns."""
    shape = [sizes[name] for name in names]
    cells = np.ravel_multi_index([codes[name] for name in names], shape)
    return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape) / max(len(cells), 1)


def tvd(p: NDArray[Any], q: NDArray[Any]) -> float:
    """Total variation distance."""
    return float(np.abs(np.asarray(p) - np.asarray(q)).sum() / 2)


def door_of(
    schema: Schema,
    tables: Mapping[str, pa.Table],
    limit: Price = PLENTY,
    noise: NoiseSource | None = None,
    record: Callable[[str, Price], None] = lambda _label, _price: None,
) -> PrivateSession:
    """A session open for ``limit``, without noise unless some is given; no ledger stands behind it."""
    database = PrivateDatabase(schema, tables, bytes(16))
    return PrivateSession(database, PrivacyFilter(limit, record), noise or NoNoise(), "test")


def learn_counted(
    session: PrivateSession, table: Table, bound: int, price: Price, *how: Any
) -> tuple[Cells, Profile, Measured]:
    """What the first two steps of a table learn for their price, as `learn_table` does after its units are counted."""
    of_count = price.share(TUNING.size_share if bound > 1 else TUNING.number_share)
    units = measure_units(session, table.name, bound, of_count)
    rest = Price(price.measure, price.amount - of_count.amount, price.delta)
    return learn_table(session, table, units, rest, *how)


def coders_of(table: Table) -> dict[str, Discretizer]:
    """Discretizers of declared domains, a code per cell."""
    return {column.name: Discretizer(codec_for(column, table=table.name)) for column in table.attributes}


def counted(table: Table, rows: pa.Table, weights: NDArray[np.float64] | None = None) -> OneWay:
    """Exact one-way counts of a table's attributes, weighted where ``weights`` are given."""
    counts = {
        name: np.bincount(discretizer.encode(rows.column(name)), weights=weights, minlength=discretizer.size).astype(
            float
        )
        for name, discretizer in coders_of(table).items()
    }
    return OneWay.with_sigma(counts, 1e-6, max(1.0, float(rows.num_rows if weights is None else weights.sum())))


def profile_of(table: Table, rows: pa.Table, rows_per_unit: int = 1) -> Profile:
    """A profile of exact counts of all rows."""
    return Profile(coders_of(table), counted(table, rows), RowCount(rows.num_rows, 1e-6, rows_per_unit))


@dataclass(frozen=True)
class Place:
    """A database as a folder with its spec."""

    spec: Spec

    @property
    def folder(self) -> Path:
        """Where everything lies."""
        return self.spec.path.parent

    @property
    def out(self) -> Path:
        """Where bundles go."""
        return self.folder / "out"

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        """Replace the rows of some tables."""
        for name, rows in tables.items():
            pq.write_table(rows, Path(self.spec.source) / f"{name}.parquet")

    def run(self, epsilon: float = 3.2, *, accept_noise: bool = True, **how: Any) -> RunResult:
        """Run the spec's plan, at any ε."""
        spec = self.spec.accepting_noise if accept_noise else self.spec
        return run_spec(spec, epsilon, out=self.out, undeclared_epsilon=True, **how)

    @contextmanager
    def _unkept_ledger(self) -> Iterator[Workspace]:
        """The spec's workspace with a ledger that admits insecure noise."""
        workspace = Workspace(replace(self.spec.accepting_noise, lifetime_epsilon=1e9))
        workspace.secret = bytes(16)  # decides which rows are kept
        workspace.ledger.close()
        lifetime = Budget(1e9, self.spec.lifetime_delta)
        workspace.ledger = Ledger(":memory:", self.spec.schema.name, "unit", lifetime)
        try:
            yield workspace
        finally:
            workspace.close()

    def run_with(self, noise: NoiseSource, epsilon: float = 3.2, **how: Any) -> RunResult:
        """Run it with insecure noise, which takes a ledger that is not kept; seeded, each run does the same."""
        shutil.rmtree(self.out, ignore_errors=True)  # a bundle of a ledger that is gone is not replaced
        with self._unkept_ledger() as workspace:
            return self.run(epsilon, workspace=workspace, noise=noise, **how)

    def drawn_with(self, noise: NoiseSource, epsilon: float = 3.2, seed: int = 0) -> dict[str, pa.Table]:
        """The synthetic tables of such a run, which is spared what judges and publishes them: half of its time."""
        plan = plan_for(self.spec, epsilon)
        judging = {StepKind.FIDELITY, StepKind.VALIDATE, StepKind.PUBLISH}
        steps = {step.key for step in plan.steps if step.kind not in judging}
        with self._unkept_ledger() as workspace:
            runner = Runner(workspace, plan, Run(run_name(epsilon), seed), noise)
            made = Executor(runner, steps).run()
        return _samples({key: step.release for key, step in made.items()})

    @property
    def spent(self) -> float:
        """The sum of all amounts in the ledger."""
        return sum(amount for _, amount in self.booked)

    def plan_total(self, epsilon: float) -> float:
        """The price of a whole run, in the plan's currency."""
        return sum(step.price.amount for step in plan_for(self.spec, epsilon).steps)

    @property
    def booked(self) -> list[tuple[str, float]]:
        """Step and amount of every entry in the ledger, oldest first."""
        workspace = Workspace(self.spec)
        try:
            return [(entry.step, entry.price.amount) for entry in workspace.ledger.entries()]
        finally:
            workspace.close()


def place_of(
    folder: Path,
    schema: Schema,
    tables: Mapping[str, pa.Table],
    *,
    delta: float = 1e-9,
    lifetime: float = 100.0,
    options: Mapping[str, Any] | None = None,
    orphans: Mapping[str, str] | None = None,
    synthesizer: str = "privbench",
) -> Place:
    """Write a database and its spec into ``folder``."""
    rows = folder / "rows"
    rows.mkdir(parents=True)
    spec = Spec(
        schema, str(rows), folder / "spec.yaml", (3.2,), delta, lifetime, min(10 * delta, 0.5), synthesizer,
        options or {}, folder / "state", orphans or {},
    )  # fmt: skip
    spec.path.write_text(dump_spec(spec), encoding="utf-8")
    place = Place(spec)
    place.write(tables)
    return place


def samples_of(result: RunResult) -> dict[str, pa.Table]:
    """The synthetic tables of a run."""
    return _samples(result.releases)


def _samples(releases: Mapping[Key, Release]) -> dict[str, pa.Table]:
    made = {key[1]: SampledTable(left.artifact).whole_rows() for key, left in releases.items() if key[0] == "sample"}
    return {name: table for name, table in made.items() if table is not None}


def broken_expectations(result: RunResult) -> list[str]:
    """Expectations on integrity that a run's synthetic tables do not meet."""
    checks = [c for key, r in result.releases.items() if key[0] == "validate" for c in r.artifact.data["expectations"]]
    assert checks
    return [f"{c['table']}.{c['column']}: {c['name']}" for c in checks if not c["success"]]


def category(name: str, values: int, **more: Any) -> Column:
    """A text column with a declared list of values "v0", "v1" and so on."""
    return Column(name, ColumnType.CATEGORY, Values(tuple(f"v{i}" for i in range(values))), **more)


def integer(name: str, low: int | None = None, high: int = 0, **more: Any) -> Column:
    """An integer column: a key, or with ``low`` an attribute of a declared range."""
    return Column(name, ColumnType.INTEGER, None if low is None else Range(low, high), **more)


def texts(codes: NDArray[Any], null: NDArray[np.bool_] | None = None) -> pa.Array:
    """Values of a `category` column, NULL where ``null`` says so."""
    return pa.array([f"v{code}" for code in codes], pa.string(), mask=null)


def codes_of(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Codes of the values that `texts` makes, -1 for NULL."""
    return np.array([-1 if value is None else int(value[1:]) for value in column.to_pylist()], dtype=np.int64)


def rows_of(table: Table, **columns: Any) -> pa.Table:
    """Arrow rows of a table, cast to its types."""
    types = table.arrow_schema
    arrays = [columns[f.name] if isinstance(columns[f.name], pa.Array) else pa.array(columns[f.name]) for f in types]
    return pa.table([a.cast(f.type) for a, f in zip(arrays, types, strict=True)], names=types.names)


def owner_key(child: str, column: str, parent: str, bound: int) -> ForeignKey:
    """A key on the ownership path that refers to ``parent.id``."""
    return ForeignKey(child, (column,), parent, ("id",), max_children=bound, owner=True)


def planted_pair(parents: int = 3000, seed: int = 0) -> tuple[Schema, dict[str, pa.Table]]:
    """Parents whose ``a`` decides how many children they have (0 or 1, 2, 3 to 5) and, mostly, the children's ``b``.

    The parents' ``c`` depends on nothing; the children's ``x`` follows their own ``b``.
    """
    rng = np.random.default_rng(seed)
    parent = Table("parent", (integer("id"), category("a", 3), category("c", 2)), ("id",))
    columns = (integer("id"), integer("parent_id"), category("b", 3), integer("x", 0, 9))
    child = Table("child", columns, ("id",), (owner_key("child", "parent_id", "parent", 5),))
    a = rng.choice(3, parents, p=[0.5, 0.3, 0.2])
    number = np.where(a == 0, rng.integers(0, 2, parents), np.where(a == 1, 2, rng.integers(3, 6, parents)))
    home = np.repeat(np.arange(parents), number)
    b = np.where(rng.random(len(home)) < 0.8, a[home], rng.integers(0, 3, len(home)))
    x = np.clip(3 * b + rng.integers(0, 4, len(home)), 0, 9)
    tables = {
        "parent": rows_of(parent, id=np.arange(parents) + 7, a=texts(a), c=texts(rng.integers(0, 2, parents))),
        "child": rows_of(child, id=np.arange(len(home)) + 1000, parent_id=home + 7, b=texts(b), x=x),
    }
    return Schema("planted", (parent, child), "parent"), tables


def draw_exactly(
    schema: Schema,
    tables: Mapping[str, pa.Table],
    *,
    noise: NoiseSource | None = None,
    budget: Budget = Budget(1e8, 1e-6),  # noqa: B008 - frozen
    seed: int = 0,
    scale: float = 1.0,
    **options: Any,
) -> dict[str, Sample]:
    """Return samples of a plan (PrivBench's, if options name no other), by default from exact measurements.

    Their ``parents`` are found by the values of all keys.
    """
    made = made_exactly(schema, tables, noise=noise, budget=budget, seed=seed, scale=scale, **options)
    found = {key[1]: Sample.from_artifact(made[key]) for key in made if key[0] == "sample"}
    return {
        name: replace(sample, parents={key.name: _parents(key, found) for key in schema.table(name).foreign_keys})
        for name, sample in found.items()
    }


def _parents(key: ForeignKey, samples: Mapping[str, Sample]) -> NDArray[np.int64]:
    """Row number of the parent of each row, -1 for none."""

    def values(table: str, columns: tuple[str, ...]) -> list[tuple[object, ...]]:
        return list(zip(*(samples[table].table[name].to_pylist() for name in columns), strict=True))

    places = {value: place for place, value in enumerate(values(key.parent, key.parent_columns))}
    return np.array([places.get(value, -1) for value in values(key.child, key.columns)], dtype=np.int64)


def made_exactly(
    schema: Schema,
    tables: Mapping[str, pa.Table],
    *,
    noise: NoiseSource | None = None,
    budget: Budget = Budget(1e8, 1e-6),  # noqa: B008 - frozen
    seed: int = 0,
    scale: float = 1.0,
    workers: int | None = 1,
    **options: Any,
) -> dict[Key, Artifact]:
    """Return what the steps of a plan leave, up to its samples."""
    plan = plan_with(schema, budget, options)
    database = PrivateDatabase(schema, tables, bytes(16))
    public = {table.name: tables[table.name] for table in schema.tables if table.public}
    made: dict[Key, Artifact] = {}
    for step in plan.steps:
        if step.kind not in {StepKind.COUNT, StepKind.PROFILE, StepKind.MODEL, StepKind.FANOUT, StepKind.SAMPLE}:
            continue
        account = PrivacyFilter(step.price, lambda _label, _price: None)
        session = PrivateSession(database, account, noise or NoNoise(), "/".join(step.key)) if step.reads else None
        context = StepContext({key: made[key] for key in step.inputs}, session, public, seed, scale, workers=workers)
        made[step.key] = Artifact.from_bytes(step.run(context).to_bytes(), context.parts)
        assert account.spent.fits(step.price), step.key
    return made
