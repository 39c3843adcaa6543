"""What all codecs have in common.

A codec maps the values of one column onto ``size`` integer *cells* and back. The mapping is public: it follows from the
declared domain, or from what a profile step released and paid for. Every value has a cell: values outside of the domain
are clamped into cells of their own (ordered domains: ``below`` and ``above``; lists of values: ``other``), so they are
counted under differential privacy like all others, and NULL has the last cell of a nullable column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.errors import SourceError
from privbench_core.stored import Storable

Codes = NDArray[np.integer[Any]]


class Codec(Storable, ABC):
    """Column values <-> cells.

    Attributes:
        nullable: Whether the column has a cell for NULL.
        in_order: Whether the cells of the domain are in order, so that neighbours may be merged.
    """

    nullable: bool
    in_order: ClassVar[bool] = False

    @property
    @abstractmethod
    def proper(self) -> int:
        """Number of cells of the domain proper, which come first."""

    @property
    def size(self) -> int:
        """Number of cells, special ones included."""
        return self.proper + len(self.outside) + self.nullable

    @property
    def distinct(self) -> float:
        """How many different values there are to draw from; infinity where they cannot be counted."""
        return np.inf

    @abstractmethod
    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Return the cells of ``values``, shape (n,).

        Raises:
            SourceError: Values of the wrong type, or NULL (or NaN) in a column that has none.
        """

    @abstractmethod
    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Return values for ``cells``, uniform inside a cell, of the column's Arrow type."""

    def labels(self) -> list[str]:
        """Return a short text per cell, for reports and plots."""
        return [*self.value_labels(), *(["NULL"] if self.nullable else [])]

    def value_labels(self) -> list[str]:
        """Return a text per cell other than that of NULL: its number, if there is none better."""
        return [*map(str, range(self.proper + len(self.outside)))]

    @property
    def ordered(self) -> int:
        """How many leading cells are in order, so that neighbours may be merged; 0 for lists of values."""
        return self.proper if self.in_order else 0

    @property
    def outside(self) -> tuple[int, ...]:
        """Cells of values outside of the domain; there may be none."""
        return ()

    @property
    def null(self) -> int | None:
        """The cell of NULL, the last one; None if the column is not nullable."""
        return self.size - 1 if self.nullable else None

    @property
    def special(self) -> tuple[int, ...]:
        """Cells of values outside of the domain, and of NULL."""
        return self.outside if self.null is None else (*self.outside, self.null)

    def with_nulls(self, cells: Codes, null: NDArray[np.bool_], where: str) -> Codes:
        """Return ``cells`` with that of NULL where ``null`` says so, in place; ``where`` names the column.

        Raises:
            SourceError: NULL in a column that has none.
        """
        if self.null is not None:
            cells[null] = self.null
        elif null.any():
            raise SourceError(
                f"{where}: found NULL (or NaN) in a required column; declare nullable: true or fix the source",
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
