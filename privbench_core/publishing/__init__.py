"""The bundle that is given away: the published folder, written and loaded whole or not at all.

    data/<table>.parquet    the rows; special characters in names are percent-encoded
    data/<table>.csv.gz     the same rows for psql, which reads no Parquet; may be left out
    data/<table>/part-*     the same two, a pair for each range, of a table that was drawn in ranges
    schema.sql              tables, then keys and indexes, for PostgreSQL
    load.sql                loads all of it with psql alone, from these
    load.duckdb.sql         loads all of it with DuckDB alone
    statistics.sql          the schema with what the planner of PostgreSQL 18 would know of the rows, without them
    workload/<name>.sql     queries, if any
    replicates/             rows that the plan makes of the bundle's own, for error bars, if the owner added them
    workload/<name>.pgbench their replay: run.sh, and a script per transaction
    MANIFEST.json           the list of files with checksums, the schema and the privacy receipt
    README.md               for users of the bundle

Equal inputs give equal bytes. A bundle is replaced atomically (`files.replace_folder`).

A replicate has the private tables, as replicates/<number>/<table>.parquet; the public ones are the bundle's. The
manifest lists replicates, with checksums.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from shutil import copytree, ignore_patterns
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from privbench_core.backends import Loaded
from privbench_core.backends.postgres import create_schema_sql
from privbench_core.errors import InternalError, PublishError, did_you_mean
from privbench_core.files import as_path, file_name, recover_folder, replace_folder
from privbench_core.publishing.table_files import RowRanges, file_digest, write_ranges, write_table
from privbench_core.publishing.texts import (
    DUCKDB,
    PSQL,
    STATISTICS,
    consumer_readme,
    duckdb_script,
    psql_script,
    with_replicates,
)
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.ddl import parse_views
from privbench_core.spec.dump import dump_enums, dump_tables, dump_views
from privbench_core.spec.fields import NAME, NAME_LIST, Key, Node, Problems, anything, named
from privbench_core.spec.parse import parse_enums, parse_tables
from privbench_core.workers import processors

FORMAT = "privbench-bundle"
FORMAT_VERSION = 1
FORMAT_WITH_PARTS = 2
"""Of bundles in which some table has several files."""
MANIFEST = "MANIFEST.json"
SCHEMA_SQL = "schema.sql"
README = "README.md"
_DUCKDB_SCHEME = "duckdb:///"


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk whose files match its manifest; made by `read_bundle`.

    Attributes:
        path: The folder.
        manifest: Content of MANIFEST.json.
    """

    path: Path
    manifest: Mapping[str, Any]

    def __repr__(self) -> str:
        """Return the database, its size and its guarantee in one line."""
        rows = sum(entry["rows"] for entry in self.manifest["tables"].values())
        stated = self.manifest["privacy"].get("guarantee", {}).get("add_or_remove_one_unit")
        guarantee = f"; ε={stated['epsilon']:g}, δ={stated['delta']:g}" if stated else ""
        tables = f"{len(self.tables)} table{'s' * (len(self.tables) != 1)}"
        return f"<Bundle of {self.manifest['database']} in {self.path}: {tables}, {rows:,} rows{guarantee}>"

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, each after those it refers to."""
        return tuple(self.manifest["tables"])

    def table(self, name: str) -> pa.Table:
        """Read the rows of a table; raise PublishError if there is no such table."""
        if name not in self.manifest["tables"]:
            raise PublishError(f"{self.path.name}: no table {name}; {did_you_mean(name, self.tables)}")
        return pa.concat_tables([pq.ParquetFile(file).read() for file in self.files(name)])

    def files(self, table: str) -> tuple[Path, ...]:
        """Return the Parquet files of a table, in the order of its rows."""
        return tuple(self.path / str(part["file"]) for part in parts_of(self.manifest["tables"][table]))

    @cached_property
    def schema(self) -> Schema:
        """The database, without domains; PublishError if the manifest lacks it."""
        described = self.manifest.get("schema")
        problems = Problems()
        node = Node("schema", described if isinstance(described, dict) else {}, problems)
        kinds = {"unit": NAME, "tables": named(anything({}), 1)}
        unit, tables = (node.value(name, Key(kind, "write the bundle again")) for name, kind in kinds.items())
        schemas = node.value("schemas", Key(NAME_LIST, "write the bundle again", ()))
        parsed = parse_tables(tables, problems, enums := parse_enums(node)) if tables else None
        if unit is None or parsed is None or problems.lines:
            raise PublishError(f"{self.path / MANIFEST}: {problems.lines[0]}; run privbench again")
        return Schema(str(self.manifest["database"]), parsed.tables, unit, enums, schemas, parse_views(node))

    @cached_property
    def schema_sql(self) -> str:
        """Content of schema.sql."""
        return (self.path / SCHEMA_SQL).read_text(encoding="utf-8")

    @cached_property
    def workload(self) -> dict[str, str]:
        """The queries of the workload by name."""
        files = [PurePosixPath(name) for name in self.manifest["files"]]
        queries = [file for file in files if str(file.parent) == "workload"]
        return {file.stem: (self.path / file).read_text(encoding="utf-8") for file in queries}


def write_bundle(
    out: Path,
    schema: Schema,
    tables: Mapping[str, pa.Table | RowRanges],
    receipt: Mapping[str, Any],
    workload: Mapping[str, str] | None = None,
    replay: Mapping[str, Mapping[str, str]] | None = None,
    workers: int | None = None,
    *,
    csv: bool = True,
) -> Path:
    """Write a bundle to ``out``, whole or not at all.

    Args:
        out: Its folder: new, empty, or a bundle of the same database, which is replaced.
        schema: The database.
        tables: The rows of every table of the schema; each range is read once, until it is written.
        receipt: JSON-able privacy receipt, stored under ``privacy``. Its ``created`` date becomes the bundle's, and
            the README quotes its ``guarantee``.
        workload: SQL text by name.
        replay: Files of pgbench by their name, by the name of a workload.
        workers: Most processes that write ranges at a time.
        csv: Whether to write the rows once more for psql, and load.sql.

    Returns:
        The folder.

    Raises:
        PublishError: ``out`` holds something else, or could not be written (disk full), or the rows break the bundle's
            own DDL; then nothing is left behind.
    """
    ordered = schema.sampling_order
    workload = workload or {}
    for name in workload:
        _check_file_name(name)
    missing = [table.name for table in ordered if table.name not in tables]
    if missing:
        raise InternalError(f"{', '.join(missing)}: no rows were given for the bundle")

    refuse_taken_folder(Path(out), schema.name)

    def write(folder: Path) -> None:
        from privbench_core.backends.duckdb import RowTrial
        from privbench_core.publishing.statistics import statistics_sql

        (folder / "data").mkdir()
        writing = partial(write_ranges, folder, schema, csv=csv, workers=workers)
        written = {table.name: writing(table, tables[table.name]) for table in ordered}
        in_one = {name: folder / parts[0]["file"] for name, parts in written.items() if len(parts) == 1}
        RowTrial.of(schema, in_one)(in_one)
        described = {table.name: _describe_table(table, written[table.name]) for table in ordered}
        every = [part for parts in written.values() for part in parts]
        copies = {part["csv"]: {"sha256": part["csv_sha256"]} for part in every if part["csv"]}
        texts = {SCHEMA_SQL: create_schema_sql(schema), README: consumer_readme(schema, described, receipt, workload)}
        texts |= {PSQL: psql_script(schema, described)} if csv else {}
        texts |= {DUCKDB: duckdb_script(schema, described)}
        files = {name: [folder / part["file"] for part in parts] for name, parts in written.items()}
        texts |= {STATISTICS: statistics_sql(schema, files)}
        texts |= {f"workload/{name}.sql": sql for name, sql in sorted(workload.items())}
        for name, scripts in (replay or {}).items():
            texts |= {f"workload/{name}.pgbench/{file}": text for file, text in scripts.items()}
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        manifest = {
            "format": FORMAT,
            "format_version": FORMAT_WITH_PARTS if any(len(p) > 1 for p in written.values()) else FORMAT_VERSION,
            "database": schema.name,
            "created": receipt.get("created"),
            "schema": _describe(schema),
            "tables": described,
            "files": {name: {"sha256": file_digest(folder / name)} for name in texts} | copies,
            "privacy": dict(receipt),
        }
        try:
            text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InternalError(f"the receipt of {schema.name} cannot be written as JSON: {error}") from error
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")

    return replace_folder(Path(out), write, replaceable=is_bundle)


def read_bundle(path: str | Path) -> Bundle:
    """Open a bundle and verify the checksum of every file it lists.

    Raises:
        BusyError: See `recover_folder`.
        PublishError: Not a bundle, another format version, or a file is missing or changed.
    """
    folder = as_path(path, "bundle", PublishError)
    if not is_bundle(folder):
        raise PublishError(f"{folder}: not a bundle; expected a folder with a {MANIFEST} that privbench run wrote")
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    found = manifest.get("format_version")
    if found not in {FORMAT_VERSION, FORMAT_WITH_PARTS}:
        reads = f"{FORMAT_VERSION} and {FORMAT_WITH_PARTS}"
        raise PublishError(
            f"{folder}: bundle format {found}, but this privbench reads {reads}; use the version that wrote it"
        )
    try:
        parts = [part for entry in manifest["tables"].values() for part in parts_of(entry)]
        expected = {part["file"]: part["sha256"] for part in parts}
        expected |= {name: entry["sha256"] for name, entry in manifest["files"].items()}
        replicates = [entry for tables in manifest.get("replicates", {}).get("tables", ()) for entry in tables.values()]
        expected |= {entry["file"]: entry["sha256"] for entry in replicates}
        expected[SCHEMA_SQL]
    except (KeyError, TypeError, AttributeError):
        raise PublishError(f"{folder / MANIFEST}: lacks the list of tables and files; run privbench again") from None
    with ThreadPoolExecutor(processors()) as pool:  # hashing needs no lock of Python's
        list(pool.map(lambda named: _verify(folder, PurePosixPath(named[0]), named[1]), expected.items()))
    return Bundle(folder, manifest)


def load_bundle(bundle: Path, target_url: str, *, replace: bool = False, statistics_only: bool = False) -> Loaded:
    """Create the tables in a database, load the rows, then create keys and indexes, then gather statistics.

    Arguments and errors are those of `privbench_core.publish`.
    """
    opened = read_bundle(bundle)
    files = {table: opened.files(table) for table in opened.tables}
    if target_url.startswith(_DUCKDB_SCHEME) or ("://" not in target_url and target_url.endswith(".duckdb")):
        from privbench_core.backends.duckdb import load_duckdb

        if statistics_only:
            raise PublishError("target: DuckDB plans from its rows alone; --statistics-only needs PostgreSQL 18")
        return load_duckdb(opened.schema, files, Path(target_url.removeprefix(_DUCKDB_SCHEME)), replace=replace)
    if re.match(r"postgres(ql)?(\+\w+)?://", target_url):
        from privbench_core.backends.postgres.load import load_postgres, load_statistics

        if statistics_only:
            if STATISTICS not in opened.manifest["files"]:
                raise PublishError(f"{bundle}: has no {STATISTICS}, as older bundles; run privbench again")
            statistics = (opened.path / STATISTICS).read_text(encoding="utf-8")
            rows = {name: entry["rows"] for name, entry in opened.manifest["tables"].items()}
            return load_statistics(opened.schema, statistics, rows, target_url, replace=replace)
        return load_postgres(opened.schema, files, target_url, replace=replace)
    raise PublishError(
        "target: neither PostgreSQL nor DuckDB; give postgresql://user@host/database, or a path that ends in .duckdb"
    )


def is_bundle(folder: Path) -> bool:
    """Return whether a folder has the manifest of a bundle, after restoring it from an interrupted replacement."""
    recover_folder(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("format") == FORMAT


def refuse_taken_folder(folder: Path, database: str) -> None:
    """Raise `PublishError` if the folder holds anything but a bundle of the database: it must not be replaced."""
    if is_bundle(folder):
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8")).get("database")
        if found != database:
            raise PublishError(
                f"{folder}: holds a bundle of the database {found}, not of {database}; choose another folder, or"
                " remove that bundle first"
            )
    elif folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise PublishError(f"{folder}: exists already and is not a bundle; name a folder that is new or empty")


def parts_of(entry: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the files of a table, each with ``file``, ``rows`` and ``sha256``, from its entry in the manifest."""
    parts: Sequence[Mapping[str, Any]] = entry.get("parts") or [entry]
    return parts


