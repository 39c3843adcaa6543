"""Columns of a table's rows over all of them, of whatever unit: what is asked of them once, when a table is known."""

from __future__ import annotations

from privbench_core.measure.by_size import Features, measure_by_size
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.tuning import TUNING


def one_way_over_rows(
    session: PrivateSession, table: str, columns: Features, profile: Profile, price: Price, label: str
) -> OneWay:
    """Counts of columns of a table's rows over all of them, of whatever unit, for ``price`` in all.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.

    Args:
        session: Open for the step.
        table: The table.
        columns: As in `measure_by_size`.
        profile: Of the table.
        price: Of everything here.
        label: What the ledger calls it.
    """
    size = profile.size
    if size.units is None and size.in_full:
        noisy = session.view(ViewSpec(table, dict(columns)), label).measure(
            label, [Marginal((name,)) for name in columns], price
        )
        return OneWay.alike(dict(zip(columns, noisy.values, strict=True)), noisy.sigma)
    looks = measure_by_size(session, table, columns, size, price.share(TUNING.early_share))
    return looks.again(session, table, columns, price.share(1 - TUNING.early_share)).one_way(size.classes[-1])
