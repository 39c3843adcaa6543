"""Any schema: do all keys resolve at every ε? How fast it all is, `speed` measures.

Sakila, Chinook and Stats with all of their keys, whatever these make of the figures of other benchmarks: composite and
nullable keys, self-references, cycles, several private parents. Attributes are learned, because this is about keys; how
well the rows resemble the source is measured elsewhere. Keys are looked up by DuckDB, so that no code which made them
is also what checks them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.data import data_folder, read_table
from benchmarks.measure import call_in_child
from benchmarks.report import Row, machine, markdown
from benchmarks.speed import DELTA, EPSILON, measure_speed, tpch_spec
from privbench_core.backends.integrity import check_rows
from privbench_core.backends.postgres import quote_identifier
from privbench_core.backends.registry import open_source
from privbench_core.publishing import read_bundle
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import FidelityPolicy, Spec

EPSILONS = (0.1, 0.8, 3.2)
_NOISE = FidelityPolicy(accept_noise=True)  # keys are looked at even where rows are noise
Tables = Mapping[str, pa.Table]


@dataclass(frozen=True)
class Case:
    """A database of the data folder, with what its owner would decide.

    Attributes:
        name: Of its folder.
        unit: Table whose rows are protected.
        private: All private tables.
        public: The others.
        owners: First column of the key on the ownership path, by table.
        bounds: Most rows per parent by "table.column", and "*" for every other private key.
        inside: The keys, as "table.column", that always refer to a row of the same unit.
    """

    name: str
    unit: str
    private: tuple[str, ...]
    public: tuple[str, ...]
    owners: Mapping[str, str]
    bounds: Mapping[str, int]
    inside: tuple[str, ...] = ()


_MUSIC = ("Artist", "Album", "Genre", "MediaType", "Track", "Playlist", "PlaylistTrack")
_SALES = {"Invoice": "CustomerId", "InvoiceLine": "InvoiceId"}
CASES = (
    Case(
        "sakila",
        "customer",
        ("customer", "rental", "payment"),
        (
            *("country", "city", "address", "language", "film", "inventory"),
            *("staff", "store", "actor", "category", "film_actor", "film_category"),
        ),
        {"rental": "customer_id", "payment": "rental_id"},
        {"payment.rental_id": 5, "*": 50},
        ("payment.customer_id",),
    ),
    Case(
        "chinook",
        "Employee",
        ("Employee", "Customer", "Invoice", "InvoiceLine"),
        _MUSIC,
        {"Customer": "SupportRepId", **_SALES},
        {"*": 25},
    ),
    Case(
        "chinook",
        "Customer",
        ("Customer", "Invoice", "InvoiceLine"),
        ("Employee", *_MUSIC),
        _SALES,
        {"*": 15},
    ),
    Case(
        "stats",
        "users",
        ("users", "posts", "badges", "votes", "postLinks", "tags"),
        (),
        {
            "posts": "OwnerUserId",
            "badges": "UserId",
            "votes": "PostId",
            "postLinks": "PostId",
            "tags": "ExcerptPostId",
        },
        {
            "posts.LastEditorUserId": 5,
            "postLinks.RelatedPostId": 2,
            "votes.UserId": 5,
            "tags.ExcerptPostId": 1,
            "*": 20,
        },
    ),
)


def spec_of(case: Case, source: Path, place: Path) -> Spec:
    """A spec in the folder ``place``: keys as ``keys.json`` beside the rows lists them, all attributes learned."""
    listed = json.loads((source / "keys.json").read_text(encoding="utf-8"))
    tables = tuple(_table(case, name, read_table(source, name), listed) for name in (*case.public, *case.private))
    schema = Schema(case.name, tables, case.unit)
    path = place / f"{case.name}.yaml"
    return Spec(schema, str(source), path, EPSILONS, DELTA, 20.0, 1e-7, state=place / "state", fidelity=_NOISE)


def _table(case: Case, name: str, rows: pa.Table, listed: dict[str, Any]) -> Table:
    keys = []
    for key in listed["fks"]:
        columns = tuple(key["cols"])
        if key["child"] != name or key["parent"] not in {*case.private, *case.public}:
            continue
        bound = case.bounds.get(f"{name}.{columns[0]}", case.bounds["*"]) if key["parent"] in case.private else None
        keys.append(
            ForeignKey(
                name,
                columns,
                key["parent"],
                tuple(key["ref"]),
                bound,
                owner=case.owners.get(name) == columns[0],
                optional=any(rows[column].null_count for column in columns),
                same_unit=f"{name}.{columns[0]}" in case.inside,
            )
        )
    primary = tuple(listed["tables"][name]["pk"])
    fixed = {*primary, *(column for key in keys for column in key.columns)}
    columns = tuple(_column(rows.schema.field(c), rows[c].null_count > 0, c in fixed) for c in rows.column_names)
    return Table(name, columns, primary, tuple(keys), public=name in case.public)


def _column(found: pa.Field, nullable: bool, is_key: bool) -> Column:
    if is_key or pa.types.is_integer(found.type):  # a nullable key may lie there as float
        kind = ColumnType.INTEGER
    elif pa.types.is_floating(found.type):
        kind = ColumnType.FLOAT
    else:
        kind = ColumnType.TIMESTAMP if pa.types.is_timestamp(found.type) else ColumnType.TEXT
    domain = None if is_key or kind is ColumnType.TEXT else Learn()
    return Column(found.name, kind, domain, nullable=nullable)


def integrity(schema: Schema, tables: Tables) -> dict[str, int]:
    """Do the keys of private tables hold? Those of public tables are the source's own, and would only flatter.

    Returns:
        ``values`` of foreign keys, NULL aside; how many are ``unresolved``; ``keys`` and those ``used`` by any value;
        ``duplicates``: rows whose primary key another row has.
    """
    found = dict.fromkeys(("values", "unresolved", "keys", "used", "duplicates"), 0)
    with duckdb.connect() as connection:
        names = {table.name: f"t{i}" for i, table in enumerate(schema.tables)}
        for name, view in names.items():
            connection.register(view, tables[name])

        def number(sql: str) -> int:
            return int(connection.sql(sql).fetchall()[0][0])

        for table in schema.private_tables:
            here = names[table.name]
            primary = ", ".join(quote_identifier(column) for column in table.primary_key)
            distinct = number(f"SELECT count(*) FROM (SELECT DISTINCT {primary} FROM {here})")
            found["duplicates"] += tables[table.name].num_rows - distinct
            for key in table.foreign_keys:
                pairs = [
                    (quote_identifier(a), quote_identifier(b))
                    for a, b in zip(key.columns, key.parent_columns, strict=True)
                ]
                complete = " AND ".join(f"c.{child} IS NOT NULL" for child, _ in pairs)
                same = " AND ".join(f"c.{child} = p.{parent}" for child, parent in pairs)
                values = number(f"SELECT count(*) FROM {here} c WHERE {complete}")
                resolved = number(f"SELECT count(*) FROM {here} c SEMI JOIN {names[key.parent]} p ON {same}")
                found["values"] += values
                found["unresolved"] += values - resolved
                found["keys"] += 1
                found["used"] += values > 0
    return found


def measure_keys(spec: Spec, epsilons: Sequence[float], progress: Callable[[str], None]) -> list[Row]:
    """A row of the table on keys per ε; each run is a process of its own."""
    spec.path.write_text(dump_spec(spec), encoding="utf-8")
    loaded = load_spec(spec.path)
    schema = loaded.schema
    source = open_source(loaded, b"")
    kept = check_rows(schema, {table.name: source.read(table) for table in schema.tables}, loaded.orphans)
    private = [table.name for table in schema.private_tables]
    rows: list[Row] = []
    for epsilon in epsilons:
        progress(f"schemas: {schema.name}, epsilon {epsilon:g}")
        with TemporaryDirectory() as folder:
            given = {"spec": str(spec.path), "epsilon": epsilon, "delta": DELTA, "seed": 0, "out": folder}
            seconds, peak = call_in_child("benchmarks.workloads:run_pipeline", given)
            bundle = read_bundle(Path(folder) / "bundle")
            made = {name: bundle.table(name) for name in bundle.tables}
        found = integrity(schema, made)
        # Cut, not rounded: a single value that does not resolve must show.
        share = "-" if not found["values"] else f"{_percent(found['values'] - found['unresolved'], found['values'])}%"
        rows.append(
            {
                "database, unit": f"{schema.name}, {schema.unit}",
                "ε": f"{epsilon:g}",
                "tables (private)": f"{len(schema.tables)} ({len(private)})",
                "private tables' keys": f"{found['keys']}",
                "with values": f"{found['used']}",
                "values": f"{found['values']:,}",
                "resolve": share,
                "duplicate primary keys": f"{found['duplicates']:,}",
                "private rows, source": f"{sum(kept[name].num_rows for name in private):,}",
                "synthetic": f"{sum(made[name].num_rows for name in private):,}",
                "whole run s": seconds,
                "peak MB": peak,
            }
        )
    return rows


def _percent(part: int, whole: int) -> str:
    return f"{10_000 * part // whole / 100:g}"


def run(
    data: Path | None = None,
    *,
    epsilons: Sequence[float] = EPSILONS,
    scales: Sequence[float] = (0.1,),
    progress: Callable[[str], None] = print,
) -> str:
    """Measure and return Markdown text.

    Args:
        data: The data folder; see `data.data_folder`.
        epsilons: Budgets of the runs whose keys are looked up.
        scales: Scale factors of TPC-H whose speed is measured; its keys are those of scale 0.1.
        progress: Called with a line before each run.

    Raises:
        PrivbenchError: Data is missing, TPC-H cannot be generated, or a run fails.
    """
    folder = data_folder(data)
    with TemporaryDirectory() as name:
        place = Path(name)
        keys = [
            row for case in CASES for row in measure_keys(spec_of(case, folder / case.name, place), epsilons, progress)
        ]
        keys += measure_keys(tpch_spec(place / "tpch", 0.1), epsilons, progress)
    parts = [machine(1), "**Keys**", markdown(keys)]
    for scale in scales:
        progress(f"schemas: speed, TPC-H {scale:g}")
        parts += [
            f"**TPC-H {scale:g} from PostgreSQL and back** (ε = {EPSILON:g})",
            markdown(measure_speed(scale)),
        ]
    return "\n\n".join(parts)
