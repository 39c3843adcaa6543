"""Measure how often two ways lead from a row to the same one: see `links.common_references`."""

from __future__ import annotations

import math

from privbench_core.columns.group_codes import AGREEMENTS, DIFFERENT, SAME, index_coder
from privbench_core.guards import TINY
from privbench_core.links.common_references import CommonReference, common_references
from privbench_core.privacy.budget import Price
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.constraints import ForeignKey
from privbench_core.tuning import TUNING
from privbench_core.units.measure_by_size import Features, one_way_over_rows
from privbench_core.units.row_count import RowCount


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
        (same, different), noise = noisy.counts[name][[SAME, DIFFERENT]], noisy.sigmas[name][[SAME, DIFFERENT]]
        both = max(float(same + different), TINY)
        share = min(max(float(same) / both, 0.0), 1.0)
        sigma = min(math.hypot((1 - share) * float(noise[0]), share * float(noise[1])) / both, 1.0)
        theirs = key.parent_columns if feature.theirs is None else feature.theirs.columns
        found.append(CommonReference(theirs, feature.mine.columns, feature.of is not None, share, sigma))
    return tuple(found), price.share(1 - TUNING.first_look)
