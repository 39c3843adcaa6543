"""The account of a spec: what is spent, how many refreshes there were, how many more it can pay for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from privbench_core.errors import BudgetExhaustedError
from privbench_core.pipeline import run_name
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
class Cost:
    """What some steps that are still to be bought cost.

    Attributes:
        prices: By run and step, as the ledger calls them.
        share: Of the lifetime budget, in [0, 1] or above.
        times: How often they could be paid for, one time after the other.
        refusal: Why they cannot be paid for even once, with the exact shortfall; None if they can.
    """

    prices: Mapping[Purchase, Price]
    share: float
    times: int
    refusal: str | None

    @classmethod
    def of(cls, spec: Spec, ledger: Ledger, what: str, steps: Iterable[tuple[Plan, Iterable[Step]]]) -> Cost:
        """Return what some steps of each plan cost the spec's cohort; ``what`` is what a refusal calls them."""
        prices = {
            (run_name(plan.budget.epsilon), step_name(step.key)): step.price
            for plan, chosen in steps
            for step in chosen
            if step.reads
        }
        share = lifetime_share(ledger.lifetime, prices.values())
        if not prices:
            return cls(prices, share, 0, None)
        measure = next(iter(prices.values())).measure
        try:
            ledger.require(what, sum(prices.values(), start=zero(measure)), spec.cohort, prices)
        except BudgetExhaustedError as error:
            return cls(prices, share, 0, str(error))
        spent, limits = ledger.spent(spec.cohort), RefreshLimits(ledger.lifetime, ledger.policy)
        times = limits.affordable(spent, spent.refresh_of(prices), [*prices.values()])
        return cls(prices, share, max(1, times), None)

    def in_words(self) -> str:
        """Return the share and how many times: "costs 4.6% of the lifetime, about 17 more possible"."""
        if not self.prices:
            return "costs nothing"
        if self.refusal is not None:
            return f"costs {self.share:.1%} of the lifetime budget, which is more than is left"
        return f"costs {self.share:.1%} of the lifetime budget, about {self.times:,} more possible"


