"""What is measured along an owner key: sizes of groups, their latent attributes, and how children follow them.

PrivLava's Algorithm 2. The children's pairs of columns come first; then expectation-maximisation finds the types of
groups (`maximisation`); then children's columns are related to types, owners, sizes and places, where it helps. All
parts have prices that are fixed before the first one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from privbench_core.measure.columns import Columns, types_of, value_coder
from privbench_core.measure.fanout import FanoutFit, fit_fanout, fit_sizes, link_context, measure_links
from privbench_core.measure.maximisation import Maximisation
from privbench_core.measure.pairwise import PairwiseFit
from privbench_core.measure.places import best_places, place_coder
from privbench_core.models.fanout import PLACE, Fanout, parent_column
from privbench_core.models.latent import Latents
from privbench_core.models.measured import MeasuredLeaf
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import OwnerType
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity

MOST_COMBINATIONS = 32  # of latent values; with 64, the chain of the convergence test has no room for other columns
_NOTHING = 1e-12


@dataclass(frozen=True)
class LatentFit:
    """How the price of an owner key's latent attributes is spent; see `privlava.options.Options`.

    Attributes:
        latents: Number of latent attributes.
        iterations: T, of expectation-maximisation.
        types: Share of expectation-maximisation, the rest is for what children are drawn from.
        groups: Share of an iteration for marginals over groups (sizes; between latent attributes).
        usefulness: λ: values are as many as keep the average marginal λ-useful.
        observed: Share of pairs of columns within a row.
        places: Share, in what is for links, of the choice of a column that members are put in an order by.
        pairs: How noise is weighed.
    """

    latents: int
    iterations: int
    types: float
    groups: float
    usefulness: float
    observed: float
    places: float
    pairs: PairwiseFit = field(default_factory=PairwiseFit)

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
            "pairs": self.pairs.identity(),
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
    ) -> LatentLink:
        """Measure the groups along an owner key: sizes, pairs of columns within rows, latent attributes.

        Where noise would leave fewer than two latent values, what children have in common with their owner is measured
        directly, as PrivBench does.

        Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7 and 11.

        Args:
            session: Open for the step.
            key: The owner key.
            parent: The owners.
            child: Their children.
            children: Columns of the children.
            for_sizes: Price of the sizes of groups.
            for_groups: Of all else; None where children have no columns.
        """
        spending = FanoutFit(pairs=self.pairs)
        if for_groups is None:
            nothing = MeasuredLeaf(OneWay({}, {}, child.total))
            return LatentLink(fit_sizes(session, key, parent, child.size, for_sizes, spending), nothing, None)
        view = session.view(ViewSpec(key.child, children.features, (children.rows_per_unit,)), "rows")
        observed = self.pairs.fit(view, children.one_way, for_groups.share(self.observed), children.ordered)
        rest = for_groups.share(1 - self.observed)
        children = replace(children, one_way=observed.one_way)
        values = self.values(session, key, children, rest)
        if values < 2:  # noqa: PLR2004 - a single type is none
            both = for_sizes + rest
            return LatentLink(fit_fanout(session, key, parent, child, observed.fit(), both, spending), observed, None)
        fanout = fit_sizes(session, key, parent, child.size, for_sizes, spending)
        em = Maximisation.of(self.latents, self.groups, session, key, parent, children, fanout)
        model = em.start(values)
        of_types, of_links = rest.share(self.types), rest.share(1 - self.types)
        for number in range(self.iterations):
            marginals = em.measure(model, values, of_types.share(1 / self.iterations), number)
            model = marginals.model(em.mean_sizes)
        latents = marginals.latents(em)
        types = types_of(latents, fanout.sizes, children)
        coder = value_coder(values + 1)
        order = best_places(session, key, child, fanout, parent.total, of_links.share(self.places))
        of_links = of_links.share(1 - self.places)
        context = link_context(key, parent, child, fanout.sizes)
        if order is not None:
            context[PLACE] = (order, place_coder(order.most))
        context |= {
            parent_column(name): (OwnerType(key, types, position), coder) for position, name in enumerate(latents.names)
        }
        view = session.view(
            ViewSpec(key.child, {**context, **children.features}, (children.rows_per_unit,)), "pair_tables"
        )
        network = observed.fit()
        links = measure_links(view, context, children.features, children.one_way, network, of_links, spending)
        tables = {**fanout.fanout_tables, **marginals.fanout_tables(em)}
        most = 0 if order is None else order.most
        fanout = replace(fanout, fanout_tables=tables, pair_tables=links, places=most)
        return LatentLink(fanout, observed, latents)

    def values(self, session: PrivateSession, key: ForeignKey, children: Columns, price: Price) -> int:
        """Number of values of each latent attribute: as many as keep the average marginal λ-useful (section 4.7)."""
        codes = [len(counts) for counts in children.one_way.counts.values() if len(counts) > 1]
        if not codes:
            return 0
        view = session.view(ViewSpec(key.child, {}, (children.rows_per_unit,)), "types")
        part = price.share(self.types / self.iterations * (1 - self.groups) / (len(codes) * self.latents))
        least = self.usefulness * math.sqrt(2 / math.pi) * view.sigma([Marginal(())], part) * float(np.mean(codes))
        return min(int(MOST_COMBINATIONS ** (1 / self.latents)), int(children.one_way.total / max(least, _NOTHING)))


@dataclass(frozen=True)
class LatentLink:
    """What is released along an owner key.

    Attributes:
        fanout: How sizes of groups and children follow the latent attributes, or where there are none the owner.
        observed: What was measured of pairs of columns within the rows of the children.
        latents: The latent attributes; None where noise would hide them, or children have no columns.
    """

    fanout: Fanout
    observed: MeasuredLeaf
    latents: Latents | None