def _describe(schema: Schema) -> dict[str, Any]:
    """Return the schema for the manifest, without domains: some are only meant for the owner."""
    bare = tuple(
        replace(table, columns=tuple(replace(column, domain=None) for column in table.columns))
        for table in schema.tables
    )
    described = {"unit": schema.unit, "enums": dump_enums(schema), "tables": dump_tables(replace(schema, tables=bare))}
    more = {"schemas": list(schema.schemas), "views": dump_views(schema)}
    return described | {name: part for name, part in more.items() if part}


def _describe_table(table: Table, written: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the manifest's entry; where there are several files, their names are also given as a pattern."""
    only, several = written[0], len(written) > 1
    pattern = f"data/{file_name(table.name)}/part-*"
    parts = [{fact: part[fact] for fact in ("file", "rows", "sha256")} for part in written]
    entry = {
        "file": f"{pattern}.parquet" if several else only["file"],
        "csv": only["csv"] and (f"{pattern}.csv.gz" if several else only["csv"]),
        "parts": parts if several else None,
        "rows": sum(part["rows"] for part in written),
        "description": table.comment or None,
        "columns": [_describe_column(column) for column in table.columns],
        "primary_key": list(table.primary_key),
        "sha256": None if several else only["sha256"],
    }
    return {name: value for name, value in entry.items() if value is not None}


def _describe_column(column: Column) -> dict[str, Any]:
    """Return what a user of the bundle should know of a column."""
    known = {"description": column.comment, "unit": column.unit}
    named = {"name": column.name, "type": str(column.logical), "nullable": column.nullable}
    return named | {name: text for name, text in known.items() if text}


def _verify(folder: Path, name: PurePosixPath, digest: str) -> None:
    """Raise PublishError unless the file is inside the bundle and matches its checksum."""
    if name.is_absolute() or ".." in name.parts:
        raise PublishError(f"{folder / MANIFEST}: lists {name}, which is outside the bundle; do not trust this bundle")
    if not (folder / name).is_file():
        raise PublishError(f"{folder / name}: missing; copy the bundle again or run privbench again")
    if file_digest(folder / name) != digest:
        raise PublishError(
            f"{folder / name}: does not match its checksum; copy the bundle again or run privbench again"
        )


def _check_file_name(name: str) -> None:
    if not name or name.startswith(".") or "\0" in name or any(mark in name for mark in {os.sep, "/", "\\"}):
        raise PublishError(f"{name!r}: cannot be a file name in a bundle; rename it in the spec")


_FOLDER = "replicates"
Distances = Mapping[str, Mapping[str, float]]
"""Mean fidelity figures of replicates, of how far they are from the bundle, by table and metric."""


def add_replicates(
    bundle: Bundle, replicates: Iterable[Mapping[str, pa.Table]], distances: Callable[[], Distances]
) -> None:
    """Write a bundle anew with replicates, whole or not at all.

    Args:
        bundle: The bundle.
        replicates: Rows by table of each; they are read once.
        distances: Is called after that.

    Raises:
        PublishError: The bundle cannot be written (disk full); it is then unchanged.
    """

    def write(folder: Path) -> None:
        copytree(bundle.path, folder, dirs_exist_ok=True, ignore=ignore_patterns(_FOLDER, MANIFEST))
        listed: list[dict[str, Any]] = []
        for number, rows in enumerate(replicates, start=1):
            (folder / _FOLDER / str(number)).mkdir(parents=True)
            listed.append({})
            for table in bundle.schema.private_tables:
                name = f"{_FOLDER}/{number}/{file_name(table.name)}.parquet"
                write_table(folder / name, table, rows[table.name])
                listed[-1][table.name] = {"file": name, "sha256": file_digest(folder / name)}
        readme = with_replicates((folder / README).read_text(encoding="utf-8"), len(listed))
        (folder / README).write_text(readme, encoding="utf-8")
        files = {**bundle.manifest["files"], README: {"sha256": file_digest(folder / README)}}
        manifest = {**bundle.manifest, "files": files, "replicates": {"distances": distances(), "tables": listed}}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    replace_folder(bundle.path, write, replaceable=is_bundle)


def read_replicates(bundle: Bundle) -> tuple[list[dict[str, Path]], Distances]:
    """Return the Parquet files of each replicate by private table, and how far they are from the bundle.

    Raises:
        PublishError: The bundle has no replicates.
    """
    found = bundle.manifest.get("replicates")
    if found is None:
        raise PublishError(
            f"{bundle.path}: has no replicates, which error bars are made from. Anyone with its spec can add them,"
            " without the source and at no budget: privbench replicate SPEC BUNDLE"
        )
    files = [{name: bundle.path / entry["file"] for name, entry in listed.items()} for listed in found["tables"]]
    return files, found["distances"]


def read_rows(bundle: Bundle, replicate: Mapping[str, Path]) -> dict[str, pa.Table]:
    """Return the rows of all tables of a replicate."""
    return {
        name: pq.ParquetFile(replicate[name]).read() if name in replicate else bundle.table(name)
        for name in bundle.tables
    }
