"""Iterations of noisy expectation-maximisation (PrivLava, sections 4.2 and 4.6, Algorithm 1).

The E-step is a view: each group has the type that is most likely under the parameters released so far, from its own
rows (`privacy.features.GroupTypes`). The M-step measures marginals with the types as columns, and fits the next
parameters to them at no cost. Latent attributes of what a table's rows own are columns of it (`Columns`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.group_codes import index_coder
from privbench_core.estimators.denoising import onto_simplex
from privbench_core.estimators.fitting import combine, fit_margins
from privbench_core.estimators.joints import NoisyTable, estimated_joint
from privbench_core.groups.group_model import Latents
from privbench_core.guards import FITTING_ROUNDS, NEGLIGIBLE, SMOOTHING
from privbench_core.links.fanout import Fanout
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Feature, GroupTypes, Own, OwnerType, OwnFanout, OwnType
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.profile import OWN_FANOUT, Profile
from privbench_core.schema.constraints import ForeignKey

Scores = NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """What there is of a table's rows: attributes, and latent attributes of the groups of children of each row.

    Attributes:
        sources: Column -> (source, discretizer).
        one_way: Their released counts.
        rows_per_unit: T: up to how many rows of a unit are counted in full.
        types: Names of the latent attributes among them.
        left_out: Of attributes: what counting up to so many rows of a unit leaves out (`Profile.truncation_biases`).
    """

    sources: dict[str, tuple[Own | OwnType, Discretizer]]
    one_way: OneWay
    rows_per_unit: int
    types: tuple[str, ...] = ()
    left_out: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, profile: Profile) -> Columns:
        """Return the attributes of a table."""
        sources: dict[str, tuple[Own | OwnType, Discretizer]] = {
            name: (Own(name), discretizer) for name, discretizer in profile.discretizers.items()
        }
        return cls(sources, profile.one_way, profile.size.rows_per_unit, (), profile.truncation_biases())

    def with_latents(self, key: ForeignKey, latents: Latents, types: GroupTypes) -> Columns:
        """Return these and the latent attributes of the groups along a key to this table."""
        sources = dict(self.sources)
        for position, name in enumerate(latents.names):
            sources[name] = (OwnType(key, types, position), value_coder(latents.shape[position]))
        counts = {**self.one_way.counts, **latents.one_way.counts}
        sigmas = {**self.one_way.sigmas, **latents.one_way.sigmas}
        one_way = replace(self.one_way, counts=counts, sigmas=sigmas)
        return replace(self, sources=sources, one_way=one_way, types=(*self.types, *latents.names))

    @property
    def counted(self) -> OneWay:
        """``one_way`` distributed like the rows that are counted: what joints of these are to be compared with."""
        return self.one_way.moved({name: -shift for name, shift in self.left_out.items()})

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
    """Return a discretizer with a code for each latent value."""
    return index_coder("#type", size, ordered=False)


def types_of(
    shape: tuple[int, ...], scores: tuple[Scores, Mapping[str, Scores]], sizes: Discretizer, children: Columns
) -> GroupTypes:
    """Return the parameters of the E-step, with the columns of the children that they are about.

    ``shape`` has the value of parents without children; ``scores`` are those of `LatentModel.scores`.
    """
    of_sizes, of_columns = scores
    columns = tuple((*children.sources[name], table) for name, table in of_columns.items())
    return GroupTypes(shape, sizes, of_sizes, columns)


@dataclass(frozen=True)
class LatentModel:
    """Probabilities of the graphical model with latent attributes, given marginals with one of them each.

    The joint of a column and all latent attributes is the one of largest entropy that has these marginals: the
    exponential family of the paper's section 4.1, fitted by iterative proportional fitting.

    Attributes:
        sizes: p(size, latent values), shape (codes of sizes, *values).
        given: Column -> p(code | latent values), shape (codes, *values).
    """

    sizes: Array
    given: Mapping[str, Array]

    @classmethod
    def fitted(cls, groups: TypedGroups, columns: Mapping[str, tuple[Array, ...]], mean_sizes: Array) -> LatentModel:
        """Fit to counts, none negative; ``columns`` have a joint (value, code) over rows for each latent attribute."""
        of_groups = _largest_entropy(groups.sizes, groups.between)
        rows = np.tensordot(mean_sizes, of_groups, axes=(0, 0))
        joints = {name: _largest_entropy(of_column, rows) for name, of_column in columns.items()}
        given = {name: joint / joint.sum(axis=0) for name, joint in joints.items()}
        return cls(of_groups / of_groups.sum(), given)

    def scores(self) -> tuple[Scores, dict[str, Scores]]:
        """Return log-likelihoods of sizes and of columns as whole numbers, shapes (codes, combinations)."""
        return _scores(self.sizes), {name: _scores(given) for name, given in self.given.items()}


@dataclass(frozen=True)
class TypedGroups:
    """Groups by their types, without noise, the value 0 of parents without children left out.

    Attributes:
        sizes: For each latent attribute, (value, size) over groups with children.
        between: All latent attributes over groups with children.
        one_way: Noisy numbers of parents by latent value.
    """

    sizes: tuple[Array, ...]
    between: Array
    one_way: OneWay


@dataclass(frozen=True)
class Maximisation:
    """What all iterations of an owner key share."""

    session: PrivateSession
    key: ForeignKey
    parent: Profile
    children: Columns
    fanout: Fanout
    groups: float  # share of an iteration for marginals over groups
    names: tuple[str, ...]

    @cached_property
    def clean(self) -> dict[str, Array]:
        """Counts of the children's columns that have several codes, as rows are counted."""
        return {name: counts for name, counts in self.children.counted.clean().items() if len(counts) > 1}

    def start(self, values: int) -> LatentModel:
        """Return parameters that separate groups by random functions of their rows: equal types would stay equal.

        The functions are of the released distributions and of a fixed seed: smooth over ordered codes, any over lists.
        """
        rng = np.random.default_rng(0)
        shape = (values,) * len(self.names)
        ordered = self.children.ordered
        given = {name: _tilted(counts, shape, ordered.get(name, 0), rng) for name, counts in self.clean.items()}
        held = self.fanout.counts.copy()
        held[0] = 0.0
        sizes = _tilted(held + SMOOTHING, shape, len(held), rng) / values ** len(self.names)
        return LatentModel(sizes, given)

    def next(self, model: LatentModel, price: Price, number: int) -> LatentModel:
        """Run the E-step under ``model``, and return the next parameters, from marginals that cost ``price``."""
        found = self.typed(model, price.share(self.groups), number)
        types, coder = self.types(model)
        features = self.children.features
        features |= {name: (OwnerType(self.key, types, k), coder) for k, name in enumerate(self.names)}
        spec = ViewSpec(self.key.child, features, (self.children.rows_per_unit,))
        pairs = [(name, column) for column in self.clean for name in self.names]
        rows = self.session.view(spec, f"types {number}")
        measured = rows.measure("children", [Marginal(pair) for pair in pairs], price.share(1 - self.groups))
        noisy = dict(zip(pairs, measured.values, strict=True))
        margins = [self._margin([noisy[name, column] for column in self.clean]) for name in self.names]
        owned = {}
        for column in self.clean:
            joints = (
                estimated_joint(NoisyTable(noisy[name, column][1:], measured.sigma), margin, self.clean[column])
                for name, margin in zip(self.names, margins, strict=True)
            )
            # The value of rows without an owner, if there may be any, comes last.
            owned[column] = tuple(joint[: len(joint) - int(self.key.optional)] for joint in joints)
        code_of, shares = self.fanout.sizes.shares
        return LatentModel.fitted(found, owned, np.bincount(code_of, shares * self.fanout.codec.means()).astype(float))

    def typed(self, model: LatentModel, price: Price, number: int) -> TypedGroups:
        """Run the E-step under ``model``, and measure the groups of each type for ``price``."""
        types, coder = self.types(model)
        features: dict[str, tuple[Feature, Discretizer]] = {OWN_FANOUT: (OwnFanout(self.key), self.fanout.sizes)}
        features |= {name: (OwnType(self.key, types, k), coder) for k, name in enumerate(self.names)}
        counted = (self.parent.size.rows_per_unit,)
        groups = self.session.view(ViewSpec(self.key.parent, features, counted), f"types {number}")
        asked = [Marginal((name, OWN_FANOUT)) for name in self.names]
        several = [Marginal(self.names)] if len(self.names) > 1 else []
        measured = groups.measure("sizes", [*asked, *several], price)
        return self._estimated(measured.values, measured.sigma)

    def types(self, model: LatentModel) -> tuple[GroupTypes, Discretizer]:
        """Return the E-step, and the coder of a latent attribute."""
        values = model.sizes.shape[1] + 1
        types = types_of((values,) * len(self.names), model.scores(), self.fanout.sizes, self.children)
        return types, value_coder(values)

    def fanout_tables(self, sizes: tuple[Array, ...]) -> dict[str, Array]:
        """Return joints of each latent attribute and the number of children over parents, from those over groups."""
        tables = {}
        for name, joint in zip(self.names, sizes, strict=True):
            empty = np.zeros(joint.shape[1])
            empty[0] = self.fanout.counts[0] * joint.sum() / max(float(self.fanout.counts[1:].sum()), SMOOTHING)
            whole = np.vstack([empty, joint])
            tables[name] = whole / max(float(whole.sum()), SMOOTHING)
        return tables

    def _margin(self, noisy: list[Array]) -> Array:
        """Return rows by latent value, from the tables of all columns: their sums averaged by their variances."""
        sums = np.stack([table[1:].sum(axis=1) for table in noisy])
        weights = np.array([1 / table.shape[1] for table in noisy])
        total = float(next(iter(self.clean.values())).sum())
        return onto_simplex(weights @ sums / weights.sum(), total) + SMOOTHING

    def _estimated(self, noisy: tuple[Array, ...], sigma: float) -> TypedGroups:
        """Return joints over groups with children, and the numbers of parents by latent value."""
        number, counts, sigmas = len(self.names), {}, {}
        for position, (name, table) in enumerate(zip(self.names, noisy, strict=False)):
            value, deviation = table.sum(axis=1), np.full(len(table), sigma * math.sqrt(table.shape[1]))
            if number > 1:
                again = noisy[-1].sum(axis=tuple(axis for axis in range(number) if axis != position))
                cells = noisy[-1].size / len(again)
                value, deviation = combine(value, deviation, again, sigma * math.sqrt(cells))
            counts[name], sigmas[name] = value, deviation
        held = np.maximum(self.fanout.counts[1:] * self.parent.total, SMOOTHING)
        joints = []
        for name, table in zip(self.names, noisy, strict=False):
            margin = onto_simplex(counts[name][1:], float(held.sum())) + SMOOTHING
            joint = estimated_joint(NoisyTable(table[1:, 1:], sigma), margin, held)
            joints.append(np.hstack([np.zeros((len(margin), 1)), joint]))
        inside = noisy[-1][tuple(slice(1, None) for _ in range(number))]
        between = joints[0].sum(axis=1) if number == 1 else onto_simplex(inside, float(held.sum()))
        return TypedGroups(tuple(joints), between, OneWay(counts, sigmas))


