"""Automation: when a step runs by itself. Small conditions, each with its reason; the sensor that evaluates them.

A change of the source travels: the profile sees another fingerprint, every step behind it sees that the one before is about to
run, so one tick requests the whole affected line, in one run per ε. Whoever is done stays quiet, because steps compare
data versions (digests), not times. No condition looks at code versions: an edited line of code must not spend budget.
"""

from __future__ import annotations

import dagster as dg

from privbench_core.schema.spec import Spec

from privbench_assets.keys import identifier, step_key

Condition = dg.AutomationCondition


def input_changed() -> dg.AutomationCondition:
    """A table of the source, or a step before, has another content than at the last tick, or is about to run."""
    return Condition.any_deps_match(Condition.data_version_changed() | Condition.will_be_requested()).with_label("input_changed")


def failed_first() -> dg.AutomationCondition:
    """The first failure since the last success.

    A step that fails again waits for a person: each failed look at private rows counts as spent, so retries without an end would
    use up the lifetime budget.
    """
    return Condition.execution_failed().since(Condition.newly_updated()).newly_true().with_label("failed_first")


def inputs_ready() -> dg.AutomationCondition:
    """All steps before have been made or are about to be, none is at work, and none failed a blocking check."""
    return (
        ~Condition.any_deps_missing() & ~Condition.any_deps_in_progress() & Condition.all_deps_blocking_checks_passed()
    ).with_label("inputs_ready")


def refresh_condition(*, first: bool) -> dg.AutomationCondition:
    """When a step runs by itself: latched, so that a change seen while the step could not run is not forgotten.

    Args:
        first: Whether no step comes before it, only the source. Such a step is refreshed, never started: the first release at an ε
            is a decision to spend, and stays with a person or a schedule.
    """
    wanted = (input_changed() | failed_first()).since_last_handled()
    ready = ~Condition.missing() if first else inputs_ready()
    return wanted & ready & ~Condition.in_progress()


def status_condition() -> dg.AutomationCondition:
    """The status follows whatever was published or observed."""
    changed = Condition.any_deps_match(Condition.newly_updated() | Condition.data_version_changed())
    return changed.since_last_handled() & ~Condition.in_progress()


def automation_sensor(spec: Spec) -> dg.AutomationConditionSensorDefinition:
    """Evaluates the conditions of one database. Off until somebody turns it on, because a refresh spends budget.

    The sources are part of its selection: conditions can see the versions of what is evaluated only.
    """
    name = spec.schema.name
    return dg.AutomationConditionSensorDefinition(
        identifier(name, "refresh_on_change"),
        target=dg.AssetSelection.key_prefixes(step_key(name, ()).path, include_sources=True),
        description=(
            f"Refreshes the benchmark of {name} at every ε at which it was made before, when an observation of the source shows"
            " a change. Each refresh is charged to the lifetime budget. Turn on the schedule that observes the source as well."
        ),
        default_status=dg.DefaultSensorStatus.STOPPED,
        emit_backfills=False,
    )
