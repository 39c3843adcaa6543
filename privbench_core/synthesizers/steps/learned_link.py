"""Link steps that learn relationships: degrees, and the marginals across tables that links are learned from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from privbench_core.columns.discretizer import Discretizer
from privbench_core.measure.bounded import BoundedCounts
from privbench_core.measure.bounded_lookup import fit_bounded
from privbench_core.measure.fanout import fit_sizes_and_siblings
from privbench_core.measure.linked_rows import LettingGo, Reference
from privbench_core.measure.linking import measure_cross_marginals
from privbench_core.measure.links import PAIRS
from privbench_core.measure.lookup import Features, fit_lookup
from privbench_core.measure.public_parents import PublicParent, public_references
from privbench_core.measure.targets import Referred
from privbench_core.models.fanout import OWNER_FANOUT, Fanout, parent_column
from privbench_core.models.linked_lookup import LinkedLookup
from privbench_core.models.lookup import TARGET
from privbench_core.models.profile import Profile
from privbench_core.models.targets import marginals_of
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Feature, OfParent, Own, OwnerFanout, ParentRow
from privbench_core.privacy.relations import lets_go, referring_rows
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext
from privbench_core.synthesizers.steps.counted import fanout_key, released_numbers
from privbench_core.synthesizers.steps.link import determined, link_step, lookup_step
from privbench_core.synthesizers.steps.reference import References
from privbench_core.tuning import TUNING


@dataclass(frozen=True)
class LinkFit:
    """How a link step spends its price; public constants.

    Attributes:
        degrees: Share of the price for how many rows are linked to each.
        select: Share of a cross-table marginal's price for choosing it, where not all are measured.
    """

    degrees: float = TUNING.degrees
    select: float = TUNING.first_look

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "version": 10,  # numbers of children of reference samples are as drawn
            "degrees": self.degrees,
            "pairs": PAIRS.identity(),
            "select": self.select,
        }


def learned_link(schema: Schema, key: ForeignKey, price: Price, fit: LinkFit) -> Step:
    """Return the step that measures what links along a key are learned from.

    Keys inside of a unit, and those to private parents without attributes, are measured as in PrivBench: a row refers
    to one of very few, or to any.
    """
    if key.owner:
        return owner_step(schema, key, price, fit)
    if _among_many(schema, key):
        return reference_step(schema, key, price, fit)
    return lookup_step(schema, key, price)


def completes_junction(schema: Schema, key: ForeignKey) -> bool:
    """Whether a key off the ownership path makes its table a junction: the primary key consists of keys, this one too.

    Not a key inside of a unit, nor one to a private parent without attributes, whose rows are all alike.
    """
    table = schema.table(key.child)
    primary, referring = set(table.primary_key), table.referring_columns
    return table.owner_key is not None and set(key.columns) <= primary <= referring and _among_many(schema, key)


def _among_many(schema: Schema, key: ForeignKey) -> bool:
    """Whether attributes can tell which of many rows a row refers to along a key."""
    parent = schema.table(key.parent)
    return not (key.same_unit or determined(schema, key)) and (parent.public or bool(parent.attributes))


def owner_step(schema: Schema, key: ForeignKey, price: Price, fit: LinkFit) -> Step:
    """Return the step along an ownership key: one-to-many, children having one owner each."""
    table = schema.table(key.child)

    def run(context: StepContext) -> Artifact:
        references = _references(schema, key, context)
        profile, above = references.profile(key.child), references.profile(key.parent)
        session, siblings = context.opened(), released_numbers(schema, key, context.inputs)
        for_sizes = price.share(fit.degrees) if table.attributes else price
        fanout, _ = fit_sizes_and_siblings(session, key, above, profile, for_sizes, siblings)
        if not table.attributes:  # rows of keys alone are all alike
            return _artifact(replace(fanout, cross_marginals=()))
        rows = references.owned(table, fanout)
        left, right = _context(key, above, fanout, profile), _own(profile)
        others = references.alone(key.child, rows.n)
        codes = {name: others.codes[name] for name in right}
        order = Reference(rows, codes, references.of_unit(table, rows), profile.total, profile.size)
        return _learned(fanout, session, key, (left, right), order, price, fit)

    return link_step(schema, key, price, run, fit, (("model", key.child), ("model", key.parent)))


def reference_step(schema: Schema, key: ForeignKey, price: Price, fit: LinkFit) -> Step:
    """Return the step along a key to another table: many-to-many between its rows and the row's owner."""
    table, target = schema.table(key.child), schema.table(key.parent)
    inputs: list[Key] = [("model", key.child), *(() if target.public else (("model", key.parent),))]
    if table.owner_key is not None:
        owner = table.owner_key
        inputs += [("profile", owner.parent), ("model", owner.parent), fanout_key(owner)]

    referring = referring_rows(schema, key) if lets_go(schema, key) else None
    no_rows = lookup_step(schema, key, price)

    def run(context: StepContext) -> Artifact:
        if target.public and not context.public[key.parent].num_rows:
            return no_rows.run(context)
        references = _references(schema, key, context)
        profile, session = references.profile(key.child), context.opened()
        for_degrees = price.share(fit.degrees)
        counts = None
        if target.public:
            lookup = _to_public(session, key, profile, target, context.public[key.parent], for_degrees)
        else:
            parent = references.referred(key)
            lookup, counts = _to_private(session, key, profile, parent, for_degrees, referring)
        fanout = None
        left = _own(profile)
        if table.owner_key is not None:
            fanout = Fanout.from_dict(context.inputs[fanout_key(table.owner_key)].data["link"])
            if key.name not in schema.deferred_keys:
                left |= _context(table.owner_key, references.profile(table.owner_key.parent), fanout, profile)
        rows = references.linked(table, fanout)
        others = references.places(key, lookup, rows.n)
        along = None if counts is None else LettingGo(key, counts, lookup.linked(others, rows.n))
        order = Reference(rows, others, references.of_unit(table, rows), profile.total, profile.size)
        right: Features = {
            name: (ParentRow(key) if target.public else OfParent(key, name.removeprefix(TARGET)), discretizer)
            for name, discretizer in lookup.targets.items()
            if name in others
        }
        return _learned(lookup, session, key, (left, right), order, price, fit, along)

    above = () if table.owner_key is None else (table.owner_key.parent,)
    return link_step(schema, key, price, run, fit, tuple(inputs), above)


