"""Measuring keys off the ownership path: which row of another parent a row refers to, given its attributes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer, ordered_codes
from privbench_core.estimate.fitting import relative_entropy, shrunk
from privbench_core.estimate.popularity import references_to_none
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.measure.bounded import WHOLLY, measure_bounded
from privbench_core.measure.pairwise import PairwiseFit
from privbench_core.measure.popularity import rank_popularity, row_popularity
from privbench_core.measure.presence import present_or_not
from privbench_core.measure.public_parents import PublicParent
from privbench_core.models.lookup import _ANY, TARGET, Lookup, marginals_of
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, OfParent, Own, ParentRow
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity

Array = NDArray[np.float64]
Features = Mapping[str, tuple[Feature, Discretizer]]


_TOTALS, _RANKS = 0.25, 0.2
_NOTHING = 1e-300
_ALIKE = 1e-9  # nats
_STANDS_OUT = 2.0  # standard deviations of the squares of noise


@dataclass(frozen=True)
class LookupFit:
    """How a lookup step spends its price; public constants.

    Attributes:
        popularity_share: Part of the price for how often private parents are referred to.
        public_share: The same of public ones, row by row, where there are columns to pair them with.
        margin_share: Part of the rest for one-way marginals of a private parent, where there are columns to pair them
            with.
        context_share: Part of what pairs get for one-way marginals of the owner, where its attributes are among these.
        pairs: How joints are chosen and measured.
    """

    popularity_share: float = 0.25
    public_share: float = 0.6
    margin_share: float = 0.3
    context_share: float = 0.2
    pairs: PairwiseFit = field(default_factory=PairwiseFit)

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "popularity_share": self.popularity_share,
            "public_share": self.public_share,
            "margin_share": self.margin_share,
            "context_share": self.context_share,
            "pairs": self.pairs.identity(),
        }


def fit_lookup(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    parent: Profile | PublicParent | None,
    price: Price,
    fit: LookupFit,
    owner: Features | None = None,
    referring: int | None = None,
) -> Lookup:
    """Measure the link along a key, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Not on the ownership path.
        child: Released profile of the table that has the key.
        parent: Released profile of a private parent, a public parent, or None where a row can refer to one row alone.
        price: Of everything here.
        fit: How to spend it.
        owner: Attributes of the row's owner, which the reference may follow as well as the row's own.
        referring: Where the key lets go: the most rows that refer to rows of one unit, as declared.
    """
    own: Features = {name: (Own(name), discretizer) for name, discretizer in child.discretizers.items()}
    own = {**own, **(owner or {})}
    if isinstance(parent, PublicParent):
        if not parent.rows.num_rows:  # a public fact: no row can refer to any, and there is nothing to measure
            return Lookup({}, {}, {}, None)
        return _to_public(session, key, child, own, parent, price, fit)
    if referring is not None and parent is not None:
        return _bounded(session, key, child, own, parent, price, fit, referring)
    features: dict[str, tuple[Feature, Discretizer]] = {}
    if parent and parent.discretizers:
        features = _attributes(key, parent)
    elif key.optional:
        features[_ANY] = (ParentRow(key), present_or_not(_ANY))
    if not features:
        return Lookup({}, {}, {}, None if parent is None else rank_popularity(session, key, child.size, 1.0, price))
    for_popularity = price.share(0.0 if parent is None else fit.popularity_share)
    price = price.share(1 if parent is None else 1 - fit.popularity_share)
    view = session.view(ViewSpec(key.child, {**features, **own}, (child.size.rows_per_unit,)), "lookup")
    share = fit.margin_share if own else 1.0
    noisy = view.measure("targets", [Marginal((name,)) for name in features], price.share(share))
    total, likely = child.one_way.total, _likely(parent) if parent else {}
    clean = {
        name: _shrunk(counts, noisy.sigma, likely.get(name, np.ones(1)), total, optional=key.optional)
        for name, counts in zip(features, noisy.values, strict=True)
    }
    rest = price.share(1 - share if own else 0.0)
    pair_tables, left = _pair_tables(view, {**features, **own}, clean, child, fit, rest)
    popularity = None
    if parent is not None:
        none = float(np.mean([counts[-1] / total for counts in clean.values()])) if key.optional else 0.0
        popularity = rank_popularity(session, key, child.size, 1 - none, for_popularity + left)
    targets = {name: discretizer for name, (_, discretizer) in features.items()}
    marginals = {name: counts / total for name, counts in clean.items()}
    telling = _telling(marginals, parent) if parent else {}
    return Lookup(targets, marginals, pair_tables, popularity, key.optional, telling)


def _to_public(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    own: Features,
    parent: PublicParent,
    price: Price,
    fit: LookupFit,
) -> Lookup:
    """`fit_lookup` along a key to a public table: the targets are its attributes, and its rows."""
    share = fit.public_share if own else 1.0
    looks = row_popularity(session, key, child.size, parent.place, price.share(share))
    popularity, none = looks.popularity
    targets = parent.targets(popularity.counts, optional=key.optional)
    pair_tables: dict[tuple[str, str], Array] = {}
    if own:
        features: Features = {**{name: (ParentRow(key), coding) for name, coding in targets.items()}, **own}
        view = session.view(ViewSpec(key.child, dict(features), (child.size.rows_per_unit,)), "lookup")
        clean = {n: p * child.one_way.total for n, p in marginals_of(targets, popularity.counts, none).items()}
        pair_tables, left = _pair_tables(view, features, clean, child, fit, price.share(1 - share))
        popularity, none = looks.again(left).popularity
    return Lookup(targets, marginals_of(targets, popularity.counts, none), pair_tables, popularity, key.optional)


def _bounded(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    own: Features,
    parent: Profile,
    price: Price,
    fit: LookupFit,
    referring: int,
) -> Lookup:
    """`fit_lookup` along a key that lets go: only rows that refer to others are looked at, as many as noise allows."""
    references, left = measure_bounded(session, key, child.size, referring, price.share(_TOTALS))
    popularity, unspent = references.popularity(price.share(_RANKS))
    price = price.share(1 - _TOTALS - _RANKS) + left + unspent
    features = _attributes(key, parent) or {_ANY: (ParentRow(key), present_or_not(_ANY))}
    rows_per_unit, marginals = child.size.rows_per_unit, {_ANY: np.ones(1)}

    def view(columns: Features, most: int) -> Curator:
        return session.view(
            ViewSpec(key.child, dict(columns), (rows_per_unit,), BoundedReferences(key, most)), f"lookup, {most:,}"
        )

    if parent.discretizers:
        codes = float(np.mean([discretizer.size for _, discretizer in features.values()]))
        for_targets = price.share(fit.margin_share if own else 1.0)
        price = price.share(1 - fit.margin_share if own else 0.0)
        most = references.best(for_targets.share(1 / len(features)), codes, WHOLLY)
        noisy = view(features, most).measure("targets", [Marginal((name,)) for name in features], for_targets)
        counted = references.in_view(most)
        marginals = {
            name: _shrunk(counts[:-1], noisy.sigma, likely, counted) / counted
            for (name, likely), counts in zip(_likely(parent).items(), noisy.values, strict=True)
        }
    most = references.best(price)
    counted = references.in_view(most)
    scaled = {name: onto_simplex(counts, counted) for name, counts in child.one_way.clean().items()}
    targets = {name: np.append(shares * counted, 0.0) for name, shares in marginals.items()}
    present, pair_tables = dict[str, Array](), dict[tuple[str, str], Array]()
    joint_view = view({**features, **own}, most)
    if own and fit.pairs.tells(joint_view, len(features) * len(own), counted, price.share(1 - fit.context_share)):
        known = {**targets, **scaled}
        asked = [*own, *(name for name in features if name != _ANY)]
        margins = joint_view.measure("context", [Marginal((name,)) for name in asked], price.share(fit.context_share))
        price = price.share(1 - fit.context_share)
        for name, counts in zip(asked, margins.values, strict=True):
            near = shrunk(counts, margins.sigma, known[name]) if name in known else counts
            present[name] = onto_simplex(near, counted)
            if name in targets:
                present[name][-1] = 0.0
        candidates = [(target, column) for target in features for column in own if _ANY not in features]
        ordered = ordered_codes({name: discretizer for name, (_, discretizer) in (*features.items(), *own.items())})
        pair_tables, price = fit.pairs.fit_pairs(joint_view, {**targets, **present}, candidates, price, ordered, child.size)
    rows = max(child.size.rows, 1.0)
    share_of_present = min(references.rows / rows, 1.0)
    whole = {name: counts / max(counts.sum(), 1.0) for name, counts in child.one_way.clean().items()}
    first = max(targets, key=lambda name: sum(target == name for target, _ in pair_tables))
    for column in own:
        known = any(name == column for _, name in pair_tables)
        if not known and column in scaled and column in present and np.abs(present[column] - scaled[column]).sum() > 1e-6 * counted:
            pair_tables[first, column] = np.outer(targets[first] / counted, present[column] / counted)
    for (target, column), joint in pair_tables.items():
        wanted = np.append(marginals[target], 0.0)
        joint = joint * np.divide(wanted, joint.sum(axis=1), out=np.zeros(len(wanted)), where=joint.sum(axis=1) > 0)[:, None]
        joint *= share_of_present / max(float(joint.sum()), 1e-300)
        of_present = joint.sum(axis=0)
        left = np.maximum(whole[column] - of_present, 0.0) if column in whole else of_present
        joint[-1] = left * ((1 - share_of_present) / max(float(left.sum()), 1e-300))
        pair_tables[target, column] = joint
    marginals = {name: np.append(shares * share_of_present, 1 - share_of_present) for name, shares in marginals.items()}
    of_targets = {name: discretizer for name, (_, discretizer) in features.items()}
    return Lookup(of_targets, marginals, pair_tables, popularity, key.optional, _telling(marginals, parent))


def _attributes(key: ForeignKey, parent: Profile) -> dict[str, tuple[Feature, Discretizer]]:
    return {f"{TARGET}{name}": (OfParent(key, name), discretizer) for name, discretizer in parent.discretizers.items()}


def _telling(marginals: Mapping[str, Array], parent: Profile) -> dict[str, float]:
    """See `Lookup.telling`: a target that noise hides has been shrunk to what all parents are like."""
    found = {}
    for name, likely in _likely(parent).items():
        shares = marginals[name][: len(likely)]
        apart = relative_entropy(shares / max(float(shares.sum()), _NOTHING), likely)
        if apart > _ALIKE:
            found[name] = apart
    return found


def _likely(parent: Profile) -> dict[str, Array]:
    """Released distributions of the attributes of all parents, by target."""
    clean = parent.one_way.clean()
    return {f"{TARGET}{name}": clean[name] / clean[name].sum() for name in parent.discretizers}


def _shrunk(noisy: Array, sigma: float, likely: Array, total: float, *, optional: bool = False) -> Array:
    """Clean counts of a target with so many in all, shrunk towards what all parents are like.

    Where the last code means "refers to none", it is estimated first: from its own count and from those of all others.
    """
    if not optional:
        apart = float(((noisy - likely * total) ** 2).sum()) / max(sigma, _NOTHING) ** 2
        if apart < len(noisy) + _STANDS_OUT * math.sqrt(2 * len(noisy)):
            return np.asarray(likely * total)
        return onto_simplex(shrunk(noisy, sigma, likely * total), total)
    codes = len(noisy) - 1
    found = (codes * noisy[-1] + total - noisy[:-1].sum()) / (codes + 1)
    none = references_to_none(float(found), sigma * math.sqrt(codes / (codes + 1)), total)
    return np.append(_shrunk(noisy[:-1], sigma, likely, total - none), none)


def _pair_tables(
    view: Curator, features: Features, targets: Mapping[str, Array], child: Profile, fit: LookupFit, price: Price
) -> tuple[dict[tuple[str, str], Array], Price]:
    """Joints of targets and the columns they may follow, as many as ``price`` supports, and what is left of it."""
    known = {**targets, **child.one_way.clean()}
    above = [name for name in features if name not in known]
    followed = [column for column in features if column not in targets]
    share = fit.context_share if above else 0.0
    if above and not fit.pairs.tells(view, len(targets) * len(followed), child.one_way.total, price.share(1 - share)):
        above, followed, share = [], [column for column in followed if column in known], 0.0
    if above:
        margins = view.measure("context", [Marginal((name,)) for name in above], price.share(share))
        known |= {name: onto_simplex(n, child.one_way.total) for name, n in zip(above, margins.values, strict=True)}
    candidates = [(target, column) for target in targets for column in followed]
    ordered = ordered_codes({name: discretizer for name, (_, discretizer) in features.items()})
    return fit.pairs.fit_pairs(view, known, candidates, price.share(1 - share), ordered, child.size)
