"""Manifests: what each step was made from, per ε. They are all that `staleness` has to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b

from privbench_core.errors import ReleaseError
from privbench_core.pipeline import record
from privbench_core.pipeline.runner import Release
from privbench_core.pipeline.workspace import Releases
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan, Step


@dataclass(frozen=True)
class Manifest:
    """What a step was made from.

    Attributes:
        release: Key of its release.
        digest: Checksum of the release.
        sources: Keyed fingerprint of each source table that it, or a step before it, looked at.
        inputs: Digest of each release it was made from, by step ("model/person").
        definition: Hash of the code version and the parameters it was made with, see `definition_of`.
        failed: Expectations that do not hold, for a validate step.
        at: When it was made, or last found to be unchanged.
        synthesizer: Whose plan it was made by; "" where that was not written down yet.
    """

    release: str
    digest: str
    sources: Mapping[str, str]
    inputs: Mapping[str, str]
    definition: str = ""
    failed: int = 0
    at: str = ""
    synthesizer: str = ""

    def is_of(self, plan: Plan, step: Step) -> bool:
        """Whether the synthesizer of ``plan`` made it: if that is not written down, only its definition proves it."""
        if self.synthesizer:
            return self.synthesizer == plan.synthesizer
        return self.definition == definition_of(plan, step)


@dataclass(frozen=True)
class Made:
    """What a step hands on: its release, and what it was made from."""

    release: Release
    manifest: Manifest


def step_name(key: Key) -> str:
    """A step in words.

    >>> step_name(("model", "person"))
    'model/person'
    """
    return "/".join(key)


def definition_of(plan: Plan, step: Step) -> str:
    """A hash that changes with the step's code version, its parameters, its price and its inputs, not with any data."""
    price = [step.price.measure, step.price.amount, step.price.delta]
    identity = [
        plan.synthesizer,
        step.code_version,
        dict(step.parameters),
        price,
        [step_name(key) for key in step.inputs],
    ]
    return blake2b(json.dumps(identity, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def write_manifest(spec: Spec, key: Key, epsilon: str, manifest: Manifest) -> None:
    """Keep what a step was made from.

    Raises:
        ReleaseError: It cannot be written.
    """
    write_manifests(spec, epsilon, {key: manifest})


def write_manifests(spec: Spec, epsilon: str, manifests: Mapping[Key, Manifest]) -> None:
    """Keep what several steps were made from, all or none.

    Raises:
        ReleaseError: They cannot be written.
    """
    rows = [
        (spec.cohort, epsilon, step_name(key), json.dumps(asdict(m), sort_keys=True)) for key, m in manifests.items()
    ]
    record.write(spec, "insert or replace into made(cohort, epsilon, step, manifest) values (?, ?, ?, ?)", rows)


def read_manifest(spec: Spec, key: Key, epsilon: str) -> Manifest | None:
    """What a step was made from, None if it was not made.

    Raises:
        ReleaseError: The record is damaged.
    """
    query = "select manifest from made where cohort = ? and epsilon = ? and step = ?"
    rows = record.read(spec, query, (spec.cohort, epsilon, step_name(key)))
    return _parse(rows[0][0]) if rows else None


def read_manifests(spec: Spec, plan: Plan, epsilon: str) -> dict[Key, Manifest]:
    """The manifests of all steps of a plan that were made.

    Raises:
        ReleaseError: The record is damaged.
    """
    rows = record.read(spec, "select step, manifest from made where cohort = ? and epsilon = ?", (spec.cohort, epsilon))
    found = {row[0]: row[1] for row in rows}
    return {step.key: _parse(found[name]) for step in plan.steps if (name := step_name(step.key)) in found}


def load_made(spec: Spec, releases: Releases, key: Key, epsilon: str) -> Made:
    """What a step made earlier, its checksum verified.

    Raises:
        ReleaseError: It was not made, or the release is gone or damaged.
    """
    manifest = read_manifest(spec, key, epsilon)
    if manifest is None:
        raise ReleaseError(f"{step_name(key)}: not made yet at ε={epsilon}; make it first")
    stored = releases.get(manifest.release, {manifest.digest})
    if stored is None:
        raise ReleaseError(
            f"{step_name(key)}: its release is gone from the state folder; restore it, or make the step again"
        )
    parts = releases.parts(manifest.release)
    return Made(Release(manifest.release, manifest.digest, stored, None, reused=True, parts=parts), manifest)


def _parse(text: str) -> Manifest:
    return Manifest(**json.loads(text))
