"""Manifests: what each step was made from, per ε. They are small, and all that `staleness` has to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b

from privbench_core.errors import ReleaseError
from privbench_core.pipeline.places import manifest_file, replace_file
from privbench_core.pipeline.runner import Release
from privbench_core.pipeline.workspace import Releases
from privbench_core.schema.spec import Spec
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
    """

    release: str
    digest: str
    sources: Mapping[str, str]
    inputs: Mapping[str, str]
    definition: str = ""
    failed: int = 0
    at: str = ""


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
    identity = [plan.synthesizer, step.version, dict(step.parameters), price, [step_name(key) for key in step.inputs]]
    return blake2b(json.dumps(identity, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def write_manifest(spec: Spec, key: Key, epsilon: str, manifest: Manifest) -> None:
    """Keep what a step was made from.

    Raises:
        ReleaseError: It cannot be written.
    """
    try:
        replace_file(manifest_file(spec, key, epsilon), json.dumps(asdict(manifest), indent=1, sort_keys=True))
    except OSError as error:
        raise ReleaseError(f"the manifest of {step_name(key)} cannot be written: {error.strerror}") from error


def read_manifest(spec: Spec, key: Key, epsilon: str) -> Manifest | None:
    """What a step was made from, None if it was not made.

    Raises:
        ReleaseError: The manifest is damaged.
    """
    try:
        return Manifest(**json.loads(manifest_file(spec, key, epsilon).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ReleaseError(
            f"{step_name(key)}: its manifest at ε={epsilon} is damaged; make the step again, which costs nothing"
        ) from error


def read_manifests(spec: Spec, plan: Plan, epsilon: str) -> dict[Key, Manifest]:
    """The manifests of all steps that were made."""
    found = {step.key: read_manifest(spec, step.key, epsilon) for step in plan.steps}
    return {key: manifest for key, manifest in found.items() if manifest is not None}


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
    return Made(Release(manifest.release, manifest.digest, stored, None, reused=True), manifest)
