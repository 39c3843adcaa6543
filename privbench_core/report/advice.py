"""What an owner can do about a bundle that is not close: advice from the spec and the verdict, in order of effect."""

from __future__ import annotations

from collections.abc import Iterator

from privbench_core.evaluation.evaluation import Evaluation
from privbench_core.evaluation.verdict import Level
from privbench_core.schema.columns import Learn


def advice_on(evaluation: Evaluation) -> tuple[str, ...]:
    """Return what to do, a sentence each; nothing if the bundle is close."""
    return () if evaluation.verdict.level is Level.CLOSE else tuple(_lines(evaluation))


def _lines(evaluation: Evaluation) -> Iterator[str]:
    schema = evaluation.inputs.pair.schema
    learned = [f"{t.name}.{c.name}" for t in schema.private_tables for c in t.modelled if isinstance(c.domain, Learn)]
    if learned:
        more = f" and {len(learned) - 6} more" if len(learned) > 6 else ""  # noqa: PLR2004 - six are named
        named = ", ".join(learned[:6]) + more
        yield f"Declare domains instead of learning them ({named}): this costs nothing and leaves more for the rest."
    far = [r.subject for r in evaluation.verdict.remarks if r.level is not None and r.level is not Level.CLOSE]
    if far:
        yield f"Leave out columns that nobody needs, first in {', '.join(far)}: those that stay get their share."
    guarantee = evaluation.inputs.summary.guarantee
    if guarantee:
        twice = f"ε={2 * guarantee[0]:g}"
        yield f"Release at a larger ε: at {twice} noise is about half. privbench plan shows it in rows."
    yield "If neither is possible, use the bundle for what holds: large groups, keys, types and row counts."
