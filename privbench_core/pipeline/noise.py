"""Stop a run of which most is known to be noise before it buys that, and say what would help.

All of it is decided by the spec, prices and released numbers alone, so it costs nothing and may be shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from privbench_core.errors import NoiseOnlyError, SpecError, UnsupportedBudgetError
from privbench_core.estimators.segmentation import SIGNIFICANT
from privbench_core.guards import HIDDEN_PARTS, SHOWN_DEVIATIONS
from privbench_core.pipeline import plan_for
from privbench_core.privacy.neighbour_relation import differences, neighbour_relation
from privbench_core.privacy.relations import keys_into_other_units
from privbench_core.profiles.expected_noise import expected_noise, link_noise
from privbench_core.profiles.measure_domains import expected_codes
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved, reachable
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec
from privbench_core.spec.rules import find_problems
from privbench_core.synthesizers.contract import Key, Plan, Step, StepKind
from privbench_core.synthesizers.steps.link import bounds_references
from privbench_core.units.row_count import RowCount

Sizes = Mapping[str, RowCount]
"""Expected by the numbers of units released so far, by table."""


@dataclass(frozen=True)
class Noise:
    """A table or a key of which all that is measured is noise.

    Attributes:
        subject: The table, or the key in words.
        found: By which numbers.
        times: How many times smaller the noise would have to be.
        measured: Its noise by schema and plan, in any unit; None where the plan measures nothing of it.
        keys: Those whose bounds and removals scale it.
    """

    subject: str
    found: str
    times: float
    measured: Callable[[Schema, Plan], float | None]
    keys: tuple[ForeignKey, ...]

    def times_with(self, spec: Spec, plan: Plan, other: Spec, other_plan: Plan) -> float:
        """Return ``times`` under another spec and plan than ``spec`` and ``plan``; at most 1 if that is enough."""
        now, then = self.measured(spec.schema, plan), self.measured(other.schema, other_plan)
        return self.times * (then / now) if now and then is not None else math.inf


def refuse_noise(spec: Spec, plan: Plan, left: Sequence[Step], sizes: Sizes) -> None:
    """Refuse to buy the rest of a run of which most is known to be noise.

    Args:
        spec: The spec.
        plan: The plan.
        left: Its steps that are still to be paid for.
        sizes: By the numbers of units released so far, by table.

    Raises:
        NoiseOnlyError: More than half of what is left to pay, and a tenth of the run, would buy noise.
    """
    found = noise_of(spec.schema, plan, left, sizes)
    total, rest = plan.price.amount, sum(step.price.amount for step in left)
    noise = sum(step.price.amount for step in left if step.key in found)
    if noise < max(0.5 * rest, 0.1 * total):  # most is useful, or it is little: the bundle says which tables are noise
        return
    noisy = {each.subject for each in found.values()}
    bought = {step.key for step in plan.steps if step.reads} - {step.key for step in left}
    lines: dict[str, list[str]] = {}
    for each in sorted(dict.fromkeys(found.values()), key=lambda noise: noise.subject not in sizes):
        todo = (
            ", or ".join(remedies(spec, plan, each, bought, noisy))
            or "none within the lifetime budget; leave it out of the spec"
        )
        lines.setdefault(f"{each.found}. Remedy: {todo}", []).append(each.subject)
    listed = "\n".join(f"  {', '.join(subjects)}: {why}" for why, subjects in lines.items())
    raise NoiseOnlyError(
        f"stopped after spending {100 * (1 - rest / total):.2g}% of the run's budget. Its results are kept: another run"
        f" at this ε pays again only for what a change of the spec affects. At ε={plan.budget.epsilon:g},"
        f" {noise / total:.0%} of the budget would buy noise:\n{listed}\n  A smaller unit, declared domains, and fewer"
        " columns or tables help all of them, but change the price of every step. An empty table is noise at any ε. To"
        " go on, although these rows and columns will say little: pass --accept-noise, set accept_noise in Dagster, or"
        " write fidelity: {accept_noise: true}"
    )


def noise_of(schema: Schema, plan: Plan, left: Sequence[Step], sizes: Sizes) -> dict[Key, Noise]:
    """Return of which table or key the steps that are still to be paid for would only measure noise."""
    tables = {name: _of_table(schema, plan, name, sizes) for name in dict.fromkeys(step.table for step in left)}
    found = {}
    for step in left:
        noise = tables[step.table] or (_along(schema, step, sizes) if step.kind is StepKind.FANOUT else None)
        if noise is not None:
            found[step.key] = noise
    return found


def _of_table(schema: Schema, plan: Plan, name: str, sizes: Sizes) -> Noise | None:
    """Return the noise of a table: by its number of rows, or before that, by what is known of those above it.

    However many rows of a unit count in full, rows stand out of their noise no more than the units do that have some.
    """
    measured, own, owner = partial(_bar, name), sizes.get(name), schema.table(name).owner_key
    bar, keys = measured(schema, plan), tuple(keys_into_other_units(schema, name))
    if bar is None:
        return None
    units = _units(schema, name, sizes)
    if own is None and owner is not None:
        above = _of_table(schema, plan, owner.parent, sizes)
        if above is not None and owner.parent not in sizes:
            return replace(above, subject=name)
        if above is not None and not _rows_show(sizes[owner.parent]):
            found = f"rows depend on {owner.parent}, and noise hides how many rows it has"
            return replace(above, subject=name, found=found)
    counted = f"{max(0, round(own.rows)):,} ± {round(SHOWN_DEVIATIONS * own.sigma):,} rows" if own else ""
    if own is not None and not _rows_show(own):
        times = max(SIGNIFICANT * own.sigma / max(own.rows, own.sigma), bar / units)
        return Noise(name, counted, times, measured, keys)
    if units > bar:
        return None
    some = counted if own and own.bound == 1 else f"about {round(units):,} units{'' if own else ' at most'}"
    return Noise(name, f"{some}, and noise hides up to {round(bar):,}", bar / units, measured, keys)


def _rows_show(size: RowCount) -> bool:
    """Return whether rows stand out; of units of one row each more will be known than their count says (`_bar`)."""
    return size.bound == 1 or size.rows > SIGNIFICANT * size.sigma


def _bar(name: str, schema: Schema, plan: Plan) -> float | None:
    """Return how many units with a row in a table its noise hides at least, as rows or in all of its columns."""
    price = plan.learning_price(name)
    if price is None:
        return None
    noise, codes = expected_noise(schema, name, price), expected_codes(schema.table(name))
    of_cells = noise.cell * math.sqrt(min(*codes, HIDDEN_PARTS)) if codes else 0.0
    return SIGNIFICANT / SHOWN_DEVIATIONS * max(noise.rows, of_cells)


def _units(schema: Schema, name: str, sizes: Sizes) -> float:
    """Return about how many units have rows in a table at most, by the nearest number at or above it."""
    for above in (name, *(key.parent for key in schema.ownership_path(name))):
        if above in sizes:
            size = sizes[above]
            return max(1.0, size.rows, size.sigma) if size.bound == 1 else max(1.0, float(size.units_of.sum()))
    return math.inf


def _along(schema: Schema, step: Step, sizes: Sizes) -> Noise | None:
    """Return the noise of a key off the ownership path, if its number of rows is too small for its bounds."""
    own = sizes.get(step.table)
    key = next((key for key in schema.table(step.table).foreign_keys if step.key[1] == key.name), None)
    if own is None or key is None or key.owner:
        return None
    noise = link_noise(schema, key, step.price, own, bounded=bounds_references(step))
    if not noise.all_noise:
        return None

    def measured(other: Schema, plan: Plan) -> float | None:
        there = next((each for each in other.table(key.child).foreign_keys if each.name == key.name), None)
        paid = next((each for each in plan.steps if each.key == step.key), None)
        if there is None or paid is None:
            return None
        return link_noise(other, there, paid.price, own, bounded=bounds_references(paid)).links

    found = f"about {max(0, round(own.rows)):,} rows, ± {noise.links:,.0f}"
    keys = tuple(dict.fromkeys([key, *keys_into_other_units(schema, key.child)]))
    return Noise(f"links along {key.name}", found, noise.hidden / max(own.rows, 1.0), measured, keys)


def remedies(
    spec: Spec, plan: Plan, noise: Noise, bought: Collection[Key] = (), noisy: Collection[str] = ()
) -> Iterator[str]:
    """Yield what would make more than noise of a table or a key, each in words; what keeps more comes first.

    The last one is to leave a table empty, with those that refer to it, if all of them are noise.

    Args:
        spec: The spec.
        plan: Its plan at one ε.
        noise: The table or key.
        bought: Steps that are paid for.
        noisy: Tables that are noise.
    """
    paid = {step.key: step.price.amount for step in plan.steps if step.key in bought}
    for changes in (_smaller_bounds(spec, noise.keys), _staying(spec, noise.keys)):
        for what, changed in changes:
            other = _planned(changed, plan, plan.budget.epsilon)
            if other is None or noise.times_with(spec, plan, changed, other) >= 1:
                continue
            same, relations = unchanged(plan, other), map(neighbour_relation, (spec.schema, changed.schema))
            if paid and differences(*relations):
                yield f"{what}, with another database name, because costs under two declarations do not add up"
            elif paid:
                kept = sum(price for key, price in paid.items() if key in same) / sum(paid.values())
                yield f"{what} ({kept:.0%} of what was paid is reused)"
            else:
                yield what
            break
    epsilon, times = plan.budget.epsilon, noise.times
    for _ in range(9):
        epsilon = float(f"{epsilon * times * 1.25:.2g}")  # a margin for what a plan cannot know of its noise
        other = _planned(spec, plan, epsilon)
        if other is None or epsilon > spec.lifetime_epsilon:
            break
        times = noise.times_with(spec, plan, spec, other)
        if times < 1:
            yield f"ε of at least about {epsilon:g}"
            break
    if noise.subject in noisy and (empty := _emptied(spec, plan, noise.subject, noisy)):
        yield f"empty: true at {', '.join(empty)} if no rows are needed there"


def _emptied(spec: Spec, plan: Plan, table: str, noisy: Collection[str]) -> list[str]:
    """Return a table and those that refer to it if they are noise and can be left empty, else nothing."""
    schema = spec.schema
    if table not in schema.by_name:
        return []
    keys = [key for other in schema.tables for key in other.foreign_keys]
    names = {table, *reachable(table, lambda name: (key.child for key in keys if key.parent == name))}
    tables = tuple(other.emptied if other.name in names else other for other in schema.tables)
    changed = replace(spec, schema=replace(schema, tables=tables))
    return sorted(names) if names.issubset(noisy) and _planned(changed, plan, plan.budget.epsilon) else []


def _smaller_bounds(spec: Spec, keys: Sequence[ForeignKey]) -> Iterator[tuple[str, Spec]]:
    """Yield specs in which fewer rows may refer to one along some keys, each with what was changed."""
    bound = max((key.max_children or 1 for key in keys), default=1)
    while bound > 1:
        bound = max(1, bound // 10)  # bounds that are tried are so many times smaller, each
        less = {key.name: replace(key, max_children=min(bound, key.max_children or bound)) for key in keys}
        yield f"max_children: {bound} at {', '.join(less)} if no row has more", _with_keys(spec, less)


def _staying(spec: Spec, keys: Sequence[ForeignKey]) -> Iterator[tuple[str, Spec]]:
    """Yield the spec in which rows stay when what they refer to along some keys goes, if they do not yet."""
    stay = {key.name: replace(key, on_unit_removed=OnUnitRemoved.SET_NULL) for key in keys if key.cascades}
    if stay:
        yield f"on_unit_removed: set null at {', '.join(stay)} if rows stay there", _with_keys(spec, stay)


def _with_keys(spec: Spec, keys: Mapping[str, ForeignKey]) -> Spec:
    tables = tuple(
        replace(table, foreign_keys=tuple(keys.get(key.name, key) for key in table.foreign_keys))
        for table in spec.schema.tables
    )
    return replace(spec, schema=replace(spec.schema, tables=tables))


def _planned(spec: Spec, plan: Plan, epsilon: float) -> Plan | None:
    """Return the plan of a changed spec at an ε, None if the spec is against the rules, or cannot be planned."""
    if find_problems(spec.schema, delta=plan.budget.delta):
        return None
    try:
        return plan_for(spec, epsilon, delta=plan.budget.delta, synthesizer=plan.synthesizer)
    except (SpecError, UnsupportedBudgetError):
        return None


def unchanged(plan: Plan, other: Plan) -> frozenset[Key]:
    """Return the steps of a plan whose releases another plan would find again."""
    same = set[Key]()
    there = {step.key: step for step in other.steps}
    for step in plan.steps:
        found = there.get(step.key)
        if found is None or (step.identity, step.inputs, step.reads) != (found.identity, found.inputs, found.reads):
            continue
        if same.issuperset(step.inputs):
            same.add(step.key)
    return frozenset(same)
