"""Link steps that learn relationships: degrees, and the marginals across tables that links are learned from.

Which marginals matter is seen against *reference samples*: synthetic rows of released models, drawn before any run's
sample and from a fixed seed, so another seed or scale of a run buys nothing again. Post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.groups.group_model import OWNER
from privbench_core.guards import REFERENCE_ROWS
from privbench_core.links.fanout import Fanout
from privbench_core.links.linked_lookup import LinkedLookup
from privbench_core.links.linking import Linked
from privbench_core.links.lookup import TARGET
from privbench_core.links.measure_agreements import measure_common_references
from privbench_core.links.measure_fanout import PAIRS, Ownership, fit_sizes_and_siblings
from privbench_core.links.measure_linking import Reference, measure_cross_marginals
from privbench_core.links.measure_lookup import fit_lookup
from privbench_core.links.measure_targets import PublicParent, Referred
from privbench_core.links.popularity import ByRow
from privbench_core.marginals.sampler import Model, Rows
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import OfParent, ParentRow
from privbench_core.privacy.relations import is_set_null_across_units, referring_rows
from privbench_core.privacy.session import PrivateSession
from privbench_core.profiles.profile import Profile
from privbench_core.sampling.children import add_sizes, children_of, numbers_of_children
from privbench_core.sampling.references import Parent
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.stored import restored
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, structure_rng
from privbench_core.synthesizers.steps.link import (
    determined,
    fanout_key,
    identity_with_ways,
    link_step,
    lookup_step,
    released_fanout,
    released_numbers,
    released_profile,
)
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import Features


@dataclass(frozen=True)
class LinkFit:
    """How a link step spends its price; public constants.

    Attributes:
        degrees: Share of the price for how many rows are linked to each.
        select: Share of a cross-table marginal's price for choosing it, 1 - α of Algorithm 2, where the budget is not
            enough for all of them.
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
        references = References(schema, context.inputs, structure_rng(key.name))
        profile, above = references.profile(key.child), references.profile(key.parent)
        session, siblings = context.opened(), released_numbers(schema, key, context.inputs)
        for_sizes = price.share(fit.degrees) if table.attributes else price
        fanout, _, _ = fit_sizes_and_siblings(session, Ownership(key, above, profile, siblings), for_sizes)
        if not table.attributes:  # rows of keys alone are all alike
            return _artifact(replace(fanout, cross_marginals=()))
        rows = references.owned(table, fanout)
        left, right = Ownership(key, above, profile).context(fanout.sizes), profile.own()
        others = references.alone(key.child, rows.n)
        codes = {name: others.codes[name] for name in right}
        order = Reference(rows, codes, references.of_unit(table, rows), profile.total, profile.size)
        return _learned(fanout, session, key, (left, right), order, price, fit)

    return link_step(schema, key, price, run, fit.identity(), (("model", key.child), ("model", key.parent)))


def reference_step(schema: Schema, key: ForeignKey, price: Price, fit: LinkFit) -> Step:
    """Return the step along a key to another table: many-to-many between its rows and the row's owner."""
    table, target = schema.table(key.child), schema.table(key.parent)
    inputs: list[Key] = [("model", key.child), *(() if target.public else (("model", key.parent),))]
    if table.owner_key is not None:
        owner = table.owner_key
        inputs += [("profile", owner.parent), ("model", owner.parent), fanout_key(owner)]

    referring = referring_rows(schema, key) if is_set_null_across_units(schema, key) else None
    no_rows = lookup_step(schema, key, price)

    def run(context: StepContext) -> Artifact:
        if target.public and not context.public[key.parent].num_rows:
            return no_rows.run(context)
        references = References(schema, context.inputs, structure_rng(key.name))
        profile, session = references.profile(key.child), context.opened()
        parent: PublicParent | Referred
        if target.public:
            parent = PublicParent(target, context.public[key.parent])
        else:
            parent = Referred(references.profile(key.parent), released_numbers(schema, key, context.inputs))
        common, rest = measure_common_references(session, key, profile.size, price)
        alone, for_degrees = replace(profile, discretizers={}), rest.share(fit.degrees)
        found, counts = fit_lookup(session, key, alone, parent, for_degrees, referring=referring)
        lookup = LinkedLookup(found.targets, found.marginals, {}, found.popularity, key.optional, found.telling, common)
        fanout = None
        left = profile.own()
        if table.owner_key is not None:
            fanout = released_fanout(context.inputs, table.owner_key)
            if key.name not in schema.deferred_keys:
                above = references.profile(table.owner_key.parent)
                left |= Ownership(table.owner_key, above, profile).context(fanout.sizes)
        rows = references.linked(table, fanout)
        others = references.places(key, lookup, rows.n)
        linked = None if counts is None else lookup.linked(others, rows.n)
        of_unit = references.of_unit(table, rows)
        order = Reference(rows, others, of_unit, profile.total, profile.size, counts, linked)
        right: Features = {
            name: (ParentRow(key) if target.public else OfParent(key, name.removeprefix(TARGET)), discretizer)
            for name, discretizer in lookup.targets.items()
            if name in others
        }
        return _learned(lookup, session, key, (left, right), order, rest, fit)

    above = () if table.owner_key is None else (table.owner_key.parent,)
    return link_step(schema, key, price, run, identity_with_ways(schema, key, fit.identity()), tuple(inputs), above)


