"""Measurements that are paid in two parts: the first as noisy as its price says, both as private as the whole price."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from privbench_core.engines.memory.database import PrivateDatabase
from privbench_core.errors import BudgetExhaustedError, InternalError
from privbench_core.measure.learned import learn_domains
from privbench_core.measure.privspn import PairwiseSPN
from privbench_core.measure.profile import measure_cells
from privbench_core.measure.table import learn_table
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.noise import Held, OpenDPNoise, Sensitivity, noise_scale, noise_std, share_as_fine
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import CodedView, HeldRows
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.tables import Schema, Table
from tests.helpers.audit import epsilon_at_least
from tests.helpers.noise import RecordingNoise, ReplayNoise, SeededNoise, Violation

NOISE, ONE = OpenDPNoise(), Sensitivity(1.0, 1.0)
PRICES = [(0.3, 0.5), (1.0, 1.2), (0.5, 2.0)]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def pure(amount: float) -> Price:
    return Price(Measure.PURE, amount)


def held(value: int, n: int, first: float, whole: float) -> Held:
    return NOISE.hold("audit", np.full(n, value, dtype=np.int64), ONE, pure(first), pure(whole))


@pytest.mark.parametrize(("first", "whole"), PRICES)
def test_the_generating_functions_agree(first: float, whole: float) -> None:
    """Laplace noise of the larger scale is that of the smaller one and, sometimes, more: term by term."""
    p, q = (math.exp(-1 / noise_scale(ONE, pure(each))) for each in (first, whole))
    same, reach = share_as_fine(ONE, pure(first), pure(whole)), np.arange(-400, 401)
    coarse, fine = ((1 - r) / (1 + r) * r ** np.abs(reach) for r in (p, q))
    assert 0 < same < 1
    np.testing.assert_allclose(same * fine + (1 - same) * np.convolve(fine, coarse, "same"), coarse, atol=1e-12)


@pytest.mark.parametrize(("first", "whole"), PRICES)
def test_what_is_drawn_has_these_distributions(first: float, whole: float) -> None:
    n = 60_000  # and six deviations: one of the 27 shares is as far off once in 10⁶ runs, at most
    both = held(7, n, first, whole)
    for counts, price in ((both.coarse, first), (both.fine(), whole)):
        p = math.exp(-1 / noise_scale(ONE, pure(price)))
        for size in range(4):
            expected = (1 - p) / (1 + p) * p**size * (2 if size else 1)
            assert np.mean(np.abs(counts - 7) == size) == pytest.approx(expected, abs=6 * math.sqrt(expected / n))
    same = share_as_fine(ONE, pure(first), pure(whole))
    again = same + (1 - same) * (1 - math.exp(-first)) / (1 + math.exp(-first))  # more may be 0
    assert np.mean(both.coarse == both.fine()) == pytest.approx(again, abs=6 * math.sqrt(again / n))


@pytest.mark.parametrize("n", [6_000, pytest.param(300_000, marks=pytest.mark.slow)])
def test_the_first_part_is_worth_its_epsilon_and_no_more(n: int) -> None:
    def coarse(value: int) -> Callable[[int], NDArray[np.int64]]:
        return lambda n: held(value, n, 1.0, 2.0).coarse

    found = epsilon_at_least(coarse(0), coarse(1), n)
    assert 0.6 < found <= 1.0


def test_both_parts_together_are_worth_the_whole() -> None:
    """As one number: the finer count, and how the coarser one differs."""

    def told(value: int) -> Callable[[int], NDArray[np.int64]]:
        def drawn(n: int) -> NDArray[np.int64]:
            both = held(value, n, 0.5, 1.0)
            return 100 * both.fine() + np.clip(both.coarse - both.fine(), -49, 49)

        return drawn

    assert epsilon_at_least(told(0), told(1), 6_000) <= 1.0


def curator_of(codes: list[int], limit: Price, noise: object) -> tuple[Curator, list[tuple[str, float]]]:
    """A curator of rows with one column of four codes, and what is charged."""
    charged: list[tuple[str, float]] = []
    rows = HeldRows({"a": np.array(codes, dtype=np.int32)}, {"a": 4}, None, len(codes))
    account = PrivacyFilter(limit, lambda label, price: charged.append((label, price.amount)))
    return Curator(CodedView(rows, {"a": 4}, 1, 1, 1), account, noise, "test"), charged  # type: ignore[arg-type]


def test_the_rest_is_paid_when_it_is_asked_for() -> None:
    curator, charged = curator_of([0, 1, 1, 3], pure(1.0), OpenDPNoise())
    refinable = curator.measure_in_two("cells", [Marginal(("a",))], pure(0.25), pure(1.0))
    assert [amount for _, amount in charged] == [0.25]
    assert refinable.missing == pure(0.75)
    found = refinable.refine()
    assert [amount for _, amount in charged] == [0.25, 0.75]
    assert found.values[0].shape == refinable.first.values[0].shape == (4,)
    assert refinable.first.sigma == pytest.approx(noise_std(ONE, pure(0.25)))
    assert found.sigma == pytest.approx(noise_std(ONE, pure(1.0)))


def test_what_cannot_be_paid_is_not_released() -> None:
    curator, charged = curator_of([0, 1, 1, 3], pure(1.0), OpenDPNoise())
    refinable = curator.measure_in_two("cells", [Marginal(("a",))], pure(0.25), pure(1.0))
    curator.measure("else", [Marginal(("a",))], pure(0.5))
    with pytest.raises(BudgetExhaustedError):
        refinable.refine()
    assert sum(amount for _, amount in charged) == 0.75


@pytest.mark.parametrize(
    ("first", "whole"),
    [
        (Price(Measure.ZCDP, 0.1), Price(Measure.ZCDP, 0.2)),
        (pure(0.2), Price(Measure.ZCDP, 0.4)),
        (pure(0.2), pure(0.2)),
        (pure(0.2), pure(0.1)),
        (Price(Measure.PURE, 0.1, 1e-9), pure(0.2)),
        (pure(0.001), pure(1.1)),
        (pure(1e-16), pure(1e-15)),
    ],
)
def test_other_prices_are_refused_before_anything_is_charged(first: Price, whole: Price) -> None:
    curator, charged = curator_of([0, 1], pure(1.0), OpenDPNoise())
    with pytest.raises(InternalError):
        curator.measure_in_two("cells", [Marginal(("a",))], first, whole)
    assert not charged


def test_a_first_look_at_a_thousandth_of_the_price_is_taken_in_one_part() -> None:
    columns = [Column(f"c{number}", ColumnType.INTEGER, Range(0, 3)) for number in range(4)]
    table = Table("t", (Column("id", ColumnType.INTEGER), *columns), ("id",))
    rng = np.random.default_rng(0)
    values = rng.integers(0, 4, 50_000)
    rows = {column.name: np.where(rng.random(len(values)) < 0.9, values, 0) for column in columns}
    tables = {"t": pa.table({"id": np.arange(len(values)), **rows})}
    account = PrivacyFilter(pure(4.0), lambda _, __: None)
    database = PrivateDatabase(Schema("s", (table,), "t"), tables, bytes(16))
    session = PrivateSession(database, account, SeededNoise(0), "t")
    _, profile, _ = learn_table(session, table, 1, pure(4.0), 0.0005, PairwiseSPN)
    assert account.spent.amount == pytest.approx(4.0)
    assert profile.total == pytest.approx(len(values), rel=0.1)


def test_what_is_bought_later_is_what_the_profile_says() -> None:
    """Counts and noise of the first look are replaced with the rest of the price, in the summary as well."""
    table = Table("t", (Column("id", ColumnType.INTEGER), Column("a", ColumnType.INTEGER, Range(0, 3))), ("id",))
    account = PrivacyFilter(pure(1.0), lambda _, __: None)
    database = PrivateDatabase(Schema("s", (table,), "t"), {"t": pa.table({"id": [0, 1], "a": [0, 3]})}, bytes(16))
    session = PrivateSession(database, account, SeededNoise(0), "t")
    learned = learn_domains(session, table, None, pure(1.0), 0.0)
    cells = measure_cells(session, table, learned, None, pure(0.25), pure(1.0))
    finer = cells.again(session, table, pure(0.75))
    assert finer.sigmas["a"] == pytest.approx(cells.sigmas["a"] / 4, rel=0.01)
    assert finer.first["a"].tolist() == finer.looks["a"].counts.tolist() != cells.first["a"].tolist()


@pytest.mark.parametrize(("first", "whole"), [(1e-16, 1e-15), (0.001, 1.1)])
def test_noise_that_would_not_be_exact_enough_is_refused(first: float, whole: float) -> None:
    with pytest.raises(InternalError, match="two parts"):
        held(0, 3, first, whole)


def asked_in_between(curator: Curator) -> list[float]:
    """A first part, something that depends on it, and the rest if that came out so."""
    refinable = curator.measure_in_two("cells", [Marginal(("a",))], pure(0.5), pure(2.0))
    reference = np.maximum(refinable.first.values[0], 0.0)
    score = curator.measure("score", [Distances((((("a",), reference),),))], pure(0.5)).values[0]
    return refinable.refine().values[0].tolist() if score[0] >= 0 else score.tolist()


@pytest.mark.parametrize("claim", [1.0, 0.5])
def test_a_neighbour_moves_nothing_but_what_is_paid(claim: float) -> None:
    recorded = RecordingNoise(SeededNoise(1))
    first = asked_in_between(curator_of([0, 1, 1, 3] * 5, pure(3.0), recorded)[0])
    assert [call.head[0] for call in recorded.tape] == ["hold", "add", "refine"]
    replayed = ReplayNoise(recorded.tape, claim=claim)
    neighbour = curator_of(([0, 1, 1, 3] * 5)[:-1], pure(3.0), replayed)[0]
    if claim < 1:
        with pytest.raises(Violation, match="L1 shift"):
            asked_in_between(neighbour)
        return
    assert asked_in_between(neighbour) == first
    assert 2.0 <= replayed.loss <= 2.5 * (1 + 1e-9)
