"""Fit tables to margins, combine measurements by precision, and say what a table knows. Post-processing only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.guards import BLOCK_ROWS, FITTING_ROUNDS, NEGLIGIBLE, TINY, TOLERANCE


@dataclass(frozen=True)
class AxesMargin:
    """Sums over all axes but some.

    Attributes:
        target: Shape of the table, but 1 along each axis that is summed over.
        summed: These axes.
    """

    target: Array
    summed: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], axes: tuple[int, ...], target: Array) -> AxesMargin:
        """Keep these axes, in ascending order, of a table of this shape."""
        kept = tuple(size if axis in axes else 1 for axis, size in enumerate(shape))
        summed = tuple(axis for axis in range(len(shape)) if axis not in axes)
        return cls(np.asarray(target, dtype=float).reshape(kept), summed)

    def sums(self, joint: Array) -> Array:
        """Return those of a table, shape of ``target``."""
        return np.asarray(np.add.reduce(joint, axis=self.summed, keepdims=True))

    def scale(self, joint: Array, factors: Array) -> None:
        """Multiply the cells of each sum by its factor, in place."""
        joint *= factors


@dataclass(frozen=True)
class CodesMargin:
    """Sums over the rows of a table with the same code.

    Attributes:
        target: Shape (codes, columns of the table).
        codes: Of each row, shape (rows,).
        matrix: Sparse, shape (codes, rows): 1 where a row has a code.
    """

    target: Array
    codes: NDArray[np.integer]
    matrix: scipy.sparse.csr_array

    def sums(self, joint: Array) -> Array:
        """Return those of a table, shape of ``target``."""
        return np.asarray(self.matrix @ joint)

    def scale(self, joint: Array, factors: Array) -> None:
        """Multiply the cells of each sum by its factor, in place; in parts that stay in the cache."""
        rows = max(1, BLOCK_ROWS // joint.shape[1])
        for start in range(0, len(joint), rows):
            part = slice(start, start + rows)
            joint[part] *= factors[self.codes[part]]


def rake(joint: Array, margins: Sequence[AxesMargin | CodesMargin], rounds: int = FITTING_ROUNDS) -> None:
    """Fit a table to margins by iterative proportional fitting, in place (Deming and Stephan 1940).

    Args:
        joint: Its zeros stay.
        margins: Fitted in turn, so that the last one holds.
        rounds: Sweeps over all margins.
    """
    for _ in range(rounds):
        for margin in margins:
            margin.scale(joint, raking_factors(margin.target, margin.sums(joint)))


def raking_factors(target: Array, current: Array) -> Array:
    """Return what brings sums to their targets: 0 where there is nothing, and no more than keeps cells finite."""
    factors = np.divide(target, current, out=np.zeros_like(target), where=current > TINY)
    return np.minimum(factors, 1 / NEGLIGIBLE, out=factors)


def fit_margins(joint: Array, margins: Sequence[tuple[tuple[int, ...], Array]], rounds: int = FITTING_ROUNDS) -> Array:
    """Return a table fitted to margins; see `rake`.

    Args:
        joint: Starting point, any shape; its zeros stay.
        margins: (axes in ascending order, target of these axes' shape), fitted in turn.
        rounds: Sweeps over all margins.
    """
    fitted = joint.copy()
    rake(fitted, [AxesMargin.of(joint.shape, axes, target) for axes, target in margins], rounds)
    return fitted


def relative_entropy(found: Array, expected: Array) -> float:
    """Return the relative entropy of one distribution to another that is positive where it is, in nats."""
    seen = found > 0
    return float(max(0.0, (found[seen] * np.log(found[seen] / np.maximum(expected[seen], TINY))).sum()))


def mutual_information(joint: Array) -> float:
    """Return the mutual information of a two-way table of probabilities or counts, in nats; 0 of an empty one."""
    joint = joint / max(float(joint.sum()), TINY)
    product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    seen = (joint > 0) & (product > 0)  # products of next to nothing underflow
    return float(max(0.0, (joint[seen] * np.log(joint[seen] / product[seen])).sum()))


def combine(
    first: Array, sigma_first: Array | float, second: Array, sigma_second: Array | float
) -> tuple[Array, Array]:
    """Return the inverse-variance average of two noisy measurements of the same counts, and its standard deviations."""
    a, b = np.broadcast_to(sigma_first, first.shape) ** 2, np.broadcast_to(sigma_second, second.shape) ** 2
    both = a + b
    share = np.divide(b, both, out=np.ones(first.shape), where=both > 0)  # of the first: all of it if both are exact
    return share * first + (1 - share) * second, np.sqrt(share * a)


def row_shares(joint: Array, sizes: Array) -> Array:
    """Return what share of the children belongs to the parents of each code.

    Args:
        joint: Of a parent's code and its number of children, shape (codes, numbers).
        sizes: Number of children of each code of them, shape (numbers,).
    """
    rows = joint @ sizes
    return np.asarray(rows / max(float(rows.sum()), TINY))


def with_row_shares(joint: Array, sizes: Array, shares: Array) -> Array:
    """Return the joint with other `row_shares`: each code's numbers n of children are tilted by (1 + n)^θ.

    A joint over parents says little of children where few parents have most of them: noise of one parent of 1,000
    children is noise of 1,000 rows. What share of the rows belongs to parents with a code is counted over rows. Numbers
    of parents by code, and numbers of children over all parents, stay what they are.

    Args:
        joint: Adding up to 1, shape (codes, numbers).
        sizes: Number of children of each code of them, shape (numbers,).
        shares: None negative, shape (codes,).

    >>> joint = np.array([[0.4, 0.1], [0.4, 0.1]])
    >>> with_row_shares(joint, np.array([0.0, 10.0]), np.array([0.7, 0.3])).round(2).tolist()
    [[0.36, 0.14], [0.44, 0.06]]
    """
    parents, numbers = joint.sum(axis=1), joint.sum(axis=0)
    if not float(numbers @ sizes) > 0:
        return joint
    wanted = shares / shares.sum() * float(numbers @ sizes)
    logs = np.log1p(sizes)
    fitted = (1 - NEGLIGIBLE) * joint + NEGLIGIBLE * np.outer(parents, numbers)  # no cell is ruled out
    largest = -np.log2(NEGLIGIBLE)  # exponent: one child then is as much more likely than none
    for _ in range(FITTING_ROUNDS):
        low, high = np.full(len(parents), -largest), np.full(len(parents), largest)
        while (high - low).max() > TOLERANCE:
            middle = (low + high) / 2
            more = _tilted(fitted, parents, logs, middle) @ sizes < wanted
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        fitted = _tilted(fitted, parents, logs, (low + high) / 2)
        fitted = fitted * (numbers / np.maximum(fitted.sum(axis=0), TINY))
    return fitted


def _tilted(joint: Array, parents: Array, logs: Array, exponents: Array) -> Array:
    powers = exponents[:, None] * logs
    tilted = joint * np.exp(powers - powers.max(axis=1, keepdims=True))
    return np.asarray(tilted * (parents / np.maximum(tilted.sum(axis=1), TINY))[:, None])
