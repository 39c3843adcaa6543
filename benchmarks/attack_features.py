"""What attackers on membership compute about units from synthetic rows: features that differ if a unit was a member.

They know the units they attack, rows of other units of the population (the *reference*), and synthetic rows. Per unit:

- the distance of its *embedding* to that of the nearest synthetic unit. MT-MIA (Ward, Wang and Cheng 2026) learns
  embeddings that reconstruct the features of a user's row and the sum of the features of its other rows; here they are
  these features themselves, which is the embedding that reconstructs best;
- how much more frequent the cells of its rows are among synthetic rows than in the reference (log ratios, as DOMIAS has
  them: van Breugel et al. 2023), per column, summed over pairs of columns, and of the rarest pair; means over its rows;
- how much more frequent units with as many rows are.

Item-level attackers see one row of it: the same of that row, with the distance to the nearest synthetic row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.evaluation.attacks import nearest_distances
from privbench_core.evaluation.joins import chain_links
from privbench_core.evaluation.marginals import EncodedTable, column_subsets, encode_tables
from privbench_core.schema.tables import Schema

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_PAIRS = 60  # of columns per table, at most
_NEAREST = 5  # synthetic units whose mean distance counts as well


@dataclass(frozen=True)
class Coded:
    """Rows of private tables as codes, with the unit of each as a row of the unit's table, or -1."""

    units: int
    tables: dict[str, tuple[EncodedTable, Ints]]

    @classmethod
    def of(cls, schema: Schema, rows: Mapping[str, pa.Table], source: Mapping[str, pa.Table]) -> Coded:
        """Encode ``rows`` by the bins of ``source``."""
        codes = encode_tables(schema, rows, source)
        count, found = rows[schema.unit].num_rows, {}
        for table in schema.private_tables:
            path = schema.ownership_path(table.name)
            found[table.name] = codes[table.name], chain_links(path, rows) if path else np.arange(count)
        return cls(count, found)

    def sizes(self, name: str) -> Ints:
        """Return how many rows of a table each unit has; shape (units,)."""
        of = self.tables[name][1]
        return np.bincount(of[of >= 0], minlength=self.units).astype(np.int64)

    def sums(self, name: str, values: Floats) -> Floats:
        """Return sums over the rows of each unit; ``values`` are of shape (rows, features)."""
        of, found = self.tables[name][1], np.zeros((self.units, values.shape[1]))
        np.add.at(found, of[of >= 0], values[of >= 0])
        return found

    def embeddings(self, typical: Mapping[str, float]) -> Floats:
        """Return the features of each unit's rows, summed by table, as shares of a ``typical`` number of rows."""
        parts = []
        for name, (table, _) in self.tables.items():
            spread = [np.ones((len(table.codes), 1))]  # the number of rows
            for place, size in enumerate(table.sizes):
                codes = table.codes[:, place]
                if table.ordered[place]:
                    spread.append(codes[:, None] / max(size - 1, 1))
                else:
                    spread.append(np.eye(size)[codes] / np.sqrt(2))  # two values differ by 1
            parts.append(self.sums(name, np.concatenate(spread, axis=1)) / max(typical[name], 1.0))
        return np.concatenate(parts, axis=1, dtype=np.float64)


