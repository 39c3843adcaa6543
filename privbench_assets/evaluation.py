"""The internal report of each bundle, as an asset: made when somebody asks for it, and never shown here.

Its figures compare with private rows and no budget pays for them, while Dagster's event log is read by many people.
So the log says where the report is and nothing of what is in it, and neither the refresh job nor the automation makes
one.
"""

# No postponed annotations here: Dagster looks at the type of `context` itself.

from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter

import dagster as dg

from privbench_assets.failures import nothing_private
from privbench_assets.keys import identifier, op_name, report_key, step_key
from privbench_core.errors import PublishError
from privbench_core.pipeline.places import bundle_folder, report_folder
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, StepKind

NOTICE = "Internal: the report compares with private rows and is not differentially private. Do not publish it."


def report_asset(spec: Spec, plans: Mapping[str, Plan], epsilons: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    """The asset that runs what ``privbench evaluate`` runs, on the bundle of each ε.

    Args:
        spec: The spec.
        plans: The plan of every partition; they differ in prices, not in steps.
        epsilons: The partitions.
    """
    name, key = spec.schema.name, report_key(spec.schema.name)
    last = [step for step in next(iter(plans.values())).steps if step.kind is StepKind.PUBLISH]
    asset = dg.AssetSpec(
        key,
        deps=[step_key(name, step.key) for step in last],
        partitions_def=epsilons,
        group_name=identifier(name),
        kinds={"report"},
        owners=spec.owners,
        tags={"privbench/stage": "report", "privbench/spends": "no"},
        skippable=True,
        description=(
            f"Compares the bundle of {name} with its source, for the owner only. {NOTICE} Spends no budget. Made when"
            " it is materialised by itself, or in a run whose configuration says write: true; left out of all others,"
            " so that materialising everything does not write it."
        ),
    )
    asked = dg.Field(bool, default_value=False, description="Write the report in a run with other assets, too.")

    @dg.multi_asset(name=op_name(name, ("evaluate", "report")), specs=[asset], config_schema={"write": asked})
    def report(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]  # Dagster wants it bare
        epsilon, alone = context.partition_key, context.job_def.asset_layer.selected_asset_keys == {key}
        if not (alone or context.op_execution_context.op_config["write"]):
            context.log.info("left out: materialise it by itself, or set write: true")
            return
        with nothing_private(spec, key.to_user_string()):
            begun = perf_counter()
            page = _write(spec, bundle_folder(spec, epsilon), report_folder(spec, epsilon))
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={
                "internal report": dg.MetadataValue.path(str(page)),
                "seconds": round(perf_counter() - begun, 1),
                "notice": NOTICE,
            },
        )

    return report


def _write(spec: Spec, bundle: Path, out: Path) -> Path:
    """Evaluate ``bundle``; the page that was written to ``out``."""
    # Imported here: they bring Arrow, SciPy and more, which the UI need not load to draw the graph.
    from privbench_core.api import evaluate
    from privbench_core.publishing.bundle import is_bundle

    if not is_bundle(bundle):
        raise PublishError(f"{spec.schema.name}: no bundle at ε={bundle.name} yet; materialise publish/bundle first")
    evaluate(spec, bundle, out=out)
    return out / "report.html"
