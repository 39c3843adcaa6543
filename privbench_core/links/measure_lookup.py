"""Measuring keys off the ownership path: which row of another parent a row refers to, given its attributes.

Along a SET NULL key, only rows that refer to others count, and few of those that refer to one unit. How
many rows refer to others is counted with several bounds first (`links.measure_bounded`). With which bound attributes of
parents are measured, and joints with attributes of the rows, follows from that: more rows count with a larger one, and
noise is larger. What is said of rows that refer to none is what is left of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import ordered_codes
from privbench_core.columns.group_codes import present_or_not
from privbench_core.estimators.coarsening import Ends
from privbench_core.estimators.denoising import onto_simplex, shrink_haar
from privbench_core.estimators.fitting import combine
from privbench_core.estimators.segmentation import ABSOLUTE
from privbench_core.guards import SHOWN_DEVIATIONS, SMOOTHING, TINY, TOLERANCE
from privbench_core.links.lookup import ANY, COUNTED, Lookup, marginals_of, with_code_of_none
from privbench_core.links.measure_bounded import BoundedCounts, measure_bounded, unbounded_targets
from privbench_core.links.measure_fanout import PAIRS
from privbench_core.links.measure_linking import grouped
from privbench_core.links.measure_popularity import rank_popularity
from privbench_core.links.measure_targets import PublicParent, Referred, clean_target, public_references
from privbench_core.links.popularity import Popularity
from privbench_core.marginals.measure_scores import has_power
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import ParentRow
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.profiles.profile import Profile
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import Features

Joints = dict[tuple[str, str], Array]
"""(target, column) -> joint."""


def fit_lookup(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    parent: Referred | PublicParent | None,
    price: Price,
    owner: Features | None = None,
    referring: int | None = None,
    owners: Mapping[str, Array] | None = None,
) -> tuple[Lookup, BoundedCounts | None]:
    """Measure the link along a key, for at most ``price``: half for joints, where there may be any, the rest equally.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 4, "Bounded references", and section 5,
    mechanisms 1, 2, 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Not on the ownership path.
        child: Released profile of the table that has the key.
        parent: What is released of a private parent, a public parent, or None where a row can refer to one row alone.
        price: Of everything here.
        owner: Attributes of the row's owner, which the reference may follow as well as the row's own.
        referring: Along a SET NULL key: the most rows that refer to rows of one unit, as declared.
        owners: Where it does: how frequent the codes of ``owner`` are among owners.

    Returns:
        The link; along a SET NULL key, how many rows refer to others, too.
    """
    own = {**child.own(), **(owner or {})}
    if isinstance(parent, PublicParent):
        return _to_public(session, key, child, own, parent, price), None
    if referring is not None and parent is not None:
        return _bounded(session, key, child, parent, own, price, referring, owners or {})
    features = _targets_or_any(key, parent)
    if ANY in features and not key.may_be_empty:
        alike = None if parent is None else rank_popularity(session, key, child.size, 1.0, price)
        return Lookup({}, {}, {}, alike), None
    for_joints = price.share(1 / 2 if own else 0.0)
    for_targets = price.share((1 / 4 if own else 1 / 2) if parent else 1 / 2 if own else 1.0)
    view = session.view(ViewSpec(key.child, {**features, **own}, (child.size.rows_per_unit,)), "lookup")
    noisy = view.measure("targets", [Marginal((name,)) for name in features], for_targets)
    total, usual = child.one_way.total, parent.usual_shares() if parent else {}
    clean = {
        name: clean_target(counts, noisy.sigma, usual.get(name, np.ones(1)), total, or_none=key.may_be_empty)
        for name, counts in zip(features, noisy.values, strict=True)
    }
    pair_tables, left = _pair_tables(view, {**features, **own}, clean, child, for_joints)
    popularity = None
    if parent is not None:
        none = float(np.mean([counts[-1] / total for counts in clean.values()])) if key.may_be_empty else 0.0
        popularity = rank_popularity(session, key, child.size, 1 - none, for_targets + left)
    marginals = {name: counts / total for name, counts in clean.items()}
    return _lookup(key, parent, features, marginals, pair_tables, popularity), None


def _bounded(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    parent: Referred,
    own: Features,
    price: Price,
    referring: int,
    owners: Mapping[str, Array],
) -> tuple[Lookup, BoundedCounts]:
    """`fit_lookup` along a SET NULL key, where ``own`` are all columns that references may follow."""
    counts, left = measure_bounded(
        session, key, child.size, parent.profile.size, referring, price.share(TUNING.size_share)
    )
    child = replace(child, size=counts.size)
    popularity, unspent = counts.popularity(price.share(TUNING.size_share))
    looks = _Looks(session, key, child, parent, counts, own, owners)
    targets, context, measured = looks.measure(price.share(1 - 2 * TUNING.size_share) + left + unspent)
    shares = unbounded_targets(looks.shares(targets), parent, counts, targets.most, 1 - looks.noise(targets))
    present = min(counts.rows / max(child.size.rows, 1.0), 1.0) if key.optional else 1.0
    marginals = {name: np.append(found * present, 1 - present) for name, found in shares.items()}
    joints = _tables(shares, context, measured)
    pair_tables = {pair: _with_none(joint, child, pair[1], present) for pair, joint in joints.items()}
    return _lookup(key, parent, _targets_or_any(key, parent), marginals, pair_tables, popularity), counts


def _targets_or_any(key: ForeignKey, parent: Referred | None) -> Features:
    """Return the attributes of the parent; where there are none, whether a row refers to any."""
    return (parent.targets(key) if parent else {}) or {ANY: (ParentRow(key), present_or_not(ANY))}


def _lookup(
    key: ForeignKey,
    parent: Referred | None,
    features: Features,
    marginals: Mapping[str, Array],
    pair_tables: Joints,
    popularity: Popularity | None,
) -> Lookup:
    """Return the link, where rows that count may refer to none unless each has to refer to another."""
    targets = {name: discretizer for name, (_, discretizer) in features.items()}
    telling = parent.telling(marginals) if parent else {}
    found = Lookup(targets, marginals, pair_tables, popularity, key.may_be_empty, telling)
    return found if key.optional else found.of_all_rows()


def _to_public(
    session: PrivateSession, key: ForeignKey, child: Profile, own: Features, parent: PublicParent, price: Price
) -> Lookup:
    """`fit_lookup` along a key to a public table: the targets are its attributes, and its rows."""
    if not parent.rows.num_rows:  # a public fact: no row can refer to any, and there is nothing to measure
        return Lookup({}, {}, {}, None)
    share = 1 / 2 if own else 1.0
    references, targets = public_references(session, key, child.size, parent, price.share(share))
    popularity, none = references.popularity
    pair_tables: Joints = {}
    if own:
        features: Features = {**{name: (ParentRow(key), coding) for name, coding in targets.items()}, **own}
        view = session.view(ViewSpec(key.child, dict(features), (child.size.rows_per_unit,)), "lookup")
        clean = {n: p * child.one_way.total for n, p in marginals_of(targets, popularity.counts, none).items()}
        pair_tables, left = _pair_tables(view, features, clean, child, price.share(1 - share))
        popularity, none = references.remeasured(left).popularity
    return Lookup(targets, marginals_of(targets, popularity.counts, none), pair_tables, popularity, key.optional)


def _pair_tables(
    view: Curator, features: Features, targets: Mapping[str, Array], child: Profile, price: Price
) -> tuple[Joints, Price]:
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


def _tables(targets: Mapping[str, Array], context: Mapping[str, Array], measured: Joints) -> Joints:
    """Joints with the targets' distributions; a column that none was measured with tells at least who refers.

    Args:
        targets: Target -> distribution over the rows that refer to others.
        context: Column -> distribution over these rows, of those that differ from all rows.
        measured: Targets have a last code, of no row.
    """
    found = {}
    for (target, column), joint in measured.items():
        wanted, held = np.append(targets[target], 0.0), joint.sum(axis=1)
        scale = np.divide(wanted, held, out=np.zeros(len(wanted)), where=held > 0)
        found[target, column] = np.asarray(joint * scale[:, np.newaxis])
    followed, known = [target for target, _ in measured], {column for _, column in measured}
    first = max(targets, key=followed.count)
    alone = {column: shares for column, shares in context.items() if column not in known}
    return found | {(first, column): np.outer(np.append(targets[first], 0.0), p) for column, p in alone.items()}


def _with_none(joint: Array, child: Profile, column: str, present: float) -> Array:
    """The joint distribution over all rows: those that refer to none have what the others leave of the column.

    How owners' columns are distributed over all rows is not known here: nothing is said of rows that refer to none, for
    `Lookup` to fill in when it is.
    """
    joint = joint * (present / max(float(joint.sum()), TINY))
    if column not in child.one_way.counts:
        joint[-1] = 0.0
        return joint
    every = child.one_way.clean()[column]
    return with_code_of_none(joint, every / every.sum())


@dataclass(frozen=True)
class _NoisyTargets:
    """Noisy counts of groups of the codes of targets, measured with a bound; none where the parent has no attributes.

    Attributes:
        most: The bound.
        ends: Target -> groups of the codes of its column.
        counts: Target -> counts of these groups.
        sigma: Standard deviation of their noise.
    """

    most: int
    ends: Mapping[str, Ends]
    counts: Mapping[str, Array]
    sigma: float


@dataclass(frozen=True)
class _Looks:
    """What is measured of the rows that refer to others along a SET NULL key: attributes as of `_bounded`."""

    session: PrivateSession
    key: ForeignKey
    child: Profile
    parent: Referred
    counts: BoundedCounts
    own: Features
    owners: Mapping[str, Array]

    def measure(self, price: Price) -> tuple[_NoisyTargets, dict[str, Array], Joints]:
        """Return noisy targets, which columns differ in rows that refer to others, and joints where these pay.

        Which rows refer to others often is a matter of a single column (votes of one kind name their voter), and stands
        out of noise that hides every joint.
        """
        targets = self.parent.targets(self.key)
        for_targets, for_joints = (price.share(1 / 3), price.share(2 / 3)) if targets else (price.share(0.0), price)
        columns = [name for name in targets if not name.startswith(COUNTED)]
        asked = [*self.own, *columns]
        for_context, rest = for_joints.share(TUNING.first_look), for_joints.share(1 - TUNING.first_look)
        most = self._bound(for_context, asked)
        features = {**_targets_or_any(self.key, self.parent), **self.own}
        view = self._view(features, most)
        joints = has_power(view, max(len(columns), 1) * len(self.own), self.counts.in_view(most), rest)
        if not joints:
            asked = [name for name in self.own if name in self.child.discretizers]
            if not asked:
                return self._targets(price), {}, {}
            for_context, for_targets = price.share(TUNING.size_share), price.share(1 - TUNING.size_share)
            most = self._bound(for_context, asked)
        noisy, counted = self._targets(for_targets), self.counts.in_view(most)
        usual = {name: found * (counted / found.sum()) for name, found in self.child.one_way.clean().items()}
        usual |= {name: shares * counted for name, shares in self.shares(noisy).items()}
        known = self._context(usual, asked, most, for_context)
        differing = {
            name: known[name] / counted
            for name in self.child.discretizers
            if name in known and float(np.abs(known[name] - usual[name]).sum()) > TOLERANCE * counted
        }
        if not joints:
            return noisy, differing, {}
        candidates = [(target, column) for target in columns for column in self.own]
        ordered = ordered_codes({name: coder for name, (_, coder) in features.items()})
        measured, left = PAIRS.fit_pairs(view, known, candidates, rest, ordered)
        return self._targets(left, noisy), differing, measured

    def _context(self, usual: Mapping[str, Array], asked: Sequence[str], most: int, price: Price) -> dict[str, Array]:
        """Clean counts of columns over rows that count, for ``price``: of targets with a last code, that of no row.

        Args:
            usual: Counts of columns to be expected.
            asked: Names of the columns.
            most: The bound.
            price: Of all of them.
        """
        targets = self.parent.targets(self.key)
        counted, columns = self.counts.in_view(most), {**targets, **self.own}
        noise = self.counts.noise(most, price.share(1 / max(len(asked), 1)))
        visible, full = SHOWN_DEVIATIONS * noise * counted / ABSOLUTE, self.child.size.rows_per_unit
        ends: dict[str, Ends] = {}
        for name in asked:  # an owner may have many of the rows
            whole, most_of_one = (usual[name], 1.0) if name in usual else (self.owners[name], full)
            least = visible / (most_of_one * float(whole.sum()))
            ends[name] = Ends.of(whole / whole.sum(), columns[name][1].ordered, _groups(noise), least)
        view = self._view({name: grouped(columns[name], ends[name].groups) for name in asked}, most)
        noisy = view.measure("context", [Marginal((name,)) for name in asked], price)
        known = {} if targets else {ANY: np.array([counted, 0.0])}
        for name, found in zip(asked, noisy.values, strict=True):
            groups = len(ends[name].of_groups)
            proper = found[:groups] if name in targets else found  # else the last code is that of no owner
            near = shrink_haar(proper, noisy.sigma, ends[name].of_groups * counted) if name in usual else proper
            clean = onto_simplex(near, counted)
            last = np.zeros(1) if name in targets else clean[groups:]
            known[name] = np.append(ends[name].spread(clean[:groups]), last)
        return known

    def _targets(self, price: Price, before: _NoisyTargets | None = None) -> _NoisyTargets:
        """One-way marginals of the targets, for ``price``, averaged with those that were measured before.

        There are as many groups of codes as noise lets tell most, each of which may stand out of it.
        """
        targets = self.parent.targets(self.key)
        if not targets or price.amount <= 0:
            return before or _NoisyTargets(1, {}, {}, 0.0)
        if before:
            most, ends = before.most, before.ends
        else:
            each = price.share(1 / len(targets))
            most = self.counts.best(each, self._codes(targets), 1.0)
            noise = self.counts.noise(most, each)
            visible = SHOWN_DEVIATIONS * noise * self.counts.counted(most) / (ABSOLUTE * self.counts.in_rows(most))
            least = visible / max(self.parent.profile.size.rows, 1.0)
            usual = self.parent.usual_shares()
            ends = {name: Ends.of(p, targets[name][1].ordered, _groups(noise), least) for name, p in usual.items()}
        view = self._view({name: grouped(column, ends[name].groups) for name, column in targets.items()}, most)
        noisy = view.measure("targets again" if before else "targets", [Marginal((name,)) for name in targets], price)
        found = {name: counts[:-1] for name, counts in zip(targets, noisy.values, strict=True)}
        if not before:
            return _NoisyTargets(most, ends, found, noisy.sigma)
        both = {n: combine(before.counts[n], before.sigma, counts, noisy.sigma)[0] for n, counts in found.items()}
        return _NoisyTargets(most, ends, both, 1 / float(np.hypot(1 / before.sigma, 1 / noisy.sigma)))

    def shares(self, noisy: _NoisyTargets) -> dict[str, Array]:
        """Clean distributions of targets."""
        counted, found = self.counts.in_view(noisy.most), {} if noisy.counts else {ANY: np.ones(1)}
        for name, ends in noisy.ends.items():
            clean = clean_target(noisy.counts[name], noisy.sigma, ends.of_groups, counted) / counted
            found[name] = ends.spread(clean)
        return found

    def noise(self, noisy: _NoisyTargets) -> float:
        """Expected distance of a distribution of a target from the true one by noise, 1 at most."""
        numbers = float(np.mean([len(counts) for counts in noisy.counts.values()] or [0]))
        return min(ABSOLUTE * noisy.sigma * numbers / (2 * self.counts.in_view(noisy.most)), 1.0)

    def _bound(self, price: Price, columns: Sequence[str]) -> int:
        """The bound that lets the distributions of some columns tell most, for ``price``."""
        each = price.share(1 / max(len(columns), 1))
        return self.counts.best(each, self._codes(columns), TUNING.reference_bias)

    def _codes(self, columns: Sequence[str] | Features) -> float:
        """Mean number of codes of some columns."""
        known = {**self.parent.targets(self.key), **self.own}
        return float(np.mean([known[name][1].size for name in columns] or [1]))

    def _view(self, columns: Features, most: int) -> Curator:
        bounded = BoundedReferences(self.key, most)
        spec = ViewSpec(self.key.child, dict(columns), (self.child.size.rows_per_unit,), bounded)
        return self.session.view(spec, f"lookup of at most {most:,}")


def _groups(noise: float) -> int:
    """How many groups of codes tell most with so much noise of each, as a share of all rows that count."""
    return max(2, round(1 / math.sqrt(max(noise, SMOOTHING))))
