"""Correlations over several keys and detection by classifiers: SyntheRela's metrics, in an environment of its own.

PRIVBENCH_SYNTHERELA_PYTHON names an interpreter with what `_PACKAGES` lists; later SDMetrics do not fit. The
databases are those of `strangers`, as their owners would declare them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks.compare_maker import sample_tables
from benchmarks.measure import Runs, run_child
from benchmarks.report import Row, machine, markdown, spread
from benchmarks.strangers import draft_spec
from benchmarks.strangers_data import STRANGERS
from benchmarks.strangers_judge import means_something
from benchmarks.workloads import Tables, source_rows
from privbench_core.engines.memory_relations import Relations
from privbench_core.evaluation import shuffled_reference
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.model import Spec

DATABASES = ("formula", "berka")
RUNS = Runs(3, (1.0, 3.2))
_PACKAGES = "syntherela==0.0.4 sdv==1.18.0 sdmetrics==0.18.0"
_PYTHON = "PRIVBENCH_SYNTHERELA_PYTHON"
_SCRIPT = Path(__file__).with_name("syntherela_child.py")
_ID = "row_id"
_MOST_TEXTS = 1000
_METRICS = ("1-way", "0-hop", "1-hop", "2-hop", "3-hop", "cardinality", "C2ST", "C2ST-Agg")
_TEXT = (
    "**What the figures are.** *1-way* to *3-hop* and *cardinality* are similarities, 1 at best: SDMetrics' shapes of"
    " columns, trends of pairs of columns in one table (*0-hop*) and of two tables that are 1, 2 or 3 keys apart, one"
    " above the other (ClavaDDPM's report, which RelDiff and GRDM use too), and numbers of children. *C2ST* is the"
    " accuracy with which XGBoost tells synthetic rows of a table from the source's, *C2ST-Agg* the same of rows with"
    " counts and means of their children: .5 is undetected, 1 always detected. Means over what has a private part:"
    " public tables are exact here and are left out, with pairs of columns of two public tables. Keys are"
    " numbered, dates are seconds, and texts with more than 1,000 different values are left out.\n\n"
    "**What they do not see.** Trends compare correlations and shares of joined rows, so a parent with many children"
    " counts often, and independent columns score high: read every figure beside the source with its columns shuffled,"
    " which has exact columns and cardinalities and no correlations at all. C2ST judges rows one by one, and shuffled"
    " columns pass it where the columns of a table depend little on each other. Neither sees privacy: a copy is"
    " perfect.\n\n"
    "**Under privacy.** The unit is a driver (formula) or an account (berka) with everything that is theirs. With about"
    " 900 drivers in several tables, noise hides most pairs and many values of single columns at these ε: shuffled"
    " columns, which keep every column exactly without a guarantee, are closer throughout.\n\n"
    "**Published figures** are not set beside these. SyntheRela's F1 is another database (rel-f1, cut at 2010, with"
    " results and standings of constructors: sums over drivers, which here are neither a driver's nor public). The"
    " Berka here lacks the bank's transactions. And no method of SyntheRela, ClavaDDPM, RelDiff or GRDM promises"
    " privacy."
)


def run(name: str, runs: Runs = RUNS) -> str | None:
    """Measure a database and return Markdown text, None where there is no interpreter with syntherela.

    Raises:
        SourceError: The database is not there.
    """
    if _PYTHON not in os.environ:
        runs.progress(f"multi_hop: left out: ${_PYTHON} names no interpreter with {_PACKAGES}")
        return None
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with TemporaryDirectory() as place:
        spec = draft_spec(STRANGERS[name], Path(place))
        rows = source_rows(spec)
        for seed in range(runs.seeds):
            runs.progress(f"multi_hop, {name}: columns shuffled, seed {seed}")
            shuffled = shuffled_reference(spec.schema, rows, seed)
            found.setdefault(("source, columns shuffled: not private", "-"), []).append(_scores(spec, rows, shuffled))
        for epsilon, seed in product(runs.epsilons, range(runs.seeds)):
            runs.progress(f"multi_hop, {name}: privbench, epsilon {epsilon:g}, seed {seed}")
            made = {**rows, **sample_tables(spec, rows, epsilon, spec.delta, seed, "privbench")}
            found.setdefault(("privbench", f"{epsilon:g}"), []).append(_scores(spec, rows, made))
    table: list[Row] = [
        {"method": method, "ε": epsilon, **{metric: spread([each[metric] for each in scores]) for metric in scores[0]}}
        for (method, epsilon), scores in found.items()
    ]
    sizes = ", ".join(f"{rows[each.name].num_rows:,} {each.name}" for each in spec.schema.tables)
    said = f"{machine(runs.seeds).replace('Medians', 'Means')} Mean ± standard deviation of the runs."
    where = f"{STRANGERS[name].origin}; unit: {STRANGERS[name].unit}, δ = {spec.delta:g}, units added or removed."
    return f"{said} {sizes}. {where}\n\n{markdown(table)}\n\n{_TEXT}"


def _scores(spec: Spec, rows: Tables, made: Tables) -> dict[str, float]:
    """Means of each metric over what has a private part."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        columns = {table.name: compared_columns(spec.schema, table, rows[table.name]) for table in spec.schema.tables}
        metadata = sdv_metadata(spec.schema, rows, columns)
        (folder / "metadata.json").write_text(json.dumps(metadata), encoding="utf-8")
        for side, tables in (("real", rows), ("synthetic", made)):
            (folder / side).mkdir()
            for name, table in numbered(spec.schema, tables, columns).items():
                csv.write_csv(table, folder / side / f"{name}.csv")
        run_child([os.environ[_PYTHON], str(_SCRIPT), str(folder)])
        found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return {
        metric: fmean(values)
        for metric in _METRICS
        if (values := of_private_parts(spec.schema, metric, found.get(metric, {})))
    }


