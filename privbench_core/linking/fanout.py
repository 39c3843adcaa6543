"""Fanout along an ownership key: how many children a parent has, and how children's attributes follow the parent's.

PrivBench's Algorithm 6 releases one noisy count per key value, which is mostly noise and forgets which parent it
belongs to. Here two small sets of joints are released instead, both with the stability of one unit:

- (number of children, attribute of the parent), over parents;
- (attribute of the parent or group size, attribute of the child), over children weighted by 1/(group size).

Children are then drawn given their parent's row, so a join on the synthetic database shows parents and children
correlating, and every child has a parent, of which no one has more than τ children.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.binning import merge_cells
from privbench_core.domain.coder import Coder, ordered_codes
from privbench_core.domain.group_sizes import GroupSizeCodec
from privbench_core.domain.simplex import onto_simplex
from privbench_core.linking.presence import present_or_not
from privbench_core.models.nodes import REGION, Node, Sum
from privbench_core.models.one_way import OneWay
from privbench_core.models.pairwise import PairwiseFit, highest_noise
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.door import Door
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.views import Children, Feature, OfParent, Own, ParentRow, Siblings, ViewSpec
from privbench_core.schema.identity import Identity
from privbench_core.schema.model.constraints import ForeignKey

Array = NDArray[np.float64]
CHILDREN = "#children"
SIBLINGS = "#siblings"
_PARENT = "parent."
_OWNER = "#owner"
_MAX_SIZE_CODES = 40


@dataclass(frozen=True)
class FanoutFit:
    """How a fanout step spends its price; public constants.

    Attributes:
        count_share: Part of the price for the number of children, the rest is for ties between attributes.
        margin_share: Part of each of the two for one-way marginals.
        owner_share: Part of the counts' price for the number of rows without an owner, where the owner key may be NULL.
        region_share: Part of the ties' price for the parts of a sum node, where the child's model has one.
        pairs: How joints are chosen and measured.
    """

    count_share: float = 0.3
    margin_share: float = 0.2
    owner_share: float = 0.1
    region_share: float = 0.15
    pairs: PairwiseFit = field(default_factory=PairwiseFit)

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "count_share": self.count_share,
            "margin_share": self.margin_share,
            "owner_share": self.owner_share,
            "region_share": self.region_share,
            "pairs": self.pairs.identity(),
        }


@dataclass(frozen=True)
class Fanout:
    """Released: the link along one ownership key.

    Attributes:
        sizes: Coder of the numbers of children.
        counts: Probabilities of the number of children, shape (codes of ``sizes``,).
        count_ties: Parent's column -> joint (parent's column, number of children).
        ties: (context column, child's column) -> joint; context columns are "parent.<column>" and `SIBLINGS`.
        ownerless: Number of children whose owner key is NULL; each is a unit of its own.
    """

    sizes: Coder
    counts: Array
    count_ties: Mapping[str, Array]
    ties: Mapping[tuple[str, str], Array]
    ownerless: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {
            "sizes": self.sizes.to_dict(),
            "counts": self.counts,
            "count_ties": [[name, joint] for name, joint in self.count_ties.items()],
            "ties": [[context, column, joint] for (context, column), joint in self.ties.items()],
            "ownerless": self.ownerless,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Fanout:
        """The inverse of `to_dict`."""
        ties = {(context, column): joint for context, column, joint in stored["ties"]}
        return cls(
            Coder.from_dict(stored["sizes"]), stored["counts"], dict(stored["count_ties"]), ties, stored["ownerless"]
        )


def parent_column(name: str) -> str:
    """How a parent's column is called in the context of its children."""
    return f"{_PARENT}{name}"


def fit_fanout(
    door: Door,
    key: ForeignKey,
    parent: tuple[Mapping[str, Coder], OneWay],
    child: tuple[Mapping[str, Coder], OneWay],
    model: Node,
    price: Price,
    fit: FanoutFit,
) -> Fanout:
    """Measure the link along an ownership key, for at most ``price``.

    Args:
        door: Open for the step.
        key: The ownership key.
        parent: Coders and released one-way counts of the parent's attributes.
        child: The same of the child's.
        model: The child's model: the parts of a root sum node are tied to the context too.
        price: Of everything here.
        fit: How to spend it.
    """
    sizes = fit_sizes(door, key, parent, price.share(fit.count_share), fit)
    ties = _ties(door, key, parent[0], child, sizes.sizes, model, price.share(1 - fit.count_share), fit)
    return replace(sizes, ties=ties)


def fit_sizes(
    door: Door, key: ForeignKey, parent: tuple[Mapping[str, Coder], OneWay], price: Price, fit: FanoutFit
) -> Fanout:
    """Measure how many children parents have, and nothing else of the link, for at most ``price``."""
    ownerless = 0.0
    if key.optional:
        view = door.view(ViewSpec(key.child, {_OWNER: (ParentRow(key), present_or_not(_OWNER))}), "owners")
        found = view.measure("owned or not", [Marginal((_OWNER,))], price.share(fit.owner_share))
        ownerless = max(0.0, float(found.values[0][1]))
        price = price.share(1 - fit.owner_share)
    sizes, counts, count_ties = _counts(door, key, parent, price, fit)
    return Fanout(sizes, counts, count_ties, {}, ownerless)


def _counts(
    door: Door, key: ForeignKey, parent: tuple[Mapping[str, Coder], OneWay], price: Price, fit: FanoutFit
) -> tuple[Coder, Array, dict[str, Array]]:
    """The number of children of each parent, and which of the parent's attributes it depends on."""
    coders, one_way = parent
    codec = GroupSizeCodec(key.max_children or 1)
    cells = door.view(ViewSpec(key.parent, {CHILDREN: (Children(key), Coder(codec))}), "fanout")
    share = fit.margin_share if coders else 1.0
    measured = cells.measure("children", [Marginal((CHILDREN,))], price.share(share))
    sigma = measured.sigma
    bar = highest_noise(price.measure, 1.0, 2 * codec.size)  # looked for in each cell, and in all above it
    noisy_cells = codec.held(measured.values[0], sigma, bar)
    binning = codec.decaying(merge_cells(noisy_cells, codec, sigma, _MAX_SIZE_CODES), noisy_cells, sigma)
    sizes = Coder(codec, binning)
    noisy = binning.sums(noisy_cells)
    if not coders:
        total = max(1.0, float(noisy.sum()))
        return sizes, onto_simplex(noisy, total) / total, {}
    clean = one_way.clean()
    counts = onto_simplex(noisy, one_way.total)
    features: dict[str, tuple[Feature, Coder]] = {name: (Own(name), coder) for name, coder in coders.items()}
    view = door.view(ViewSpec(key.parent, {**features, CHILDREN: (Children(key), sizes)}), "fanout by parent")
    pairs, ordered = [(name, CHILDREN) for name in coders], ordered_codes({**coders, CHILDREN: sizes})
    joints = fit.pairs.fit_pairs(view, {**clean, CHILDREN: counts}, pairs, price.share(1 - share), ordered)
    return sizes, counts / counts.sum(), {name: joint for (name, _), joint in joints.items()}


def _ties(
    door: Door,
    key: ForeignKey,
    parent: Mapping[str, Coder],
    child: tuple[Mapping[str, Coder], OneWay],
    sizes: Coder,
    model: Node,
    price: Price,
    fit: FanoutFit,
) -> dict[tuple[str, str], Array]:
    """Joints of context columns and child's columns, over children of weight 1/(group size)."""
    coders, one_way = child
    context: dict[str, tuple[Feature, Coder]] = {SIBLINGS: (Siblings(key), sizes)}
    context |= {parent_column(name): (OfParent(key, name), coder) for name, coder in parent.items()}
    own: dict[str, tuple[Feature, Coder]] = {name: (Own(name), coder) for name, coder in coders.items()}
    if not own:
        return {}
    view = door.view(ViewSpec(key.child, {**context, **own}), "ties")
    margins = view.measure("context", [Marginal((name,)) for name in context], price.share(fit.margin_share))
    total = one_way.total
    clean = {name: onto_simplex(counts, total) for name, counts in zip(context, margins.values, strict=True)}
    clean |= one_way.clean()
    price = price.share(1 - fit.margin_share)
    regions: dict[tuple[str, str], Array] = {}
    if isinstance(model, Sum):
        regions = _region_ties(view, model, {name: clean[name] for name in context}, price.share(fit.region_share))
        price = price.share(1 - fit.region_share)
    candidates = [(name, column) for name in context for column in own]
    ordered = ordered_codes({name: coder for name, (_, coder) in (*context.items(), *own.items())})
    return {**regions, **fit.pairs.fit_pairs(view, clean, candidates, price, ordered)}


def _region_ties(view: Curator, model: Sum, context: Mapping[str, Array], price: Price) -> dict[tuple[str, str], Array]:
    """Joints of context columns and the parts of the root sum node: context marginals inside each part."""
    parts = [
        part.measure("context of part", [Marginal((name,)) for name in context], price)
        for part in view.split(model.rule)
    ]
    ties = {}
    for index, (name, counts) in enumerate(context.items()):
        joint = np.stack([part.values[index] for part in parts], axis=1)
        total = max(1.0, float(counts.sum()))
        ties[name, REGION] = onto_simplex(joint, total) / total
    return ties
