"""The sensor that evaluates the conditions of one database, and what it remembers if its daemon is killed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import dagster as dg

from privbench_assets.automation import few_conditions
from privbench_assets.keys import identifier, step_key
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan


class RefreshSensor(dg.AutomationConditionSensorDefinition):
    """A sensor of conditions that does not forget what they remember.

    Where conditions are evaluated beside the code, Dagster keeps what they remember only when all runs of a tick have
    been launched. If its daemon is killed before, it launches the rest when it is back, and then starts from nothing:
    what changed meanwhile, and what waited for something at work, would never be refreshed. So what is remembered after
    a tick that asks for runs is kept here as well, for the tick that would start from nothing.
    """

    def evaluate_tick(self, context: dg.SensorEvaluationContext) -> Any:
        """Evaluate all conditions. Called by Dagster where the code is loaded."""
        storage, name = context.instance.daemon_cursor_storage, f"privbench/{self.name}"
        kept = None if context.cursor else storage.get_cursor_values({name}).get(name)
        if kept:
            context.update_cursor(kept)
        with context.merge_resources({}) as copied:  # in which the cursor is as if Dagster had found it
            evaluated = super().evaluate_tick(copied)
        if evaluated.run_requests:
            storage.set_cursor_values({name: evaluated.cursor})
        return evaluated


def automation_sensor(spec: Spec, plans: Mapping[str, Plan]) -> dg.AutomationConditionSensorDefinition:
    """Evaluates the conditions of one database. Off until somebody turns it on, because a refresh spends budget.

    The sources are part of its selection: conditions can see the versions of what is evaluated only.
    """
    name = spec.schema.name
    with warnings.catch_warnings():  # two of the parameters are called beta features
        warnings.simplefilter("ignore", dg.BetaWarning)
        return RefreshSensor(
            f"{identifier(name)}_refresh_on_change",
            target=dg.AssetSelection.key_prefixes(step_key(name, ()).path, include_sources=True),
            description=(
                f"Refreshes the benchmark of {name} when an observation of the source shows a change, at every ε that"
                " it was made at before. Each refresh costs lifetime budget. Turn on the schedule that observes, too."
            ),
            default_status=dg.DefaultSensorStatus.STOPPED,
            emit_backfills=False,
            use_user_code_server=few_conditions(plans),
        )
