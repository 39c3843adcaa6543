"""The plans of a spec, what runs of them are called, and whether what is still to be bought can be more than noise.

All of it is decided by the spec, prices and released numbers alone, so it costs nothing and may be shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from privbench_core.errors import NoiseOnlyError, SpecError
from privbench_core.estimators.segmentation import SIGNIFICANT
from privbench_core.pipeline.workspace import epsilon_name
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.noise import Sensitivity, noise_std
from privbench_core.privacy.relations import stability
from privbench_core.profiles.expected_noise import link_noise
from privbench_core.profiles.profile import Profile
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, Step, StepKind
from privbench_core.synthesizers.registry import load_synthesizer
from privbench_core.synthesizers.steps.link import bounds_references

_MOST_NOISE = 0.5  # share of what is left to pay that may be noise: a run of which most is still useful goes on


def run_name(epsilon: float) -> str:
    """Return the name of a run in the ledger, the same for each front end.

    >>> run_name(2.0)
    'epsilon=2'
    """
    return f"epsilon={epsilon_name(epsilon)}"


def plan_for(spec: Spec, epsilon: float, *, delta: float | None = None, synthesizer: str | None = None) -> Plan:
    """Return the plan of a spec at one ε, without reading a row; see `privbench_core.plan`."""
    name = synthesizer or spec.synthesizer
    options: Mapping[str, Any] = spec.options if name == spec.synthesizer else {}
    if not epsilon > 0:
        raise SpecError(f"epsilon: {epsilon} is not positive; give the ε this run may spend, say 0.8")
    return load_synthesizer(name).plan(spec.schema, Budget(epsilon, spec.delta if delta is None else delta), options)


def refuse_undeclared(spec: Spec, epsilon: float) -> None:
    """Refuse an ε that the spec does not list: recipients rely on its list, and a slip of the keyboard is paid for.

    Raises:
        SpecError: It is not listed; what is no ε at all is left to `plan_for`.
    """
    if epsilon not in spec.epsilons and 0 < epsilon < math.inf:
        listed = ", ".join(f"{listed:g}" for listed in spec.epsilons)
        todo = "add it there, or pass --undeclared-epsilon (to privbench_core.run: undeclared_epsilon=True)"
        raise SpecError(f"epsilon {epsilon:g}: the spec lists epsilons: [{listed}]; {todo}")


def plans_for(spec: Spec) -> dict[str, Plan]:
    """Return the plan of each ε of a spec, by the name that files and partitions have."""
    return {epsilon_name(epsilon): plan_for(spec, epsilon) for epsilon in spec.epsilons}


def refuse_noise(schema: Schema, plan: Plan, left: Sequence[Step], profiles: Mapping[str, Profile]) -> None:
    """Refuse to buy the rest of a run of which most is known to be noise.

    Args:
        schema: The database.
        plan: The plan.
        left: Its steps that are still to be paid for.
        profiles: Released so far, by table.

    Raises:
        NoiseOnlyError: More than half of what is left to pay would buy noise.
    """
    reasons = {step.key: why for step in left if (why := only_noise(schema, step, profiles))}
    noise = sum(step.price.amount for step in left if step.key in reasons)
    if not reasons or noise < _MOST_NOISE * sum(step.price.amount for step in left):
        return
    share = noise / sum(step.price.amount for step in plan.steps)
    found = "; ".join(dict.fromkeys(reasons.values()))
    raise NoiseOnlyError(
        f"the rest of the run would be noise, so it was not bought ({share:.0%} of the run): at"
        f" ε={plan.budget.epsilon:g}, {found}. Raise ε, protect a smaller unit, or measure fewer columns; to buy it all"
        " the same, pass --accept-noise, set accept_noise in Dagster, or write fidelity: {accept_noise: true}"
    )


def only_noise(schema: Schema, step: Step, profiles: Mapping[str, Profile]) -> str | None:
    """Return why a paid step would be noise, None if it may be more.

    A profile of an owned table would be if the whole step, spent on one count of all units, could not tell their number
    from none. What else is measured of a table would be if its own profile is all noise, and a key off the ownership
    path if the released number of rows is too small for its bounds (`LinkNoise`).
    """
    if step.kind is StepKind.FANOUT and (link := _only_noise_along(schema, step, profiles)):
        return link
    if step.kind is not StepKind.PROFILE:
        own = profiles.get(step.table)
        return f"{step.table}: all noise ({own.noise_in_words})" if own and own.all_noise else None
    units, moved = profiles.get(schema.unit), stability(schema, step.table)
    sigma = noise_std(Sensitivity(moved, moved), step.price)
    if units is None or units.total > SIGNIFICANT * sigma:
        return None
    return f"{step.table}: all noise (± {2 * sigma:,.0f} for {max(0, round(units.total)):,} units)"


def _only_noise_along(schema: Schema, step: Step, profiles: Mapping[str, Profile]) -> str | None:
    own = profiles.get(step.table)
    key = next((key for key in schema.table(step.table).foreign_keys if step.key[1] == key.name), None)
    if own is None or key is None or key.owner:
        return None
    noise = link_noise(schema, key, step.price, own.size, bounded=bounds_references(step))
    return str(noise) if noise.all_noise else None
