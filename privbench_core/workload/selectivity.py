"""Selectivities of comparisons with a constant, and literals for a given selectivity."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer

Floats = NDArray[np.float64]
RANGES = ("<", "<=", ">", ">=")

_EPOCH = dt.datetime(1970, 1, 1)


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
    """The weighted values of a column.

    Attributes:
        values: Distinct values, ascending.
        numbers: The values as numbers, shape (values,); for text, which is only compared for equality, positions.
        weights: Weight of each value.
        total: Weight of all rows, including NULLs.
    """

    values: pa.Array
    numbers: Floats
    weights: Floats
    total: float

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray, weights: Floats | None = None) -> Distribution:
        """Return the distribution of a column's rows, each with a weight (by default 1)."""
        rows = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        weigh = np.ones(len(rows)) if weights is None else weights
        encoded = rows.dictionary_encode()
        size = len(encoded.dictionary)
        index = encoded.indices.fill_null(size).to_numpy(zero_copy_only=False)
        per_value = np.bincount(index, weigh, minlength=size + 1)[:size]
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        values = encoded.dictionary.take(pa.array(order))
        return cls(values, _numbers(values), per_value[order], float(weigh.sum()))

    def share(self, operator: str, value: Any) -> float:
        """Return the share of rows for which ``column operator value`` is true."""
        if operator == "=":
            return self._share_of(self._position(value))
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
            position = self._position(value)
            if position is not None:
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

    def _share_of(self, position: int | None) -> float:
        return 0.0 if position is None or not self.total else float(self.weights[position]) / self.total


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
