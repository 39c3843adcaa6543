"""From measured models to a whole plan: what no plan can do, and the stages that every synthesizer ends with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from privbench_core.errors import SpecError, UnsupportedBudgetError
from privbench_core.privacy.budget import Budget, Price, zero
from privbench_core.privacy.relations import bound_in_words, keys_into_other_units
from privbench_core.profiles.measure_domains import lists_to_learn
from privbench_core.schema.checks import parse_check
from privbench_core.schema.columns import Column, Range, Scalar, Values
from privbench_core.schema.constraints import Check, ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.schema.types.base import OrderedType
from privbench_core.synthesizers.contract import Plan, Step, StepKind
from privbench_core.synthesizers.steps.fidelity import fidelity_step
from privbench_core.synthesizers.steps.link import fanout_key
from privbench_core.synthesizers.steps.publish import publish_step, validate_step
from privbench_core.synthesizers.steps.sample import complete_step, deferred_of, public_step, sample_step

if TYPE_CHECKING:
    from sqlglot.expressions import Expr


def whole_plan(name: str, schema: Schema, budget: Budget, measuring: Sequence[Step], validation: Price) -> Plan:
    """Return the plan of a synthesizer that has the models of `sample.model_inputs` made by ``measuring``.

    Args:
        name: Of the synthesizer.
        schema: The database.
        budget: Of the whole plan.
        measuring: The first steps; each is made after those whose releases it reads.
        validation: For the fidelity figures of all tables.
    """
    free = zero(validation.measure)
    private = schema.private_tables
    inside_out = [table for table in schema.sampling_order if not table.public]
    rank = {table.name: number for number, table in enumerate(schema.sampling_order)}
    # Numbers of units come before all else, and those of owners first: they may show that the rest would be noise.
    early = (StepKind.COUNT, StepKind.PROFILE)
    ranked = sorted(measuring, key=lambda step: rank[step.table])
    first = [step for kind in early for step in ranked if step.kind is kind]
    steps = _inputs_first([*first, *(step for step in measuring if step.kind not in early)])
    steps += [fidelity_step(schema, table, validation.share(1 / len(private))) for table in inside_out]
    for table in schema.sampling_order:
        steps.append(public_step(table, free) if table.public else sample_step(schema, table, free))
    steps += [complete_step(schema, table, free) for table in private if deferred_of(schema, table)]
    steps += [validate_step(schema, table, free) for table in schema.sampling_order]
    paid = {step.key: step for step in steps if step.reads}
    off_path = [key for table in private for key in table.foreign_keys if not key.owner and fanout_key(key) in paid]
    steps.append(publish_step(schema, free, {key: paid[fanout_key(key)] for key in off_path}))
    return Plan(name, budget, tuple(steps))


def _inputs_first(steps: Sequence[Step]) -> list[Step]:
    """Return the steps in the given order, but each after those of them that are its inputs."""
    waiting, found = list(steps), list[Step]()
    while waiting:
        missing = {step.key for step in waiting}
        ready = next((step for step in waiting if missing.isdisjoint(step.inputs)), waiting[0])
        waiting.remove(ready)
        found.append(ready)
    return found


def refuse_impossible(schema: Schema, budget: Budget) -> None:
    """Refuse what no synthesizer can plan, before anything is spent.

    Raises:
        SpecError: Tables that no bound keeps above the noise, that cannot be sampled, or checks that can never hold.
        UnsupportedBudgetError: Lists of values to learn without a δ.
    """
    private = schema.private_tables
    problems = list(unmeasurable(schema))
    problems += [problem for table in private for problem in unsampleable(schema, table)]
    problems += [problem for table in private for problem in impossible_checks(table)]
    if problems:
        raise SpecError(problems)
    if budget.delta == 0:
        lists = [f"{table.name}.{column.name}" for table in private for column in lists_to_learn(table)]
        if lists:
            message = f"{', '.join(lists)}: learning a list of values needs δ > 0, as its threshold can fail"
            raise UnsupportedBudgetError(f"{message}; declare domain: {{values: [...]}}, or run with delta > 0")


def unmeasurable(schema: Schema) -> Iterator[str]:
    """Yield why noise would hide any rows of a table, by the declared bounds alone, one line per table."""
    known: set[ForeignKey] = set()
    for table in schema.sampling_order:
        keys = {} if table.public else keys_into_other_units(schema, table.name)
        # Noise that hides a billion rows of other units hides any table.
        if sum(keys.values()) <= 10**9 or known.issuperset(keys):
            continue
        known |= keys.keys()
        ways = "; ".join(f"{key.name} ({bound_in_words(schema, key)})" for key in keys)
        yield (
            f"{table.name}: removing a row of {schema.unit} may also remove up to {sum(keys.values()):,} rows of other"
            f" units, along {ways}. Noise for so many rows hides any table. Declare max_children_per_unit or a smaller"
            " max_children there, same_unit: true if both rows always belong to one unit, or on_unit_removed: set null"
            " if rows stay when the row they refer to is removed"
        )


def unsampleable(schema: Schema, table: Table) -> Iterator[str]:
    """Yield what of a private table's keys and dependencies cannot be kept, one line each: where, what, what to do."""
    required = {name for key in table.foreign_keys if not key.optional for name in key.columns}
    for key in table.foreign_keys:
        if key.optional:
            yield from _never_empty(table, key, required)
    deferred = {name for key in table.foreign_keys if key.name in schema.deferred_keys for name in key.columns}
    for rule in table.dependencies:
        where = f"{table.name}.({', '.join(rule.determinant)})"
        for name in sorted(table.key_columns.intersection(rule.dependent)):
            yield f"{where}: determines the key column {name}, and keys are generated; leave this dependency out"
        for name in sorted((deferred - required).intersection(rule.determinant)):
            yield f"{where}: {name} is filled in last, so nothing can depend on it; leave this dependency out"


