"""Assets: one per step of the plan, whatever the synthesizer. Running a step is core's work; here it is shown."""

# No postponed annotations here: Dagster looks at the type of `context` itself.

import json
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b

import dagster as dg

from privbench_assets.automation import asked, first_step_condition, next_step_condition
from privbench_assets.checks import check_results, check_specs, refuse_failures
from privbench_assets.failures import nothing_private
from privbench_assets.freshness import freshness_policy
from privbench_assets.io_managers import Made, manifest_path, read_manifest
from privbench_assets.keys import group, identifier, op_name, source_key, step_key
from privbench_assets.metadata import price_in_words, step_metadata
from privbench_assets.resources import Session, session_key
from privbench_assets.sources import trail
from privbench_core.pipeline.account_status import WARNING
from privbench_core.pipeline.receipt import receipt_for
from privbench_core.pipeline.runner import Decoded, Release
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan, Step, StepKind

IO_MANAGER = "releases"
_WORK = {
    StepKind.PROFILE: "Learns domains and sizes of {what}",
    StepKind.MODEL: "Models the rows of {what}",
    StepKind.FANOUT: "Models how many rows belong to a row that {what} refers to, and which",
    StepKind.FIDELITY: "Measures how close the models of {what} are to the source",
    StepKind.SAMPLE: "Draws the synthetic rows of {what}",
    StepKind.VALIDATE: "Checks the synthetic rows of {what}",
    StepKind.PUBLISH: "Writes the bundle of {what}",
}


def step_asset(
    spec: Spec, plans: Mapping[str, Plan], step: Step, epsilons: dg.PartitionsDefinition, looks: Sequence[str]
) -> dg.AssetsDefinition:
    """The asset of one step, partitioned by ε.

    Args:
        spec: The spec.
        plans: The plan of every partition; they differ in prices, not in steps.
        step: The step, as any of the plans has it.
        epsilons: The partitions.
        looks: Source tables whose assets this one depends on.
    """
    schema, resource = spec.schema, session_key(spec)
    key = step_key(schema.name, step.key)
    inputs = {f"input_{number}": before for number, before in enumerate(step.inputs)}

    def run(context: dg.AssetExecutionContext, **given: Made) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster wants it bare
        session: Session = getattr(context.resources, resource)
        epsilon = context.partition_key
        with nothing_private(key.to_user_string(), spec.state, context.log.error):
            before = {inputs[name]: value for name, value in given.items()}
            made = _execute(session, epsilon, step.key, before, context.job_def.asset_layer.selected_asset_keys)
            release, content = made.release, made.release.artifact
            priced = plans[epsilon].step(step.key)
            context.log.info(_paid(priced, release))
            if step.kind is StepKind.PUBLISH:
                _tell_standing(context, session)
            return dg.MaterializeResult(
                asset_key=key,
                value=made,
                data_version=dg.DataVersion(_version(priced, release)),
                metadata=step_metadata(session, epsilon, priced, release, content),
                check_results=list(check_results(schema, priced, key, content)),
            )

    return dg.multi_asset(
        name=op_name(schema.name, step.key),
        description=_description(plans, step, schema.name),
        outs={
            "release": dg.AssetOut(
                key=key,
                dagster_type=dg.Any,
                description=_description(plans, step, schema.name),
                io_manager_key=identifier(schema.name, IO_MANAGER),
                code_version=_code_version(next(iter(plans.values())), step),
                automation_condition=asked(next_step_condition() if step.inputs else first_step_condition(), plans),
                group_name=group(schema.name, step.table),
                owners=spec.owners,
                freshness_policy=freshness_policy(spec) if step.kind is StepKind.PUBLISH else None,
                kinds={str(step.kind), "parquet" if step.kind is StepKind.PUBLISH else _kind(plans)},
                tags=_tags(step),
            )
        },
        ins={name: dg.AssetIn(key=step_key(schema.name, before)) for name, before in inputs.items()},
        deps=[source_key(schema.name, table) for table in looks],
        partitions_def=epsilons,
        check_specs=check_specs(schema, step, key, epsilons),
        required_resource_keys={resource},
    )(run)


