"""Refinement of tables by AIM: the protocol of Alimohammadi et al., with rows that dpmm's AIM has made.

Their figures (average errors, in percent, of all three-way marginals with columns of both tables) are 31.5 before the
first round, where each link has any row at either end, and 20.9 after refinement, which takes away a third: MovieLens,
at most ten links of a row, ε = 12 of which 2 are for each table. Here the tables come from AIM as well, and
`relational` measures and makes the links; numbers of rows and degrees are paid for out of the ε of links. *With degrees
alone* links are shuffled: what marginals across tables add stands between that and *after*.

- *movielens*: users and films of MovieLens 100K, 19 kinds of films as columns; as theirs, but of 943 users, not 6,040,
  and films are public.
- *census*: households and persons of San Diego, the first 10,000 households; ε = 4, of which 1 is for each table, as in
  their experiment with census data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks import peers, sandag
from benchmarks.data import data_folder
from benchmarks.measure import Runs, call_in_child
from benchmarks.relationships import MOVIELENS_KINDS, movielens_tables, movielens_user, saved_spec
from benchmarks.report import Row, machine, markdown, medians
from benchmarks.workloads import Case
from privbench_core.columns.codec import Codes
from privbench_core.evaluation.joins import LinkedTables, junctions, link_junction, link_tables
from privbench_core.evaluation.marginals import EncodedTable, crossing_subsets, encode_tables, mean_distances
from privbench_core.marginals.sampler import Rows
from privbench_core.pipeline.executor import Executor, public_workload
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Budget, Price, zero
from privbench_core.profiles.profile import Profile
from privbench_core.publishing import read_bundle
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import load_spec
from privbench_core.stored import Storable
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.privbench import network_plan
from privbench_core.synthesizers.relational.plan import Options
from privbench_core.synthesizers.steps.learned_link import LinkFit, learned_link
from privbench_core.synthesizers.steps.profile import profile_steps

DELTA = 1e-9
# ε: multiples of the protocol's own; at 6.4 times it, one of 943 users is to noise what one of 6,040 is to theirs
RUNS = Runs(1, (1.0, 6.4), (DELTA,))
_SIZES = 0.1  # of the ε of links: for numbers of rows and one-way marginals, which AIM does not publish; by hand
_LIMIT = 1800.0  # seconds for AIM
_HOUSEHOLDS = 10_000
_CENSUS = {"PERSONS", "workers", "VEHICL", "HHT", "unittype", "age", "sex", "pemploy", "pstudent", "ptype"}
_CELLS = 10
_MOST_LINKS = 10
_SEED = 0
_METHOD = "aim"


@dataclass(frozen=True)
class Protocol:
    """One database of the protocol.

    Attributes:
        case: The database.
        of_table: ε of AIM for each private table that has attributes.
        of_links: ε of everything else.
    """

    case: Case
    of_table: float
    of_links: float

    @property
    def tables(self) -> list[Table]:
        """The tables that AIM makes."""
        return [table for table in self.case.spec.schema.private_tables if table.attributes]


def run(name: str, runs: Runs = RUNS, data: Path | None = None) -> str | None:
    """Measure one of `DATABASES` and return Markdown text, None where AIM or the data is missing."""
    if _METHOD not in peers.installed():
        runs.progress("refinement is left out: `make .venv/.peers` installs AIM")
        return None
    rows: list[Row] = []
    with TemporaryDirectory() as place:
        protocol = _PROTOCOLS[name](data_folder(data), Path(place))
        if protocol is None:
            runs.progress(f"refinement: {name} is left out: {data_folder(data)} has no such data")
            return None
        for delta, factor in runs.budgets:
            for seed in range(runs.seeds):
                runs.progress(f"refinement: {name}, ε times {factor:g}, seed {seed}")
                rows.append(_measured(protocol, factor, delta, seed))
    return f"**{name}**. {machine(runs.seeds)}\n\n{markdown(medians(rows, ['ε of a table', 'ε of links']))}"


def _movielens(data: Path, place: Path) -> Protocol | None:
    source = data / "ml-100k"
    return Protocol(_users_and_films(source, place / "movielens"), 2.0, 8.0) if source.is_dir() else None


def _census(_: Path, place: Path) -> Protocol:
    return Protocol(_households(place / "census"), 1.0, 2.0)


def _measured(protocol: Protocol, factor: float, delta: float, seed: int) -> Row:
    case, schema = protocol.case, protocol.case.spec.schema
    coded = encode_tables(schema, case.source)
    with TemporaryDirectory() as folder:
        for table in protocol.tables:
            _make(Path(folder), coded[table.name], table.name, (factor * protocol.of_table, delta, seed))
        given = {"spec": str(case.spec.path), "epsilon": factor * protocol.of_links, "delta": delta, "seed": seed}
        out = Path(folder) / "out"
        call_in_child("benchmarks.refinement:linked", {**given, "out": str(out), "rows": folder})
        bundle = read_bundle(out / "bundle")
        made = {table.name: bundle.table(table.name) for table in schema.tables}
    rng = np.random.default_rng(seed)
    true, found = _join(schema, case.source, coded), _join(schema, made, encode_tables(schema, made, case.source))
    anyhow = _linked_anyhow(schema, made, rng)
    before = _error(true, _join(schema, anyhow, encode_tables(schema, anyhow, case.source)))
    degrees, after = _error(true, found.with_shuffled_links(rng)), _error(true, found)
    return {
        "ε of a table": f"{factor * protocol.of_table:g}",
        "ε of links": f"{factor * protocol.of_links:g}",
        "links": len(true.links),
        "before": before,
        "with degrees alone": degrees,
        "after": after,
        "taken away": 1 - after / before,
    }


def _linked_anyhow(schema: Schema, tables: Mapping[str, pa.Table], rng: np.random.Generator) -> dict[str, pa.Table]:
    """The same rows, each referring to any row of its parents: the authors' links before the first round."""
    result = dict(tables)
    for key in (key for table in schema.private_tables for key in table.foreign_keys):
        (column,), (of_parent,) = key.columns, key.parent_columns
        rows, parents = result[key.child], tables[key.parent].column(of_parent)
        chosen = parents.take(pa.array(rng.integers(0, len(parents), rows.num_rows)))
        result[key.child] = rows.set_column(rows.column_names.index(column), column, chosen)
    return result


