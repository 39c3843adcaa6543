"""statistics.sql: the schema, and for the planner of PostgreSQL 18 what ANALYZE would find in the bundle's rows.

A server that holds no row then plans queries like one that holds the bundle. Everything is computed from the rows of
the bundle, so it is as private as they are; a large table is sampled as ANALYZE samples it, but with a fixed seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from numpy.typing import NDArray
from sqlglot.errors import SqlglotError

from privbench_core.backends.expressions import without_enums
from privbench_core.backends.postgres import (
    IndexParts,
    create_schema_sql,
    index_parts,
    name_list,
    qualified,
    quote_identifier,
    quote_text,
    with_heirs,
)
from privbench_core.backends.postgres.analyze import SAMPLE_ROWS, column_statistics, element_statistics, rows_of_keys
from privbench_core.backends.postgres.load import FIRST_VERSION, array_literal, copy_text, spelled
from privbench_core.backends.postgres.pages import NO_DUPLICATES, Stored, heap_pages, index_pages, stored
from privbench_core.backends.scratch import bounded, scratch
from privbench_core.schema.partitions import Partition
from privbench_core.schema.tables import Schema, Table, split_name
from privbench_core.schema.types.registry import SqlType, parse_sql_type

_NUMBER = "row number"


@dataclass(frozen=True)
class SampledRows:
    """Sampled rows of a table, or of a part of it, in their order.

    Attributes:
        rows: Of the table or the part.
        values: By column, arrays as JSON; those of computed columns where DuckDB can compute them, too.
        size: Number of sampled rows.
        files: Of the table; none for a part of it.
    """

    rows: int
    values: dict[str, pa.Array]
    size: int
    files: tuple[Path, ...] = ()

    @classmethod
    def read(cls, table: Table, files: Sequence[Path]) -> SampledRows:
        """Read all rows of a table, or as many as ANALYZE looks at, batch by batch."""
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        chosen = np.arange(rows)
        if rows > SAMPLE_ROWS:
            chosen = np.sort(np.random.default_rng(0).choice(rows, SAMPLE_ROWS, replace=False))
        found = pa.Table.from_batches(_taken(files, chosen), table.arrow_schema)
        values = {name: _whole(found.column(name)) for name in found.column_names}
        sampled = cls(rows, values, found.num_rows, tuple(files))
        for column in table.generated:
            kind = parse_sql_type(column.sql_type)
            exact = kind is not None and kind.name == "numeric"  # which DuckDB would cut to three decimals
            made = sampled.evaluate(column.expression if exact else f"CAST({column.expression} AS {kind or 'text'})")
            if made is not None:
                sampled.values[column.name] = made
        return sampled

    def evaluate(self, expression: str) -> pa.Array | None:
        """Return an expression of PostgreSQL over each row; None if DuckDB does not understand it, or finds lists."""
        import duckdb

        with scratch() as connection:
            try:
                tree = sqlglot.parse_one(f"SELECT {expression}", dialect="postgres").transform(without_enums)
                selected = tree.sql(dialect="duckdb")
                connection.register("sampled", pa.table({**self.values, _NUMBER: np.arange(self.size)}))
                found = connection.sql(f"{selected} FROM sampled ORDER BY {quote_identifier(_NUMBER)}")
                values = _whole(found.to_arrow_table().column(0))
            except (duckdb.Error, SqlglotError):
                return None
        return None if pa.types.is_nested(values.type) or pa.types.is_interval(values.type) else values

    def where(self, condition: str | None) -> SampledRows:
        """Return the rows that satisfy a condition of PostgreSQL; all, if DuckDB does not understand it."""
        found = None if condition is None else self.evaluate(f"({condition}) IS TRUE")
        return self if found is None else self.filtered(found.to_numpy(zero_copy_only=False))

    def split(self, condition: str) -> tuple[SampledRows, SampledRows]:
        """Return the rows that satisfy a condition of PostgreSQL, and the others: all, if DuckDB cannot evaluate it."""
        found = self.evaluate(f"({condition}) IS TRUE")
        mask = np.zeros(self.size, np.bool_) if found is None else found.to_numpy(zero_copy_only=False)
        return self.filtered(mask), self.filtered(~mask)

    def filtered(self, mask: NDArray[np.bool_]) -> SampledRows:
        """Return the rows of a mask, and an estimate of how many there are."""
        rows = round(self.rows * float(mask.mean())) if self.size else 0
        return SampledRows(rows, {name: each.filter(pa.array(mask)) for name, each in self.values.items()}, mask.sum())

    def rows_of_keys(self, keys: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return numbers of rows that distinct keys have, and how many have each.

        Counted if the keys are columns of a whole table, else estimated.

        Args:
            keys: Columns, or expressions of PostgreSQL.
        """
        if self.size < self.rows and self.files and all(key in self.values for key in keys):
            listed = f"[{', '.join(quote_text(str(file)) for file in self.files)}]"
            grouped = f"SELECT count(*) AS n FROM read_parquet({listed}) GROUP BY {name_list(keys)}"
            with bounded() as connection:
                found = connection.execute(f"SELECT n, count(*) FROM ({grouped}) GROUP BY n ORDER BY n").fetchnumpy()
            sizes, numbers = found.values()
            return sizes, numbers
        codes = np.zeros(self.size, np.int64)
        for key in keys:
            values = self.values[key] if key in self.values else self.evaluate(key)
            if values is not None:
                ranks = _numbered(values)
                codes = np.unique(codes * (int(ranks.max(initial=0)) + 1) + ranks, return_inverse=True)[1]
        return rows_of_keys(np.bincount(codes), self.rows)

    def in_partition(self, by: str, part: Partition, siblings: Sequence[Partition]) -> SampledRows:
        """Return the rows that a partition holds among its siblings; which ones a hash chooses is not known."""
        kind, _, columns = by.partition(" ")
        if kind == "HASH":
            place = [each.name for each in siblings].index(part.name)
            return self.filtered(np.arange(self.size) % len(siblings) == place)
        others = [_condition(columns, each.values) for each in siblings if each.values != "DEFAULT"]
        is_default = part.values == "DEFAULT"
        return self.where(f"NOT ({' OR '.join(others)})" if is_default else _condition(columns, part.values))


