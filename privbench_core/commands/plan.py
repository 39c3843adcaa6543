"""``privbench plan``: steps, prices, noise in rows and guarantee, before any row is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from privbench_core.commands import finite, print_json, say, show, subject
from privbench_core.commands.ledger import (
    balance_after,
    budget_in_words,
    cohort_as_data,
    lifetime_as_data,
    price_as_data,
    reading_ledger,
    refreshes_as_data,
    report_neighbours,
    report_refreshes,
    standing_of,
)
from privbench_core.engines import engine_of
from privbench_core.errors import ReleaseError, SpecError, did_you_mean
from privbench_core.guards import RANGE_ROWS
from privbench_core.pipeline import plan_for
from privbench_core.pipeline.account_status import AccountStatus, lifetime_share
from privbench_core.pipeline.receipt import guarantee_of
from privbench_core.pipeline.workspace import ReleaseStore, database_folder
from privbench_core.privacy.budget import Price
from privbench_core.privacy.relations import Reach, find_reaches
from privbench_core.profiles.expected_noise import (
    Expectation,
    ExpectedNoise,
    effective_units,
    expected_noise,
    link_noise,
)
from privbench_core.profiles.profile import Profile
from privbench_core.publishing.dry_load import refuse_unloadable
from privbench_core.sampling.ranges import can_be_cut
from privbench_core.schema.checks import unenforced_checks
from privbench_core.schema.queried import UNQUERIED
from privbench_core.schema.tables import Schema
from privbench_core.schema.types.numeric import as_number
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec, engine_in_words, with_engine
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Plan
from privbench_core.synthesizers.steps.link import bounded_keys, bounds_references
from privbench_core.units.row_count import RowCount

# From "Any schema" and "Scale" in benchmarks/README.md: sakila (33,000 rows) takes 4 s and 0.4 GB; TPC-H at 0.1 and 1
# (9 and 90 million values) 25 to 34 s and 237 s, 1.1 and 5 GB. Runs of few columns are up to five times as fast.
_SECONDS, _GIGABYTES = 4.0, 0.4
_SECONDS_EACH, _GIGABYTES_EACH = 2.6, 0.055  # per million values


def show_plans(
    path: Path,
    epsilon: float | None = None,
    delta: float | None = None,
    synthesizer: str | None = None,
    engine: str | None = None,
    *,
    rows: Sequence[str] = (),
    as_json: bool = False,
) -> None:
    """Print the plan at one ε, or at each ε of the spec; None leaves a choice to the spec.

    ``rows`` are rough public numbers of rows, as TABLE=NUMBER, to forecast what each table will show.
    """
    spec = with_engine(load_spec(path), engine)
    refuse_unloadable(spec.schema)
    stated, spec = _stated_rows(spec.schema, rows), replace(spec, engine=engine_of(spec))
    epsilons = spec.epsilons if epsilon is None else (epsilon,)
    plans = [plan_for(spec, each, delta=delta, synthesizer=synthesizer) for each in epsilons]
    account, unenforced = standing_of(spec), unenforced_checks(spec.schema)
    private = spec.schema.private_tables
    inside = [key.name for table in private for key in table.foreign_keys if key.same_unit]
    whole_tables = [table.name for table in private if not can_be_cut(spec.schema, table)]
    reaches = find_reaches(spec.schema, bounded_keys(plans[0]))
    if as_json:
        print_json({
            "database": spec.schema.name,
            "unit": spec.schema.unit_in_words,
            "engine": spec.engine,
            "cohort": cohort_as_data(spec, account),
            "unenforced_checks": list(unenforced),
            "refreshes": refreshes_as_data(spec, account),
            "steered_by_workload": _numbers_queried(plans[0]),
            "keys_inside_of_a_unit": inside,
            "drawn_in_one_piece": whole_tables,
            "stability_above_one": {reach.subject: reach.stability for reach in reaches},
            "plans": [_as_data(spec, account, plan, stated) for plan in plans],
        })  # fmt: skip
        return
    life = account.balance.lifetime
    title = f"{spec.schema.name}: what {plans[0].synthesizer} measures, and each step's share of the run's budget"
    headers = ["stage", "table or key", *(f">ε={plan.budget.epsilon:g}" for plan in plans)]
    shares = [
        [str(step.kind), subject(step), *(f"{_share(plan, step.key):.0%}" for plan in plans)]
        for step in plans[0].steps
        if step.reads
    ]
    whole = [f"{lifetime_share(life, [plan.budget.total()]):.1%}" for plan in plans]
    show(title, headers, shares, footer=["run's share of lifetime", "", *whole])
    free = sum(not step.reads for step in plans[0].steps)
    say(f"{free} more steps (models, rows, checks and the bundle) read no private row and cost nothing.")
    if spec.workload and plans[0].queried:
        touched = ", ".join(f"{number:,} {kind}" for kind, number in _numbers_queried(plans[0]).items())
        name = spec.workload.name
        say(f"{name} steers the budget: what its queries touch counts in full, all else {UNQUERIED:g} times.")
        say(f"They touch {touched}.")
    released = _released_rows(spec)
    report_noise(spec, plans, released)
    report_expectations(spec, plans, stated, released)
    for line in engine_in_words(spec):
        say(line)
    say(f"Time and memory: {_time_and_memory(spec.schema, released)}.")
    if whole_tables:
        say(f"Tables that are drawn in one piece, even beyond {RANGE_ROWS:,} rows: {', '.join(whole_tables)}")
    say()
    show(
        f"Guarantee and price of a run, for {spec.schema.unit_in_words}",
        [">run", ">unit added or removed", ">unit replaced", ">lifetime ε spent after the run", ">price"],
        [_terms(spec, account, plan) for plan in plans],
    )
    spent = f"ε={account.balance.spent:.4g} at δ={account.balance.delta:.2g}"
    of_cohort = f" of cohort {spec.cohort}" if spec.cohort else ""
    say(f"Lifetime budget{of_cohort}: {budget_in_words(life)}, of which {spent} is spent. No row was read.")
    report_refreshes(spec, account)
    if not account.entries:  # before the first release a new name is put back at no cost
        report_neighbours(spec, account)
    say("Steps that were released before from the same rows are not paid for again.")
    _report_reaches(inside, reaches)
    if unenforced:
        say(f"Checks in the DDL that sampling does not enforce: {', '.join(unenforced)}")
    undeclared = [f"{plan.budget.epsilon:g}" for plan in plans if plan.budget.epsilon not in spec.epsilons]
    if undeclared:
        say(f"ε={undeclared[0]} is not among the spec's epsilons: privbench run needs --undeclared-epsilon for it.")


def _numbers_queried(plan: Plan) -> dict[str, int]:
    """Return how much a published workload touches; nothing if the plan is not steered by one."""
    if plan.queried is None:
        return {}
    kinds = {"columns": plan.queried.columns, "pairs of them": plan.queried.pairs, "foreign keys": plan.queried.keys}
    return {kind: len(found) for kind, found in kinds.items()}


def _report_reaches(inside: Sequence[str], reaches: Sequence[Reach]) -> None:
    """Print which keys stay inside of one unit, and what scales noise up because a unit moves more than its rows."""
    if inside:
        say(f"Foreign keys within one unit (same_unit: true; rows that break this are ignored): {', '.join(inside)}")
    if reaches:
        say("Noise is scaled up where removing a unit also changes rows of other units, by the bounds on foreign keys:")
        for reach in reaches:
            say(f"  {reach.subject} {reach.stability:,.0f} times: {reach.why}")
        say("If such a key always refers to a row of the same unit, declare same_unit: true: it then adds no noise.")
        say("If rows stay when the row they refer to goes, declare on_unit_removed: set null: it adds less noise.")
        say("Declare both before the first run: a later change needs another database name.")
        say("If the rows of one unit have fewer children than the product of bounds, declare max_children_per_unit.")


def report_noise(spec: Spec, plans: Sequence[Plan], released: Mapping[str, RowCount]) -> None:
    """Print what the noise means in rows, from declared numbers and those released before, and what cannot work."""
    noises = _noises(spec.schema, plans)
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
            times = " × T" if size is None and noise.most > 1 else ""
            row += [_uncertain(noise.rows, noise.most, size), f"{noise.cell * counted:,.0f}{times}"]
        rows.append(row)
    heads = [head for plan in plans for head in (f">± rows, ε={plan.budget.epsilon:g}", ">± a cell")]
    show("Size of the noise in rows (19 times out of 20)", ["table", ">rows per unit, at most", *heads], rows)
    say("± a cell: the noise in the count of one value of a column. A value with fewer rows is lost in the noise.")
    if any(spec.schema.max_rows_per_unit(t.name) > 1 and t.name not in released for t in spec.schema.private_tables):
        say("T caps the rows counted per unit. Released numbers choose it, to minimise noise plus truncation.")
    _report_links(spec, plans, released)


def _noises(schema: Schema, plans: Sequence[Plan]) -> dict[tuple[str, float], ExpectedNoise]:
    """Return the noise of each private table at each ε."""
    return {
        (table.name, plan.budget.epsilon): expected_noise(schema, table.name, price)
        for plan in plans
        for table in schema.private_tables
        if (price := plan.learning_price(table.name)) is not None
    }


def _stated_rows(schema: Schema, rows: Sequence[str]) -> dict[str, float]:
    """Return the stated number of rows of each table; that of the unit's is among them if there are any.

    Raises:
        SpecError: One is no number, or of no private table; or the unit's is missing.
    """
    names, stated = [table.name for table in schema.private_tables], dict[str, float]()
    for each in rows:
        name, _, text = each.rpartition("=")
        number = as_number(text.replace("_", ""))
        if name not in names:
            raise SpecError(f"--rows {each}: no private table {name!r}; {did_you_mean(name, names)}")
        if number is None or number < 0:
            raise SpecError(f"--rows {each}: not a number of rows; write it like {name}=50000")
        stated[name] = number
    if stated and schema.unit not in stated:
        todo = f"say how many rows the unit's table has, like --rows {schema.unit}=2000"
        raise SpecError(f"--rows: noise is measured against the number of units; {todo}")
    return stated


def _effective(
    schema: Schema, name: str, stated: Mapping[str, float], released: Mapping[str, RowCount]
) -> float | None:
    """Return of how many equal units a table's rows are, by a stated or else a released number; None without one."""
    if name in stated:
        is_single = schema.max_rows_per_unit(name) == 1
        return stated[name] if is_single else effective_units(stated[name], stated[schema.unit])
    return released[name].effective_units if name in released else None


