"""Fanout along an ownership key: how many children a parent has, and how children's attributes follow the parent's.

PrivBench's Algorithm 6 releases one noisy count per key value, which is mostly noise and forgets which parent it
belongs to. Here two small sets of joints are released instead, over rows of both tables:

- (number of children, attribute of the parent or its number of children of another kind), over parents;
- (attribute of the parent or group size, attribute of the child), over children.

Where a unit may have many parents, it is also counted over children whose they are: joints over parents are fitted to
that. Numbers of children are fitted to the released number of rows of the child's table.

Children are then drawn given their parent's row, so a join on the synthetic database shows parents and children
correlating, and every child has a parent, of which no one has more than τ children.

`measure_links` then measures columns of children with what they know of their owners: the owners' columns, and how many
children of each kind these have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer, ordered_codes
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.group_codes import present_or_not
from privbench_core.estimators.denoising import shrink_haar
from privbench_core.estimators.fitting import fit_margins, row_shares, with_row_shares
from privbench_core.guards import NEGLIGIBLE, TINY
from privbench_core.links.fanout import Fanout
from privbench_core.links.measure_agreements import measure_agreements
from privbench_core.links.popularity_shapes import rows_without_reference
from privbench_core.marginals.measure_pairs import PairwiseFit
from privbench_core.marginals.measure_scores import has_power, highest_noise
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, OwnerFanout, OwnFanout, ParentFanout, ParentRow
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.measure_lags import MeasuredLag, lag_features, measure_lags
from privbench_core.profiles.profile import OWN_FANOUT, OWNER_FANOUT, PARENT, Profile, children_column, parent_column
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import Features, one_way_over_rows
from privbench_core.units.measure_row_count import counted_for_sizes
from privbench_core.units.row_count import RowCount, class_coder, powers_up_to
from privbench_core.units.size_counts import (
    ExpectedSizes,
    NoisySum,
    SizeCounts,
    estimate_bands,
    mean_sizes,
    refine_bands,
)

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


_OWNER = "#owner"


def fit_fanout(session: PrivateSession, ownership: Ownership, price: Price) -> Fanout:
    """Measure the link along an ownership key, for at most ``price``.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7 and 8.

    Args:
        session: Open for the step.
        ownership: The key, and both sides.
        price: Of everything here.
    """
    key, child, own = ownership.key, ownership.child, ownership.child.own()
    rows = session.view(ViewSpec(key.child, {}, (child.size.rows_per_unit,)), "pair_tables")
    number = (1 + len(ownership.parent.discretizers)) * len(own)
    for_links = price.share(1 - TUNING.degrees)
    if not has_power(rows, number, child.counted.total, for_links):  # rows follow nothing, or noise hides what
        return fit_sizes_and_siblings(session, ownership, price)[0]
    fanout, lags, of_links = fit_sizes_and_siblings(session, ownership, price, TUNING.degrees)
    context = ownership.context(fanout.sizes)
    if not context:
        return fanout
    view = session.view(ViewSpec(key.child, {**context, **own}, (child.size.rows_per_unit,)), "pair_tables")
    joints = measure_links(view, context, own, child.counted, of_links, ownership.expected(fanout, context), lags)
    return replace(fanout, pair_tables=joints)


def fit_sizes(session: PrivateSession, ownership: Ownership, price: Price) -> Fanout:
    """Measure how many children parents have, and nothing else of the link, for at most ``price``.

    Who has many children of one kind has many of another: a join of two children with their parent has the sum of the
    products of both numbers as its size, which says nothing of either alone.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4 and 7.

    Args:
        session: Open for the step.
        ownership: The key, and both sides; numbers of children are fitted to the released size of their table.
        price: Of everything here.
    """
    key, ownerless, children = ownership.key, 0.0, ownership.child.size
    if key.optional:
        view = session.view(ViewSpec(key.child, {_OWNER: (ParentRow(key), present_or_not(_OWNER))}), "owners")
        found = view.measure("owned or not", [Marginal((_OWNER,))], price.share(TUNING.first_look))
        ownerless = rows_without_reference(float(found.values[0][1]), found.sigma, children.rows)
        price = price.share(1 - TUNING.first_look)
    owned = replace(children, rows=max(0.0, children.rows - ownerless))
    counts, fanout_tables = _counts(session, ownership, owned, ownerless, price)
    sizes = Discretizer(counts.codec, counts.binning)
    return Fanout(sizes, counts.counts / max(counts.groups, TINY), fanout_tables, {}, owned.rows, ownerless)


def fit_sizes_and_siblings(
    session: PrivateSession, ownership: Ownership, price: Price, share: float = 1.0
) -> tuple[Fanout, tuple[MeasuredLag, ...], Price]:
    """Measure numbers of children, how long after their parents they are dated, and how often siblings agree.

    All of it for at most ``price``, the latter two where noise leaves something of them. Joints of dates are those that
    follow from lags.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4 and 7.

    Args:
        session: Open for the step.
        ownership: The key, and both sides.
        price: Of everything here, and what is left.
        share: Of numbers and lags, in what agreement leaves of the price.

    Returns:
        The link without joints of other columns; lags of coded dates, with what they say of these; what is left of the
        price.
    """
    key, parent, child = ownership.key, ownership.parent, ownership.child
    agreements, rest = measure_agreements(session, key, child, price)
    features, ours, left = lag_features(session.schema, key, parent, child), rest.share(share), rest.share(1 - share)
    for_sizes = ours.share(1 - TUNING.first_look) if features else ours
    sizes = replace(fit_sizes(session, ownership, for_sizes), agreements=agreements)
    if not features:
        return sizes, (), left
    context = ownership.context(sizes.sizes)
    expected = ownership.expected(sizes, context)
    candidates = len(context) * len(child.discretizers)
    of_joints = len(features) / (candidates + len(features))  # each lag gets about as much as a joint
    for_lags = Price(price.measure, ours.share(TUNING.first_look).amount + left.share(of_joints).amount)
    lags = measure_lags(session, key, features, expected, parent, child, for_lags)
    rows = {**expected, **{name: counts / counts.sum() for name, counts in child.one_way.clean().items()}}
    of_codes = tuple(each for each in lags if each.lag.base not in parent.relatives)
    joints = {each.pair: each.joint(rows) for each in of_codes}
    return (
        replace(sizes, pair_tables=joints, lags=tuple(each.lag for each in lags if each.informative)),
        of_codes,
        left.share(1 - of_joints),
    )


def _counts(
    session: PrivateSession, ownership: Ownership, children: RowCount, ownerless: float, price: Price
) -> tuple[SizeCounts, dict[str, Array]]:
    """Measure the number of children of each parent, and what of the parent it depends on.

    Two things that are equally uncertain share a price equally: numbers and joints, classes of numbers and numbers,
    joints over parents and over their children. ``children`` are those that have an owner.
    """
    key, parent, of_units = ownership.key, ownership.parent, ownership.of_units
    numbers = {children_column(other.name): (OwnFanout(other), it.sizes) for other, it in ownership.siblings.items()}
    columns = {**parent.own(), **numbers}
    codec, full = FanoutCodec(key.max_children or 1), parent.size.rows_per_unit
    # Where a parent is a unit and its children are its rows, their numbers are known by class.
    by_class = children.units if of_units else None
    parents = session.view(ViewSpec(key.parent, {}, (full,)), "fanout by parent")
    share = 1 / 2 if by_class is None else 1 / 4
    if of_units and not has_power(parents, len(columns), parent.one_way.total, price.share(1 - share)):
        columns = {}  # what numbers of children follow is below the noise
    share = share if columns else 1.0
    sigma = parent.one_way.total_sigma if parent.one_way.counts else parent.size.sigma
    groups, most = NoisySum(parent.one_way.total, sigma), full
    classes = (0, *powers_up_to(codec.bound))
    if not of_units:  # a chain: a unit has many parents, and how many of them count is a choice
        curator = session.view(ViewSpec(key.parent, {}), "fanout")
        likely = ExpectedSizes.of_mean(codec, classes, children.rows / max(1.0, parent.size.rows))
        most = counted_for_sizes(curator, parent.size, likely, price.share(share / 2))
        groups = NoisySum(float(parent.size.counted(most).sum()), parent.size.sigma)
    counted = groups.value / max(1.0, parent.size.rows)  # of units with many rows T, not all of them
    rows = NoisySum(children.rows * counted, children.sigma * counted)
    for_cells = price.share(share)
    if by_class is not None:
        units = by_class - ownerless * (np.arange(len(classes) - 1) == 0)
        noisy, sigma = np.append(groups.value - units.sum(), units), children.noise
    else:
        banded = ViewSpec(key.parent, {OWN_FANOUT: (OwnFanout(key), class_coder(codec, classes))}, (most,))
        for_cells = for_cells.share(1 / 2)
        found = session.view(banded, "fanout").measure("children", [Marginal((OWN_FANOUT,))], for_cells)
        noisy, sigma = found.values[0], found.sigma
    bar = highest_noise(price.measure, 1.0, 2 * len(classes))  # looked for in each class, and in all above it
    bands = estimate_bands(codec, classes, noisy, sigma, bar, groups, rows)
    cells = session.view(ViewSpec(key.parent, {OWN_FANOUT: (OwnFanout(key), Discretizer(codec))}, (most,)), "fanout")
    measured = cells.measure("children, closer", [Marginal((OWN_FANOUT,))], for_cells)
    counts = refine_bands(bands, measured.values[0], measured.sigma, groups, rows)
    if not columns or counts.groups <= 0:
        return counts, {}
    features = {**columns, OWN_FANOUT: (OwnFanout(key), Discretizer(codec, counts.binning))}
    view = session.view(ViewSpec(key.parent, features, (full,)), "fanout by parent")
    ordered = ordered_codes({name: discretizer for name, (_, discretizer) in features.items()})
    total = parent.one_way.total
    clean = {**parent.counted.clean(), OWN_FANOUT: counts.counts * (total / counts.groups)}
    for name, shares in ownership.sibling_numbers.items():
        clean[name] = shares * (total / max(float(shares.sum()), TINY))
    # Units are counted best: where parents are units, joints over them tell all. Of others a unit may have many.
    over_rows = not of_units and bool(parent.discretizers)
    each = price.share((1 - share) / (1 + over_rows))
    candidates = [(name, OWN_FANOUT) for name in columns]
    joints, _ = PAIRS.fit_pairs(view, clean, candidates, each, ordered)
    tables = {name: joint for (name, _), joint in joints.items()}
    if over_rows:
        tables |= _fitted_to_rows(session, ownership, tables, children, counts, each)
    return counts, tables


def _fitted_to_rows(
    session: PrivateSession,
    ownership: Ownership,
    tables: Mapping[str, Array],
    children: RowCount,
    counts: SizeCounts,
    price: Price,
) -> dict[str, Array]:
    """Joints of parents' attributes and numbers of children that agree with these attributes over the children."""
    parent, key = ownership.parent, ownership.key
    found = one_way_over_rows(session, key.child, parent.of_owner(key), children, price, "owners of rows")
    owners = found.clean()
    sizes, numbers = mean_sizes(counts.codec, counts.binning), counts.counts / max(counts.groups, TINY)
    fitted: dict[str, Array] = {}
    for name, parents in parent.one_way.clean().items():
        joint = tables.get(name)
        start = np.outer(parents / parents.sum(), numbers)
        if joint is not None:
            start = fit_margins(joint, [((0,), start.sum(axis=1)), ((1,), start.sum(axis=0))])
        source, size = parent_column(name), parent.discretizers[name].size
        of_owner = owners[source][:size]  # rows without an owner have one more code
        owned, expected = max(float(of_owner.sum()), TINY), row_shares(start, sizes)
        shares = shrink_haar(of_owner / owned, found.sigmas[source][:size] / owned, expected)
        if (shares != expected).any():
            fitted[name] = with_row_shares(start, sizes, np.maximum(shares, 0.0))
    return fitted
