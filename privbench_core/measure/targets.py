"""Attributes of private parents that references follow: what is taken to be so where noise hides them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimate.fitting import relative_entropy, shrunk
from privbench_core.estimate.popularity import some_of_all
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.models.lookup import TARGET
from privbench_core.models.profile import Profile
from privbench_core.privacy.features import Feature, OfParent
from privbench_core.schema.constraints import ForeignKey

Array = NDArray[np.float64]
_NOTHING = 1e-300
_ALIKE = 1e-9  # nats
_STANDS_OUT = 2.0  # standard deviations of the sum of squares of noise


def targets_of(key: ForeignKey, parent: Profile) -> dict[str, tuple[Feature, Discretizer]]:
    """Return the attributes of a private parent as columns of a view, by target."""
    return {f"{TARGET}{name}": (OfParent(key, name), discretizer) for name, discretizer in parent.discretizers.items()}


def usual_shares(parent: Profile) -> dict[str, Array]:
    """Return the released distributions of the attributes of all parents, by target."""
    clean = parent.one_way.clean()
    return {f"{TARGET}{name}": clean[name] / clean[name].sum() for name in parent.discretizers}


def telling(marginals: Mapping[str, Array], parent: Profile) -> dict[str, float]:
    """Return `Lookup.telling`: targets that noise hides have been taken to be distributed as among all parents."""
    found = {}
    for name, usual in usual_shares(parent).items():
        shares = marginals[name][: len(usual)]
        apart = relative_entropy(shares / max(float(shares.sum()), _NOTHING), usual)
        if apart > _ALIKE:
            found[name] = apart
    return found


def clean_target(noisy: Array, sigma: float, usual: Array, total: float) -> Array:
    """Return counts of a target with so many in all, near what they are among all parents as far as noise explains it.

    Args:
        noisy: Counts of its codes.
        sigma: Standard deviation of the noise on each.
        usual: Distribution among all parents, of the same shape.
        total: Of the clean counts.
    """
    guess, codes = usual * total, len(noisy)
    apart = float(((noisy - guess) ** 2).sum()) / max(sigma, _NOTHING) ** 2
    if apart < codes + _STANDS_OUT * math.sqrt(2 * codes):
        return guess
    return onto_simplex(shrunk(noisy, sigma, guess), total)


def clean_target_or_none(noisy: Array, sigma: float, usual: Array, total: float) -> Array:
    """Return the same where the last code means "refers to none": estimated first, from all counts."""
    codes = len(noisy) - 1
    found = (codes * noisy[-1] + total - noisy[:-1].sum()) / (codes + 1)
    none = some_of_all(float(found), sigma * math.sqrt(codes / (codes + 1)), total)
    return np.append(clean_target(noisy[:-1], sigma, usual, total - none), none)