def _make(folder: Path, table: EncodedTable, name: str, how: tuple[float, float, int]) -> None:
    """Write rows that AIM makes of a table, as codes of its columns' declared domains."""
    epsilon, delta, seed = how
    asked: dict[str, float | int] = {"epsilon": epsilon, "delta": delta, "seed": seed}
    codes, *_ = peers.fit_peer(_METHOD, table.codes, list(table.sizes), list(table.ordered), asked, _LIMIT)
    columns: dict[str, Any] = dict(zip(table.names, codes.T, strict=True))
    np.savez(folder / f"{name}.npz", **columns)


def _error(true: LinkedTables, made: LinkedTables) -> float:
    """Mean L1 distance, in percent, of all three-way marginals with columns of both tables: twice the TVD."""
    subsets = crossing_subsets(len(true.parent_sizes), len(true.child_sizes), 3)
    return 200 * mean_distances(true.joined, made.joined, true.sizes, subsets).tvd


def _join(schema: Schema, tables: Mapping[str, pa.Table], coded: Mapping[str, EncodedTable]) -> LinkedTables:
    for one, other in junctions(schema):
        return link_junction(one, other, tables, coded)
    key = next(key for table in schema.tables for key in table.foreign_keys if key.owner)
    return link_tables((key,), tables, coded)


def linked(spec: str, epsilon: float, delta: float, seed: int, out: str, rows: str) -> None:
    """Link given rows and write the bundle to ``out``; called in a process of its own."""
    loaded = load_spec(spec).accepting_noise
    loaded = replace(loaded, state=Path(out) / "state", lifetime_epsilon=1e6, lifetime_delta=0.5)
    options = Options(gamma=_SIZES)
    fit = LinkFit(options.degrees, options.select)

    def learn(table: Table, price: Price) -> list[Step]:
        return _given_steps(loaded.schema, table, price, Path(rows) / f"{table.name}.npz")

    def link(schema: Schema, key: ForeignKey, price: Price) -> Step:
        return learned_link(schema, key, price, fit)

    plan = network_plan("given rows", loaded.schema, Budget(epsilon, delta), options, learn, link)
    here = Workspace(loaded)
    try:
        Executor(
            Runner(here, plan, Run("refinement", seed, 1.0, Path(out) / "bundle", public_workload(loaded)), None)
        ).run()
    finally:
        here.close()


