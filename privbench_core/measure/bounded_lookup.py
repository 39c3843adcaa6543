"""Measuring a key that lets go: only rows that refer to others are looked at, and few of those that refer to one unit.

How many rows refer to others is counted with several bounds first (`measure.bounded`). With which bound attributes of
parents are measured, and joints with attributes of the rows, follows from that: more rows count with a larger one, and
noise is larger. What is said of rows that refer to none is what is left of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer, ordered_codes
from privbench_core.columns.group_codes import present_or_not
from privbench_core.estimate.coarsening import Ends
from privbench_core.estimate.degrees import unbounded_means
from privbench_core.estimate.denoising import onto_simplex, shrink_haar
from privbench_core.estimate.fitting import combine
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.guards import SHOWN_DEVIATIONS, SMOOTHING, TINY, TOLERANCE
from privbench_core.measure.bounded import BoundedCounts, measure_bounded
from privbench_core.measure.linking import grouped
from privbench_core.measure.links import PAIRS
from privbench_core.measure.scores import has_power
from privbench_core.measure.targets import Referred, clean_target
from privbench_core.models.lookup import ANY, COUNTED, Lookup
from privbench_core.models.profile import Profile
from privbench_core.models.targets import with_code_of_none
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, ParentRow
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import BoundedReferences, ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
Features = Mapping[str, tuple[Feature, Discretizer]]


def fit_bounded(
    session: PrivateSession,
    key: ForeignKey,
    child: Profile,
    parent: Referred,
    own: Features,
    price: Price,
    referring: int,
    owners: Mapping[str, Array] | None = None,
) -> tuple[Lookup, BoundedCounts]:
    """Measure the link along a key that lets go, for at most ``price``: arguments as of `measure.lookup.fit_lookup`.

    Returns how many rows refer to others, too.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 4, "Bounded references", and section 5, mechanisms 1, 2, 4, 7 and 9.
    """
    counts, left = measure_bounded(
        session, key, child.size, parent.profile.size, referring, price.share(TUNING.size_share)
    )
    child = replace(child, size=counts.size)
    popularity, unspent = counts.popularity(price.share(TUNING.size_share))
    rest = price.share(1 - 2 * TUNING.size_share) + left + unspent
    targets = parent.targets(key)
    looks = _Looks(session, key, child, counts, targets, own, owners or {})
    joints, seen = looks.measure(parent, rest)
    whole = unbounded_targets(joints.targets, parent, counts, seen.most, 1 - seen.noise)
    joints = replace(joints, targets=whole)
    present = min(counts.rows / max(child.size.rows, 1.0), 1.0) if key.optional else 1.0
    marginals = {name: np.append(shares * present, 1 - present) for name, shares in joints.targets.items()}
    coders = {name: discretizer for name, (_, discretizer) in looks.targets_or_any.items()}
    pair_tables = {pair: _with_none(joint, child, pair[1], present) for pair, joint in joints.tables().items()}
    found = Lookup(coders, marginals, pair_tables, popularity, key.may_be_empty, parent.telling(marginals))
    return (found if key.optional else found.of_all_rows()), counts


@dataclass(frozen=True)
class _Joints:
    """Released, of the rows that refer to others.

    Attributes:
        targets: Target -> distribution.
        context: Column -> distribution, of those that differ from all rows.
        measured: (target, column) -> joint distribution; targets have a last code, of no row.
    """

    targets: dict[str, Array]
    context: dict[str, Array]
    measured: Mapping[tuple[str, str], Array]

    def tables(self) -> dict[tuple[str, str], Array]:
        """Joints with the targets' distributions; a column that none was measured with tells at least who refers."""
        followed = [target for target, _ in self.measured]
        first = max(self.targets, key=followed.count)
        found = {(target, column): self._fitted(target, joint) for (target, column), joint in self.measured.items()}
        known = {column for _, column in found}
        for column, shares in self.context.items():
            if column not in known:
                found[first, column] = np.outer(np.append(self.targets[first], 0.0), shares)
        return found

    def _fitted(self, target: str, joint: Array) -> Array:
        wanted, held = np.append(self.targets[target], 0.0), joint.sum(axis=1)
        scale = np.divide(wanted, held, out=np.zeros(len(wanted)), where=held > 0)
        return np.asarray(joint * scale[:, np.newaxis])


@dataclass(frozen=True)
class _Targets:
    """Noisy counts of targets; none where the parent has no attributes.

    Attributes:
        ends: Target -> groups of the codes of its column.
        counts: Target -> counts of these groups.
        sigma: Standard deviation of their noise.
        most: The bound that they were measured with.
        counted: Number of rows that count with it.
    """

    ends: Mapping[str, Ends] = field(default_factory=dict)
    counts: Mapping[str, Array] = field(default_factory=dict)
    sigma: float = 0.0
    most: int = 1
    counted: float = 1.0

    @property
    def noise(self) -> float:
        """Expected distance of a distribution from the true one by noise, 1 at most."""
        numbers = float(np.mean([len(counts) for counts in self.counts.values()])) if self.counts else 0.0
        return min(ABSOLUTE * self.sigma * numbers / (2 * self.counted), 1.0)

    @property
    def shares(self) -> dict[str, Array]:
        """Clean distributions."""
        if not self.counts:
            return {ANY: np.ones(1)}
        clean = {
            name: clean_target(self.counts[name], self.sigma, ends.of_groups, self.counted) / self.counted
            for name, ends in self.ends.items()
        }
        return {name: ends.spread(clean[name]) for name, ends in self.ends.items()}