def report_expectations(
    spec: Spec, plans: Sequence[Plan], stated: Mapping[str, float], released: Mapping[str, RowCount]
) -> None:
    """Print what to expect of each table, by stated or released numbers of rows, or how many units it takes."""
    schema, noises = spec.schema, _noises(spec.schema, plans)
    if not noises:
        return
    rows = []
    for table in schema.private_tables:
        found = _effective(schema, table.name, stated, released)
        size = stated.get(table.name, released[table.name].rows if table.name in released else None)
        cells = [_expectation(noises[table.name, plan.budget.epsilon], found) for plan in plans]
        rows.append([table.name, "" if size is None else f"{max(0.0, size):,.0f}", *cells])
    heads = [f"ε={plan.budget.epsilon:g}" for plan in plans]
    show("What to expect of each table", ["table", ">rows, about", *heads], rows)
    levels = " / ".join(map(str, list(Expectation)[1:]))
    say(f"Numbers: how many rows {schema.unit} needs for {levels}.")
    say("The forecast assumes rows spread over many units. Columns with many values, and rare values, need more.")
    if not stated and not released:
        say(f"For a forecast in words, state rough public numbers of rows: --rows {schema.unit}=2000 --rows ..")


def _expectation(noise: ExpectedNoise, units: float | None) -> str:
    """Return what to expect of a table in words, and how many units better ones take; all if nothing is known."""
    each = 1 if noise.most == 1 else 2  # `effective_units` of many rows per unit
    better = [f"{each * needed:,.0f}" for needed in noise.needed.values() if units is None or needed > units]
    if units is None:
        return " / ".join(better)
    return f"{noise.expected(units)}; more from {better[0]}" if better else str(noise.expected(units))


