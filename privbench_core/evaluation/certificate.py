"""The certificate of plans: does the bundle lead PostgreSQL, and those who tune it, to the choices of the source?

Internal: it compares with private rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlglot

from privbench_core.evaluation.evaluation import INTERNAL
from privbench_core.evaluation.inputs import BundleSummary, read_bundle_and_source
from privbench_core.evaluation.marginals import SEED
from privbench_core.evaluation.q_error import Recipe, generate_workload
from privbench_core.explain.comparison import (
    DEFAULTS,
    PlanComparison,
    RunTimeSettings,
    compare_plans,
    missed_thresholds,
)
from privbench_core.explain.decisions import Decisions, DecisionSettings, decide
from privbench_core.explain.explanation import queries_of
from privbench_core.explain.session import both_loaded, prepare
from privbench_core.files import file_name
from privbench_core.publishing.bundle import Bundle, read_bundle
from privbench_core.spec.model import Spec
from privbench_core.workload.engine import PLACEHOLDERS
from privbench_core.workload.rebind import bind_missing
from privbench_core.workload.statements import Workload, read_workload


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

    Arguments and errors are those of `privbench_core.certify`; ``settings`` say how to measure run times and decisions.
    """
    inputs, opened = read_bundle_and_source(spec, bundle), read_bundle(bundle)
    source, synthetic = inputs.pair.source, inputs.pair.synthetic
    if opened.workload and not workload:
        bound = queries_of(opened, None)
        asked = _as_written(spec, opened, bound)
    else:
        recipe = Recipe(60, seed=SEED)
        asked = queries_of(opened, workload) if workload else generate_workload(spec.schema, source, recipe)
        bound = bind_missing(asked, spec.schema, source, synthetic)
    with ExitStack() as stack:
        servers = [stack.enter_context(both_loaded(spec.schema, source, bundle, url)) for url in urls or (None,)]
        for database in (database for server in servers for database in server):
            prepare(database, settings[0].timeout)
        plans = compare_plans(spec.schema, servers[0], asked, settings[0], second=bound)
        decisions = decide(spec.schema, servers, plans.compared, settings[1])
    return Certificate(inputs.summary, plans, decisions, limits)


def _as_written(spec: Spec, bundle: Bundle, bound: Workload) -> Workload:
    """Return the spec's workload as it is written, of which the bundle has the queries ``bound`` to its own values.

    A query with placeholders is that of the bundle; so are all if the file has changed since.
    """
    noted = bundle.manifest["privacy"].get("workload", {})
    if spec.workload is None or list(noted) != [file_name(spec.workload.stem)]:
        return bound
    written, (of_file,) = read_workload(spec.workload), noted.values()
    left_out = {each["query"] for each in of_file["left_out"]}
    kept = [each for number, each in enumerate(written.statements, 1) if number not in left_out and not each.writes]
    if len(kept) != len(bound.statements):
        return bound
    statements = []
    for own, statement in zip(kept, bound.statements, strict=True):
        tree = sqlglot.parse_one(own.sql, read=written.dialect)
        text = own.sql if written.dialect == bound.dialect else tree.sql(dialect=bound.dialect)
        statements.append(statement if tree.find(*PLACEHOLDERS) is not None else replace(own, sql=text))
    return replace(bound, statements=tuple(statements))
