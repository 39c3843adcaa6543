"""What is measured along an owner key: columns of children with what they know of their owners, and with whom they are.

Children know their owners' columns, and how many children of each kind these have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer, ordered_codes
from privbench_core.guards import NEGLIGIBLE, TINY
from privbench_core.links.fanout import Fanout
from privbench_core.marginals.measure_pairs import PairwiseFit
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, OwnerFanout, ParentFanout
from privbench_core.privacy.queries import Marginal
from privbench_core.profiles.measure_lags import MeasuredLag
from privbench_core.profiles.profile import OWNER_FANOUT, PARENT, Profile, children_column, parent_column
from privbench_core.schema.constraints import ForeignKey
from privbench_core.units.measure_by_size import Features

PAIRS = PairwiseFit()
"""How joints across tables are chosen and measured."""


@dataclass(frozen=True)
class Ownership:
    """An owner key, and what is released of the tables on both sides.

    Attributes:
        key: The owner key.
        parent: The owners.
        child: Their children.
        siblings: Other owner keys to the same parent, whose children are drawn before -> their released links.
    """

    key: ForeignKey
    parent: Profile
    child: Profile
    siblings: Mapping[ForeignKey, Fanout] = field(default_factory=dict)

    @property
    def of_units(self) -> bool:
        """Whether each owner is a unit."""
        return self.parent.size.units is None

    @property
    def largest_group(self) -> float:
        """Up to how many children of an owner are counted."""
        return self.child.size.rows_per_unit if self.of_units else np.inf

    @cached_property
    def sibling_numbers(self) -> dict[str, Array]:
        """Shares of the owners by their numbers of other children, by the name of that column."""
        return {children_column(other.name): link.counts for other, link in self.siblings.items()}

    def context(self, sizes: Discretizer) -> dict[str, tuple[Feature, Discretizer]]:
        """Columns that children's columns may follow: group size, owner's attributes, and how many others it owns."""
        found: dict[str, tuple[Feature, Discretizer]] = {}
        if not (self.child.by_size and self.of_units):  # else a group is a unit, and what follows its size is known
            found[OWNER_FANOUT] = (OwnerFanout(self.key), sizes)
        found |= self.parent.of_owner(self.key)
        return found | {
            parent_column(children_column(other.name)): (ParentFanout(self.key, other), link.sizes)
            for other, link in self.siblings.items()
        }

    def expected(
        self, fanout: Fanout, context: Iterable[str], inside: NDArray[np.bool_] | None = None
    ) -> dict[str, Array]:
        """Return shares of the counted children by columns of `context`, as numbers of children tell, shapes (codes,).

        None of the columns of owners has a code without children: noise may have hidden them.

        Args:
            fanout: Released numbers of children.
            context: Names of columns of `context`, and latent attributes of the owner.
            inside: Which codes of numbers of children, shape (codes,); None for all.
        """
        code_of, weights = fanout.sizes.shares
        inside = np.ones(fanout.sizes.size, dtype=bool) if inside is None else inside
        rows = np.bincount(code_of, weights * fanout.codec.means(self.largest_group), fanout.sizes.size) * inside
        single = fanout.sizes.encode_numbers(np.array([1]))
        one_way = self.parent.one_way
        parents = {
            name: np.outer(counts, fanout.counts) for name, counts in (one_way.clean() | self.sibling_numbers).items()
        }
        parents |= fanout.fanout_tables
        owned, ownerless = float(fanout.counts @ rows) * one_way.total, fanout.ownerless * float(inside[single[0]])
        found = {}
        for name in context:
            if name == OWNER_FANOUT:
                shares = fanout.counts * rows * one_way.total
                shares[single] += ownerless
            else:
                joint = parents[name.removeprefix(PARENT)]
                shares = joint @ rows * (owned / max(float(joint.sum(axis=0) @ rows), TINY))
                shares = shares + NEGLIGIBLE * shares.mean()
                shares = np.append(shares, ownerless) if self.key.optional else shares
            found[name] = shares / max(float(shares.sum()), TINY)
        return found


def measure_links(
    view: Curator,
    context: Features,
    own: Features,
    one_way: OneWay,
    price: Price,
    expected: Mapping[str, Array],
    lags: Sequence[MeasuredLag] = (),
) -> dict[tuple[str, str], Array]:
    """Measure joints of context columns and children's columns, for at most ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7 and 8.

    Args:
        view: Of the children, with all these columns.
        context: Columns of the context.
        own: Columns of the children.
        one_way: Released counts of the latter, as the view counts them.
        price: Of everything here.
        expected: What shares of the children have the codes of each column of the context: see `Ownership.expected`.
        lags: How long after their owner children are dated: what of the joints follows from that.
    """
    candidates = [(name, column) for name in context for column in own]
    view.expect([Marginal(pair) for pair in candidates])
    clean = {**{name: expected[name] * one_way.total for name in context}, **one_way.clean()}
    known = {each.pair: each.joint(clean) for each in lags}
    ordered = ordered_codes({name: discretizer for name, (_, discretizer) in (*context.items(), *own.items())})
    joints, _ = PAIRS.fit_pairs(view, clean, candidates, price, ordered, known)
    return joints
