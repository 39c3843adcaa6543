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
from privbench_core.estimate.fitting import combine
from privbench_core.estimate.joints import NoisyTable, estimated_joint
from privbench_core.estimate.simplex import onto_simplex
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
_WAVES = 3  # of the random functions that distinguish groups at first; chosen by hand
_NOTHING = 1e-12


@dataclass(frozen=True)
class Marginals:
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

    def latents(self, em: Maximisation) -> Latents:
        """The latent attributes."""
        return Latents(em.names, self.one_way, *self.scores)

    def fanout_tables(self, em: Maximisation) -> dict[str, Array]:
        """Joints of each latent attribute and the number of children, over parents."""
        tables = {}
        for name, joint in zip(em.names, self.sizes, strict=True):
            empty = np.zeros(joint.shape[1])
            empty[0] = em.fanout.counts[0] * joint.sum() / max(float(em.fanout.counts[1:].sum()), _NOTHING)
            whole = np.vstack([empty, joint])
            tables[name] = whole / max(float(whole.sum()), _NOTHING)
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
        clean = {name: counts for name, counts in children.one_way.clean().items() if len(counts) > 1}
        code_of, shares = fanout.sizes.shares
        codec = fanout.sizes.codec
        assert isinstance(codec, FanoutCodec)  # noqa: S101 - numbers of children have a codec of their own
        means = np.bincount(code_of, shares * codec.means()).astype(np.float64)
        names = latent_names(key.name, latents)
        return cls(groups, session, key, parent, children, fanout, names, clean, means)

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
        sizes = _tilted(held + _NOTHING, shape, len(held), rng) / values ** len(self.names)
        return LatentModel(sizes, given)

    def measure(self, model: LatentModel, values: int, price: Price, number: int) -> Marginals:
        """One iteration: the E-step under ``model``, and the marginals of the M-step for ``price``."""
        size_scores, scores = model.scores()
        shape = (values + 1,) * len(self.names)
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
        of_groups = groups.measure("sizes", [*asked, *several], price.share(self.groups))
        pairs = [(name, column) for column in self.clean for name in self.names]
        of_columns = rows.measure("children", [Marginal(pair) for pair in pairs], price.share(1 - self.groups))
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
        return Marginals(sizes, between, found, one_way, none, (size_scores, scores))

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
