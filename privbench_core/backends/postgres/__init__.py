"""PostgreSQL: catalogue, COPY, statistics and loader; and here, the schema as its SQL.

Tables come in sampling order. Types and tables with their checks are emitted apart from keys and indexes: rows load
fastest into bare tables, an index built afterwards is packed, and keys in a cycle can only be added once the rows are
there. A constraint without a name in the spec gets the one that the server picks. `index_parts` takes indexes apart, in
the order in which the DDL makes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from privbench_core.schema.columns import Column, Generated, IdentitySequence
from privbench_core.schema.constraints import ForeignKey, Index, usual_name
from privbench_core.schema.partitions import Heir
from privbench_core.schema.tables import Schema, Table, split_name

if TYPE_CHECKING:
    from sqlglot import exp

AFTER_THE_ROWS = "-- Keys, indexes and comments come last, because rows load faster without them."
"""The line of a schema.sql that parts what rows are loaded into from the rest."""


def quote_identifier(name: str) -> str:
    """Return a name as a quoted SQL identifier.

    >>> print(quote_identifier('my "odd" name'))
    "my ""odd"" name"
    """
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def quote_text(text: str) -> str:
    """Return text as an SQL string, with each quote in it doubled."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def qualified(name: str, schemas: Sequence[str]) -> str:
    """Return the name of a table or an enum as SQL, with its schema where it is not in the first one.

    >>> qualified("billing.plan", ("public", "billing"))
    '"billing"."plan"'
    """
    home, own = split_name(name, schemas)
    return quote_identifier(own) if home is None else f"{quote_identifier(home)}.{quote_identifier(own)}"


def sql_type(column: Column, schemas: Sequence[str]) -> str:
    """Return the SQL type of a column: a known one as PostgreSQL spells it, or the quoted name of an enum."""
    stored = column.stored_type
    return qualified(column.sql_type or "", schemas) if stored is None else str(stored)


def create_schema_sql(schema: Schema) -> str:
    """Return the whole schema: enums and tables, then keys, indexes and comments."""
    return f"{create_tables_sql(schema)}\n{AFTER_THE_ROWS}\n{create_keys_sql(schema)}"


def first_statements(schema: Schema) -> list[str]:
    """Return what makes the schemas and the named types, in the words that PostgreSQL and DuckDB share."""
    return [f"CREATE SCHEMA IF NOT EXISTS {quote_identifier(name)};" for name in schema.schemas[1:]] + [
        f"CREATE TYPE {qualified(enum.name, schema.schemas)} AS ENUM ({', '.join(map(quote_text, enum.values))});"
        for enum in schema.enums
    ]


def create_tables_sql(schema: Schema) -> str:
    """Return enums, and tables with columns, defaults, NOT NULL and checks, without keys: what rows are loaded into."""
    parts = [_lines(first_statements(schema)), *(_table(table, schema) for table in schema.sampling_order)]
    return "\n".join(part for part in parts if part)


def vacuum_sql(schema: Schema) -> str:
    """Return the statement after which queries are planned as in a database in use, where autovacuum has been.

    It leaves statistics, and says which pages all can see: else PostgreSQL takes index-only scans for expensive. Tables
    whose rows went to heirs are written anew before.
    """
    names = [table.name for table in with_heirs(schema)] + [view.name for view in schema.views if view.materialized]
    full = [f"VACUUM (FULL) {qualified(table.name, schema.schemas)};\n" for table in schema.tables if table.heirs]
    return f"{''.join(full)}VACUUM (ANALYZE) {', '.join(qualified(name, schema.schemas) for name in names)};\n"


def with_heirs(schema: Schema) -> list[Table]:
    """Return the tables in sampling order, each with its heirs after it, which have its columns and their own keys."""
    return [each for table in schema.sampling_order for each in (table, *(_heir(table, heir) for heir in table.heirs))]


