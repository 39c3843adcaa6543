"""Automation: when a step runs by itself. Small conditions, each with its reason.

A change of the source travels: the profile sees another fingerprint, every step behind it sees that the one before is
about to run, so one tick requests the whole affected line, in one run per ε. Whoever is done stays quiet, because
steps compare data versions (digests), not times. No condition looks at code versions: an edited line of code must not
spend budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from privbench_assets.stopping import LIMIT, stopping
from privbench_core.synthesizers.contract import Plan

Condition = dg.AutomationCondition
_REQUESTED = "dagster/from_automation_condition"  # how Dagster marks the runs that conditions ask for


def content_changed() -> dg.AutomationCondition[Any]:
    """What this depends on has another content than at the last tick: a table of the source other rows, say."""
    return Condition.any_deps_match(Condition.data_version_changed()).with_label("content_changed")


def input_changed() -> dg.AutomationCondition[Any]:
    """A step before, or a table of the source, has another content than at the last tick, or is about to run."""
    return Condition.any_deps_match(Condition.data_version_changed() | Condition.will_be_requested()).with_label(
        "input_changed"
    )


def failed_first() -> dg.AutomationCondition[Any]:
    """The first failure since the last success.

    A step that fails again waits for a person: each failed look at private rows counts as spent, so retries without
    an end would use up the lifetime budget.
    """
    return Condition.execution_failed().since(Condition.newly_updated()).newly_true().with_label("failed_first")


def until_requested(trigger: dg.AutomationCondition[Any]) -> dg.AutomationCondition[Any]:
    """``trigger``, remembered until it was answered by a request.

    A request made at one tick is seen at the next. What triggers in between (the source changed again, the run failed
    at once) came after the request, so it is not what the request answered, and is kept.
    """
    return trigger.since(_requested_before(trigger) | Condition.initial_evaluation())


def until_made(trigger: dg.AutomationCondition[Any]) -> dg.AutomationCondition[Any]:
    """``trigger``, remembered until it was answered by a request, or by a run that somebody else asked for.

    A run that was at work before does not count: while it went on, the step before was made anew by a run of its own,
    because this one could not be requested then. What that run left is still to be taken up.
    """
    answered = Condition.newly_updated() & ~overtaken()
    return trigger.since(_requested_before(trigger) | answered | Condition.initial_evaluation())


def overtaken() -> dg.AutomationCondition[Any]:
    """A step before was last made by a run that these conditions asked for without asking for this step."""
    alone = Condition.executed_with_tags(tag_keys={_REQUESTED}) & ~Condition.executed_with_root_target()
    return Condition.any_deps_match(alone).with_label("overtaken")


def _requested_before(trigger: dg.AutomationCondition[Any]) -> dg.AutomationCondition[Any]:
    return Condition.newly_requested() & ~trigger


def inputs_ready() -> dg.AutomationCondition[Any]:
    """All steps before have been made or are about to be, none is at work, and none failed a blocking check."""
    return (
        ~Condition.any_deps_missing() & ~Condition.any_deps_in_progress() & Condition.all_deps_blocking_checks_passed()
    ).with_label("inputs_ready")


def first_step_condition() -> dg.AutomationCondition[Any]:
    """When a step that only the source comes before runs by itself.

    It is refreshed, never started: the first release at an ε is a decision to spend, and stays with a person or a
    schedule. A change that is seen while it runs makes it run again, which costs nothing if that run had seen the
    change already.
    """
    wanted = until_requested(content_changed() & ~Condition.missing()) | until_requested(failed_first())
    return wanted & ~Condition.in_progress()


def next_step_condition() -> dg.AutomationCondition[Any]:
    """When a step behind another one runs by itself.

    Its own update answers a change too: in a run of the whole line each step follows the one before, and is done with
    it.
    """
    wanted = until_made(input_changed()) | until_requested(failed_first())
    return wanted & inputs_ready() & ~Condition.in_progress()


def status_condition() -> dg.AutomationCondition[Any]:
    """When the status is gathered again: another bundle at some ε, or other rows in the source."""
    return until_requested(content_changed()) & ~Condition.in_progress()


def asked(condition: dg.AutomationCondition[Any], plans: Mapping[str, Plan]) -> dg.AutomationCondition[Any]:
    """The same condition, made to stop early where a database has few enough steps for that."""
    return stopping(condition) if few_conditions(plans) else condition


def few_conditions(plans: Mapping[str, Plan]) -> bool:
    """Whether the steps, and the status, are within what Dagster evaluates where the code is loaded."""
    return all(len(plan.steps) + 1 <= LIMIT for plan in plans.values())