def _paid(step: Step, release: Release) -> str:
    if not step.reads:
        return "free: looks at no private row"
    return "bought before: reused, nothing paid" if release.reused else f"paid {release.paid}"


def _tell_standing(context: dg.AssetExecutionContext, session: Session) -> None:
    """What a refresh costs and how many more there can be, as warnings when it was the last but one, or the last."""
    for line in session.standing().in_words():
        (context.log.warning if line.startswith(WARNING) else context.log.info)(line)


def _execute(
    session: Session, epsilon: str, key: Key, made: Mapping[Key, Made], selected: Collection[dg.AssetKey]
) -> Made:
    """Run one step on what was made before it, if it was made from one state of the source and may be published.

    Before the first step that has to be paid, the rest of what the run has selected must be affordable, too.
    """
    runner = session.runner(epsilon)
    step = runner.plan.step(key)
    sources = trail(session.spec, step, made, runner.snapshot.fingerprint)
    releases = {before: value.release for before, value in made.items()}
    refuse_failures(step, Decoded({k: r for k, r in releases.items() if runner.plan.step(k).kind is StepKind.VALIDATE}))
    receipt = None
    if step.kind is StepKind.PUBLISH:
        receipt = receipt_for(session.spec, runner.plan, session.workspace.ledger, runner.run)
    chosen = {other.key for other in runner.plan.steps if _asset(session, other) in selected}
    if step.reads and not runner.released(step, releases):
        session.require(epsilon, chosen, _made_before(session, epsilon, chosen))
    release = runner.execute(step, releases, receipt)
    session.done(epsilon, step.key, chosen)
    return Made(release, sources, {"/".join(before): value.digest for before, value in releases.items()})


def _asset(session: Session, step: Step) -> dg.AssetKey:
    return step_key(session.spec.schema.name, step.key)


def _made_before(session: Session, epsilon: str, chosen: Collection[Key]) -> dict[Key, str]:
    """Digests of what all steps but the ``chosen`` ones made, as far as they have been made."""
    steps = [step for step in session.plans[epsilon].steps if step.key not in chosen]
    paths = {step.key: manifest_path(session.spec.state, _asset(session, step), epsilon) for step in steps}
    found = {key: read_manifest(path) for key, path in paths.items()}
    return {key: manifest.digest for key, manifest in found.items() if manifest is not None}


def _version(step: Step, release: Release) -> str:
    """What tells two results apart: the bytes, or for a bundle, which is a folder, all that it was made from."""
    return release.key if step.kind is StepKind.PUBLISH else release.digest


def _description(plans: Mapping[str, Plan], step: Step, database: str) -> str:
    what = step.table or database
    if step.kind is StepKind.FANOUT and len(step.key) > 1:
        what = step.key[-1]
    work = _WORK[step.kind].format(what=what)
    if not step.reads:
        redraw = f" Depends on the {' and the '.join(step.depends)} of the run." if step.depends else ""
        return f"{work}. Free: looks at no private row, only at what was released.{redraw}"
    tables = ", ".join(step.reads)
    price = price_in_words(plans, step)
    return f"{work}. Looks at the private rows of {tables}. Costs {price}; what was bought once is reused."


def _tags(step: Step) -> dict[str, str]:
    tags = {"privbench/stage": str(step.kind), "privbench/spends": "yes" if step.reads else "no"}
    return {**tags, "privbench/table": identifier(step.table)[:63]} if step.table else tags


def _kind(plans: Mapping[str, Plan]) -> str:
    return identifier(next(iter(plans.values())).synthesizer).lower()


def _code_version(plan: Plan, step: Step) -> str:
    """Changes with the step's code and with what the spec asks of it: the UI then says that a result is outdated."""
    identity = json.dumps([plan.synthesizer, step.version, dict(step.parameters)], sort_keys=True, default=str)
    return f"{step.version}-{blake2b(identity.encode(), digest_size=4).hexdigest()}"