def _learned(
    link: Fanout | LinkedLookup,
    session: PrivateSession,
    key: ForeignKey,
    sides: tuple[Features, Features],
    order: Reference,
    price: Price,
    fit: LinkFit,
) -> Artifact:
    """Return a link with the cross-table marginals that are measured for what its degrees have left of ``price``."""
    rest = price.share(1 - fit.degrees)
    found = measure_cross_marginals(session, key, *sides, order, rest, fit.select)
    return _artifact(replace(link, cross_marginals=found))


def _artifact(link: Fanout | LinkedLookup) -> Artifact:
    return Artifact({"link": link.to_dict(), "summary": {"cross_marginals": len(link.cross_marginals or ())}})


@dataclass(frozen=True)
class References:
    """Where reference samples come from.

    Attributes:
        schema: The database.
        inputs: Artifacts of profiles, models and fanouts.
        rng: Not the run's seed.
    """

    schema: Schema
    inputs: Mapping[Key, Artifact]
    rng: np.random.Generator

    def profile(self, table: str) -> Profile:
        """Return the released profile of a table."""
        return released_profile(self.inputs, table)

    def model(self, table: str) -> Model:
        """Return the released model of a table."""
        model: Model = restored(self.inputs["model", table].data["model"])
        return model

    def alone(self, table: str, number: int) -> Rows:
        """Return rows of a table regardless of their owners."""
        rows = Rows(number)
        self.model(table).draw(rows, self.rng)
        return rows

    def owned(self, table: Table, fanout: Fanout) -> Rows:
        """Return the places for rows of a table, with the context that their owners give, and no attributes yet."""
        key = table.owner_key
        assert key is not None  # noqa: S101 - a fanout is one along an owner key
        profile, above = self.profile(table.name), self.profile(key.parent)
        scale = min(1.0, REFERENCE_ROWS / max(1.0, fanout.owned + fanout.ownerless))
        parents = self.alone(key.parent, max(1, round(above.size.rows * scale)))
        sizes = {name: discretizer.size for name, discretizer in above.discretizers.items()}
        codes = {name: parents.codes[name] for name in sizes}
        parent = Parent(pa.table({"row": np.arange(parents.n)}), codes, sizes, None)
        known = {name: joint for name, joint in fanout.fanout_tables.items() if name in codes}  # not of siblings
        link = replace(fanout, fanout_tables=known)
        numbers = numbers_of_children(link, parent, round(fanout.owned * scale), self.rng)
        rows, owners = children_of(link, parent, numbers, round(fanout.ownerless * scale), self.rng)
        if key.parent == self.schema.unit:  # else it is not known here which owners are of one unit
            alone = parents.n + np.arange(len(owners))
            add_sizes(rows, np.where(owners < 0, alone, owners), profile, self.model(table.name))
        return rows

    def of_unit(self, table: Table, rows: Rows) -> NDArray[np.int64] | None:
        """Return the number of rows of the unit of each row of `owned` or `linked`, None where that is not known."""
        key = table.owner_key
        if key is None or key.parent != self.schema.unit:
            return None
        return np.bincount(rows.codes[OWNER])[rows.codes[OWNER]]

    def places(self, key: ForeignKey, lookup: LinkedLookup, number: int) -> dict[str, Codes]:
        """Return codes of what so many rows refer to along a key, whichever row to which, by target.

        Without numbers of children of what they refer to: of these parents nobody has drawn any.
        """
        if number == 0:
            return {}
        if isinstance(lookup.popularity, ByRow):
            return lookup.places({}, len(lookup.popularity.counts), number, self.rng)
        scale = number / max(1.0, self.profile(key.child).size.rows)
        parents = self.alone(key.parent, max(1, round(self.profile(key.parent).size.rows * scale)))
        return lookup.at_scale(scale).places(parents.codes, parents.n, number, self.rng)

    def linked(self, table: Table, fanout: Fanout | None) -> Rows:
        """Return rows of a table with their context and their attributes."""
        if fanout is None:
            return self.alone(table.name, max(1, min(REFERENCE_ROWS, round(self.profile(table.name).size.rows))))
        rows = self.owned(table, fanout)
        model = self.model(table.name)
        model = model if fanout.cross_marginals is None else Linked(model, fanout.cross_marginals)
        model.draw(rows, self.rng)
        return rows
