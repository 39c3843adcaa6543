"""A plan without a pipeline: its steps run in memory on rows and a noise source of the test's choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from privbench_core.marginals.measure_spn import PairwiseSPN
from privbench_core.privacy.budget import Budget, Price
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.noise import NoiseSource
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import Engine
from privbench_core.schema.tables import Schema
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Plan, Step, StepContext, StepKind
from privbench_core.synthesizers.privbench import PrivBench
from privbench_core.synthesizers.privlava import PrivLava
from privbench_core.synthesizers.privpetal import PrivPetal
from privbench_core.synthesizers.privspn import PrivSPN
from privbench_core.synthesizers.relational.plan import Relational
from tests.helpers.databases import Database
from tests.helpers.noise import RecordingNoise, ReplayNoise, SeededNoise


@dataclass(frozen=True)
class EagerSPN(PairwiseSPN):
    """Splits rows however noisy the parts get, so that small databases have sum nodes too."""

    max_noise: float = 1e9


def plan_with(schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
    """Return the plan of the synthesizer that knows these options: PrivBench, if they say nothing else."""
    if "latents" in options:
        return PrivLava().plan(schema, budget, options)
    if "usefulness" in options:
        return PrivPetal().plan(schema, budget, options)
    if "tables" in options:
        return Relational().plan(schema, budget, options)
    return (PrivSPN() if "alpha" in options else PrivBench()).plan(schema, budget, options)


@dataclass
class Trace:
    """What a run left behind.

    Attributes:
        artifacts: Results of the steps, as a release store would give them back.
        accounts: What each step that opened the session was charged.
        charges: (label, price) of each verb, by step.
    """

    artifacts: dict[Key, Artifact] = field(default_factory=dict)
    accounts: dict[Key, PrivacyFilter] = field(default_factory=dict)
    charges: dict[Key, list[tuple[str, Price]]] = field(default_factory=dict)


def run_step(
    step: Step, database: Database, noise: NoiseSource, trace: Trace, seed: int = 0, engine: Engine | None = None
) -> Artifact:
    """Run one step, with a session if it has a price, and keep its artifact in ``trace``."""
    session = None
    if step.reads:
        charges = trace.charges.setdefault(step.key, [])
        account = PrivacyFilter(step.price, lambda label, price: charges.append((label, price)))
        trace.accounts[step.key] = account
        session = PrivateSession(engine or database.private(), account, noise, "/".join(step.key))
    inputs = {key: trace.artifacts[key] for key in step.inputs}
    artifact = step.run(StepContext(inputs, session, database.public, seed))
    trace.artifacts[step.key] = Artifact.from_bytes(artifact.to_bytes())
    return artifact


def computing_steps(plan: Plan) -> Iterator[Step]:
    """All steps but those that only judge or pack the synthetic rows."""
    judging = {StepKind.VALIDATE, StepKind.PUBLISH}
    return (step for step in plan.steps if step.reads or step.kind not in judging)


def record(plan: Plan, database: Database, seed: int) -> tuple[RecordingNoise, Trace]:
    """Run a plan."""
    noise, trace = RecordingNoise(SeededNoise(seed)), Trace()
    for step in computing_steps(plan):
        run_step(step, database, noise, trace)
    return noise, trace


def replay(
    plan: Plan, neighbour: Database, noise: ReplayNoise, drawn: Trace | None = None
) -> tuple[Trace, dict[Key, float]]:
    """Run a plan on a neighbour; also returns what each step cost between the two databases.

    What steps without a session made of artifacts before is taken from ``drawn``, if that is given.
    """
    trace, losses = Trace(), {}
    for step in computing_steps(plan):
        before = noise.loss
        if drawn and not step.reads:
            trace.artifacts[step.key] = drawn.artifacts[step.key]
        else:
            run_step(step, neighbour, noise, trace)
        losses[step.key] = noise.loss - before
    noise.finish()
    return trace, losses


def replay_within_prices(
    plan: Plan, recorded: RecordingNoise, first: Trace, neighbour: Database, *, drawn: bool = True
) -> dict[Key, float]:
    """Replay on a neighbour: no step costs more than its price, and all comes out the same.

    Rows are ``drawn`` once more, or not: steps without a session know nothing of the neighbour but artifacts, which
    have to be the same.

    Returns:
        What each step cost, and what noise was moved, by ``("moved",)``.
    """
    noise = ReplayNoise(recorded.tape)
    second, losses = replay(plan, neighbour, noise, None if drawn else first)
    for step in computing_steps(plan):
        assert losses[step.key] <= step.price.amount * (1 + 1e-9), f"{step.key} costs more than its price"
        same = first.artifacts[step.key].to_bytes() == second.artifacts[step.key].to_bytes()
        assert same, f"{step.key}: released something around the noise"
    return {**losses, ("moved",): noise.moved}
