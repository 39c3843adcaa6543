"""Attributes of private parents that references follow: what is taken to be so where noise hides them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.estimate.denoising import onto_simplex, shrink_haar
from privbench_core.estimate.fitting import relative_entropy
from privbench_core.estimate.popularity import truncated_mean
from privbench_core.guards import NEGLIGIBLE, SHOWN_DEVIATIONS, TINY
from privbench_core.models.fanout import Fanout, children_column
from privbench_core.models.lookup import TARGET
from privbench_core.models.profile import Profile
from privbench_core.privacy.features import Feature, OfParent, ParentFanout
from privbench_core.schema.constraints import ForeignKey

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Referred:
    """What is released of the rows of a private parent that references may follow.

    Attributes:
        profile: Of its columns.
        numbers: Links along owner keys of other tables, whose numbers of children references may follow too.
    """

    profile: Profile
    numbers: Mapping[ForeignKey, Fanout] = field(default_factory=dict)

    def targets(self, key: ForeignKey) -> dict[str, tuple[Feature, Discretizer]]:
        """Return columns of a view, by target."""
        found: dict[str, tuple[Feature, Discretizer]] = {
            f"{TARGET}{name}": (OfParent(key, name), coder) for name, coder in self.profile.discretizers.items()
        }
        for of, link in self.numbers.items():
            found[f"{TARGET}{children_column(of.name)}"] = ParentFanout(key, of), link.sizes
        return found

    def usual_shares(self) -> dict[str, Array]:
        """Return the released distributions among all parents, by target."""
        clean = self.profile.one_way.clean()
        known = {name: clean[name] for name in self.profile.discretizers}
        known |= {children_column(of.name): link.counts for of, link in self.numbers.items()}
        return {f"{TARGET}{name}": counts / counts.sum() for name, counts in known.items()}

    def telling(self, marginals: Mapping[str, Array]) -> dict[str, float]:
        """Return `Lookup.telling`: targets that noise hides have been taken to be distributed as among all parents."""
        found = {}
        for name, usual in self.usual_shares().items():
            shares = marginals[name][: len(usual)]
            apart = relative_entropy(shares / max(float(shares.sum()), TINY), usual)
            if apart > NEGLIGIBLE:
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
    apart = float(((noisy - guess) ** 2).sum()) / max(sigma, TINY) ** 2
    if apart < codes + SHOWN_DEVIATIONS * math.sqrt(2 * codes):
        return guess
    return onto_simplex(shrink_haar(noisy, sigma, guess), total)


def clean_target_or_none(noisy: Array, sigma: float, usual: Array, total: float) -> Array:
    """Return the same where the last code means "refers to none": estimated first, from all counts."""
    codes = len(noisy) - 1
    found = (codes * noisy[-1] + total - noisy[:-1].sum()) / (codes + 1)
    none = truncated_mean(float(found), sigma * math.sqrt(codes / (codes + 1)), total)
    return np.append(clean_target(noisy[:-1], sigma, usual, total - none), none)
