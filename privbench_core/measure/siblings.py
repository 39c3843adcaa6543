"""Measure how often children of one owner agree in a column: one number for each."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.group_codes import AGREEMENTS, DIFFERENT, SAME, index_coder
from privbench_core.guards import MAX_SHARING, SIBLING_PARTS, TINY
from privbench_core.measure.by_size import Features
from privbench_core.measure.over_rows import one_way_over_rows
from privbench_core.models.fanout import Agreement
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import SiblingAgreement
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]


def agreement_columns(key: ForeignKey, child: Profile) -> list[str]:
    """Return the columns of children whose agreement is measured: none where an owner has one child at most."""
    if (key.max_children or 1) < 2:  # noqa: PLR2004 - siblings
        return []
    return [name for name, coder in child.discretizers.items() if coder.size > 1][:MAX_SHARING]


def agreements_tell(session: PrivateSession, key: ForeignKey, child: Profile, price: Price) -> bool:
    """Return whether noise leaves something of the agreement of all these columns for ``price``: free."""
    names = agreement_columns(key, child)
    if not names:
        return False
    size, unit = child.size, session.view(ViewSpec(key.child, {}), "siblings")
    noise = unit.sigma([Marginal(())], price.share(1 / len(names)))
    return min(most * noise / max(float(size.counted(most).sum()), TINY) for most in size.classes) < TUNING.least_share


def measure_agreements(session: PrivateSession, key: ForeignKey, child: Profile, price: Price) -> tuple[Agreement, ...]:
    """Measure how often rows have the same code as a sibling, over the rows of all units, for ``price`` in all.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        key: The owner key.
        child: The children.
        price: Of all columns.
    """
    clean, coders = child.one_way.clean(), child.discretizers
    groups = {name: _groups(coders[name], clean[name]) for name in agreement_columns(key, child)}
    columns: Features = {
        name: (SiblingAgreement(key, name, coders[name].grouped(of)), index_coder(name, AGREEMENTS))
        for name, of in groups.items()
    }
    noisy = one_way_over_rows(session, key.child, columns, child, price, "siblings")
    found = []
    for name, of in groups.items():
        (same, different), noise = noisy.counts[name][[SAME, DIFFERENT]], noisy.sigmas[name][[SAME, DIFFERENT]]
        pairs = max(float(same + different), TINY)
        share = min(max(float(same) / pairs, 0.0), 1.0)
        sigma = math.hypot((1 - share) * float(noise[0]), share * float(noise[1])) / pairs
        found.append(Agreement(name, of, share, min(sigma, 1.0)))
    return tuple(found)


def _groups(coder: Discretizer, counts: Array) -> NDArray[np.int64]:
    """Return which codes count as the same: neighbours in an order, each one alone else; shape (codes,)."""
    ordered = coder.ordered
    inside = counts[:ordered]
    middle = (np.cumsum(inside) - inside / 2) / max(float(inside.sum()), TINY)
    parts = np.minimum((middle * SIBLING_PARTS).astype(np.int64), SIBLING_PARTS - 1)
    listed = SIBLING_PARTS + np.arange(len(counts) - ordered)
    return np.asarray(np.unique(np.concatenate([parts, listed]), return_inverse=True)[1], dtype=np.int64)
