"""Draw attributes of synthetic rows from the model, and redraw where they break a constraint.

Rows that break a check are redrawn as a whole (rejection sampling), so that rows follow the model given that the check
holds; the few that still break it take the columns that it names from rows that keep it. Rows that repeat a unique
value first get another value of the same code, then another code, and in the end a value that is unused in combination
with the other columns of the unique set.

Within-bin allocation gives each drawn code a cell, balanced against the cells of all other columns. A code (merged bin)
may cover many cells: rare values of a list, or part of a range. Each column's rows get their cells by systematic
sampling, so pairs of cells of two columns occur with the frequencies of independent draws. Here rows with the same code
swap cells (`marginals.record_swapping`) until pairs of cells occur as often as expected, rounded. Along a range, the
expected dependence is interpolated: a cell between the middles of two codes behaves like a mixture of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.arrays import Array, Mask
from privbench_core.columns.codec import Codes
from privbench_core.columns.differences import encoded, modelled_values, with_followers, written_values
from privbench_core.columns.discretizer import Discretizer, joined
from privbench_core.columns.person_names import agreeing_names, gendered_names
from privbench_core.estimators.fitting import fit_margins
from privbench_core.guards import FEW_ROWS, MAX_CELLS, NEGLIGIBLE, REDRAWING_ROUNDS, SETTLING_ROUNDS
from privbench_core.links.parent_choice import repeated
from privbench_core.marginals.record_swapping import TargetTable, swap
from privbench_core.marginals.sampler import Model, Rows
from privbench_core.sampling.constraints import RowRule, made_dependent, made_to_satisfy
from privbench_core.sampling.keys import group_numbers
from privbench_core.sampling.lags import DatedRows
from privbench_core.sampling.ranges import in_ranges, row_ranges
from privbench_core.schema.documents import documents_to_learn
from privbench_core.schema.row_constraints import RowConstraint, ValueConstraint
from privbench_core.schema.tables import Table


class RowDraft:
    """Attributes of rows while they are drawn.

    Attributes:
        codes: Of all columns of the model.
        values: Of those that are attributes.
        dependencies: The functional dependencies of which this holds, attributes on attributes.
    """

    def __init__(
        self,
        table: Table,
        rows: Rows,
        model: Model,
        discretizers: Mapping[str, Discretizer],
        checks: Sequence[RowRule],
        fixed: Mapping[str, pa.Array],
        rng: np.random.Generator,
        dated: Mapping[str, DatedRows],
        constraints: Sequence[RowConstraint] = (),
    ) -> None:
        """Draw all rows once; ``rows`` have their context, and ``fixed`` columns are drawn already and stay."""
        self.table, self.rows, self.model, self.discretizers = table, rows, model, discretizers
        self.fixed, self.rng, self.dated, self.constraints = fixed, rng, dated, constraints
        apart = documents_to_learn(table.attributes)  # their leaves are drawn
        attributes = {column.name for column in table.attributes if column not in apart}
        known = attributes | fixed.keys()

        def judged(columns: Sequence[str]) -> bool:
            return known.issuperset(columns) and not attributes.isdisjoint(columns)

        self.rules = [rule for rule in checks if judged(rule.columns)]
        self.unique = [columns for columns in (table.primary_key, *table.unique) if judged(columns)]
        self.dependencies = [
            d for d in table.dependencies if known.issuperset(d.determinant) and attributes.issuperset(d.dependent)
        ]
        determined = {name for rule in self.dependencies for name in (*rule.determinant, *rule.dependent)}
        determined |= {each.column for each in constraints if isinstance(each, ValueConstraint)}
        self._free = discretizers.keys() - determined  # attributes that may change independently
        self._bases = {name: fixed[name] for name in table.owner_bases}
        drawn = in_ranges(self._drawn_with_values, row_ranges(rows), rng)
        self.codes = {name: np.concatenate([codes[name] for codes, _ in drawn]) for name in drawn[0][0]}
        self.values = {name: joined([values[name] for _, values in drawn]) for name in discretizers}
        self._date(np.arange(rows.n))
        self._depend()

    def settle(self) -> None:
        """Redraw rows that break a constraint; the caller drops those that still do."""
        unique = sorted({name for columns in self.unique for name in columns} & self.values.keys())
        for attempt in range(3 * REDRAWING_ROUNDS):
            broken, again = self._broken(), self._repeated()
            if not broken.any() and not again.any():
                break
            if attempt < REDRAWING_ROUNDS:  # other values of the same codes
                same = again & ~broken
                self._put({name: self.codes[name][same] for name in unique}, same)
            else:
                broken |= again
            self._draw_again(broken)
            self._depend()
        self._free_values()
        self._repair()
        self._depend()
        kept = {name for names in (*self.unique, *(rule.columns for rule in self.rules)) for name in names}
        self.replace(gendered_names(self.table, self._columns, kept | self.fixed.keys(), self.rng))
        self.replace(agreeing_names(self.table, self.values, kept))

    @property
    def _columns(self) -> dict[str, pa.Array]:
        return {**self.fixed, **self.values}

    def _broken(self) -> Mask:
        """Return which rows break a check."""
        result = np.zeros(self.rows.n, dtype=bool)
        for rule in self.rules:
            result |= rule.broken(self._columns)
        return result

    def _repeated(self) -> Mask:
        """Return which rows repeat a unique value."""
        columns, result = self._columns, np.zeros(self.rows.n, dtype=bool)
        for unique in self.unique:
            result |= repeated(group_numbers([columns[name] for name in unique], self.rows.n))
        return result

    def _draw_again(self, which: Mask) -> None:
        """Draw other codes and values for some rows, given the same context."""
        codes = self._drawn(self.rows.take(np.flatnonzero(which)), self.rng)
        for name, drawn in codes.items():
            self.codes[name][which] = drawn
        self._put({name: codes[name] for name in self.discretizers}, which)

    def _depend(self) -> None:
        """Enforce constraints between the columns of a row, and functional dependencies."""
        made = made_to_satisfy(self.table, self.constraints, self._columns, self.discretizers, self.rng)
        self.replace(made)
        self.replace(made_dependent(self.dependencies, self._columns, frozenset(self.values)))

    def _free_values(self) -> None:
        """Give rows that still repeat a unique set of several columns an unused value of its last attribute.

        Redrawing would hardly ever find the unused ones (the last seasons of a player who has almost all of them).
        """
        for unique in self.unique:
            columns = self._columns
            changeable = [name for name in unique if name in self._free]
            again = repeated(group_numbers([columns[name] for name in unique], self.rows.n))
            if len(unique) > 1 and changeable and again.any():
                name = changeable[-1]
                scope = group_numbers([columns[other] for other in unique if other != name], self.rows.n)
                self.replace({name: free_values(columns[name], scope, again, self.rng)})

    def _repair(self) -> None:
        """Let rows that still break a check have the columns that it names from random rows that keep it."""
        for rule in self.rules:
            names = [name for name in rule.columns if name in self._free]
            for _ in range(REDRAWING_ROUNDS if names else 0):  # columns that stay may differ from the other row's
                broken = rule.broken(self._columns)
                kept = np.flatnonzero(~broken)
                if not len(kept) or not broken.any():
                    break
                take = np.arange(self.rows.n)
                take[broken] = self.rng.choice(kept, int(broken.sum()))
                self.replace({name: self.values[name].take(pa.array(take)) for name in names})

    def _drawn_with_values(
        self, where: slice, rng: np.random.Generator
    ) -> tuple[dict[str, Codes], dict[str, pa.Array]]:
        codes = self._drawn(self.rows.take(where), rng)
        cells = allocate_within_bins(codes, self.discretizers, rng)
        drawn = {name: discretizer.values(cells[name], rng) for name, discretizer in self.discretizers.items()}
        return codes, written_values(self.table, drawn, {name: v[where] for name, v in self._bases.items()})

    def _drawn(self, part: Rows, rng: np.random.Generator) -> dict[str, Codes]:
        self.model.draw(part, rng)
        return {name: codes for name, codes in part.codes.items() if name not in self.rows.codes}

    def _put(self, codes: Mapping[str, Codes], which: Mask) -> None:
        """Draw values of codes for some rows."""
        index = np.flatnonzero(which)
        drawn = {name: self.discretizers[name].decode(again, self.rng) for name, again in codes.items()}
        near = {column.name for pair in self.table.relatives for column in pair}
        known = {**self._bases, **self.values}
        before = {name: known[name].take(pa.array(index)) for name in sorted(near)}
        for name, values in written_values(self.table, drawn, before).items():
            self.values[name] = pa.concat_arrays([self.values[name], values]).take(self._renewed(index))
        self._date(index)

    def _renewed(self, index: NDArray[np.int64]) -> pa.Array:
        """Return where the values of all rows are, once new ones of some rows follow the old ones."""
        take = np.arange(self.rows.n)
        take[index] = self.rows.n + np.arange(len(index))
        return pa.array(take)

    def _date(self, index: NDArray[np.int64]) -> None:
        """Let the dates of some rows come after those of their owners, and others of their own, as was measured."""
        made: dict[str, pa.Array] = {}
        some, take = pa.array(index), self._renewed(index)
        for name, rows in self.dated.items():
            others, near = self.values | made, [name] if rows.relative is None else [name, rows.relative]
            before = modelled_values(self.table, pa.table({of: self.values[of].take(some) for of in near}), name)
            self.codes[name][index], after = rows.drawn(
                self.codes[name][index], before.combine_chunks(), index, others, self.rng
            )
            bases = {of: others[of].take(some) for of in near[1:]}
            after = written_values(self.table, {name: after}, bases)[name]
            changed = {name: pa.concat_arrays([self.values[name], after]).take(take)}
            made |= with_followers(self.table, changed, self.values)
        self.values |= made

    def replace(self, changed: Mapping[str, pa.Array]) -> None:
        """Replace values, and encode them again."""
        made = with_followers(self.table, changed, self.values)
        other = {name: values for name, values in made.items() if not values.equals(self.values[name])}
        self.values |= other
        moved = other.keys() | {column.name for column, base in self.table.relatives if base.name in other}
        of_moved = {name: self.discretizers[name] for name in moved}
        self.codes |= encoded(self.table, pa.table({**self._bases, **self.values}), of_moved)


def free_values(values: pa.Array, scope: NDArray[np.int64], again: Mask, rng: np.random.Generator) -> pa.Array:
    """Return the column with values in the rows of ``again`` that no other row of the same scope has.

    They are drawn without replacement from the values of the column in other scopes, by frequency. A row keeps its
    value if none is left.

    Args:
        values: The column, without NULL where ``again``; shape (n,).
        scope: Number of the combination of the other columns of the unique set, shape (n,).
        again: The rows that repeat an earlier one, shape (n,).
        rng: Sampling only.
    """
    encoded = values.dictionary_encode()
    size = len(encoded.dictionary)
    codes = encoded.indices.fill_null(size).to_numpy(zero_copy_only=False).astype(np.int64)
    likely = np.log(np.bincount(codes, minlength=size + 1)[:size])
    crowded, place = np.unique(scope[again], return_inverse=True)
    rows = np.flatnonzero(again)
    inside = np.flatnonzero(np.isin(scope, crowded) & (codes < size))
    where = np.searchsorted(crowded, scope[inside])
    step = max(1, MAX_CELLS // max(size, 1))
    for start in range(0, len(crowded), step):
        here = (where >= start) & (where < start + step)
        wanting = np.flatnonzero((place >= start) & (place < start + step))
        keys = likely + rng.gumbel(size=(min(step, len(crowded) - start), size))  # Gumbel-max: the largest come first
        keys[where[here] - start, codes[inside[here]]] = -np.inf
        order = np.argsort(-keys, axis=1)
        wanting = wanting[np.argsort(place[wanting], kind="stable")]
        group = place[wanting] - start
        first = np.searchsorted(group, group)
        rank = np.arange(len(wanting)) - first
        found = rank < size
        chosen = order[group[found], rank[found]]
        vacant = keys[group[found], chosen] > -np.inf
        codes[rows[wanting[found][vacant]]] = chosen[vacant]
    return encoded.dictionary.take(pa.array(codes, mask=codes == size))


def allocate_within_bins(
    codes: Mapping[str, Codes], discretizers: Mapping[str, Discretizer], rng: np.random.Generator
) -> dict[str, Codes]:
    """Draw a cell for every code of every column, as `Discretizer.cells`, balanced against the other columns."""
    cells = {name: discretizer.cells(codes[name], rng) for name, discretizer in discretizers.items()}
    merged = {name for name, coder in discretizers.items() if np.count_nonzero(coder.shares[1]) > coder.size}
    if not merged or len(next(iter(codes.values()))) < FEW_ROWS:
        return cells
    columns = {name: _Column.of(codes[name], discretizer) for name, discretizer in discretizers.items()}
    pairs = [pair for pair in combinations(discretizers, 2) if not merged.isdisjoint(pair)]
    pairs.sort(key=lambda pair: len(columns[pair[0]].rows) * len(columns[pair[1]].rows))
    sizes = np.cumsum([len(columns[a].rows) * len(columns[b].rows) for a, b in pairs])
    kept = pairs[: int(np.searchsorted(sizes, MAX_CELLS, side="right"))]  # the smallest
    targets = [TargetTable((a, b), _expected(columns[a], columns[b])) for a, b in kept]
    swap(cells, targets, [(name,) for name in discretizers if name in merged], rng, within=codes)
    return cells


@dataclass(frozen=True)
class _Column:
    """A column's codes and its cells."""

    codes: Codes
    rows: Array  # expected, of each cell, shape (cells,)
    members: Array  # 1 where a cell belongs to a code, shape (codes, cells)
    mixture: Array  # weights of the codes that a cell is interpolated from, shape (cells, codes)

    @classmethod
    def of(cls, codes: Codes, discretizer: Discretizer) -> _Column:
        """Interpolate a cell of a range between the two codes whose middles enclose it; others equal their code."""
        code_of, shares = discretizer.shares
        position = np.arange(len(code_of))
        members = np.zeros((discretizer.size, len(code_of)))
        members[code_of, position] = 1.0
        mixture = members.T.copy()
        ordered = 0 if discretizer.binning is None else discretizer.ordered
        if ordered > 1:
            middles = (members @ (shares * position))[:ordered]  # shares of a code add up to 1
            inside = np.flatnonzero(code_of < ordered)
            upper = np.clip(np.searchsorted(middles, inside), 1, ordered - 1)
            weight = np.clip((inside - middles[upper - 1]) / (middles[upper] - middles[upper - 1]), 0.0, 1.0)
            mixture[inside] = 0.0
            mixture[inside, upper] = weight
            mixture[inside, upper - 1] = 1 - weight
        rows = np.bincount(codes, minlength=discretizer.size)[code_of] * shares
        return cls(codes, rows, members, mixture)


def _expected(first: _Column, second: _Column) -> Array:
    """Return the expected rows of pairs of cells, given the rows of the pairs of codes and of single cells."""
    size = len(second.members)
    both = np.bincount(first.codes.astype(np.int64) * size + second.codes, minlength=len(first.members) * size)
    drawn = both.reshape(-1, size).astype(np.float64)
    margins = np.maximum(drawn.sum(axis=1, keepdims=True), 1) * np.maximum(drawn.sum(axis=0), 1)
    counts = (first.mixture @ (drawn / margins) @ second.mixture.T) * np.outer(first.rows, second.rows)
    for _ in range(SETTLING_ROUNDS):
        codes = first.members @ counts @ second.members.T
        counts *= first.members.T @ (drawn / np.maximum(codes, NEGLIGIBLE)) @ second.members
        counts = fit_margins(counts, [((0,), first.rows), ((1,), second.rows)], 1)
    return np.asarray(counts)
