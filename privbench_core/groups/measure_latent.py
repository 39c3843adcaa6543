"""Measure what children of an owner key are drawn from: sizes of groups, latent attributes, and joints with these.

PrivLava's Algorithm 2. Expectation-maximisation finds the types of groups (`measure_types`); then children's columns
are related to types and to whatever else there is. All parts have prices that are fixed before the first one.

In the paper, children are independent of each other given the type of their group. Two members that share one of many
values, or are of about the same age, would need as many types as there are such values, and noise leaves few. So where
children have attributes alone, the joints of two members are measured directly, as in PrivPetal (`measure_groups`), and
types keep what pairs do not show. Children with latent attributes of their own, in the middle of a chain, are drawn as
in the paper.

Children that follow their group's type alone are drawn independently of each other: two heads of a household, or none.
Where members stand in an order by one of their columns, each place has its own distribution, and a group has each place
once. Which column that is follows from one measurement of all: the dependence of a column on the place, beyond what
independent members would show when put in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.group_codes import index_coder, place_count, sizes_and_ranks
from privbench_core.estimators.segmentation import SIGNIFICANT
from privbench_core.groups.group_model import GroupModel, Latents, latent_names
from privbench_core.groups.measure_groups import GroupFit
from privbench_core.groups.measure_types import Columns, Maximisation
from privbench_core.guards import TINY
from privbench_core.links.fanout import Fanout
from privbench_core.links.measure_fanout import (
    PAIRS,
    Ownership,
    fit_fanout,
    fit_sizes,
    fit_sizes_and_siblings,
    measure_links,
)
from privbench_core.marginals.measured import MeasuredLeaf
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Price, zero
from privbench_core.privacy.features import Feature, MemberPlace, Own, OwnerType
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.profile import PLACE, Profile, parent_column
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity


@dataclass(frozen=True)
class LatentFit:
    """How the price of an owner key's latent attributes is spent.

    Attributes:
        JOINTS: How the price of joints of members is spent, where children have attributes alone.
        latents: Number of latent attributes of a foreign key: the paper's Z1 and Z2.
        iterations: T of Algorithm 1.
        types: Share of all iterations in what an owned table's groups cost other than observed marginals.
        groups: Share of an iteration for marginals over groups: sizes, and pairs of latent attributes (the 4 and the 1
            of 20:4:1).
        observed: Share of observed marginals in what an owned table's groups cost (Algorithm 2, line 1), where children
            have latent attributes of their own.
        places: Share, in what links cost other than the former two, of the choice of a column that orders members.
        typed: Share, in what is left, of joints with types and places, where children have attributes alone: the rest
            is for joints of members.
        usefulness: λ: as many latent values as keep the average latent marginal λ-useful.
    """

    JOINTS: ClassVar[GroupFit] = GroupFit()
    latents: int = 1
    iterations: int = 3
    types: float = 0.2
    groups: float = 0.2
    observed: float = 0.2
    places: float = 0.05
    typed: float = 0.2
    usefulness: float = 1.0

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        chosen = {each.name: getattr(self, each.name) for each in fields(LatentFit)}
        return {**chosen, "pairs": PAIRS.identity(), "joints": self.JOINTS.identity()}

    def link(
        self,
        session: PrivateSession,
        ownership: Ownership,
        children: Columns,
        for_sizes: Price,
        for_groups: Price | None,
    ) -> LatentLink:
        """Measure the groups along an owner key: sizes, latent attributes, and what children are drawn from.

        Where noise would leave fewer than two latent values there are none, and children that have latent attributes
        themselves are related to their owner directly, as in PrivBench.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7, 8 and 11.

        Args:
            session: Open for the step.
            ownership: The key, and both sides.
            children: Columns of the children.
            for_sizes: Price of the sizes of groups.
            for_groups: Of all else; None where children have no columns.
        """
        key, parent, child = ownership.key, ownership.parent, ownership.child
        if for_groups is None or not children.sources:  # types of children may be hidden by noise
            price = for_sizes + (for_groups or zero(for_sizes.measure))
            fanout = fit_sizes(session, ownership, price)
            return LatentLink(fanout, MeasuredLeaf(OneWay({}, {}, child.total)), None)
        observed, rest, one_way = None, for_groups, children.counted
        if children.types:
            view = session.view(ViewSpec(key.child, children.features, (children.rows_per_unit,)), "rows")
            counted = PAIRS.fit(view, one_way, for_groups.share(self.observed), children.ordered)
            rest, one_way = for_groups.share(1 - self.observed), counted.one_way
            observed = replace(counted, one_way=one_way.moved(children.left_out))
            children = replace(children, one_way=observed.one_way)
        values = self._values(session, key, children, rest)
        if observed and values < 2:  # noqa: PLR2004 - a single type is none
            return LatentLink(fit_fanout(session, ownership, for_sizes + rest), observed, None)
        fanout, lags, _ = fit_sizes_and_siblings(session, ownership, for_sizes)
        if values < 2 or len(fanout.counts) == 1:  # noqa: PLR2004 - or no parent has children
            members = observed or self.JOINTS.fit(session, ownership, fanout, rest)
            return LatentLink(fanout, members, None)
        prices = self._prices(rest, observed=observed is not None)
        found, latents, context = self._types(session, key, parent, children, fanout, values, prices["types"])
        if observed:
            context = {**ownership.context(fanout.sizes), **context}
        expected = ownership.expected(found, context)
        order = best_places(session, ownership, fanout, prices["places"])
        if order is not None:
            context = {**context, PLACE: (order, place_coder(order.most))}
            expected[PLACE] = expected_places(fanout, parent.total, order.most, ownership.largest_group)
        members = observed or self.JOINTS.fit(session, ownership, fanout, prices["members"])
        spec = ViewSpec(key.child, {**context, **children.features}, (children.rows_per_unit,))
        view = session.view(spec, "pair_tables")
        links = measure_links(
            view, context, children.features, one_way, prices["links"], expected, lags if observed else ()
        )
        joints = links if observed else {**fanout.pair_tables, **links}
        most = 0 if order is None else order.most
        return LatentLink(replace(found, pair_tables=joints, places=most), members, latents)

    def _prices(self, rest: Price, *, observed: bool) -> dict[str, Price]:
        """Return the table of prices of what follows sizes and observed pairs; members are then observed already."""
        for_links = rest.share(1 - self.types).share(1 - self.places)
        return {
            "types": rest.share(self.types),
            "places": rest.share(1 - self.types).share(self.places),
            "members": for_links.share(0.0 if observed else 1 - self.typed),
            "links": for_links if observed else for_links.share(self.typed),
        }

    def _types(
        self,
        session: PrivateSession,
        key: ForeignKey,
        parent: Profile,
        children: Columns,
        fanout: Fanout,
        values: int,
        price: Price,
    ) -> tuple[Fanout, Latents, dict[str, tuple[Feature, Discretizer]]]:
        """Run expectation-maximisation for ``price``; return owners' side and children's context."""
        names = latent_names(key.name, self.latents)
        em = Maximisation(session, key, parent, children, fanout, self.groups, names)
        model, part = em.start(values), price.share(self._iteration)
        for number in range(self.iterations):
            model = em.next(model, part, number)
        typed = em.typed(model, part.share(self.groups), self.iterations)
        types, coder = em.types(model)
        context: dict[str, tuple[Feature, Discretizer]] = {
            parent_column(name): (OwnerType(key, types, position), coder) for position, name in enumerate(names)
        }
        tables = {**fanout.fanout_tables, **em.fanout_tables(typed.sizes)}
        return replace(fanout, fanout_tables=tables), Latents(names, typed.one_way, *model.scores()), context

    def _values(self, session: PrivateSession, key: ForeignKey, children: Columns, price: Price) -> int:
        """Return the values of each latent attribute: as many as keep the average marginal λ-useful (section 4.7)."""
        codes = [len(counts) for counts in children.one_way.counts.values() if len(counts) > 1]
        if not codes:
            return 0
        view = session.view(ViewSpec(key.child, {}, (children.rows_per_unit,)), "types")
        part = price.share(self.types * self._iteration * (1 - self.groups) / (len(codes) * self.latents))
        least = self.usefulness * math.sqrt(2 / math.pi) * view.sigma([Marginal(())], part) * float(np.mean(codes))
        # All latent attributes are one context, of at most 32 combinations of values.
        return min(int(32 ** (1 / self.latents)), int(children.one_way.total / max(least, TINY)))

    @property
    def _iteration(self) -> float:
        """Share of an iteration; groups of the types that the last one leads to are measured once more."""
        return 1 / (self.iterations + self.groups)


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


def place_coder(most: int) -> Discretizer:
    """Return a discretizer with a code for each place, in order."""
    return index_coder(PLACE, place_count(most))


def best_places(session: PrivateSession, ownership: Ownership, fanout: Fanout, price: Price) -> MemberPlace | None:
    """Return the most informative order of members, or None if noise may have made it; for ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 2 and 4.
    """
    key, child, owners = ownership.key, ownership.child, ownership.parent.total
    most = min(key.max_children or 1, 8)  # members of a group whose places are distinguished
    clean = {name: counts for name, counts in child.one_way.clean().items() if len(counts) > 1}
    held = _held(fanout, owners, most)
    if most < 2 or not clean or held[1:].sum() <= 0:  # noqa: PLR2004 - who is alone has one place
        return None
    orders = {name: _order(counts, child.discretizers[name], owners) for name, counts in clean.items()}
    places = {name: MemberPlace(key, name, child.discretizers[name], order, most) for name, order in orders.items()}
    coder = place_coder(most)
    features: dict[str, tuple[Feature, Discretizer]] = {}
    for name, place in places.items():
        features[name], features[f"{PLACE} {name}"] = (Own(name), child.discretizers[name]), (place, coder)
    view = session.view(ViewSpec(key.child, features, (child.size.rows_per_unit,)), "places")
    rows = held[sizes_and_ranks(most)[0] - 1]
    rows = rows / max(float(rows.sum()), TINY)
    groups = tuple(((((f"{PLACE} {name}", name), np.outer(rows, counts)),)) for name, counts in clean.items())
    noisy = view.measure("place scores", [Distances(groups)], price)
    expected = [_by_chance(clean[name], orders[name], rows, most) * child.one_way.total for name in clean]
    scores = noisy.values[0] - expected
    best = int(np.argmax(scores))
    return places[list(clean)[best]] if scores[best] > SIGNIFICANT * noisy.sigma else None


def expected_places(fanout: Fanout, owners: float, most: int, largest: float) -> Array:
    """Return the shares of the children that have each place, by released sizes of groups; shape (codes,).

    Of a group that is larger than ``most`` all further members have the last place; no more than ``largest`` count.
    """
    held, (size, rank) = _held(fanout, owners, most), sizes_and_ranks(most)
    rows = held[size - 1]
    code_of, shares = fanout.sizes.shares
    beyond = np.maximum(fanout.codec.means(largest) - most, 0.0)
    rows[(size == most) & (rank == most - 1)] += float((owners * fanout.counts[code_of] * shares) @ beyond)
    return np.asarray(rows / max(float(rows.sum()), TINY))


def _held(fanout: Fanout, owners: float, most: int) -> Array:
    """Return the number of groups of 1, 2, … children, those of more than ``most`` as so many, shape (most,)."""
    code_of, shares = fanout.sizes.shares
    groups = owners * fanout.counts[code_of] * shares
    held = np.bincount(np.minimum(fanout.codec.starts, most), groups, most + 1)
    held[1] += fanout.ownerless
    return np.asarray(held[1:])


def _order(counts: Array, discretizer: Discretizer, owners: float) -> NDArray[np.int64]:
    """Return the places of the codes: intervals in order; of a list, first what occurs about once in each group."""
    intervals, size = discretizer.ordered, len(counts)
    order = np.arange(size, dtype=np.int64)
    values = np.argsort(np.abs(counts[intervals:] - owners), kind="stable")
    order[intervals + values] = intervals + np.arange(size - intervals)
    return order


def _by_chance(counts: Array, order: NDArray[np.int64], rows: Array, most: int) -> float:
    """Return the distance of independent members, as a share of all rows: order statistics of each size."""
    shares = (counts / counts.sum())[np.argsort(order)]
    below = np.append(0.0, np.cumsum(shares))
    sizes, ranks = sizes_and_ranks(most)
    reached = scipy.stats.binom.sf(ranks[:, None], sizes[:, None], np.clip(below, 0.0, 1.0))
    return float(rows @ np.abs(np.diff(reached, axis=1) - shares).sum(axis=1))
