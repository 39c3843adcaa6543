"""Rows of a bundle that statistics are computed from: sampled as ANALYZE samples, but with a fixed seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from numpy.typing import NDArray
from sqlglot.errors import SqlglotError

from privbench_core.backends.duckdb.connections import bounded, scratch
from privbench_core.backends.expressions import without_enums
from privbench_core.backends.postgres.analyze import SAMPLE_ROWS, rows_of_keys
from privbench_core.backends.postgres.ddl import name_list, quote_identifier, quote_text
from privbench_core.schema.partitions import Partition
from privbench_core.schema.tables import Table
from privbench_core.schema.types.registry import parse_sql_type

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
