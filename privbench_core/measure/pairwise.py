"""Fitting a leaf over several columns: which pairs depend on each other, measured where it pays.

Three looks at the rows: dependence scores of all pairs, the one-way marginals again, and the joints of the chosen
pairs; public arithmetic on released numbers says how the price is shared between the last two.

The score of a pair is its R-score, half the L1 distance between its exact counts and the product of the *released*
one-way marginals (PrivMRF; PrivPetal section 5), whose sensitivity is half the view's stability, whatever n. Pairs,
and how finely each is measured, are chosen to maximise the expected reduction of L1 error: a pair left out costs its
score, a pair measured costs the noise on its cells and what merged codes do not show (`candidates`, `coarsenings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.candidates import Candidates, PairSelection, PairTable
from privbench_core.estimate.joints import NoisyTable, estimated_joints
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.guards import GRID_STEPS, MAX_PAIRS
from privbench_core.measure.one_way import Marginals, MarginalsOfView, remeasure
from privbench_core.measure.scores import clear_scores, has_power, pair_scores
from privbench_core.measure.signs import measure_signs
from privbench_core.measure.triples import candidate_triples, measure_triples
from privbench_core.models.measured import MeasuredLeaf, with_marginals
from privbench_core.models.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price, zero
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal
from privbench_core.schema.identity import Identity
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
Pair = tuple[str, str]


@dataclass(frozen=True)
class PairwiseFit:
    """How a pairwise leaf spends its price; public constants.

    Attributes:
        max_pairs: Cap on joints per leaf.
    """

    max_pairs: int = MAX_PAIRS

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "max_pairs": self.max_pairs,
        }

    def fit(self, curator: Curator, one_way: OneWay, price: Price, ordered: Mapping[str, int]) -> MeasuredLeaf:
        """A leaf over the columns of ``one_way``, for at most ``price``; see `find`.

        Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4 and 7.
        """
        found = self.find(curator, MarginalsOfView(curator, one_way), price, ordered)
        return MeasuredLeaf(remeasure(curator, one_way, found)) if isinstance(found, Price) else found

    def find(
        self,
        curator: Curator,
        marginals: Marginals,
        price: Price,
        ordered: Mapping[str, int],
        by_lags: Mapping[Pair, Array] = MappingProxyType({}),
    ) -> MeasuredLeaf | Price:
        """A leaf with joints for at most ``price``, or what is left of it if noise would hide every joint.

        What the scores leave of the price goes partly to joints and partly to the one-way marginals again, in the
        proportion that promises the smallest total error over all pairs.

        Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4 and 7.

        Args:
            curator: Of a view with these columns.
            marginals: Of the columns, as far as they are known.
            price: Of everything here.
            ordered: Column -> how many of its leading codes are intervals, in order; columns it lacks are lists.
            by_lags: Counts of pairs of dates that follow from how far they are apart, of any total.
        """
        one_way = marginals.counted
        triples = candidate_triples(curator, one_way.clean(), one_way.total, price)
        if not triples:
            return self._find_pairs(curator, marginals, price, ordered, by_lags)
        found = self._find_pairs(curator, marginals, price.share(1 - TUNING.triple_share), ordered, by_lags)
        counted = MeasuredLeaf(marginals.counted)
        plain = counted if isinstance(found, Price) else replace(found, one_way=counted.one_way, counted=None)
        leaf, left = measure_triples(curator, plain, triples, price.share(TUNING.triple_share))
        left = left + found if isinstance(found, Price) else left
        if isinstance(found, Price) and not leaf.triples:
            return left
        rows = marginals.rows_counted() if isinstance(found, Price) else found.counted
        return replace(leaf, one_way=marginals.improve(left), counted=rows)

    def _find_pairs(
        self,
        curator: Curator,
        marginals: Marginals,
        price: Price,
        ordered: Mapping[str, int],
        by_lags: Mapping[Pair, Array],
    ) -> MeasuredLeaf | Price:
        """`find` without triples."""
        one_way = marginals.counted
        clean = one_way.clean()
        signs, price = measure_signs(curator, clean, ordered, price)
        known = signs.joints(clean) if signs else {}
        known |= {pair: with_marginals(pair, joint, clean) for pair, joint in by_lags.items()}
        pairs = _informative(clean, combinations(clean, 2))
        chosen: list[PairTable] = []
        share = 0.0
        if has_power(curator, len(pairs), one_way.total, price):
            scores = clear_scores(curator, one_way, pairs, price.share(TUNING.score_share), known)
            price = price.share(1 - TUNING.score_share)
            candidates = Candidates.of(pairs, scores, clean, ordered)
            noise = [_clipping(curator, marginals, pair, price)[0] for pair in candidates.pairs]
            cells = candidates.cells * np.array(noise)[:, None]

            def selection(share: float) -> PairSelection:
                return self.choose(curator, candidates.useful, cells, price.share(share))

            def promise(share: float) -> float:
                """Expected L1 error over all pairs if ``share`` of what is left goes to joints."""
                gain = selection(share).gain if share > 0 else 0.0
                return ABSOLUTE * marginals.noise(price.share(1 - share)) * (len(clean) - 1) - gain

            share = min(np.linspace(0, 1, GRID_STEPS).tolist(), key=promise)
            chosen = selection(share).tables(candidates) if share > 0 else []
        if not chosen and not known:
            return price
        share = share if chosen else 0.0
        better = marginals.improve(price.share(1 - share))
        tables, gain = self.measure(curator, chosen, price.share(share), marginals)
        return MeasuredLeaf(better, tables, signs, counted=marginals.rows_counted(gain), lags=by_lags)

    def fit_pairs(
        self,
        curator: Curator,
        clean: Mapping[str, Array],
        pairs: Sequence[Pair],
        price: Price,
        ordered: Mapping[str, int],
        known: Mapping[Pair, Array] | None = None,
    ) -> tuple[dict[Pair, Array], Price]:
        """Joint probabilities of the pairs that the budget supports, and what is left of the price if it supports none.

        Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4 and 7.

        Args:
            curator: Of a view with all columns of the pairs.
            clean: Released counts of each column, all with the same total.
            pairs: Pairs of columns.
            price: Of scores and joints together.
            ordered: As in `find`.
            known: Counts of pairs that follow from something else: a pair is measured where it is far from these.
        """
        pairs, total = _informative(clean, pairs), _total(clean)
        shares = {pair: joint / total for pair, joint in (known or {}).items()}
        if not has_power(curator, len(pairs), total, price):
            return shares, price
        scores = pair_scores(curator, clean, pairs, price.share(TUNING.score_share), known)
        rest = price.share(1 - TUNING.score_share)
        candidates = Candidates.of(pairs, scores, clean, ordered)
        tables = self.choose(curator, candidates.useful, candidates.cells, rest).tables(candidates)
        if not tables:
            return shares, rest
        return self.joints(curator, tables, clean, rest, known), zero(rest.measure)

    def choose(self, curator: Curator, useful: Array, cells: Array, price: Price) -> PairSelection:
        """The largest gain in L1 error that measuring some candidates for ``price`` promises, and how.

        Args:
            curator: Says how large noise is.
            useful: Error that measuring a candidate in some way takes away, but for noise; shape (candidates, ways).
            cells: How many cells' noise it is left with, same shape.
            price: Of all measurements together.
        """
        best = PairSelection(0.0, ())
        telling = np.flatnonzero(useful.max(axis=1, initial=0.0) > 0)
        useful, cells = useful[telling], cells[telling]
        most = min(self.max_pairs, len(telling))
        for number in np.unique(np.geomspace(1, most, GRID_STEPS).astype(int)).tolist() if most else ():
            sigma = curator.sigma([Marginal(())], price.share(1 / number))
            gains = useful - ABSOLUTE * sigma * cells
            ways = np.argmax(gains, axis=1)
            gain = gains[np.arange(len(gains)), ways]
            order = [index for index in np.argsort(-gain)[:number].tolist() if gain[index] > 0]
            value = float(gain[order].sum())
            if value > best.gain:
                best = PairSelection(value, tuple((int(telling[index]), int(ways[index])) for index in order))
        return best

    def joints(
        self,
        curator: Curator,
        tables: Sequence[PairTable],
        clean: Mapping[str, Array],
        price: Price,
        known: Mapping[Pair, Array] | None = None,
    ) -> dict[Pair, Array]:
        """Measure joints of pairs, and return their probabilities: denoised, fitted to the marginals, never zero."""
        total = _total(clean)
        measured, _ = self.measure(curator, tables, price)
        return {pair: joint / total for pair, joint in estimated_joints(measured, clean, known).items()}

    def measure(
        self, curator: Curator, tables: Sequence[PairTable], price: Price, marginals: Marginals | None = None
    ) -> tuple[dict[Pair, NoisyTable], float]:
        """Measure the joints of some pairs, for ``price`` in all: the noisier ones get more of it.

        Units are clipped in L2 norm where that leaves less noise for a row that counts: n rows of a unit in different
        cells are a vector of length √n. Returns how many times as many rows have counted by that, in the mean, too;
        counts are as of those that count without it.

        Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
        """
        weights = np.array([table.cells for table in tables]) ** (2 / 3)  # least sum of expected L1 errors
        measured, gains = {}, [1.0] * (not tables)
        for table, share in zip(tables, (weights / weights.sum()).tolist(), strict=True):
            a, b = table.pair
            groups = (table.coarsenings[0].groups, table.coarsenings[1].groups)
            noise, most = (1.0, 1.0) if marginals is None else _clipping(curator, marginals, table.pair, price)
            asked = Marginal((a, b), groups, clipped=noise < 1)
            found = curator.measure(f"{a} x {b}", [asked], price.share(share))
            gain = 1.0
            if noise < 1 and marginals is not None:
                gain = min(max(float(found.values[0].sum()) / max(marginals.counted.total, 1.0), 1.0), most)
            measured[a, b] = NoisyTable(found.values[0] / gain, found.sigma / gain, groups, table.ordered)
            gains.append(gain)
        return measured, float(np.mean(gains))


def _clipping(curator: Curator, marginals: Marginals, pair: Pair, price: Price) -> tuple[float, float]:
    """Return the noise of a row if units are clipped, or not, relative to not, and how many more rows may count."""
    gain = marginals.clipping_gain(pair)
    if price.measure is Measure.PURE or gain <= 1:
        return 1.0, 1.0
    noise = curator.sigma([Marginal(pair, clipped=True)], price) / curator.sigma([Marginal(pair)], price)
    return min(noise / gain, 1.0), gain


def _informative(clean: Mapping[str, Array], pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs whose columns both have more than one code."""
    return [(a, b) for a, b in pairs if len(clean[a]) > 1 and len(clean[b]) > 1]


def _total(clean: Mapping[str, Array]) -> float:
    return max(1.0, float(np.mean([counts.sum() for counts in clean.values()])))
