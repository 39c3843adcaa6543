"""Released rules that send a row to a part by its own values alone, so that parts are disjoint for every database.

Splitting by such a rule composes in parallel under add/remove neighbours: a unit's rows go where they go whatever the
other units hold. (PrivBench's RowSplit, Algorithm 3, does not have this: its centres are exact averages over all rows.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes


class Rule(Protocol):
    """A released assignment of rows to ``parts`` parts."""

    @property
    def parts(self) -> int:
        """Number of parts."""
        ...

    def assign(self, codes: Mapping[str, Codes]) -> NDArray[np.int64]:
        """Part of each row, shape (n,), from the row's own codes."""
        ...


@dataclass(frozen=True)
class ByValue:
    """Part of a row by the code of one column: ``part_of[code]``."""

    column: str
    part_of: tuple[int, ...]

    @property
    def parts(self) -> int:
        """Number of parts."""
        return max(self.part_of) + 1

    def assign(self, codes: Mapping[str, Codes]) -> NDArray[np.int64]:
        """See `Rule.assign`."""
        return np.asarray(self.part_of, dtype=np.int64)[codes[self.column]]


@dataclass(frozen=True)
class Centres:
    """Nearest of some released centres in L1, ordered columns scaled to [0, 1], lists of values one-hot.

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
        """Number of clusters."""
        return len(self.points)

    def assign(self, codes: Mapping[str, Codes]) -> NDArray[np.int64]:
        """See `Rule.assign`; pair tables go to the lower cluster."""
        distances = [
            sum(np.asarray(table)[codes[name]] for (name, _), table in zip(self.columns, tables, strict=True))
            for tables in self.points
        ]
        return np.asarray(np.argmin(np.stack(distances), axis=0), dtype=np.int64)
