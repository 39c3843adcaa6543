"""The texts of a bundle: its README for users who do not know privbench, and the scripts that load it without.

psql reads no Parquet, so a bundle holds its rows a second time as compressed CSV, in the form that COPY reads; every
place with psql and gzip can load it. DuckDB reads the Parquet files.
"""

from __future__ import annotations

import gzip
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from privbench_core.backends.postgres import (
    create_keys_sql,
    create_tables_sql,
    move_to_heirs,
    name_list,
    qualified,
    quote_text,
    sql_type,
    vacuum_sql,
)
from privbench_core.backends.postgres.load import copy_text
from privbench_core.publishing.verdicts import JOIN, MEANINGS, ONE_WAY, SIZE, TWO_WAY, Grade, Verdict
from privbench_core.schema.tables import Schema, Table

PSQL, DUCKDB, STATISTICS = "load.sql", "load.duckdb.sql", "statistics.sql"
Entries = Mapping[str, Mapping[str, Any]]
"""The manifest's entries by table name, referenced tables first."""


def write_csv(table: Table, rows: Path, target: Path) -> None:
    """Write the rows of a table's Parquet file as CSV that COPY reads, compressed; equal rows give equal bytes."""
    with (
        target.open("wb") as raw,
        # The fastest level: Parquet is the small form of the rows.
        gzip.GzipFile("", "wb", 1, raw, mtime=0) as packed,
        pq.ParquetFile(rows) as file,
    ):
        for batch in file.iter_batches(100_000):  # as many as loading into PostgreSQL sends at a time
            packed.write(copy_text(batch, table))


def psql_script(schema: Schema, tables: Entries) -> str:
    """Return load.sql: tables, rows, then keys and indexes, in one transaction."""
    copies = "".join(
        f"\\copy {qualified(name, schema.schemas)} ({name_list(column['name'] for column in entry['columns'])})"
        f" FROM PROGRAM 'gzip -dc {entry['csv']}' WITH (FORMAT csv)\n"
        for name, entry in tables.items()
    )
    moves = "".join(f"{statement}\n" for statement in move_to_heirs(schema))
    return (
        "-- Loads this bundle into PostgreSQL, all of it or nothing. Run it in this folder:\n"
        "--     psql postgresql://user@host/database -f load.sql\n"
        "\\set ON_ERROR_STOP on\n"
        "BEGIN;\n\n"
        f"{create_tables_sql(schema)}\n{copies}{moves}\n{create_keys_sql(schema)}\n"
        f"COMMIT;\n{vacuum_sql(schema)}"
    )