class Observer:
    """What is known before a bundle is seen; `look` returns the features of each target.

    Args:
        schema: Of the database.
        source: Rows of targets, reference and other units.
        targets: Units that are attacked, as rows of the unit's table.
        known: Units of the reference.
    """

    def __init__(self, schema: Schema, source: Mapping[str, pa.Table], targets: Ints, known: Ints) -> None:
        self._schema, self._source, self._targets, self._known = schema, source, targets, known
        self._coded = Coded.of(schema, source, source)
        self._typical = {name: float(self._coded.sizes(name)[known].mean()) for name in self._coded.tables}
        self._embedded = self._coded.embeddings(self._typical)[targets]
        self.rows = sum(self._coded.sizes(name) for name in self._coded.tables)[targets]
        self._cells = {name: _Cells(table, np.isin(of, known)) for name, (table, of) in self._coded.tables.items()}
        below = [table.name for table in schema.private_tables if table.name != schema.unit]
        self.item_table = max(below, key=lambda name: len(self._coded.tables[name][1]), default=schema.unit)
        self.item = self._first_rows(self.item_table)
        """The row of each target that item-level attackers see, or -1."""

    def look(self, synthetic: Mapping[str, pa.Table]) -> tuple[Floats, Floats]:
        """Return features of the units, and of one row of each; shapes (targets, features)."""
        made = Coded.of(self._schema, synthetic, self._source)
        distances = _distances(self._embedded, made.embeddings(self._typical))
        near = np.partition(distances, _NEAREST, axis=1)[:, :_NEAREST]
        found, of_item = [-near.min(axis=1), -near.mean(axis=1)], np.zeros((len(self._targets), 0))
        for name, (table, _) in self._coded.tables.items():
            ratios = self._cells[name].ratios(made.tables[name][0])
            sizes = self._coded.sizes(name)
            means = self._coded.sums(name, ratios) / np.maximum(sizes, 1)[:, None]
            found += [*means[self._targets].T, np.full(len(self._targets), np.log1p(len(made.tables[name][1])))]
            if name == self.item_table != self._schema.unit:
                distance = nearest_distances(table, made.tables[name][0], np.maximum(self.item, 0))
                of_item = np.column_stack([-distance, ratios[self.item]])
            if name != self._schema.unit:
                most = int(max(sizes.max(), made.sizes(name).max()))
                shares = [_smoothed(np.bincount(s, minlength=most + 1)) for s in (made.sizes(name), sizes[self._known])]
                found.append(np.log(shares[0] / shares[1])[sizes[self._targets]])
        return np.column_stack(found), of_item

    def density(self, features: Floats) -> Floats:
        """Return the log ratios of all columns and pairs, summed over tables, from features of units."""
        place, total = 2, np.zeros(features.shape[:-1])
        for name, cells in self._cells.items():
            total += features[..., place : place + cells.columns + 1].sum(axis=-1)
            place += cells.columns + 3 + (name != self._schema.unit)
        return total

    def outlying(self) -> Floats:
        """Return minus the mean log share of the cells of each target's rows in the reference; shape (targets,)."""
        found = np.zeros(len(self._targets))
        for name, cells in self._cells.items():
            shares = self._coded.sums(name, cells.log_shares)
            found -= (shares[:, 0] / np.maximum(self._coded.sizes(name), 1))[self._targets]
        return found

    def _first_rows(self, name: str) -> Ints:
        of = self._coded.tables[name][1]
        units, rows = np.unique(of, return_index=True)
        first = np.full(self._coded.units + 1, -1)  # the last one for -1
        first[units] = rows
        return np.asarray(first[self._targets])


class _Cells:
    """The cells of each row of a table, in columns and pairs of columns, and their shares in the reference."""

    def __init__(self, table: EncodedTable, reference: NDArray[np.bool_]) -> None:
        self.columns, self._sizes = len(table.names), table.sizes
        self._subsets = [*((i,) for i in range(self.columns)), *column_subsets(self.columns, 2, _PAIRS).subsets]
        cells = self._of(table)
        self._cells = cells
        self._known = np.column_stack(
            [_log_shares(c[reference], c) for c in cells] or [np.zeros((len(table.codes), 0))]
        )
        pairs = self._known[:, self.columns :]
        self._rarest = pairs.argmin(axis=1) if pairs.shape[1] else None
        self.log_shares = self._known.sum(axis=1, keepdims=True)

    def ratios(self, synthetic: EncodedTable) -> Floats:
        """Return log ratios of shares per row: by column, summed over pairs, and of the rarest pair."""
        made = [_log_shares(m, c) for m, c in zip(self._of(synthetic), self._cells, strict=True)]
        ratios = np.column_stack(made or [self._known]) - self._known
        pairs = ratios[:, self.columns :]
        rarest = np.zeros(len(ratios)) if self._rarest is None else pairs[np.arange(len(pairs)), self._rarest]
        return np.column_stack([ratios[:, : self.columns], pairs.sum(axis=1), rarest])

    def _of(self, table: EncodedTable) -> list[Ints]:
        return [
            np.ravel_multi_index([table.codes[:, c] for c in columns], [self._sizes[c] for c in columns])
            for columns in self._subsets
        ]


def _log_shares(rows: Ints, cells: Ints) -> Floats:
    """Return the log share of ``rows`` in each of ``cells``, with half a row added to each."""
    counts = np.bincount(rows, minlength=int(cells.max(initial=0)) + 1)
    return np.log((counts[cells] + 0.5) / (len(rows) + 1.0))


def _smoothed(counts: Ints) -> Floats:
    return np.asarray((counts + 0.5) / (counts.sum() + 1.0))


def _distances(left: Floats, right: Floats) -> Floats:
    """Return Euclidean distances; shape (left, right)."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    return np.sqrt(np.maximum(squares, 0.0))
