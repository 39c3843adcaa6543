"""Measure keys off the ownership path: one `LinkModel` for keys of every kind.

First how often parents are referred to, how many rows refer to none, and the distributions of the attributes of what
rows refer to; then marginals of these and the columns of the row and its owner. Along a SET NULL key only rows that
refer to others count, and few of those that refer to one unit (`links.measure_bounded`). Within a unit, where a row's
columns follow what it refers to, they are measured like those of children of owners.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.group_codes import present_or_not
from privbench_core.estimators.coarsening import Ends
from privbench_core.estimators.denoising import onto_simplex, shrink_haar
from privbench_core.estimators.segmentation import ABSOLUTE
from privbench_core.guards import SHOWN_DEVIATIONS, SMOOTHING, TINY, TOLERANCE
from privbench_core.links.degrees import truncated_mean
from privbench_core.links.link_model import ANY, COUNTED, ROW, LinkModel, coded_by_position
from privbench_core.links.linking import CrossMarginal
from privbench_core.links.measure_bounded import BoundedCounts, measure_bounded, most_informative, over_all_references
from privbench_core.links.measure_children import PAIRS, measure_links
from privbench_core.links.measure_joints import Sides, measure_cross_marginals, planned
from privbench_core.links.measure_references import Counting, countings, rank_popularity, row_popularity
from privbench_core.links.popularity import Popularity
from privbench_core.links.targets import PublicParent, Referred, marginals_of
from privbench_core.marginals.measure_scores import has_power
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Own, ParentRow
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.profile import Profile
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import Features
from privbench_core.units.row_count import RowCount

Array = NDArray[np.float64]
Shares = Mapping[str, Array]
"""Column -> how frequent its codes are, shape (codes,)."""


@dataclass(frozen=True)
class LinkFit:
    """How a link step spends its price; public constants.

    Attributes:
        degrees: Share of the price for how many rows are linked to each.
        select: Share of a cross-table marginal's price for choosing it, where not all are measured.
    """

    degrees: float = TUNING.degrees
    select: float = TUNING.first_look

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {"version": 11, "degrees": self.degrees, "pairs": PAIRS.identity(), "select": self.select}


@dataclass(frozen=True)
class _Degrees:
    """What is released of a key before marginals across it.

    Attributes:
        targets: Columns of what rows refer to.
        marginals: Distributions over all rows of the table, with a last code where a row may refer to none.
        popularity: How often parents are referred to.
        null_share: Share of rows that refer to none.
    """

    targets: Features
    marginals: Shares
    popularity: Popularity | None
    null_share: float = 0.0


def fit_link(  # noqa: C901 - one branch per kind of key
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    parent: Referred | PublicParent | None,
    owner: tuple[Features, Shares],
    price: Price,
    fit: LinkFit,
    referring: int | None = None,
) -> LinkModel:
    """Measure the link along a key, for at most ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 4, "Bounded references", and section 5,
    mechanisms 1, 2, 4, 5, 7, 9 and 12.

    Args:
        session: Open for the step.
        key: Not on the ownership path.
        child: Released profile of the table that has the key.
        parent: What is released of a private parent, a public parent, or None where a row can refer to one row alone.
        owner: Attributes of the row's owner, which the reference may follow as well as the row's own, and how frequent
            their codes are among the rows.
        price: Of everything here.
        fit: How it is shared out.
        referring: Along a SET NULL key: the most rows that refer to rows of one unit, as declared.
    """
    if isinstance(parent, PublicParent) and not parent.rows.num_rows:  # a public fact: there is nothing to measure
        return LinkModel({}, {})
    if parent is None and not key.may_be_empty:
        return LinkModel({}, {})
    counts: BoundedCounts | None = None
    if referring is not None and isinstance(parent, Referred):
        for_totals, rest = price.share(TUNING.size_share), price.share(1 - TUNING.size_share)
        counts, left = measure_bounded(session, key, child.size, parent.profile.size, referring, for_totals)
        price = rest + left
    ways = counts.ways if counts else countings(session, key, child.size) if parent else ()
    left_side: Features = {**{name: (Own(name), coder) for name, coder in child.discretizers.items()}, **owner[0]}
    share, for_joints = fit.degrees, price.share(1 - fit.degrees)
    if key.same_unit:
        promising = _joints_have_power(session, key, child, parent, len(left_side), for_joints)
    else:
        finest = {"finest": (1, 1)} if counts else {}
        promising = planned(ways, 1, for_joints.share(1 - fit.select), **finest) is not None
    if not (left_side and promising):
        share, for_joints = 1.0, price.share(0.0)
    if isinstance(parent, PublicParent):
        degrees = _to_public(session, key, child.size, parent, price.share(share))
    elif counts is not None and isinstance(parent, Referred):
        degrees = _bounded(session, key, child.size, parent, counts, price.share(share))
    else:
        degrees = _to_private(session, key, child, parent, ways, price.share(share))
    shares = {**{name: found / found.sum() for name, found in child.one_way.clean().items()}, **owner[1]}
    right = {name: column for name, column in degrees.targets.items() if not name.startswith(COUNTED)}
    joints: tuple[CrossMarginal, ...] = ()
    if for_joints.amount > 0 and right and key.same_unit:
        view = session.view(ViewSpec(key.child, {**right, **left_side}, (child.size.rows_per_unit,)), "links")
        found = measure_links(view, right, left_side, child.one_way, for_joints, degrees.marginals)
        joints = tuple(CrossMarginal(column, target, (), joint.T) for (target, column), joint in found.items())
    elif for_joints.amount > 0 and right:
        present = None if counts is None else 1 - degrees.null_share
        of_counted = {name: _of_present(p) if counts else p for name, p in degrees.marginals.items()}
        sides = Sides(left_side, right, {**shares, **of_counted}, present)
        if counts and len(right) > 1:  # first which rows refer to another: of the row's own columns
            own = {name: column for name, column in left_side.items() if name in child.discretizers}
            whether = replace(sides, left=own, right={ANY: right.pop(ANY)})
            joints = measure_cross_marginals(session, key, whether, ways, for_joints.share(1 / 2), fit.select)
            for_joints = for_joints.share(1 / 2)
        joints += measure_cross_marginals(session, key, sides, ways, for_joints, fit.select)
    return _linked(key, degrees, joints)


def _linked(key: ForeignKey, found: _Degrees, joints: tuple[CrossMarginal, ...]) -> LinkModel:
    """Return the link; rows that count may refer to none where all have to refer to one, and none is drawn so."""
    targets, marginals = {name: coder for name, (_, coder) in found.targets.items()}, found.marginals
    if key.may_be_empty and not key.optional:
        targets = {name: coder for name, coder in targets.items() if name != ANY}
        marginals = {name: _of_present(marginals[name])[:-1] for name in targets}
        joints = tuple(joint for joint in joints if joint.right != ANY)
    return LinkModel(targets, marginals, joints, found.popularity, found.null_share * key.optional, key.optional)


def _joints_have_power(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    parent: Referred | PublicParent | None,
    columns: int,
    price: Price,
) -> bool:
    """Return whether joints of columns of rows and what they refer to within their unit stand out of noise: free."""
    rows = session.view(ViewSpec(key.child, {}, (child.size.rows_per_unit,)), "links")
    targets = len(parent.targets(key)) if isinstance(parent, Referred) else 1
    return has_power(rows, columns * max(targets, 1), child.one_way.total, price)


def _to_private(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    parent: Referred | None,
    ways: Sequence[Counting],
    price: Price,
) -> _Degrees:
    """Measure targets over the rows that have a key to a private parent, and how popular its rows are."""
    targets, total = _targets_or_any(key, parent), child.one_way.total
    if parent is not None and ANY in targets and not key.may_be_empty:
        return _Degrees({}, {}, rank_popularity(ways, max(1.0, child.size.rows), price))
    share = 1.0 if parent is None else 1 / 4
    view = session.view(ViewSpec(key.child, dict(targets), (child.size.rows_per_unit,)), "targets")
    noisy = view.measure("targets", [Marginal((name,)) for name in targets], price.share(share))
    usual = parent.usual_shares() if parent else {}
    clean = {
        name: clean_target(counts, noisy.sigma, usual.get(name, np.ones(1)), total, or_none=key.may_be_empty)
        for name, counts in zip(targets, noisy.values, strict=True)
    }
    none = float(np.mean([counts[-1] / total for counts in clean.values()])) if key.may_be_empty else 0.0
    marginals = {name: counts / total for name, counts in clean.items()}
    if parent is None:
        return _Degrees(targets, marginals, None, none)
    popularity = rank_popularity(ways, max(1.0, child.size.rows * (1 - none)), price.share(1 - share))
    return _differing(_Degrees(targets, marginals, popularity, none), usual)


def _bounded(
    session: PrivateSession, key: ForeignKey, size: RowCount, parent: Referred, counts: BoundedCounts, price: Price
) -> _Degrees:
    """Measure the same along a SET NULL key, over rows that refer to others."""
    targets, usual = parent.targets(key), parent.usual_shares()
    popularity, left = counts.popularity(price.share(1 / 2 if targets else 1.0))
    present = min(counts.rows / max(size.rows, 1.0), 1.0) if key.optional else 1.0
    if not targets:
        return _Degrees(_targets_or_any(key, parent), {ANY: np.array([present, 1 - present])}, popularity, 1 - present)
    for_targets = price.share(1 / 2) + left
    each, codes = for_targets.share(1 / len(targets)), float(np.mean([coder.size for _, coder in targets.values()]))
    way = most_informative(counts.ways, each, codes, 1.0)
    noise = way.noise(each)
    visible = SHOWN_DEVIATIONS * noise / ABSOLUTE * way.references * way.inside / way.bound  # parents at the bound
    number = max(2, round(1 / math.sqrt(max(noise, SMOOTHING))))  # of groups of codes that are most informative
    ends = {
        name: Ends.of(p, targets[name][1].ordered, number, visible / max(parent.profile.size.rows, 1.0))
        for name, p in usual.items()
    }
    columns = {name: (feature, coder.grouped(ends[name].groups)) for name, (feature, coder) in targets.items()}
    view = session.view(ViewSpec(key.child, columns, (way.most,), way.bounded), "targets")
    noisy = view.measure("targets", [Marginal((name,)) for name in targets], for_targets)
    marginals = {}
    for name, values in zip(targets, noisy.values, strict=True):
        clean = clean_target(values[:-1], noisy.sigma, ends[name].of_groups, way.rows) / way.rows
        shares = over_all_references(ends[name].spread(clean), usual[name], way, parent.profile.size)
        marginals[name] = np.append(shares * present, 1 - present)
    found = _differing(_Degrees(targets, marginals, popularity, 1 - present), usual)
    any_row, refers = (ParentRow(key), present_or_not(ANY)), np.array([present, 1 - present])
    return replace(found, targets={**found.targets, ANY: any_row}, marginals={**found.marginals, ANY: refers})


def _to_public(
    session: PrivateSession, key: ForeignKey, size: RowCount, parent: PublicParent, price: Price
) -> _Degrees:
    """Count references to the rows of a public table, and to its attributes: the targets are codings of positions."""
    rows = parent.rows.num_rows
    references = row_popularity(session, key, size, rows, price.share(1 - TUNING.size_share))
    targets = parent.targets(references.popularity[0].counts, optional=key.optional)
    codes = coded_by_position(targets, rows)
    shared = (found.astype(np.int64) for name, found in codes.items() if name != ROW)
    attributes = [found for found in shared if 2 * found.max() < len(found)]  # else as good as one code for each row
    popularity, none = references.with_attributes(attributes, price.share(TUNING.size_share)).popularity
    features: Features = {name: (ParentRow(key), coding) for name, coding in targets.items()}
    return _Degrees(features, marginals_of(targets, popularity.counts, none), popularity, none)


def _targets_or_any(key: ForeignKey, parent: Referred | None) -> Features:
    """Return the attributes of the parent; where there are none, whether a row refers to any."""
    return (parent.targets(key) if parent else {}) or {ANY: (ParentRow(key), present_or_not(ANY))}


def _differing(found: _Degrees, usual: Shares) -> _Degrees:
    """Return the same without numbers of children that do not show who is popular: as among all parents."""

    def differs(name: str) -> bool:
        shares = found.marginals[name][: len(usual[name])]
        return float(np.abs(shares / max(float(shares.sum()), TINY) - usual[name]).sum()) > TOLERANCE

    kept = [name for name in found.targets if not name.startswith(COUNTED) or differs(name)]
    return replace(
        found,
        targets={name: found.targets[name] for name in kept},
        marginals={name: found.marginals[name] for name in kept},
    )


def _of_present(marginal: Array) -> Array:
    """Return the distribution over rows that refer to a parent, with a last code that none has."""
    return np.append(marginal[:-1], 0.0) / max(float(marginal[:-1].sum()), TINY)


def clean_target(noisy: Array, sigma: float, usual: Array, total: float, *, or_none: bool = False) -> Array:
    """Return counts of a target with so many in all, near what they are among all parents as far as noise explains it.

    Args:
        noisy: Counts of its codes.
        sigma: Standard deviation of the noise on each.
        usual: Distribution among all parents, shape (codes,).
        total: Of the clean counts.
        or_none: Whether there is a last code of rows that refer to none: estimated first, from all counts.
    """
    codes = len(usual)
    if or_none:
        found = (codes * noisy[-1] + total - noisy[:-1].sum()) / (codes + 1)
        none = truncated_mean(float(found), sigma * math.sqrt(codes / (codes + 1)), total)
        return np.append(clean_target(noisy[:-1], sigma, usual, total - none), none)
    guess = usual * total
    apart = float(((noisy - guess) ** 2).sum()) / max(sigma, TINY) ** 2
    if apart < codes + SHOWN_DEVIATIONS * math.sqrt(2 * codes):
        return guess
    return onto_simplex(shrink_haar(noisy, sigma, guess), total)