@dataclass(frozen=True)
class AccountStatus:
    """The account of a spec's cohort, as of now.

    Attributes:
        entries: Its reservations, oldest first.
        balance: What is spent and left of it.
        others: What is spent of the accounts of other cohorts, by name.
        epsilons: How many ε a refresh has.
        refresh: Number of the last refresh that was begun, 0 before the first release.
        whole: Cost of one refresh of all ε, if nothing of it was bought before.
        price: The sum of this.
        epsilon: The ε that this price alone amounts to, at the lifetime's δ.
        neighbours: Other databases with accounts of their own in the same ledger.
        declared: All lifetime budgets that were declared, oldest first.
        held: What runs that are at work hold of the account.
    """

    entries: tuple[Entry, ...]
    balance: Balance
    others: Mapping[str, Balance]
    epsilons: int
    refresh: int
    whole: Cost
    price: Price
    epsilon: float
    neighbours: tuple[OtherDatabase, ...]
    declared: tuple[DeclaredLifetime, ...]
    held: tuple[Hold, ...]

    @property
    def left(self) -> int:
        """How many more refreshes of all ε can be paid for, one after the other."""
        return self.whole.times

    @property
    def raises(self) -> tuple[tuple[DeclaredLifetime, DeclaredLifetime], ...]:
        """Declared lifetime budgets that allow more than the one before, each after that one."""
        return tuple((before, after) for before, after in pairwise(self.declared) if after.raises(before))

    def raises_in_words(self) -> list[str]:
        """Say that the lifetime budget was raised, when, and from what; nothing if it never was."""
        return [
            f"{WARNING} privacy.lifetime was raised on {_day(after)}, from {_in_words(before)} (declared on"
            f" {_day(before)}) to {_in_words(after)}: the earlier promise to these people no longer holds."
            for before, after in self.raises
        ]

    def held_in_words(self) -> list[str]:
        """Return what runs at work hold; nothing if there are none."""
        return [
            f"A run begun at {hold.at} holds {share_of(self.balance.lifetime, hold.left)} of the lifetime budget"
            f" ({hold.left}) for steps it has yet to pay for; other runs can use only the rest."
            for hold in self.held
        ]

    def in_words(self) -> list[str]:
        """Say what a refresh costs, and how many more there can be: a warning where that is the last one, or none."""
        several = f"all {self.epsilons} ε" if self.epsilons > 1 else "the one ε"
        gdp = self.price.measure is Measure.GDP
        detail = f"; ε={self.epsilon:.4g} at δ={self.balance.lifetime.delta:.2g}" if gdp else ""
        cost = f"A refresh of {several} costs {self.whole.share:.1%} of the lifetime budget ({self.price}{detail})"
        if self.whole.refusal is not None:
            return [f"{cost}.", f"{WARNING} the next refresh will be refused: {self.whole.refusal}"]
        if self.left == 1:
            number = self.refresh + 1
            return [f"{cost}.", f"{WARNING} the next refresh (number {number}) is the last that is affordable."]
        so_far = f" Begun so far: {self.refresh:,}." if self.refresh else ""
        return [f"{cost}. {self.left:,} more such refreshes can be paid for.{so_far}"]

    def others_in_words(self) -> list[str]:
        """Return what other cohorts have spent, and what it means; nothing if there are none."""
        if not self.others:
            return []
        each = ", ".join(f"{name or 'no name'} ε={balance.spent:.4g}" for name, balance in self.others.items())
        return [f"Other cohorts, declared to be other people: {each}. For a person who is in several, the ε add up."]

    def neighbours_in_words(self, database: str) -> list[str]:
        """Name the other databases of the ledger, so that a change of name is noticed; nothing if there are none."""
        if not self.neighbours:
            return []
        each = ", ".join(
            f"{other.database} ({other.entries} paid steps, the last on {other.last.partition('T')[0]})"
            for other in self.neighbours
        )
        return [
            f"Other databases in the same ledger, with separate budgets: {each}.",
            f"If {database} is one of them under a new name, restore the old name: else the same people pay twice.",
        ]


def standing(spec: Spec, ledger: Ledger, plans: Iterable[Plan]) -> AccountStatus:
    """Return where the account of ``spec`` stands in ``ledger``, given the plan of every ε."""
    plans = tuple(plans)
    everything = ledger.entries()
    whole = Cost.of(spec, ledger, "all ε", ((plan, plan.steps) for plan in plans))
    price = sum(whole.prices.values(), start=zero(plans[0].budget.measure))
    others = dict.fromkeys(entry.account for entry in everything if entry.account != spec.cohort)
    return AccountStatus(
        entries=tuple(entry for entry in everything if entry.account == spec.cohort),
        balance=ledger.balance(spec.cohort),
        others={name: ledger.balance(name) for name in others},
        epsilons=len(plans),
        refresh=ledger.spent(spec.cohort).refresh,
        whole=whole,
        price=price,
        epsilon=_epsilon(ledger.lifetime, price),
        neighbours=tuple(ledger.others()),
        declared=ledger.lifetimes(),
        held=tuple(ledger.held(spec.cohort)),
    )


def lifetime_share(lifetime: Budget, prices: Iterable[Price]) -> float:
    """Return the part of the lifetime budget that some prices take: of ε if the lifetime is pure, of ρ otherwise."""
    if lifetime.measure is Measure.PURE:
        return sum(price.amount for price in prices) / lifetime.epsilon
    return sum(price.rho for price in prices) / lifetime.total().amount


def _day(declared: DeclaredLifetime) -> str:
    return declared.at.partition("T")[0]


def _in_words(declared: DeclaredLifetime) -> str:
    return f"ε={declared.budget.epsilon:g}, δ={declared.budget.delta:g}"


def _epsilon(lifetime: Budget, price: Price) -> float:
    """Return what ``price`` alone amounts to, as ε at the lifetime's δ."""
    if price.measure is Measure.PURE or lifetime.delta == 0:
        return price.amount
    return epsilon_for(price.rho, lifetime.delta - lifetime.threshold_delta)
