"""Prices, budgets and plans: what is charged never exceeds what was announced, and nothing is looked at beyond it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr
from scipy.stats import norm

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.registry import codec_for
from privbench_core.errors import BudgetExhaustedError, InternalError, UnsupportedBudgetError
from privbench_core.privacy import budget as budget_module
from privbench_core.privacy.budget import Budget, Measure, Price, delta_for, epsilon_for, rho_for
from privbench_core.privacy.features import Own
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.noise import OpenDPNoise, Sensitivity
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.session import PrivateSession, open_session
from privbench_core.privacy.split_rules import ByValue
from privbench_core.privacy.views import CodedView, HeldRows, ViewSpec
from privbench_core.synthesizers import privbench
from privbench_core.synthesizers.contract import Plan, Step, StepKind
from privbench_core.synthesizers.privbench import PrivBench
from tests.helpers.databases import Database, forum, shop, town
from tests.helpers.noise import SeededNoise
from tests.helpers.plans import EagerSPN, Trace, computing_steps, plan_with, run_step

GAUSSIAN, PURE = Budget(3.0, 1e-6), Budget(3.0)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Marginal]:
    """Every marginal that is evaluated from here on."""
    seen: list[Marginal] = []
    evaluate = Marginal.evaluate

    def watched(self: Marginal, view: CodedView) -> object:
        seen.append(self)
        return evaluate(self, view)

    monkeypatch.setattr(Marginal, "evaluate", watched)
    return seen


@pytest.fixture
def sum_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privbench, "PairwiseSPN", EagerSPN)


def door_with(limit: Price) -> tuple[PrivateSession, PrivacyFilter, list[str]]:
    """A session to a small town with ``limit`` to spend, its account and the labels charged."""
    labels: list[str] = []
    account = PrivacyFilter(limit, lambda label, _: labels.append(label))
    return PrivateSession(town(0).private(), account, SeededNoise(0), "test"), account, labels


def rooms_view() -> ViewSpec:
    """Households by their number of rooms."""
    household = town(0).schema.table("household")
    return ViewSpec("household", {"rooms": (Own("rooms"), Discretizer(codec_for(household.column("rooms"))))})


def test_what_is_expected_is_not_read_before_something_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[list[tuple[str, ...]]] = []
    monkeypatch.setattr(HeldRows, "prepare", lambda _, marginals: heard.append(list(marginals)))
    session, account, _ = door_with(Price(Measure.GDP, 1.0))
    view = session.view(rooms_view())
    view.expect([Marginal(("rooms",))])
    with pytest.raises(BudgetExhaustedError):
        view.measure("too much", [Marginal(())], Price(Measure.GDP, 2.0))
    assert not heard
    assert account.spent.amount == 0
    for _ in range(2):
        view.measure("rows", [Marginal(())], Price(Measure.GDP, 0.1))
    assert heard == [[(), ("rooms",)], [()]]
    with pytest.raises(InternalError):
        view.expect([Marginal(("no such column",))])


@pytest.mark.parametrize("options", [{"beta": 2}, {"beta": 12, "alpha": 0.05}], ids=["pairwise", "histograms"])
@pytest.mark.parametrize("budget", [GAUSSIAN, PURE, Budget(30.0, 1e-6)], ids=["Gaussian", "pure", "rich"])
@pytest.mark.parametrize("make", [town, shop, forum])
@pytest.mark.usefixtures("sum_nodes")
def test_charges_fit_prices_and_prices_fit_the_budget(
    make: Callable[..., Database], budget: Budget, options: dict[str, object]
) -> None:
    database = make(0) if make is forum else make(0, learned=budget.delta > 0)
    plan = plan_with(database.schema, budget, options)
    trace = Trace()
    for step in computing_steps(plan):
        run_step(step, database, SeededNoise(1), trace)
    for step in plan.steps:
        if step.reads:
            assert trace.charges[step.key], f"{step.key} opened the session and asked nothing"
            assert trace.accounts[step.key].spent.fits(step.price)
        else:
            assert step.price.amount == 0
            assert step.key not in trace.accounts
    total = budget.total()
    assert sum(step.price.amount for step in plan.steps) <= total.amount * (1 + 1e-9)
    assert sum(step.price.delta for step in plan.steps) <= total.delta * (1 + 1e-9)
    spent = sum(account.spent.amount for account in trace.accounts.values())
    assert spent >= 0.5 * total.amount, "a plan that leaves much of its budget unspent is a worse benchmark"


def test_a_plan_beyond_its_budget_cannot_be_made() -> None:
    plan = PrivBench().plan(town(0).schema, GAUSSIAN, {})
    dear = [
        replace(step, price=Price(step.price.measure, 2 * step.price.amount)) if step.reads else step
        for step in plan.steps
    ]
    with pytest.raises(InternalError, match="more than its budget"):
        Plan("privbench", GAUSSIAN, tuple(dear))


def test_a_step_without_a_price_cannot_open_the_door() -> None:
    step = Step(("x", "y"), StepKind.MODEL, "y", (), ("household",), Price(Measure.GDP, 0.0), lambda _: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(InternalError, match="exactly if it has a price"):
        Plan("privbench", GAUSSIAN, (step,))


def test_asking_for_more_is_refused_before_the_look(looks: list[Marginal]) -> None:
    limit = Price(Measure.GDP, 0.1)
    session, account, labels = door_with(limit)
    curator = session.view(rooms_view())
    curator.measure("first", [Marginal(("rooms",))], limit.share(0.6))
    assert len(looks) == 1
    with pytest.raises(BudgetExhaustedError, match="no row was read"):
        curator.measure("second", [Marginal(("rooms",))], limit.share(0.6))
    assert len(looks) == 1
    assert labels == ["test/view/first"]
    assert account.spent.amount == pytest.approx(0.06)


def test_every_verb_is_refused_when_nothing_is_left() -> None:
    limit = Price(Measure.GDP, 0.1, 1e-7)
    session, account, _ = door_with(limit)
    curator = session.view(rooms_view())
    curator.measure("all", [Marginal(("rooms",))], limit)
    more = Price(Measure.GDP, 1e-3)
    size = curator.sizes["rooms"]
    distances = Distances(((((("rooms",), np.zeros(size))),),))
    with pytest.raises(BudgetExhaustedError):
        curator.select("choose", distances, more)
    with pytest.raises(BudgetExhaustedError):
        session.discover("household", "colour", more.with_delta(1e-8))
    for part in curator.split(ByValue("rooms", (0,) * (size - 1) + (1,))):
        with pytest.raises(BudgetExhaustedError):
            part.measure("part", [Marginal(("rooms",))], more)
    assert account.spent == limit


def test_parts_of_a_split_cost_what_the_dearest_costs() -> None:
    limit = Price(Measure.GDP, 0.1)
    session, account, labels = door_with(limit)
    curator = session.view(rooms_view())
    size = curator.sizes["rooms"]
    for number, part in enumerate(curator.split(ByValue("rooms", (0,) * (size // 2) + (1,) * (size - size // 2)))):
        part.measure("inside", [Marginal(("rooms",))], limit.share((1 + number) / 2))
    assert account.spent.amount == pytest.approx(limit.amount)
    assert len(labels) == 2


def test_the_parts_of_a_split_are_disjoint_and_complete() -> None:
    session, _, _ = door_with(Price(Measure.GDP, 1e9))
    curator = session.view(rooms_view())
    size = curator.sizes["rooms"]
    price = Price(Measure.GDP, 1e7)  # next to no noise
    whole = curator.measure("whole", [Marginal(("rooms",))], price).values[0]
    parts = [
        part.measure("part", [Marginal(("rooms",))], price).values[0]
        for part in curator.split(ByValue("rooms", (0, 1) * (size // 2) + (1,) * (size % 2)))
    ]
    assert np.allclose(sum(parts), whole, atol=0.5)
    assert not np.any((parts[0] > 0.5) & (parts[1] > 0.5))


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf])
def test_no_price_is_negative_or_endless(amount: float) -> None:
    with pytest.raises(InternalError, match="finite"):
        Price(Measure.PURE, amount)


def test_a_list_of_values_is_not_learned_without_delta() -> None:
    with pytest.raises(UnsupportedBudgetError, match=r"household\.colour.*person\.job"):
        PrivBench().plan(town(0).schema, PURE, {})
    session, account, _ = door_with(Price(Measure.PURE, 1.0))
    with pytest.raises(UnsupportedBudgetError, match="needs delta > 0"):
        session.discover("household", "colour", Price(Measure.PURE, 0.5))
    assert account.spent.amount == 0


class SaysSeven(SeededNoise):
    """Noise whose answer is 7 times the sensitivity, which a row of households moves a count by."""

    def keep(self, site: str, exact: dict[str, int], sensitivity: Sensitivity, *_: object) -> dict[str, int]:
        return dict.fromkeys(sorted(exact)[:2], int(7 * sensitivity.l2))


def test_counts_of_learned_values_are_the_noisy_ones() -> None:
    price = Price(Measure.GDP, 1.0).with_delta(1e-4)
    session = PrivateSession(town(0).private(), PrivacyFilter(price, lambda *_: None), SaysSeven(0), "test")
    found = session.discover("household", "colour", price)
    assert len(found.counts) == 2
    assert set(found.counts.values()) == {7.0}


class RankCoder(Discretizer):
    """Codes that depend on all rows: a unit would move those of everybody after it."""

    def encode(self, values: pa.ChunkedArray) -> np.ndarray:
        return np.argsort(np.argsort(values.to_numpy())) % self.size


@dataclass(frozen=True)
class CutByRows(OrderedCodec):
    """Cells that follow from the rows."""

    def encode(self, values: pa.ChunkedArray) -> np.ndarray:
        return replace(self, cuts=(min(values.to_pylist()), *self.cuts[1:])).encode(values)


def test_the_door_takes_no_coder_that_might_look_at_other_rows() -> None:
    session, account, _ = door_with(Price(Measure.GDP, 0.1))
    discretizer = rooms_view().features["rooms"][1]
    codec = discretizer.codec
    assert isinstance(codec, OrderedCodec)
    stray = CutByRows(codec.grid, codec.nullable, codec.cuts, codec.last)
    for foreign in (RankCoder(codec), Discretizer(stray), codec):
        with pytest.raises(InternalError, match="household/rooms: rows are coded by the discretizers of"):
            session.view(ViewSpec("household", {"rooms": (Own("rooms"), foreign)}))  # type: ignore[dict-item]
    assert account.spent.amount == 0


class SeededOpenDP(SeededNoise):
    """Claims to be secure, as a careless subclass might."""

    secure = True


@pytest.mark.parametrize("noise", [SeededNoise(0), SeededOpenDP(0, secure=True)])
def test_a_durable_ledger_refuses_noise_that_can_be_seeded(tmp_path: object, noise: SeededNoise) -> None:
    ledger = Ledger(f"{tmp_path}/ledger.sqlite", "town", "household", GAUSSIAN)
    with pytest.raises(InternalError, match="OpenDP"):
        open_session(town(0).private(), ledger, noise, release="r", step="s", run="x", price=Price(Measure.GDP, 0.01))
    assert ledger.entries() == []
    ledger.close()


def test_the_door_reserves_before_it_opens_and_writes_down_each_verb(looks: list[Marginal]) -> None:
    ledger = Ledger(":memory:", "town", "household", GAUSSIAN)
    price = Price(Measure.GDP, 0.01)
    session, reservation = open_session(
        town(0).private(), ledger, OpenDPNoise(), release="r", step="s", run="x", price=price
    )
    assert [(e.state, e.price) for e in ledger.entries()] == [("reserved", price)]
    session.view(rooms_view()).measure("rooms", [Marginal(("rooms",))], price)
    assert ledger.charges(reservation) == [("s/view/rooms", price.amount)]
    with pytest.raises(BudgetExhaustedError):
        open_session(
            town(0).private(), ledger, OpenDPNoise(), release="r", step="t", run="x", price=Price(Measure.GDP, 9.0)
        )
    assert len(looks) == 1
    ledger.close()


@pytest.mark.parametrize("price", [Price(Measure.GDP, 0.01, 1e-9), Price(Measure.PURE, 0.25)])
def test_a_door_spends_its_reservation_and_no_more(price: Price) -> None:
    ledger = Ledger(":memory:", "town", "household", GAUSSIAN)
    session, reservation = open_session(
        town(0).private(), ledger, OpenDPNoise(), release="r", step="s", run="x", price=price
    )
    assert session.budget == price
    curator = session.view(rooms_view())
    curator.measure("rooms", [Marginal(("rooms",))], price.share(1))
    for more in (price, price.share(0.01)):
        with pytest.raises(BudgetExhaustedError, match="no row was read"):
            curator.measure("again", [Marginal(("rooms",))], more)
    if price.delta:
        with pytest.raises(BudgetExhaustedError):
            session.discover("household", "colour", Price(price.measure, 1e-12, 2 * price.delta))
    assert [amount for _, amount in ledger.charges(reservation)] == [price.amount]
    ledger.close()


def exact_delta(rho: float, epsilon: float) -> float:
    """δ of Gaussian noise of this ρ, as the integral of ∂δ/∂μ = φ(ε/μ - μ/2), in which nothing cancels."""
    mu = math.sqrt(2 * rho)
    near = [0.9 * mu, 0.99 * mu]  # where nearly all of it lies
    return float(quad(lambda m: norm.pdf(epsilon / m - m / 2), 0, mu, epsabs=0, limit=500, points=near)[0])


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.8, 3.2, 20.0, 1e4])
@pytest.mark.parametrize("delta", [1e-5, 1e-9, 1e-15])
def test_conversion_of_rho_is_sound_and_tight(epsilon: float, delta: float) -> None:
    rho = rho_for(epsilon, delta)
    assert exact_delta(rho, epsilon) == pytest.approx(delta, rel=1e-6)
    assert exact_delta(rho, epsilon) <= delta
    assert delta_for(rho, epsilon) <= delta < delta_for(rho * 1.001, epsilon)
    assert epsilon * (1 - 1e-9) <= epsilon_for(rho, delta) <= epsilon * (1 + 1e-9)


def test_logarithms_of_normal_probabilities_are_exact() -> None:
    points = [*np.linspace(-60, 5, 500), *-np.geomspace(29, 1e100, 100)]
    assert [budget_module._log_normal(float(x)) for x in points] == pytest.approx(
        log_ndtr(points), rel=1e-14, abs=1e-15
    )


def test_conversion_where_floats_cancel_is_sound() -> None:
    assert exact_delta(rho_for(1e-6, 1e-15), 1e-6) <= 1e-15
    assert delta_for(0.0, 1.0) == 0
    assert epsilon_for(1e-12, 1e-5) < 1e-300, "that little ρ has less than δ at ε = 0"


def test_conversion_is_monotone() -> None:
    rhos = np.geomspace(1e-6, 10, 40)
    for epsilon in (0.1, 1.0, 10.0):
        deltas = [delta_for(float(rho), epsilon) for rho in rhos]
        assert np.all(np.diff(deltas) >= 0)
    for rho in (1e-4, 0.1):
        deltas = [delta_for(rho, float(e)) for e in np.linspace(0.1, 20, 40)]
        assert np.all(np.diff(deltas) <= 0)


@pytest.mark.parametrize("budget", [Budget(0.8, 1e-9), Budget(20.0, 1e-5)])
def test_a_budget_splits_its_delta(budget: Budget) -> None:
    total = budget.total()
    assert total.measure is Measure.GDP
    assert exact_delta(total.amount, budget.epsilon) + total.delta <= budget.delta
    assert delta_for(total.amount, budget.epsilon) + total.delta <= budget.delta * (1 + 1e-9)
    assert 0 < total.delta == budget.threshold_delta
    swap = budget.replace_one()
    assert swap.epsilon == 2 * budget.epsilon
    assert swap.delta == pytest.approx(min(1.0, budget.delta * (1 + math.exp(budget.epsilon))))


def test_pure_budgets_are_spent_as_they_are() -> None:
    assert PURE.total() == Price(Measure.PURE, 3.0)
    assert PURE.replace_one() == Budget(6.0)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 2.0, 20.0])
def test_a_pure_price_covers_the_worst_mechanism_of_its_epsilon(epsilon: float) -> None:
    """Randomized response is μ-GDP for exactly μ = Φ⁻¹(p) - Φ⁻¹(1 - p)."""
    mu = -2 * norm.ppf(1 / (1 + math.exp(epsilon)))
    assert mu**2 / 2 <= Price(Measure.PURE, epsilon).rho
    if epsilon < 0.1:
        assert Price(Measure.PURE, epsilon).rho == pytest.approx(mu**2 / 2, rel=1e-3)


def test_only_the_proven_queries_and_rules_are_let_through() -> None:
    class Cheap(Marginal):
        def moves(self, view: CodedView) -> tuple[float, float]:
            return 1e-9, 1e-18

    class ByAverage:
        parts = 2

        def assign(self, codes: dict[str, np.ndarray]) -> np.ndarray:
            return (codes["rooms"] > codes["rooms"].mean()).astype(np.int64)

    session, account, labels = door_with(Price(Measure.GDP, 1.0))
    curator = session.view(rooms_view())
    with pytest.raises(InternalError, match="only the queries"):
        curator.measure("cheap", [Cheap(("rooms",))], Price(Measure.GDP, 1e-6))
    with pytest.raises(InternalError, match="by the rules"):
        curator.split(ByAverage())
    assert labels == []
    assert account.spent.amount == 0
