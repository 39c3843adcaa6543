"""A discretizer: a codec and, where a profile merged its cells, a binning. Values -> codes and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning, Tails
from privbench_core.columns.codec import Codec, Codes
from privbench_core.guards import BLOCK_ROWS
from privbench_core.stored import Storable


@dataclass(frozen=True)
class Discretizer(Storable):
    """Values <-> codes of one column; released, so public.

    Attributes:
        codec: Values <-> cells.
        binning: Cells <-> codes, None where each cell is a code.
    """

    codec: Codec
    binning: Binning | None = None

    @property
    def size(self) -> int:
        """Number of codes."""
        return self.codec.size if self.binning is None else self.binning.size

    @property
    def ordered(self) -> int:
        """How many leading codes are intervals, in order; 0 for lists of values."""
        return self.codec.ordered if self.binning is None else self.binning.ordered

    def grouped(self, groups: NDArray[np.int64]) -> Discretizer:
        """The same over groups of its codes, dense numbers of shape (codes,); cells of a group are equally likely."""
        code_of = groups[self.shares[0]]
        shares = 1 / np.bincount(code_of)[code_of]
        return Discretizer(self.codec, Binning(tuple(code_of.tolist()), tuple(shares.tolist())))

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Codes of ``values``, shape (n,)."""
        cells = self.codec.encode(values)
        return cells if self.binning is None else self.binning.codes(cells)

    def encode_numbers(self, numbers: NDArray[np.int64]) -> Codes:
        """Codes of plain integers that never were a column (group sizes, row positions)."""
        return self.encode(pa.chunked_array([pa.array(numbers)]))

    @property
    def tails(self) -> Tails:
        """First and last code of each tail that was cut into pieces; see `Binning.with_tails`."""
        return () if self.binning is None else self.binning.tails

    @property
    def shares(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The code of each cell, and its share of the rows of that code."""
        if self.binning is None:
            return np.arange(self.codec.size), np.ones(self.codec.size)
        return np.array(self.binning.code_of), np.array(self.binning.weights)

    def decode(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        """Return values for ``codes``: cells by their released weights, uniform inside a cell."""
        return self.values(self.cells(codes, rng), rng)

    def cells(self, codes: Codes, rng: np.random.Generator) -> Codes:
        """Cells for ``codes``, by their released weights."""
        return codes if self.binning is None else self.binning.expand(codes, rng)

    def values(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        """Return values for ``cells``, uniform inside each."""
        blocks = [cells[start : start + BLOCK_ROWS] for start in range(0, max(len(cells), 1), BLOCK_ROWS)]
        return joined([self.codec.decode(block.astype(np.int32), rng) for block in blocks])


def joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Return one array of the values of several; Arrow would copy a single one, too."""
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def ordered_codes(discretizers: Mapping[str, Discretizer]) -> dict[str, int]:
    """Columns with ordered codes -> how many of their leading codes are intervals, in order."""
    return {name: discretizer.ordered for name, discretizer in discretizers.items() if discretizer.ordered}


def tails_of(discretizers: Mapping[str, Discretizer]) -> dict[str, Tails]:
    """Return the tails of the columns that have any."""
    return {name: discretizer.tails for name, discretizer in discretizers.items() if discretizer.tails}
