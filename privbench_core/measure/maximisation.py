"""Iterations of noisy expectation-maximisation (PrivLava, sections 4.2 and 4.6, Algorithm 1).

The E-step is a view: each group has the type that is most likely under the parameters released so far, from its own
rows (`privacy.features.GroupTypes`). The M-step measures marginals with the types as columns, and fits the next
parameters to them at no cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.estimate.denoising import onto_simplex
from privbench_core.estimate.fitting import combine
from privbench_core.estimate.joints import NoisyTable, estimated_joint
from privbench_core.guards import SMOOTHING, START_WAVES
from privbench_core.measure.columns import Columns, value_coder
from privbench_core.models.fanout import OWN_FANOUT, Fanout
from privbench_core.models.latent import LatentModel, Latents, latent_names
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Feature, GroupTypes, OwnerType, OwnFanout, OwnType
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.constraints import ForeignKey

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TypedGroups:
    """Groups by their types, without noise, the value 0 of parents without children left out.

    Attributes:
        sizes: For each latent attribute, (value, size) over groups with children.
        between: All latent attributes over groups with children.
        one_way: Noisy numbers of parents by latent value.
        scores: What the types are.
    """

    sizes: tuple[Array, ...]
    between: Array
    one_way: OneWay
    scores: tuple[NDArray[np.int64], Mapping[str, NDArray[np.int64]]]

    def latents(self, em: Maximisation) -> Latents:
        """The latent attributes."""
        return Latents(em.names, self.one_way, *self.scores)

    def fanout_tables(self, em: Maximisation) -> dict[str, Array]:
        """Joints of each latent attribute and the number of children, over parents."""
        tables = {}
        for name, joint in zip(em.names, self.sizes, strict=True):
            empty = np.zeros(joint.shape[1])
            empty[0] = em.fanout.counts[0] * joint.sum() / max(float(em.fanout.counts[1:].sum()), SMOOTHING)
            whole = np.vstack([empty, joint])
            tables[name] = whole / max(float(whole.sum()), SMOOTHING)
        return tables


@dataclass(frozen=True)
class Maximisation:
    """What all iterations share."""

    groups: float
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
        latents: int,
        groups: float,
        session: PrivateSession,
        key: ForeignKey,
        parent: Profile,
        children: Columns,
        fanout: Fanout,
    ) -> Maximisation:
        """What all iterations need, from what is released already."""
        clean = {name: counts for name, counts in children.counted.clean().items() if len(counts) > 1}
        names = latent_names(key.name, latents)
        return cls(groups, session, key, parent, children, fanout, names, clean, mean_sizes(fanout))

    def start(self, values: int) -> LatentModel:
        """Parameters that tell groups apart by random functions of their rows: where all are alike, all types stay so.

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
        """One iteration: the E-step under ``model``, and the next parameters from marginals that cost ``price``."""
        found = self.typed(model, price.share(self.groups), number)
        types, coder = self._types(model)
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
        return LatentModel.fitted(found.sizes, found.between, owned, self.mean_sizes)

    def typed(self, model: LatentModel, price: Price, number: int) -> TypedGroups:
        """The E-step under ``model``, and the groups of each type, measured for ``price``."""
        types, coder = self._types(model)
        features: dict[str, tuple[Feature, Discretizer]] = {OWN_FANOUT: (OwnFanout(self.key), self.fanout.sizes)}
        features |= {name: (OwnType(self.key, types, k), coder) for k, name in enumerate(self.names)}
        counted = (self.parent.size.rows_per_unit,)
        groups = self.session.view(ViewSpec(self.key.parent, features, counted), f"types {number}")
        asked = [Marginal((name, OWN_FANOUT)) for name in self.names]
        several = [Marginal(self.names)] if len(self.names) > 1 else []
        measured = groups.measure("sizes", [*asked, *several], price)
        return TypedGroups(*self._groups(measured.values, measured.sigma), model.scores())

    def _types(self, model: LatentModel) -> tuple[GroupTypes, Discretizer]:
        """The E-step, and the coder of a latent attribute."""
        size_scores, scores = model.scores()
        values = model.sizes.shape[1] + 1
        columns = tuple((*self.children.sources[name], table) for name, table in scores.items())
        types = GroupTypes((values,) * len(self.names), self.fanout.sizes, size_scores, columns)
        return types, value_coder(values)

    def _margin(self, noisy: list[Array]) -> Array:
        """Rows by latent value, from the tables of all columns: their sums averaged by their variances."""
        sums = np.stack([table[1:].sum(axis=1) for table in noisy])
        weights = np.array([1 / table.shape[1] for table in noisy])
        total = float(next(iter(self.clean.values())).sum())
        return onto_simplex(weights @ sums / weights.sum(), total) + SMOOTHING

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
        held = np.maximum(self.fanout.counts[1:] * total, SMOOTHING)
        joints = []
        for position, name in enumerate(self.names):
            margin = onto_simplex(one_way.counts[name][1:], float(held.sum())) + SMOOTHING
            joint = estimated_joint(NoisyTable(noisy[position][1:, 1:], sigma), margin, held)
            joints.append(np.hstack([np.zeros((len(margin), 1)), joint]))
        if number == 1:
            return tuple(joints), joints[0].sum(axis=1), one_way
        inside = noisy[-1][tuple(slice(1, None) for _ in range(number))]
        return tuple(joints), onto_simplex(inside, float(held.sum())), one_way


def mean_sizes(fanout: Fanout) -> Array:
    """Mean size of the groups of each code of sizes."""
    codec, (code_of, shares) = fanout.sizes.codec, fanout.sizes.shares
    assert isinstance(codec, FanoutCodec)  # noqa: S101 - numbers of children have a codec of their own
    return np.bincount(code_of, shares * codec.means()).astype(np.float64)


def _tilted(counts: Array, shape: tuple[int, ...], ordered: int, rng: np.random.Generator) -> Array:
    """Distributions over codes, each tilted by random functions of its latent values, shape (codes, *shape)."""
    place = (np.cumsum(counts) - counts / 2) / counts.sum()
    waves = np.stack([np.cos(np.pi * wave * place) for wave in range(1, START_WAVES + 1)])
    exponent = np.zeros((len(counts), *shape))
    for axis, values in enumerate(shape):
        tilt = rng.standard_normal((values, START_WAVES)) @ waves
        tilt[:, ordered:] = rng.standard_normal((values, len(counts) - ordered))
        across = [1] * len(shape)
        across[axis] = values
        exponent += tilt.T.reshape(len(counts), *across)
    joint = counts.reshape(-1, *([1] * len(shape))) * np.exp(exponent)
    return np.asarray(joint / joint.sum(axis=0))
