"""Draw attributes of synthetic rows from the model, and redraw where they break a constraint.

Rows that break a check are redrawn as a whole (rejection sampling), so that rows follow the model given that the check
holds. Rows that repeat a unique value first get another value of the same code, then another code, and in the end a
value that is unused in combination with the other columns of the unique set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.differences import encoded, with_followers, written_values
from privbench_core.columns.discretizer import Discretizer, joined
from privbench_core.models.parent_choice import repeated
from privbench_core.models.registry import Model
from privbench_core.models.rows import Rows
from privbench_core.sampling.constraints import RowRule, made_dependent, repaired
from privbench_core.sampling.lags import DatedRows
from privbench_core.sampling.ranges import in_ranges, row_ranges
from privbench_core.sampling.row_groups import group_numbers
from privbench_core.sampling.vacancies import free_values
from privbench_core.sampling.within_bins import allocate_within_bins
from privbench_core.schema.constraints import Dependency
from privbench_core.schema.tables import Table

# Chosen by hand: few rows are left to repair after them.
_ROUNDS = 24  # of redrawing
_WITHIN_CODES = 6  # the first of them, in which repeated values keep their codes


@dataclass(frozen=True)
class RowLimits:
    """The constraints that can be checked once the attributes are drawn.

    Attributes:
        rules: Checks.
        unique: Unique sets of columns, each with at least one attribute.
        dependencies: Functional dependencies, attributes on attributes.
    """

    rules: Sequence[RowRule]
    unique: Sequence[tuple[str, ...]]
    dependencies: Sequence[Dependency]

    @classmethod
    def among(cls, table: Table, rules: Sequence[RowRule], fixed: frozenset[str]) -> RowLimits:
        """Return the constraints over the attributes of ``table`` and the columns of ``fixed``."""
        attributes = {column.name for column in table.attributes}
        known = attributes | fixed
        return cls(
            [rule for rule in rules if known.issuperset(rule.columns) and not attributes.isdisjoint(rule.columns)],
            [u for u in (table.primary_key, *table.unique) if known.issuperset(u) and not attributes.isdisjoint(u)],
            [d for d in table.dependencies if known.issuperset(d.determinant) and attributes.issuperset(d.dependent)],
        )


def draw_attributes(
    table: Table,
    rows: Rows,
    model: Model,
    discretizers: Mapping[str, Discretizer],
    limits: RowLimits,
    fixed: Mapping[str, pa.Array],
    rng: np.random.Generator,
    dated: Mapping[str, DatedRows],
) -> tuple[dict[str, Codes], dict[str, pa.Array]]:
    """Draw the codes of all columns of the model, and the values of those that are attributes.

    The caller drops rows that still break a limit.

    Args:
        table: Whose rows they are.
        rows: With their context drawn; not changed.
        model: Released.
        discretizers: Of the attributes.
        limits: Constraints to keep.
        fixed: Columns that are drawn already and stay.
        rng: Sampling only.
        dated: Columns that come after those of their owners, or after others of the row.
    """
    draft = _RowDraft(table, rows, model, discretizers, limits, fixed, rng, dated)
    for attempt in range(_ROUNDS):
        broken, again = draft.broken(), draft.repeated()
        if not broken.any() and not again.any():
            break
        if attempt < _WITHIN_CODES:
            draft.decode_again(again & ~broken)
            draft.draw_again(broken)
        else:
            draft.draw_again(broken | again)
        draft.depend()
    draft.free_values()
    draft.repair()
    return draft.codes, draft.values


class _RowDraft:
    """Attributes while they are drawn."""

    def __init__(
        self,
        table: Table,
        rows: Rows,
        model: Model,
        discretizers: Mapping[str, Discretizer],
        limits: RowLimits,
        fixed: Mapping[str, pa.Array],
        rng: np.random.Generator,
        dated: Mapping[str, DatedRows],
    ) -> None:
        self._table, self._rows, self._model, self._discretizers = table, rows, model, discretizers
        self._limits, self._fixed, self._rng, self._dated = limits, fixed, rng, dated
        self._bases = {name: fixed[name] for name in table.owner_bases}
        drawn = in_ranges(self._drawn_with_values, row_ranges(rows), rng)
        self.codes = {name: np.concatenate([codes[name] for codes, _ in drawn]) for name in drawn[0][0]}
        self.values = {name: joined([values[name] for _, values in drawn]) for name in discretizers}
        self._date(np.arange(rows.n))
        self.depend()

    def broken(self) -> NDArray[np.bool_]:
        """Return which rows break a check."""
        result = np.zeros(self._rows.n, dtype=bool)
        for rule in self._limits.rules:
            result |= rule.broken({**self._fixed, **self.values})
        return result

    def repeated(self) -> NDArray[np.bool_]:
        """Return which rows repeat a unique value."""
        columns = {**self._fixed, **self.values}
        result = np.zeros(self._rows.n, dtype=bool)
        for unique in self._limits.unique:
            result |= repeated(group_numbers([columns[name] for name in unique], self._rows.n))
        return result

    def decode_again(self, which: NDArray[np.bool_]) -> None:
        """Draw other values of the same codes, for the unique columns of some rows."""
        names = {name for unique in self._limits.unique for name in unique} & self.values.keys()
        self._put({name: self.codes[name][which] for name in sorted(names)}, which)

    def draw_again(self, which: NDArray[np.bool_]) -> None:
        """Draw other codes and values for some rows, given the same context."""
        codes = self._drawn(self._rows.take(np.flatnonzero(which)), self._rng)
        for name, drawn in codes.items():
            self.codes[name][which] = drawn
        self._put({name: codes[name] for name in self._discretizers}, which)

    def depend(self) -> None:
        """Enforce functional dependencies."""
        free = frozenset(self.values)
        self._replace(made_dependent(self._limits.dependencies, {**self._fixed, **self.values}, free))

    def free_values(self) -> None:
        """Give rows that still repeat a unique set of several columns an unused value of its last attribute.

        Redrawing would hardly ever find the unused ones (the last seasons of a player who has almost all of them).
        """
        free = self._undetermined()
        for unique in self._limits.unique:
            columns = {**self._fixed, **self.values}
            changeable = [name for name in unique if name in free]
            again = repeated(group_numbers([columns[name] for name in unique], self._rows.n))
            if len(unique) > 1 and changeable and again.any():
                name = changeable[-1]
                scope = group_numbers([columns[other] for other in unique if other != name], self._rows.n)
                self._replace({name: free_values(columns[name], scope, again, self._rng)})

    def repair(self) -> None:
        """Repair checks that redrawing left broken."""
        free = self._undetermined()
        for rule in self._limits.rules:
            columns = {**self._fixed, **self.values}
            broken = rule.broken(columns)
            if broken.any():
                self._replace(repaired(rule, columns, broken, free))

    def _undetermined(self) -> frozenset[str]:
        """Return the attributes in no functional dependency, which may change independently."""
        determined = {name for rule in self._limits.dependencies for name in (*rule.determinant, *rule.dependent)}
        return frozenset(self.values.keys() - determined)

    def _drawn_with_values(
        self, where: slice, rng: np.random.Generator
    ) -> tuple[dict[str, Codes], dict[str, pa.Array]]:
        codes = self._drawn(self._rows.take(where), rng)
        cells = allocate_within_bins(codes, self._discretizers, rng)
        drawn = {name: discretizer.values(cells[name], rng) for name, discretizer in self._discretizers.items()}
        return codes, written_values(self._table, drawn, {name: v[where] for name, v in self._bases.items()})

    def _drawn(self, part: Rows, rng: np.random.Generator) -> dict[str, Codes]:
        self._model.draw(part, rng)
        return {name: codes for name, codes in part.codes.items() if name not in self._rows.codes}

    def _put(self, codes: Mapping[str, Codes], which: NDArray[np.bool_]) -> None:
        index = np.flatnonzero(which)
        take = np.arange(self._rows.n)
        take[index] = self._rows.n + np.arange(len(index))
        drawn = {name: self._discretizers[name].decode(again, self._rng) for name, again in codes.items()}
        near = {column.name for pair in self._table.relatives for column in pair}
        known = {**self._bases, **self.values}
        before = {name: known[name].take(pa.array(index)) for name in sorted(near)}
        for name, values in written_values(self._table, drawn, before).items():
            self.values[name] = pa.concat_arrays([self.values[name], values]).take(pa.array(take))
        self._date(index)

    def _date(self, index: NDArray[np.int64]) -> None:
        """Let the dates of some rows come after those of their owners, and others of their own, as was measured."""
        made: dict[str, pa.Array] = {}
        take = np.arange(self._rows.n)
        take[index] = self._rows.n + np.arange(len(index))
        for name, rows in self._dated.items():
            before, here = self.values[name].take(pa.array(index)), self.codes[name][index]
            self.codes[name][index], after = rows.drawn(here, before, index, self.values | made, self._rng)
            made[name] = pa.concat_arrays([self.values[name], after]).take(pa.array(take))
        self.values |= with_followers(self._table, made, self.values)

    def _replace(self, changed: Mapping[str, pa.Array]) -> None:
        """Replace values, and encode them again."""
        made = with_followers(self._table, changed, self.values)
        other = {name: values for name, values in made.items() if not values.equals(self.values[name])}
        self.values |= other
        moved = other.keys() | {column.name for column, base in self._table.relatives if base.name in other}
        of_moved = {name: self._discretizers[name] for name in moved}
        self.codes |= encoded(self._table, pa.table({**self._bases, **self.values}), of_moved)
