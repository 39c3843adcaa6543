"""The public classes of values by which a step is learned: the coarsest of some units that a value is a multiple of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from privbench_core.columns.codec import Codec, Codes
from privbench_core.columns.grid import Grid
from privbench_core.errors import InternalError
from privbench_core.schema.columns import Column, ColumnType


@dataclass(frozen=True)
class StepCodec(Codec):
    """Values by the coarsest unit that divides them; not to draw values from.

    Attributes:
        grid: The column's number line.
        nullable: Whether the column has a cell for NULL.
        units: Grid points of each unit, ascending; each divides the next, and the first is 1.
    """

    grid: Grid
    nullable: bool
    units: tuple[int, ...]

    @classmethod
    def of(cls, column: Column, *, table: str = "") -> StepCodec | None:
        """Return the classes of a column, None for a type whose steps are not learned.

        Decimals with digits after the point: 1, 5, 10, 50, … of the last one. Times, and differences between times:
        units of the calendar, in microseconds.
        """
        times = {ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ, *([ColumnType.INTERVAL] if column.relative else [])}
        if column.scale:
            units = tuple(digit * 10**power for power in range(9) for digit in (1, 5))
        elif column.type in times:
            units = (1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000)  # from µs to a day
        else:
            return None
        return cls(Grid.of(column, table), column.nullable, units)

    @property
    def usual(self) -> int:
        """Place of the unit that is taken if nothing is known: the last digit of decimals, seconds of times."""
        return 0 if self.grid.type is ColumnType.DECIMAL else self.units.index(1_000_000)

    @property
    def size(self) -> int:
        """Units, and NULL if there is one."""
        return len(self.units) + self.nullable

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Return the coarsest unit that divides each value, shape (n,); errors as for all codecs."""
        numbers, null = self.grid.numbers(values)
        cells = np.zeros(len(numbers), np.int32)
        for place, unit in enumerate(self.units):
            cells[numbers % unit == 0] = place
        return self.with_nulls(cells, null, self.grid.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Refuse: no value is drawn from a class."""
        raise InternalError(f"{self.grid.where}: values are not drawn by their step")

    def labels(self) -> list[str]:
        """Return the units."""
        return self.with_null_label([f"multiples of {unit}" for unit in self.units])
