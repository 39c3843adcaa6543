"""Link steps: what is measured along foreign keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privbench_core.measure.links import PAIRS
from privbench_core.measure.lookup import Features, fit_lookup
from privbench_core.measure.public_parents import PublicParent
from privbench_core.measure.targets import Referred
from privbench_core.models.fanout import parent_column
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import OfParent
from privbench_core.privacy.relations import deciding_tables, lets_go, reference_moves, referring_rows, stability
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity, key_identity
from privbench_core.schema.tables import Schema
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Plan, Step, StepContext, StepKind
from privbench_core.synthesizers.steps.counted import counted_along, fanout_key, released_numbers

_BOUNDED = "bounded"  # parameter of a step that counts bounded references alone


class Spending(Protocol):
    """How a step spends its price."""

    def identity(self) -> Identity:
        """Return all that its result depends on."""
        ...


def link_step(
    schema: Schema,
    key: ForeignKey,
    price: Price,
    run: Callable[[StepContext], Artifact],
    fit: Spending,
    inputs: tuple[Key, ...] = (),
    looked_at: tuple[str, ...] = (),
) -> Step:
    """A step that measures the link along a foreign key, and what `counted_along` it has to do with it.

    Where the key lets go, its work counts bounded references alone (`BoundedReferences`).

    Args:
        schema: The database.
        key: The key.
        price: Of the step.
        run: The work; the profiles of both private tables are among its inputs.
        fit: How it spends the price: part of the release's identity.
        inputs: Of the work, beside the profiles.
        looked_at: Private tables whose rows the work looks at, beside those of the key.
    """
    child, parent = schema.table(key.child), schema.table(key.parent)
    profiles: list[Key] = [("profile", table.name) for table in (child, parent) if not table.public]
    counted = counted_along(schema, key)
    inputs = (*inputs, *map(fanout_key, counted))
    looked_at = (*looked_at, *(other.child for other in counted))
    reads = deciding_tables(schema, child.name, *([] if parent.public else [parent.name]), *looked_at)
    moves = [stability(schema, child.name), reference_moves(schema, key)]
    parameters: dict[str, Any] = {"key": key_identity(key), "fit": fit.identity(), "stability": moves}
    if lets_go(schema, key):
        parameters[_BOUNDED] = True
    wanted = tuple(dict.fromkeys([*profiles, *inputs]))
    version = "28" if key.owner else "27" if _BOUNDED in parameters else "22" if counted else "20"
    return Step(fanout_key(key), StepKind.FANOUT, child.name, wanted, reads, price, run, parameters, version=version)


def bounds_references(step: Step) -> bool:
    """Whether a link step counts bounded references alone: see `BoundedReferences`."""
    return _BOUNDED in step.parameters


def bounded_keys(plan: Plan) -> frozenset[str]:
    """Names of the keys along which a plan counts bounded references alone."""
    return frozenset(step.key[1] for step in plan.steps if bounds_references(step))


def lookup_step(schema: Schema, key: ForeignKey, price: Price) -> Step:
    """The step that measures the link along a key off the ownership path; references may follow the row's owner.

    Not those within the unit, which the row's attributes follow, and those that are filled when all rows are there.
    """
    owner = schema.table(key.child).owner_key
    if key.same_unit or key.name in schema.deferred_keys:
        owner = None

    def run(context: StepContext) -> Artifact:
        profile = Profile.from_dict(context.inputs["profile", key.child].data["profile"])
        parent: Referred | PublicParent | None
        if schema.table(key.parent).public:
            parent = PublicParent(schema.table(key.parent), context.public[key.parent])
        elif determined(schema, key):
            parent = None
        else:
            stored = context.inputs["profile", key.parent].data["profile"]
            parent = Referred(Profile.from_dict(stored), released_numbers(schema, key, context.inputs))
        above: Features = {}
        owners: dict[str, NDArray[np.float64]] = {}
        referring = referring_rows(schema, key) if lets_go(schema, key) else None
        if owner is not None:
            found = Profile.from_dict(context.inputs["profile", owner.parent].data["profile"])
            features = found.discretizers.items()
            above = {parent_column(name): (OfParent(owner, name), discretizer) for name, discretizer in features}
            owners = {parent_column(name): counts for name, counts in found.one_way.clean().items()}
        lookup = fit_lookup(context.opened(), key, profile, parent, price, above, referring, owners)
        return Artifact({"link": lookup.to_dict(), "summary": {"pair_tables": len(lookup.pair_tables)}})

    above = () if owner is None else (owner.parent,)
    profiles = tuple(("profile", name) for name in above)
    return link_step(schema, key, price, run, PAIRS, profiles, above)


def determined(schema: Schema, key: ForeignKey) -> bool:
    """Whether a row can refer to one row alone: that of the unit it belongs to."""
    return key.same_unit and key.parent == schema.unit
