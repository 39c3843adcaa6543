"""Joints of columns of children with what they know of their owners: its columns, and numbers of children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer, ordered_codes
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.errors import InternalError
from privbench_core.estimate.haar_shrinkage import shrink_haar
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.measure.by_size import Features
from privbench_core.measure.fanout_fit import FanoutFit
from privbench_core.measure.lags import MeasuredLag
from privbench_core.measure.shortlist import shortlist_size
from privbench_core.models.fanout import OWNER_FANOUT, PARENT, Fanout, children_column, parent_column
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.models.row_count import RowCount
from privbench_core.models.spn import REGION, Node, Sum
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, OfParent, OwnerFanout, ParentFanout
from privbench_core.privacy.queries import Marginal
from privbench_core.schema.constraints import ForeignKey

Array = NDArray[np.float64]
Siblings = Mapping[ForeignKey, Fanout]
"""Other owner keys to the same parent -> their released links."""
_NOTHING = 1e-300


def expected_context(
    key: ForeignKey, parent: Profile, children: RowCount, fanout: Fanout, context: Features, siblings: Siblings
) -> dict[str, Array]:
    """Shares of the counted children by columns of their context, as numbers of children tell them, shapes (codes,).

    Args:
        key: The owner key.
        parent: The owners.
        children: Released size of their table.
        fanout: Released numbers of children.
        context: Columns of `link_context`; others are left out.
        siblings: As in `fit_sizes`.
    """
    codec, (code_of, weights) = fanout.sizes.codec, fanout.sizes.shares
    if not isinstance(codec, FanoutCodec):
        raise InternalError("numbers of children have a codec of their own")
    most = children.rows_per_unit if parent.size.units is None else np.inf
    rows = np.bincount(code_of, weights * codec.means(most), fanout.sizes.size)
    parents = {name: np.outer(counts, fanout.counts) for name, counts in parent.one_way.clean().items()}
    parents |= {children_column(other.name): np.outer(link.counts, fanout.counts) for other, link in siblings.items()}
    parents |= fanout.fanout_tables
    owned, ownerless = float(fanout.counts @ rows) * parent.one_way.total, fanout.ownerless
    found = {}
    for name in context:
        if name == OWNER_FANOUT:
            shares = fanout.counts * rows * parent.one_way.total
            shares[fanout.sizes.encode_numbers(np.array([1]))] += ownerless
        elif (joint := parents.get(name.removeprefix(PARENT))) is not None:
            shares = joint @ rows * (owned / max(float(joint.sum(axis=0) @ rows), _NOTHING))
            shares = np.append(shares, ownerless) if key.optional else shares
        else:
            continue
        found[name] = shares / max(float(shares.sum()), _NOTHING)
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
    counted: tuple[OneWay, RowCount],
    model: Node,
    price: Price,
    fit: FanoutFit,
    expected: Mapping[str, Array],
    lags: Sequence[MeasuredLag] = (),
) -> dict[tuple[str, str], Array]:
    """Measure joints of context columns and children's columns, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7 and 8.

    Args:
        view: Of the children, with all these columns.
        context: Columns of the context.
        own: Columns of the children.
        counted: Released counts of the latter, as the view counts them, and the size of their table.
        model: Of the children: the parts of a root sum node are tied to the context too.
        price: Of everything here.
        fit: How to spend it.
        expected: What shares of the children are expected to have the codes of a column of the context, where known.
        lags: How long after their owner children are dated: what of the joints follows from that.
    """
    candidates, (one_way, size) = [(name, column) for name in context for column in own], counted
    if candidates and shortlist_size(view, len(candidates), one_way.total, price) == len(candidates):
        view.expect([Marginal(pair) for pair in candidates])
    margins = view.measure("context", [Marginal((name,)) for name in context], price.share(fit.margin_share))
    clean = {}
    for name, noisy in zip(context, margins.values, strict=True):
        shares, sigmas = expected.get(name), np.full(len(noisy), margins.sigma)
        counts = noisy if shares is None else shrink_haar(noisy, sigmas, shares * one_way.total)
        clean[name] = onto_simplex(counts, one_way.total)
    price = price.share(1 - fit.margin_share)
    clean |= one_way.clean()
    finer = [each.joint(clean) for each in lags]
    known = {each.pair: each.merged(joint) for each, joint in zip(lags, finer, strict=True)}
    regions: dict[tuple[str, str], Array] = {}
    if isinstance(model, Sum):
        regions = _region_tables(view, model, {name: clean[name] for name in context}, price.share(fit.region_share))
        price = price.share(1 - fit.region_share)
    ordered = ordered_codes({name: discretizer for name, (_, discretizer) in (*context.items(), *own.items())})
    joints, _ = fit.pairs.fit_pairs(view, clean, candidates, price, ordered, size, own, known)
    for each, joint in zip(lags, finer, strict=True):
        joints[each.finer] = each.cut(joint, joints.pop(each.pair))
    return {**regions, **joints}


def _region_tables(
    view: Curator, model: Sum, context: Mapping[str, Array], price: Price
) -> dict[tuple[str, str], Array]:
    """Joints of context columns and the parts of the root sum node: context marginals inside each part."""
    parts = [
        part.measure("context of part", [Marginal((name,)) for name in context], price)
        for part in view.split(model.rule)
    ]
    pair_tables = {}
    for index, (name, counts) in enumerate(context.items()):
        joint = np.stack([part.values[index] for part in parts], axis=1)
        total = max(1.0, float(counts.sum()))
        pair_tables[name, REGION] = onto_simplex(joint, total) / total
    return pair_tables
