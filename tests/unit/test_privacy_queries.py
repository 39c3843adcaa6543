"""Each query moves as far as it says, for every unit, and for some unit exactly so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from privbench_core.columns.exact_sums import LARGEST
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.noise import Counts, OpenDPNoise, Sensitivity, fineness, noise_scale
from privbench_core.privacy.queries import (
    CentreSums,
    Distances,
    Marginal,
    ParentCounts,
    Query,
    RankSums,
    SignProducts,
)
from privbench_core.privacy.split_rules import Centres
from privbench_core.privacy.views import CodedView, HeldRows, ReferenceSums

UNIT = 60  # weight of a unit: its rows may weigh 60, 30, 20, ..
A, B = 4, 3  # codes
CENTRES = Centres(
    (("a", "ordered"), ("a", "ordered"), ("b", "list")),
    (A, A, B),
    tuple((tuple(map(float, range(A))), (0.0,) * A, shift) for shift in ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))),
)
SIGNS = {"a": np.array([-1, -1, 1, 1]), "b": np.array([1, 0, -1])}
QUERIES: dict[str, Query] = {
    "marginal": Marginal(("a",)),
    "marginal of two": Marginal(("a", "b")),
    "merged marginal": Marginal(("a", "b"), (np.array([0, 0, 1, 1]), np.array([0, 1, 0]))),
    "total": Marginal(()),
    "distance": Distances((((("a",), np.full(A, 2.0)),),)),
    "sums of distances": Distances(
        (((("a",), np.zeros(A)), (("b",), np.full(B, -3.0))), ((("a", "b"), np.zeros((A, B))),))
    ),
    "signs": SignProducts(SIGNS, (("a", "b"),)),
    "signs of several": SignProducts(SIGNS, ((), ("a",), ("b",), ("a", "b"))),
    "clusters": CentreSums(CENTRES),
    "parents": ParentCounts(np.array([0, 1, 1, 2])),
    "ranks": RankSums((1, 2, 3, 4)),
}


@dataclass(frozen=True)
class RowsThatRefer(HeldRows):
    """Rows that are of a view of columns and of one of references to four public rows at once."""

    parent: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def reference_sums(self) -> ReferenceSums:
        totals = np.zeros(5, dtype=np.int64)
        np.add.at(totals, self.parent, self.weights)  # -1 is the last
        return ReferenceSums(np.arange(4), totals[:4], int(totals[4]), 4)


def view_of(rows: Sequence[tuple[int, int, int]], weights: Sequence[int]) -> CodedView:
    """Rows of (a, b, parent), one unit moving at most `UNIT`."""
    a, b, parent = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    codes, sizes = {"a": a.astype(np.uint8), "b": b.astype(np.uint8)}, {"a": A, "b": B}
    held = RowsThatRefer(codes, sizes, np.array(weights, dtype=np.int64), len(rows), parent=parent)
    return CodedView(held, sizes, UNIT, UNIT, 6)


def neighbours(seed: int) -> tuple[CodedView, CodedView]:
    """A view, and the view without one unit of 1 to 6 rows, which often are all in one cell at the end of a range."""
    rng = np.random.default_rng(seed)

    def drawn() -> tuple[int, int, int]:
        return int(rng.integers(A)), int(rng.integers(B)), int(rng.integers(-1, 4))

    others = [drawn() for _ in range(int(rng.integers(8)))]
    size = int(rng.integers(1, 7))
    one = drawn() if rng.random() < 0.5 else (int(rng.choice([0, A - 1])), 0, 0)
    mine = [one if rng.random() < 0.8 else drawn() for _ in range(size)]
    weights = [UNIT // int(n) for n in rng.integers(1, 7, len(others))]
    return view_of([*others, *mine], [*weights, *[UNIT // size] * size]), view_of(others, weights)


@pytest.mark.parametrize("name", QUERIES)
def test_a_unit_moves_a_query_as_far_as_it_says_and_no_further(name: str) -> None:
    query = QUERIES[name]
    worst = np.zeros(2)
    for seed in range(400):
        more, less = neighbours(seed)
        shift = (query.evaluate(more) - query.evaluate(less)).astype(float)
        moved = np.array([np.abs(shift).sum(), (shift**2).sum()])
        claimed = np.array(query.moves(more))
        assert (moved <= claimed * (1 + 1e-9)).all(), seed
        worst = np.maximum(worst, moved / claimed)
    assert (worst > 0.99).all(), worst


@pytest.mark.parametrize(
    "query", [Marginal(("a",)), ParentCounts(np.array([0, 1, 2, 3])), RankSums((1, 2, 3, 4))], ids=repr
)
def test_a_unit_that_changes_with_the_removed_one_loses_a_row_and_gains_another(query: Query) -> None:
    """Both units refer to the most popular parent; then one is gone, and the other has a row elsewhere instead."""
    crowd = [(0, 0, 0)] * 20 + [(1, 0, 1)]
    weights = [UNIT] * len(crowd)
    before = view_of([*crowd, (0, 0, 0), (0, 0, 0)], [*weights, UNIT, UNIT])
    after = view_of([*crowd, (1, 0, 1)], [*weights, UNIT])
    one, other = (replace(view, stability=3 * UNIT, own=UNIT) for view in (before, after))
    shift = (query.evaluate(one) - query.evaluate(other)).astype(float)
    assert (np.abs(shift).sum(), (shift**2).sum()) == query.moves(one) == (3.0 * UNIT, 5.0 * UNIT**2)


def test_a_unit_that_changes_signs_moves_their_sum_by_all_that_changes() -> None:
    """What leaves one sign and comes to the other moves the sum by both, so squares add up to s² and no less."""
    query = SignProducts(SIGNS, (("a",), ("a", "b")))
    weights = [UNIT, UNIT]
    before, after = (view_of(rows, weights[: len(rows)]) for rows in ([(0, 0, 0), (0, 0, 0)], [(3, 0, 0)]))
    one, other = (replace(view, stability=3 * UNIT, own=UNIT) for view in (before, after))
    shift = (query.evaluate(one) - query.evaluate(other)).astype(float)
    assert (np.abs(shift).sum(), (shift**2).sum()) == query.moves(one) == (6.0 * UNIT, 18.0 * UNIT**2)


def test_centres_move_by_the_grid() -> None:
    query = CentreSums(CENTRES)
    assert query.moves(view_of([], [])) == (UNIT * 256 * 3.0, (UNIT * 256) ** 2 * 2.5)  # two ordered columns, one list


@dataclass
class Watched:
    """Noise that writes down what it is asked for."""

    secure: bool = False
    added: list[Sensitivity] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)

    def add(self, site: str, exact: Counts, sensitivity: Sensitivity, price: Price) -> Counts:
        self.added.append(sensitivity)
        return exact

    def choose(self, site: str, scores: Counts, sensitivity: int, price: Price) -> int:
        self.chosen.append(sensitivity)
        return 0


PRICE = Price(Measure.GDP, 1.0)


def watched() -> tuple[Curator, Watched]:
    """A curator of a few rows, and its noise."""
    noise = Watched()
    view, _ = neighbours(0)
    account = PrivacyFilter(Price(Measure.GDP, 100.0), lambda *_: None)
    return Curator(view, account, noise, "test"), noise  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_queries_asked_together_add_up(count: int) -> None:
    curator, noise = watched()
    asked = [Marginal(("a",))] * count
    curator.measure("together", asked, PRICE)
    both = Sensitivity(UNIT * count, UNIT * math.sqrt(count))
    factor = fineness(both, PRICE)
    assert noise.added == [Sensitivity(both.l1 * factor, pytest.approx(both.l2 * factor))]
    assert curator.sigma(asked, PRICE) == pytest.approx(math.sqrt(count / 2), rel=1e-6)


def test_a_score_moves_by_all_of_its_distances() -> None:
    curator, noise = watched()
    pair = ((("a",), np.zeros(A)), (("b",), np.zeros(B)))
    curator.select("pairs", Distances((pair, pair)), PRICE)
    assert noise.chosen == [2 * UNIT]


def test_a_score_moves_by_no_more_than_all_there_are() -> None:
    """Scores are from 0 to `LARGEST`; no 64-bit number holds a larger sensitivity, of bounds that multiply."""
    _, noise = watched()
    view = replace(neighbours(0)[0], stability=1 << 70)
    curator = Curator(view, PrivacyFilter(Price(Measure.GDP, 100.0), lambda *_: None), noise, "test")  # type: ignore[arg-type]
    groups = tuple(((("a",), np.full(A, reference)),) for reference in (0.0, -1e30, 1e30))
    assert view.data.counts(("a",)).sum() > 0
    assert 0 <= Distances(groups).evaluate(view).min() <= Distances(groups).evaluate(view).max() <= LARGEST
    curator.select("far", Distances(groups), PRICE)
    assert noise.chosen == [LARGEST]
    assert OpenDPNoise().choose("far", Distances(groups).evaluate(view), LARGEST, PRICE) in range(3)


@pytest.mark.parametrize(
    ("price", "scale"),
    [
        (Price(Measure.PURE, 0.5), lambda s: s.l1 / 0.5),
        (Price(Measure.GDP, 0.5), lambda s: math.hypot(s.l2, 2)),
        (Price(Measure.GDP, 0.02), lambda s: math.hypot(s.l2 * 5, 2)),
    ],
)
def test_laplace_noise_follows_l1_and_gaussian_noise_l2(price: Price, scale: Callable[[Sensitivity], float]) -> None:
    for sensitivity in (Sensitivity(7.0, 2.0), Sensitivity(3.0, 3.0)):
        found = noise_scale(sensitivity, price)
        assert scale(sensitivity) <= found <= scale(sensitivity) * (1 + 1e-6), "never below, and nothing wasted"
