"""Measure how often two rows agree: siblings in a column, and two ways that lead from a row to the same one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array, dense
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.group_codes import AGREEMENTS, DIFFERENT, SAME, index_coder
from privbench_core.guards import MAX_SHARING, TINY
from privbench_core.links.fanout import Agreement, CommonReference, common_references
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import SiblingAgreement
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.profile import Profile
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import Features, one_way_over_rows
from privbench_core.units.row_count import RowCount


def agreement_columns(session: PrivateSession, key: ForeignKey, child: Profile, price: Price) -> list[str]:
    """Return the columns of children whose agreement ``price`` buys such that noise leaves something of it: free.

    All of them, or the first `MAX_SHARING`; none where an owner has one child at most.
    """
    if (key.max_children or 1) < 2:  # noqa: PLR2004 - siblings
        return []
    names = [name for name, coder in child.discretizers.items() if coder.size > 1]
    size, unit = child.size, session.view(ViewSpec(key.child, {}), "siblings")
    for chosen in filter(None, dict.fromkeys([tuple(names), tuple(names[:MAX_SHARING])])):
        noise = unit.sigma([Marginal(())], price.share(1 / len(chosen)))
        least = min(most * noise / max(float(size.counted(most).sum()), TINY) for most in size.classes)
        if least < TUNING.least_share:
            return [*chosen]
    return []


def measure_agreements(
    session: PrivateSession, key: ForeignKey, child: Profile, price: Price
) -> tuple[tuple[Agreement, ...], Price]:
    """Measure how often rows have the same code as a sibling, one number for each column, over the rows of all units.

    Nothing is measured where noise would leave nothing of it.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        key: The owner key.
        child: The children.
        price: Of this and of all that is measured along the key afterwards.

    Returns:
        What was measured, and what is left of the price.
    """
    first, coders = price.share(TUNING.first_look), child.discretizers
    names = agreement_columns(session, key, child, first)
    if not names:
        return (), price
    clean = child.one_way.clean()
    groups = {name: _groups(coders[name], clean[name]) for name in names}
    columns: Features = {
        name: (SiblingAgreement(key, name, coders[name].grouped(of)), index_coder(name, AGREEMENTS))
        for name, of in groups.items()
    }
    noisy = one_way_over_rows(session, key.child, columns, child.size, first, "siblings")
    found = tuple(Agreement(name, of, *_same(noisy, name)) for name, of in groups.items())
    return found, price.share(1 - TUNING.first_look)


def measure_common_references(
    session: PrivateSession, key: ForeignKey, size: RowCount, price: Price
) -> tuple[tuple[CommonReference, ...], Price]:
    """Measure all pairs of ways by which rows may refer to one row along ``key``, and return what is left of a price.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        key: Not an owner key.
        size: Released, of the table that has the key.
        price: Of this and of all that is measured along the key afterwards.
    """
    features = common_references(session.schema, key)
    if not features:
        return (), price
    columns: Features = {str(n): (feature, index_coder(str(n), AGREEMENTS)) for n, feature in enumerate(features)}
    noisy = one_way_over_rows(session, key.child, columns, size, price.share(TUNING.first_look), "common references")
    found = []
    for name, feature in zip(columns, features, strict=True):
        theirs = key.parent_columns if feature.theirs is None else feature.theirs.columns
        found.append(CommonReference(theirs, feature.mine.columns, feature.of is not None, *_same(noisy, name)))
    return tuple(found), price.share(1 - TUNING.first_look)


def _same(noisy: OneWay, name: str) -> tuple[float, float]:
    """Return the share of what agrees in what may, in 0 to 1, and the standard deviation of its noise, 1 at most."""
    (same, different), noise = (counts[[SAME, DIFFERENT]] for counts in noisy.column(name))
    both = max(float(same + different), TINY)
    share = min(max(float(same) / both, 0.0), 1.0)
    sigma = math.hypot((1 - share) * float(noise[0]), share * float(noise[1])) / both
    return share, min(sigma, 1.0)


def _groups(coder: Discretizer, counts: Array) -> NDArray[np.int64]:
    """Return which codes count as the same: those in an eighth of an order, each alone else; shape (codes,)."""
    most = 8
    ordered = coder.ordered
    inside = counts[:ordered]
    middle = (np.cumsum(inside) - inside / 2) / max(float(inside.sum()), TINY)
    parts = np.minimum((middle * most).astype(np.int64), most - 1)
    listed = most + np.arange(len(counts) - ordered)
    return dense(np.concatenate([parts, listed]))
