"""A first spec for a source, drafted from its catalogue.

The catalogue says names, types and keys; it does not say what is private, how many children a parent may have or which
values may be told. Those lines carry a ``# decide:``, and where any value would be a guess they hold ``CHOOSE``, which
`load_spec` refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from privbench_core.schema.catalogue import Catalogue, FoundColumn, FoundKey, FoundTable, read_catalogue
from privbench_core.schema.fields import UNDECIDED
from privbench_core.schema.location import expand, is_url, parse_url
from privbench_core.schema.model import ColumnType
from privbench_core.schema.yaml_io import quote_yaml

_PASSWORD = "PRIVBENCH_PASSWORD"  # noqa: S105 - the name of an environment variable
_INTRODUCTION = """\
# Drafted from the catalogue of the source; no row was read.
# Everything in this file is public: whoever receives the benchmark may know all of it. So take domains and bounds from
# a codebook or from common sense, never from looking at the rows. Lines with "decide:" are yours to decide.
"""


def reflect(source: str, name: str | None = None) -> str:
    """Draft a spec file.

    Args:
        source: A folder of Parquet or CSV files, a DuckDB file, or a database URL (``${VARIABLE}`` is expanded to
            connect and kept as written).
        name: Name of the database; by default that of the folder, file or database.

    Returns:
        YAML text with comments, to be edited: `load_spec` lists what is still to be decided.

    Raises:
        SourceError: The source cannot be opened or holds no table.
    """
    catalogue = read_catalogue(source)
    lines = [
        f"database: {quote_yaml(name or catalogue.name)}",
        f"source: {quote_yaml(_written(source))}",
        "",
        "privacy:",
        *_privacy(catalogue),
        "",
        "tables:",
    ]
    for table in catalogue.tables:
        lines += [*_table(table, catalogue), ""]
    return _INTRODUCTION + "\n".join(lines).rstrip() + "\n"


def _written(source: str) -> str:
    """How the source stands in the file: paths absolute, a password replaced by an environment variable."""
    if "${" in source:
        return source
    if not is_url(expand(source)):
        return str(Path(source).resolve())
    url = parse_url(source)
    if not url.password:
        return source
    # Rendering escapes braces, so a plain word stands in for the variable first.
    return url.set(password=_PASSWORD).render_as_string(hide_password=False).replace(_PASSWORD, f"${{{_PASSWORD}}}", 1)


def _privacy(catalogue: Catalogue) -> Iterator[str]:
    unit = _likely_unit(catalogue)
    which = "guessed from the foreign keys" if unit != UNDECIDED else "nothing in the source says"
    yield f"  unit: {quote_yaml(unit)} # decide: whose rows, with all that depends on them, are protected ({which})"
    yield "  delta: 1.0e-9 # decide: 0 = pure differential privacy; else far below 1 / (number of units)"
    yield f"  epsilons: {UNDECIDED} # decide: one release per value, like [0.8, 1.6, 3.2]; smaller is more private"
    yield f"  lifetime: {{epsilon: {UNDECIDED}}} # decide: the most that all releases together may ever spend"


def _likely_unit(catalogue: Catalogue) -> str:
    """The table that most others lead to through foreign keys; undecided on a tie or without keys."""
    if len(catalogue.tables) == 1:
        return catalogue.tables[0].name
    parents = {table.name: {key.parent for key in table.foreign_keys} - {table.name} for table in catalogue.tables}

    def dependants(root: str) -> int:
        found = {root}
        while more := {name for name, above in parents.items() if above & found} - found:
            found |= more
        return len(found) - 1

    counts = sorted(((dependants(name), name) for name in parents), reverse=True)
    tied = counts[0][0] == counts[1][0]
    return UNDECIDED if tied or counts[0][0] == 0 else counts[0][1]


def _table(table: FoundTable, catalogue: Catalogue) -> Iterator[str]:
    yield f"  {quote_yaml(table.name)}:"
    guess = _likely_key(table)
    if table.primary_key:
        yield f"    primary_key: {_names(table.primary_key)}"
    else:
        why = "guessed from the name" if guess else "the source declares none"
        yield f"    primary_key: {_names(guess or (UNDECIDED,))} # decide: {why}"
    if table.foreign_keys:
        yield "    foreign_keys:"
        for key in table.foreign_keys:
            yield from _foreign_key(table, key)
    elif len(catalogue.tables) > 1 and not any(other.foreign_keys for other in catalogue.tables):
        yield "    # decide: foreign_keys: [{columns: .., references: .., max_children: ..}], or public: true"
    if table.unique:
        yield f"    unique: [{', '.join(_list(columns) for columns in table.unique)}]"
    yield "    columns:"
    keys = set(table.primary_key or guess).union(*(key.columns for key in table.foreign_keys))
    for column in table.columns:
        yield _column(column, is_key=column.name in keys, nullable=column.nullable and column.name not in keys)


def _likely_key(table: FoundTable) -> tuple[str, ...]:
    usual = {"id", f"{table.name}_id".casefold(), f"{table.name}id".casefold()}
    found = [column.name for column in table.columns if column.name.casefold() in usual]
    return tuple(found) if len(found) == 1 else ()


def _foreign_key(table: FoundTable, key: FoundKey) -> Iterator[str]:
    there = f"{{table: {quote_yaml(key.parent)}, columns: {_list(key.parent_columns)}}}"
    nullable = {column.name for column in table.columns if column.nullable}
    optional = ", optional: true" if not nullable.isdisjoint(key.columns) else ""
    yield f"      # decide: the most rows per row of {key.parent}; owner: true on one key if several lead to the unit"
    yield f"      - {{columns: {_names(key.columns)}, references: {there}, max_children: {UNDECIDED}{optional}}}"


def _column(column: FoundColumn, *, is_key: bool, nullable: bool) -> str:
    logical = column.type or ColumnType.TEXT
    fields = [f"type: {logical}"]
    note = "" if column.type else f" # decide: {column.native} has no type here and is read as text"
    if logical is ColumnType.DECIMAL:
        scale = UNDECIDED if column.scale is None else column.scale
        fields += [f"precision: {column.precision or UNDECIDED}", f"scale: {scale}"]
    if is_key and logical is ColumnType.CATEGORY:
        fields = ["type: text"]
    elif not is_key and (logical.ordered or logical is ColumnType.CATEGORY):
        fields.append("domain: learn")
        note = " # decide: " + _choice(column, logical)
    if nullable:
        fields.append("nullable: true")
    short = fields[0].removeprefix("type: ") if len(fields) == 1 else f"{{{', '.join(fields)}}}"
    return f"      {quote_yaml(column.name)}: {short}{note}"


def _choice(column: FoundColumn, logical: ColumnType) -> str:
    if column.native == "CSV":
        return "a CSV header gives no type; choose one, and {min:, max:} or {values: [..]} or learn (paid for)"
    if logical.ordered:
        return "{min:, max:}, or learn (paid for)"
    return "{values: [..]}, learn (paid for), or type: text without a domain"


def _names(names: tuple[str, ...]) -> str:
    return quote_yaml(names[0]) if len(names) == 1 else _list(names)


def _list(names: tuple[str, ...]) -> str:
    return f"[{', '.join(quote_yaml(name) for name in names)}]"
