"""Execute plans: in order from beginning to end, or step by step as an orchestrator asks for them.

Before the first step that pays, the price of all that the run has still to buy is held in the ledger, once. The hold is
advisory (`privacy.ledger.holds`): it lasts as long as the lock that the run's process has in the state folder, so
nobody waits for a run that was killed.

Full runs and refreshes need no orchestrator; what a refresh leaves is what an orchestrator would leave.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privbench_core.errors import (
    BudgetExhaustedError,
    LedgerError,
    OutOfMemoryError,
    SourceChangedError,
    SpecError,
    ValidationError,
)
from privbench_core.pipeline import plan_for, public_workload, refuse_undeclared, run_name
from privbench_core.pipeline.noise import refuse_noise
from privbench_core.pipeline.receipt import receipt_for, refuse_forgotten
from privbench_core.pipeline.record import (
    Manifest,
    definition_of,
    read_manifests,
    run_label,
    step_name,
    write_manifests,
)
from privbench_core.pipeline.runner import Made, Release, Run, Runner, load_made
from privbench_core.pipeline.status import ReleaseState
from privbench_core.pipeline.workspace import Workspace, bundle_folder, epsilon_name
from privbench_core.privacy.budget import Price, zero
from privbench_core.privacy.noise import NoiseSource
from privbench_core.publishing.dry_load import refuse_unloadable
from privbench_core.publishing.verdicts import Verdict
from privbench_core.spec.location import expand, is_spark_url
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Plan, Step, StepKind
from privbench_core.synthesizers.steps.profile import released_units
from privbench_core.units.measure_row_count import forecast_row_count
from privbench_core.units.row_count import RowCount
from privbench_core.validate import expectation_in_words, prepare_ahead

Progress = Callable[[int, int, Step], None]


class Executor:
    """Runs steps of one plan.

    What is still to be paid for must be affordable as a whole before the first step pays, and is held from then on, so
    that no other run takes it. After the last step that may look at private rows these are released from memory, and
    what is left of the hold is given back; `close` does that where a run ends before.

    Args:
        runner: Of the plan.
        steps: Keys of the steps that will be run; all of the plan if none are named.
        made: Digests of what the other steps made before.
        epsilon: ε that the record has these steps under: inputs are loaded from it, and what is made is entered. None
            keeps no record, and the steps' inputs are made by the same executor.

    Raises:
        LedgerError: The bundle that would be replaced records more spending than the ledger knows of.
    """

    def __init__(
        self,
        runner: Runner,
        steps: Collection[Key] | None = None,
        made: Mapping[Key, str] | None = None,
        epsilon: str | None = None,
    ) -> None:
        self.runner = runner
        self.steps = tuple(step for step in runner.plan.steps if steps is None or step.key in steps)
        self._others = dict(made or {})
        self._epsilon = epsilon
        self._hold = ExitStack()
        self._held = False
        self._readers = {step.key for step in self.steps if step.reads}
        self._sizes: dict[str, RowCount] = {}
        self._judged = 0  # sizes by which the rest was found to be worth its price
        self._prepares = False
        if runner.run.out is not None:
            refuse_forgotten(runner.workspace.spec, runner.workspace.ledger, runner.run.out)

    def run(self, progress: Progress | None = None) -> dict[Key, Made]:
        """Run all steps in order.

        Args:
            progress: Is called before each step with its number, the number of steps and the step.
        """
        made: dict[Key, Made] = {}
        spec = self.runner.workspace.spec
        if any(step.kind is StepKind.VALIDATE for step in self.steps):
            # Spark's client imports as it goes, which nothing else may do meanwhile.
            self._prepares = spec.engine != "spark" and not is_spark_url(expand(spec.source))
        with self._hold:
            for number, step in enumerate(self.steps, start=1):
                if progress is not None:
                    progress(number, len(self.steps), step)
                made[step.key] = self.step(step.key, made)
        return made

    def close(self) -> None:
        """Give back what is held and was not spent. Those who call `step` by themselves call this at the end."""
        self._hold.close()

    def step(self, key: Key, made: Mapping[Key, Made] | None = None) -> Made:
        """Run one step on what was made before it.

        Args:
            key: The step.
            made: What other steps have made; what it needs beyond that is loaded from the record.

        Raises:
            BudgetExhaustedError: The steps that are still to be paid for cost more than is left, or than other runs
                leave of it.
            NoiseOnlyError: Most of them would be noise, by what was released before, and nobody accepted that.
            OutOfMemoryError: The step needs more memory than there is. What was asked for is not said: it may be as
                large as a private table.
            SourceChangedError: The inputs were made from another state of the source than there is now.
            ValidationError: It would publish what failed its validation.
        """
        made, step, epsilon = made or {}, self.runner.plan.step(key), self._epsilon
        try:
            inputs = {
                before: load_made(self.runner.workspace, before, epsilon)
                if before not in made and epsilon is not None
                else made[before]
                for before in step.inputs
            }
            result = self._step(step, inputs)
        except MemoryError:
            less = (
                "Count rows on disk (engine: duckdb)" if step.reads else "Run it with fewer workers, at a smaller scale"
            )
            what = f"{step_name(key)}: not enough memory for this step. {less}, or on a machine with more memory"
            raise OutOfMemoryError(what) from None
        if epsilon is not None:
            write_manifests(self.runner.workspace.spec, epsilon, {key: result.manifest})
        return result

    def _step(self, step: Step, inputs: Mapping[Key, Made]) -> Made:
        runner, spec = self.runner, self.runner.workspace.spec
        releases = {before: made.release for before, made in inputs.items()}
        sources = self._sources(step, inputs)
        self._remember(releases)
        receipt = None
        if step.kind is StepKind.PUBLISH:
            _refuse_failures(inputs)
            receipt = receipt_for(spec, runner.plan, runner.workspace.ledger, runner.run)
        if step.reads and not runner.released(step, releases):
            if not self._held:
                refuse_unloadable(spec.schema)
                run = f"the run at ε={runner.plan.budget.epsilon:g}"
                what = run if self._epsilon is None else f"this refresh at ε={self._epsilon}"
                self._hold.enter_context(held(runner, what, {step.key for step in self.steps}, self._others))
                self._held = True
            if not spec.fidelity.accept_noise and len(self._sizes) > self._judged:
                left = [other for other in self.steps if other.key in self._readers]
                refuse_noise(spec, runner.plan, left, self._sizes)
                self._judged = len(self._sizes)
            if self._prepares and step.kind is StepKind.FIDELITY:  # one processor draws a reference sample
                self._prepares = False
                prepare_ahead()
        release = runner.execute(step, releases, receipt)
        self._remember({step.key: release})
        self._readers.discard(step.key)
        if not self._readers:
            runner.snapshot.forget()
            self.close()
        manifest = Manifest(
            release=release.key,
            digest=release.digest,
            sources=sources,
            inputs={step_name(key): before.digest for key, before in releases.items()},
            definition=definition_of(runner.plan, step),
            failed=len(_failures(release.artifact)) if step.kind is StepKind.VALIDATE else 0,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            synthesizer=runner.plan.synthesizer,
            out=str(runner.run.out.absolute()) if step.kind is StepKind.PUBLISH and runner.run.out else "",
        )
        return Made(release, manifest)

    def _remember(self, releases: Mapping[Key, Release]) -> None:
        """Keep released numbers of units, which say what later steps can be expected to measure."""
        for key, release in releases.items():
            if key[0] == StepKind.COUNT and key[1] not in self._sizes:
                counted = released_units(release.artifact)
                self._sizes[key[1]] = forecast_row_count(counted, self.runner.plan.budget.measure)

    def _sources(self, step: Step, inputs: Mapping[Key, Made]) -> dict[str, str]:
        """Return fingerprints of all source tables that ``step`` and the steps before it read."""
        public = (table.name for table in self.runner.workspace.spec.schema.public_tables)
        read = {table: self.runner.snapshot.fingerprint(table) for table in sorted({*step.reads, *public})}
        seen: dict[str, str] = {}
        changed: set[str] = set()
        for found in (*(before.manifest.sources for before in inputs.values()), read):
            changed |= {table for table, now in found.items() if seen.setdefault(table, now) != now}
        if changed:
            names = ", ".join(sorted(changed))
            raise SourceChangedError(
                f"{names}: the source changed after a step before {step_name(step.key)} had read it. Run the"
                f" profile of {names} and all later steps again; results that the change does not affect cost nothing."
            )
        return seen


@contextmanager
def held(
    runner: Runner, what: str, steps: Collection[Key] | None = None, made: Mapping[Key, str] | None = None
) -> Iterator[None]:
    """Hold the price of all that is unpaid until the block ends, and give back what was not reserved by then.

    Raises:
        BudgetExhaustedError: The lifetime budget or the refresh policy has too little left, or another run holds it;
            nothing was spent.
    """
    ledger, account = runner.workspace.ledger, runner.workspace.spec.cohort
    mark, number = secrets.token_hex(16), None
    with runner.workspace.at_work(mark, what):
        # Nothing is held if nothing is unpaid: what was bought stays usable under a lowered budget.
        while number is None and (unpaid := runner.unpaid(steps, made)):
            cost = sum((step.price for step in unpaid), start=zero(runner.plan.budget.measure))
            purchases = [(runner.run.name, step_name(step.key)) for step in unpaid]
            try:
                number = ledger.hold(what, cost, runner.purpose, mark, account, purchases)
            except BudgetExhaustedError:
                if runner.unpaid(steps, made) == unpaid:
                    raise  # else another process has bought something in between
        try:
            yield
        finally:
            if number is not None:
                with suppress(LedgerError):  # a hold ends with its lock, too
                    ledger.end_hold(number)


def _refuse_failures(inputs: Mapping[Key, Made]) -> None:
    """Keep a publish step from publishing what failed its validation."""
    failed = [o for made in inputs.values() if made.manifest.failed for o in _failures(made.release.artifact)]
    if failed:
        lines = [f"{o['table']}: {expectation_in_words(o['name'], o.get('column'))}" for o in failed]
        message = f"nothing was published: {len(failed)} expectations do not hold:"
        raise ValidationError("\n".join([message, *lines[:100]]))  # expectations listed in a message; chosen by hand


def _failures(artifact: Artifact) -> list[dict[str, Any]]:
    """Expectations of a validate step that do not hold."""
    return [outcome for outcome in artifact.data.get("expectations", ()) if not outcome["success"]]


@dataclass(frozen=True)
class RunResult:
    """What a run left behind.

    Attributes:
        plan: The plan that was run.
        releases: Every step's release.
        out: Folder of the bundle.
        paid: Price amount spent by this run, in the plan's currency: 0 if everything had been released before.
        verdicts: How close each private table is, by released figures; worst first.
        lost: What noise and bounds have taken from columns and links, a sentence each.
    """

    plan: Plan
    releases: Mapping[Key, Release]
    out: Path
    paid: float
    verdicts: tuple[Verdict, ...] = ()
    lost: tuple[str, ...] = ()

    @property
    def workload(self) -> Mapping[str, Any]:
        """How many queries are in the bundle, and which are left out and why, by the name of the workload."""
        published = (
            release.artifact.data for key, release in self.releases.items() if key[0] == StepKind.PUBLISH.value
        )
        return dict(next(published, {}).get("workload", {}))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the released numbers say against using the bundle, a sentence each."""
        return (*(str(verdict) for verdict in self.verdicts if verdict.warns), *self.lost)

    def __repr__(self) -> str:
        """Return what was made and paid in one line."""
        paid = f"paid {Price(self.plan.price.measure, self.paid)}" if self.paid else "nothing paid, all bought before"
        warnings = f"; {len(self.warnings)} warnings" if self.warnings else ""
        return f"<RunResult at ε={self.plan.budget.epsilon:g}: {paid}; bundle in {self.out}{warnings}>"