def _heir(table: Table, heir: Heir) -> Table:
    own = [columns for columns, _ in heir.keys]
    keys = [(key, above) for key in heir.foreign_keys for above in table.foreign_keys if above.columns == key.columns]
    return Table(
        heir.name,
        tuple(replace(column, identity=False, sequence=None, comment=None) for column in table.columns),
        table.primary_key if table.primary_key in own else (),
        tuple(replace(above, child=heir.name, constraint=key.constraint, actions=key.actions) for key, above in keys),
        unique=tuple(columns for columns in table.unique if columns in own),
        checks=heir.checks,
        indexes=heir.indexes,
        comment=heir.comment,
        key_names=heir.keys,
        generated=tuple(replace(column, comment=None) for column in table.generated),
    )


def move_to_heirs(schema: Schema) -> list[str]:
    """Return what moves rows from tables to those of their heirs whose checks they satisfy, the first of several."""
    moves = []
    for table in schema.tables:
        columns = name_list(column.name for column in table.columns)
        for heir in table.heirs:
            own, above = qualified(heir.name, schema.schemas), qualified(table.name, schema.schemas)
            moved = f"DELETE FROM ONLY {above} WHERE {heir.condition} RETURNING {columns}"
            moves.append(f"WITH moved AS ({moved}) INSERT INTO {own} ({columns}) SELECT * FROM moved;")
    return moves


def create_keys_sql(schema: Schema) -> str:
    """Return primary, unique and foreign keys, indexes, counters, comments and views: for after the rows."""
    tables, schemas = with_heirs(schema), schema.schemas
    keyed = [table for table in tables if table.primary_key]
    primary = [_own_key(table, schemas, "PRIMARY KEY", table.primary_key) for table in keyed]
    unique = [_own_key(table, schemas, "UNIQUE", columns) for table in tables for columns in table.unique]
    keys = [_foreign_key(key, schemas) for table in tables for key in (*table.foreign_keys, *table.implied_keys)]
    indexes = [statement for table in tables for statement in _indexes(table, schemas)]
    comments = [statement for table in tables for statement in comment_statements(table, schemas)]
    views = [f"CREATE {view.kind} {qualified(view.name, schemas)} AS {view.sql};" for view in schema.views]
    return _lines([*primary, *unique, *keys, *indexes, *counter_statements(schema), *comments, *views])


def counter_statements(schema: Schema) -> list[str]:
    """Return what advances the sequences of identity columns past the rows."""
    listed = [(table, column) for table in schema.sampling_order for column in table.columns if column.identity]
    return [_counter(table, schema.schemas, column) for table, column in listed]


def comment_statements(table: Table, schemas: Sequence[str]) -> list[str]:
    """Return the comments on a table and its columns, in the words that PostgreSQL and DuckDB share."""
    name = qualified(table.name, schemas)
    on_table = [] if table.comment is None else [f"COMMENT ON TABLE {name} IS {quote_text(table.comment)};"]
    listed: tuple[Column | Generated, ...] = (*table.columns, *table.generated)
    return on_table + [
        f"COMMENT ON COLUMN {name}.{quote_identifier(column.name)} IS {quote_text(column.comment)};"
        for column in listed
        if column.comment is not None
    ]


def name_list(names: Iterable[str]) -> str:
    """Return quoted names, with commas."""
    return ", ".join(quote_identifier(name) for name in names)


def join_condition(key: ForeignKey) -> str:
    """Return the condition on which a table joins the parent of a foreign key, both in the first schema."""
    child, parent = quote_identifier(key.child), quote_identifier(key.parent)
    pairs = zip(map(quote_identifier, key.columns), map(quote_identifier, key.parent_columns), strict=True)
    return " AND ".join(f"{child}.{own} = {parent}.{theirs}" for own, theirs in pairs)


