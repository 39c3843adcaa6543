"""Replicates: the plan of a bundle, run again on the bundle's own rows, from which recipients get error bars.

A parametric bootstrap (Efron and Tibshirani 1993, chapter 6): how far a query's answers on replicates are from the
bundle's answer estimates how far the bundle's answer is from the source's. Noise, truncation, models and sampling are
those of the plan, at the same ε and δ. But rows that a model has drawn fit such a model better than the source's rows
did. So the fidelity steps run as well: their figures, of how far replicates are from the bundle, are put beside those
of how far the bundle is from the source, which its run released. `explain.error_bars` widens errors by both.

Only the spec and the bundle are read, so replicates are post-processing (``docs/privacy.md``). Their noise is real all
the same: with a seed, the function would lend a seeded generator to rows that might be private.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from privbench_core.errors import PublishError, SpecError
from privbench_core.pipeline.executor import Progress
from privbench_core.pipeline.rehearsal import plan_of, run_on_rows, sampled_rows
from privbench_core.pipeline.runner import Run
from privbench_core.publishing.bundle import read_bundle
from privbench_core.publishing.replicates import add_replicates
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import StepKind

FEWEST = 5
"""Fewest replicates: the intervals of fewer are more than twice as wide as those of many (Student's t)."""
_NOT_NEEDED = {StepKind.VALIDATE, StepKind.PUBLISH}


def make_replicates(spec: Spec, bundle: Path, number: int, progress: Progress | None = None) -> None:
    """Run the plan of a bundle on its rows so many times, and put the replicates into the bundle.

    Args:
        spec: The spec that the bundle was made from.
        bundle: Its folder. Replicates that it has are replaced.
        number: Number of replicates.
        progress: Called before each step of each replicate.

    Raises:
        SpecError: There are to be too few replicates, or the bundle was not made from this spec.
        PublishError: The bundle is damaged, not in the size of the source, or cannot be written; it is then unchanged.
    """
    if number < FEWEST:
        raise SpecError(f"number: {number} replicates are too few for error bars; make {FEWEST} or more")
    opened, plan = read_bundle(bundle), plan_of(spec, bundle)
    if plan is None or opened.manifest["database"] != spec.schema.name:
        raise SpecError(f"{bundle}: was not made from this spec as it is now; give the spec it was made from")
    if opened.manifest["privacy"].get("sampling", {}).get("scale", 1) != 1:
        raise PublishError(f"{bundle}: is not in the size of the source, so its errors are not; run at --scale 1")
    rows = {name: opened.table(name) for name in opened.tables}
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def replicates() -> Iterator[Mapping[str, pa.Table]]:
        for seed in range(number):
            made = run_on_rows(spec, plan, rows, Run("replicate", seed), _NOT_NEEDED, progress=progress)
            for step in (step for step in plan.steps if step.kind is StepKind.FIDELITY):
                for figure in made[step.key].release.artifact.data["metrics"]:
                    sums[step.table][figure["metric"]] += figure["value"]
            yield sampled_rows(spec, plan, made)

    def distances() -> dict[str, dict[str, float]]:
        return {table: {metric: total / number for metric, total in found.items()} for table, found in sums.items()}

    add_replicates(opened, replicates(), distances)
