"""The certificate of plans: does the bundle lead PostgreSQL, and those who tune it, to the choices of the source?

Internal: it compares with private rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from privbench_core.evaluation.evaluation import INTERNAL
from privbench_core.evaluation.generate import Recipe, generate_workload
from privbench_core.evaluation.inputs import BundleSummary, read_bundle_and_source
from privbench_core.evaluation.marginals import SEED
from privbench_core.explain.comparison import PlanComparison, RunTimeSettings, compare_plans
from privbench_core.explain.decisions import Decisions, DecisionSettings, decide
from privbench_core.explain.explanation import queries_of
from privbench_core.explain.session import both_loaded, prepare
from privbench_core.explain.thresholds import DEFAULTS, missed_thresholds
from privbench_core.publishing.bundle import read_bundle
from privbench_core.spec.model import Spec

_GENERATED = 60  # queries, where there are none


@dataclass(frozen=True)
class Certificate:
    """Plans and decisions on source and bundle.

    Attributes:
        summary: What the manifest says about the bundle.
        plans: The queries on both.
        decisions: The choices between two ways to run them.
        limits: Thresholds by name.
        at: When it was made.
    """

    summary: BundleSummary
    plans: PlanComparison
    decisions: Decisions
    limits: Mapping[str, float] = field(default_factory=lambda: DEFAULTS)
    at: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))

    def __repr__(self) -> str:
        """Return the result in one line."""
        found = f"{len(self.missed)} thresholds missed" if self.missed else "all thresholds kept"
        return f"<Certificate of {self.summary.bundle} against {self.summary.database}: {found}; internal>"

    @cached_property
    def figures(self) -> dict[str, float | None]:
        """The figures that thresholds limit; None where nothing was measured."""
        return {**self.plans.figures, "same_winner": self.decisions.same_winner}

    @cached_property
    def missed(self) -> dict[str, str]:
        """The figures beyond their limits, by name, each in words."""
        return missed_thresholds(self.figures, self.limits)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of certificate.json."""
        return {
            "notice": INTERNAL,
            "database": self.summary.database,
            "bundle": self.summary.bundle,
            "guarantee": self.summary.guarantee_in_words,
            "scale": self.summary.scale,
            "figures": self.figures,
            "limits": dict(self.limits),
            "missed": self.missed,
            "plans": self.plans.to_dict(),
            "decisions": self.decisions.to_dict(),
        }


def certify_bundle(
    spec: Spec,
    bundle: Path,
    *,
    workload: Path | None = None,
    urls: Sequence[str] = (),
    limits: Mapping[str, float] = DEFAULTS,
    settings: tuple[RunTimeSettings, DecisionSettings] = (RunTimeSettings(), DecisionSettings()),
) -> Certificate:
    """Load source and bundle side by side, and compare plans, estimates, run times and decisions.

    Args:
        spec: The spec of the bundle.
        bundle: Its folder.
        workload: SQL queries; by default the bundle's own, or random ones on the source if it has none.
        urls: PostgreSQL servers on which two schemas can be made for a while; plans are those of the first, and every
            other one is an alternative to decide about. By default one is started in a temporary folder.
        limits: Thresholds by name.
        settings: How to measure run times and decisions.

    Raises:
        PublishError: The bundle is damaged or of another schema, or there is no PostgreSQL.
        SourceError: The source or the workload cannot be read.
    """
    own = workload or read_bundle(bundle).workload
    queries = queries_of(read_bundle(bundle), workload) if own else None
    inputs = read_bundle_and_source(spec, bundle)
    if queries is None:
        queries = generate_workload(spec.schema, inputs.pair.source, Recipe(_GENERATED, seed=SEED))
    with ExitStack() as stack:
        servers = [
            stack.enter_context(both_loaded(spec.schema, inputs.pair.source, bundle, url)) for url in urls or (None,)
        ]
        for database in (database for server in servers for database in server):
            prepare(database, settings[0].timeout)
        plans = compare_plans(spec.schema, servers[0], queries, settings[0])
        decisions = decide(spec.schema, servers, plans.compared, settings[1])
    return Certificate(inputs.summary, plans, decisions, limits)
