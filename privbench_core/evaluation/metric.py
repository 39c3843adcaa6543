"""What metrics share: how much of the data they use, the form of a metric of joins, and of a section of a report.

A section is a part of an `Evaluation`: the comparison of tables and joins, the workload, the run times. It decides
itself what it adds to metrics.json and to the verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from privbench_core.evaluation.joins import LinkedTables
from privbench_core.evaluation.verdict import Remark

SEED = 0
"""Seed of all sampling in a report, so that the report of a bundle is always the same."""
_MAX_ROWS = 150_000_000
"""Rows times marginals of one order, at most. Chosen by hand, not tuned."""
_MIN_MARGINALS = 50
"""Marginals of one order however large the table. Chosen by hand, not tuned."""


@dataclass(frozen=True)
class Scope:
    """How much of the data metrics use.

    Attributes:
        orders: λ, the numbers of columns of the marginals.
        marginals: Maximum number of marginals of one order; of more, a seeded sample is used.
        by_value: Whether to compare marginals over distinct values too.
        counting: Counting queries per foreign key.
    """

    orders: tuple[int, ...] = (1, 2, 3, 4)
    marginals: int = 1500
    by_value: bool = True
    counting: int = 10_000

    def limit(self, rows: int) -> int:
        """Return the maximum number of marginals of one order for a table of ``rows`` rows."""
        return max(_MIN_MARGINALS, min(self.marginals, _MAX_ROWS // max(rows, 1)))


FULL = Scope()
"""For reports. PrivLava and PrivPetal ask 10,000 counting queries too; the number of marginals is chosen by hand."""
BRIEF = Scope(orders=(1, 2), marginals=200, by_value=False, counting=0)
"""For the terminal: takes seconds. Chosen by hand, not tuned."""


class Metric(Protocol):
    """One number that compares a join in the source and in the synthetic database.

    Listed in `join_figures.JOIN_METRICS` or `FANOUT_METRICS`, it is measured, written to metrics.json and shown in the
    report.
    """

    @property
    def name(self) -> str:
        """Key in metrics.json."""

    @property
    def label(self) -> str:
        """Caption in the report."""

    def measure(self, source: LinkedTables, synthetic: LinkedTables, scope: Scope) -> float | None:
        """Return the metric, None where it is not defined."""


class Section(Protocol):
    """A part of a report."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-able content for metrics.json."""

    def remarks(self) -> Iterable[Remark]:
        """Return the remarks that it adds to the verdict."""
