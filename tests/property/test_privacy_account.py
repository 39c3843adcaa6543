"""Parallel composition against an oracle: random trees of splits and charges, counted anew from the definition."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench_core.errors import BudgetExhaustedError, InternalError
from privbench_core.privacy.budget import Measure, Price, zero
from privbench_core.privacy.filter import PrivacyFilter

LIMIT = Price(Measure.GDP, 1.0, 0.1)


@dataclass
class Oracle:
    """Costs by definition: own charges, plus for each split the dearest part, in amount and in δ."""

    amount: float = 0.0
    delta: float = 0.0
    splits: list[list[Oracle]] = field(default_factory=list)

    def cost(self) -> tuple[float, float]:
        parts = [[part.cost() for part in split] for split in self.splits]
        amount = self.amount + sum(max(a for a, _ in split) for split in parts)
        return amount, self.delta + sum(max(d for _, d in split) for split in parts)


commands = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.sampled_from(["charge", "charge", "charge", "split"]),
        st.integers(1, 40),
        st.integers(0, 4),
    ),
    max_size=40,
)


@given(commands)
def test_spending_is_the_dearest_path_and_never_beyond_the_limit(todo: list[tuple[int, str, int, int]]) -> None:
    charged: list[Price] = []
    accounts = [PrivacyFilter(LIMIT, lambda _, price: charged.append(price))]
    oracles = [Oracle()]
    for place, what, amount, delta in todo:
        account, oracle = accounts[place % len(accounts)], oracles[place % len(oracles)]
        if what == "split":
            parts = 1 + amount % 3
            accounts += account.split(parts)
            oracle.splits.append([Oracle() for _ in range(parts)])
            oracles += oracle.splits[-1]
            continue
        price = Price(Measure.GDP, amount / 64, delta / 64)
        before, number = oracles[0].cost(), len(charged)
        oracle.amount, oracle.delta = oracle.amount + price.amount, oracle.delta + price.delta
        after = oracles[0].cost()
        if after[0] > LIMIT.amount * (1 + 1e-9) or after[1] > LIMIT.delta * (1 + 1e-9):
            with pytest.raises(BudgetExhaustedError, match="no row was read"):
                account.charge("too much", price)
            oracle.amount, oracle.delta = oracle.amount - price.amount, oracle.delta - price.delta
            assert len(charged) == number
            assert oracles[0].cost() == before
        else:
            account.charge("fits", price)
            assert charged[-1] == price
        spent = accounts[0].spent
        assert (spent.amount, spent.delta) == pytest.approx(oracles[0].cost(), abs=1e-12)
        assert spent.fits(LIMIT)


def test_two_splits_of_the_same_rows_add_up() -> None:
    account = PrivacyFilter(LIMIT, lambda *_: None)
    for _ in range(2):
        for part in account.split(2):
            part.charge("half", LIMIT.share(0.5))
    assert account.spent.amount == pytest.approx(LIMIT.amount)
    with pytest.raises(BudgetExhaustedError):
        account.charge("more", LIMIT.share(0.01))


def test_currencies_do_not_mix() -> None:
    account = PrivacyFilter(LIMIT, lambda *_: None)
    with pytest.raises(InternalError, match="measures"):
        account.charge("pure", Price(Measure.PURE, 0.1))
    assert account.spent == zero(Measure.GDP)
