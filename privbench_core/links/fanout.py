"""Fanout along an ownership key, as released: how many children parents have, and how children follow them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.errors import InternalError
from privbench_core.guards import TINY
from privbench_core.links.linking import CrossMarginal
from privbench_core.profiles.lags import Lag
from privbench_core.profiles.profile import parent_column
from privbench_core.stored import Storable


@dataclass(frozen=True)
class Agreement(Storable):
    """Released: how often rows have the same code as a sibling.

    Attributes:
        column: Of the children.
        groups: Of each of its codes, those that count as the same, shape (codes,).
        share: Of the rows that have siblings, those that agree with one of them.
        sigma: Standard deviation of its noise.
    """

    column: str
    groups: NDArray[np.int64]
    share: float
    sigma: float

    def wanted(self, now: float) -> float:
        """Return the share to reach from ``now``: as far as noise does not explain the distance."""
        gap = self.share - now
        return now + gap * max(0.0, 1 - (self.sigma / gap) ** 2) if gap else now


@dataclass(frozen=True)
class Fanout(Storable):
    """Released: the link along one ownership key.

    Attributes:
        sizes: Coder of the numbers of children.
        counts: Probabilities of the number of children, shape (codes of ``sizes``,).
        fanout_tables: Parent's column -> joint (parent's column, number of children); `children_column` is one as well.
        pair_tables: (context column, child's column) -> joint; context is "parent.<column>", `OWNER_FANOUT`, `PLACE`.
        owned: Number of children that have an owner.
        ownerless: Number of children whose owner key is NULL; each is a unit of its own.
        cross_marginals: Where children are drawn by themselves: what links to owners are learned from; else None.
        places: Up to how many members the places of children in their group are distinguished; 0 if none are.
        lags: How long after their owner children are dated.
        agreements: How often children of one owner agree.
    """

    sizes: Discretizer
    counts: Array
    fanout_tables: Mapping[str, Array]
    pair_tables: Mapping[tuple[str, str], Array]
    owned: float
    ownerless: float = 0.0
    cross_marginals: tuple[CrossMarginal, ...] | None = None
    places: int = 0
    lags: tuple[Lag, ...] = ()
    agreements: tuple[Agreement, ...] = ()

    @property
    def codec(self) -> FanoutCodec:
        """Codec of the numbers of children; raises InternalError if these have none of their own."""
        if not isinstance(self.sizes.codec, FanoutCodec):
            raise InternalError("numbers of children have a codec of their own")
        return self.sizes.codec

    def numbers(self, parents: int, rng: np.random.Generator, stratum: tuple[int, int] = (0, 1)) -> NDArray[np.int64]:
        """Numbers of children of so many parents in ascending order: evenly spaced quantiles, shape (parents,).

        There is one parent of 900 children where one is expected, neither none nor three.

        Args:
            parents: Number of parents.
            rng: Sampling only.
            stratum: Which of how many equally large ranges of parents these are: each has the quantiles between those
                of the others, so that all of them together are as evenly spaced.

        Raises:
            InternalError: Numbers of children have no codec of their own.
        """
        codec, (code_of, weights) = self.codec, self.sizes.shares
        ends = np.cumsum(self.counts[code_of] * weights)
        if not ends[-1] > 0:
            return np.zeros(parents, dtype=np.int64)
        number, strata = stratum
        places = (np.arange(parents) + (number + rng.random()) / strata) * (ends[-1] / max(parents, 1))
        cells = np.minimum(np.searchsorted(ends, places, side="right"), np.flatnonzero(np.diff(ends, prepend=0.0))[-1])
        begins = np.append(0.0, ends[:-1])[cells]
        return codec.within(cells, np.clip((places - begins) / (ends[cells] - begins), 0.0, 1.0))

    def looks_at(self, name: str) -> bool:
        """Whether numbers of children, or their columns, depend on a column of their parents."""
        return name in self.fanout_tables or any(context == parent_column(name) for context, _ in self.pair_tables)

    @property
    def at_bound(self) -> float:
        """Share of the children whose parents have as many as the declared bound lets them have, and may have more.

        Numbers beyond the bound are counted as the bound, in the last cell: what it holds beyond the numbers of the
        octave below. Bounds up to which each number has a cell are rules that people know (two parents, five cards),
        and have none.
        """
        codec = self.sizes.codec
        if not isinstance(codec, FanoutCodec) or codec.in_singles:
            return 0.0
        code_of, weights = self.sizes.shares
        parents = self.counts[code_of] * weights
        widths = np.diff(codec.starts, append=codec.bound + 1)
        below = np.flatnonzero(2 * codec.starts[:-1] >= codec.bound)
        expected = float(parents[below].sum() / max(widths[below].sum(), 1)) * widths[-1]
        beyond = max(0.0, float(parents[-1]) - expected) * codec.bound
        return float(beyond / max(float(parents @ codec.means()), TINY))
