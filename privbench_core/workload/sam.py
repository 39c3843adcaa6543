"""Workloads in SAM's file format: conjunctions of comparisons on one table, with their cardinalities.

A file is ``{"query_list": [[columns], [operators], [values]], "card_list": [...]}``, with columns as positions and
values as text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privbench_core.backends.postgres.ddl import quote_identifier
from privbench_core.errors import SourceError
from privbench_core.schema.tables import Table
from privbench_core.workload.statements import Statement, Workload

_OPERATORS = ("=", "<", ">", "<=", ">=", "!=")


@dataclass(frozen=True)
class Condition:
    """``column operator value``; the value is text, read in the column's type."""

    column: str
    operator: str
    value: str


Query = tuple[Condition, ...]
"""A conjunction: SELECT COUNT(*) ... WHERE all conditions hold."""


def load_sam_workload(path: Path, columns: Sequence[str]) -> tuple[tuple[Query, ...], NDArray[np.int64]]:
    """Read a SAM workload.

    Args:
        path: The JSON file.
        columns: Column names, in the order of the file's positions.

    Returns:
        The queries, and the cardinalities that the file states.

    Raises:
        SourceError: The file is not a workload, or refers to an unknown column or operator.
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
    """Read a SAM workload as SQL; its positions are those of the columns in the spec.

    Raises:
        SourceError: As `load_sam_workload`, or a numeric column is compared with something else.
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
                f"{path.name}: compares {table.name}.{column.name} with '{value}', not a number; correct the file"
            ) from None
    else:
        escaped = value.replace("'", "''")
        value = f"'{escaped}'"
    operator = "<>" if condition.operator == "!=" else condition.operator
    return f"{quote_identifier(column.name)} {operator} {value}"


def _position(column: object) -> int:
    if not isinstance(column, int) or column < 0:
        raise ValueError("columns must be positions from 0")
    return column


def _operator(operator: object) -> str:
    if operator not in _OPERATORS:
        raise ValueError(f"operators must be among {' '.join(_OPERATORS)}")
    return str(operator)
