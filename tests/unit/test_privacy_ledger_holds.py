"""Holds: what a run has still to buy counts as spent for others, and never lets in more than the lifetime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privbench_core.errors import BudgetExhaustedError
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.spec.model import EqualRefreshes
from tests.helpers.ledgers import Place, raw

ALIVE: set[str] = set()
ONE, BOTH = Budget(1.0), Budget(2.0, 1e-6)
_numbers = count()


def pure(amount: float) -> Price:
    return Price(Measure.PURE, amount)


@pytest.fixture(autouse=True)
def alive() -> Iterator[None]:
    """The marks of processes that are at work."""
    ALIVE.clear()
    ALIVE.update(("first", "second"))
    yield
    ALIVE.clear()


def open_ledger(place: Place, lifetime: Budget = ONE, times: int | None = None) -> Ledger:
    policy = EqualRefreshes(0.5, times=times) if times else None
    return Ledger(place, f"d{next(_numbers)}", "u", lifetime, policy, alive=ALIVE.__contains__)


def test_what_one_run_holds_another_cannot_have(place: Place) -> None:
    with closing(open_ledger(place)) as ledger:
        ledger.hold("the run at ε=0.75", pure(0.75), "one", "first")
        for attempt in (
            lambda: ledger.hold("the run at ε=0.5", pure(0.5), "other", "second"),
            lambda: ledger.reserve("r", "the run at ε=0.5", "run", pure(0.5), purpose="other"),
            lambda: ledger.reserve("r", "the run at ε=0.5", "run", pure(0.5)),
        ):
            with pytest.raises(
                BudgetExhaustedError,
                match=r"the run at ε=0\.5: costs 50\.0% .*100\.0% of it is not spent, but another run has held 75\.0%",
            ) as refused:
                attempt()
            assert "Wait until the other run has ended" in str(refused.value)
        assert ledger.count() == 0
        assert ledger.balance().spent == 0, "what is held is not spent"
        ledger.hold("a small one", pure(0.25), "other", "second")
        assert sorted(hold.left.amount for hold in ledger.held()) == [0.25, 0.75]


def test_what_is_reserved_is_taken_out_of_the_hold(place: Place) -> None:
    with closing(open_ledger(place)) as ledger:
        ledger.hold("run", pure(0.75), "one", "first")
        for _ in range(3):
            ledger.reserve("r", "s", "run", pure(0.25), purpose="one")
        assert ledger.held() == []
        ledger.reserve("r", "s", "run", pure(0.25))
        with pytest.raises(BudgetExhaustedError, match="is left: short by"):
            ledger.reserve("r", "s", "run", pure(0.25), purpose="one")


def test_what_is_not_reserved_is_given_back(place: Place) -> None:
    with closing(open_ledger(place)) as ledger:
        hold = ledger.hold("run", pure(1.0), "one", "first")
        ledger.reserve("r", "s", "run", pure(0.25), purpose="one")
        ledger.end_hold(hold)
        ledger.end_hold(hold)
        ledger.hold("run", pure(0.75), "other", "second")
        assert [entry.price.amount for entry in ledger.entries()] == [0.25]


def test_a_hold_of_a_process_that_is_gone_ends(place: Place) -> None:
    with closing(open_ledger(place)) as ledger:
        ledger.hold("run", pure(1.0), "one", "first")
        ALIVE.remove("first")
        assert ledger.held() == []
        number = ledger.hold("run", pure(1.0), "other", "second")
        ALIVE.add("first")  # a number that is used again: what has ended stays so
        assert [hold.id for hold in ledger.held()] == [number]


def test_runs_that_buy_the_same_do_not_refuse_each_other(place: Place) -> None:
    with closing(open_ledger(place)) as ledger:
        ledger.hold("run", pure(1.0), "same", "first")
        ledger.hold("run", pure(1.0), "same", "second")
        ledger.reserve("r", "s", "run", pure(0.75), purpose="same")
        assert [hold.left.amount for hold in ledger.held()] == [0.25], "taken out of both, and counted once"
        ledger.reserve("r", "t", "run", pure(0.25), purpose="same")


def test_accounts_hold_apart(place: Place) -> None:
    with closing(open_ledger(place)) as ledger:
        ledger.hold("run", pure(1.0), "one", "first", "2026")
        ledger.hold("run", pure(1.0), "other", "second", "2027")
        ledger.reserve("r", "s", "run", pure(1.0))


def test_the_refresh_policy_counts_what_is_held(place: Place) -> None:
    with closing(open_ledger(place, Budget(2.0), times=3)) as ledger:
        ledger.hold("run", pure(0.4), "one", "first", "", [("epsilon=0.4", "s")])
        with pytest.raises(BudgetExhaustedError, match="another run has held"):
            ledger.hold("run", pure(0.2), "other", "second", "", [("epsilon=0.2", "s")])
        ledger.hold("run", pure(0.1), "other", "second", "", [("epsilon=0.1", "s")])


def test_rho_and_delta_are_held_too(place: Place) -> None:
    total = BOTH.total()
    with closing(open_ledger(place, BOTH)) as ledger:
        ledger.hold("run", Price(Measure.GDP, total.amount / 4, total.delta), "one", "first")
        with pytest.raises(BudgetExhaustedError, match="another run has held"):
            ledger.hold("run", Price(Measure.GDP, total.amount / 4, total.delta / 2), "other", "second")
        with pytest.raises(BudgetExhaustedError, match="another run has held"):
            ledger.hold("run", Price(Measure.GDP, total.amount * 0.8), "other", "second")
        ledger.hold("run", Price(Measure.GDP, total.amount / 2), "other", "second")


@pytest.mark.parametrize("table", ["neighbour_relation", "hold", "hold_draw", "hold_end"])
def test_rows_of_holds_and_relations_stay(place: Place, table: str) -> None:
    ledger = Ledger(place, "d", "u", Budget(1.0), relation={"person": {"unit": True}})
    hold = ledger.hold("run", pure(0.5), "one", "first")
    ledger.reserve("r", "s", "run", pure(0.25), purpose="one")
    ledger.end_hold(hold)
    ledger.close()
    assert raw(place, f"select count(*) from {table}") == [(1,)]
    for statement in (f"delete from {table}", f"update {table} set at = ''"):
        with pytest.raises(Exception, match="append only"):
            raw(place, statement)


acts = st.lists(
    st.tuples(st.sampled_from(["hold", "reserve", "end", "kill"]), st.integers(0, 2), st.integers(1, 40)), max_size=30
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=acts)
def test_holds_only_ever_refuse_more(acts: list[tuple[str, int, int]]) -> None:
    """The filter on reservations is as it was: whatever is held, nothing gets in that would not get in without it."""
    with closing(open_ledger(":memory:")) as ledger, closing(open_ledger(":memory:")) as plain:
        holds: dict[int, int] = {}
        for act, who, amount in acts:
            price, purpose = pure(amount / 64), f"purpose {who}"
            with suppress(BudgetExhaustedError):
                if act == "hold" and who not in holds:
                    ALIVE.add(f"mark {who}")
                    holds[who] = ledger.hold("run", price, purpose, f"mark {who}")
                elif act == "reserve":
                    ledger.reserve("r", "s", "run", price, purpose=purpose if who in holds else "")
                    plain.reserve("r", "s", "run", price)
                elif act == "end" and who in holds:
                    ledger.end_hold(holds.pop(who))
                elif act == "kill":
                    ALIVE.discard(f"mark {who}")
            assert ledger.balance() == plain.balance()
            assert ledger.balance().spent <= 1.0