@dataclass(frozen=True)
class _Looks:
    """What is looked at of the rows that refer to others along a key.

    Attributes:
        session: Open for the step.
        key: The key.
        child: Profile of its table.
        counts: How many rows refer to others.
        targets: Attributes of the parent.
        own: Columns that references may follow.
        owners: Those of the rows' owners -> how frequent their codes are among owners.
    """

    session: PrivateSession
    key: ForeignKey
    child: Profile
    counts: BoundedCounts
    targets: Features
    own: Features
    owners: Mapping[str, Array]

    @property
    def targets_or_any(self) -> Features:
        """The targets; where the parent has no attributes, whether a row refers to any."""
        return self.targets or {ANY: (ParentRow(self.key), present_or_not(ANY))}

    def measure(self, parent: Referred, price: Price) -> tuple[_Joints, _Targets]:
        """Measure targets, and joints with columns where these pay, for ``price``; the noisy targets, too."""
        for_targets, for_joints = price.share(1 / 3), price.share(2 / 3)
        if not self.targets:
            for_targets, for_joints = price.share(0.0), price
        columns = [name for name in self.targets if not name.startswith(COUNTED)]
        asked = [*self.own, *columns]
        most = self.counts.best(
            for_joints.share(TUNING.first_look / max(len(asked), 1)), self._codes(asked), TUNING.reference_bias
        )
        view, counted = self._view({**self.targets_or_any, **self.own}, most), self.counts.in_view(most)
        pairs, rest = max(len(columns), 1) * len(self.own), for_joints.share(1 - TUNING.first_look)
        if not has_power(view, pairs, counted, rest):
            return self._without_joints(parent, price)
        targets = self._targets(for_targets, parent)
        usual = self._usual(counted) | {name: shares * counted for name, shares in targets.shares.items()}
        known = self._context(usual, asked, most, for_joints.share(TUNING.first_look))
        context = self._differing(known, usual, counted)
        candidates = [(target, column) for target in columns for column in self.own]
        ordered = ordered_codes({name: coder for name, (_, coder) in {**self.targets, **self.own}.items()})
        measured, left = PAIRS.fit_pairs(view, known, candidates, rest, ordered)
        targets = self._targets(left, parent, targets)
        return _Joints(targets.shares, context, measured), targets

    def _without_joints(self, parent: Referred, price: Price) -> tuple[_Joints, _Targets]:
        """Measure targets, and which rows refer to others by what is in their own columns, for ``price``.

        That often is a matter of a single column (votes of one kind name their voter), and stands out of noise that
        hides every joint.
        """
        own = [name for name in self.own if name in self.child.discretizers]
        if not own:
            targets = self._targets(price, parent)
            return _Joints(targets.shares, {}, {}), targets
        for_own = price.share(TUNING.size_share)
        targets = self._targets(price.share(1 - TUNING.size_share), parent)
        most = self.counts.best(for_own.share(1 / len(own)), self._codes(own), TUNING.reference_bias)
        counted = self.counts.in_view(most)
        usual = self._usual(counted)
        known = self._context(usual, own, most, for_own)
        return _Joints(targets.shares, self._differing(known, usual, counted), {}), targets

    def _usual(self, counted: float) -> dict[str, Array]:
        """Counts of the row's own columns if those that refer to others are like all rows."""
        return {name: found * (counted / found.sum()) for name, found in self.child.one_way.clean().items()}

    def _differing(self, known: Mapping[str, Array], usual: Mapping[str, Array], counted: float) -> dict[str, Array]:
        """Distributions of the row's own columns among those that refer to others, where these differ from all rows."""
        return {
            name: known[name] / counted
            for name in self.child.discretizers
            if name in known and float(np.abs(known[name] - usual[name]).sum()) > TOLERANCE * counted
        }

    def _context(self, usual: Mapping[str, Array], asked: Sequence[str], most: int, price: Price) -> dict[str, Array]:
        """Clean counts of columns over rows that count, for ``price``: of targets with a last code, that of no row.

        Args:
            usual: Counts of columns to be expected.
            asked: Names of the columns.
            most: The bound.
            price: Of all of them.
        """
        counted, columns = self.counts.in_view(most), {**self.targets, **self.own}
        noise = self.counts.noise(most, price.share(1 / max(len(asked), 1)))
        visible, full = SHOWN_DEVIATIONS * noise * counted / ABSOLUTE, self.child.size.rows_per_unit
        ends: dict[str, Ends] = {}
        for name in asked:  # an owner may have many of the rows
            whole, most_of_one = (usual[name], 1.0) if name in usual else (self.owners[name], full)
            least = visible / (most_of_one * float(whole.sum()))
            ends[name] = Ends.of(whole / whole.sum(), columns[name][1].ordered, _groups(noise), least)
        view = self._view({name: grouped(columns[name], ends[name].groups) for name in asked}, most)
        noisy = view.measure("context", [Marginal((name,)) for name in asked], price)
        known = {} if self.targets else {ANY: np.array([counted, 0.0])}
        for name, found in zip(asked, noisy.values, strict=True):
            groups = len(ends[name].of_groups)
            proper = found[:groups] if name in self.targets else found  # else the last code is that of no owner
            near = shrink_haar(proper, noisy.sigma, ends[name].of_groups * counted) if name in usual else proper
            clean = onto_simplex(near, counted)
            last = np.zeros(1) if name in self.targets else clean[groups:]
            known[name] = np.append(ends[name].spread(clean[:groups]), last)
        return known

    def _targets(self, price: Price, parent: Referred, before: _Targets | None = None) -> _Targets:
        """One-way marginals of the targets, for ``price``, averaged with those that were measured before."""
        if not self.targets or price.amount <= 0:
            return before or _Targets()
        each = price.share(1 / len(self.targets))
        most = before.most if before else self.counts.best(each, self._codes(self.targets), 1.0)
        again = " again" if before else ""
        asked = [Marginal((name,)) for name in self.targets]
        ends = before.ends if before else self._ends(parent, most, each)
        columns = {name: grouped(column, ends[name].groups) for name, column in self.targets.items()}
        noisy = self._view(columns, most).measure(f"targets{again}", asked, price)
        found = {name: counts[:-1] for name, counts in zip(self.targets, noisy.values, strict=True)}
        sigma = noisy.sigma
        if before:
            both = {name: combine(before.counts[name], before.sigma, counts, sigma) for name, counts in found.items()}
            found = {name: counts for name, (counts, _) in both.items()}
            sigma = 1 / float(np.hypot(1 / before.sigma, 1 / sigma))
        return _Targets(ends, found, sigma, most, self.counts.in_view(most))

    def _codes(self, columns: Iterable[str]) -> float:
        """Mean number of codes of some columns."""
        known = {**self.targets_or_any, **self.own}
        return float(np.mean([known[name][1].size for name in columns] or [1]))

    def _ends(self, parent: Referred, most: int, price: Price) -> dict[str, Ends]:
        """As many groups of the codes of each target as noise lets tell most, each of which may stand out of it."""
        noise = self.counts.noise(most, price)
        visible = SHOWN_DEVIATIONS * noise * self.counts.counted(most) / (ABSOLUTE * self.counts.in_rows(most))
        least = visible / max(parent.profile.size.rows, 1.0)
        return {
            name: Ends.of(usual, self.targets[name][1].ordered, _groups(noise), least)
            for name, usual in parent.usual_shares().items()
        }

    def _view(self, columns: Features, most: int) -> Curator:
        spec = ViewSpec(
            self.key.child, dict(columns), (self.child.size.rows_per_unit,), BoundedReferences(self.key, most)
        )
        return self.session.view(spec, f"lookup of at most {most:,}")


