"""Released rules that assign a row to a part by the row's own values only, so that parts are disjoint.

Splitting by such a rule composes in parallel under add/remove neighbours: other units never change the part of a row.
(PrivBench's RowSplit, Algorithm 3, lacks this property: its centres are exact averages over all rows.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.stored import Storable


@dataclass(frozen=True)
class ByValue(Storable):
    """Assign a row by the code of one column: ``part_of[code]``."""

    column: str
    part_of: tuple[int, ...]

    @property
    def parts(self) -> int:
        """Return the number of parts."""
        return max(self.part_of) + 1

    def assign(self, codes: Mapping[str, Codes]) -> NDArray[np.int64]:
        """Return the part of each row, shape (n,), from the row's own codes."""
        return np.asarray(self.part_of, dtype=np.int64)[codes[self.column]]


@dataclass(frozen=True)
class Centres(Storable):
    """Assign a row to the nearest released centre in L1, ordered columns scaled to [0, 1], lists of values one-hot.

    Attributes:
        columns: (name, "ordered" or "list") per column.
        sizes: Number of codes per column.
        points: Per cluster, per column, the distance of each code to the centre: lookup tables of shape (size,).
    """

    columns: tuple[tuple[str, str], ...]
    sizes: tuple[int, ...]
    points: tuple[tuple[tuple[float, ...], ...], ...]

    @property
    def parts(self) -> int:
        """Return the number of clusters."""
        return len(self.points)

    def assign(self, codes: Mapping[str, Codes]) -> NDArray[np.int64]:
        """Return the nearest centre of each row, shape (n,), the lower index of equally near ones."""
        distances = [
            sum(np.asarray(table)[codes[name]] for (name, _), table in zip(self.columns, tables, strict=True))
            for tables in self.points
        ]
        return np.asarray(np.argmin(np.stack(distances), axis=0), dtype=np.int64)


Rule = ByValue | Centres
