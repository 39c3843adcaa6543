"""Count the queries of a SAM workload on a table. NULL fails every comparison; text is compared byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.errors import SourceError
from privbench_core.workload import Condition, Query

_COMPARISONS = {
    "=": pc.equal,
    "<": pc.less,
    ">": pc.greater,
    "<=": pc.less_equal,
    ">=": pc.greater_equal,
    "!=": pc.not_equal,
}


def cardinalities(table: pa.Table, queries: Sequence[Query]) -> NDArray[np.int64]:
    """Return how many rows of ``table`` satisfy each query, shape (queries,).

    Each comparison is evaluated once per distinct value of its column.

    Raises:
        SourceError: A query names an unknown column, or a value that is not of its type.
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
    """A column as distinct values and a position per row; the position after the last is NULL."""

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
