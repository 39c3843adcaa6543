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

from privbench_core.estimate.candidates import Candidates, PairSelection, PairTable, noisy_cells
from privbench_core.estimate.joints import NoisyTable, estimated_joints
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.measure.glance import Glance, glance
from privbench_core.measure.one_way import Marginals, MarginalsOfView, least_noise, remeasure
from privbench_core.measure.scores import clear_scores, largest_noise, pair_scores
from privbench_core.measure.shortlist import share_of_shortlist, shortlist, shortlist_size
from privbench_core.measure.signs import cuts_of, determined_by_signs, gain_of_signs, measure_signs, share_for_signs
from privbench_core.measure.triples import SHARE_OF_TRIPLES, candidate_triples, measure_triples
from privbench_core.models.measured import MeasuredLeaf, with_marginals
from privbench_core.models.one_way import OneWay
from privbench_core.privacy.budget import Price, zero
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal
from privbench_core.schema.identity import Identity

Array = NDArray[np.float64]
Pair = tuple[str, str]
MOST_CODES = 100  # of a column: what is more is merged
_SUPPOSED = 0.25  # of all rows: the score of a pair that depends on each other
_HOPE_OF_SIGNS = 3.0  # the same for signs; verified on `shapes`: at 0.3 independent rough columns lost a sixth, δ = 0
_HOPE = 0.3  # of what is lost if there is no such pair: least gain for which it pays to look
_STANDS_OUT = 3.0  # standard deviations by which a code stands out
_STRONG = 0.3  # of all rows: the score of two columns that determine each other is one minus the likeliest values
_CLEAR = 0.2  # of all rows: largest noise of scores that is no reason to pay more for them
_MORE_FOR_SCORES = (1.0, 2.0, 3.0)  # times the usual share, where scores would say little for less
_NUMBERS = 24  # of pairs that share a price are tried
_SHARES = (0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)  # of what a leaf has left, for joints rather than marginals