def _groups(noise: float) -> int:
    """How many groups of codes tell most with so much noise of each, as a share of all rows that count."""
    return max(2, round(1 / math.sqrt(max(noise, SMOOTHING))))


def unbounded_targets(
    targets: Mapping[str, Array], parent: Referred, counts: BoundedCounts, most: int, known: float
) -> dict[str, Array]:
    """Distributions of targets over all references, of those over references that a bound counts.

    How many count per parent of each code shows how many do not: popular parents lose more of theirs. Degrees of
    parents of a code are assumed to be exponential, so that m · (1 - exp(-bound / m)) of a mean m count. All references
    that do not count are shared among the codes in proportion to what each so lacks. Where a unit may have several of
    the parents, the bound is not theirs, and nothing changes.

    Args:
        targets: Distributions over the references that count, by target.
        parent: What is released of those referred to.
        counts: Numbers of references with each bound.
        most: The bound.
        known: Weight of the estimate against ``targets``, from 0 to 1: less where noise hides how many count.
    """
    rows, parents = counts.rows, parent.profile.size
    counted = min(counts.counted(most), rows)
    if parents.units is not None or counted >= rows:
        return dict(targets)
    usual, result = parent.usual_shares(), dict(targets)
    for name, shares in targets.items():
        if name in usual:
            there = usual[name] * max(parents.rows, 1.0)
            rates = shares * counted / np.maximum(there, TINY)
            lost = (unbounded_means(rates, counts.in_rows(most)) - rates) * there
            if lost.sum() > 0:
                whole = (shares * counted + lost * ((rows - counted) / lost.sum())) / rows
                result[name] = (1 - known) * shares + known * whole
    return result


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
