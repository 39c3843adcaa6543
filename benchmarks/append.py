"""Weeks that are appended to a bundle, against its own last weeks: rates, hours, weekdays, joins, and constraints.

The shop of the examples and the made-up company, each as it is (both are made up) and as a bundle at ε = 3.2. Figures
of four appended weeks stand beside those of four random ones of the last 13 weeks of the bundle, judged against the
other nine: that is what weeks differ by. *Shuffled* are the appended rows with their references shuffled. CPU seconds
are those of this process for one week.
"""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import process_time

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.compare_maker import sample_tables
from benchmarks.report import Row, machine, markdown
from benchmarks.strangers import draft_spec
from benchmarks.strangers_data import STRANGERS
from privbench_core import append, publish
from privbench_core.backends.integrity import check_rows
from privbench_core.backends.postgres import qualified, quote_identifier
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.backends.registry import open_source
from privbench_core.continuation import UNDATED, Ints, World, read_world
from privbench_core.continuation.window import next_window
from privbench_core.publishing import Bundle, read_bundle, write_bundle
from privbench_core.schema.types.durations import DAY
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec

_EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "shop"
_WEEK, _WEEKS, _LAST = 7 * DAY, 4, 13
_SPLITS = 10
_BINS, _FEWEST = 8, 100  # codes of a column; rows of the last weeks from which a table is judged
_EPSILON = 3.2


def _shop(folder: Path) -> Spec:
    shutil.copytree(_EXAMPLE, folder, dirs_exist_ok=True)
    runpy.run_path(str(folder / "build.py"))["build"](folder / "shop.duckdb")
    return load_spec(folder / "spec.yaml")


DATABASES: dict[str, Callable[[Path], Spec]] = {"shop": _shop, "saas": lambda path: draft_spec(STRANGERS["saas"], path)}


def run(databases: Collection[str], seeds: int, progress: Callable[[str], None]) -> str:
    """Return Markdown: a row per database, as it is and as a bundle."""
    found: list[Row] = []
    for name in databases:
        with TemporaryDirectory(prefix="privbench-append-") as place:
            spec = DATABASES[name](Path(place))
            opened = open_source(spec, b"")
            source = check_rows(spec.schema, {t.name: opened.read(t) for t in spec.schema.tables}, spec.orphans)
            made = sample_tables(spec, source, _EPSILON, spec.delta, 1, "privbench")
            for kind, tables in {"source": source, f"ε = {_EPSILON:g}": made}.items():
                progress(f"{name}, {kind}")
                bundle = read_bundle(write_bundle(Path(place) / kind, spec.schema, tables, {}, csv=False))
                found.append({"database": name, "rows of": kind, **_measured(bundle, seeds), **_loaded(bundle)})
    return f"{machine(seeds).replace('Medians', 'Means')}\n\n{__doc__}\n{markdown(found)}"


def _loaded(bundle: Bundle) -> Row:
    """Return how many rows four weeks have in DuckDB and PostgreSQL, which check every key, and what changed below."""
    with TemporaryDirectory() as folder, temporary_postgres() as server:
        file = Path(folder) / "loaded.duckdb"
        counted: dict[str, int] = {}
        seconds: dict[str, float] = {}
        for kind, target in {"DuckDB": str(file), "PostgreSQL": server.url}.items():
            publish(bundle.path, target)
            begun = process_time()
            counted[kind] = sum(sum(append(bundle.path, target).rows.values()) for _ in range(_WEEKS))
            seconds[kind] = (process_time() - begun) / _WEEKS
        with duckdb.connect(str(file)) as here, psycopg.connect(server.url) as there:
            changed = 0
            for table in bundle.schema.tables:
                name, listed = qualified(table.name, bundle.schema.schemas), [str(p) for p in bundle.files(table.name)]
                plain = [c for c in table.columns if not (c.is_array or c.type.logical.duckdb_form != "{}")]
                texts = ", ".join(f"{quote_identifier(c.name)}::text" for c in plain)
                query = f"SELECT {texts} FROM read_parquet(?) EXCEPT ALL SELECT {texts} FROM {name}"
                changed += len(here.execute(query, [listed]).fetchall())
                rows = there.execute(f"SELECT count(*) FROM {name}".encode()).fetchone()
                assert rows == here.execute(f"SELECT count(*) FROM {name}").fetchone(), table.name
    assert counted["DuckDB"] == counted["PostgreSQL"]
    return {"rows in both": counted["DuckDB"], "changed": changed, **{f"CPU s, {k}": v for k, v in seconds.items()}}


def _measured(bundle: Bundle, seeds: int) -> Row:
    base = read_world(bundle)
    figures: dict[str, list[float]] = {}
    for seed in range(seeds):
        world, rng = base, np.random.default_rng(seed)
        for number in range(1, _WEEKS + 1):
            _, world = next_window(world, number, 7, seed)
        for name, value in _against_last_weeks(base, world, rng):
            figures.setdefault(name, []).append(value)
    return {name: fmean(values) for name, values in figures.items()}


