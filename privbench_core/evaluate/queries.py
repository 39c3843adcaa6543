"""Single-table workloads: conjunctions of comparisons, their cardinalities, and the Q-error between two tables.

The file format is that of the SAM workloads: ``{"query_list": [[columns], [operators], [values]], "card_list": [...]}``
with columns as positions and values as text. NULL fails every comparison and text is compared by its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.errors import SourceError
from privbench_core.schema.tables import Table
from privbench_core.workload.statements import Statement, Workload

_COMPARISONS = {
    "=": pc.equal,
    "<": pc.less,
    ">": pc.greater,
    "<=": pc.less_equal,
    ">=": pc.greater_equal,
    "!=": pc.not_equal,
}


@dataclass(frozen=True)
class Condition:
    """``column operator value``; the value stands as text and is read in the column's type."""

    column: str
    operator: str
    value: str


Query = tuple[Condition, ...]
"""A conjunction: SELECT COUNT(*) ... WHERE all conditions hold."""


def load_sam_workload(path: Path, columns: Sequence[str]) -> tuple[tuple[Query, ...], NDArray[np.int64]]:
    """Read a SAM workload.

    Args:
        path: The JSON file.
        columns: Column names in the order that the file's positions refer to.

    Returns:
        The queries, and their cardinalities as the file states them.

    Raises:
        SourceError: The file is not a workload, or refers to a column or an operator that does not exist.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        queries = tuple(
            tuple(
                Condition(columns[_position(column)], _operator(operator), str(value))
                for column, operator, value in zip(*query, strict=True)
            )
            for query in content["query_list"]
        )
        cardinalities = np.array([int(c) for c in content["card_list"]], np.int64)
    except (OSError, UnicodeDecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise SourceError(
            f"{path.name}: not a workload for these {len(columns)} columns ({error}); correct the file, or give SQL"
        ) from error
    if len(queries) != len(cardinalities):
        raise SourceError(f"{path.name}: {len(queries)} queries but {len(cardinalities)} cardinalities; give one each")
    return queries, cardinalities


def read_sam_workload(path: Path, table: Table) -> Workload:
    """A SAM workload as SQL; its positions are those of the columns in the spec.

    Raises:
        SourceError: As `load_sam_workload`, or a value is not a number where the column's are.
    """
    queries, stated = load_sam_workload(path, [column.name for column in table.columns])
    head = f"SELECT COUNT(*) FROM {quote_identifier(table.name)}"
    statements = []
    for query, cardinality in zip(queries, stated.tolist(), strict=True):
        conditions = " AND ".join(_sql(table, condition, path) for condition in query)
        statements.append(Statement(f"{head} WHERE {conditions}" if conditions else head, cardinality))
    return Workload(tuple(statements))


def _sql(table: Table, condition: Condition, path: Path) -> str:
    column = table.column(condition.column)
    value = condition.value
    if column.logical.numeric:
        try:
            float(value)
        except ValueError:
            raise SourceError(
                f"{path.name}: compares {table.name}.{column.name} with '{value}', which is no number; correct the file"
            ) from None
    else:
        escaped = value.replace("'", "''")
        value = f"'{escaped}'"
    operator = "<>" if condition.operator == "!=" else condition.operator
    return f"{quote_identifier(column.name)} {operator} {value}"


def cardinalities(table: pa.Table, queries: Sequence[Query]) -> NDArray[np.int64]:
    """How many rows of ``table`` satisfy each query, shape (queries,).

    Each comparison is made once per distinct value of its column, then spread over the rows.

    Raises:
        SourceError: A query names a column that the table does not have, or a value that is not of its type.
    """
    columns: dict[str, _Distinct] = {}
    counts = np.empty(len(queries), np.int64)
    for number, query in enumerate(queries):
        holds = np.ones(table.num_rows, bool)
        for condition in query:
            if condition.column not in columns:
                columns[condition.column] = _distinct(table, condition.column)
            holds &= columns[condition.column].satisfying(condition)
        counts[number] = holds.sum()
    return counts


@dataclass(frozen=True)
class _Distinct:
    """A column as its distinct values and the value of each row (the last position stands for NULL)."""

    values: pa.Array
    rows: NDArray[np.int64]

    def satisfying(self, condition: Condition) -> NDArray[np.bool_]:
        try:
            literal = pa.scalar(condition.value).cast(self.values.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SourceError(
                f"{condition.column}: the workload compares it with '{condition.value}', which is not of its type "
                f"{self.values.type}; correct the workload"
            ) from error
        admitted = _COMPARISONS[condition.operator](self.values, literal).to_numpy(zero_copy_only=False)
        return np.append(admitted, False)[self.rows]


def _distinct(table: pa.Table, column: str) -> _Distinct:
    if column not in table.column_names:
        raise SourceError(f"{column}: a query names this column, but the table has no such column; correct the query")
    encoded = table[column].combine_chunks()
    encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
    return _Distinct(encoded.dictionary, encoded.indices.fill_null(len(encoded.dictionary)).to_numpy().astype(np.int64))


def _position(column: object) -> int:
    if not isinstance(column, int) or column < 0:
        raise ValueError("columns must be positions from 0")
    return column


def _operator(operator: object) -> str:
    if operator not in _COMPARISONS:
        raise ValueError(f"operators must be among {' '.join(_COMPARISONS)}")
    return str(operator)


@dataclass(frozen=True)
class QErrors:
    """Q-errors of a workload: how many times too large or too small each estimate is, at least 1.

    >>> print(q_errors(np.array([10, 0, 8]), np.array([5, 0, 8])))
    mean 1.33, median 1.00, 75th 1.50, 95th 1.90, max 2.00
    """

    errors: NDArray[np.float64]

    @cached_property
    def mean(self) -> float:
        """Mean over the workload, the papers' figure."""
        return float(self.errors.mean())

    def percentile(self, rank: float) -> float:
        """The error that ``rank`` per cent of the queries stay below."""
        return float(np.percentile(self.errors, rank))

    def summary(self) -> dict[str, float]:
        """Mean, median, 75th and 95th percentile, maximum."""
        ranks = {"median": 50, "75th": 75, "95th": 95, "max": 100}
        return {"mean": self.mean} | {name: self.percentile(rank) for name, rank in ranks.items()}

    def __str__(self) -> str:
        """The summary in one line."""
        return ", ".join(f"{name} {value:.2f}" for name, value in self.summary().items())


def q_errors(true: NDArray[np.integer], estimated: NDArray[np.integer] | NDArray[np.floating]) -> QErrors:
    """Q-error per query, max(t/e, e/t) with both sides raised to at least 1 so that empty results count as 1."""
    t, e = np.maximum(true, 1).astype(np.float64), np.maximum(estimated, 1).astype(np.float64)
    return QErrors(np.maximum(t / e, e / t))
