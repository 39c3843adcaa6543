"""Freshness: when a bundle counts as too old. Derived from the schedule that the spec declares for its refresh."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import dagster as dg
from dagster._utils.schedules import cron_string_iterator, is_valid_cron_string  # no public name for either

from privbench_core.errors import SpecError
from privbench_core.spec.model import Spec

_TICKS = 40  # of the schedule that are looked at, for its longest pause
_GRACE = 1.25  # a refresh takes time, and may wait for others


def freshness_policy(spec: Spec) -> dg.FreshnessPolicy | None:
    """A warning when one scheduled refresh did not make a bundle, a failure when two in a row did not.

    A spec without a schedule has none: its owner refreshes when there is a reason to.

    Raises:
        SpecError: The schedule is no cron expression.
    """
    if spec.schedule is None:
        return None
    pause = longest_pause(spec.schedule)
    return dg.FreshnessPolicy.time_window(fail_window=pause + pause * _GRACE, warn_window=pause * _GRACE)


def longest_pause(cron: str) -> timedelta:
    """The longest time between two ticks of a schedule, of the next few dozen.

    Raises:
        SpecError: It is no cron expression.

    >>> longest_pause("0 3 * * 1,4")
    datetime.timedelta(days=4)
    """
    if not is_valid_cron_string(cron):
        raise SpecError(f"spec: schedule is {cron!r}, which is no cron expression; write one like '0 3 * * 1'")
    start = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    ticks = islice(cron_string_iterator(start, cron, "UTC"), _TICKS)
    return max(later - earlier for earlier, later in pairwise(ticks))