def _table(table: Table, schema: Schema) -> str:
    inside = [_column(column, schema.schemas) for column in table.columns]
    inside += [_generated(column, schema) for column in table.generated]
    inside += [f"CONSTRAINT {quote_identifier(check.name)} CHECK ({check.expression})" for check in table.checks]
    lines = ",\n".join(f"    {line}" for line in inside)
    made = f"CREATE TABLE {qualified(table.name, schema.schemas)} (\n{lines}\n)"
    if table.partitioned is None:
        return f"{made};\n{_lines(_heirs(table, schema.schemas))}"
    return f"{made} PARTITION BY {table.partitioned.by};\n{_lines(_partitions(table, schema.schemas))}"


def _partitions(table: Table, schemas: Sequence[str]) -> Iterable[str]:
    """Yield what makes the partitions of a table, in its own schema."""
    home = table.name.removesuffix(split_name(table.name, schemas)[1])
    for part in table.partitioned.partitions if table.partitioned else ():
        above = table.name if part.of is None else f"{home}{part.of}"
        own = qualified(f"{home}{part.name}", schemas)
        yield f"CREATE TABLE {own} PARTITION OF {qualified(above, schemas)} {part.clause};"


def _heirs(table: Table, schemas: Sequence[str]) -> Iterable[str]:
    """Yield what makes the heirs of a table, which take their numbers from its sequences."""
    own = split_name(table.name, schemas)[1]
    for heir in table.heirs:
        name = qualified(heir.name, schemas)
        checks = (f"CONSTRAINT {quote_identifier(check.name)} CHECK ({check.expression})" for check in heir.checks)
        yield f"CREATE TABLE {name} ({', '.join(checks)}) INHERITS ({qualified(table.name, schemas)});"
        for column in (column for column in table.columns if column.identity):
            sequence = (column.sequence and column.sequence.name) or usual_name(own, (column.name,), "seq")
            called = quote_text(qualified(f"{table.name.removesuffix(own)}{sequence}", schemas))
            yield f"ALTER TABLE {name} ALTER {quote_identifier(column.name)} SET DEFAULT nextval({called});"


def _column(column: Column, schemas: Sequence[str]) -> str:
    parts = [quote_identifier(column.name), sql_type(column, schemas)]
    parts += [_identity(column.sequence or IdentitySequence())] if column.identity else []
    parts += [] if column.default is None else [f"DEFAULT ({column.default})"]
    return " ".join(parts if column.nullable else [*parts, "NOT NULL"])


def _identity(sequence: IdentitySequence) -> str:
    options = [] if sequence.name is None else [f"SEQUENCE NAME {quote_identifier(sequence.name)}"]
    options += [] if sequence.increment == 1 else [f"INCREMENT BY {sequence.increment}"]
    inside = f" ({' '.join(options)})" if options else ""
    return f"GENERATED {'ALWAYS' if sequence.always else 'BY DEFAULT'} AS IDENTITY{inside}"


def _generated(column: Generated, schema: Schema) -> str:
    is_enum = column.sql_type in {enum.name for enum in schema.enums}
    stored = qualified(column.sql_type, schema.schemas) if is_enum else column.sql_type
    parts = [quote_identifier(column.name), stored, f"GENERATED ALWAYS AS ({column.expression}) STORED"]
    return " ".join(parts if column.nullable else [*parts, "NOT NULL"])


def _own_key(table: Table, schemas: Sequence[str], kind: str, columns: tuple[str, ...]) -> str:
    name = qualified(table.name, schemas)
    if table.partitioned and not table.partitioned.allows_key(columns):
        return f"CREATE INDEX ON {name} ({name_list(columns)});"  # no key of PostgreSQL spans partitions
    return _constraint(name, dict(table.key_names).get(columns), f"{kind} ({name_list(columns)})")


def _foreign_key(key: ForeignKey, schemas: Sequence[str]) -> str:
    there = f"{qualified(key.parent, schemas)} ({name_list(key.parent_columns)})"
    what = f"FOREIGN KEY ({name_list(key.columns)}) REFERENCES {there}"
    child = qualified(key.child, schemas)
    return _constraint(child, key.constraint, f"{what} {key.actions}" if key.actions else what)


