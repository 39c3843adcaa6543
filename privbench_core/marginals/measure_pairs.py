"""Fitting a leaf over several columns: which pairs depend on each other, measured where it pays.

Dependence scores of all pairs are measured first, then the one-way marginals again and the joints of the chosen pairs;
public arithmetic on released numbers says how the price is shared between the last two.

The score of a pair is its R-score, half the L1 distance between its exact counts and the product of the *released*
one-way marginals (PrivMRF; PrivPetal section 5), whose sensitivity is half the view's stability, whatever n. Pairs,
and how finely each is measured, are chosen to maximise the expected reduction of L1 error: a pair left out costs its
score, a pair measured costs the noise on its cells and what merged codes do not show (`candidates`, `coarsenings`).

How all ordered columns are correlated is measured in one release, the base of their joints. What no pair shows, like a
parity (c = a xor b), is looked for in triples of small columns: screened for a small share, and measured where they
differ from what their pairs explain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from privbench_core.arrays import Array
from privbench_core.estimators.coarsening import Candidates, PairSelection, PairTable
from privbench_core.estimators.copula import Cut, SignSums, sign_noise
from privbench_core.estimators.joints import NoisyTable, Triple, estimated_joints, explained
from privbench_core.estimators.segmentation import ABSOLUTE
from privbench_core.guards import GRID_STEPS, MAX_PAIRS
from privbench_core.marginals.measure_one_way import Marginals, noise_power, remeasure
from privbench_core.marginals.measure_scores import (
    NO_JOINTS,
    Joints,
    clear_scores,
    has_power,
    largest_noise,
    pair_scores,
)
from privbench_core.marginals.measured import MeasuredLeaf, with_marginals
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price, zero
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Distances, Marginal, SignProducts
from privbench_core.schema.identity import Identity
from privbench_core.schema.queried import UNQUERIED
from privbench_core.tuning import TUNING

Pair = tuple[str, str]
OneWayCounts = Mapping[str, Array]


@dataclass(frozen=True)
class PairwiseFit:
    """How a pairwise leaf spends its price.

    Attributes:
        max_pairs: The most joints of a leaf, a public constant.
        queried: Pairs of columns that a published workload has together: errors of others count less. None if all
            pairs weigh the same.
    """

    max_pairs: int = MAX_PAIRS
    queried: frozenset[frozenset[str]] | None = None

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        if self.queried is None:
            return {"max_pairs": self.max_pairs}
        return {"max_pairs": self.max_pairs, "queried": sorted(map(sorted, self.queried)), "unqueried": UNQUERIED}

    def weights(self, pairs: Iterable[Pair]) -> Array:
        """Return how much the errors of pairs count, shape (pairs,)."""
        queried = self.queried
        return np.array([1.0 if queried is None or frozenset(pair) in queried else UNQUERIED for pair in pairs])

    def fit(self, curator: Curator, one_way: OneWay, price: Price, ordered: Mapping[str, int]) -> MeasuredLeaf:
        """Measure a leaf over the columns of ``one_way``, for at most ``price``; see `find`.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4 and 7.
        """
        found = self.find(Marginals(curator, one_way), price, ordered)
        return MeasuredLeaf(remeasure(curator, one_way, found)) if isinstance(found, Price) else found

    def find(
        self, marginals: Marginals, price: Price, ordered: Mapping[str, int], by_lags: Joints = NO_JOINTS
    ) -> MeasuredLeaf | Price:
        """Measure a leaf with joints for at most ``price``, or return what is left of it if noise would hide them all.

        What the scores leave of the price goes partly to joints and partly to the one-way marginals again, in the
        proportion that promises the smallest total error over all pairs.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4 and 7.

        Args:
            marginals: Of the columns, as far as they are known.
            price: Of everything here.
            ordered: Column -> how many of its leading codes are intervals, in order; columns it lacks are lists.
            by_lags: Counts of pairs of dates that follow from how far they are apart, of any total.
        """
        curator, one_way = marginals.curator, marginals.counted
        triples = candidate_triples(curator, one_way.clean(), one_way.total, price)
        if not triples:
            return self._find_pairs(marginals, price, ordered, by_lags)
        found = self._find_pairs(marginals, price.share(1 - TUNING.triple_share), ordered, by_lags)
        counted = MeasuredLeaf(marginals.counted)
        plain = counted if isinstance(found, Price) else replace(found, one_way=counted.one_way, counted=None)
        leaf, left = measure_triples(curator, plain, triples, price.share(TUNING.triple_share))
        if not isinstance(found, Price):
            return replace(leaf, one_way=marginals.improve(left), counted=found.counted)
        left += found
        if not leaf.triples:
            return left
        return replace(leaf, one_way=marginals.improve(left), counted=marginals.rows_counted())

    def _find_pairs(
        self, marginals: Marginals, price: Price, ordered: Mapping[str, int], by_lags: Joints
    ) -> MeasuredLeaf | Price:
        """Do what `find` does, without triples."""
        curator, one_way = marginals.curator, marginals.counted
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
            noise = np.array([_clipping(curator, marginals, pair, price)[0] for pair in candidates.pairs])
            weights = self.weights(candidates.pairs)
            useful = candidates.useful * weights[:, None]
            cells = candidates.cells * (noise * weights)[:, None]
            others = (len(clean) - 1) * float(weights.mean())  # pairs that a column is in

            def selection(share: float) -> PairSelection:
                return self.choose(curator, useful, cells, price.share(share))

            def error(share: float) -> float:
                """Return the expected L1 error over all pairs if ``share`` of what is left goes to joints."""
                gain = selection(share).gain if share > 0 else 0.0
                return ABSOLUTE * marginals.noise(price.share(1 - share)) * others - gain

            share = min(np.linspace(0, 1, GRID_STEPS).tolist(), key=error)
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
        clean: OneWayCounts,
        pairs: Sequence[Pair],
        price: Price,
        ordered: Mapping[str, int],
        known: Joints = NO_JOINTS,
    ) -> tuple[dict[Pair, Array], Price]:
        """Return joint probabilities of pairs that the price supports, and what is left of it if it supports none.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4 and 7.

        Args:
            curator: Of a view with all columns of the pairs.
            clean: Released counts of each column, all with the same total.
            pairs: Pairs of columns.
            price: Of scores and joints together.
            ordered: As in `find`.
            known: Counts of pairs that follow from something else: a pair is measured where it is far from these.
        """
        pairs, total = _informative(clean, pairs), _total(clean)
        shares = {pair: joint / total for pair, joint in known.items()}
        if not has_power(curator, len(pairs), total, price):
            return shares, price
        scores = pair_scores(curator, clean, pairs, price.share(TUNING.score_share), known)
        rest = price.share(1 - TUNING.score_share)
        candidates = Candidates.of(pairs, scores, clean, ordered)
        tables = self.choose(curator, candidates.useful, candidates.cells, rest).tables(candidates)
        return (self.joints(curator, tables, clean, rest, known), zero(rest.measure)) if tables else (shares, rest)

    def choose(self, curator: Curator, useful: Array, cells: Array, price: Price) -> PairSelection:
        """Return the largest gain in L1 error that measuring some candidates for ``price`` promises, and how.

        Args:
            curator: Says how large noise is.
            useful: Error that measuring a candidate in some way takes away, but for noise; shape (candidates, ways).
            cells: How many cells' noise it is left with, same shape.
            price: Of all measurements together.
        """
        best = PairSelection(0.0, ())
        promising = np.flatnonzero(useful.max(axis=1, initial=0.0) > 0)
        useful, cells = useful[promising], cells[promising]
        most = min(self.max_pairs, len(promising))
        for number in np.unique(np.geomspace(1, most, GRID_STEPS).astype(int)).tolist() if most else ():
            sigma = curator.sigma([Marginal(())], price.share(1 / number))
            gains = useful - ABSOLUTE * sigma * cells
            ways = np.argmax(gains, axis=1)
            gain = gains[np.arange(len(gains)), ways]
            order = [index for index in np.argsort(-gain)[:number].tolist() if gain[index] > 0]
            value = float(gain[order].sum())
            if value > best.gain:
                best = PairSelection(value, tuple((int(promising[index]), int(ways[index])) for index in order))
        return best

    def joints(
        self,
        curator: Curator,
        tables: Sequence[PairTable],
        clean: OneWayCounts,
        price: Price,
        known: Joints = NO_JOINTS,
    ) -> dict[Pair, Array]:
        """Measure joints of pairs, and return their probabilities: denoised, fitted to the marginals, never zero."""
        measured, _ = self.measure(curator, tables, price)
        return {pair: joint / _total(clean) for pair, joint in estimated_joints(measured, clean, known).items()}

    def measure(
        self, curator: Curator, tables: Sequence[PairTable], price: Price, marginals: Marginals | None = None
    ) -> tuple[dict[Pair, NoisyTable], float]:
        """Measure the joints of some pairs, for ``price`` in all: the noisier ones get more of it.

        Units are clipped in L2 norm where that leaves less noise for a row that counts: n rows of a unit in different
        cells are a vector of length √n. Returns how many times as many rows have counted by that, in the mean, too;
        counts are as of those that count without it.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
        """
        cells = np.array([table.cells for table in tables])
        weights = (cells * self.weights(table.pair for table in tables)) ** (2 / 3)  # least sum of expected L1 errors
        measured, gains = {}, [1.0] * (not tables)
        for table, share in zip(tables, (weights / weights.sum()).tolist(), strict=True):
            groups = (table.coarsenings[0].groups, table.coarsenings[1].groups)
            noise, most = (1.0, 1.0) if marginals is None else _clipping(curator, marginals, table.pair, price)
            asked = Marginal(table.pair, groups, clipped=noise < 1)
            found = curator.measure(" x ".join(table.pair), [asked], price.share(share))
            gain = 1.0
            if noise < 1 and marginals is not None:
                gain = min(max(float(found.values[0].sum()) / max(marginals.counted.total, 1.0), 1.0), most)
            measured[table.pair] = NoisyTable(found.values[0] / gain, found.sigma / gain, groups, table.ordered)
            gains.append(gain)
        return measured, float(np.mean(gains))


def _clipping(curator: Curator, marginals: Marginals, pair: Pair, price: Price) -> tuple[float, float]:
    """Return the noise of a row if units are clipped, or not, relative to not, and how many more rows may count."""
    gain = marginals.clipping_gain(pair)
    if price.measure is Measure.PURE or gain <= 1:
        return 1.0, 1.0
    noise = curator.sigma([Marginal(pair, clipped=True)], price) / curator.sigma([Marginal(pair)], price)
    return min(noise / gain, 1.0), gain


def _informative(clean: OneWayCounts, pairs: Iterable[Pair]) -> list[Pair]:
    """Return the pairs whose columns both have more than one code."""
    return [(a, b) for a, b in pairs if len(clean[a]) > 1 and len(clean[b]) > 1]


def _total(clean: OneWayCounts) -> float:
    return max(1.0, float(np.mean([counts.sum() for counts in clean.values()])))


def cuts_of(clean: OneWayCounts, ordered: Mapping[str, int]) -> dict[str, Cut]:
    """Return the cut of each column that has an order; see `Cut.nearest_median`."""
    cuts = {name: Cut.nearest_median(counts, ordered.get(name, 0)) for name, counts in clean.items()}
    return {name: cut for name, cut in cuts.items() if cut is not None}


def measure_signs(
    curator: Curator, clean: OneWayCounts, ordered: Mapping[str, int], price: Price
) -> tuple[SignSums | None, Price]:
    """Measure the products of the signs of all pairs of columns together, and return what is left of ``price``.

    They get the share for which correlations are clear, at most twice that of scores, as they say both which columns
    depend on each other and how; None, and nothing spent, where not even one common factor of all columns would show.
    Noise hides √(2 / columns) as much of that as of a single pair, as eigenvalues go. Arguments are as in `find`.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 4 and 10.
    """
    cuts = cuts_of(clean, ordered)
    if len(cuts) < 2:  # noqa: PLR2004 - no pair
        return None, price
    signs = {name: cut.signs(len(clean[name])) for name, cut in cuts.items()}
    query = SignProducts(signs, tuple(combinations(cuts, 2)))
    noise = sign_noise(clean, cuts, curator.sigma([query], price.share(2 * TUNING.score_share)))
    if noise * np.sqrt(2 / len(cuts)) > 1:
        return None, price
    share = 2 * TUNING.score_share * min(1.0, (noise / TUNING.clear) ** (1 / noise_power(price.measure)))
    noisy = curator.measure("signs", [query], price.share(share))
    return SignSums(cuts, noisy.values[0], noisy.sigma), price.share(1 - share)


def candidate_triples(curator: Curator, clean: OneWayCounts, total: float, price: Price) -> list[Triple]:
    """Return the triples to screen, smallest first: as many as leave their scores clear at their share of ``price``."""
    names = sorted((n for n in clean if len(clean[n]) > 1), key=lambda n: len(clean[n]))[:24]
    cells = {triple: math.prod(len(clean[name]) for name in triple) for triple in combinations(names, 3)}
    most = 64  # cells: more hold too few rows each
    small = sorted((triple for triple in cells if cells[triple] <= most), key=lambda triple: cells[triple])
    for_scores = price.share(TUNING.triple_share / 2)
    while small and largest_noise(curator, len(small), for_scores) > TUNING.clear * total:
        small = small[: len(small) // 2]
    return small


def measure_triples(
    curator: Curator, leaf: MeasuredLeaf, triples: list[Triple], price: Price
) -> tuple[MeasuredLeaf, Price]:
    """Screen triples and measure those that their pairs do not explain; return the leaf and what is left of the price.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4 and 7.

    Args:
        curator: Of a view with the columns.
        leaf: What has been measured of them.
        triples: At least one.
        price: Of scores and tables together.
    """
    clean, total = leaf.one_way.clean(), leaf.one_way.total
    joints = leaf.joints({name for triple in triples for name in triple})
    expected = {triple: explained(triple, joints, clean) for triple in triples}
    for_scores = rest = price.share(1 / 2)
    noisy = curator.measure("triple scores", [Distances(tuple(((t, expected[t]),) for t in triples))], for_scores)
    cells = np.array([expected[triple].size for triple in triples])
    off = largest_noise(curator, len(triples), for_scores) + ABSOLUTE * np.sqrt(cells * total)
    significant = noisy.values[0] / 2 - off > TUNING.clear * total
    chosen = [triple for triple, stands in zip(triples, significant.tolist(), strict=True) if stands]
    if not chosen:
        return leaf, rest
    counted = {}
    for triple in chosen:
        found = curator.measure(" x ".join(triple), [Marginal(triple)], rest.share(1 / len(chosen)))
        counted[triple] = NoisyTable(found.values[0], found.sigma)
    return replace(leaf, triples=counted), rest.share(0)
