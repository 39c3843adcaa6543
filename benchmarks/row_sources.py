"""The databases that rows are measured on: heavy tails of our own, real ones, and TPC-H with skewed references."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import sandag, stats, tpch
from benchmarks.data import data_folder
from benchmarks.tpch_schema import SCHEMA as TPCH
from benchmarks.workloads import Tables
from privbench_core.errors import SourceError
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from tests.helpers.heavy_tails import CONVERGING, Database, chain
from tests.helpers.planted import place_of
from tests.helpers.row_cases import CASES, FEW_GAMES

TPCH_SCALE = 0.01
_MANY = 20_000  # users: five times as many as in the chain of the tests, and a fifth of the noise on each of them


@dataclass(frozen=True)
class RowSource:
    """A database to measure.

    Attributes:
        name: As tables of figures call it.
        spec: Writes the rows and the spec into a folder of its own, and returns the spec.
        figure: What else is reported of it, as (name, of the rows).
    """

    name: str
    spec: Callable[[Path], Spec]
    figure: tuple[str, Callable[[Tables], float]] | None = None


def row_sources(data: Path | None, progress: Callable[[str], None]) -> Iterator[RowSource]:
    """All databases that can be made here; those whose data or generator is missing are named to ``progress``."""
    for name, make in {**CONVERGING, **CASES}.items():
        yield RowSource(name, partial(generated, make), _FIGURES.get(name))
    yield RowSource(f"chain, {_MANY:,} users", partial(generated, partial(chain, _MANY)))
    yield RowSource("San Diego", san_diego)
    yield RowSource(f"TPC-H {TPCH_SCALE:g}, Zipf keys", skewed_tpch)
    try:
        place = data_folder(data) / "stats"
    except SourceError as missing:
        progress(f"rows: stats is left out: {missing}")
        return
    yield RowSource("stats", partial(stats_spec, stats.spec, place))
    yield RowSource("stats, every key", partial(stats_spec, stats.every_key, place))


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
    tpch.generate_skewed(source, TPCH_SCALE)
    return Spec(TPCH, str(source), folder / "tpch.yaml", (3.2,), 1e-9, 20.0, 1e-7, state=folder / "state")


def stats_spec(spec: Callable[[Path, Path], Spec], data: Path, folder: Path) -> Spec:
    """Stats by one of its specs, from the folder of its tables; SourceError if one is missing."""
    source = folder / "source"
    source.mkdir()
    stats.prepare(data, source)
    return spec(source, folder)


def _few_games(tables: Tables) -> float:
    return float(np.mean(tables["season"]["games"].to_numpy() < FEW_GAMES))


def _returned(tables: Tables) -> float:
    return tables["return"].num_rows / max(tables["sale"].num_rows, 1)


def _two_bestsellers(tables: Tables) -> float:
    sold = np.sort(np.bincount(tables["sale"]["product_id"].to_numpy()))
    return float(sold[-2:].sum() / max(sold.sum(), 1))


_FIGURES: dict[str, tuple[str, Callable[[Tables], float]]] = {
    "seasons": ("share of seasons with few games", _few_games),
    "returns": ("returns per sale", _returned),
    "bestsellers": ("share of the two bestsellers", _two_bestsellers),
}
