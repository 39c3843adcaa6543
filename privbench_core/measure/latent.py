"""Noisy expectation-maximisation: what kinds of groups there are along an owner key (PrivLava, sections 4.2 to 4.7).

The E-step is a view: each group has the type that is most likely under the parameters released so far, from its own
rows (`privacy.views.GroupTypes`). The M-step measures marginals with the types as columns, and fits the next parameters
to them at no cost. All iterations have prices that are fixed before the first one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.equal_width import equal_width_codec
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.estimate.fitting import combine
from privbench_core.estimate.joints import NoisyTable, estimated_joint
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.measure.fanout import FanoutFit, fit_fanout, fit_sizes, link_context, measure_links
from privbench_core.measure.pairwise import PairwiseFit
from privbench_core.measure.places import best_places, place_coder
from privbench_core.models.fanout import OWN_FANOUT, PLACE, Fanout, parent_column
from privbench_core.models.latent import LatentModel, Latents, latent_names
from privbench_core.models.measured import MeasuredLeaf
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import (
    Feature,
    GroupTypes,
    Own,
    OwnerType,
    OwnFanout,
    OwnType,
    ViewSpec,
)
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity

Array = NDArray[np.float64]
MOST_COMBINATIONS = 32  # of latent values; with 64, the chain of the convergence test has no room for other columns
_WAVES = 3  # of the random functions that groups are told apart by at first; chosen by hand
_NOTHING = 1e-12


@dataclass(frozen=True)
class Columns:
    """What there is of a table's rows: attributes, and latent attributes of the groups of children of each row.

    Attributes:
        sources: Column -> (source, discretizer).
        one_way: Their released counts.
        rows_per_unit: T: up to how many rows of a unit are counted in full.
        types: Names of the latent attributes among them.
    """

    sources: dict[str, tuple[Own | OwnType, Discretizer]]
    one_way: OneWay
    rows_per_unit: int
    types: tuple[str, ...] = ()

    @classmethod
    def of(cls, profile: Profile) -> Columns:
        """The attributes of a table."""
        sources: dict[str, tuple[Own | OwnType, Discretizer]] = {
            name: (Own(name), discretizer) for name, discretizer in profile.discretizers.items()
        }
        return cls(sources, profile.one_way, profile.size.rows_per_unit)

    def with_latents(self, key: ForeignKey, latents: Latents, types: GroupTypes) -> Columns:
        """With the latent attributes of the groups along a key to this table."""
        sources = dict(self.sources)
        for position, name in enumerate(latents.names):
            sources[name] = (OwnType(key, types, position), value_coder(latents.shape[position]))
        counts = {**self.one_way.counts, **latents.one_way.counts}
        sigmas = {**self.one_way.sigmas, **latents.one_way.sigmas}
        one_way = OneWay(counts, sigmas, self.one_way.rows)
        return Columns(sources, one_way, self.rows_per_unit, (*self.types, *latents.names))

    @property
    def ordered(self) -> dict[str, int]:
        """Attributes with ordered codes -> how many of their leading codes are intervals."""
        of = {name: discretizer.ordered for name, (_, discretizer) in self.sources.items() if name not in self.types}
        return {name: number for name, number in of.items() if number}

    @property
    def features(self) -> dict[str, tuple[Feature, Discretizer]]:
        """Features of a view."""
        return dict(self.sources)


def value_coder(size: int) -> Discretizer:
    """A discretizer with a code for each latent value."""
    codec = equal_width_codec(Column("#type", ColumnType.INTEGER), 0, size - 1, size)
    none = codec.size - size  # cells of other numbers, of which there are none
    return Discretizer(codec, Binning((*range(size), *[0] * none), (*[1.0] * size, *[0.0] * none)))


def types_of(latents: Latents, sizes: Discretizer, children: Columns) -> GroupTypes:
    """The parameters of the E-step, with the columns of the children that they are about."""
    columns = tuple((*children.sources[name], scores) for name, scores in latents.scores.items())
    return GroupTypes(latents.shape, sizes, latents.size_scores, columns)


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
        em = _Maximisation.of(self, session, key, parent, children, fanout)
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


@dataclass(frozen=True)
class _Marginals:
    """Marginals of one M-step without their noise, the value 0 of parents without children left out.

    Attributes:
        sizes: For each latent attribute, (value, size) over groups with children.
        between: All latent attributes over groups with children.
        columns: Column of the children -> for each latent attribute, (value, code) over rows; the value of rows without
            an owner, if there may be any, comes last.
        one_way: Noisy numbers of parents by latent value.
        none: Number of latent values that stand for no owner: 0 or 1.
        scores: What the types are that these were measured with.
    """

    sizes: tuple[Array, ...]
    between: Array
    columns: Mapping[str, tuple[Array, ...]]
    one_way: OneWay
    none: int
    scores: tuple[NDArray[np.int64], Mapping[str, NDArray[np.int64]]]

    def model(self, mean_sizes: Array) -> LatentModel:
        """The next parameters."""
        owned = {
            name: tuple(joint[: len(joint) - self.none] for joint in joints) for name, joints in self.columns.items()
        }
        return LatentModel.fitted(self.sizes, self.between, owned, mean_sizes)

    def latents(self, em: _Maximisation) -> Latents:
        """The latent attributes."""
        return Latents(em.names, self.one_way, *self.scores)

    def fanout_tables(self, em: _Maximisation) -> dict[str, Array]:
        """Joints of each latent attribute and the number of children, over parents."""
        tables = {}
        for name, joint in zip(em.names, self.sizes, strict=True):
            empty = np.zeros(joint.shape[1])
            empty[0] = em.fanout.counts[0] * joint.sum() / max(float(em.fanout.counts[1:].sum()), _NOTHING)
            whole = np.vstack([empty, joint])
            tables[name] = whole / max(float(whole.sum()), _NOTHING)
        return tables


@dataclass(frozen=True)
class _Maximisation:
    """What all iterations share."""

    fit: LatentFit
    session: PrivateSession
    key: ForeignKey
    parent: Profile
    children: Columns
    fanout: Fanout
    names: tuple[str, ...]
    clean: Mapping[str, Array]
    mean_sizes: Array

    @classmethod
    def of(
        cls,
        fit: LatentFit,
        session: PrivateSession,
        key: ForeignKey,
        parent: Profile,
        children: Columns,
        fanout: Fanout,
    ) -> _Maximisation:
        clean = {name: counts for name, counts in children.one_way.clean().items() if len(counts) > 1}
        code_of, shares = fanout.sizes.shares
        codec = fanout.sizes.codec
        assert isinstance(codec, FanoutCodec)  # noqa: S101 - numbers of children have a codec of their own
        means = np.bincount(code_of, shares * codec.means()).astype(np.float64)
        names = latent_names(key.name, fit.latents)
        return cls(fit, session, key, parent, children, fanout, names, clean, means)

    def start(self, values: int) -> LatentModel:
        """Parameters that tell groups apart by random functions of their rows: where all are alike, all types stay so.

        The functions are of the released distributions and of a fixed seed: smooth over ordered codes, any over lists.
        """
        rng = np.random.default_rng(0)
        shape = (values,) * self.fit.latents
        ordered = self.children.ordered
        given = {name: _tilted(counts, shape, ordered.get(name, 0), rng) for name, counts in self.clean.items()}
        held = self.fanout.counts.copy()
        held[0] = 0.0
        sizes = _tilted(held + _NOTHING, shape, len(held), rng) / values**self.fit.latents
        return LatentModel(sizes, given)

    def measure(self, model: LatentModel, values: int, price: Price, number: int) -> _Marginals:
        """One iteration: the E-step under ``model``, and the marginals of the M-step for ``price``."""
        size_scores, scores = model.scores()
        shape = (values + 1,) * self.fit.latents
        columns = tuple((*self.children.sources[name], table) for name, table in scores.items())
        types = GroupTypes(shape, self.fanout.sizes, size_scores, columns)
        coder = value_coder(values + 1)
        of_parents: dict[str, tuple[Feature, Discretizer]] = {OWN_FANOUT: (OwnFanout(self.key), self.fanout.sizes)}
        of_rows = self.children.features
        for position, name in enumerate(self.names):
            of_parents[name] = (OwnType(self.key, types, position), coder)
            of_rows[name] = (OwnerType(self.key, types, position), coder)
        label = f"types {number}"
        counted = (self.parent.size.rows_per_unit,)
        groups = self.session.view(ViewSpec(self.key.parent, of_parents, counted), label)
        rows = self.session.view(ViewSpec(self.key.child, of_rows, (self.children.rows_per_unit,)), label)
        asked = [Marginal((name, OWN_FANOUT)) for name in self.names]
        several = [Marginal(self.names)] if len(self.names) > 1 else []
        of_groups = groups.measure("sizes", [*asked, *several], price.share(self.fit.groups))
        pairs = [(name, column) for column in self.clean for name in self.names]
        of_columns = rows.measure("children", [Marginal(pair) for pair in pairs], price.share(1 - self.fit.groups))
        noisy = dict(zip(pairs, of_columns.values, strict=True))
        sizes, between, one_way = self._groups(of_groups.values, of_groups.sigma)
        none = int(self.key.optional)
        margins = [self._margin([noisy[name, column] for column in self.clean]) for name in self.names]
        found = {
            column: tuple(
                estimated_joint(NoisyTable(noisy[name, column][1:], of_columns.sigma), margin, self.clean[column])
                for name, margin in zip(self.names, margins, strict=True)
            )
            for column in self.clean
        }
        return _Marginals(sizes, between, found, one_way, none, (size_scores, scores))

    def _margin(self, noisy: list[Array]) -> Array:
        """Rows by latent value, from the tables of all columns: their sums averaged by their variances."""
        sums = np.stack([table[1:].sum(axis=1) for table in noisy])
        weights = np.array([1 / table.shape[1] for table in noisy])
        total = float(next(iter(self.clean.values())).sum())
        return onto_simplex(weights @ sums / weights.sum(), total) + _NOTHING

    def _groups(self, noisy: tuple[Array, ...], sigma: float) -> tuple[tuple[Array, ...], Array, OneWay]:
        """Joints over groups with children, and the numbers of parents by latent value."""
        number, total = len(self.names), self.parent.total
        counts, sigmas = {}, {}
        for position, name in enumerate(self.names):
            table = noisy[position]
            value, deviation = table.sum(axis=1), np.full(len(table), sigma * math.sqrt(table.shape[1]))
            if number > 1:
                others = tuple(axis for axis in range(number) if axis != position)
                again = noisy[-1].sum(axis=others)
                cells = noisy[-1].size / len(again)
                value, deviation = combine(value, deviation, again, sigma * math.sqrt(cells))
            counts[name], sigmas[name] = value, deviation
        one_way = OneWay(counts, sigmas)
        held = np.maximum(self.fanout.counts[1:] * total, _NOTHING)
        joints = []
        for position, name in enumerate(self.names):
            margin = onto_simplex(one_way.counts[name][1:], float(held.sum())) + _NOTHING
            joint = estimated_joint(NoisyTable(noisy[position][1:, 1:], sigma), margin, held)
            joints.append(np.hstack([np.zeros((len(margin), 1)), joint]))
        if number == 1:
            return tuple(joints), joints[0].sum(axis=1), one_way
        inside = noisy[-1][tuple(slice(1, None) for _ in range(number))]
        return tuple(joints), onto_simplex(inside, float(held.sum())), one_way


def _tilted(counts: Array, shape: tuple[int, ...], ordered: int, rng: np.random.Generator) -> Array:
    """Distributions over codes, each tilted by random functions of its latent values, shape (codes, *shape)."""
    place = (np.cumsum(counts) - counts / 2) / counts.sum()
    waves = np.stack([np.cos(np.pi * wave * place) for wave in range(1, _WAVES + 1)])
    exponent = np.zeros((len(counts), *shape))
    for axis, values in enumerate(shape):
        tilt = rng.standard_normal((values, _WAVES)) @ waves
        tilt[:, ordered:] = rng.standard_normal((values, len(counts) - ordered))
        across = [1] * len(shape)
        across[axis] = values
        exponent += tilt.T.reshape(len(counts), *across)
    joint = counts.reshape(-1, *([1] * len(shape))) * np.exp(exponent)
    return np.asarray(joint / joint.sum(axis=0))