def of_private_parts(schema: Schema, metric: str, found: Mapping[str, float]) -> list[float]:
    """Values of one table, or of a pair (``a - b : columns``), that are not of public tables alone.

    Aggregates over private children make a public table's rows differ.
    """
    exact = {table.name for table in schema.tables if table.public}
    if metric == "C2ST-Agg":
        exact -= {key.parent for table in schema.private_tables for key in table.foreign_keys}
    return [value for name, value in found.items() if not set(name.partition(" : ")[0].split(" - ")) <= exact]


def compared_columns(schema: Schema, table: Table, rows: pa.Table) -> list[str]:
    """Columns that mean something and are no key, but for texts with more than `_MOST_TEXTS` different values."""
    referring = {name for key in table.foreign_keys for name in key.columns}
    return [
        name
        for name in rows.column_names
        if name not in referring
        and (name,) != table.primary_key
        and means_something(schema, table, name, rows)
        and (_kind(rows[name].type) != "categorical" or len(pc.unique(rows[name])) <= _MOST_TEXTS)
    ]


def _kind(kind: pa.DataType) -> str:
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_date, pa.types.is_timestamp)
    return "numerical" if any(is_of(kind) for is_of in numbers) else "categorical"


def sdv_metadata(schema: Schema, rows: Tables, columns: Mapping[str, Iterable[str]]) -> dict[str, object]:
    """Metadata in SDV's form, with one column to each key."""
    tables = {}
    for table in schema.tables:
        ids = (_ID, *(f"key_{number}" for number in range(len(table.foreign_keys))))
        kinds = {name: {"sdtype": _kind(rows[table.name].schema.field(name).type)} for name in columns[table.name]}
        tables[table.name] = {"primary_key": _ID, "columns": {name: {"sdtype": "id"} for name in ids} | kinds}
    # Upper tables first: SyntheRela's aggregates add columns to the lower ones, and fail in another order.
    order = [table.name for table in schema.sampling_order]
    keys = [(key, number) for table in schema.tables for number, key in enumerate(table.foreign_keys)]
    relationships = [
        {
            "parent_table_name": key.parent,
            "child_table_name": key.child,
            "parent_primary_key": _ID,
            "child_foreign_key": f"key_{number}",
        }
        for key, number in sorted(keys, key=lambda each: order.index(each[0].parent))
    ]
    return {"METADATA_SPEC_VERSION": "MULTI_TABLE_V1", "tables": tables, "relationships": relationships}


def numbered(schema: Schema, tables: Tables, columns: Mapping[str, Iterable[str]]) -> dict[str, pa.Table]:
    """The tables with numbered rows, keys as the rows that they refer to, and values as numbers and texts."""
    relations, found = Relations(schema, tables, b""), {}
    for table in schema.tables:
        rows = tables[table.name]
        made: dict[str, pa.Array] = {_ID: pa.array(np.arange(rows.num_rows))}
        for number, key in enumerate(table.foreign_keys):
            parents = relations.parent_rows(key).astype(np.int64)
            made[f"key_{number}"] = pa.array(parents, mask=parents < 0)
        made |= {name: _values(rows[name]) for name in columns[table.name]}
        found[table.name] = pa.table(made)
    return found


def _values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if _kind(column.type) == "categorical":
        return column.cast(pa.string())
    dated = pa.types.is_temporal(column.type)  # as seconds: SDV parses dates one by one
    return (column.cast(pa.timestamp("s"), safe=False).cast(pa.int64()) if dated else column).cast(pa.float64())
