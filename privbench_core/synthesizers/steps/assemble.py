"""From measured models to a whole plan: the stages that every synthesizer ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from privbench_core.errors import SpecError, UnsupportedBudgetError
from privbench_core.measure.learned import lists_to_learn
from privbench_core.privacy.budget import Budget, Price, zero
from privbench_core.schema.tables import Schema
from privbench_core.synthesizers.contract import Plan, Step
from privbench_core.synthesizers.limits import impossible_checks, unmeasurable, unsampleable
from privbench_core.synthesizers.steps.fidelity import fidelity_step
from privbench_core.synthesizers.steps.publish import publish_step
from privbench_core.synthesizers.steps.released import fanout_key
from privbench_core.synthesizers.steps.sample import complete_step, deferred_of, public_step, sample_step
from privbench_core.synthesizers.steps.validate import validate_step


def whole_plan(name: str, schema: Schema, budget: Budget, measuring: Sequence[Step], validation: Price) -> Plan:
    """The plan of a synthesizer that has the models of `sample.model_inputs` made by ``measuring``.

    Args:
        name: Of the synthesizer.
        schema: The database.
        budget: Of the whole plan.
        measuring: The first steps; each is made after those whose releases it looks at.
        validation: For the fidelity figures of all tables.
    """
    free = zero(validation.measure)
    private = schema.private_tables
    inside_out = [table for table in schema.sampling_order if not table.public]
    steps = _inputs_first(measuring)
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


@dataclass(frozen=True)
class Shares:
    """What a plan's budget is first divided into.

    Attributes:
        measuring: For all that is measured.
        validation: For the fidelity figures of all tables.
        deltas: Table -> δ for learning its lists of values; 0 where it has none.
    """

    measuring: Price
    validation: Price
    deltas: Mapping[str, float]

    @classmethod
    def of(cls, schema: Schema, budget: Budget, validation: float) -> Self:
        """Divide a budget, of which a share is for validation; raises as `refuse_impossible`."""
        refuse_impossible(schema, budget)
        total = budget.total()
        spendable = Price(total.measure, total.amount)
        learners = [table.name for table in schema.private_tables if lists_to_learn(table)]
        deltas = {t.name: total.delta / len(learners) if t.name in learners else 0.0 for t in schema.private_tables}
        return cls(spendable.share(1 - validation), spendable.share(validation), deltas)


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
            message = f"{', '.join(lists)}: a list of values is learned by a threshold that can fail with probability δ"
            raise UnsupportedBudgetError(f"{message}; declare domain: {{values: [...]}}, or run with delta > 0")
