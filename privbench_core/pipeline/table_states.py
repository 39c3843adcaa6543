"""How far each table is at one ε, in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from privbench_core.pipeline.status import ReleaseState, Stale
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Step, StepKind

DATABASE = "whole database"
_UNITS = ((2880, 1440, "d"), (120, 60, "h"), (0, 1, "min"))  # from so many minutes on; minutes of the unit; its name
_REACHED = {
    StepKind.COUNT: "counted",
    StepKind.PROFILE: "profiled",
    StepKind.MODEL: "modelled",
    StepKind.FANOUT: "linked",
    StepKind.FIDELITY: "measured",
    StepKind.SAMPLE: "sampled",
    StepKind.VALIDATE: "validated",
    StepKind.PUBLISH: "published",
}


def age_in_words(at: str, now: datetime) -> str:
    """Return how long ago something was, and when (UTC), because what Dagster shows is as old as the last look.

    >>> age_in_words("2026-11-20T22:01:00+00:00", datetime(2026, 11, 21, tzinfo=UTC))
    '119 min old (2026-11-20 22:01)'
    """
    made = datetime.fromisoformat(at)
    minutes = max(0, int((now - made).total_seconds()) // 60)
    age = next(f"{minutes // size} {unit}" for least, size, unit in _UNITS if minutes >= least)
    return f"{age} old ({made.astimezone(UTC):%Y-%m-%d %H:%M})"


def table_states(spec: Spec, state: ReleaseState, now: datetime) -> dict[str, str]:
    """Return how far each table is at one ε, and the whole database."""
    tables = [*(table.name for table in spec.schema.tables), ""]
    steps: dict[str, list[Step]] = {table: [] for table in tables}
    stale: dict[str, list[Stale]] = {table: [] for table in tables}
    for step in state.plan.steps:
        if step.key in state.made:
            steps[step.table].append(step)
    for late in state.stale:
        stale[late.step.table].append(late)
    published = bool(steps[""]) and steps[""][-1].kind is StepKind.PUBLISH and not _problem(stale[""])
    found = {}
    for table in tables:
        problem = _problem(stale[table])
        shown = steps[""] if published and steps[table] and not problem else steps[table]
        reached = _REACHED[shown[-1].kind] if shown else "not made"
        age = f", {age_in_words(state.made[shown[-1].key].at, now)}" if shown else ""
        found[table or DATABASE] = f"{reached}{problem if shown else ''}{age}"
    return found


def _problem(stale: Sequence[Stale]) -> str:
    """Return what is wrong with what was made of a table; nothing if it is only that steps are missing."""
    if changed := sorted({name for found in stale for name in found.changed}):
        return f"; source changed since ({', '.join(changed)})"
    return "; out of date" if any(not found.missing for found in stale) else ""