def _never_empty(table: Table, key: ForeignKey, required: set[str]) -> Iterator[str]:
    """Yield why a synthetic row could not leave an optional key empty."""
    emptied = table.emptied_columns(key)
    for name in key.columns:
        if name in emptied or name in required:
            continue
        where = f"{table.name}.{name}"
        others = [other.name for other in table.foreign_keys if other != key and name in other.columns]
        if name in table.primary_key:
            yield (
                f"{where}: in the primary key and in the optional key {key.name}. Synthetic rows leave such a key"
                " empty in all of its columns; make the key required, or leave it out of the spec"
            )
        elif others:
            yield (
                f"{where}: is part of {key.name} and of {', '.join(others)}, which may all be NULL; keep it in one"
                " foreign key, or make one of them required"
            )
        else:
            yield (
                f"{where}: not nullable, but in the optional key {key.name}. Synthetic rows leave such a key empty"
                " in all of its columns; declare nullable: true, or make the key required"
            )
    if not emptied and required.issuperset(key.columns):
        yield (
            f"{key.name}: optional, but all of its columns are filled by required keys; make it required, or leave it"
            " out of the spec"
        )


def impossible_checks(table: Table) -> Iterator[str]:
    """Yield why a check can never hold in a row without NULL, one line each.

    Conditions on one column are compared with its domain, and the order of two columns with both. Other conditions are
    not understood, and pass.
    """
    for check in table.checks:
        reason = next(_reasons(table, check), None)
        if reason is not None:
            yield f"{table.name}: the check {check.name} can never hold: {reason}; correct the domain or the check"


def _reasons(table: Table, check: Check) -> Iterator[str]:
    from privbench_core.draft.proposals import propose_domain

    for column in table.attributes:
        ends = _ends(column)
        if ends is None:
            continue
        low, high = ends
        asked = propose_domain(column.name, column.type, [check])
        if isinstance(column.domain, Values) and asked.values and set(asked.values).isdisjoint(column.domain.values):
            yield f"none of the declared values of {column.name} is in the list of the check"
        number = column.logical.number if isinstance(column.logical, OrderedType) else None
        if number is None:
            continue
        if asked.low is not None and number(asked.low) > number(high):
            yield f"{column.name} is declared to be at most {high}, but the check requires {asked.low} or more"
        if asked.high is not None and number(asked.high) < number(low):
            yield f"{column.name} is declared to be at least {low}, but the check requires {asked.high} or less"
    tree = parse_check(check.expression)
    yield from _orders(table, tree) if tree is not None else ()


def _orders(table: Table, tree: Expr) -> Iterator[str]:
    """Yield why the order of two columns that a condition asks for cannot be."""
    from sqlglot import exp

    bare = tree.unnest()
    if isinstance(bare, exp.And):
        yield from _orders(table, bare.left)
        yield from _orders(table, bare.right)
    if not isinstance(bare, exp.LT | exp.LTE | exp.GT | exp.GTE):
        return
    sides = bare.this.unnest(), bare.expression.unnest()
    columns = [_column(table, side) for side in (sides if isinstance(bare, exp.LT | exp.LTE) else reversed(sides))]
    first, last = columns
    if first is None or last is None or first.type is not last.type or not isinstance(first.logical, OrderedType):
        return
    yield from _differences(first, last)
    number, below, above = first.logical.number, _ends(first), _ends(last)
    if below is not None and above is not None and number(below[0]) > number(above[1]):
        yield f"{first.name} is declared to be at least {below[0]}, and {last.name} at most {above[1]}"


def _differences(first: Column, last: Column) -> Iterator[str]:
    """Yield why the first of two columns cannot be the smaller one, if one of them is relative to the other."""
    for column, base, sign in ((last, first, 1), (first, last, -1)):
        ends, logical = _ends(column.modelled), column.modelled.logical
        related = column.relative is not None and column.relative.to == base.name
        if related and ends is not None and isinstance(logical, OrderedType):
            low, high = ends
            if logical.number(high if sign > 0 else low) * sign < 0:
                found = f"{low} to {high}" if low != high else f"{low}"
                yield f"{column.name} is declared to be {found} above {base.name}"


def _column(table: Table, side: Expr | None) -> Column | None:
    from sqlglot import exp

    if not isinstance(side, exp.Column):
        return None
    name = side.name if side.this.quoted else side.name.lower()
    return next((column for column in table.attributes if column.name == name), None)


def _ends(column: Column) -> tuple[Scalar, Scalar] | None:
    """Return the ends of a declared domain; None without one."""
    match column.domain:
        case Range(low, high):
            return low, high
        case Values(values):
            order = column.logical.sort_key if isinstance(column.logical, OrderedType) else str
            return min(values, key=order), max(values, key=order)
        case _:
            return None