def _given_steps(schema: Schema, table: Table, price: Price, file: Path) -> list[Step]:
    """The shared profile, and a model that draws the rows of a file, which somebody has paid for already."""
    profile: Key = ("profile", table.name)

    def run(context: StepContext) -> Artifact:
        released = Profile.from_dict(context.inputs[profile].data["profile"])
        found: Mapping[str, Codes] = np.load(file) if table.attributes else {}
        codes = {name: how.shares[0][found[name]] for name, how in released.discretizers.items()}
        sizes = {name: how.size for name, how in released.discretizers.items()}
        return Artifact({"model": GivenRows(codes, sizes).to_dict(), "summary": {}})

    model = Step(("model", table.name), StepKind.MODEL, table.name, (profile,), (), zero(price.measure), run)
    return [*profile_steps(schema, table, price), model]


@dataclass(frozen=True)
class GivenRows(Storable):
    """A model that draws rows of a sample, each as often as any other."""

    codes: Mapping[str, Codes]
    sizes: Mapping[str, int]

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """See `Model.draw`."""
        number = min((len(codes) for codes in self.codes.values()), default=0)
        chosen = np.resize(rng.permutation(number), rows.n) if number else np.zeros(0, np.int64)
        for name, codes in self.codes.items():
            rows.add(name, self.sizes[name], codes[chosen])


def _users_and_films(source: Path, folder: Path) -> Case:
    """Users and films as the authors link them: the first ten links of each row, without attributes."""
    tables = movielens_tables(source)
    for column in ("film_id", "user_id"):
        tables["rated"] = tables["rated"].filter(pa.array(_place(tables["rated"], column) < _MOST_LINKS))
    whole = ColumnType.INTEGER
    kinds = (Column(name, whole, Range(0, 1)) for name in MOVIELENS_KINDS)
    film = Table("film", (Column("id", whole), *kinds), ("id",), public=True)
    keys = (
        ForeignKey("rated", ("user_id",), "user", ("id",), owner=True, max_children=_MOST_LINKS),
        ForeignKey("rated", ("film_id",), "film", ("id",)),
    )
    between = Table("rated", (Column("user_id", whole), Column("film_id", whole)), ("user_id", "film_id"), keys)
    schema = Schema("movielens", (movielens_user(tables), film, between), "user")
    return Case.of(saved_spec(schema, folder, tables), lambda *_: {})


def _place(rows: pa.Table, column: str) -> NDArray[np.int64]:
    """How many rows with the same number stand before each."""
    numbers = rows.column(column).to_numpy()
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    lengths = np.diff(np.append(starts, len(numbers)))
    places = np.empty(len(numbers), np.int64)
    places[order] = np.arange(len(numbers)) - np.repeat(starts, lengths)
    return places


def _households(folder: Path) -> Case:
    """The first households of San Diego, and their persons, with columns of few values."""
    spec = load_spec(sandag.SPEC)
    rows = dict(Case.of(replace(spec, path=folder.with_suffix(".whole")), lambda *_: {}).source)
    household, person = (_of_few_values(spec.schema.table(name)) for name in ("household", "person"))
    (key,) = person.foreign_keys
    rows["household"] = rows["household"].slice(0, _HOUSEHOLDS)
    known = pc.is_in(rows["person"].column(key.columns[0]), rows["household"].column(key.parent_columns[0]))
    rows["person"] = rows["person"].filter(known)
    return Case.of(saved_spec(replace(spec.schema, tables=(household, person)), folder, rows), lambda *_: {})


def _of_few_values(table: Table) -> Table:
    """The columns of `_CENSUS`, ordered ones in `_CELLS` cells: the authors' have few values, and AIM is slow."""
    columns = []
    for column in table.columns:
        if column.name not in _CENSUS and column not in table.attributes:
            columns.append(column)
        elif column.name in _CENSUS:
            domain = column.domain
            columns.append(
                replace(column, domain=replace(domain, cells=_CELLS)) if isinstance(domain, Range) else column
            )
    return replace(table, columns=tuple(columns))


_PROTOCOLS: Mapping[str, Callable[[Path, Path], Protocol | None]] = {"movielens": _movielens, "census": _census}
DATABASES = tuple(_PROTOCOLS)