def _learned(
    link: Fanout | LinkedLookup,
    session: PrivateSession,
    key: ForeignKey,
    sides: tuple[Features, Features],
    order: Reference,
    price: Price,
    fit: LinkFit,
    along: LettingGo | None = None,
) -> Artifact:
    """Return a link with the cross-table marginals that are measured for what its degrees have left of ``price``."""
    rest = price.share(1 - fit.degrees)
    found = measure_cross_marginals(session, key.child, *sides, order, rest, fit.select, along)
    return _artifact(replace(link, cross_marginals=found))


def _artifact(link: Fanout | LinkedLookup) -> Artifact:
    return Artifact({"link": link.to_dict(), "summary": {"cross_marginals": len(link.cross_marginals or ())}})


def _references(schema: Schema, key: ForeignKey, context: StepContext) -> References:
    return References(schema, context.inputs, replace(context, seed=0).rng("structure", key.name))


def _to_private(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    parent: Referred,
    price: Price,
    referring: int | None,
) -> tuple[LinkedLookup, BoundedCounts | None]:
    """Return how often private parents are referred to, by rank, by attributes and by numbers of children.

    Where the key lets go, how many rows refer to others, too.
    """
    alone, counts = replace(child, discretizers={}), None
    if referring is None:
        found = fit_lookup(session, key, alone, parent, price)
    else:
        found, counts = fit_bounded(session, key, alone, parent, {}, price, referring)
    lookup = LinkedLookup(found.targets, found.marginals, {}, found.popularity, key.optional, found.telling)
    return lookup, counts


def _to_public(
    session: PrivateSession, key: ForeignKey, child: Profile, table: Table, rows: pa.Table, price: Price
) -> LinkedLookup:
    """Return how often public parents are referred to, by row and by their attributes, which are known better."""
    parent = PublicParent(table, rows)
    references, targets = public_references(session, key, child.size, parent, price)
    popularity, none = references.popularity
    return LinkedLookup(targets, marginals_of(targets, popularity.counts, none), {}, popularity, key.optional)


def _own(profile: Profile) -> dict[str, tuple[Feature, Discretizer]]:
    """Columns of the row itself."""
    return {name: (Own(name), discretizer) for name, discretizer in profile.discretizers.items()}


def _context(
    key: ForeignKey, above: Profile, fanout: Fanout, profile: Profile
) -> dict[str, tuple[Feature, Discretizer]]:
    """Columns that a row has from its owner, as `draw_children` names them."""
    found: dict[str, tuple[Feature, Discretizer]] = {
        parent_column(name): (OfParent(key, name), discretizer) for name, discretizer in above.discretizers.items()
    }
    if profile.by_size and above.size.units is None:  # a group is a unit, and what follows its size is known
        return found
    return {OWNER_FANOUT: (OwnerFanout(key), fanout.sizes), **found}
