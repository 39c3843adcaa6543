"""Measuring keys off the ownership path: which row of another parent a row refers to, given its attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer, ordered_codes
from privbench_core.columns.equal_width import equal_width_codec
from privbench_core.estimate.fitting import shrunk
from privbench_core.estimate.popularity import references_to_none
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.measure.pairwise import PairwiseFit
from privbench_core.measure.popularity import ParentLooks, rank_popularity, row_popularity
from privbench_core.measure.presence import present_or_not
from privbench_core.models.lookup import _ANY, _POSITION, TARGET, Lookup, _none_from
from privbench_core.models.popularity import ByRow
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, OfParent, Own, ParentRow
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity

Array = NDArray[np.float64]
_MAX_POSITIONS = 256  # cells of a parent's position; chosen by hand


@dataclass(frozen=True)
class LookupFit:
    """How a lookup step spends its price; public constants.

    Attributes:
        popularity_share: Part of the price for how often parents are referred to.
        margin_share: Part of the rest for one-way marginals, where there are attributes of the child to pair them with.
        pairs: How joints are chosen and measured.
    """

    popularity_share: float = 0.25
    margin_share: float = 0.3
    pairs: PairwiseFit = field(default_factory=PairwiseFit)

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "popularity_share": self.popularity_share,
            "margin_share": self.margin_share,
            "pairs": self.pairs.identity(),
        }


def fit_lookup(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    parent: Mapping[str, Discretizer] | NDArray[np.int64] | None,
    price: Price,
    fit: LookupFit,
) -> Lookup:
    """Measure the link along a key, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Not on the ownership path.
        child: Released profile of the table that has the key.
        parent: Discretizers of a private parent's attributes, the place of each row of a public parent
            (`order_of_alike`), or None where a row can refer to one row alone.
        price: Of everything here.
        fit: How to spend it.
    """
    own: dict[str, tuple[Feature, Discretizer]] = {
        name: (Own(name), discretizer) for name, discretizer in child.discretizers.items()
    }
    if isinstance(parent, np.ndarray):
        if not len(parent):  # a public fact: no row can refer to any, and there is nothing to measure
            return Lookup({}, {}, {}, None)
        return _to_public(session, key, child, own, parent, price, fit)
    features: dict[str, tuple[Feature, Discretizer]] = {}
    if parent:
        features = {f"{TARGET}{name}": (OfParent(key, name), discretizer) for name, discretizer in parent.items()}
    elif key.optional:
        features[_ANY] = (ParentRow(key), present_or_not(_ANY))
    if not features:
        return Lookup({}, {}, {}, None if parent is None else rank_popularity(session, key, child.size, 1.0, price))
    for_popularity = price.share(0.0 if parent is None else fit.popularity_share)
    price = price.share(1 if parent is None else 1 - fit.popularity_share)
    view = session.view(ViewSpec(key.child, {**features, **own}, (child.size.rows_per_unit,)), "lookup")
    share = fit.margin_share if own else 1.0
    noisy = view.measure("targets", [Marginal((name,)) for name in features], price.share(share))
    total = child.one_way.total
    clean = {
        name: _shrunk(counts, noisy.sigma, total, optional=key.optional)
        for name, counts in zip(features, noisy.values, strict=True)
    }
    pair_tables, left = _pair_tables(
        view, {**features, **own}, clean, child, fit.pairs, price.share(1 - share if own else 0.0)
    )
    popularity = None
    if parent is not None:
        none = float(np.mean([counts[-1] / total for counts in clean.values()])) if key.optional else 0.0
        popularity = rank_popularity(session, key, child.size, 1 - none, for_popularity + left)
    targets = {name: discretizer for name, (_, discretizer) in features.items()}
    return Lookup(targets, {name: counts / total for name, counts in clean.items()}, pair_tables, popularity)


def _to_public(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    own: Mapping[str, tuple[Feature, Discretizer]],
    place: NDArray[np.int64],
    price: Price,
    fit: LookupFit,
) -> Lookup:
    """`fit_lookup` along a key to a public table: its positions are the targets."""
    one_way = child.one_way
    column = Column(_POSITION, ColumnType.INTEGER)
    discretizer = Discretizer(equal_width_codec(column, 0, len(place) - 1, min(len(place), _MAX_POSITIONS)))
    share = fit.popularity_share + (1 - fit.popularity_share) * fit.margin_share if own else 1.0
    looks = row_popularity(session, key, child.size, place, price.share(share))
    popularity, marginal = _positions(looks, discretizer, optional=key.optional)
    if not own:
        return Lookup({_POSITION: discretizer}, {_POSITION: marginal}, {}, popularity)
    features: dict[str, tuple[Feature, Discretizer]] = {_POSITION: (ParentRow(key), discretizer), **own}
    view = session.view(ViewSpec(key.child, features, (child.size.rows_per_unit,)), "lookup")
    pair_tables, left = _pair_tables(
        view, features, {_POSITION: marginal * one_way.total}, child, fit.pairs, price.share(1 - share)
    )
    popularity, marginal = _positions(looks.again(left), discretizer, optional=key.optional)
    return Lookup({_POSITION: discretizer}, {_POSITION: marginal}, pair_tables, popularity)


def _positions(looks: ParentLooks, discretizer: Discretizer, *, optional: bool) -> tuple[ByRow, Array]:
    """Popularity of a public parent's rows, and the shares of positions among the rows that refer to it or to none."""
    popularity, none = looks.popularity
    positions = discretizer.encode_numbers(np.arange(len(popularity.counts)))
    marginal = np.bincount(positions, popularity.counts, discretizer.size).astype(np.float64)
    marginal[_none_from(discretizer)] = none if optional else 0.0
    if marginal.sum() <= 0:
        marginal[0] = 1.0
    return popularity, marginal / marginal.sum()


def _shrunk(noisy: Array, sigma: float, total: float, *, optional: bool) -> Array:
    """Clean counts of a target with so many in all, shrunk towards all alike.

    Where the last code means "refers to none", it is estimated first: from its own count and from those of all others.
    """
    if not optional:
        return onto_simplex(shrunk(noisy, sigma, np.full(len(noisy), total / len(noisy))), total)
    codes = len(noisy) - 1
    found = (codes * noisy[-1] + total - noisy[:-1].sum()) / (codes + 1)
    none = references_to_none(float(found), sigma * math.sqrt(codes / (codes + 1)), total)
    alike = np.full(codes, (total - none) / codes)
    return np.append(onto_simplex(shrunk(noisy[:-1], sigma, alike), total - none), none)


def _pair_tables(
    view: Curator,
    features: Mapping[str, tuple[Feature, Discretizer]],
    targets: Mapping[str, Array],
    child: Profile,
    fit: PairwiseFit,
    price: Price,
) -> tuple[dict[tuple[str, str], Array], Price]:
    """Joints of targets and the child's columns, as many as ``price`` supports, and what is left of it."""
    candidates = [(target, column) for target in targets for column in features if column not in targets]
    # Neighbours in a public table have nothing to do with each other: its positions are a list.
    ordered = ordered_codes({name: discretizer for name, (_, discretizer) in features.items() if name != _POSITION})
    clean = {**targets, **child.one_way.clean()}
    return fit.fit_pairs(view, clean, candidates, price, ordered, child.size)
