"""Codec of columns with a list of values: one cell per value, one for all others, one for NULL."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.columns.codec import Codec, Codes, null_mask, wrong_type
from privbench_core.columns.grid import Grid, Numbers, qualified
from privbench_core.columns.made_up import MadeUp
from privbench_core.errors import InternalError, SpecError
from privbench_core.schema.columns import Column, ColumnType, Scalar


@dataclass(frozen=True)
class CategoricalCodec(Codec):
    """Listed values, in their declared order.

    Attributes:
        where: ``table.column`` (or just the column), for messages.
        type: The column's type.
        values: The listed values: text for text columns, numbers of the grid for ordered types.
        nullable: Whether the column has a cell for NULL.
        precision, scale: Of a decimal.
        made: Of a learned list: what stands for the values that were not named. They are part of the domain then.
    """

    where: str
    type: ColumnType
    values: tuple[Scalar, ...]
    nullable: bool
    precision: int | None = None
    scale: int | None = None
    made: MadeUp | None = None

    def __post_init__(self) -> None:
        if len(set(self.values)) < len(self.values):
            raise InternalError(f"{self.where}: a list that holds a value twice")

    @property
    def other(self) -> int | None:
        """The cell of values that are not in the list; booleans have no such values."""
        return None if self.type.logical.fixed_values else len(self.values)

    @property
    def outside(self) -> tuple[int, ...]:
        """The cell of other values, if there is one and it is not certain that they occur."""
        return () if self.other is None or self._sure else (self.other,)

    @property
    def proper(self) -> int:
        """Listed values, and the cell of made-up ones if there surely are any."""
        return len(self.values) + self._sure

    @property
    def distinct(self) -> float:
        return len(self.values) + (0 if self.made is None else self.made.distinct)

    def encode(self, values: pa.ChunkedArray) -> Codes:
        if self._grid is not None:
            numbers, null = self._grid.numbers(values)
            found = pc.index_in(pa.array(numbers), value_set=pa.array(self._numbers))
        else:
            kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
            if not self.type.logical.accepts(kind):
                raise wrong_type(self.where, self.type, values.type)
            array = values.cast(self._listed.type).combine_chunks()
            null = null_mask(array)
            found = pc.index_in(array, value_set=self._listed, skip_nulls=True)
        cells = np.array(found.fill_null(self.other or 0).to_numpy(zero_copy_only=False), dtype=np.int32)
        return self.with_nulls(cells, null, self.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Return the values of ``cells``; for others, a made-up value, or one of the listed values, uniformly."""
        places = np.where(cells < len(self.values), cells, 0).astype(np.int64)
        others = np.flatnonzero(cells == self.other) if self.other is not None else np.empty(0, np.int64)
        known = self._listed
        if self.made is not None:
            made = self.made.values(tuple(map(str, self.values)), self.where).cast(known.type)
            places[others] = len(known) + self.made.draw(len(others), len(made), rng)
            known = pa.concat_arrays([known, made])
        elif len(others):
            places[others] = rng.integers(0, len(known), len(others))
        return known.take(pa.array(places, mask=cells == self.null if self.nullable else None))

    def value_labels(self) -> list[str]:
        if self._grid is not None:
            names = [str(self._grid.scalar(number)) for number in self._numbers.tolist()]
        else:
            names = [str(value).lower() if self.type.logical.fixed_values else str(value) for value in self.values]
        others = [] if self.other is None else ["(other)" if self.made is None else "(made up)"]
        return [*names, *others]

    @property
    def _sure(self) -> bool:
        return self.made is not None and not self.made.hidden

    @cached_property
    def _grid(self) -> Grid | None:
        return Grid(self.where, self.type, self.precision, self.scale) if self.type.ordered else None

    @cached_property
    def _numbers(self) -> Numbers:
        """The listed values of an ordered type on its grid."""
        if self._grid is not None and self._grid.continuous:
            return np.array(self.values, np.float64)
        return np.array(self.values, np.int64)

    @cached_property
    def _listed(self) -> pa.Array:
        """The listed values in the column's Arrow type."""
        return self._grid.array(self._numbers) if self._grid else pa.array(self.values, self.type.logical.arrow_type)


def categorical_codec(column: Column, values: tuple[Scalar, ...], *, table: str = "") -> CategoricalCodec:
    """Return the codec of a column with a list of values.

    Raises:
        SpecError: No values, a value twice, or one that is not of the column's type.
    """
    where = qualified(column, table)
    listed = column.type.logical.fixed_values
    if column.type.ordered:
        grid = Grid.of(column, table)
        listed = tuple(grid.number(value) for value in values)
    elif not listed:
        listed = tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
    if not listed:
        raise SpecError(f"{where}: the list of values is empty; list at least one")
    if len(set(listed)) < len(listed):
        raise SpecError(f"{where}: the list of values holds a value twice; list each once")
    return CategoricalCodec(where, column.type, listed, column.nullable, column.precision, column.scale)
