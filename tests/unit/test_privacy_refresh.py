"""Refreshes: which one a purchase belongs to, how much may be spent by then, and how many more there can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privbench_core.errors import BudgetExhaustedError
from privbench_core.privacy.budget import Budget, Measure, Price, rho_for
from privbench_core.privacy.ledger.balance import AccountSpend, RefreshLimits
from privbench_core.privacy.ledger.ledger import Entry, Ledger
from privbench_core.spec.model import DecayingRefreshes, EqualRefreshes, RefreshPolicy

PURE, GAUSSIAN = Budget(2.0), Budget(20.0, 1e-8)
STEPS = ("profile/person", "model/person")


def pure(amount: float) -> Price:
    return Price(Measure.PURE, amount)


def open_ledger(lifetime: Budget, policy: RefreshPolicy | None) -> Ledger:
    return Ledger(":memory:", "town", "one row of household", lifetime, policy)


def refresh(ledger: Ledger, price: Price, account: str = "", run: str = "epsilon=1") -> None:
    """Buy both steps for ``price`` together."""
    for step in STEPS:
        ledger.release(ledger.reserve("r", step, run, price.share(0.5), account), "d")


def test_a_refresh_costs_its_share_and_the_next_is_refused_with_the_exact_shortfall() -> None:
    ledger = open_ledger(PURE, EqualRefreshes(0.5, times=3))
    refresh(ledger, pure(0.5))
    ledger.reserve("r", STEPS[0], "epsilon=1", pure(0.3))
    with pytest.raises(BudgetExhaustedError) as refused:
        ledger.reserve("r", STEPS[1], "epsilon=1", pure(0.45))
    said = str(refused.value)
    assert (
        "model/person: costs 22.5% of the lifetime budget, but privacy.refresh allows 50.0% of it up to refresh 2"
        in said
    )
    assert "and 10.0% is left (costs ε=0.45, ε=0.2 of 1 is left: short by 0.25)" in said
    assert len(ledger.entries()) == 3
    ledger.close()


def test_the_number_of_refreshes_is_kept_even_if_some_were_cheap() -> None:
    ledger = open_ledger(PURE, EqualRefreshes(0.5, times=2))
    refresh(ledger, pure(0.1))
    refresh(ledger, pure(0.9))  # what the first did not use
    with pytest.raises(BudgetExhaustedError, match=r"would begin refresh 3, but privacy\.refresh allows 2"):
        ledger.reserve("r", STEPS[0], "epsilon=1", pure(0.01))
    ledger.reserve("r", "profile/household", "epsilon=1", pure(1e-12))  # never bought before: still refresh 2
    ledger.close()


def test_another_epsilon_belongs_to_the_same_refresh_and_a_killed_step_to_the_one_it_was_in() -> None:
    ledger = open_ledger(PURE, EqualRefreshes(1.0, times=2))
    refresh(ledger, pure(0.3))
    refresh(ledger, pure(0.3), run="epsilon=2")
    assert ledger.spent().refresh == 1
    ledger.reserve("r", STEPS[0], "epsilon=1", pure(0.1))  # killed
    assert ledger.spent().refresh == 1
    refresh(ledger, pure(0.3))
    spent = ledger.spent()
    assert (spent.refresh, spent.refresh_of([("epsilon=2", STEPS[0])]), spent.refresh_of([])) == (2, 2, 2)
    assert spent.refresh_of([("epsilon=1", STEPS[0])]) == 3
    ledger.close()


def summed(entries: Iterable[Entry]) -> AccountSpend:
    """What the entries of one account add up to."""
    entries = tuple(entries)
    pure_prices = [entry.price for entry in entries if entry.price.measure is Measure.PURE]
    bought = Counter((entry.run, entry.step) for entry in entries if entry.state == "released")
    delta = sum(entry.price.delta for entry in entries)
    only = len(pure_prices) == len(entries) and delta == 0
    return AccountSpend(
        only, sum(p.amount for p in pure_prices), sum(entry.price.rho for entry in entries), delta, bought
    )


@pytest.mark.parametrize("last", [pure(0.25), Price(Measure.GDP, 0.5), Price(Measure.GDP, 0.5, 1e-10)])
def test_the_store_sums_up_what_the_entries_say(last: Price) -> None:
    ledger = open_ledger(GAUSSIAN, None)
    assert ledger.spent() == summed(())
    for account in ("", "2027"):
        for run in ("epsilon=1", "epsilon=1", "epsilon=2"):
            refresh(ledger, pure(0.5), account, run)
        ledger.reserve("r", STEPS[0], "epsilon=1", pure(0.125), account)  # killed
    refresh(ledger, last, "2027")
    for account in ("", "2027", "nobody's"):
        found, expected = ledger.spent(account), summed(ledger.entries(account))
        assert (found.pure, found.bought) == (expected.pure, expected.bought)
        sums = (expected.epsilon, expected.rho, expected.delta)
        assert (found.epsilon, found.rho, found.delta) == pytest.approx(sums, rel=1e-12)
    ledger.close()


def test_accounts_are_refreshed_apart() -> None:
    ledger = open_ledger(PURE, EqualRefreshes(0.5, times=1))
    refresh(ledger, pure(0.5))
    refresh(ledger, pure(0.5), "2027")
    for account in ("", "2027"):
        with pytest.raises(BudgetExhaustedError, match="allows 1"):
            ledger.reserve("r", STEPS[0], "epsilon=1", pure(0.1), account)
    ledger.close()


def test_gaussian_prices_are_compared_in_rho() -> None:
    delta = GAUSSIAN.delta - GAUSSIAN.threshold_delta
    each = Price(Measure.GDP, rho_for(3.0, delta))
    ledger = open_ledger(GAUSSIAN, EqualRefreshes(3.0, times=4))
    for _ in range(2):
        refresh(ledger, each)
    with pytest.raises(BudgetExhaustedError, match=r"costs [\d.]+% of .* up to refresh 3 .*\(costs ρ=.* short by"):
        ledger.require("all", Price(Measure.GDP, each.amount * 1.01), "", [("epsilon=1", STEPS[0])])
    ledger.close()


def test_a_decaying_policy_halves_what_a_refresh_may_cost_and_never_spends_the_whole() -> None:
    ledger = open_ledger(PURE, DecayingRefreshes(0.5))
    refresh(ledger, pure(1.0))
    refresh(ledger, pure(0.5))
    with pytest.raises(BudgetExhaustedError, match=r"allows 87\.5% of it .* of 1\.75 is left"):
        refresh(ledger, pure(0.6))
    assert RefreshLimits(PURE, DecayingRefreshes(0.5)).affordable(summed(()), 1, [pure(0.25)]) == 7
    ledger.close()


def test_a_policy_never_gives_more_than_the_lifetime() -> None:
    ledger = open_ledger(PURE, EqualRefreshes(1.5, times=9))
    refresh(ledger, pure(1.5))
    with pytest.raises(BudgetExhaustedError, match=r"0\.5 of ε=2 is left: short by 0\.25"):
        refresh(ledger, pure(1.5))
    ledger.close()


policies = (
    st.none()
    | st.builds(EqualRefreshes, st.floats(0.05, 2.0), st.integers(1, 8))
    | st.builds(DecayingRefreshes, st.floats(0.05, 0.95))
)


@settings(max_examples=60)
@given(policies, st.sampled_from([PURE, GAUSSIAN]), st.floats(0.1, 1.0), st.integers(0, 3))
def test_the_number_that_is_announced_is_the_number_that_is_let_in(
    policy: RefreshPolicy | None, lifetime: Budget, part: float, before: int
) -> None:
    price = lifetime.total().share(part / 4)
    ledger = open_ledger(lifetime, policy)
    done = 0
    announced = None
    while done < 50:
        if done == before:
            spent = ledger.spent()
            first = spent.refresh_of(("epsilon=1", step) for step in STEPS)
            announced = RefreshLimits(lifetime, policy).affordable(spent, first, [price.share(0.5)] * 2)
        try:
            purchases = [("epsilon=1", step) for step in STEPS]
            ledger.require("a refresh", price, "", purchases)
        except BudgetExhaustedError:
            break
        refresh(ledger, price)
        done += 1
    assert announced is None or announced == done - before
    ledger.close()