def _report_links(spec: Spec, plans: Sequence[Plan], released: Mapping[str, RowCount]) -> None:
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
    show(
        "Noise along the other foreign keys", ["key", *(f">± links, ε={plan.budget.epsilon:g}" for plan in plans)], rows
    )
    say("± links: the noise in one count of references, at best. With few more rows than that, a key is all noise.")
    for (_, epsilon), noise in noises.items():
        if noise.all_noise:
            say(f"At ε={epsilon:g}, {noise}. Declare smaller bounds, or same_unit: true where it holds.", "bold")


def _uncertain(rows: float, most: int, released: RowCount | None) -> str:
    if released is None:
        return f"{rows:,.0f}" if most == 1 else f"{rows:,.0f} × T"
    return f"about {rows * released.rows_per_unit:,.0f} of {max(0, round(released.rows)):,}"


def _released_rows(spec: Spec) -> dict[str, RowCount]:
    """Return the released size of each private table that was profiled before, at whichever ε; reads no private row."""
    if not (database_folder(spec) / "releases").exists():
        return {}
    store = ReleaseStore(database_folder(spec) / "releases")
    found: dict[str, RowCount] = {}
    with reading_ledger(spec) as ledger:
        for table in spec.schema.private_tables:
            key = ledger.last_release(f"profile/{table.name}", spec.cohort)
            stored = store.get(key, ledger.released(key)) if key else None
            if stored is not None:
                try:
                    found[table.name] = Profile.from_dict(Artifact.from_bytes(stored).data["profile"]).size
                except (KeyError, ReleaseError):  # of another version: as if it had not been
                    continue
    return found