@dataclass(frozen=True)
class PairwiseFit:
    """How a pairwise leaf spends its price; public constants.

    Attributes:
        score_share: Part of the price for the dependence scores; up to three times as much where that tells nothing.
        noise_factor: Weight of the expected noise of a pair's cells against its score.
        max_pairs: Cap on joints per leaf.
    """

    score_share: float = 0.08
    noise_factor: float = 0.28
    max_pairs: int = 400

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "score_share": self.score_share,
            "noise_factor": self.noise_factor,
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
        found = self._find_pairs(curator, marginals, price.share(1 - SHARE_OF_TRIPLES), ordered, by_lags)
        counted = MeasuredLeaf(marginals.counted)
        plain = counted if isinstance(found, Price) else replace(found, one_way=counted.one_way, counted=None)
        leaf, left = measure_triples(curator, plain, triples, price.share(SHARE_OF_TRIPLES))
        left = left + found if isinstance(found, Price) else left
        if isinstance(found, Price) and not leaf.triples:
            return left
        rows = marginals.rows_counted if isinstance(found, Price) else found.counted
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
        pairs = _informative(clean, combinations(clean, 2))
        cuts = cuts_of(clean, ordered)
        for_signs = share_for_signs(curator, one_way, cuts, price)
        signs = measure_signs(curator, clean, cuts, price.share(for_signs)) if for_signs else None
        by_signs = signs.joints(clean) if signs else {}
        of_dates = {pair: with_marginals(pair, joint, clean) for pair, joint in by_lags.items()}
        known = by_signs | of_dates
        determined = determined_by_signs(clean, cuts, for_signs)
        pairs = [pair for pair in pairs if pair not in determined]
        price = price.share(1 - for_signs)

        def without_tables(rest: Price) -> MeasuredLeaf | Price:
            if not known:
                return rest
            counted, kept = marginals.rows_counted, signs if by_signs else None
            return MeasuredLeaf(marginals.improve(rest), {}, kept, counted=counted, lags=by_lags)

        number = shortlist_size(curator, len(pairs), one_way.total, price)
        if number < len(pairs):
            for_choices = share_of_shortlist(curator, len(pairs), number, one_way.total, price)
            pairs = shortlist(curator, clean, pairs, number, price.share(for_choices), known)
            price = price.share(1 - for_choices)
        for_scores = self._score_share(curator, len(pairs), one_way.total, price) if pairs else None
        if for_scores is None:
            return without_tables(price)
        scores = clear_scores(curator, one_way, pairs, price.share(for_scores), known)
        rest = price.share(1 - for_scores)
        candidates = Candidates.of(pairs, scores, clean, ordered)

        def selection(share: float) -> PairSelection:
            return self.choose(curator, candidates.useful, candidates.cells, rest.share(share))

        def promise(share: float) -> float:
            """Expected L1 error over all pairs if ``share`` of the rest goes to joints."""
            gain = (
                self.choose(curator, candidates.useful, candidates.cells, rest.share(share)).gain if share > 0 else 0.0
            )
            return ABSOLUTE * marginals.noise(rest.share(1 - share)) * (len(clean) - 1) - gain

        share = min(_SHARES, key=promise)
        if share == 0:
            return without_tables(rest)
        tables = selection(share).tables(candidates)
        if not tables:
            return without_tables(rest)
        better = marginals.improve(rest.share(1 - share))
        found = self.measure(curator, tables, rest.share(share))
        kept = signs if by_signs else None
        return MeasuredLeaf(better, found, kept, counted=marginals.rows_counted, lags=by_lags)

    def promising(
        self,
        curator: Curator,
        codes: Sequence[int],
        ordered: int,
        total: float,
        price: Price,
        first: float,
        seen: Glance | bool = False,
    ) -> bool:
        """Whether to look for dependences, as far as is known.

        What their joints would gain must be worth what marginals lose by it. As many pairs as there are columns, less
        one, are supposed to depend on each other about as much as in tables of people; before a `glance`, which will
        tell, all pairs of columns with an order.

        Args:
            curator: Of any view of the table.
            codes: Number of codes of each column, as far as known.
            ordered: How many columns have an order; two codes are one, too.
            total: Released number of rows.
            price: Of all that is measured of the table.
            first: Share of the price for a first look at one-way marginals.
            seen: What a glance has shown; True if there will be one, False if there is none.
        """
        sizes = np.minimum([float(size) for size in codes if size > 1], MOST_CODES)
        pairs, second = np.array(list(combinations(range(len(sizes)), 2))), price.share(1 - first)
        once, whole = (_sigmas(curator, sizes, part) for part in (price.share(first), price))

        def lost(rest: Price) -> float:
            twice = once / np.sqrt(1 + (once / _sigmas(curator, sizes, rest)) ** 2)
            return (len(sizes) - 1) * (_error(sizes, twice, total) - _error(sizes, whole, total))

        all_ordered, several = ordered * (ordered - 1) / 2, float(max(ordered - 1, 0))
        best = others = _SUPPOSED
        if isinstance(seen, Glance):
            several, best = seen.ordered / _SUPPOSED * all_ordered, seen.best
            others = min(seen.mean * len(pairs) / max(len(sizes) - 1, 1), best)
        elif seen:
            several = all_ordered
        hope_of_signs = _HOPE if isinstance(seen, Glance) else 1.0 if seen else _HOPE_OF_SIGNS
        by_signs, rest = gain_of_signs(curator, ordered, several, _SUPPOSED, total, second)
        if by_signs > max(hope_of_signs * lost(rest), 0.0):
            return True
        number = shortlist_size(curator, len(pairs), total, second)
        second = second.share(1 - share_of_shortlist(curator, len(pairs), number, total, second))
        for_scores = self._score_share(curator, number, total, second) if number else None
        if for_scores is None:
            return False
        rest = second.share(1 - for_scores)
        visible = np.minimum(sizes, 1 + total / (_STANDS_OUT * once))[pairs]  # no more codes stand out of the noise
        cells = noisy_cells(visible[:, 0], visible[:, 1])
        hidden = largest_noise(curator, number, second.share(for_scores)) / 2
        gain = 0.0
        for measured in range(1, min(len(sizes), number + 1)):
            noise = self.noise_factor * curator.sigma([Marginal(())], rest.share(1 / measured)) * cells
            of_best, of_others = (np.maximum(each * total - hidden - noise, 0).mean() for each in (best, others))
            gain = max(gain, float(of_best + (measured - 1) * of_others))
        return gain > _HOPE * lost(rest)

    def glance(
        self, curator: Curator, one_way: OneWay, ordered: Mapping[str, int], price: Price, rest: Price
    ) -> Glance | None:
        """See `glance`; None, and nothing spent, where there is no pair. ``rest`` is left for a closer look."""
        clean = one_way.clean()
        pairs = _informative(clean, combinations(clean, 2))
        with_order = _informative(clean, combinations(cuts_of(clean, ordered), 2))
        triples = candidate_triples(curator, clean, one_way.total, rest)
        return glance(curator, one_way, pairs, with_order, triples, price) if pairs else None

    def _score_share(self, curator: Curator, pairs: int, total: float, price: Price) -> float | None:
        """The least share of the price for which scores are clear, else the largest; None if even that is hopeless."""
        shares = [self.score_share * more for more in _MORE_FOR_SCORES]
        if self.hopeless(curator, pairs, total, price.share(shares[-1])):
            return None
        noises = (largest_noise(curator, pairs, price.share(share)) for share in shares)
        return next((share for share, noise in zip(shares, noises, strict=True) if noise <= _CLEAR * total), shares[-1])

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
        for_scores = self._score_share(curator, len(pairs), total, price) if pairs else None
        if for_scores is None:
            return shares, price
        scores = pair_scores(curator, clean, pairs, price.share(for_scores), known)
        rest = price.share(1 - for_scores)
        candidates = Candidates.of(pairs, scores, clean, ordered)
        tables = self.choose(curator, candidates.useful, candidates.cells, rest).tables(candidates)
        if not tables:
            return shares, rest
        return self.joints(curator, tables, clean, rest, known), zero(rest.measure)

    def tells(self, curator: Curator, pairs: int, total: float, price: Price) -> bool:
        """Whether `fit_pairs` would look at so many pairs for this price: strong dependences stand out of noise."""
        return pairs > 0 and self._score_share(curator, pairs, total, price) is not None

    def hopeless(self, curator: Curator, candidates: int, total: float, price: Price) -> bool:
        """Whether even a strong dependence would drown in the noise of its score: then nothing is spent on scores."""
        return largest_noise(curator, candidates, price) > _STRONG * total

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
        for number in np.unique(np.geomspace(1, most, _NUMBERS).astype(int)).tolist() if most else ():
            sigma = curator.sigma([Marginal(())], price.share(1 / number))
            gains = useful - self.noise_factor * sigma * cells
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
        measured = self.measure(curator, tables, price)
        return {pair: joint / total for pair, joint in estimated_joints(measured, clean, known).items()}

    def measure(self, curator: Curator, tables: Sequence[PairTable], price: Price) -> dict[Pair, NoisyTable]:
        """Measure the joints of some pairs, for ``price`` in all: the noisier ones get more of it.

        Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
        """
        weights = np.array([table.cells for table in tables]) ** (2 / 3)  # least sum of expected L1 errors
        measured = {}
        for table, share in zip(tables, (weights / weights.sum()).tolist(), strict=True):
            a, b = table.pair
            groups = (table.coarsenings[0].groups, table.coarsenings[1].groups)
            found = curator.measure(f"{a} x {b}", [Marginal((a, b), groups)], price.share(share))
            measured[a, b] = NoisyTable(found.values[0], found.sigma, groups, table.ordered)
        return measured


def _informative(clean: Mapping[str, Array], pairs: Iterable[Pair]) -> list[Pair]:
    """The pairs whose columns both have more than one code."""
    return [(a, b) for a, b in pairs if len(clean[a]) > 1 and len(clean[b]) > 1]


def _error(sizes: Array, sigmas: Array, total: float) -> float:
    """Expected L1 error, halved, of the counts of some columns, of which no more than all rows can be wrong."""
    return float(np.minimum(ABSOLUTE * sizes * sigmas, total / 2).sum())


def _sigmas(curator: Curator, sizes: Array, price: Price) -> Array:
    """Noise of the counts of columns of these sizes if all are measured for ``price``."""
    weights = least_noise(dict(enumerate(sizes)), price.measure)
    return np.array([curator.sigma([Marginal(())], price.share(share)) for share in weights.values()])


def _total(clean: Mapping[str, Array]) -> float:
    return max(1.0, float(np.mean([counts.sum() for counts in clean.values()])))
