"""What a published workload touches: its text is public, so plans may spend more of a budget there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Place = tuple[str, str]
"""A table and one of its columns."""
UNQUERIED = 0.25
"""Weight of what no published query touches, against 1: errors there count a quarter. Chosen by hand."""


@dataclass(frozen=True)
class Queried:
    """What queries touch: their predicates, groupings, aggregates and joins.

    Attributes:
        tables: Names of the tables.
        columns: Attributes of these.
        pairs: Two columns of the same query each.
        keys: Names of the foreign keys whose columns a query has.
    """

    tables: frozenset[str]
    columns: frozenset[Place]
    pairs: frozenset[frozenset[Place]]
    keys: frozenset[str]

    def weight(self, table: str, columns: Iterable[str]) -> float:
        """Return the number of these columns and of the table's rows, in weights."""
        touched = [table in self.tables, *((table, column) in self.columns for column in columns)]
        return sum(1.0 if each else UNQUERIED for each in touched)

    def weight_of_key(self, name: str) -> float:
        """Return the weight of a foreign key."""
        return 1.0 if name in self.keys else UNQUERIED

    def pairs_within(self, table: str) -> frozenset[frozenset[str]]:
        """Return the pairs of columns of one table that queries have together."""
        inside = (pair for pair in self.pairs if all(name == table for name, _ in pair))
        return frozenset(frozenset(column for _, column in pair) for pair in inside)
