"""Fanout along an ownership key: how many children a parent has, and how children's attributes follow the parent's.

PrivBench's Algorithm 6 releases one noisy count per key value, which is mostly noise and forgets which parent it
belongs to. Here two small sets of joints are released instead, over rows of both tables:

- (number of children, attribute of the parent or its number of children of another kind), over parents;
- (attribute of the parent or group size, attribute of the child), over children.

Where a unit may have many parents, it is also counted over children whose they are: joints over parents are fitted to
that. Numbers of children are fitted to the released number of rows of the child's table.

Children are then drawn given their parent's row, so a join on the synthetic database shows parents and children
correlating, and every child has a parent, of which no one has more than τ children.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer, ordered_codes
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.group_codes import present_or_not
from privbench_core.estimators.denoising import shrink_haar
from privbench_core.estimators.fitting import fit_margins, row_shares, with_row_shares
from privbench_core.guards import TINY
from privbench_core.links.fanout import Fanout
from privbench_core.links.measure_agreements import measure_agreements
from privbench_core.links.measure_children import PAIRS, Ownership, measure_links
from privbench_core.marginals.measure_scores import has_power, highest_noise
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import OwnFanout, ParentRow
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.measure_lags import MeasuredLag, lag_features, measure_lags
from privbench_core.profiles.profile import OWN_FANOUT, children_column, parent_column
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import one_way_over_rows
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
        ownerless = max(0.0, float(found.values[0][1]))
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
        replace(sizes, pair_tables=joints, lags=tuple(each.lag for each in lags)),
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
