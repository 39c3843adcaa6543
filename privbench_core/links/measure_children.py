"""Joints of columns of children with what they know of their owners: its columns, and numbers of children."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
from privbench_core.privacy.features import Feature, OfParent, OwnerFanout, ParentFanout
from privbench_core.privacy.queries import Marginal
from privbench_core.profiles.measure_lags import MeasuredLag
from privbench_core.profiles.profile import OWNER_FANOUT, PARENT, Profile, children_column, parent_column
from privbench_core.schema.constraints import ForeignKey
from privbench_core.units.measure_by_size import Features
from privbench_core.units.row_count import RowCount

Siblings = Mapping[ForeignKey, Fanout]
"""Other owner keys to the same parent -> their released links."""
PAIRS = PairwiseFit()
"""How joints across tables are chosen and measured."""


def expected_context(
    key: ForeignKey,
    parent: Profile,
    children: RowCount,
    fanout: Fanout,
    context: Iterable[str],
    siblings: Siblings,
    inside: NDArray[np.bool_] | None = None,
) -> dict[str, Array]:
    """Shares of the counted children by columns of their context, as numbers of children tell them, shapes (codes,).

    None of the columns of owners has a code without children: noise may have hidden them.

    Args:
        key: The owner key.
        parent: The owners.
        children: Released size of their table.
        fanout: Released numbers of children.
        context: Names of columns of `link_context`, and latent attributes of the owner.
        siblings: As in `fit_sizes`.
        inside: Which codes of numbers of children, shape (codes,); None for all.
    """
    code_of, weights = fanout.sizes.shares
    most = children.rows_per_unit if parent.size.units is None else np.inf
    inside = np.ones(fanout.sizes.size, dtype=bool) if inside is None else inside
    rows = np.bincount(code_of, weights * fanout.codec.means(most), fanout.sizes.size) * inside
    single = fanout.sizes.encode_numbers(np.array([1]))
    parents = {name: np.outer(counts, fanout.counts) for name, counts in parent.one_way.clean().items()}
    parents |= {children_column(other.name): np.outer(link.counts, fanout.counts) for other, link in siblings.items()}
    parents |= fanout.fanout_tables
    owned, ownerless = float(fanout.counts @ rows) * parent.one_way.total, fanout.ownerless * float(inside[single[0]])
    found = {}
    for name in context:
        if name == OWNER_FANOUT:
            shares = fanout.counts * rows * parent.one_way.total
            shares[single] += ownerless
        else:
            joint = parents[name.removeprefix(PARENT)]
            shares = joint @ rows * (owned / max(float(joint.sum(axis=0) @ rows), TINY))
            shares = shares + NEGLIGIBLE * shares.mean()
            shares = np.append(shares, ownerless) if key.optional else shares
        found[name] = shares / max(float(shares.sum()), TINY)
    return found


def link_context(
    key: ForeignKey, parent: Profile, child: Profile, sizes: Discretizer, siblings: Siblings
) -> dict[str, tuple[Feature, Discretizer]]:
    """Columns that children's columns may follow: group size, owner's attributes, and how many others it owns."""
    context: dict[str, tuple[Feature, Discretizer]] = {}
    if not (child.by_size and parent.size.units is None):  # else a group is a unit, and what follows its size is known
        context[OWNER_FANOUT] = (OwnerFanout(key), sizes)
    context |= {
        parent_column(name): (OfParent(key, name), discretizer) for name, discretizer in parent.discretizers.items()
    }
    return context | {
        parent_column(children_column(other.name)): (ParentFanout(key, other), link.sizes)
        for other, link in siblings.items()
    }


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
        expected: What shares of the children have the codes of each column of the context: see `expected_context`.
        lags: How long after their owner children are dated: what of the joints follows from that.
    """
    candidates = [(name, column) for name in context for column in own]
    view.expect([Marginal(pair) for pair in candidates])
    clean = {**{name: expected[name] * one_way.total for name in context}, **one_way.clean()}
    known = {each.pair: each.joint(clean) for each in lags}
    ordered = ordered_codes({name: discretizer for name, (_, discretizer) in (*context.items(), *own.items())})
    joints, _ = PAIRS.fit_pairs(view, clean, candidates, price, ordered, known)
    return joints
