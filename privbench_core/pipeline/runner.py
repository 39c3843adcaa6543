"""Run one step, and pay for it at most once.

A step's result is determined by what its release key hashes: step, parameters, version, price, the fingerprints of
the private tables it reads, the digests of its inputs, and seed and scale where it depends on them. If the ledger
already holds that release, the stored bytes are returned and nothing is spent.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from privbench_core.errors import ReleaseError
from privbench_core.pipeline.record import Manifest, read_manifest, step_name
from privbench_core.pipeline.snapshot import Snapshot
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Price
from privbench_core.privacy.noise import NoiseSource, OpenDPNoise
from privbench_core.privacy.session import open_session
from privbench_core.schema.identity import canonical_json
from privbench_core.synthesizers.artifact import Artifact, PartFiles, digest_of, listed_parts, verified
from privbench_core.synthesizers.contract import Key, Plan, Step, StepContext

if TYPE_CHECKING:
    from privbench_core.workload import Workload


@dataclass(frozen=True)
class Run:
    """What is fixed for all steps of one run.

    Attributes:
        name: Shown in the ledger, say "epsilon=0.8".
        seed: Of sampling.
        scale: Of the synthetic database.
        out: Folder of the bundle, for the publish step.
        workload: Queries for the publish step by name, see `public_workload`.
        workers: Most processes that draw, check and write ranges of rows; as many as there are processors if None.
        csv: Whether a bundle has its rows once more for psql.
    """

    name: str
    seed: int = 0
    scale: float = 1.0
    out: Path | None = None
    workload: Mapping[str, Workload] = field(default_factory=dict)
    workers: int | None = None
    csv: bool = True


@dataclass(frozen=True)
class Release:
    """A step's stored result.

    Attributes:
        key: Where it is stored.
        digest: Checksum of its bytes: a data version.
        stored: Its bytes, verified; a table takes a tenth of the room in them that it takes as rows.
        paid: What this call spent: nothing if it was released before.
        reused: Whether it was.
        parts: Where its rows lie that were made range by range.
    """

    key: str
    digest: str
    stored: bytes = field(repr=False)
    paid: Price | None
    reused: bool
    parts: PartFiles | None = field(default=None, repr=False, compare=False)

    @property
    def artifact(self) -> Artifact:
        """The content, decoded anew each time."""
        return Artifact.from_bytes(self.stored, self.parts)


@dataclass(frozen=True)
class Made:
    """What a step hands on: its release, and what it was made from."""

    release: Release
    manifest: Manifest


def load_made(workspace: Workspace, key: Key, epsilon: str) -> Made:
    """Return what a step made earlier, its checksum verified.

    Raises:
        ReleaseError: It was not made, or the release is gone or damaged.
    """
    manifest = read_manifest(workspace.spec, key, epsilon)
    if manifest is None:
        raise ReleaseError(f"{step_name(key)}: no result yet at ε={epsilon}; run this step first")
    stored = workspace.releases.get(manifest.release, {manifest.digest})
    if stored is None:
        raise ReleaseError(
            f"{step_name(key)}: its release is missing from the state folder; restore it, or run the step again"
        )
    parts = workspace.releases.parts(manifest.release)
    return Made(Release(manifest.release, manifest.digest, stored, None, reused=True, parts=parts), manifest)


class _Decoded(UserDict[Key, Any]):
    """The contents of some releases, each decoded when it is asked for, so that none is in memory before or after."""

    def __getitem__(self, key: Key) -> Artifact:
        found: Artifact = self.data[key].artifact
        return found


def _digests(releases: Mapping[Key, Release]) -> dict[Key, str]:
    return {key: release.digest for key, release in releases.items()}


class Runner:
    """Runs the steps of a plan against a workspace.

    Args:
        workspace: Ledger and releases.
        plan: Made by a synthesizer.
        run: What all steps share.
        noise: Source of privacy noise; anything but `OpenDPNoise` is refused by a durable ledger.
        snapshot: The rows; the source's, read when they are needed, if none are given.
    """

    def __init__(
        self,
        workspace: Workspace,
        plan: Plan,
        run: Run,
        noise: NoiseSource | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.workspace = workspace
        self.plan = plan
        self.run = run
        self.snapshot = snapshot or Snapshot(workspace)
        self._noise = noise or OpenDPNoise()

    def release_key(self, step: Step, digests: Mapping[Key, str]) -> str:
        """Return what determines the step's result, hashed with the workspace's secret."""
        spec = self.workspace.spec
        public = [table.name for table in spec.schema.public_tables]
        identity: dict[str, Any] = {
            "database": spec.schema.name,
            "synthesizer": self.plan.synthesizer,
            **step.identity,
            "sources": {name: self.snapshot.fingerprint(name) for name in sorted({*step.reads, *public})},
            "inputs": {"/".join(key): digests[key] for key in step.inputs},
            "seed": self.run.seed if "seed" in step.depends else None,
            "scale": self.run.scale if "scale" in step.depends else None,
        }
        # Each account pays for all that it holds: never for free what another one bought.
        if self.workspace.spec.cohort:
            identity["cohort"] = self.workspace.spec.cohort
        if step.kind == "publish" and self.run.workload:
            identity["workload"] = {n: [q.to_sql(), q.hide_literals] for n, q in self.run.workload.items()}
        return self.workspace.keyed(canonical_json(identity))

    @cached_property
    def purpose(self) -> str:
        """A pseudonym of what a run of this plan buys, from its paid steps and the rows that they read.

        It is the same for runs that find each other's releases.
        """
        schema, steps = self.workspace.spec.schema, [step for step in self.plan.steps if step.reads]
        tables = {table for step in steps for table in step.reads} | {t.name for t in schema.public_tables}
        identity = {
            "database": schema.name,
            "cohort": self.workspace.spec.cohort,
            "synthesizer": self.plan.synthesizer,
            "steps": [[step.key, step.code_version, dict(step.parameters), step.price.amount] for step in steps],
            "sources": {name: self.snapshot.fingerprint(name) for name in sorted(tables)},
        }
        return self.workspace.keyed(f"purpose {canonical_json(identity)}")

    def unpaid(self, steps: Collection[Key] | None = None, made: Mapping[Key, str] | None = None) -> tuple[Step, ...]:
        """Return what a run has still to pay for: steps that read private rows and that no earlier run has released.

        A step behind one that is still to run has inputs nobody knows yet, so it counts as unpaid; a step that another
        process is at work on does not: it will be there.

        Args:
            steps: Those that the run consists of; the whole plan if none are named.
            made: Digests of what the other steps have made, which the run takes as it is.
        """
        known: dict[Key, str] = dict(made or {})
        unpaid: list[Step] = []
        for step in self.plan.steps:
            if steps is not None and step.key not in steps:
                continue
            key = self.release_key(step, known) if all(before in known for before in step.inputs) else None
            release = self._stored(step, key) if key else None
            if release is not None:
                known[step.key] = release.digest
            elif step.reads and not (key and self.workspace.is_locked(key)):
                unpaid.append(step)
        return tuple(unpaid)

    def released(self, step: Step, inputs: Mapping[Key, Release]) -> bool:
        """Return whether the step's result would be taken from the store."""
        return self._stored(step, self.release_key(step, _digests(inputs))) is not None

    def execute(self, step: Step, inputs: Mapping[Key, Release], receipt: Mapping[str, Any] | None = None) -> Release:
        """Return the step's release: from the store if it was bought before, else run, stored and entered.

        Raises:
            BudgetExhaustedError: The lifetime budget cannot pay for it; no row was read.
            BusyError: Another process has been making it for too long.
            ReleaseError: The stored result is damaged.
        """
        key = self.release_key(step, _digests(inputs))
        # One process at a time makes a release: one that had to wait finds what another one bought.
        with self.workspace.exclusive(key, step_name(step.key)):
            return self._stored(step, key) or self._make(step, key, inputs, receipt)

    def _make(self, step: Step, key: str, inputs: Mapping[Key, Release], receipt: Mapping[str, Any] | None) -> Release:
        """Run the step, pay for it if it reads private rows, and store what it leaves."""
        session = reservation = None
        if step.reads:
            session, reservation = open_session(
                self.snapshot.private,
                self.workspace.ledger,
                self._noise,
                release=key,
                step=step_name(step.key),
                run=self.run.name,
                price=step.price,
                account=self.workspace.spec.cohort,
                purpose=self.purpose,
            )
            self.workspace.remember_spending()
        run, parts = self.run, self.workspace.releases.parts(key)
        artifacts = _Decoded({name: inputs[name] for name in step.inputs})
        context = StepContext(
            *(artifacts, session, self.snapshot.public, run.seed, run.scale, run.out, receipt or {}, run.workload),
            self.workspace.spec.fidelity,
            parts=parts,
            workers=run.workers,
            csv=run.csv,
        )
        stored = step.run(context).to_bytes()
        if session is not None:
            self.snapshot.private.end_step()
        pa.default_memory_pool().release_unused()  # what Arrow would keep for later is of no use to NumPy
        digest = self.workspace.releases.put(key, stored)
        if reservation is not None:
            self.workspace.ledger.release(reservation, digest)
        return Release(key, digest, stored, step.price if reservation is not None else None, reused=False, parts=parts)

    def _stored(self, step: Step, key: str) -> Release | None:
        """Return a release bought or made before; never of a publish step, whose result is the folder it writes."""
        if step.kind == "publish":
            return None
        digests = self.workspace.ledger.released(key) if step.reads else None
        if step.reads and not digests:
            return None
        stored = self.workspace.releases.get(key, digests)
        if stored is None:
            return None
        try:
            verified(stored)
        except ReleaseError:
            if step.reads:
                raise
            return None  # damaged, but what costs nothing is made again
        parts = self.workspace.releases.parts(key)
        if not all(parts.has(number) for number in range(listed_parts(stored))):
            return None  # rows are gone: they cost nothing either
        return Release(key, digest_of(stored), stored, None, reused=True, parts=parts)
