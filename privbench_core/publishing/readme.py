"""README.md of a bundle, for users who do not know privbench."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from privbench_core.backends.postgres.ddl import AFTER_THE_ROWS, quote_identifier, quote_text
from privbench_core.publishing.figures import fidelity_table
from privbench_core.schema.tables import Schema, Table


def consumer_readme(
    schema: Schema, tables: Mapping[str, Mapping[str, Any]], receipt: Mapping[str, Any], workload: Mapping[str, str]
) -> str:
    """Return the README: what the folder is, its privacy guarantee, its content and how to load it.

    Args:
        schema: The database.
        tables: The manifest's entries by table name, referenced tables first.
        receipt: The manifest's ``privacy``.
        workload: SQL text by name.
    """
    parts = [
        f"# {schema.name}: a synthetic database",
        _summary(schema),
        _guarantee(schema, receipt),
        _fidelity(receipt),
        _contents(schema, tables, workload),
        _loading(schema, tables),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(schema: Schema) -> str:
    public = [table.name for table in schema.tables if table.public]
    kept = f" The public tables ({', '.join(public)}) are those of the original." if public else ""
    return (
        "The rows are synthetic: sampled from a model of a private database that was learned under differential "
        "privacy. Tables, columns, types and keys are those of the original; distributions and joins are similar. "
        f"Key values are new, so no row stands for a person or thing of the original.{kept} Use it for tests, "
        "benchmarks and demos."
    )


def _guarantee(schema: Schema, receipt: Mapping[str, Any]) -> str:
    lines = ["## Privacy guarantee", ""]
    public = [table.name for table in schema.tables if table.public]
    stated = receipt.get("guarantee")
    guarantee = stated if isinstance(stated, Mapping) else {}
    unit = guarantee.get("unit", f"one row of {schema.unit} and all rows that depend on it")
    lines.append(
        f"The privacy unit is {unit}. With or without one unit in the original, the probability of every result that "
        "anyone can compute from this folder, with any other knowledge, differs by a factor of at most exp(ε), except "
        "with probability at most δ."
    )
    figures = [
        ("a unit is added or removed", guarantee.get("add_or_remove_one_unit")),
        ("a unit is replaced by another", guarantee.get("replace_one_unit")),
    ]
    known = [(when, figure) for when, figure in figures if isinstance(figure, Mapping)]
    if known:
        lines += ["", "| when | ε | δ |", "|---|---|---|"]
        lines += [f"| {when} | {figure.get('epsilon')} | {figure.get('delta')} |" for when, figure in known]
    lines += [
        "",
        "Further releases about the same units add to this. `MANIFEST.json` has the full receipt under `privacy`.",
    ]
    cohort = guarantee.get("cohort")
    if isinstance(cohort, Mapping):
        lines += ["", f"The units are cohort {cohort.get('name')} of the database. Declared: {cohort.get('declared')}."]
    if public:
        lines += ["", f"Not protected, because the owner declared them public: {', '.join(public)}."]
    return "\n".join(lines)


def _fidelity(receipt: Mapping[str, Any]) -> str:
    stated, warned = receipt.get("fidelity_paid_for"), receipt.get("fidelity_warnings") or ()
    lines = fidelity_table(stated) if isinstance(stated, Mapping) else []
    if not lines:
        return ""
    careful = ["**Be careful with these tables:**", "", *(f"- {line}" for line in warned), ""] if warned else []
    explained = (
        "Mean total variation distances between the original and the models of these rows: 0 is equal, 1 has nothing "
        "in common. They were measured under the guarantee above, so each has noise (± is two standard deviations). "
        "*Columns shuffled* is the distance of a database with independent columns."
    )
    return "\n".join(["## How close it is", "", *careful, explained, "", *lines])


def _contents(schema: Schema, tables: Mapping[str, Mapping[str, Any]], workload: Mapping[str, str]) -> str:
    lines = ["## What is in it", "", "| table | rows | columns | key |", "|---|---:|---|---|"]
    for name, entry in tables.items():
        columns = ", ".join(column["name"] for column in entry["columns"])
        lines.append(f"| {name} | {entry['rows']:,} | {columns} | {', '.join(entry['primary_key'])} |")
    keys = [
        f"- {key.name} refers to {key.parent}({', '.join(key.parent_columns)})"
        for table in schema.sampling_order
        for key in table.foreign_keys
    ]
    lines += ["", *keys] if keys else []
    lines += ["", "`schema.sql` is the schema for PostgreSQL; `MANIFEST.json` has the SHA-256 of every file."]
    if workload:
        files = ", ".join(f"`{name}.sql`" for name in sorted(workload))
        lines += [f"`workload/` holds queries to run on it: {files}."]
    return "\n".join(lines)


def _loading(schema: Schema, tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return commands that work in this folder. Foreign keys come last, so the order of tables does not matter."""
    first = next(iter(tables.values()))["file"] if tables else "data/table.parquet"
    copies = []
    for name, entry in tables.items():
        rows = f"SELECT {_spelled(schema.table(name))} FROM {quote_text(entry['file'])}"
        read = f"COPY ({rows}) TO '/dev/stdout' (FORMAT csv, HEADER false)"
        load = f"\\copy {quote_identifier(name)} FROM STDIN (FORMAT csv)"
        copies.append(f'duckdb -c {_shell(read)} | psql "$URL" -c {_shell(load)}')
    begin = AFTER_THE_ROWS.partition(",")[0]
    return "\n".join(
        [
            "## Loading it",
            "",
            "With privbench, into PostgreSQL or a DuckDB file (the command lists what DuckDB does not support):",
            "",
            "```sh",
            "privbench publish . postgresql://user@host/database",
            "privbench publish . benchmark.duckdb",
            "```",
            "",
            "With DuckDB only, without loading:",
            "",
            "```sh",
            f"duckdb -c {_shell(f'SELECT count(*) FROM {quote_text(first)}')}",
            "```",
            "",
            "With psql (and DuckDB to read Parquet). The first command creates tables, the last but one their keys:",
            "",
            "```sh",
            f'sed "/^{begin}/,\\$d" schema.sql | psql "$URL"',
            *copies,
            f'sed -n "/^{begin}/,\\$p" schema.sql | psql "$URL"',
            'psql "$URL" -c ANALYZE',
            "```",
        ]
    )


def _spelled(table: Table) -> str:
    """Return the columns as DuckDB has to write them for PostgreSQL to read."""
    named = [(quote_identifier(column.name), column.logical.copy_form) for column in table.columns]
    forms = [f"{form.format(name)} AS {name}" for name, form in named if form != "{}"]
    return f"* REPLACE ({', '.join(forms)})" if forms else "*"


def _shell(text: str) -> str:
    """Return ``text`` as one word of a shell command, in readable quotes."""
    return shlex.quote(text) if "'" not in text or set(text) & set('"$`\\!') else f'"{text}"'
