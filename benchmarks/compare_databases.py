"""The databases of `compare`: those of the other benchmarks, real ones that nobody tuned on, and their queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import dense, population, sandag, stats, tpch, unseen
from benchmarks.data import ADULT, data_folder, read_table
from benchmarks.evaluation import adult_spec
from benchmarks.tpch_schema import SCHEMA as TPCH
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from tests.helpers.heavy_tails import CONVERGING, Database, chain
from tests.helpers.planted import integer, place_of, rows_of
from tests.helpers.relatives import mail_order
from tests.helpers.row_cases import CASES

_DELTA = 1e-9
_MANY = 20_000  # users, five times as many as in the chain of the tests
_TPCH_SCALE = 0.01


@dataclass(frozen=True)
class Source:
    """A database.

    Attributes:
        name: As `--databases` and the tables call it.
        spec: Writes the rows and the spec into a folder of its own, and returns the spec; raises SourceError where the
            data, or what makes it, is not there.
    """

    name: str
    spec: Callable[[Path], Spec]


def sources(data: Path | None) -> Iterator[Source]:
    """Return all of them, cheap ones first; none is made before it is asked for."""
    yield from (Source(name, partial(generated, make)) for name, make in CONVERGING.items())
    yield from (Source(name, partial(generated, CASES[name])) for name in ("seasons", "shop", "hospital"))
    yield Source("web_shop", partial(generated, partial(mail_order, relative=False)))
    yield Source("dense", partial(generated, lambda: dense_database(dense.correlated(12, 0.7, 20_000))))
    yield Source("xor", partial(generated, lambda: dense_database(dense.xor())))
    yield Source("chain_20000", partial(generated, partial(chain, _MANY)))
    yield from (
        Source(name, partial(lambda each, folder: generated(each.database, folder), each))
        for name, each in unseen.SOURCES.items()
    )
    yield Source("tpch_skew", skewed_tpch)
    yield Source("households", _households)
    yield Source("san_diego", san_diego)
    yield Source("adult", lambda folder: _adult(data, folder))
    yield Source("stats_every_key", lambda folder: stats_spec(stats.every_key, data_folder(data) / "stats", folder))


def generated(make: Callable[[], Database], folder: Path) -> Spec:
    """Write a database that is made in memory."""
    schema, tables = make()
    return place_of(folder / "place", schema, tables).spec


def san_diego(folder: Path) -> Spec:
    """The example's households, with the spec and the state in ``folder``."""
    return replace(load_spec(sandag.SPEC), path=folder / "households.yaml", state=folder / "state")


def skewed_tpch(folder: Path) -> Spec:
    """TPC-H with references by Zipf's law; SourceError without its generator."""
    source = folder / "source"
    source.mkdir()
    tpch.generate_skewed(source, _TPCH_SCALE)
    return Spec(TPCH, str(source), folder / "tpch.yaml", (3.2,), 1e-9, 20.0, 1e-7, state=folder / "state")


def stats_spec(spec: Callable[[Path, Path], Spec], data: Path, folder: Path) -> Spec:
    """Stats by one of its specs, from the folder of its tables; SourceError if one is missing."""
    source = folder / "source"
    source.mkdir()
    stats.prepare(data, source)
    return spec(source, folder)


def dense_database(table: dense.Dense) -> Database:
    """A coded table as a database of one table: each row is a unit."""
    names = [f"c{place}" for place in range(len(table.sizes))]
    columns = (integer(name, 0, size - 1) for name, size in zip(names, table.sizes, strict=True))
    made = Table("row", (integer("id"), *columns), ("id",))
    codes = dict(zip(names, table.codes.T, strict=True))
    return Schema("dense", (made,), "row"), {"row": rows_of(made, id=np.arange(len(table.codes)), **codes)}


def _adult(data: Path | None, folder: Path) -> Spec:
    return adult_spec(read_table(data_folder(data) / "adult", "adult_clean").select(list(ADULT)), folder)


def _households(folder: Path) -> Spec:
    """At the δ of the other databases, not at the one of the figures that they stand beside."""
    return replace(population.households().save(folder, "households"), delta=_DELTA)