def run_spec(
    spec: Spec,
    epsilon: float,
    *,
    out: Path,
    delta: float | None = None,
    synthesizer: str | None = None,
    seed: int = 0,
    scale: float = 1.0,
    workers: int | None = None,
    csv: bool = True,
    undeclared_epsilon: bool = False,
    noise: NoiseSource | None = None,
    progress: Progress | None = None,
    workspace: Workspace | None = None,
) -> RunResult:
    """Run the whole plan of ``spec`` at ``epsilon``, write the bundle to ``out``, and record it for `status`.

    Arguments and errors are those of `privbench_core.run`, but that the spec says whether noise is accepted. Tests
    inject ``noise``, which a durable ledger refuses. An open ``workspace`` is used; else the spec's own is opened.
    """
    if not 0 < scale < math.inf:
        raise SpecError(f"scale: {scale} is not positive; 1 is the size of the source, 10 ten times as large")
    if workers is not None and workers < 1:
        raise SpecError(f"workers: {workers} is not a number of processes; leave it out for one per processor")
    if not undeclared_epsilon:
        refuse_undeclared(spec, epsilon)
    plan = plan_for(spec, epsilon, delta=delta, synthesizer=synthesizer)
    workload = public_workload(spec)
    here = workspace or Workspace(spec)
    runner = Runner(here, plan, Run(run_name(epsilon), seed, scale, Path(out), workload, workers, csv), noise)
    try:
        made = Executor(runner).run(progress)
    finally:
        runner.snapshot.forget()
        if workspace is None:
            here.close()
    if delta is None and synthesizer in {None, spec.synthesizer}:  # else it is not what the spec describes
        write_manifests(spec, run_label(epsilon_name(epsilon)), {key: step.manifest for key, step in made.items()})
    releases = {key: step.release for key, step in made.items()}
    return RunResult(plan, releases, Path(out), sum(paid.amount for paid in prices_paid(made)), *fidelity_of(made))


