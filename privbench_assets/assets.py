"""Assets: the tables of the source, which are observed; one per step of the plan; and the report on each bundle.

Running a step is core's work, whatever the synthesizer; here it is shown.

A source table's data version is its keyed fingerprint: it changes if and only if the rows do, and says nothing about
them. Only the first step that reads a table depends on that table's asset. The steps behind it depend on the step,
so that none of them can be refreshed past a profile that is still the old one.

The report is made when somebody asks for it, and never shown here: its figures compare with private rows and no budget
pays for them, while Dagster's event log is read by many people. So the log says where the report is and nothing of what
is in it, and neither the refresh job nor the automation makes one.
"""

# No postponed annotations here: Dagster looks at the type of `context` itself.

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import dagster as dg

from privbench_assets import group, identifier, op_name, report_key, source_key, step_key
from privbench_assets.automation import freshness_policy, when_inputs_are_made
from privbench_assets.checks import check_results, check_specs, up_to_date_result
from privbench_assets.metadata import price_in_words, step_metadata
from privbench_assets.resources import Session, nothing_private, public_error, session_key
from privbench_assets.status import report_up_to_date
from privbench_core.errors import PublishError, SourceError
from privbench_core.pipeline.account_status import WARNING
from privbench_core.pipeline.record import definition_of
from privbench_core.pipeline.runner import Release
from privbench_core.pipeline.snapshot import observe_each
from privbench_core.pipeline.workspace import bundle_folder, report_folder
from privbench_core.publishing.verdicts import Verdict
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan, Step, StepKind

FINGERPRINT = "fingerprint"


def source_assets(spec: Spec) -> dg.AssetsDefinition:
    """Return one observable asset per table, observed together or one by one."""
    schema, resource = spec.schema, session_key(spec)
    keys = {source_key(schema.name, table.name): table for table in schema.tables if not table.empty}
    specs = [
        dg.AssetSpec(
            key,
            description=(
                f"Table {table.name} of the source, {'public' if table.public else 'private'}. Observing it takes a"
                " keyed fingerprint of its rows, which costs no budget and shows nothing about them."
            ),
            group_name=group(schema.name, table.name),
            kinds={_source_kind(spec.source), "source"},
            owners=spec.owners,
            tags={"privbench/stage": "source", "privbench/spends": "no"},
        )
        for key, table in keys.items()
    ]

    def observe(context: dg.AssetExecutionContext) -> Iterator[dg.ObserveResult]:
        session: Session = getattr(context.resources, resource)
        wanted = [table for key, table in keys.items() if key in context.selected_asset_keys]
        with nothing_private(spec, f"{schema.name}/source"):
            found, broken = observe_each(session.workspace, [table.name for table in wanted])
        for table, fingerprint in found.items():
            yield dg.ObserveResult(
                asset_key=source_key(schema.name, table),
                data_version=dg.DataVersion(fingerprint),
                metadata={FINGERPRINT: fingerprint},
            )
        with nothing_private(spec, f"{schema.name}/source", session.balance_if_open):
            report_up_to_date(context, session, session.status())
            refuse_broken(spec, broken)

    with warnings.catch_warnings():  # the decorator is called a beta feature, at every use
        warnings.simplefilter("ignore", dg.BetaWarning)
        decorate = dg.multi_observable_source_asset(
            specs=specs, name=identifier(schema.name, "source"), can_subset=True, required_resource_keys={resource}
        )
        assets: dg.AssetsDefinition = decorate(observe)
    return assets


def observation(spec: Spec, table: str, fingerprint: str) -> dg.AssetObservation:
    """Return the event of an observation of a source table by a step."""
    return dg.AssetObservation(
        source_key(spec.schema.name, table),
        metadata={FINGERPRINT: fingerprint},
        tags={"dagster/data_version": fingerprint},
    )


def refuse_broken(spec: Spec, broken: Mapping[str, SourceError]) -> None:
    """Fail for the tables that could not be observed, after the others were.

    Raises:
        SourceError: Names them, and says why.
    """
    if broken:
        lines = [str(public_error(spec, f"{spec.schema.name}/source", error)) for error in broken.values()]
        raise SourceError(f"{', '.join(broken)}: could not be observed, the other tables were; {'; '.join(lines)}")


