"""Latent attributes of groups, as released: how likely each value is, and what it says of sizes and children.

PrivLava (sections 4.1 and 4.6): each group of children of one owner has latent values Z1, Z2, which say what kind of
group it is; given these, its size and its children are independent of each other. They are columns of the owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimators.fitting import fit_margins
from privbench_core.guards import FITTING_ROUNDS, NEGLIGIBLE, SCORE_SCALE, SMOOTHING
from privbench_core.marginals.one_way import OneWay
from privbench_core.profiles.names import parent_column
from privbench_core.stored import Storable

Array = NDArray[np.float64]
_TYPE = "#type "  # no column of a database is called that


def latent_names(key: str, number: int) -> tuple[str, ...]:
    """Names of the latent attributes of the groups along an owner key."""
    return tuple(f"{_TYPE}{position} of {key}" for position in range(1, number + 1))


def is_latent(name: str) -> bool:
    """Whether a column, of the rows themselves or of their owners, is a latent attribute.

    >>> is_latent("parent.#type 1 of order.user_id"), is_latent("parent.kind")
    (True, False)
    """
    return name.removeprefix(parent_column("")).startswith(_TYPE)


@dataclass(frozen=True)
class Latents(Storable):
    """Released: the latent attributes of the groups along one owner key.

    Attributes:
        names: Their names.
        one_way: How many parents have each value, 0 for parents without children.
        size_scores: log p(size, latent values), shape (codes of sizes, combinations), see
            `privacy.features.GroupTypes`.
        scores: Column of the children -> log p(code | latent values), shape (codes, combinations).
    """

    names: tuple[str, ...]
    one_way: OneWay
    size_scores: NDArray[np.int64]
    scores: Mapping[str, NDArray[np.int64]]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each latent attribute."""
        return tuple(len(self.one_way.counts[name]) for name in self.names)


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
    def fitted(
        cls, sizes: tuple[Array, ...], between: Array, columns: Mapping[str, tuple[Array, ...]], mean_sizes: Array
    ) -> LatentModel:
        """Fit to counts without noise to speak of, none negative.

        Args:
            sizes: For each latent attribute, the joint (value, size) over groups.
            between: The joint of all latent attributes over groups, shape (*values).
            columns: For each column of the children, and each latent attribute, the joint (value, code) over rows.
            mean_sizes: Mean size of the groups of each code of sizes.
        """
        of_groups = _fit(sizes, between)
        rows = np.tensordot(mean_sizes, of_groups, axes=(0, 0))
        given = {}
        for name, joints in columns.items():
            joint = _fit(joints, rows)
            given[name] = joint / joint.sum(axis=0)
        return cls(of_groups / of_groups.sum(), given)

    def scores(self) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]:
        """Log-likelihoods of sizes and of columns as whole numbers, shapes (codes, combinations)."""
        return _scores(self.sizes), {name: _scores(given) for name, given in self.given.items()}


def _fit(joints: tuple[Array, ...], between: Array) -> Array:
    """The joint (code, *values) with margins (code, value) and (*values): positive wherever these are."""
    dimensions = between.ndim
    code = joints[0].sum(axis=0)
    start = np.multiply.outer(code / max(code.sum(), NEGLIGIBLE), between / max(between.sum(), NEGLIGIBLE)) + SMOOTHING
    margins: list[tuple[tuple[int, ...], Array]] = [
        ((0, axis), joint.T / max(joint.sum(), NEGLIGIBLE)) for axis, joint in enumerate(joints, start=1)
    ]
    if dimensions > 1:
        margins.append((tuple(range(1, dimensions + 1)), between / max(between.sum(), NEGLIGIBLE)))
    return fit_margins(start, margins, FITTING_ROUNDS if dimensions > 1 else 1) + SMOOTHING


def _scores(probabilities: Array) -> NDArray[np.int64]:
    logarithms = np.log(np.maximum(probabilities, NEGLIGIBLE))
    scores: NDArray[np.int64] = np.rint(logarithms * SCORE_SCALE).astype(np.int64)
    return scores.reshape(len(probabilities), -1)
