"""Measuring keys off the ownership path: which row of another parent a row refers to, given its attributes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer, ordered_codes
from privbench_core.columns.group_codes import present_or_not
from privbench_core.estimate.denoising import onto_simplex
from privbench_core.measure.bounded_lookup import fit_bounded
from privbench_core.measure.links import PAIRS
from privbench_core.measure.popularity import rank_popularity
from privbench_core.measure.public_parents import PublicParent, public_references
from privbench_core.measure.scores import has_power
from privbench_core.measure.targets import Referred, clean_target, clean_target_or_none
from privbench_core.models.lookup import ANY, COUNTED, Lookup
from privbench_core.models.profile import Profile
from privbench_core.models.targets import marginals_of
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, Own, ParentRow
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
Features = Mapping[str, tuple[Feature, Discretizer]]


def fit_lookup(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    parent: Referred | PublicParent | None,
    price: Price,
    owner: Features | None = None,
    referring: int | None = None,
    owners: Mapping[str, Array] | None = None,
) -> Lookup:
    """Measure the link along a key, for at most ``price``: half for joints, where there may be any, the rest equally.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Not on the ownership path.
        child: Released profile of the table that has the key.
        parent: What is released of a private parent, a public parent, or None where a row can refer to one row alone.
        price: Of everything here.
        owner: Attributes of the row's owner, which the reference may follow as well as the row's own.
        referring: Where the key lets go: the most rows that refer to rows of one unit, as declared.
        owners: Where it does: how frequent the codes of ``owner`` are among owners.
    """
    own: Features = {name: (Own(name), discretizer) for name, discretizer in child.discretizers.items()}
    own = {**own, **(owner or {})}
    if isinstance(parent, PublicParent):
        if not parent.rows.num_rows:  # a public fact: no row can refer to any, and there is nothing to measure
            return Lookup({}, {}, {}, None)
        return _to_public(session, key, child, own, parent, price)
    if referring is not None and parent is not None:
        return fit_bounded(session, key, child, parent, own, price, referring, owners)[0]
    features = parent.targets(key) if parent else {}
    if not features and key.may_be_empty:
        features[ANY] = (ParentRow(key), present_or_not(ANY))
    if not features:
        return Lookup({}, {}, {}, None if parent is None else rank_popularity(session, key, child.size, 1.0, price))
    for_joints = price.share(1 / 2 if own else 0.0)
    for_targets = price.share((1 / 4 if own else 1 / 2) if parent else 1 / 2 if own else 1.0)
    for_popularity = for_targets if parent else price.share(0.0)
    view = session.view(ViewSpec(key.child, {**features, **own}, (child.size.rows_per_unit,)), "lookup")
    noisy = view.measure("targets", [Marginal((name,)) for name in features], for_targets)
    total, usual = child.one_way.total, parent.usual_shares() if parent else {}
    cleaned = clean_target_or_none if key.may_be_empty else clean_target
    clean = {
        name: cleaned(counts, noisy.sigma, usual.get(name, np.ones(1)), total)
        for name, counts in zip(features, noisy.values, strict=True)
    }
    pair_tables, left = _pair_tables(view, {**features, **own}, clean, child, for_joints)
    popularity = None
    if parent is not None:
        none = float(np.mean([counts[-1] / total for counts in clean.values()])) if key.may_be_empty else 0.0
        popularity = rank_popularity(session, key, child.size, 1 - none, for_popularity + left)
    targets = {name: discretizer for name, (_, discretizer) in features.items()}
    marginals = {name: counts / total for name, counts in clean.items()}
    tell = parent.telling(marginals) if parent else {}
    found = Lookup(targets, marginals, pair_tables, popularity, key.may_be_empty, tell)
    return found if key.optional else found.of_all_rows()


def _to_public(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    own: Features,
    parent: PublicParent,
    price: Price,
) -> Lookup:
    """`fit_lookup` along a key to a public table: the targets are its attributes, and its rows."""
    share = 1 / 2 if own else 1.0
    references, targets = public_references(session, key, child.size, parent, price.share(share))
    popularity, none = references.popularity
    pair_tables: dict[tuple[str, str], Array] = {}
    if own:
        features: Features = {**{name: (ParentRow(key), coding) for name, coding in targets.items()}, **own}
        view = session.view(ViewSpec(key.child, dict(features), (child.size.rows_per_unit,)), "lookup")
        clean = {n: p * child.one_way.total for n, p in marginals_of(targets, popularity.counts, none).items()}
        pair_tables, left = _pair_tables(view, features, clean, child, price.share(1 - share))
        popularity, none = references.remeasured(left).popularity
    return Lookup(targets, marginals_of(targets, popularity.counts, none), pair_tables, popularity, key.optional)


def _pair_tables(
    view: Curator, features: Features, targets: Mapping[str, Array], child: Profile, price: Price
) -> tuple[dict[tuple[str, str], Array], Price]:
    """Joints of targets and the columns they may follow, as many as ``price`` supports, and what is left of it."""
    known = {**targets, **child.one_way.clean()}
    above = [name for name in features if name not in known]
    followed = [column for column in features if column not in targets]
    candidates = [(target, column) for target in targets if not target.startswith(COUNTED) for column in followed]
    share = TUNING.first_look if above else 0.0
    if above and not has_power(view, len(candidates), child.one_way.total, price.share(1 - share)):
        above, share, candidates = [], 0.0, [pair for pair in candidates if pair[1] in known]
    if above:
        margins = view.measure("context", [Marginal((name,)) for name in above], price.share(share))
        known |= {name: onto_simplex(n, child.one_way.total) for name, n in zip(above, margins.values, strict=True)}
    ordered = ordered_codes({name: discretizer for name, (_, discretizer) in features.items()})
    return PAIRS.fit_pairs(view, known, candidates, price.share(1 - share), ordered)
