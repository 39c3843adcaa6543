"""The texts of a bundle: its README for users who do not know privbench, and the scripts that load it without.

psql reads no Parquet, so a bundle holds its rows a second time as compressed CSV, in the form that COPY reads; every
place with psql and gzip can load it. DuckDB reads the Parquet files.
"""

from __future__ import annotations

import gzip
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from privbench_core.backends.postgres.ddl import (
    create_keys_sql,
    create_tables_sql,
    name_list,
    qualified,
    quote_text,
)
from privbench_core.backends.postgres.load import copy_text
from privbench_core.publishing.figures import fidelity_table
from privbench_core.schema.tables import Schema, Table

PSQL, DUCKDB = "load.sql", "load.duckdb.sql"
Entries = Mapping[str, Mapping[str, Any]]
"""The manifest's entries by table name, referenced tables first."""
_BATCH_ROWS = 100_000  # as many as loading into PostgreSQL sends at a time
_LEVEL = 1  # of gzip: the fastest; Parquet is the small form of the rows


def write_csv(table: Table, rows: Path, target: Path) -> None:
    """Write the rows of a table's Parquet file as CSV that COPY reads, compressed; equal rows give equal bytes."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,
        pq.ParquetFile(rows) as file,
    ):
        for batch in file.iter_batches(_BATCH_ROWS):
            packed.write(copy_text(batch, table))


def psql_script(schema: Schema, tables: Entries) -> str:
    """Return load.sql: tables, rows, then keys and indexes, in one transaction."""
    copies = "".join(
        f"\\copy {qualified(name, schema.schemas)} ({name_list(column['name'] for column in entry['columns'])})"
        f" FROM PROGRAM 'gzip -dc {entry['csv']}' WITH (FORMAT csv)\n"
        for name, entry in tables.items()
    )
    return (
        "-- Loads this bundle into PostgreSQL, all of it or nothing. Run it in this folder:\n"
        "--     psql postgresql://user@host/database -f load.sql\n"
        "\\set ON_ERROR_STOP on\n"
        "BEGIN;\n\n"
        f"{create_tables_sql(schema)}\n{copies}\n{create_keys_sql(schema)}\n"
        "COMMIT;\nANALYZE;\n"
    )


def duckdb_script(schema: Schema, tables: Entries) -> str:
    """Return load.duckdb.sql; what DuckDB cannot hold of the schema is listed at its top."""
    from privbench_core.backends.duckdb.load import duckdb_schema, insert_rows

    translated = duckdb_schema(schema)
    left_out = "".join(f"-- Left out, because DuckDB cannot hold it: {part}\n" for part in translated.left_out)
    statements = [*translated.first]
    for name, create in translated.tables.items():
        statements += [create, f"{insert_rows(schema.table(name), schema.schemas, quote_text(tables[name]['file']))};"]
    body = "\n".join([*statements, *translated.after])
    return (
        "-- Loads this bundle into a DuckDB file, all of it or nothing. Run it in this folder:\n"
        "--     duckdb benchmark.duckdb < load.duckdb.sql\n"
        f"{left_out}BEGIN;\n\n{body}\n\nCOMMIT;\nANALYZE;\n"
    )


def consumer_readme(schema: Schema, tables: Entries, receipt: Mapping[str, Any], workload: Mapping[str, str]) -> str:
    """Return the README: what the folder is, its privacy guarantee, its content and how to load it."""
    parts = [
        f"# {schema.name}: a synthetic database",
        _summary(schema, receipt),
        _guarantee(schema, receipt),
        _fidelity(receipt),
        _contents(schema, tables, workload),
        _constraints(receipt),
        _loading(tables),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(schema: Schema, receipt: Mapping[str, Any]) -> str:
    public = [table.name for table in schema.tables if table.public]
    made = f" Learned on {receipt['created']}." if receipt.get("created") else ""
    kept = f" The public tables ({', '.join(public)}) are those of the original." if public else ""
    return (
        "The rows are synthetic: sampled from a model of a private database that was learned under differential "
        "privacy. Tables, columns, types and keys are those of the original; distributions and joins are similar. "
        f"Key values are new, so no row stands for a person or thing of the original.{kept} Use it for tests, "
        f"benchmarks and demos.{made}"
    )


def _guarantee(schema: Schema, receipt: Mapping[str, Any]) -> str:
    public = [table.name for table in schema.tables if table.public]
    guarantee = receipt.get("guarantee", {})
    unit = guarantee.get("unit", f"one row of {schema.unit} and all rows that depend on it")
    meaning = (
        f"The privacy unit is {unit}. With or without one unit in the original, the probability of every result that "
        "anyone can compute from this folder, with any other knowledge, differs by a factor of at most exp(ε), except "
        "with probability at most δ."
    )
    lines = ["## Privacy guarantee", "", meaning]
    figures = {
        "a unit is added or removed": guarantee.get("add_or_remove_one_unit"),
        "a unit is replaced by another": guarantee.get("replace_one_unit"),
    }
    rows = [f"| {when} | {figure['epsilon']} | {figure['delta']} |" for when, figure in figures.items() if figure]
    lines += ["", "| when | ε | δ |", "|---|---|---|", *rows] if rows else []
    lines += [
        "",
        "Further releases about the same units add to this. `MANIFEST.json` has the full receipt under `privacy`.",
    ]
    if cohort := guarantee.get("cohort"):
        lines += ["", f"The units are cohort {cohort['name']} of the database. Declared: {cohort['declared']}."]
    if public:
        lines += ["", f"Not protected, because the owner declared them public: {', '.join(public)}."]
    return "\n".join(lines)


def _fidelity(receipt: Mapping[str, Any]) -> str:
    lines, warned = fidelity_table(receipt.get("fidelity_paid_for", {})), receipt.get("fidelity_warnings")
    if not lines:
        return ""
    careful = ["**Be careful with these tables:**", "", *(f"- {line}" for line in warned), ""] if warned else []
    explained = (
        "Mean total variation distances between the original and the models of these rows: 0 is equal, 1 has nothing "
        "in common. They were measured under the guarantee above, so each has noise (± is two standard deviations). "
        "*Columns shuffled* is the distance of the original with its columns shuffled independently of each other. "
        "In two-way figures, invented values count as absent from the original."
    )
    return "\n".join(["## How close it is", "", *careful, explained, "", *lines])


def _contents(schema: Schema, tables: Entries, workload: Mapping[str, str]) -> str:
    lines = ["## What is in it", "", "| table | rows | primary key | what it is |", "|---|---:|---|---|"]
    for name, entry in tables.items():
        description = _cell(entry.get("description", ""))
        lines.append(f"| {name} | {entry['rows']:,} | {', '.join(entry['primary_key'])} | {description} |")
    for table in schema.sampling_order:
        lines += ["", *_dictionary(table, tables[table.name])]
    lines += ["", "`schema.sql` is the schema for PostgreSQL; `MANIFEST.json` has the SHA-256 of every file."]
    if workload:
        files = ", ".join(f"`{name}.sql`" for name in sorted(workload))
        lines += [f"`workload/` holds queries to run on it: {files}."]
    return "\n".join(lines)


def _constraints(receipt: Mapping[str, Any]) -> str:
    """Return what was found to hold in the source, and holds in the rows."""
    found = receipt.get("constraints", {})
    lines = [f"- {table}: {_cell(words)}" for table, kept in found.items() for words in kept]
    if not lines:
        return ""
    return "\n".join(
        [
            "## What holds in every row",
            "",
            "Kept wherever declared domains allow it; few rows of the source break it, as far as noise can tell:",
            "",
            *lines,
        ]
    )


def _dictionary(table: Table, entry: Mapping[str, Any]) -> list[str]:
    """Return the data dictionary of a table: its columns with type, keys, unit and description."""
    refers = {
        name: f"refers to {key.parent}.{parent}"
        for key in table.foreign_keys
        for name, parent in zip(key.columns, key.parent_columns, strict=True)
    }
    lines = [f"### {table.name}", "", "| column | type | NULL | key | unit | what it is |", "|---|---|---|---|---|---|"]
    for column in entry["columns"]:
        name = column["name"]
        keys = [*(["primary"] if name in table.primary_key else []), *([refers[name]] if name in refers else [])]
        null = "yes" if column["nullable"] else ""
        unit, description = (_cell(column.get(fact, "")) for fact in ("unit", "description"))
        lines.append(f"| {name} | {column['type']} | {null} | {'; '.join(keys)} | {unit} | {description} |")
    return lines


def _cell(text: str) -> str:
    """Return text that stays inside one cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").split())