def _time_and_memory(schema: Schema, released: Mapping[str, RowCount]) -> str:
    """Return about how long a run takes and how much memory it needs, on two cores."""
    columns = {table.name: len(table.columns) for table in schema.private_tables}
    if not columns.keys() <= released.keys():
        each = f"{_SECONDS_EACH:.0f} s and {_GIGABYTES_EACH * 1000:.0f} MB for each million values (rows times columns)"
        return f"about {_SECONDS:.0f} s and {_GIGABYTES:g} GB, plus {each}"
    millions = sum(columns[name] * max(0.0, released[name].rows) for name in columns) / 1e6
    seconds, memory = _SECONDS + _SECONDS_EACH * millions, _GIGABYTES + _GIGABYTES_EACH * millions
    return f"about {seconds:,.0f} s and {memory:.1f} GB, at the released numbers of rows"


def _share(plan: Plan, key: Key) -> float:
    return plan.step(key).price.amount / plan.budget.total().amount


def _terms(spec: Spec, account: AccountStatus, plan: Plan) -> list[str]:
    after = balance_after(spec, account.entries, plan)
    life = f"{after.spent:.4g} of {after.lifetime.epsilon:g}" if after else "too little is left"
    budget = plan.budget
    guarantees = [budget_in_words(budget), budget_in_words(budget.replace_one())]
    return [f"ε={budget.epsilon:g}", *guarantees, life, str(Price(budget.measure, budget.total().amount))]


def _as_data(spec: Spec, account: AccountStatus, plan: Plan, stated: Mapping[str, float]) -> dict[str, Any]:
    budget = plan.budget
    units = {table.name: _effective(spec.schema, table.name, stated, {}) for table in spec.schema.private_tables}
    after = balance_after(spec, account.entries, plan)
    return {
        "synthesizer": plan.synthesizer,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "guarantee": guarantee_of(budget),
        "total": price_as_data(budget.total()),
        "steps": [
            {
                "key": list(step.key),
                "stage": str(step.kind),
                "table": step.table,
                "inputs": [list(key) for key in step.inputs],
                "reads": list(step.reads),
                "price": {"amount": step.price.amount, "delta": step.price.delta},
                "share": _share(plan, step.key),
            }
            for step in plan.steps
        ],
        "expectations": {
            name: {
                "expected": None if (found := units[name]) is None else noise.expected(found),
                "effective_units": found,
                "effective_units_needed": noise.needed,
            }
            for (name, _), noise in _noises(spec.schema, [plan]).items()
        },
        "lifetime": lifetime_as_data(
            account,
            spent_at_delta=account.balance.delta,
            affordable=after is not None,
            spent_after=finite(after.spent) if after else None,
        ),
    }