def _against_last_weeks(base: World, world: World, rng: np.random.Generator) -> list[tuple[str, float]]:
    """Return figures and values, several of some."""
    found: list[tuple[str, float]] = []
    for table in world.schema.private_tables:
        rows, old = world.tables[table.name], base.base[table.name]
        weeks = (base.end - rows.time[:old] - 1) // _WEEK
        past = np.flatnonzero((weeks >= 0) & (weeks < _LAST) & (rows.time[:old] != UNDATED))
        new = np.arange(old, len(rows))
        if len(past) < _FEWEST:
            continue
        codes = _codes(world, table.name)
        found.append(("rate off", abs(len(new) / _WEEKS / (len(past) / _LAST) - 1)))
        found += [
            ("its weeks", abs(np.mean(_some_weeks(weeks[past], rng)) * _LAST / _WEEKS - 1)) for _ in range(_SPLITS)
        ]
        for figure, columns in codes.items():
            for code in columns:
                found.append((figure, _distance(code[past], code[new])))
                for _ in range(_SPLITS):
                    chosen = _some_weeks(weeks[past], rng)
                    found.append((f"({figure})", _distance(code[past[~chosen]], code[past[chosen]])))
        for own, above in _joined(world, table.name):
            pair, shuffled = own * _BINS + above, own[new] * _BINS + rng.permutation(above[new])
            found.append(("joined", _distance(pair[past], pair[new])))
            found.append(("shuffled", _distance(pair[past], shuffled)))
            for _ in range(_SPLITS):
                chosen = _some_weeks(weeks[past], rng)
                found.append(("(joined)", _distance(pair[past[~chosen]], pair[past[chosen]])))
    return found


def _some_weeks(weeks: Ints, rng: np.random.Generator) -> np.ndarray:
    return np.isin(weeks, rng.choice(_LAST, _WEEKS, replace=False))


def _codes(world: World, name: str) -> Mapping[str, list[Ints]]:
    """Return codes of rows by figure: hours, weekdays, and the ages and sizes of owners when the rows came."""
    rows, table = world.tables[name], world.schema.table(name)
    found: dict[str, list[Ints]] = {}
    if rows.dated is not None:
        found["weekday"] = [rows.time // DAY % 7]
        if not pa.types.is_date32(rows.rows.schema.field(rows.dated).type):
            found["hour"] = [rows.time % DAY // (DAY // 24)]
    if (key := table.owner_key) is not None and rows.dated is not None:
        owners, above = rows.parents[key], world.tables[key.parent]
        age = np.where(owners >= 0, np.maximum(rows.time - np.append(above.time, 0)[owners], 0) // DAY, 0)
        found["age of owner"] = [np.log2(1 + age).astype(np.int64)]
        order = np.lexsort((np.arange(len(rows)), rows.time, owners))
        within = np.empty(len(rows), np.int64)
        first = np.searchsorted(owners[order], owners[order])
        within[order] = np.arange(len(rows)) - first
        found["rows before"] = [np.log2(1 + within).astype(np.int64)]
    return found


def _joined(world: World, name: str) -> list[tuple[Ints, Ints]]:
    """Return codes of a column of each row, and of a column of the row that it refers to, for every pair."""
    rows = world.tables[name]
    found = []
    for key, parents in rows.parents.items():
        above = world.tables[key.parent].rows
        there = {n: _binned(above.column(n)) for n in above.column_names if n not in key.parent_columns}
        here = {n: _binned(rows.rows.column(n)) for n in rows.rows.column_names if n not in key.columns}
        found += [
            (own, np.append(other, _BINS - 1)[parents])
            for own in here.values()
            for other in there.values()
            if own is not None and other is not None
        ]
    return found


def _binned(values: pa.ChunkedArray) -> Ints | None:
    """Return codes of a column with few values, or of numbers by quantile; None for others."""
    flat = values.combine_chunks()
    if pa.types.is_floating(flat.type) or pa.types.is_decimal(flat.type) or pa.types.is_integer(flat.type):
        numbers = np.nan_to_num(flat.cast(pa.float64()).to_numpy(zero_copy_only=False), nan=-1e300)
        return np.searchsorted(np.unique(np.quantile(numbers, np.arange(1, _BINS) / _BINS)), numbers, side="right")
    if pa.types.is_temporal(flat.type):
        return None
    encoded = flat.dictionary_encode()
    if len(encoded.dictionary) >= _BINS:
        return None
    return np.asarray(pc.fill_null(encoded.indices, _BINS - 1).to_numpy(zero_copy_only=False), np.int64)


def _distance(one: Ints, other: Ints) -> float:
    """Return the total variation distance of two samples of codes."""
    size = int(max(one.max(initial=0), other.max(initial=0))) + 1
    shares = [np.bincount(each, minlength=size) / max(1, len(each)) for each in (one, other)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)
