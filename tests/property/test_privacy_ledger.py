"""The ledger against an oracle: any sequence of prices, and the lifetime holds."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from privbench_core.errors import BudgetExhaustedError
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger.ledger import Ledger
from tests.helpers.ledgers import Place, new_place

numbers = count()

amounts = st.floats(0, 1.5) | st.floats(0, 0.05)
prices = st.lists(
    st.builds(Price, st.just(Measure.PURE), amounts)
    | st.builds(Price, st.just(Measure.GDP), amounts, st.sampled_from([0.0, 0.0, 1e-10, 1e-9, 1e-8])),
    max_size=25,
)
lifetimes = st.sampled_from([Budget(2.0), Budget(2.0, 1e-6), Budget(0.5, 1e-6), Budget(8.0, 1e-9)])


def guaranteed(entries: list[Price], lifetime: Budget) -> bool:
    """Whether what was let in satisfies the lifetime, by one argument or the other."""
    pure = all(price.measure is Measure.PURE and price.delta == 0 for price in entries)
    if pure and sum(price.amount for price in entries) <= lifetime.epsilon * (1 + 1e-6):
        return True
    if lifetime.delta == 0:
        return False
    rho = sum(price.amount**2 / 2 if price.measure is Measure.PURE else price.amount for price in entries)
    failing = sum(price.delta for price in entries)
    if rho == 0:
        return failing <= lifetime.delta
    mu = math.sqrt(2 * rho)
    gaussian = norm.cdf(mu / 2 - lifetime.epsilon / mu) - math.exp(lifetime.epsilon) * norm.cdf(
        -mu / 2 - lifetime.epsilon / mu
    )
    return bool(gaussian + failing <= lifetime.delta)


@pytest.fixture(params=["memory", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """In memory, because hundreds of entries in a file would measure the disk."""
    if request.param == "memory":
        return ":memory:"
    return new_place(request.param, tmp_path, lambda: str(request.getfixturevalue("postgres")))


def fresh_name() -> str:
    """A database that the ledger has not met."""
    return f"d{next(numbers)}"


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(asked=prices, lifetime=lifetimes)
def test_no_sequence_of_prices_gets_beyond_the_lifetime(asked: list[Price], lifetime: Budget, place: Place) -> None:
    ledger = Ledger(place, fresh_name(), "u", lifetime)
    let_in: list[Price] = []
    for number, price in enumerate(asked):
        before = ledger.balance()
        try:
            ledger.reserve(f"r{number}", "step", "run", price)
        except BudgetExhaustedError:
            assert ledger.balance() == before
        else:
            let_in.append(price)
        assert guaranteed(let_in, lifetime)
        assert ledger.balance().spent <= lifetime.epsilon * (1 + 1e-6)
    assert [entry.price for entry in ledger.entries()] == let_in
    ledger.close()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(parts=st.lists(st.integers(1, 20), max_size=30))
def test_pure_prices_are_refused_exactly_when_they_do_not_fit(parts: list[int], place: Place) -> None:
    ledger = Ledger(place, fresh_name(), "u", Budget(1.0))
    spent = 0
    for part in parts:
        try:
            ledger.reserve("r", "s", "run", Price(Measure.PURE, part / 64))
        except BudgetExhaustedError:
            assert spent + part > 64
        else:
            spent += part
            assert spent <= 64
    assert ledger.balance().spent == spent / 64
    ledger.close()


acts = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.sampled_from(["reserve", "release", "look"])),
    min_size=12,
    max_size=30,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(acts=acts, lifetime=lifetimes)
def test_whoever_keeps_up_knows_what_a_newcomer_reads(
    acts: list[tuple[int, int, str]], lifetime: Budget, tmp_path: Path, place: Place
) -> None:
    name = fresh_name()
    there = tmp_path / f"{name}.sqlite" if place == ":memory:" else place
    both = [Ledger(there, name, "u", lifetime) for _ in range(2)]
    reserved: list[int] = []
    for number, (who, what, act) in enumerate(acts):
        ledger, account = both[who], "" if what else "cohort"
        if act == "release" and reserved:
            ledger.release(reserved.pop(number % len(reserved)), "digest")
        elif act == "reserve":
            price = Price(Measure.PURE if what == 1 else Measure.GDP, number / 64, 1e-10 * (what == 2))
            with suppress(BudgetExhaustedError):
                reserved.append(ledger.reserve("r", f"step {what}", f"run {number % 2}", price, account))
        else:
            ledger.spent(account)
    both.append(Ledger(there, name, "u", lifetime))
    for account in ("", "cohort"):
        entries = both[2].entries(account)
        assert both[0].spent(account) == both[1].spent(account) == both[2].spent(account)
        assert both[0].balance(account) == both[1].balance(account) == both[2].balance(account)
        spent = both[0].spent(account)
        assert spent.rho == pytest.approx(sum(entry.price.rho for entry in entries))
        assert spent.bought == Counter((entry.run, entry.step) for entry in entries if entry.state == "released")
    assert both[0].count() == len(both[2].entries())
    for ledger in both:
        ledger.close()
