"""``privbench plan``: steps, prices, noise in rows and guarantee, before any row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from privbench_core.commands.lifetime import (
    balance_after,
    cohort_as_data,
    raises_as_data,
    refreshes_as_data,
    standing_of,
)
from privbench_core.commands.released import released_rows
from privbench_core.commands.terminal import finite, print_json, say, show
from privbench_core.commands.time_and_memory import in_words
from privbench_core.engines.choice import engine_of
from privbench_core.guards import RANGE_ROWS
from privbench_core.measure.expected_noise import expected_noise, link_noise
from privbench_core.models.row_count import RowCount
from privbench_core.pipeline.account_status import AccountStatus, lifetime_share
from privbench_core.pipeline.plans import plan_for
from privbench_core.privacy.budget import Budget, Price
from privbench_core.privacy.reach import find_reaches
from privbench_core.sampling.ranges import can_be_cut
from privbench_core.schema.checks import unenforced_checks
from privbench_core.spec.engine import engine_in_words, with_engine
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, Step
from privbench_core.synthesizers.steps.link import bounded_keys, bounds_references


@dataclass(frozen=True)
class Asked:
    """What the command line asks for instead of the spec's; None leaves it to the spec."""

    epsilon: float | None = None
    delta: float | None = None
    synthesizer: str | None = None
    engine: str | None = None


def show_plans(path: Path, asked: Asked, *, as_json: bool) -> None:
    """Print the plan at one ε, or at each ε of the spec."""
    spec = with_engine(load_spec(path), asked.engine)
    spec = replace(spec, engine=engine_of(spec))
    epsilons = (asked.epsilon,) if asked.epsilon is not None else spec.epsilons
    plans = [plan_for(spec, e, delta=asked.delta, synthesizer=asked.synthesizer) for e in epsilons]
    account, unenforced = standing_of(spec), unenforced_checks(spec.schema)
    private = spec.schema.private_tables
    inside = [key.name for table in private for key in table.foreign_keys if key.same_unit]
    whole_tables = [table.name for table in private if not can_be_cut(spec.schema, table)]
    reaches = find_reaches(spec.schema, bounded_keys(plans[0]))
    if as_json:
        print_json({
            "database": spec.schema.name,
            "unit": unit_in_words(spec),
            "engine": spec.engine,
            "cohort": cohort_as_data(spec, account),
            "unenforced_checks": list(unenforced),
            "refreshes": refreshes_as_data(spec, account),
            "keys_inside_of_a_unit": inside,
            "drawn_in_one_piece": whole_tables,
            "stability_above_one": {reach.subject: reach.stability for reach in reaches},
            "plans": [_as_data(spec, account, plan) for plan in plans],
        })  # fmt: skip
        return
    life = account.balance.lifetime
    title = f"{spec.schema.name}: what {plans[0].synthesizer} will buy, and the share of each step"
    headers = ["stage", "table or key", *(f">ε={plan.budget.epsilon:g}" for plan in plans)]
    rows = [
        [str(step.kind), subject(step), *(f"{_share(plan, plan.step(step.key)):.0%}" for plan in plans)]
        for step in plans[0].steps
        if step.reads
    ]
    whole = [f"{lifetime_share(life, [plan.budget.total()]):.1%}" for plan in plans]
    show(title, headers, rows, footer=["of the lifetime budget", "", *whole])
    free = sum(not step.reads for step in plans[0].steps)
    say(f"{free} more steps, models, rows, checks and the bundle, cost nothing.")
    released = released_rows(spec)
    tell_noise(spec, plans, released)
    for line in engine_in_words(spec):
        say(line)
    say(f"Time and memory: {in_words(spec.schema, released)}.")
    if whole_tables:
        say(f"Drawn in one piece, even where they have more than {RANGE_ROWS:,} rows: {', '.join(whole_tables)}")
    say()
    show(
        f"What it guarantees, for {unit_in_words(spec)}",
        [">run", ">add or remove one", ">replace one", ">lifetime ε spent after the run", ">price"],
        [_terms(spec, account, plan) for plan in plans],
    )
    spent = f"ε={account.balance.spent:.4g} at δ={account.balance.delta:.2g}"
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
        say("Where rows outlive what it refers to, on_unit_removed: set null costs only what is measured along it.")
        say("Where the rows of one unit have fewer children than the product says, declare max_children_per_unit.")
    if unenforced:
        say(f"Checks that are kept in the DDL but not enforced while sampling: {', '.join(unenforced)}")
    undeclared = [f"{plan.budget.epsilon:g}" for plan in plans if plan.budget.epsilon not in spec.epsilons]
    if undeclared:
        say(f"ε={undeclared[0]} is not among the spec's epsilons: privbench run needs --undeclared-epsilon for it.")


