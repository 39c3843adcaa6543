"""Views of references in a database: what all rows that refer to the same parent weigh together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from privbench_core.columns.exact_sums import LARGEST
from privbench_core.engines.sql.database import Database
from privbench_core.errors import InternalError
from privbench_core.privacy.views import Groupings, HeldRows, ReferenceSums, Scales


class SummedRows:
    """A view of references in a database: only the total weight of each parent's rows is fetched."""

    def __init__(
        self, database: Database, query: exp.Select, parents: int | None, clipped: exp.Select | None = None
    ) -> None:
        self._database = database
        self._query = query
        self._clipped = clipped
        self._parents = parents
        self._found: ReferenceSums | None = None

    def prepare(self, marginals: Sequence[tuple[str, ...]]) -> None:
        """See `CodedRows.prepare`: there are no columns."""

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        """See `CodedRows.counts`: there are no columns, so this is the total."""
        sums = self.reference_sums()
        return np.array(min(int(sums.totals.sum()) + sums.none, LARGEST), dtype=np.int64)

    def reference_sums(self) -> ReferenceSums:
        """See `CodedRows.reference_sums`."""
        if self._found is None:
            self._found = self._summed(self._query)
        return self._found

    def clipped_counts(self, columns: Sequence[str], groups: Groupings, scales: Scales = ()) -> NDArray[np.int64]:
        """See `CodedRows.clipped_counts`: there are no columns."""
        raise InternalError("a view of references has no codes")

    def clipped_references(self) -> ReferenceSums:
        """See `CodedRows.clipped_references`."""
        if self._clipped is None:
            raise InternalError("the counts of units cannot be clipped in this view")
        return self._summed(self._clipped)

    def _summed(self, query: exp.Select) -> ReferenceSums:
        found = self._database.fetch(query)
        present = found.column("key").is_valid().to_numpy()
        totals = found.column("total").to_numpy().astype(np.int64)
        keys = found.column("key")
        if self._parents is None:  # nothing is said by which of them it is
            rows = np.arange(int(present.sum()))
        else:
            rows = keys.fill_null(0).to_numpy().astype(np.int64)[present]
        return ReferenceSums(rows, totals[present], int(totals[~present].sum()), self._parents)

    def held(self) -> HeldRows:
        """See `CodedRows.held`."""
        raise InternalError("a view of references has no codes")
