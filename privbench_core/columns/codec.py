"""The contract of a codec.

A codec maps the values of one column onto ``size`` integer *cells* and back. The mapping is public: it follows from the
declared domain, or from what a profile step released and paid for. Every value has a cell: values outside of the domain
are clamped into cells of their own (ordered domains: ``below`` and ``above``; lists of values: ``other``), so they are
counted under differential privacy like all others, and NULL has the last cell of a nullable column.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.errors import SourceError

Codes = NDArray[np.integer[Any]]


class Codec(Protocol):
    """Column values <-> cells.

    Attributes:
        size: Number of cells, special ones included.
        ordered: How many leading cells are ordered, so that neighbours may be merged; 0 for lists of values.
        null: The cell of NULL, None if the column is not nullable.
        outside: Cells of values outside of the domain (may be empty).
    """

    @property
    def size(self) -> int:
        """Number of cells."""
        ...

    @property
    def ordered(self) -> int:
        """Number of leading cells that are in order."""
        ...

    @property
    def null(self) -> int | None:
        """The cell of NULL."""
        ...

    @property
    def outside(self) -> tuple[int, ...]:
        """Cells of values outside of the domain."""
        ...

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Cells of ``values``, shape (n,). Values of the wrong type or NULLs in a column that has none: SourceError."""
        ...

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Return values for ``cells``, uniform inside a cell, of the column's Arrow type."""
        ...

    def labels(self) -> list[str]:
        """Return a short text per cell, for reports and plots."""
        ...


class NullableCodec:
    """What codecs have in common: the last cell is that of NULL, if the column has any, and by default none is special.

    Attributes:
        nullable: Whether the column has a cell for NULL.
    """

    nullable: bool

    @property
    def size(self) -> int:
        """Number of cells; subclasses say how many."""
        raise NotImplementedError

    @property
    def ordered(self) -> int:
        """None."""
        return 0

    @property
    def outside(self) -> tuple[int, ...]:
        """Nothing is outside."""
        return ()

    @property
    def null(self) -> int | None:
        """The last cell, if the column is nullable."""
        return self.size - 1 if self.nullable else None

    def with_null_label(self, names: list[str]) -> list[str]:
        """Return the labels of all cells from those of values."""
        return [*names, "NULL"] if self.nullable else names

    def with_nulls(self, cells: Codes, null: NDArray[np.bool_], where: str) -> Codes:
        """Return ``cells`` with that of NULL where ``null`` says so, in place; ``where`` names the column.

        Raises:
            SourceError: NULL in a column that has none.
        """
        if self.null is not None:
            cells[null] = self.null
        elif null.any():
            raise SourceError(
                f"{where}: found NULL (or NaN) in a column declared without; declare nullable: true or fix the source",
                private_detail=f"{where}: {int(null.sum()):,} of {len(null):,} values are NULL or NaN",
            )
        return cells


def wrong_type(where: str, declared: object, found: pa.DataType) -> SourceError:
    """Return the error of a column whose values are of another type than declared."""
    return SourceError(f"{where}: declared {declared}, found {found}; correct the type in the spec or fix the source")


def null_mask(values: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return where values are NULL, shape (n,)."""
    found = values.is_null()
    joined = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return np.asarray(joined.to_numpy(zero_copy_only=False))
