"""Link steps of the relational synthesizer: degrees as in the other synthesizers, and workloads to learn links from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from privbench_core.columns.discretizer import Discretizer
from privbench_core.measure.fanout import FanoutFit, fit_sizes
from privbench_core.measure.lookup import LookupFit, fit_lookup
from privbench_core.measure.workloads import Features, Reference, WorkloadFit, measure_workloads
from privbench_core.models.fanout import OWNER_FANOUT, Fanout, parent_column
from privbench_core.models.linked_lookup import LinkedLookup
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.views import Feature, OfParent, Own, OwnerFanout
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity
from privbench_core.schema.tables import Schema
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext
from privbench_core.synthesizers.relational.reference import References
from privbench_core.synthesizers.steps.link import determined, link_step, lookup_step
from privbench_core.synthesizers.steps.sample import fanout_key


@dataclass(frozen=True)
class LinkFit:
    """How a link step spends its price; public constants.

    Attributes:
        degrees: Share of the price for how many rows are linked to each.
        sizes: How numbers of children are measured.
        references: How references to the rows of another parent are.
        workloads: How links are.
    """

    degrees: float = 0.3
    sizes: FanoutFit = field(default_factory=FanoutFit)
    references: LookupFit = field(default_factory=lambda: LookupFit(popularity_share=0.5))
    workloads: WorkloadFit = field(default_factory=WorkloadFit)

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "degrees": self.degrees,
            "sizes": self.sizes.identity(),
            "references": self.references.identity(),
            "workloads": self.workloads.identity(),
        }


def learned_link(schema: Schema, key: ForeignKey, price: Price, fit: LinkFit) -> Step:
    """Return the step that measures what links along a key are learned from.

    Keys to public tables, to parents without attributes and inside of a unit are measured as in PrivBench: rows refer
    to them by position, or to one of very few.
    """
    parent = schema.table(key.parent)
    if key.owner:
        return owner_step(schema, key, price, fit)
    if parent.public or not parent.attributes or key.same_unit or determined(schema, key):
        return lookup_step(schema, key, price, LookupFit())
    return reference_step(schema, key, price, fit)


def owner_step(schema: Schema, key: ForeignKey, price: Price, fit: LinkFit) -> Step:
    """Return the step along an ownership key: one-to-many, children having one owner each."""
    table = schema.table(key.child)

    def run(context: StepContext) -> Artifact:
        references = _references(schema, key, context)
        profile, above = references.profile(key.child), references.profile(key.parent)
        session = context.opened()
        fanout = fit_sizes(session, key, above, profile.size, price.share(fit.degrees), fit.sizes)
        rows = references.owned(table, fanout)
        left, right = _context(key, above, fanout, profile), _own(profile)
        others = references.alone(key.child, rows.n)
        order = Reference(rows, {name: others.codes[name] for name in right}, profile.total)
        rest = price.share(1 - fit.degrees)
        found = measure_workloads(
            session, key.child, profile.size.rows_per_unit, left, right, order, rest, fit.workloads, references.rng
        )
        return Artifact({"link": replace(fanout, workloads=found).to_dict(), "summary": {"workloads": len(found)}})

    return link_step(schema, key, price, run, fit, (("model", key.child), ("model", key.parent)))


def reference_step(schema: Schema, key: ForeignKey, price: Price, fit: LinkFit) -> Step:
    """Return the step along a key to another private table: many-to-many between its rows and the row's owner."""
    table = schema.table(key.child)
    inputs: list[Key] = [("model", key.child), ("model", key.parent)]
    if table.owner_key is not None:
        owner = table.owner_key
        inputs += [("profile", owner.parent), ("model", owner.parent), fanout_key(owner)]

    def run(context: StepContext) -> Artifact:
        references = _references(schema, key, context)
        profile, target = references.profile(key.child), references.profile(key.parent)
        session = context.opened()
        no_pairs = replace(profile, discretizers={})
        plain = fit_lookup(session, key, no_pairs, target.discretizers, price.share(fit.degrees), fit.references)
        lookup = LinkedLookup(plain.targets, plain.marginals, {}, plain.popularity)
        fanout = None
        left = _own(profile)
        if table.owner_key is not None:
            fanout = Fanout.from_dict(context.inputs[fanout_key(table.owner_key)].data["link"])
            if key.name not in schema.deferred_keys:
                left |= _context(table.owner_key, references.profile(table.owner_key.parent), fanout, profile)
        rows = references.linked(table, fanout)
        right: Features = {
            name: (OfParent(key, name.removeprefix("target.")), discretizer)
            for name, discretizer in lookup.targets.items()
        }
        scale = rows.n / max(1.0, profile.size.rows)
        parents = references.alone(key.parent, max(1, round(target.size.rows * scale)))
        others = lookup.at_scale(scale).places(parents.codes, parents.n, rows.n, references.rng)
        order = Reference(rows, others, profile.total)
        rest = price.share(1 - fit.degrees)
        found = measure_workloads(
            session, key.child, profile.size.rows_per_unit, left, right, order, rest, fit.workloads, references.rng
        )
        return Artifact({"link": replace(lookup, workloads=found).to_dict(), "summary": {"workloads": len(found)}})

    return link_step(schema, key, price, run, fit, tuple(inputs))


def _references(schema: Schema, key: ForeignKey, context: StepContext) -> References:
    return References(schema, context.inputs, replace(context, seed=0).rng("structure", key.name))


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
