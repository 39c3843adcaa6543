"""Observe the source: a keyed fingerprint per table, as cheaply as the owner's choice allows.

A fingerprint names what a release was paid for. Whatever it is made from is private, so it leaves this module hashed
with the workspace's secret. The last one of each table is kept in the `record`, by any command: that is what
`staleness` compares releases with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version

from privbench_core.backends.base import Source, versioned
from privbench_core.backends.registry import open_source
from privbench_core.errors import ReleaseError, SourceError
from privbench_core.files import write_durably
from privbench_core.pipeline.record import record_observations
from privbench_core.pipeline.workspace import Workspace
from privbench_core.schema.identity import canonical_json, column_identity
from privbench_core.schema.tables import Table
from privbench_core.spec.model import Content
from privbench_core.version import __version__

_MEMORY = "stored.json"


def observe_each(workspace: Workspace, names: Sequence[str]) -> tuple[dict[str, str], dict[str, SourceError]]:
    """`observe`, where a table that cannot be read does not stand in the way of the others.

    Returns:
        Fingerprints of the tables that could be read, and why the others could not.
    """
    try:
        return observe(workspace, names), {}
    except SourceError as error:
        if len(names) == 1:
            return {}, {names[0]: error}
    found: dict[str, str] = {}
    broken: dict[str, SourceError] = {}
    for name in names:
        fingerprints, errors = observe_each(workspace, [name])
        found |= fingerprints
        broken |= errors
    return found, broken


def fingerprint_of(workspace: Workspace, source: Source, table: Table, content: Callable[[], str]) -> str:
    """Return the keyed fingerprint of a table: of its rows, or of what the spec's ``change`` takes for them."""
    change = workspace.spec.changes.get(table.name, Content())
    if isinstance(change, Content):
        return workspace.keyed(content())
    return workspace.keyed(versioned(table, change, source.version(table, change)))


def observe(workspace: Workspace, names: Sequence[str]) -> dict[str, str]:
    """Keyed fingerprints of some tables of the source, as they are now, with the rows of one at a time in memory.

    Files whose bytes are those of the last time are not read again: their digest stands in the state folder, keyed.

    Raises:
        SourceError: A table cannot be read.
    """
    spec = workspace.spec
    source = open_source(spec, workspace.secret)
    tables = [spec.schema.table(name) for name in names]
    compared = [table for table in tables if table.name not in spec.changes]
    before = _stored(workspace, source, compared)
    remembered = _remembered(workspace)
    known = {name: then for name, (digest, then) in remembered.items() if before.get(name) == digest}
    found = {
        table.name: known.get(table.name)
        or fingerprint_of(workspace, source, table, partial(source.fingerprint, table))
        for table in tables
    }
    fresh = [table for table in compared if table.name in before.keys() - known.keys()]
    if fresh:
        after = _stored(workspace, source, fresh)  # what was written while it was read is not remembered
        still = {name: (digest, found[name]) for name, digest in after.items() if before[name] == digest}
        _remember(workspace, {**remembered, **still})
    record_observations(spec, found)
    return found


def _stored(workspace: Workspace, source: Source, tables: Sequence[Table]) -> dict[str, str]:
    """Return keyed digests of stored bytes, with all else that decides which rows they are read as."""
    software = [__version__, *(version(package) for package in ("pyarrow", "duckdb"))]
    declared = {
        table.name: canonical_json([software, table.primary_key, [column_identity(c) for c in table.columns]])
        for table in tables
    }
    return {name: workspace.keyed(declared[name] + digest) for name, digest in source.stored(tables).items()}


def _remembered(workspace: Workspace) -> dict[str, tuple[str, str]]:
    """Return keyed digest and fingerprint of each table when its bytes were last read, as far as they are known."""
    try:
        found = json.loads((workspace.folder / _MEMORY).read_text(encoding="utf-8"))
        return {str(name): (str(digest), str(fingerprint)) for name, (digest, fingerprint) in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _remember(workspace: Workspace, seen: dict[str, tuple[str, str]]) -> None:
    try:
        write_durably(workspace.folder / _MEMORY, json.dumps(seen, indent=1, sort_keys=True).encode())
    except OSError as error:
        raise ReleaseError(f"{_MEMORY} cannot be written to the state folder: {error.strerror}") from error
