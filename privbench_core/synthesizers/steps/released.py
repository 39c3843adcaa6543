"""What earlier steps have released: profiles, links, and the numbers of children that other links look at.

Who has many posts has many badges, and edits many posts of others. So columns of children, numbers of children, and
references follow how many children a parent has along owner keys of tables that are drawn before: of a row's owner,
those of its other children; of a row it refers to, all.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from privbench_core.guards import MAX_COUNTED
from privbench_core.models.fanout import Fanout
from privbench_core.models.profile import Profile
from privbench_core.privacy.relations import stability
from privbench_core.sampling.ranges import stays_inside
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key


def fanout_key(key: ForeignKey) -> Key:
    """Key of the step that models a foreign key."""
    return ("fanout", key.name)


def released_profile(inputs: Mapping[Key, Artifact], table: str) -> Profile:
    """The profile of a private table."""
    return Profile.from_dict(inputs["profile", table].data["profile"])


def released_fanout(inputs: Mapping[Key, Artifact], key: ForeignKey) -> Fanout:
    """The link along an owner key."""
    return Fanout.from_dict(inputs[fanout_key(key)].data["link"])


def counted_along(schema: Schema, key: ForeignKey) -> tuple[ForeignKey, ...]:
    """Owner keys to the parent of ``key`` along which the link may look at the parent's numbers of children.

    Of the last `MAX_COUNTED` tables that are drawn before the key's child; and along a key that is not its owner key,
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
    return tuple(islice(found, MAX_COUNTED))


def released_numbers(schema: Schema, key: ForeignKey, inputs: Mapping[Key, Artifact]) -> dict[ForeignKey, Fanout]:
    """The released links along the keys of `counted_along`."""
    return {other: released_fanout(inputs, other) for other in counted_along(schema, key)}


def counted_beside(schema: Schema, table: Table) -> tuple[ForeignKey, ...]:
    """The keys that links of a table look along by `counted_along`, but its own owner key: children drawn before it."""
    found = (other for key in table.foreign_keys for other in counted_along(schema, key))
    return tuple(other for other in dict.fromkeys(found) if other.child != table.name)
