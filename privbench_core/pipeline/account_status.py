"""Where the account of a spec stands: what is spent, how many refreshes there were, how many more it can pay for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from privbench_core.errors import BudgetExhaustedError
from privbench_core.pipeline.plans import run_name
from privbench_core.pipeline.record import step_name
from privbench_core.privacy.budget import Budget, Measure, Price, epsilon_for, zero
from privbench_core.privacy.ledger.balance import Balance, Purchase, RefreshLimits, share_of
from privbench_core.privacy.ledger.declarations import DeclaredLifetime
from privbench_core.privacy.ledger.holds import Hold
from privbench_core.privacy.ledger.ledger import Entry, Ledger, OtherDatabase
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, Step

WARNING = "Warning:"


@dataclass(frozen=True)
class AccountStatus:
    """The account of a spec's cohort, as of now.

    Attributes:
        entries: Its reservations, oldest first.
        balance: What is spent and left of it.
        others: What is spent of the accounts of other cohorts, by name.
        epsilons: How many ε a refresh has.
        refresh: Number of the last refresh that was begun, 0 before the first release.
        price: Of one refresh of all ε, if nothing of it was bought before: the sum of their plans.
        epsilon: The ε that this price alone amounts to, at the lifetime's δ.
        left: How many more refreshes of all ε can be paid for, one after the other.
        refusal: Why the next one cannot, with the exact shortfall; None if it can.
        neighbours: Other databases with accounts of their own in the same ledger.
        declared: All lifetime budgets that were declared, oldest first.
        held: What runs that are at work hold of the account.
    """

    entries: tuple[Entry, ...]
    balance: Balance
    others: Mapping[str, Balance]
    epsilons: int
    refresh: int
    price: Price
    epsilon: float
    left: int
    refusal: str | None
    neighbours: tuple[OtherDatabase, ...]
    declared: tuple[DeclaredLifetime, ...]
    held: tuple[Hold, ...]

    @property
    def raises(self) -> tuple[tuple[DeclaredLifetime, DeclaredLifetime], ...]:
        """Declared lifetime budgets that allow more than the one before, each after that one."""
        return tuple((before, after) for before, after in pairwise(self.declared) if after.raises(before))

    def raises_in_words(self) -> list[str]:
        """That the lifetime budget was raised, when, and from what; nothing if it never was."""
        return [
            f"{WARNING} privacy.lifetime was raised on {_day(after)}, from {_in_words(before)} (declared on"
            f" {_day(before)}) to {_in_words(after)}: what people were promised before no longer holds."
            for before, after in self.raises
        ]

    def held_in_words(self) -> list[str]:
        """What runs at work hold; nothing if there are none."""
        return [
            f"A run at work since {hold.at} holds {share_of(self.balance.lifetime, hold.left)} of the lifetime budget"
            f" ({hold.left}) for what it has still to buy; other runs can use only the rest."
            for hold in self.held
        ]

    def in_words(self) -> list[str]:
        """What a refresh costs, and how many more there can be: a warning where that is the last one, or none."""
        several = f"all {self.epsilons} ε" if self.epsilons > 1 else "the one ε"
        share = lifetime_share(self.balance.lifetime, [self.price])
        zcdp = self.price.measure is Measure.ZCDP
        detail = f"; ε={self.epsilon:.4g} at δ={self.balance.lifetime.delta:.2g}" if zcdp else ""
        cost = f"A refresh of {several} costs {share:.1%} of the lifetime budget ({self.price}{detail})"
        if self.refusal is not None:
            return [f"{cost}.", f"{WARNING} the next refresh will be refused: {self.refusal}"]
        if self.left == 1:
            number = self.refresh + 1
            return [f"{cost}.", f"{WARNING} the next refresh (number {number}) is the last that is affordable."]
        so_far = f" Begun so far: {self.refresh:,}." if self.refresh else ""
        return [f"{cost}. {self.left:,} more such refreshes can be paid for.{so_far}"]

    def others_in_words(self) -> list[str]:
        """What other cohorts have spent, and what it means; nothing if there are none."""
        if not self.others:
            return []
        each = ", ".join(f"{name or 'no name'} ε={balance.spent:.4g}" for name, balance in self.others.items())
        return [f"Other cohorts, declared to be other people: {each}. For a person who is in several, the ε add up."]

    def neighbours_in_words(self, database: str) -> list[str]:
        """Which other databases the ledger holds, so that a change of name is noticed; nothing if there are none."""
        if not self.neighbours:
            return []
        each = ", ".join(
            f"{other.database} ({other.entries} paid steps, the last on {other.last.partition('T')[0]})"
            for other in self.neighbours
        )
        return [
            f"Other databases in the same ledger, whose budgets are apart: {each}.",
            f"If {database} was one of them, under an earlier name: put that back, or its people pay a second time.",
        ]


def standing(spec: Spec, ledger: Ledger, plans: Iterable[Plan]) -> AccountStatus:
    """Where the account of ``spec`` stands in ``ledger``.

    Args:
        spec: The spec; its cohort is the account.
        ledger: Of the database.
        plans: The plan of every ε of a refresh.
    """
    plans = tuple(plans)
    everything = ledger.entries()
    bought = purchases_of((plan, plan.steps) for plan in plans)
    price = sum(bought.values(), start=zero(plans[0].budget.measure))
    left, refusal = affordable(spec, ledger, "all ε", bought)
    others = dict.fromkeys(entry.account for entry in everything if entry.account != spec.cohort)
    return AccountStatus(
        entries=tuple(entry for entry in everything if entry.account == spec.cohort),
        balance=ledger.balance(spec.cohort),
        others={name: ledger.balance(name) for name in others},
        epsilons=len(plans),
        refresh=ledger.spent(spec.cohort).refresh,
        price=price,
        epsilon=_epsilon(ledger.lifetime, price),
        left=left,
        refusal=refusal,
        neighbours=tuple(ledger.others()),
        declared=ledger.lifetimes(),
        held=tuple(ledger.held(spec.cohort)),
    )


def purchases_of(steps: Iterable[tuple[Plan, Iterable[Step]]]) -> dict[Purchase, Price]:
    """The price of each step that looks at private rows, as the ledger calls it: by run and step."""
    return {
        (run_name(plan.budget.epsilon), step_name(step.key)): step.price
        for plan, chosen in steps
        for step in chosen
        if step.reads
    }


def affordable(spec: Spec, ledger: Ledger, what: str, bought: Mapping[Purchase, Price]) -> tuple[int, str | None]:
    """How often some steps could be paid for, one time after the other.

    Args:
        spec: The spec; its cohort is the account.
        ledger: Of the database.
        what: What is to be bought, as a refusal calls it.
        bought: The price of each step at each ε.

    Returns:
        How often, and why not once more if that is never; None if it can be.
    """
    if not bought:
        return 0, None
    measure = next(iter(bought.values())).measure
    try:
        ledger.require(what, sum(bought.values(), start=zero(measure)), spec.cohort, bought)
    except BudgetExhaustedError as error:
        return 0, str(error)
    spent = ledger.spent(spec.cohort)
    first = spent.refresh_of(bought)
    return max(1, RefreshLimits(ledger.lifetime, ledger.policy).affordable(spent, first, [*bought.values()])), None


def lifetime_share(lifetime: Budget, prices: Iterable[Price]) -> float:
    """The part of the lifetime budget that some prices take: of ε if the lifetime is pure, of ρ otherwise."""
    if lifetime.measure is Measure.PURE:
        return sum(price.amount for price in prices) / lifetime.epsilon
    return sum(price.rho for price in prices) / lifetime.total().amount


def _day(declared: DeclaredLifetime) -> str:
    return declared.at.partition("T")[0]


def _in_words(declared: DeclaredLifetime) -> str:
    return f"ε={declared.budget.epsilon:g}, δ={declared.budget.delta:g}"


def _epsilon(lifetime: Budget, price: Price) -> float:
    """What ``price`` alone amounts to, as ε at the lifetime's δ."""
    if price.measure is Measure.PURE or lifetime.delta == 0:
        return price.amount
    return epsilon_for(price.rho, lifetime.delta - lifetime.threshold_delta)
