"""Released sum-product networks: the tree of PrivBench section 3.1, with leaves over one or several columns.

A `Sum` node is a mixture over disjoint sets of rows, a `Product` node joins independent sets of columns, a `Leaf`
holds the marginal of one column (the paper's leaf) or the marginals of several columns and the joints of those pairs
that depend on each other.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privbench_core.arrays import Array
from privbench_core.estimators.fitting import fit_margins, mutual_information
from privbench_core.guards import FEW_ROWS, NEGLIGIBLE
from privbench_core.marginals.record_swapping import TargetTable, swap
from privbench_core.marginals.sampler import PairMarginal, Rows, draw_column, draw_grouped
from privbench_core.privacy.split_rules import ByValue, Rule
from privbench_core.stored import Storable


@dataclass(frozen=True)
class Leaf(Storable):
    """Marginals of some columns, and joints of some pairs of them.

    Attributes:
        total: Released number of rows (weighted).
        marginals: Column -> probabilities, shape (size,).
        pairs: (a, b) -> joint probabilities, shape (size a, size b).
        triples: (a, b, c) -> joint probabilities that pairs do not explain, shape (size a, size b, size c).
    """

    total: float
    marginals: Mapping[str, Array]
    pairs: Mapping[tuple[str, str], Array] = field(default_factory=dict)
    triples: Mapping[tuple[str, str, str], Array] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns it models."""
        return tuple(self.marginals)

    def marginal(self, column: str) -> Array:
        """Return the probabilities of a column's codes."""
        return self.marginals[column]

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """Draw all columns, each given those before it and the context, most informative first; then swap values."""
        waiting = list(self.marginals)
        strength = {pair: mutual_information(table) for pair, table in self.pairs.items()}
        linked = {(c, t): mutual_information(table) for (c, t), table in rows.links.items() if t in self.marginals}

        def pull(column: str, over: Container[str]) -> float:
            inside = sum(v for (a, b), v in strength.items() if column in {a, b} and (b if a == column else a) in over)
            return inside + sum(v for (c, t), v in linked.items() if t == column and c in over)

        while waiting:
            to_known = {column: pull(column, rows.codes) for column in waiting}
            if max(to_known.values()) <= 0:
                to_known = {column: pull(column, self.marginals) for column in waiting}
            column = max(waiting, key=to_known.__getitem__)
            waiting.remove(column)
            marginal = self.marginals[column]
            with_pairs = self._given_pairs(column, rows)
            pair_tables = [*self._pair_tables(column, rows), *with_pairs]
            rows.add(column, len(marginal), draw_column(rows, marginal, pair_tables, rng))
            for table in with_pairs:
                del rows.codes[table.column], rows.sizes[table.column]
        context = {(c, t): table for (c, t), table in rows.links.items() if t in self.marginals and c in rows.codes}
        tables = [*context.items(), *self.pairs.items(), *self.triples.items()]
        swap_to_fit(rows, self.columns, tables, rng, [pair for pair, joint in self.pairs.items() if binds(joint)])

    def _given_pairs(self, column: str, rows: Rows) -> list[PairMarginal]:
        """Return joints of ``column`` and two drawn columns as one, which is added to ``rows``."""
        found = []
        for triple, joint in self.triples.items():
            a, b = (name for name in triple if name != column) if column in triple else (column, column)
            if a in rows.codes and b in rows.codes:
                both, size = f"{a} and {b}", rows.sizes[a] * rows.sizes[b]
                rows.add(both, size, rows.codes[a].astype(np.int64) * rows.sizes[b] + rows.codes[b])
                found.append(PairMarginal(both, np.moveaxis(joint, triple.index(column), 0).reshape(-1, size)))
        return found

    def _pair_tables(self, column: str, rows: Rows) -> list[PairMarginal]:
        found = [PairMarginal(c, table.T) for (c, t), table in rows.links.items() if t == column and c in rows.codes]
        found += [PairMarginal(b, table) for (a, b), table in self.pairs.items() if a == column and b in rows.codes]
        return found + [
            PairMarginal(a, table.T) for (a, b), table in self.pairs.items() if b == column and a in rows.codes
        ]


@dataclass(frozen=True)
class Product(Storable):
    """Independent sets of columns."""

    parts: tuple[Node, ...]

    @property
    def total(self) -> float:
        """Return the released number of rows: the parts' average."""
        return float(np.mean([part.total for part in self.parts]))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns it models."""
        return tuple(name for part in self.parts for name in part.columns)

    def marginal(self, column: str) -> Array:
        """Return the probabilities of a column's codes."""
        return next(part.marginal(column) for part in self.parts if column in part.columns)

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """Draw each part; the parts share only the context."""
        for part in self.parts:
            part.draw(rows, rng)