def _source_kind(source: str) -> str:
    """Return what the source is, as Dagster's icons call it."""
    scheme = source.split(":", 1)[0].split("+", 1)[0] if "://" in source else ""
    if scheme:
        return "spark" if scheme == "sc" else "postgres" if scheme.startswith("postgres") else identifier(scheme)
    if Path(source).suffix in {".duckdb", ".db", ".ddb"}:
        return "duckdb"
    return "csv" if any(Path(source).glob("*.csv")) else "parquet"


NOTICE = "Internal: the report compares with private rows and is not differentially private. Do not publish it."
_WORK = {
    StepKind.COUNT: "Counts the units that have rows of {what}",
    StepKind.PROFILE: "Learns domains and sizes of {what}",
    StepKind.MODEL: "Models the rows of {what}",
    StepKind.FANOUT: "Models along {what} how many rows refer to a row, and which ones",
    StepKind.FIDELITY: "Measures how close the models of {what} are to the source",
    StepKind.SAMPLE: "Draws the synthetic rows of {what}",
    StepKind.VALIDATE: "Checks the synthetic rows of {what}",
    StepKind.PUBLISH: "Writes the bundle of {what}",
}


def step_asset(
    spec: Spec,
    plans: Mapping[str, Plan],
    step: Step,
    epsilons: dg.PartitionsDefinition,
    deps: Sequence[dg.AssetKey],
    keys: Mapping[dg.AssetKey, Key],
) -> dg.AssetsDefinition:
    """Return the asset of one step, partitioned by ε.

    Args:
        spec: Of the database.
        plans: Of each ε.
        step: The step.
        epsilons: The partitions.
        deps: The nearest assets that it was made from; the others are in its metadata.
        keys: The step of each asset.
    """
    schema, resource, publishes = spec.schema, session_key(spec), step.kind is StepKind.PUBLISH
    key = step_key(schema.name, step.key)
    asset = dg.AssetSpec(
        key,
        deps=deps,
        description=_description(plans, step, schema.name),
        code_version=f"{step.version}-{definition_of(next(iter(plans.values())), step)[:8]}",
        group_name=group(schema.name, step.table),
        owners=spec.owners,
        freshness_policy=freshness_policy(spec) if publishes else None,
        automation_condition=None if step.reads or publishes else when_inputs_are_made(),
        kinds={str(step.kind), "parquet" if publishes else _kind(plans)},
        tags=_tags(step),
        partitions_def=epsilons,
    )

    def run(context: dg.AssetExecutionContext) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster wants it bare
        session: Session = getattr(context.resources, resource)
        epsilon = context.partition_key
        selected = context.job_def.asset_layer.selected_asset_keys
        with nothing_private(spec, key.to_user_string(), session.balance_if_open):
            executor = session.executor(epsilon, {keys[asset] for asset in selected if asset in keys})
            made = executor.step(step.key)
            if observed := session.newly_observed():
                for table, found in observed.items():
                    context.log_event(observation(spec, table, found))
                # Dagster took the versions of inputs before the step began, so what it saw itself would make it stale.
                context.get_step_execution_context().fetch_external_input_asset_version_info()
            release, content = made.release, made.release.artifact
            priced = plans[epsilon].step(step.key)
            context.log.info(_paid(priced, release))
            checks = list(check_results(spec, priced, key, content))
            if publishes:
                status = session.status()
                checks.append(up_to_date_result(key, status, epsilon))
                report_up_to_date(context, session, status, epsilon)
                verdicts = map(Verdict.from_dict, content.data.get("verdicts", ()))
                for line in (*(v for v in verdicts if v.warns), *content.data.get("lost", ())):
                    context.log.warning(str(line))
                for line in (*status.account.in_words(), *status.account.raises_in_words()):
                    (context.log.warning if line.startswith(WARNING) else context.log.info)(line)
            return dg.MaterializeResult(
                asset_key=key,
                data_version=dg.DataVersion(_version(priced, release)),
                metadata=step_metadata(session, epsilon, priced, made, content),
                check_results=checks,
            )

    return dg.multi_asset(
        name=op_name(schema.name, step.key),
        specs=[asset],
        check_specs=check_specs(spec, step, key, epsilons),
        required_resource_keys={resource},
    )(run)