def refresh_release(workspace: Workspace, state: ReleaseState, progress: Progress | None = None) -> dict[Key, Made]:
    """Make all that is out of date at one ε, and write its bundle in the state folder.

    Raises:
        PrivbenchError: Any of its kinds; what was made before that stays, and is not paid for again.
    """
    steps = {step.key for step in state.outdated}
    return refresh_executor(workspace, state.plan, state.epsilon, steps).run(progress)


def refresh_executor(
    workspace: Workspace,
    plan: Plan,
    epsilon: str,
    steps: Collection[Key],
    *,
    seed: int = 0,
    scale: float = 1.0,
    workers: int | None = None,
) -> Executor:
    """Return the executor of some steps at one ε: it records them, and its bundle is in the state folder."""
    spec = workspace.spec
    run = Run(run_name(plan.budget.epsilon), seed, scale, bundle_folder(spec, epsilon), public_workload(spec), workers)
    made = {key: m.digest for key, m in read_manifests(spec, plan, epsilon).items() if key not in steps}
    return Executor(Runner(workspace, plan, run), steps, made, epsilon)


def prices_paid(made: Mapping[Key, Made]) -> list[Price]:
    """Return what some steps have cost: nothing for those that were bought before, or that read no private row."""
    return [step.release.paid for step in made.values() if step.release.paid is not None]


def rows_of(made: Mapping[Key, Made]) -> Mapping[str, int]:
    """Return the rows of each table, by the publish step that wrote a bundle."""
    return dict(_published(made).get("rows", {}))


def fidelity_of(made: Mapping[Key, Made]) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
    """Return verdicts on tables and what was lost, by the publish step that wrote a bundle."""
    data = _published(made)
    return tuple(map(Verdict.from_dict, data.get("verdicts", ()))), tuple(data.get("lost", ()))


def _published(made: Mapping[Key, Made]) -> Mapping[str, Any]:
    return next((step.release.artifact.data for key, step in made.items() if key[0] == StepKind.PUBLISH.value), {})
