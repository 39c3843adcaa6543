"""What is measured along an owner key: sizes of groups, their latent attributes, and how children follow them.

PrivLava's Algorithm 2. Expectation-maximisation finds the types of groups (`maximisation`); then children's columns are
related to types and to whatever else there is. All parts have prices that are fixed before the first one.

In the paper, children are independent of each other given the type of their group. Two members that share one of many
values, or are of about the same age, would need as many types as there are such values, and noise leaves few. So where
children have attributes alone, the joints of two members are measured directly, as in PrivPetal (`groups`), and types
keep what pairs do not tell. Children with latent attributes of their own, in the middle of a chain, are drawn as in the
paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from privbench_core.columns.discretizer import Discretizer
from privbench_core.guards import MAX_LATENT_VALUES, TINY
from privbench_core.measure.by_size import Features
from privbench_core.measure.columns import Columns, types_of, value_coder
from privbench_core.measure.fanout import fit_fanout, fit_sizes, fit_sizes_and_siblings
from privbench_core.measure.groups import GroupFit
from privbench_core.measure.links import PAIRS, Siblings, expected_context, link_context, measure_links
from privbench_core.measure.maximisation import Maximisation
from privbench_core.measure.places import best_places, expected_places, place_coder
from privbench_core.models.fanout import PLACE, Fanout, parent_column
from privbench_core.models.group_model import GroupModel
from privbench_core.models.latent import Latents
from privbench_core.models.measured import MeasuredLeaf
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price, zero
from privbench_core.privacy.features import Feature, OwnerType
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity


@dataclass(frozen=True)
class LatentFit:
    """How the price of an owner key's latent attributes is spent; see `privlava.Options`.

    Attributes:
        latents: Number of latent attributes.
        iterations: T, of expectation-maximisation.
        types: Share of expectation-maximisation, the rest is for what children are drawn from.
        groups: Share of an iteration for marginals over groups (sizes; between latent attributes).
        usefulness: λ: values are as many as keep the average marginal λ-useful.
        observed: Share, where children have latent attributes of their own, of pairs of columns within a row.
        places: Share, in what is for links, of the choice of a column that members are put in an order by.
        typed: Share, in what is left, of joints with types and places, where the rest is for joints of members.
        joints: How joints of members are measured.
    """

    latents: int
    iterations: int
    types: float
    groups: float
    usefulness: float
    observed: float
    places: float
    typed: float
    joints: GroupFit = field(default_factory=GroupFit)

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "latents": self.latents,
            "iterations": self.iterations,
            "types": self.types,
            "groups": self.groups,
            "usefulness": self.usefulness,
            "observed": self.observed,
            "places": self.places,
            "typed": self.typed,
            "pairs": PAIRS.identity(),
            "joints": self.joints.identity(),
        }

    def link(
        self,
        session: PrivateSession,
        key: ForeignKey,
        parent: Profile,
        child: Profile,
        children: Columns,
        for_sizes: Price,
        for_groups: Price | None,
        siblings: Siblings,
    ) -> LatentLink:
        """Measure the groups along an owner key: sizes, latent attributes, and what children are drawn from.

        Where noise would leave fewer than two latent values there are none, and children that have latent attributes
        themselves are related to their owner directly, as in PrivBench.

        Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7, 8 and 11.

        Args:
            session: Open for the step.
            key: The owner key.
            parent: The owners.
            child: Their children.
            children: Columns of the children.
            for_sizes: Price of the sizes of groups.
            for_groups: Of all else; None where children have no columns.
            siblings: As in `fit_sizes`.
        """
        if for_groups is None or not children.sources:  # types of children may be hidden by noise
            nothing, price = (
                MeasuredLeaf(OneWay({}, {}, child.total)),
                for_sizes + (for_groups or zero(for_sizes.measure)),
            )
            return LatentLink(fit_sizes(session, key, parent, child.size, price, siblings), nothing, None)
        if not children.types:
            fanout, _ = fit_sizes_and_siblings(session, key, parent, child, for_sizes, siblings)
            return self._of_attributes(session, key, parent, child, children, fanout, for_groups)
        view = session.view(ViewSpec(key.child, children.features, (children.rows_per_unit,)), "rows")
        counted = PAIRS.fit(view, children.counted, for_groups.share(self.observed), children.ordered)
        rest = for_groups.share(1 - self.observed)
        observed = replace(counted, one_way=counted.one_way.moved(children.left_out))
        children = replace(children, one_way=observed.one_way)
        values = self.values(session, key, children, rest)
        if values < 2:  # noqa: PLR2004 - a single type is none
            return LatentLink(fit_fanout(session, key, parent, child, for_sizes + rest, siblings), observed, None)
        fanout, lags = fit_sizes_and_siblings(session, key, parent, child, for_sizes, siblings)
        if not _any_children(fanout):
            return LatentLink(fanout, observed, None)
        found = self._types(session, key, parent, children, fanout, values, rest.share(self.types))
        context = {**link_context(key, parent, child, fanout.sizes, siblings), **found.context}
        expected = expected_context(key, parent, child.size, found.fanout, context, siblings)
        of_links = rest.share(1 - self.types)
        order = best_places(session, key, child, fanout, parent.total, of_links.share(self.places))
        of_links = of_links.share(1 - self.places)
        if order is not None:
            context[PLACE] = (order, place_coder(order.most))
            expected[PLACE] = expected_places(fanout, parent.total, order.most, _largest(parent, child))
        view = session.view(_joined(key, context, children), "pair_tables")
        links = measure_links(view, context, children.features, counted.one_way, of_links, expected, lags)
        most = 0 if order is None else order.most
        return LatentLink(replace(found.fanout, pair_tables=links, places=most), observed, found.latents)

    def _of_attributes(
        self,
        session: PrivateSession,
        key: ForeignKey,
        parent: Profile,
        child: Profile,
        children: Columns,
        fanout: Fanout,
        price: Price,
    ) -> LatentLink:
        """Groups of children with attributes alone: joints of members, and of types and columns; see `link`."""
        values = self.values(session, key, children, price)
        if values < 2 or not _any_children(fanout):  # noqa: PLR2004 - a single type is none
            return LatentLink(fanout, self.joints.fit(session, key, parent, child, fanout, price), None)
        of_types, rest = price.share(self.types), price.share(1 - self.types)
        found = self._types(session, key, parent, children, fanout, values, of_types)
        order = best_places(session, key, child, fanout, parent.total, rest.share(self.places))
        rest = rest.share(1 - self.places)
        members = self.joints.fit(session, key, parent, child, fanout, rest.share(1 - self.typed))
        expected, context = expected_context(key, parent, child.size, found.fanout, found.context, {}), found.context
        if order is not None:
            context = {**context, PLACE: (order, place_coder(order.most))}
            expected[PLACE] = expected_places(fanout, parent.total, order.most, _largest(parent, child))
        view = session.view(_joined(key, context, children), "pair_tables")
        typed = rest.share(self.typed)
        links = measure_links(view, context, children.features, children.counted, typed, expected)
        joints = {**fanout.pair_tables, **links}
        most = 0 if order is None else order.most
        return LatentLink(replace(found.fanout, pair_tables=joints, places=most), members, found.latents)

    def _types(
        self,
        session: PrivateSession,
        key: ForeignKey,
        parent: Profile,
        children: Columns,
        fanout: Fanout,
        values: int,
        price: Price,
    ) -> _Found:
        """Expectation-maximisation, for ``price``."""
        em = Maximisation.of(self.latents, self.groups, session, key, parent, children, fanout)
        model, part = em.start(values), price.share(self._part)
        for number in range(self.iterations):
            model = em.next(model, part, number)
        typed = em.typed(model, part.share(self.groups), self.iterations)
        latents = typed.latents(em)
        types, coder = types_of(latents, fanout.sizes, children), value_coder(values + 1)
        context: dict[str, tuple[Feature, Discretizer]] = {
            parent_column(name): (OwnerType(key, types, position), coder) for position, name in enumerate(latents.names)
        }
        tables = {**fanout.fanout_tables, **typed.fanout_tables(em)}
        return _Found(replace(fanout, fanout_tables=tables), latents, context)

    def values(self, session: PrivateSession, key: ForeignKey, children: Columns, price: Price) -> int:
        """Number of values of each latent attribute: as many as keep the average marginal λ-useful (section 4.7)."""
        codes = [len(counts) for counts in children.one_way.counts.values() if len(counts) > 1]
        if not codes:
            return 0
        view = session.view(ViewSpec(key.child, {}, (children.rows_per_unit,)), "types")
        part = price.share(self.types * self._part * (1 - self.groups) / (len(codes) * self.latents))
        least = self.usefulness * math.sqrt(2 / math.pi) * view.sigma([Marginal(())], part) * float(np.mean(codes))
        return min(int(MAX_LATENT_VALUES ** (1 / self.latents)), int(children.one_way.total / max(least, TINY)))

    @property
    def _part(self) -> float:
        """Share of an iteration; groups of the types that the last one leads to are measured once more."""
        return 1 / (self.iterations + self.groups)


@dataclass(frozen=True)
class _Found:
    """What expectation-maximisation has found: the owner's side of it, and columns of the context of children."""

    fanout: Fanout
    latents: Latents
    context: dict[str, tuple[Feature, Discretizer]]


@dataclass(frozen=True)
class LatentLink:
    """What is released along an owner key.

    Attributes:
        fanout: How sizes of groups and children follow the latent attributes, or where there are none the owner.
        measured: What was measured of pairs of columns within the rows of the children, or of groups of them.
        latents: The latent attributes; None where noise would hide them, or children have no columns.
    """

    fanout: Fanout
    measured: MeasuredLeaf | GroupModel
    latents: Latents | None


def _joined(key: ForeignKey, context: Features, children: Columns) -> ViewSpec:
    """Return the view of children with columns of their context."""
    return ViewSpec(key.child, {**context, **children.features}, (children.rows_per_unit,))


def _any_children(fanout: Fanout) -> bool:
    """Return whether, by released numbers, any parent has children: without them there are no groups to give a type."""
    return len(fanout.counts) > 1


def _largest(parent: Profile, child: Profile) -> float:
    """Return how many children of one owner count: up to T where an owner is a unit."""
    return child.size.rows_per_unit if parent.size.units is None else np.inf