def report_asset(spec: Spec, plans: Mapping[str, Plan], epsilons: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    """Return the asset that runs what ``privbench evaluate`` runs, on the bundle of each ε."""
    name, key = spec.schema.name, report_key(spec.schema.name)
    last = [step for step in next(iter(plans.values())).steps if step.kind is StepKind.PUBLISH]
    asset = dg.AssetSpec(
        key,
        deps=[step_key(name, step.key) for step in last],
        partitions_def=epsilons,
        group_name=group(name),
        kinds={"report"},
        owners=spec.owners,
        tags={"privbench/stage": "report", "privbench/spends": "no"},
        skippable=True,
        description=(
            f"Compares the bundle of {name} with its source, for the owner only. {NOTICE} Spends no budget. Written"
            " when this asset is materialised alone, or when the run's configuration says write: true. Other runs skip"
            " it, such as one that materialises everything."
        ),
    )
    offered = {
        "write": "Write the report even if the run makes other assets as well.",
        "certify": "Also write what privbench certify says about plans and decisions, from an embedded PostgreSQL.",
    }
    asked = {what: dg.Field(bool, default_value=False, description=words) for what, words in offered.items()}

    @dg.multi_asset(name=op_name(name, ("evaluate", "report")), specs=[asset], config_schema=asked)
    def report(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]  # Dagster wants it bare
        epsilon, alone = context.partition_key, context.job_def.asset_layer.selected_asset_keys == {key}
        config = context.op_execution_context.op_config
        if not (alone or config["write"]):
            context.log.info("not written: materialise this asset alone, or set write: true")
            return
        with nothing_private(spec, key.to_user_string()):
            # Imported here: they bring Arrow, SciPy and more, which the UI need not load to draw the graph.
            from privbench_core.api import certify, evaluate
            from privbench_core.publishing import is_bundle

            begun, bundle, folder = perf_counter(), bundle_folder(spec, epsilon), report_folder(spec, epsilon)
            if not is_bundle(bundle):
                raise PublishError(f"{name}: no bundle at ε={epsilon} yet; materialise publish/bundle first")
            evaluate(spec, bundle, out=folder)
            if config["certify"]:
                certify(spec, bundle, out=folder)
        certificate = {"internal certificate": dg.MetadataValue.path(str(folder / "certificate.html"))}
        yield dg.MaterializeResult(
            asset_key=key,
            metadata={
                "internal report": dg.MetadataValue.path(str(folder / "report.html")),
                "seconds": round(perf_counter() - begun, 1),
                "notice": NOTICE,
                **(certificate if config["certify"] else {}),
            },
        )

    return report


def _paid(step: Step, release: Release) -> str:
    if not step.reads:
        return "free: reads no private row"
    return "bought before: reused, nothing paid" if release.reused else f"paid {release.paid}"


def _version(step: Step, release: Release) -> str:
    """Return what distinguishes results: all that they were made from, and the bytes, unless they are a folder.

    Inputs count because the assets behind depend on them only by way of this one, even where its bytes stay the same.
    """
    return release.key if step.kind is StepKind.PUBLISH else f"{release.key[:16]}-{release.digest[:16]}"


def _description(plans: Mapping[str, Plan], step: Step, database: str) -> str:
    what = step.table or database
    if step.kind is StepKind.FANOUT and len(step.key) > 1:
        what = step.key[-1]
    work = _WORK[step.kind].format(what=what)
    if not step.reads:
        redraw = f" Depends on the {' and the '.join(step.depends)} of the run." if step.depends else ""
        return f"{work}. Free: reads no private row, only what was released.{redraw}"
    tables = ", ".join(step.reads)
    price = price_in_words(plans, step)
    return f"{work}. Reads the private rows of {tables}. Costs {price}; what was bought once is reused."


def _tags(step: Step) -> dict[str, str]:
    tags = {"privbench/stage": str(step.kind), "privbench/spends": "yes" if step.reads else "no"}
    return {**tags, "privbench/table": identifier(step.table)[:63]} if step.table else tags


def _kind(plans: Mapping[str, Plan]) -> str:
    return identifier(next(iter(plans.values())).synthesizer).lower()
