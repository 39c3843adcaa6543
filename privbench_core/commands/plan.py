"""``privbench plan``: steps, prices and guarantee, before any row is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from privbench_core.commands.lifetime import balance_after, cohort_as_data, refreshes_as_data, standing_of
from privbench_core.commands.terminal import finite, print_json, say, show
from privbench_core.pipeline.account_status import AccountStatus
from privbench_core.pipeline.run import plan_for
from privbench_core.privacy.budget import Budget, zero
from privbench_core.privacy.reach import find_reaches
from privbench_core.schema.checks import unparsed_checks
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, Step


def show_plans(path: Path, epsilon: float | None, *, as_json: bool) -> None:
    """Print the plan at ``epsilon``, or at each ε of the spec."""
    spec = load_spec(path)
    plans = [plan_for(spec, e) for e in ((epsilon,) if epsilon is not None else spec.epsilons)]
    account, unenforced = standing_of(spec), unparsed_checks(spec.schema)
    private = spec.schema.private_tables
    inside = [key.name for table in private for key in table.foreign_keys if key.same_unit]
    reaches = find_reaches(spec.schema)
    if as_json:
        print_json({
            "database": spec.schema.name,
            "unit": unit_in_words(spec),
            "cohort": cohort_as_data(spec, account),
            "unenforced_checks": list(unenforced),
            "refreshes": refreshes_as_data(spec, account),
            "keys_inside_of_a_unit": inside,
            "stability_above_one": {reach.subject: reach.stability for reach in reaches},
            "plans": [_as_data(spec, account, plan) for plan in plans],
        })  # fmt: skip
        return
    currency = str(zero(plans[0].budget.measure)).partition("=")[0]
    title = f"{spec.schema.name}: what {plans[0].synthesizer} will do, and the price of each step in {currency}"
    headers = ["stage", "table or key", *(f">ε={plan.budget.epsilon:g}" for plan in plans)]
    rows = [
        [str(step.kind), subject(step), *(_price(plan, plan.step(step.key)) for plan in plans)]
        for step in plans[0].steps
    ]
    show(title, headers, rows, footer=["budget", "", *(f"{plan.budget.total().amount:.3g} 100%" for plan in plans)])
    show(
        f"What it guarantees, for {unit_in_words(spec)}",
        [">run", ">add or remove one", ">replace one", ">lifetime ε spent after the run"],
        [_terms(spec, account, plan) for plan in plans],
    )
    life, spent = account.balance.lifetime, f"ε={account.balance.spent:.4g} at δ={account.balance.delta:.2g}"
    of_cohort = f" of cohort {spec.cohort}" if spec.cohort else ""
    say(f"Lifetime budget{of_cohort}: {budget_in_words(life)}, of which {spent} is spent. No row was read.")
    tell_refreshes(spec, account)
    if not account.entries:  # before the first release a new name is put back at no cost
        tell_neighbours(spec, account)
    say("Steps that were released before, from the same rows, are not paid for again.")
    if inside:
        say(f"Keys that stay inside of one unit; rows that break this are not looked at: {', '.join(inside)}")
    if reaches:
        say("Noise is scaled up where one unit moves more than its own rows, by the declared bounds on its keys:")
        for reach in reaches:
            say(f"  {reach.subject} {reach.stability:,.0f} times: {reach.why}")
        say("Where such a key refers to a row of the same unit, declare same_unit: true, and it costs nothing.")
        say("Where it may be NULL, on_unit_removed: set null leaves only what is measured along it to pay.")
        say("Where the rows of one unit have fewer children than the product says, declare max_children_per_unit.")
    if unenforced:
        say(f"Checks that are kept in the DDL but not enforced while sampling: {', '.join(unenforced)}")


def tell_refreshes(spec: Spec, account: AccountStatus) -> None:
    """Print the refresh policy, what a refresh costs, how many more there can be, and what other cohorts spent."""
    if spec.refresh is not None:
        say(f"Refresh policy: {spec.refresh.in_words()}")
    for line in (*account.in_words(), *account.others_in_words()):
        say(line)


def tell_neighbours(spec: Spec, account: AccountStatus) -> None:
    """Print which other databases have accounts in the same ledger."""
    for line in account.neighbours_in_words(spec.schema.name):
        say(line)


def unit_in_words(spec: Spec) -> str:
    """What one unit of privacy is."""
    return f"one row of {spec.schema.unit} and all rows that depend on it"


def budget_in_words(budget: Budget) -> str:
    """ε, and δ if there is one."""
    return f"ε={budget.epsilon:.4g}" + (f", δ={budget.delta:.2g}" if budget.delta else ", δ=0")


def subject(step: Step) -> str:
    """The table, key or part that a step is about."""
    return "/".join(step.key[1:]) or step.table


def _price(plan: Plan, step: Step) -> str:
    if not step.reads:
        return "free"
    return f"{step.price.amount:.3g} {step.price.amount / plan.budget.total().amount:4.0%}"


def _terms(spec: Spec, account: AccountStatus, plan: Plan) -> list[str]:
    after = balance_after(spec, account.entries, plan)
    life = f"{after.spent:.4g} of {after.lifetime.epsilon:g}" if after else "too little is left"
    budget = plan.budget
    return [f"ε={budget.epsilon:g}", budget_in_words(budget), budget_in_words(budget.replace_one()), life]


def _as_data(spec: Spec, account: AccountStatus, plan: Plan) -> dict[str, Any]:
    budget, total = plan.budget, plan.budget.total()
    swap = budget.replace_one()
    after = balance_after(spec, account.entries, plan)
    return {
        "synthesizer": plan.synthesizer,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "guarantee": {
            "add_or_remove_one_unit": {"epsilon": budget.epsilon, "delta": budget.delta},
            "replace_one_unit": {"epsilon": swap.epsilon, "delta": swap.delta},
        },
        "total": {"measure": str(total.measure), "amount": total.amount, "delta": total.delta},
        "steps": [
            {
                "key": list(step.key),
                "stage": str(step.kind),
                "table": step.table,
                "inputs": [list(key) for key in step.inputs],
                "reads": list(step.reads),
                "price": {"amount": step.price.amount, "delta": step.price.delta},
                "share": step.price.amount / total.amount,
            }
            for step in plan.steps
        ],
        "lifetime": {
            "epsilon": account.balance.lifetime.epsilon,
            "delta": account.balance.lifetime.delta,
            "spent": finite(account.balance.spent),
            "spent_at_delta": account.balance.delta,
            "affordable": after is not None,
            "spent_after": finite(after.spent) if after else None,
        },
    }
