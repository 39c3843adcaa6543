"""Values of synthetic rows that the constants of queries are compared with: of columns, and inside JSON documents.

`Distribution` says how large a share of a column's rows a comparison keeps, and which literal keeps a given share.
`Documents` follows constant paths into documents, such as ``data->'address'->>'city'``.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlglot import exp

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.documents import Path, documents_to_learn, parse_document
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload.engine import ResolvedQuery

Floats = NDArray[np.float64]
RANGES = ("<", "<=", ">", ">=")
_EPOCH = dt.datetime(1970, 1, 1)
STEPS = (exp.JSONExtract, exp.JSONExtractScalar)
"""The operators ``->`` and ``->>``."""


class Documents:
    """Columns of documents with keys that are released, or public."""

    def __init__(self, schema: Schema, synthetic: Mapping[str, pa.Table]) -> None:
        self._schema, self._synthetic = schema, synthetic
        self._found: dict[tuple[str, str, Path | None, bool], tuple[bool, pa.Array]] = {}

    def has(self, query: ResolvedQuery, node: exp.Expr) -> bool:
        """Return whether a constant path leads from a column to what some synthetic document has."""
        return (found := self._column_of(query, node)) is not None and self._look_up(*found, node)[0]

    def leaf(self, query: ResolvedQuery, column: exp.Column) -> tuple[exp.Expr, Column, pa.Array] | None:
        """Return the path that begins at a column of a query, what it leads to as a column, and its values."""
        node: exp.Expr = column
        while (above := _step(node)) is not None:
            node = above
        found = None if node is column else self._column_of(query, node)
        if found is None:
            return None
        name = node.sql()
        inside = replace(found[1], name=name) if isinstance(node, exp.JSONExtract) else Column(name, ColumnType.TEXT)
        return node, inside, self._look_up(*found, node)[1]

    def _column_of(self, query: ResolvedQuery, node: exp.Expr) -> tuple[Table, Column] | None:
        while isinstance(node, exp.Paren | exp.Cast | exp.JSONExtract | exp.JSONExtractScalar):
            node = node.this
        found = query.column(node, self._schema) if isinstance(node, exp.Column) else None
        known = found is not None and (found[0].public or found[1] in documents_to_learn(found[0].columns))
        return found if known and found is not None and found[1].type is ColumnType.JSON else None

    def _look_up(self, table: Table, column: Column, node: exp.Expr) -> tuple[bool, pa.Array]:
        path, scalar = _path(node), isinstance(node, exp.JSONExtractScalar)
        place = (table.name, column.name, path, scalar)
        if place not in self._found:
            texts = self._synthetic[table.name][column.name].combine_chunks().dictionary_encode()
            parsed = [_inside(parse_document(text), path) for text in texts.dictionary.to_pylist()]
            written = [_written(values[0], scalar=scalar) if values else None for values in parsed]
            self._found[place] = any(parsed), pa.array(written, pa.string()).take(texts.indices)
        return self._found[place]


def _step(node: exp.Expr) -> exp.Expr | None:
    """Return the path that has one step more than ``node``, if there is one."""
    above = node.parent
    while isinstance(above, exp.Paren) or (isinstance(above, exp.Cast) and isinstance(node, exp.Column)):
        node, above = above, above.parent
    return above if isinstance(above, STEPS) and above.this is node and _path(above) is not None else None


def _path(node: exp.Expr) -> Path | None:
    """Return the keys and positions of a path, None if it is none, or has others than these."""
    if isinstance(node, exp.Paren):
        return _path(node.this)
    if not isinstance(node, STEPS):
        return () if isinstance(node.this if isinstance(node, exp.Cast) else node, exp.Column) else None
    before, path = _path(node.this), node.expression
    if before is None or not isinstance(path, exp.JSONPath):
        return None
    steps = [step.this for step in path.expressions if not isinstance(step, exp.JSONPathRoot)]
    # An empty key is no step that sqlglot writes.
    return (*before, *steps) if all(type(step) in {str, int} and step != "" for step in steps) else None


def _inside(document: Any, path: Path | None) -> list[Any]:
    """Return what a path leads to in a document, as a list of one; an empty list if it leads nowhere."""
    if path is None:
        return []
    for step in path:
        fits = isinstance(document, dict) if isinstance(step, str) else isinstance(document, list)
        there = step in document if isinstance(step, str) else fits and -len(document) <= step < len(document)
        if not (fits and there):
            return []
        document = document[step]
    return [document]


def _written(value: Any, *, scalar: bool) -> str | None:
    if scalar and (value is None or isinstance(value, str)):
        return value
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class ReleasedMarginal:
    """A column's one-way marginal, as released by a profile step.

    Attributes:
        discretizer: Maps values to codes and back.
        counts: Noisy counts of the codes; negative ones count as 0.
    """

    discretizer: Discretizer
    counts: Floats

    def distribution(self, rng: np.random.Generator) -> Distribution:
        """Return the marginal over values: codes in proportion to their counts, decoded like synthetic rows."""
        weights = np.maximum(self.counts, 0)
        weights = weights if weights.sum() > 0 else np.ones(len(weights))
        drawn = 50_000  # values, so shares are accurate to 1 in 50,000
        expected = np.cumsum(weights) / weights.sum() * drawn
        positions = np.searchsorted(expected, np.arange(drawn) + 0.5, side="right")
        codes: Codes = np.minimum(positions, len(weights) - 1).astype(np.int32)
        return Distribution.of(self.discretizer.decode(codes, rng))


@dataclass(frozen=True)
class Distribution:
    """The values of a column.

    Attributes:
        values: Distinct values, ascending.
        numbers: The values as numbers, shape (values,); for text, which is only compared for equality, positions.
        weights: Number of rows of each value.
        total: Number of all rows, including NULLs.
    """

    values: pa.Array
    numbers: Floats
    weights: Floats
    total: float

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Distribution:
        """Return the distribution of a column's rows."""
        counts = pc.value_counts(column.drop_null())
        order = pc.sort_indices(counts.field("values"))
        values = counts.field("values").take(order)
        return cls(values, _numbers(values), np.asarray(counts.field("counts").take(order), float), float(len(column)))

    def share(self, operator: str, value: Any) -> float:
        """Return the share of rows for which ``column operator value`` is true."""
        if operator == "=":
            position = self._position(value)
            return 0.0 if position is None or not self.total else float(self.weights[position]) / self.total
        number = _number(value)
        smaller = int(np.searchsorted(self.numbers, number, "left" if operator in {"<", ">="} else "right"))
        below = float(self.weights[:smaller].sum())
        matching = below if operator in {"<", "<="} else float(self.weights.sum()) - below
        return matching / self.total if self.total else 0.0

    def value_for(self, operator: str, share: float, value: Any) -> Any:
        """Return a literal for which ``column operator literal`` is true for about ``share`` of the rows.

        Args:
            operator: ``=`` or one of `RANGES`.
            share: The target, in [0, 1].
            value: The present literal. It is kept if it is close enough, and breaks ties.

        Returns:
            ``value``, or one of `values`.
        """
        if not len(self.values):
            return value
        if operator == "=":
            if self._position(value) is not None:
                return value
            shares, mine = self.weights / self.total, np.inf
        else:
            mine = abs(self.share(operator, value) - share)
            shares = self._shares(operator)
        off = np.abs(shares - share)
        if mine <= max(float(off.min()), 0.05 * share):  # near enough: the literal is kept
            return value
        best = np.flatnonzero(off <= off.min() + 1e-12)
        away = np.abs(self.numbers[best] - (0.0 if isinstance(value, str) else _number(value)))
        return self.values[int(best[int(np.argmin(away))])].as_py()

    def _shares(self, operator: str) -> Floats:
        """Return the share of rows for each of `values` as the literal."""
        upto = np.cumsum(self.weights)
        below = upto - self.weights
        matching = {"<": below, "<=": upto, ">": upto[-1] - upto, ">=": upto[-1] - below}[operator]
        return np.asarray(matching / self.total, np.float64)

    def _position(self, value: Any) -> int | None:
        """Return the position of a value in `values`."""
        if isinstance(value, str) or pa.types.is_string(self.values.type) or pa.types.is_boolean(self.values.type):
            found = pc.index(self.values, pa.scalar(value)).as_py() if len(self.values) else -1
            return found if found >= 0 else None
        position = int(np.searchsorted(self.numbers, _number(value)))
        return position if position < len(self.numbers) and self.numbers[position] == _number(value) else None


def _number(value: Any) -> float:
    """Return a literal as a number, like `_numbers`: microseconds since 1970 for dates and timestamps."""
    if isinstance(value, dt.datetime):
        naive = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        return (naive - _EPOCH) / dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()) / dt.timedelta(microseconds=1)
    return float(value)


def _numbers(values: pa.Array) -> Floats:
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("s"))
    if pa.types.is_timestamp(values.type):
        return np.asarray(values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).to_numpy(), np.float64)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        return np.asarray(pc.cast(values, pa.float64(), safe=False).to_numpy(), np.float64)
    return np.arange(len(values), dtype=np.float64)
