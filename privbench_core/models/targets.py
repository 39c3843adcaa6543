"""Targets of a link: by which attributes, or rows, a parent is referred to, and how likely each of their codes is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.guards import TINY

Array = NDArray[np.float64]


def with_code_of_none(joint: Array, every: Array) -> Array:
    """Return a joint in which rows that refer to none have what the others leave of a column.

    Args:
        joint: Of a target, whose last code is to refer to none, and the column; adds up to the share of rows that do.
        every: Distribution of the column over all rows.
    """
    found = joint.copy()
    found[-1] = 0.0
    of_present = found.sum(axis=0)
    left = np.maximum(every - of_present, 0.0)
    found[-1] = left * (max(1 - float(of_present.sum()), 0.0) / max(float(left.sum()), TINY))
    return found


def coded_by_position(targets: Mapping[str, Discretizer], count: int) -> dict[str, Codes]:
    """Return the codes of the rows of a public table, by target; shape (count,) each."""
    return {name: discretizer.encode_numbers(np.arange(count)) for name, discretizer in targets.items()}


def marginals_of(targets: Mapping[str, Discretizer], counts: Array, none: float) -> dict[str, Array]:
    """Return the probabilities of the codes of a public parent's targets, if its rows are referred to so often.

    Args:
        targets: Codings of the positions of its rows.
        counts: How often each row is referred to, relative to the others, shape (parents,).
        none: Share of rows that refer to none, which is the last code then; 0 where they must refer to one.
    """
    often = counts if counts.any() else np.ones(len(counts))
    found = {}
    for name, codes in coded_by_position(targets, len(counts)).items():
        marginal = np.bincount(codes, often, targets[name].size) * ((1 - none) / often.sum())
        marginal[-1] += none
        found[name] = marginal
    return found
