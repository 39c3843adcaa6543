"""What released numbers say about steps that are still to be bought: whether they can be more than noise.

Decided by released numbers, prices and the schema alone, so it costs nothing and may be shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from privbench_core.errors import NoiseOnlyError
from privbench_core.estimate.segmentation import SIGNIFICANT
from privbench_core.measure.expected_noise import link_noise
from privbench_core.models.profile import Profile
from privbench_core.privacy.noise import Sensitivity, noise_std
from privbench_core.privacy.relations import stability
from privbench_core.schema.tables import Schema
from privbench_core.synthesizers.contract import Plan, Step, StepKind
from privbench_core.synthesizers.steps.link import bounds_references

_MOST = 0.5  # share of what is left to pay that may be noise: a run of which most is still useful goes on


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
    if not reasons or noise < _MOST * sum(step.price.amount for step in left):
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
