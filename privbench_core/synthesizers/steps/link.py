"""Link steps: what is measured along foreign keys; and what later steps read of it, and of profiles.

Who has many posts has many badges, and edits many posts of others. So columns of children, numbers of children, and
references follow how many children a parent has along owner keys of tables that are drawn before: of a row's owner,
those of its other children; of a row it refers to, all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.links.fanout import Fanout, common_references
from privbench_core.links.lookup import Lookup
from privbench_core.links.measure_agreements import measure_common_references
from privbench_core.links.measure_fanout import PAIRS, Ownership
from privbench_core.links.measure_lookup import fit_lookup
from privbench_core.links.measure_targets import PublicParent, Referred
from privbench_core.privacy.budget import Price
from privbench_core.privacy.relations import (
    deciding_tables,
    is_set_null_across_units,
    reference_moves,
    referring_rows,
    stability,
)
from privbench_core.profiles.profile import Profile, parent_column
from privbench_core.sampling.ranges import stays_inside
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Plan, Step, StepContext, StepKind
from privbench_core.units.measure_by_size import Features

_BOUNDED = "bounded"  # parameter of a step that counts bounded references alone


def link_step(
    schema: Schema,
    key: ForeignKey,
    price: Price,
    run: Callable[[StepContext], Artifact],
    fit: Identity,
    inputs: tuple[Key, ...] = (),
    looked_at: tuple[str, ...] = (),
) -> Step:
    """A step that measures the link along a foreign key, and what `counted_along` it has to do with it.

    Along a SET NULL key, its work counts bounded references alone (`BoundedReferences`).

    Args:
        schema: The database.
        key: The key.
        price: Of the step.
        run: The work; the profiles of both private tables are among its inputs.
        fit: How it spends the price, as part of the release's identity.
        inputs: Of the work, beside the profiles.
        looked_at: Private tables whose rows the work reads, beside those of the key.
    """
    child, parent = schema.table(key.child), schema.table(key.parent)
    profiles: list[Key] = [("profile", table.name) for table in (child, parent) if not table.public]
    counted = counted_along(schema, key)
    inputs = (*inputs, *map(fanout_key, counted))
    looked_at = (*looked_at, *(other.child for other in counted))
    reads = deciding_tables(schema, child.name, *([] if parent.public else [parent.name]), *looked_at)
    moves = [stability(schema, child.name), reference_moves(schema, key)]
    parameters: dict[str, Any] = {"key": key_identity(key), "fit": fit, "stability": moves}
    if is_set_null_across_units(schema, key):
        parameters[_BOUNDED] = True
    wanted = tuple(dict.fromkeys([*profiles, *inputs]))
    version = "32" if key.owner else "27" if _BOUNDED in parameters else "22" if counted else "20"
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
        profile = released_profile(context.inputs, key.child)
        parent: Referred | PublicParent | None = None
        if schema.table(key.parent).public:
            parent = PublicParent(schema.table(key.parent), context.public[key.parent])
        elif not determined(schema, key):
            above = released_profile(context.inputs, key.parent)
            parent = Referred(above, released_numbers(schema, key, context.inputs))
        columns: Features = {}
        owners: dict[str, NDArray[np.float64]] = {}
        referring = referring_rows(schema, key) if is_set_null_across_units(schema, key) else None
        if owner is not None:
            found = released_profile(context.inputs, owner.parent)
            columns = found.of_owner(owner)
            owners = {parent_column(name): counts for name, counts in found.one_way.clean().items()}
        common, rest = measure_common_references(context.opened(), key, profile.size, price)
        lookup, _ = fit_lookup(context.opened(), key, profile, parent, rest, columns, referring, owners)
        lookup = replace(lookup, common=common)
        return Artifact({"link": lookup.to_dict(), "summary": {"pair_tables": len(lookup.pair_tables)}})

    looked_at = () if owner is None else (owner.parent,)
    profiles = tuple(("profile", name) for name in looked_at)
    owners = (way.of.parent for way in common_references(schema, key) if way.of is not None)
    seen, fit = tuple(dict.fromkeys([*looked_at, *owners])), identity_with_ways(schema, key, PAIRS.identity())
    return link_step(schema, key, price, run, fit, profiles, seen)


def identity_with_ways(schema: Schema, key: ForeignKey, fit: Identity) -> Identity:
    """Return how a step spends its price, with what it measures of `common_references`, if there are any."""
    return fit | ({"common references": "1"} if common_references(schema, key) else {})


def determined(schema: Schema, key: ForeignKey) -> bool:
    """Whether a row can refer to one row alone: that of the unit it belongs to."""
    return key.same_unit and key.parent == schema.unit


def fanout_key(key: ForeignKey) -> Key:
    """Key of the step that models a foreign key."""
    return ("fanout", key.name)


def released_profile(inputs: Mapping[Key, Artifact], table: str) -> Profile:
    """The profile of a private table."""
    return Profile.from_dict(inputs["profile", table].data["profile"])


def released_fanout(inputs: Mapping[Key, Artifact], key: ForeignKey) -> Fanout:
    """The link along an owner key."""
    return Fanout.from_dict(inputs[fanout_key(key)].data["link"])


def released_lookup(inputs: Mapping[Key, Artifact], key: ForeignKey, scale: float) -> Lookup:
    """The link along a key off the ownership path, for a synthetic database of that size relative to the source."""
    return Lookup.from_dict(inputs[fanout_key(key)].data["link"]).at_scale(scale)


def counted_along(schema: Schema, key: ForeignKey) -> tuple[ForeignKey, ...]:
    """Owner keys to the parent of ``key`` along which the link may look at the parent's numbers of children.

    Of the last four tables that are drawn before the key's child; and along a key that is not its owner key,
    of the child itself. Left out are those whose rows go with other units too, where looking at them would cost more
    noise, and keys that are filled in a second pass or stay within the owner or the unit.
    """
    child = schema.table(key.child)
    known = [table for table in schema.sampling_order if not table.public]
    known = known[: known.index(child) + (not key.owner)]
    if key.owner:
        base = stability(schema, key.parent, key.child)
        tables: tuple[str, ...] = (key.parent, key.child)
    else:
        inside = key.parent == key.child or stays_inside(schema, child, key)
        if schema.table(key.parent).public or inside or key.name in schema.deferred_keys:
            return ()
        base, tables = 1.0, ()
    found = (
        other
        for other in (table.owner_key for table in reversed(known))
        if other is not None and other.parent == key.parent and stability(schema, *tables, other.child) <= base
    )
    return tuple(islice(found, 4))  # so that work does not grow with the square of the tables


def released_numbers(schema: Schema, key: ForeignKey, inputs: Mapping[Key, Artifact]) -> dict[ForeignKey, Fanout]:
    """The released links along the keys of `counted_along`."""
    return {other: released_fanout(inputs, other) for other in counted_along(schema, key)}


def released_ownership(schema: Schema, key: ForeignKey, inputs: Mapping[Key, Artifact]) -> Ownership:
    """An owner key with the released profiles of both sides, and the links along the keys of `counted_along`."""
    parent, child = (released_profile(inputs, name) for name in (key.parent, key.child))
    return Ownership(key, parent, child, released_numbers(schema, key, inputs))


def counted_beside(schema: Schema, table: Table) -> tuple[ForeignKey, ...]:
    """The keys that links of a table look along by `counted_along`, but its own owner key: children drawn before it."""
    found = (other for key in table.foreign_keys for other in counted_along(schema, key))
    return tuple(other for other in dict.fromkeys(found) if other.child != table.name)