def _condition(columns: str, bounds: str) -> str:
    """Return the condition on the rows of a partition, never NULL.

    >>> _condition("(day)", "FROM ('2024-01-01') TO (MAXVALUE)")
    "coalesce((day) >= ('2024-01-01'), false)"
    """
    if bounds.startswith("IN "):
        null = f" OR {columns} IS NULL" if "NULL" in bounds else ""
        return f"(coalesce({columns} {bounds}, false){null})"
    low, _, high = bounds.removeprefix("FROM ").partition(" TO ")
    ends = [f"{columns} {sign} {end}" for sign, end in ((">=", low), ("<", high)) if "VALUE" not in end]
    return f"coalesce({' AND '.join(ends) or 'true'}, false)"


def _taken(files: Sequence[Path], chosen: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    start = 0
    for file in files:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches():
                low, high = np.searchsorted(chosen, (start, start + batch.num_rows))
                yield batch.take(pa.array(chosen[low:high] - start))
                start += batch.num_rows


def _numbered(values: pa.Array) -> NDArray[np.int64]:
    """Return a number for each value, equal for equal ones."""
    ranks: NDArray[np.int64] = values.dictionary_encode().indices.cast(pa.int64()).fill_null(-1).to_numpy() + 1
    return ranks


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


_HEADER = """\
-- The schema of this bundle, and the statistics that the planner would have if its rows were there: for PostgreSQL 18.
--     psql -v ON_ERROR_STOP=1 -1 -f statistics.sql postgresql://user@host/database
-- The planner takes the sizes of tables from their files, which stay empty. `privbench publish --statistics-only` sets
-- them where the login may run programs on the server; elsewhere the extension pg_regresql has the planner use these.
-- ANALYZE would replace these statistics by those of empty tables, so autovacuum is off for these tables.
"""
_TRUNCATE = """\
-- So that the server has no page of the indexes in memory: publish sets the heights of their trees.
TRUNCATE {names};
"""
_CALL = """\
SELECT pg_restore_attribute_stats('version', {version}, 'schemaname', {home}, 'relname', {name},
    {facts});"""
_OF_TABLES = """
SELECT pg_restore_relation_stats('version', {version}, 'schemaname', nspname::text, 'relname', relname::text,
    'relpages', pages, 'reltuples', tuples::real, 'relallvisible', filled)
FROM (VALUES
    {values}
) AS found (name, pages, filled, tuples) JOIN pg_class c ON c.oid = name JOIN pg_namespace n ON n.oid = relnamespace;
"""
_OF_INDEXES = """
SELECT pg_restore_relation_stats('version', {version}, 'schemaname', nspname::text, 'relname', relname::text,
    'relpages', pages, 'reltuples', tuples::real)
FROM (VALUES
    {values}
) AS found (name, number, pages, tuples)
JOIN (SELECT indrelid, indexrelid, row_number() OVER (PARTITION BY indrelid ORDER BY indexrelid) FROM pg_index)
    AS made (name, index, number) USING (name, number)
JOIN pg_class c ON c.oid = index JOIN pg_namespace n ON n.oid = relnamespace;
"""


def statistics_sql(schema: Schema, files: Mapping[str, Sequence[Path]]) -> str:
    """Return statistics.sql of a bundle with these Parquet files; equal files give equal text."""
    columns, tables, indexes = list[str](), list[str](), list[str]()
    known = {each.name: each for each in with_heirs(schema)}
    for table in schema.sampling_order:
        whole = SampledRows.read(table, files[table.name])
        columns += _Kept(schema, table, whole).columns(table.name, inherited=True) if table.heirs else ()
        for name, rows, leaf in _parts(table, whole, schema):
            kept = _Kept(schema, known.get(name, table), rows)
            home = qualified(name, schema.schemas)
            pages, filled = kept.heap_pages() if leaf else (-1, 0)
            pages = filled if table.heirs else pages
            tables.append(f"({quote_text(home)}::regclass, {pages}, {filled}, {rows.rows})")
            columns += kept.columns(name, inherited=not leaf)
            if leaf:
                columns.append(f"ALTER TABLE {home} SET (autovacuum_enabled = false);")
                sizes = enumerate(map(kept.index_size, index_parts(table)), 1)
                indexes += [f"({quote_text(home)}::regclass, {n}, {pages}, {held})" for n, (pages, held) in sizes]
                columns += kept.expressions() if name in known else ()
    lists = [(_OF_TABLES, tables), (_OF_INDEXES, indexes)]
    relations = [t.format(version=FIRST_VERSION, values=",\n    ".join(each)) for t, each in lists if each]
    names = ", ".join(qualified(table.name, schema.schemas) for table in schema.tables)
    return "\n".join([_HEADER, create_schema_sql(schema), _TRUNCATE.format(names=names), *columns, *relations])


def _parts(table: Table, rows: SampledRows, schema: Schema) -> Iterator[tuple[str, SampledRows, bool]]:
    """Yield a table and its parts: the name, the rows, and whether these are in it or in parts of it."""
    for heir in table.heirs:
        inside, rows = rows.split(heir.condition)
        yield heir.name, inside, True
    yield table.name, rows, table.partitioned is None
    if table.partitioned is None:
        return
    parts, home = table.partitioned.partitions, table.name.removesuffix(split_name(table.name, schema.schemas)[1])
    held: dict[str | None, tuple[str, SampledRows]] = {None: (table.partitioned.by, rows)}
    for part in parts:
        by, above = held[part.of]
        inside = above.in_partition(by, part, [each for each in parts if each.of == part.of])
        held[part.name] = (part.by or "", inside)
        yield f"{home}{part.name}", inside, part.by is None


@dataclass(frozen=True)
class _Kept:
    """Rows of a table or of one of its partitions, with what the schema says of them."""

    schema: Schema
    table: Table
    sample: SampledRows

    def heap_pages(self) -> tuple[int, int]:
        """Return the pages of the table, and those that hold rows."""
        names = [*(column.name for column in self.table.columns), *(column.name for column in self.table.generated)]
        unknown = pa.array(np.zeros(self.sample.size, np.int64))
        kept = [self.stored(name, self.sample.values.get(name, unknown)) for name in names]
        lines = 1000  # of COPY, whose length stands for all
        first = {column.name: self.sample.values[column.name][:lines] for column in self.table.columns}
        text = copy_text(pa.RecordBatch.from_pydict(first), self.table)
        return heap_pages(kept, self.sample.rows, len(text) / max(min(self.sample.size, lines), 1))

    def columns(self, name: str, *, inherited: bool) -> Iterator[str]:
        """Yield the statistics of each column of a table or partition; of all its parts if ``inherited``."""
        for column, values in self.sample.values.items() if self.sample.rows else ():
            facts = {"attname": quote_text(column), "inherited": str(inherited).lower()}
            yield self.call(name, facts | self.statistics(column, values, self.sample.rows))

    def expressions(self) -> Iterator[str]:
        """Yield the statistics of the expressions that indexes are on."""
        home = self.table.name.removesuffix(split_name(self.table.name, self.schema.schemas)[1])
        for index in index_parts(self.table):
            rows = self.sample.where(index.where)
            for number, key in enumerate(index.keys, 1):
                values = None if key in rows.values or not rows.rows or not index.name else rows.evaluate(key)
                if values is not None:
                    facts = {"attnum": f"{number}::smallint", "inherited": "false"}
                    yield self.call(f"{home}{index.name}", facts | self.statistics(key, values, rows.rows))

    def call(self, name: str, facts: Mapping[str, str]) -> str:
        """Return the statement that restores statistics of a column."""
        home, own = split_name(name, self.schema.schemas)
        return _CALL.format(
            version=FIRST_VERSION,
            home="current_schema()::text" if home is None else quote_text(home),
            name=quote_text(own),
            facts=", ".join(f"'{fact}', {value}" for fact, value in facts.items()),
        )

    def statistics(self, name: str, values: pa.Array, rows: int) -> dict[str, str]:
        """Return the statistics of a column or an expression as SQL, by the names that PostgreSQL has for them."""
        kind = self.kind(name, values)
        is_array = kind is not None and kind.is_array
        order: Sequence[str] | None
        order = next((each.values for each in self.schema.enums if each.name == self.declared.get(name)), None)
        if is_array:
            order = sorted(values.drop_null().unique().to_pylist(), key=_elements_in_order)
        ordered = kind is None or is_array or (kind.facts.any_text and kind.name != "jsonb")
        widths = self.stored(name, values).widths
        if name not in self.declared and pa.types.is_string(values.type):
            widths = widths + 3  # the length of a computed text takes more bytes than that of a stored one
        found = column_statistics(values, widths, rows, ordered=ordered, order=order)
        facts = {"null_frac": _real(found.null_fraction), "avg_width": str(found.width)}
        if kind is not None and kind.name == "json":  # which PostgreSQL cannot compare
            return facts
        facts["n_distinct"] = _real(found.distinct)
        common, shares = found.common
        if len(common):
            facts |= {"most_common_vals": self.literal(name, common), "most_common_freqs": _reals(shares)}
        if len(found.histogram):
            facts["histogram_bounds"] = self.literal(name, found.histogram)
        if found.correlation is not None:
            facts["correlation"] = _real(found.correlation)
        return facts | (_elements(values) if is_array else {})

    @cached_property
    def declared(self) -> dict[str, str]:
        """The types of the columns in SQL, or names of enums."""
        named = {column.name: str(column.stored_type or column.sql_type) for column in self.table.columns}
        return named | {column.name: column.sql_type for column in self.table.generated}

    def kind(self, name: str, values: pa.Array) -> SqlType | None:
        """Return the SQL type of a column, None for an enum; of an expression a type that is stored alike."""
        expected = "text" if pa.types.is_string(values.type) else "bigint"
        return parse_sql_type(self.declared.get(name, expected))

    @cached_property
    def layout(self) -> dict[str, Stored]:
        """How the values of each column are stored."""
        return {name: stored(values, self.kind(name, values)) for name, values in self.sample.values.items()}

    def stored(self, name: str, values: pa.Array) -> Stored:
        """Return how the values of a column or an expression are stored."""
        known = values is self.sample.values.get(name)
        return self.layout[name] if known else stored(values, self.kind(name, values))

    def index_size(self, index: IndexParts) -> tuple[int, int]:
        """Return the pages of an index, and how many rows it holds."""
        rows = self.sample.where(index.where)
        unknown = pa.array(np.zeros(rows.size, np.int64))
        found = {
            key: rows.values[key] if key in rows.values else rows.evaluate(key) or unknown
            for key in (*index.keys, *index.include)
        }
        kinds = {kind.name for key in index.keys if (kind := self.kind(key, found[key]))}
        shared = index.method == "btree" and not (index.unique or index.include or kinds & NO_DUPLICATES)
        columns = [self.stored(key, values) for key, values in found.items()]
        keys = rows.rows_of_keys(index.keys) if shared else None
        return index_pages(index.method, columns, keys, rows.rows), rows.rows

    def literal(self, name: str, values: pa.Array) -> str:
        """Return values of a column as an array of PostgreSQL in SQL."""
        column = next((column for column in self.table.columns if column.name == name), None)
        texts = values if column is None else spelled(column, values)
        return quote_text(array_literal(texts.cast(pa.string()).to_pylist()))


def _elements_in_order(array: str) -> list[tuple[bool, Any]]:
    """Return what arrays are ordered by: NULL comes last."""
    return [(each is None, each) for each in json.loads(array)]


def _elements(values: pa.Array) -> dict[str, str]:
    found = element_statistics([json.loads(text) for text in values.drop_null().to_pylist()])
    if found is None:
        return {}
    return {
        "most_common_elems": quote_text(array_literal(list(found.common))),
        "most_common_elem_freqs": _reals(found.shares),
        "elem_count_histogram": _reals(found.counts),
    }


def _real(value: float) -> str:
    return f"{np.float32(value)}::real"


def _reals(values: Sequence[float] | NDArray[np.float64]) -> str:
    return f"'{{{','.join(str(np.float32(value)) for value in values)}}}'::real[]"
