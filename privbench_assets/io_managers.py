"""IO managers: how a step's result gets from one asset to the next.

The result itself lies in core's release store, where it was put before the ledger called it released. What is written
here is a small manifest per asset and ε: which release it is, its checksum, and what it was made from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from privbench_assets.failures import nothing_private
from privbench_assets.resources import Session
from privbench_core.errors import ReleaseError
from privbench_core.pipeline.runner import Release
from privbench_core.pipeline.workspace import ReleaseStore

FOLDER = "assets"


@dataclass(frozen=True)
class Made:
    """What a step asset hands on.

    Attributes:
        release: Its release.
        sources: Keyed fingerprint of each table of the source that it, or a step before it, looked at.
        inputs: Digest of each release it was made from, by step ("model/person").
    """

    release: Release
    sources: Mapping[str, str]
    inputs: Mapping[str, str]


@dataclass(frozen=True)
class Manifest:
    """A `Made` without its content: what is written down.

    Attributes:
        at: When it was made, or was last found to be as it was; "" in those of older versions.
    """

    release: str
    digest: str
    sources: Mapping[str, str]
    inputs: Mapping[str, str]
    at: str = ""


def manifest_path(state: Path, key: dg.AssetKey, epsilon: str) -> Path:
    """Where the manifest of an asset's partition is written."""
    return state.joinpath(FOLDER, *key.path[1:], f"{epsilon}.json")


def read_manifest(path: Path) -> Manifest | None:
    """The manifest at ``path``, None if there is none.

    Raises:
        ReleaseError: It cannot be understood.
    """
    try:
        return Manifest(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ReleaseError(
            f"the manifest {path.name} is damaged; materialise the asset again, which costs nothing"
        ) from error


def write_manifest(path: Path, made: Made) -> None:
    """Write the manifest of ``made`` beside and rename it, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "release": made.release.key,
        "digest": made.release.digest,
        "sources": dict(made.sources),
        "inputs": dict(made.inputs),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    beside.write_text(json.dumps(content, indent=1, sort_keys=True), encoding="utf-8")
    beside.replace(path)


def load_made(path: Path, releases: ReleaseStore, asset: str) -> Made:
    """What the manifest at ``path`` says, with the release it names.

    Raises:
        ReleaseError: There is none, or the release is gone or damaged.
    """
    manifest = read_manifest(path)
    if manifest is None:
        raise ReleaseError(f"{asset}: not made yet at this ε; materialise it first")
    stored = releases.get(manifest.release, {manifest.digest})
    if stored is None:
        raise ReleaseError(
            f"{asset}: its release is gone from the state folder; restore it, or materialise the asset again"
        )
    release = Release(manifest.release, manifest.digest, stored, None, reused=True)
    return Made(release, manifest.sources, manifest.inputs)


class ReleaseIOManager(dg.IOManager):
    """Writes manifests, and loads the releases that they name, checksum verified."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def handle_output(self, context: dg.OutputContext, obj: Made) -> None:
        """Write the manifest of what an asset made."""
        state = self._session.spec.state
        with nothing_private(context.asset_key.to_user_string(), state):
            write_manifest(manifest_path(state, context.asset_key, context.asset_partition_key), obj)

    def load_input(self, context: dg.InputContext) -> Made:
        """What the asset before made at the same ε."""
        state, asset = self._session.spec.state, context.asset_key.to_user_string()
        with nothing_private(asset, state):
            path = manifest_path(state, context.asset_key, context.asset_partition_key)
            return load_made(path, self._session.workspace.releases, asset)


def release_io_manager(session_key: str) -> dg.IOManagerDefinition:
    """The IO manager of the database whose session has that resource key."""

    @dg.io_manager(
        required_resource_keys={session_key}, description="Manifests beside the ledger; releases in core's store."
    )
    def releases(context: dg.InitResourceContext) -> ReleaseIOManager:
        return ReleaseIOManager(getattr(context.resources, session_key))

    return releases
