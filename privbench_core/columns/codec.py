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

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description, understood by `codecs.codec_from_dict`."""
        ...