@dataclass(frozen=True)
class Sum(Storable):
    """A mixture: a released rule assigns rows to its parts."""

    rule: Rule
    parts: tuple[Node, ...]

    @property
    def total(self) -> float:
        """Return the released number of rows."""
        return sum(part.total for part in self.parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns it models."""
        return self.parts[0].columns

    def marginal(self, column: str) -> Array:
        """Return the probabilities of a column's codes."""
        counts = self._counts(column)
        return np.asarray(counts.sum(axis=1) / counts.sum(), dtype=float)

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """Assign each row to a part (given the context, if link tables relate them), and draw the parts."""
        weights = np.maximum([part.total for part in self.parts], NEGLIGIBLE)
        pair_tables = self._part_tables(rows)
        if pair_tables:
            assigned = draw_column(rows, weights / weights.sum(), pair_tables, rng)
        else:
            assigned = draw_grouped(weights[None, :], np.zeros(rows.n, dtype=np.int64), rng)
        memberships = [np.flatnonzero(assigned == index) for index in range(len(self.parts))]
        insides = [rows.take(members) for members in memberships]  # all before any column is put back
        for part, members, inside in zip(self.parts, memberships, insides, strict=True):
            part.draw(inside, rng)
            rows.put(members, inside)

    def _part_tables(self, rows: Rows) -> list[PairMarginal]:
        """Return joints of parts and context columns, implied by the most informative column.

        A column's joint with the context gives the probability of each code, and a code that of each part. Without
        these joints, rows below the root would get random parts, which would override the context.
        """
        best: dict[str, tuple[float, Array]] = {}
        for (context, column), joint in rows.links.items():
            if context in rows.codes and column in self.columns:
                counts = self._counts(column)
                # The joint covers rows outside of these parts too: relate counts to its own marginal.
                inside = counts / np.maximum(joint.sum(axis=0), NEGLIGIBLE)[:, None]
                regions = joint @ (inside / counts.sum())
                known = mutual_information(regions)
                if context not in best or known > best[context][0]:
                    best[context] = known, regions
        return [PairMarginal(context, regions.T) for context, (_, regions) in best.items()]

    def _counts(self, column: str) -> Array:
        """Return released counts of a column's codes in each part, shape (codes, parts), all positive."""
        return np.stack([part.total * part.marginal(column) for part in self.parts], axis=1) + NEGLIGIBLE


Node = Leaf | Product | Sum


def count_nodes(node: Node) -> dict[str, int]:
    """Count sum nodes, product nodes, leaves and measured pairs."""
    own = {"sum": 0, "product": 0, "leaf": 0, "pairs": 0}
    if isinstance(node, Leaf):
        own["leaf"], own["pairs"] = 1, len(node.pairs)
        return own
    own["sum" if isinstance(node, Sum) else "product"] = 1
    for part in node.parts:
        for name, number in count_nodes(part).items():
            own[name] += number
    return own


def node_to_dict(node: Node) -> dict[str, Any]:
    """Return the stored form of a network."""
    return node.to_dict()


def binds(joint: Array) -> bool:
    """Return whether knowing one of two columns halves, at least, how often the likeliest code of the other is wrong.

    That is λ ≥ 1/2 of Goodman and Kruskal (1954), in either direction. Noise of many other tables would outweigh what
    such a table says in cells that are empty.
    """
    errors = joint.sum() - joint.max(axis=1).sum(), joint.sum() - joint.max(axis=0).sum()
    alone = joint.sum() - joint.sum(axis=0).max(), joint.sum() - joint.sum(axis=1).max()
    return any(given <= without / 2 for given, without in zip(errors, alone, strict=True))


def swap_to_fit(
    rows: Rows,
    columns: Sequence[str],
    tables: Collection[tuple[tuple[str, ...], Array]],
    rng: np.random.Generator,
    kept: Collection[tuple[str, str]] = (),
) -> None:
    """Swap values of ``columns`` between rows towards released joints in any scale, in place; others are context.

    Tables are first fitted to the margins of the rows: swaps cannot change these, and the rows of one part of a
    mixture, or of a context, may have other margins than the whole. The tables of ``kept`` pairs stay as they are.
    """
    if rows.n < FEW_ROWS or not tables:
        return
    weights = None if rows.weights is None else rows.weights / rows.weights.mean()
    counts = {
        name: np.bincount(rows.codes[name], weights, rows.sizes[name]).astype(float)
        for name in {name for table, _ in tables for name in table}
    }
    targets = [
        TargetTable(table, fit_margins(joint, [((axis,), counts[name]) for axis, name in enumerate(table)]))
        for table, joint in tables
    ]
    swap(rows.codes, targets, [(name,) for name in columns], rng, weights=weights, kept=kept)


def split_by_attribute(
    ordered: Collection[str], scores: Mapping[tuple[str, str], float], clean: Mapping[str, Array]
) -> ByValue | None:
    """Return the rule that halves rows by the attribute with the strongest dependence on others, by released scores.

    Args:
        ordered: Columns with ordered codes, which are cut at their median; lists of values are halved by count.
        scores: Of the dependence of pairs of columns.
        clean: One-way counts.

    Returns:
        None if no attribute can be split in two.
    """
    strength = {name: sum(max(v, 0.0) for pair, v in scores.items() if name in pair) for name in clean}
    for name in sorted(clean, key=lambda n: -strength[n]):
        part_of = _halves(clean[name], ordered=name in ordered)
        if len(set(part_of)) == 2:  # noqa: PLR2004 - two parts
            return ByValue(name, part_of)
    return None


def _halves(counts: Array, *, ordered: bool) -> tuple[int, ...]:
    if ordered:
        cut = min(int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) + 1, len(counts) - 1)
        return tuple(int(code >= cut) for code in range(len(counts)))
    part_of = np.zeros(len(counts), dtype=int)
    totals = [0.0, 0.0]
    for code in np.argsort(-counts):
        side = int(totals[1] < totals[0])
        part_of[code] = side
        totals[side] += counts[code]
    return tuple(part_of.tolist())