def _constraint(table: str, name: str | None, what: str) -> str:
    named = "" if name is None else f"CONSTRAINT {quote_identifier(name)} "
    return f"ALTER TABLE {table} ADD {named}{what};"


def _indexes(table: Table, schemas: Sequence[str]) -> Iterable[str]:
    name = qualified(table.name, schemas)
    if table.indexes is not None:
        for index in table.indexes:
            what = f"({name_list(index.columns)})" if index.using is None else f"USING {index.using}"
            yield f"CREATE INDEX {quote_identifier(index.name)} ON {name} {what};"
        return
    for columns in indexed_keys(table):
        yield f"CREATE INDEX ON {name} ({name_list(columns)});"


def _counter(table: Table, schemas: Sequence[str], column: Column) -> str:
    """Advance the sequence of an identity column past the rows; on an empty table it starts at 1."""
    name, counted = qualified(table.name, schemas), quote_identifier(column.name)
    sequence = f"pg_get_serial_sequence({quote_text(name)}, {quote_text(column.name)})"
    return f"SELECT setval({sequence}, greatest((SELECT max({counted}) FROM {name}), 0) + 1, false);"


def _lines(statements: Iterable[str]) -> str:
    return "".join(f"{statement}\n" for statement in statements)


@dataclass(frozen=True)
class IndexParts:
    """An index.

    Attributes:
        keys: Columns by name, expressions as SQL.
        name: None where the server chooses it.
        method: Such as ``btree``.
        unique: Whether no two rows share a key.
        include: Columns that it holds beside the keys.
        where: The condition on the rows that it holds; None for all.
    """

    keys: tuple[str, ...]
    name: str | None = None
    method: str = "btree"
    unique: bool = False
    include: tuple[str, ...] = ()
    where: str | None = None


def index_parts(table: Table) -> list[IndexParts]:
    """Return the indexes of a table, or of each of its partitions, in the order of `create_keys_sql`."""
    keys = (*([table.primary_key] if table.primary_key else []), *table.unique)
    parts = table.partitioned
    made = [IndexParts(columns, unique=parts is None or parts.allows_key(columns)) for columns in keys]
    return made + [_parsed(index) for index in (table.indexes or ())] + [IndexParts(c) for c in indexed_keys(table)]


def indexed_keys(table: Table) -> list[tuple[str, ...]]:
    """Return the columns of the foreign keys that get an index, where a table does not list its indexes.

    A primary or unique key that starts with the same columns is an index on them already.
    """
    ready = (table.primary_key, *table.unique)
    keys = [key.columns for key in table.foreign_keys] if table.indexes is None else []
    return [columns for columns in keys if not any(group[: len(columns)] == columns for group in ready)]


def _parsed(index: Index) -> IndexParts:
    """Take an index apart; where sqlglot does not understand it, it is one on the columns that it is about."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    if index.using is None:
        return IndexParts(index.columns, index.name)
    method = index.using.partition("(")[0].strip().lower()
    try:
        made = sqlglot.parse_one(f"CREATE INDEX i ON t USING {index.using}", read="postgres")
        params = made.find(exp.IndexParameters)
    except SqlglotError:
        params = None
    if params is None:
        return IndexParts(index.columns, index.name, method)
    keys = [_expression(key.this if isinstance(key, exp.Ordered) else key) for key in params.args["columns"]]
    include = tuple(column.name for column in params.args.get("include") or ())
    where = params.args.get("where")
    condition = where.this.sql(dialect="postgres") if where else None
    return IndexParts(tuple(keys), index.name, method, include=include, where=condition)


def _expression(key: exp.Expr) -> str:
    from sqlglot import exp

    inside = key.this if isinstance(key, exp.Opclass) else key
    inside = inside.unnest()
    return inside.name if isinstance(inside, exp.Column | exp.Identifier) else inside.sql(dialect="postgres")