def _largest_entropy(joints: tuple[Array, ...], between: Array) -> Array:
    """Return the joint (code, *values) with margins (code, value) and (*values): positive wherever these are."""
    dimensions, whole = between.ndim, between / max(between.sum(), NEGLIGIBLE)
    code = joints[0].sum(axis=0)
    start = np.multiply.outer(code / max(code.sum(), NEGLIGIBLE), whole) + SMOOTHING
    margins: list[tuple[tuple[int, ...], Array]] = [
        ((0, axis), joint.T / max(joint.sum(), NEGLIGIBLE)) for axis, joint in enumerate(joints, start=1)
    ]
    if dimensions > 1:
        margins.append((tuple(range(1, dimensions + 1)), whole))
    return fit_margins(start, margins, FITTING_ROUNDS if dimensions > 1 else 1) + SMOOTHING


def _scores(probabilities: Array) -> Scores:
    # Whole multiples of 1/65,536 nats: rounding is far below any noise.
    scores: Scores = np.rint(np.log(np.maximum(probabilities, NEGLIGIBLE)) * (1 << 16)).astype(np.int64)
    return scores.reshape(len(probabilities), -1)


def _tilted(counts: Array, shape: tuple[int, ...], ordered: int, rng: np.random.Generator) -> Array:
    """Return distributions over codes, each tilted by random functions of its latent values, shape (codes, *shape)."""
    middle = (np.cumsum(counts) - counts / 2) / counts.sum()
    waves = np.stack([np.cos(np.pi * wave * middle) for wave in (1, 2, 3)])
    exponent = np.zeros((len(counts), *shape))
    for axis, values in enumerate(shape):
        tilt = rng.standard_normal((values, len(waves))) @ waves
        tilt[:, ordered:] = rng.standard_normal((values, len(counts) - ordered))
        across = [1] * len(shape)
        across[axis] = values
        exponent += tilt.T.reshape(len(counts), *across)
    joint = counts.reshape(-1, *([1] * len(shape))) * np.exp(exponent)
    return np.asarray(joint / joint.sum(axis=0))