def tell_noise(spec: Spec, plans: Sequence[Plan], released: Mapping[str, RowCount]) -> None:
    """Print what the noise means in rows, from declared numbers and those released before, and what cannot work."""
    noises = {
        (table.name, plan.budget.epsilon): expected_noise(spec.schema, table.name, step.price)
        for plan in plans
        for table in spec.schema.private_tables
        for step in plan.steps
        if step.key == ("profile", table.name)
    }
    if not noises:
        return
    rows = []
    for table in spec.schema.private_tables:
        most = spec.schema.max_rows_per_unit(table.name)
        row = [table.name, f"{most:,}"]
        for plan in plans:
            noise = noises[table.name, plan.budget.epsilon]
            size = released.get(table.name)
            counted = 1 if size is None else size.rows_per_unit
            row += [_uncertain(noise.rows, noise.most, size), f"{noise.cell * counted:,.0f}"]
        rows.append(row)
    heads = [head for plan in plans for head in (f">± rows, ε={plan.budget.epsilon:g}", ">± a cell")]
    show("What the noise means, in rows (19 of 20 times)", ["table", ">rows per unit, at most", *heads], rows)
    say("± a cell: of one count of a column's values. A value with fewer rows than that is lost in the noise.")
    if any(spec.schema.max_rows_per_unit(t.name) > 1 and t.name not in released for t in spec.schema.private_tables):
        say(
            "T: as how many rows a unit with more of them counts. It follows from released numbers, so that what noise"
            " adds and what T leaves out weigh least: few where units are alike, more where some have most of the rows."
        )
    _tell_links(spec, plans, released)
    for plan in plans:
        for name, size in released.items():
            noise = noises[name, plan.budget.epsilon]
            units = float(np.sum(size.units_of)) if size.bound > 1 else size.rows
            if units < noise.rows:
                found = f"{name} has about {max(0, round(units)):,} units, and ± {noise.rows:,.0f}"
                say(f"Will not work at ε={plan.budget.epsilon:g}: {found}. Take a larger ε or fewer columns.", "bold")
            elif units < noise.cell:
                found = f"{name} has about {round(units):,} units, and a cell ± {noise.cell:,.0f}"
                say(f"Columns of {name} will be mostly noise at ε={plan.budget.epsilon:g}: {found}.", "bold")


def _tell_links(spec: Spec, plans: Sequence[Plan], released: Mapping[str, RowCount]) -> None:
    """Print what the noise means along keys off the ownership path, and which of them will be nothing else."""
    keys = [key for table in spec.schema.private_tables for key in table.foreign_keys if not key.owner]
    paid = {(plan.budget.epsilon, step.key): step for plan in plans for step in plan.steps if step.reads}
    noises = {
        (key.name, plan.budget.epsilon): link_noise(
            spec.schema, key, step.price, released.get(key.child), bounded=bounds_references(step)
        )
        for plan in plans
        for key in keys
        if (step := paid.get((plan.budget.epsilon, ("fanout", key.name)))) is not None
    }
    if not noises:
        return
    names = dict.fromkeys(name for name, _ in noises)
    rows = [[name, *(f"{noises[name, plan.budget.epsilon].links:,.0f}" for plan in plans)] for name in names]
    show("Along other keys", ["key", *(f">± links, ε={plan.budget.epsilon:g}" for plan in plans)], rows)
    say("± links: of one count of references, at best. A key whose table has not many more rows will be all noise.")
    for (_, epsilon), noise in noises.items():
        if noise.all_noise:
            say(f"At ε={epsilon:g}, {noise}. Declare smaller bounds, or same_unit: true where it holds.", "bold")


def _uncertain(rows: float, most: int, released: RowCount | None) -> str:
    if released is None:
        return f"{rows:,.0f}" if most == 1 else f"{rows:,.0f} × T"
    return f"about {rows * released.rows_per_unit:,.0f} of {max(0, round(released.rows)):,}"


def tell_refreshes(spec: Spec, account: AccountStatus) -> None:
    """Print the refresh policy, what a refresh costs, how many more there can be, and what bears on the account."""
    if spec.refresh is not None:
        say(f"Refresh policy: {spec.refresh.in_words()}")
    for line in (*account.in_words(), *account.held_in_words(), *account.others_in_words()):
        say(line)
    for line in account.raises_in_words():
        say(line, style="bold")


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


def _share(plan: Plan, step: Step) -> float:
    return step.price.amount / plan.budget.total().amount


def _terms(spec: Spec, account: AccountStatus, plan: Plan) -> list[str]:
    after = balance_after(spec, account.entries, plan)
    life = f"{after.spent:.4g} of {after.lifetime.epsilon:g}" if after else "too little is left"
    budget = plan.budget
    guarantees = [budget_in_words(budget), budget_in_words(budget.replace_one())]
    return [f"ε={budget.epsilon:g}", *guarantees, life, str(Price(budget.measure, budget.total().amount))]


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
            "raised": raises_as_data(account),
            "affordable": after is not None,
            "spent_after": finite(after.spent) if after else None,
        },
    }
