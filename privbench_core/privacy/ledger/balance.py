"""What is spent and left of an account's lifetime budget, and what is said where a price does not fit into it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from privbench_core.privacy.budget import Budget, Measure, Price, epsilon_for
from privbench_core.privacy.ledger.declarations import covers
from privbench_core.privacy.ledger.holds import Hold
from privbench_core.privacy.ledger.refresh_limits import AccountSpend, share_in_words


@dataclass(frozen=True)
class Balance:
    """The spent and the remaining part of a lifetime budget.

    Attributes:
        lifetime: The declared budget.
        spent: The smallest ε (at ``delta``) that all entries are known to satisfy.
        delta: The lifetime's δ; if that does not cover earlier purchases under a larger one, the last declared δ that
            does.
        left: Lifetime ε minus ``spent``: an upper bound on the ε of one more pure release if all entries are pure, an
            approximation otherwise (zCDP costs add up in ρ, not in ε). 0 if the lifetime's δ is too small.
        rho_left: ρ still available for zCDP releases, 0 for a pure lifetime budget.
    """

    lifetime: Budget
    spent: float
    delta: float
    left: float
    rho_left: float


def epsilon_at(spent: AccountSpend, delta: float) -> float:
    """Return the smallest ε at ``delta`` that reservations are known to satisfy; inf if δ does not cover them."""
    pure = spent.epsilon if spent.pure else math.inf
    if not covers(delta, spent.delta):
        return pure
    return min(pure, epsilon_for(spent.rho, delta - Budget(1.0, delta).threshold_delta) if spent.rho else 0.0)


def shortfall(what: str, price: Price, balance: Balance, thresholds: float) -> str:
    """Return why the lifetime budget cannot pay ``price``, with the shortfall.

    Args:
        what: Its purpose.
        price: The price.
        balance: Of the account.
        thresholds: δ that the account has spent on stability thresholds.
    """
    life = balance.lifetime
    if life.delta == 0 and price.measure is not Measure.PURE:
        return f"{what}: costs {price}, but the lifetime budget is pure (delta 0). Run with delta 0."
    if balance.delta != life.delta:
        return (
            f"{what}: costs {price}, but the lifetime's delta {life.delta:g} does not cover what was bought under"
            f" {balance.delta:g}. Put privacy.lifetime.delta back."
        )
    if life.delta == 0:
        short = price.amount - balance.left
        return (
            f"{what}: costs {price.amount / life.epsilon:.1%} of the lifetime budget ({price}), and"
            f" {balance.left:.6g} of ε={life.epsilon:g} is left: short by {short:.6g}. Publish what was released"
            " before, or run at a smaller ε."
        )
    cap = life.total().amount
    short = max(0.0, price.rho - balance.rho_left)
    spent = f"δ={thresholds:.2g} of the {life.threshold_delta:.2g} for thresholds is spent"
    lacking = f"short by {short:.6g}" if short else spent
    threshold = f", δ={price.delta:.2g}" if price.delta else ""
    cost = f"{price} (ρ={price.rho:.6g})" if price.measure is Measure.PURE else f"ρ={price.rho:.6g}{threshold}"
    return (
        f"{what}: costs {share_in_words(price.rho, cap)} of the lifetime budget, and"
        f" {share_in_words(balance.rho_left, cap)} of it is left (costs {cost}, ρ={balance.rho_left:.6g} of"
        f" {cap:.6g} is left: {lacking}; the lifetime is ε={life.epsilon:g}, δ={life.delta:g}). Publish what was"
        " released before, or run at a smaller ε."
    )


def shortfall_beside_holds(held: Sequence[Hold], what: str, price: Price, balance: Balance) -> str:
    """Return why ``price`` cannot be paid beside what runs that are at work hold."""
    cost, left = share_of(balance.lifetime, price), _share_left(balance)
    others = " and ".join(f"another run holds {share_of(balance.lifetime, hold.left)} since {hold.at}" for hold in held)
    return (
        f"{what}: costs {cost} of the lifetime budget ({price}). {left} of it is not spent, but {others} for what it"
        " has still to buy, and what remains beside that is too little. Nothing was spent for this. Wait until no other"
        " run is at work, then run again: what that run does not buy is free again. Or run at a smaller ε."
    )


def share_of(lifetime: Budget, price: Price) -> str:
    """Return the part of a lifetime budget that a price takes, in per cent."""
    if lifetime.measure is Measure.PURE:
        return share_in_words(price.amount, lifetime.epsilon)
    return share_in_words(price.rho, lifetime.total().amount)


def _share_left(balance: Balance) -> str:
    if balance.lifetime.measure is Measure.PURE:
        return share_in_words(balance.left, balance.lifetime.epsilon)
    return share_in_words(balance.rho_left, balance.lifetime.total().amount)
