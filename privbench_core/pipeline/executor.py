"""The one executor of plans: in order from beginning to end, or step by step as an orchestrator asks for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from privbench_core.errors import OutOfMemoryError, SourceChangedError, ValidationError
from privbench_core.models.profile import Profile
from privbench_core.pipeline.forgotten import refuse_forgotten
from privbench_core.pipeline.holding import held
from privbench_core.pipeline.manifest import Made, Manifest, definition_of, step_name
from privbench_core.pipeline.outlook import refuse_noise
from privbench_core.pipeline.receipt import receipt_for
from privbench_core.pipeline.runner import Release, Runner
from privbench_core.spec.location import expand, is_spark_url
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepKind
from privbench_core.validate.expectations import prepare_ahead
from privbench_core.validate.words import expectation_in_words

Progress = Callable[[int, int, Step], None]
Load = Callable[[Key], Made]
_SHOWN = 100  # expectations listed in a message; chosen by hand


class Executor:
    """Runs steps of one plan.

    What is still to be paid for must be affordable as a whole before the first step pays, and is held from then on, so
    that no other run takes it. After the last step that may look at private rows these are released from memory, and
    what is left of the hold is given back; `close` does that where a run ends before.

    Args:
        runner: Of the plan.
        steps: Keys of the steps that will be run; all of the plan if none are named.
        made: Digests of what the other steps made before.
        what: What is about to run, as a refusal calls it.
    """

    def __init__(
        self,
        runner: Runner,
        steps: Collection[Key] | None = None,
        made: Mapping[Key, str] | None = None,
        what: str | None = None,
    ) -> None:
        self.runner = runner
        self.steps = tuple(step for step in runner.plan.steps if steps is None or step.key in steps)
        self._made = dict(made or {})
        self._what = what or f"the run at ε={runner.plan.budget.epsilon:g}"
        self._hold = ExitStack()
        self._held = False
        self._known = False
        self._readers = {step.key for step in self.steps if step.reads}
        self._profiles: dict[str, Profile] = {}
        self._prepares = False

    def run(
        self,
        *,
        load: Load | None = None,
        keep: Callable[[Key, Made], None] | None = None,
        progress: Progress | None = None,
    ) -> dict[Key, Made]:
        """Run all steps in order.

        Args:
            load: Gives what a step that is not among them made before.
            keep: Is called with what each step made.
            progress: Is called before each step with its number, the number of steps and the step.
        """
        with self._hold:
            return self._run_all(load, keep, progress)

    def close(self) -> None:
        """Give back what is held and was not spent. Those who call `step` by themselves call this at the end."""
        self._hold.close()

    def _run_all(
        self, load: Load | None, keep: Callable[[Key, Made], None] | None, progress: Progress | None
    ) -> dict[Key, Made]:
        made: dict[Key, Made] = {}
        self._prepares = any(step.kind is StepKind.VALIDATE for step in self.steps)
        for number, step in enumerate(self.steps, start=1):
            if progress is not None:
                progress(number, len(self.steps), step)
            inputs = {key: made[key] if key in made or load is None else load(key) for key in step.inputs}
            made[step.key] = self.step(step.key, inputs)
            if keep is not None:
                keep(step.key, made[step.key])
        return made

    def step(self, key: Key, inputs: Mapping[Key, Made]) -> Made:
        """Run one step on what was made before it: see `_step`, whose errors it passes on.

        Raises:
            OutOfMemoryError: The step needs more memory than there is. What was asked for is not said: it may be as
                large as a private table.
        """
        try:
            return self._step(key, inputs)
        except MemoryError:
            reads = self.runner.plan.step(key).reads
            less = "Count rows on disk (engine: duckdb)" if reads else "Run it with fewer workers, at a smaller scale"
            what = f"{step_name(key)}: not enough memory for this step. {less}, or on a machine with more memory"
            raise OutOfMemoryError(what) from None

    def _step(self, key: Key, inputs: Mapping[Key, Made]) -> Made:
        """Run one step on what was made before it.

        Raises:
            BudgetExhaustedError: The steps that are still to be paid for cost more than is left, or than other runs
                leave of it.
            LedgerError: The bundle that would be replaced records more spending than the ledger knows of.
            NoiseOnlyError: Most of them would be noise, by what was released before, and nobody accepted that.
            SourceChangedError: The inputs were made from another state of the source than there is now.
            ValidationError: It would publish what failed its validation.
        """
        runner = self.runner
        step = runner.plan.step(key)
        self._refuse_forgotten()
        releases = {before: made.release for before, made in inputs.items()}
        sources = self._sources(step, inputs)
        receipt = None
        self._remember({before: release for before, release in releases.items() if before[0] == StepKind.PROFILE.value})
        if step.kind is StepKind.PUBLISH:
            self._refuse_failures(inputs)
            receipt = receipt_for(runner.workspace.spec, runner.plan, runner.workspace.ledger, runner.run)
        if step.reads and not runner.released(step, releases):
            if not self._held:
                self._hold.enter_context(held(runner, self._what, {step.key for step in self.steps}, self._made))
                self._held = True
            if not runner.workspace.spec.fidelity.accept_noise:
                left = [other for other in self.steps if other.key in self._readers]
                refuse_noise(runner.workspace.spec.schema, runner.plan, left, self._profiles)
            if step.kind is StepKind.FIDELITY:  # one processor draws a reference sample
                self._prepare_validation()
        release = runner.execute(step, releases, receipt)
        if step.kind is StepKind.PROFILE:
            self._remember({key: release})
        self._readers.discard(key)
        if not self._readers:
            runner.snapshot.forget()
            self.close()
        return Made(release, self._manifest(step, release, sources, inputs))

    def _refuse_forgotten(self) -> None:
        """Before the first step: refuse to go on if the bundle that is to be replaced knows of forgotten spending."""
        workspace, out = self.runner.workspace, self.runner.run.out
        if out is not None and not self._known:
            refuse_forgotten(workspace.spec, workspace.ledger, out)
        self._known = True

    def _prepare_validation(self) -> None:
        """Let what validation needs be imported now, if it follows in this process."""
        spec = self.runner.workspace.spec
        uses_spark = spec.engine == "spark" or is_spark_url(expand(spec.source))  # whose client imports as it goes
        if self._prepares and not uses_spark:
            prepare_ahead()
        self._prepares = False

    def _remember(self, profiles: Mapping[Key, Release]) -> None:
        """Keep released profiles, which tell what later steps can be expected to measure."""
        for key, release in profiles.items():
            if key[1] not in self._profiles and "profile" in (data := release.artifact.data):
                self._profiles[key[1]] = Profile.from_dict(data["profile"])

    def _manifest(
        self, step: Step, release: Release, sources: Mapping[str, str], inputs: Mapping[Key, Made]
    ) -> Manifest:
        return Manifest(
            release=release.key,
            digest=release.digest,
            sources=sources,
            inputs={step_name(key): made.release.digest for key, made in inputs.items()},
            definition=definition_of(self.runner.plan, step),
            failed=len(_failures(release.artifact)) if step.kind is StepKind.VALIDATE else 0,
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            synthesizer=self.runner.plan.synthesizer,
        )

    def _sources(self, step: Step, inputs: Mapping[Key, Made]) -> dict[str, str]:
        """Fingerprints of all source tables that ``step`` and the steps before it look at."""
        seen: dict[str, str] = {}
        changed: set[str] = set()
        for before in inputs.values():
            for table, fingerprint in before.manifest.sources.items():
                if seen.setdefault(table, fingerprint) != fingerprint:
                    changed.add(table)
        now = self.runner.snapshot.fingerprint
        public = (table.name for table in self.runner.workspace.spec.schema.tables if table.public)
        for table in sorted({*step.reads, *public}):
            if seen.setdefault(table, now(table)) != now(table):
                changed.add(table)
        if changed:
            names = ", ".join(sorted(changed))
            raise SourceChangedError(
                f"{names}: the source changed after a step before {step_name(step.key)} had looked at it. Make the"
                f" profile of {names} and all that follows it again; what the change did not reach costs nothing."
            )
        return seen

    def _refuse_failures(self, inputs: Mapping[Key, Made]) -> None:
        """Keep a publish step from publishing what failed its validation."""
        failed = [o for made in inputs.values() if made.manifest.failed for o in _failures(made.release.artifact)]
        if failed:
            lines = [f"{o['table']}: {expectation_in_words(o['name'], o.get('column'))}" for o in failed]
            message = f"nothing was published: {len(failed)} expectations do not hold:"
            raise ValidationError("\n".join([message, *lines[:_SHOWN]]))


def _failures(artifact: Artifact) -> list[dict[str, Any]]:
    """Expectations of a validate step that do not hold."""
    return [outcome for outcome in artifact.data.get("expectations", ()) if not outcome["success"]]