def duckdb_script(schema: Schema, tables: Entries) -> str:
    """Return load.duckdb.sql; what DuckDB cannot hold of the schema is listed at its top."""
    from privbench_core.backends.duckdb import duckdb_schema, insert_rows

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
    """Return the README: what the folder is, what to trust, what was lost, the guarantee, loading and its content."""
    parts = [
        f"# {schema.name}: a synthetic database",
        _summary(receipt),
        _trust(schema, tables, receipt),
        _constraints(receipt),
        _lost(receipt),
        _guarantee(schema, receipt),
        _loading(schema, tables),
        _contents(schema, tables, workload),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def with_replicates(readme: str, number: int) -> str:
    """Return the README of a bundle with a section on its replicates, before the guarantee."""
    title, next_title = "## Error bars", "## Privacy guarantee"
    before, _, after = readme.partition(next_title)
    lines = [
        before.partition(title)[0] + title,
        "",
        f"`replicates/` holds {number} databases that privbench made of the rows in `data/`, as it made those of the",
        "original. How far they are from `data/` shows how far `data/` may be from the original, query by query:",
        "",
        "```sh",
        "privbench explain . --workload queries.sql --error-bars",
        "```",
        "",
        "They are for that alone: as data, they are further off than `data/`.",
    ]
    return "\n".join([*lines, "", next_title]) + after


def _summary(receipt: Mapping[str, Any]) -> str:
    made = f" Learned on {receipt['created']}." if receipt.get("created") else ""
    return (
        "The rows are synthetic: sampled from a model of a private database that was learned under differential "
        "privacy. Tables, columns, types and keys are those of the original. Key values are new, so no row stands for "
        f"a person or thing of the original. Use it for tests, benchmarks and demos.{made}"
    )


def _trust(schema: Schema, tables: Entries, receipt: Mapping[str, Any]) -> str:
    """Return what holds, and how close each table is, worst first."""
    verdicts = [Verdict.from_dict(stored) for stored in receipt.get("fidelity_verdicts", ())]
    lines = [
        "## What to trust",
        "",
        "Types, keys, foreign keys, NOT NULL and checks of `schema.sql` hold in every row.",
    ]
    if verdicts:
        lines += ["How close the rest of each table is (worst first):", ""]
        lines += [f"- **{grade}**: {MEANINGS[grade]}" for grade in Grade if any(v.grade is grade for v in verdicts)]
    rows = [[v.subject, f"{tables[v.subject]['rows']:,}", v.grade or "", v.reason] for v in verdicts]
    names = {v.subject for v in verdicts}
    rows += [
        [name, f"{entry['rows']:,}", "", _origin(schema.table(name))]
        for name, entry in tables.items()
        if name not in names
    ]
    lines += ["", *_table(["table", ">rows", "how close", "why"], rows)]
    if any(receipt.get("fidelity_paid_for", {}).values()):
        explained = (
            "The figures are mean total variation distances between the original and the models of these rows: 0 is "
            "equal, 1 has nothing in common. They were measured under the guarantee below, so each has noise: ± is two "
            "standard deviations, and ≤ means that noise hides the figure. *Shuffled* is the original with its columns "
            "shuffled independently of each other. In two-way figures, invented values count as absent from the "
            "original."
        )
        lines += ["", explained, "", *_fidelity(receipt["fidelity_paid_for"])]
    return "\n".join(lines)


def _origin(table: Table) -> str:
    """Return where the rows of a table come from that has no verdict."""
    if table.empty:
        return "left empty"
    return "rows of the original" if table.public else ""


def _fidelity(paid_for: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return a table of the figures that were paid for: a line per table, a column per metric and its reference."""
    columns = {ONE_WAY: "single columns", TWO_WAY: "pairs of columns", JOIN: "joined pairs", SIZE: "number of rows"}
    headers = ["table", *(header for name in columns.values() for header in (name, "shuffled"))]
    rows = []
    for table, figures in paid_for.items():
        cells = dict.fromkeys(columns, ("", ""))
        for figure in figures:
            value, shuffled, error = figure["value"], figure["columns_shuffled"], figure["shuffled_plus_minus"]
            cells[figure["metric"]] = (
                f"≤ {figure['at_most']:.2f}" if value is None else f"{value:.2f} ± {figure['plus_minus']:.2f}",
                ""
                if shuffled is None
                else f"{shuffled:.2f} ± {error:.2f}"
                if shuffled > error
                else f"≤ {min(1.0, error + shuffled):.2f}",
            )
        rows.append([table, *(cell for pair in cells.values() for cell in pair)])
    return _table(headers, rows)


def _lost(receipt: Mapping[str, Any]) -> str:
    lost = [line.removesuffix("; declare a domain") for line in receipt.get("fidelity_lost", ())]
    return "\n".join(["## What was lost", "", *(f"- {_cell(line)}" for line in lost)]) if lost else ""


def _guarantee(schema: Schema, receipt: Mapping[str, Any]) -> str:
    public = [table.name for table in schema.public_tables]
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
    rows = [[when, f"{stated['epsilon']:g}", f"{stated['delta']:.2g}"] for when, stated in figures.items() if stated]
    lines += ["", *_table(["when", "ε", "δ"], rows)] if rows else []
    lines += [
        "",
        "Further releases about the same units add to this. `MANIFEST.json` has the full receipt under `privacy`.",
    ]
    if cohort := guarantee.get("cohort"):
        lines += ["", f"The units are cohort {cohort['name']} of the database. Declared: {cohort['declared']}."]
    if public:
        lines += ["", f"Not protected, because the owner declared them public: {', '.join(public)}."]
    return "\n".join(lines)


def _contents(schema: Schema, tables: Entries, workload: Mapping[str, str]) -> str:
    lines = [
        "## What is in it",
        "",
        "`schema.sql` is the schema for PostgreSQL; `MANIFEST.json` has the SHA-256 of every file.",
    ]
    if workload:
        files = ", ".join(f"`{name}.sql`" for name in sorted(workload))
        lines += [
            f"`workload/` holds queries to run on it, with `psql` or one by one: {files}. With pgbench, in their mix,",
            "with their pauses and with new values at every call (options are those of pgbench):",
            "",
            "```sh",
            *(
                ["# Transactions that write are rolled back; on a copy of the database, -D finish=COMMIT keeps them."]
                if any("\nROLLBACK;\n" in sql for sql in workload.values())
                else []
            ),
            *(f'sh workload/{_shell(name)}.pgbench/run.sh -c 4 -T 60 "$URL"' for name in sorted(workload)),
            'privbench check . "$URL"  # compares the plans of these queries with those expected of this data',
            "```",
        ]
    for table in schema.sampling_order:
        lines += ["", *_dictionary(table, tables[table.name], schema.schemas)]
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
            "These rules hold wherever declared domains allow it. By noisy counts, few original rows break them:",
            "",
            *lines,
        ]
    )


def _dictionary(table: Table, entry: Mapping[str, Any], schemas: Sequence[str]) -> list[str]:
    """Return the data dictionary of a table: its columns with type, keys, unit and description."""
    refers = {
        name: f"refers to {key.parent}.{parent}"
        for key in table.foreign_keys
        for name, parent in zip(key.columns, key.parent_columns, strict=True)
    }
    rows = []
    for declared, column in zip(table.columns, entry["columns"], strict=True):
        name = declared.name
        keys = [*(["primary"] if name in table.primary_key else []), *([refers[name]] if name in refers else [])]
        null = "yes" if column["nullable"] else ""
        rows.append(
            [
                name,
                sql_type(declared, schemas),
                null,
                "; ".join(keys),
                column.get("unit", ""),
                column.get("description", ""),
            ]
        )
    described = [_cell(entry["description"]), ""] if entry.get("description") else []
    return [f"### {table.name}", "", *described, *_table(["column", "type", "NULL", "key", "unit", "what it is"], rows)]


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table without the columns that are empty everywhere; ``>`` aligns right."""
    kept = [number for number in range(len(headers)) if any(row[number] for row in rows)]
    lines = [[headers[number].lstrip(">") for number in kept]]
    lines.append(["---:" if headers[number].startswith(">") else "---" for number in kept])
    lines += [[_cell(row[number]) for number in kept] for row in rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(text: str) -> str:
    """Return text that stays inside one cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").split())


def _loading(schema: Schema, tables: Entries) -> str:
    """Return commands that work in this folder."""
    first = next(iter(tables.values()))["file"] if tables else "data/table.parquet"
    psql = [
        "With psql alone: tables, rows, keys and indexes, all or nothing. psql reads no Parquet, so it takes the",
        "same rows from the `.csv.gz` files; `gzip` must be installed.",
        "",
        "```sh",
        f'psql "$URL" -f {PSQL}',
        "```",
        "",
    ]
    growing = [
        "",
        "For tests of incremental loads, the rows of the seven days after its last ones, in the database or as INSERT",
        "statements in a file. The same command then appends the next seven days:",
        "",
        "```sh",
        "privbench publish . benchmark.duckdb --append 7",
        "privbench publish . weeks.sql --append 7",
        "```",
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
            "",
            "For query plans alone, PostgreSQL 18 needs no rows. `statistics.sql` holds the schema and what ANALYZE",
            "would find in the rows.",
            "",
            "```sh",
            "privbench publish . postgresql://user@host/database --statistics-only",
            "```",
            *(growing if schema.is_dated else []),
        ]
    )


def _shell(text: str) -> str:
    """Return ``text`` as one word of a shell command, in readable quotes."""
    return shlex.quote(text) if "'" not in text or set(text) & set('"$`\\!') else f'"{text}"'