def _loading(tables: Entries) -> str:
    """Return commands that work in this folder."""
    first = next(iter(tables.values()))["file"] if tables else "data/table.parquet"
    psql = [
        "With psql alone: tables, rows, keys and indexes, all or nothing. psql reads no Parquet, so it takes the",
        "same rows from the `.csv.gz` files; `gzip` has to be there.",
        "",
        "```sh",
        f'psql "$URL" -f {PSQL}',
        "```",
        "",
    ]
    return "\n".join(
        [
            "## Loading it",
            "",
            *(psql if all("csv" in entry for entry in tables.values()) else []),
            "With DuckDB alone, from the Parquet files (the script lists what DuckDB cannot hold), or without loading:",
            "",
            "```sh",
            f"duckdb benchmark.duckdb < {DUCKDB}",
            f"duckdb -c {_shell(f'SELECT count(*) FROM {quote_text(first)}')}",
            "```",
            "",
            "With privbench, into PostgreSQL or a DuckDB file:",
            "",
            "```sh",
            "privbench publish . postgresql://user@host/database",
            "privbench publish . benchmark.duckdb",
            "```",
        ]
    )


def _shell(text: str) -> str:
    """Return ``text`` as one word of a shell command, in readable quotes."""
    return shlex.quote(text) if "'" not in text or set(text) & set('"$`\\!') else f'"{text}"'
