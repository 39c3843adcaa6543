"""The rows of one run: read when they are first needed, and never changed under the steps; and what identifies them.

A keyed fingerprint per table, as cheap as the owner's choice allows, names what a release was paid for. Whatever it is
made from is private, so it leaves this module hashed with the workspace's secret. The last one of each table is kept in
the `record`, by any command: that is what `staleness` compares releases with.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow as pa

from privbench_core.backends import Source, versioned
from privbench_core.backends.integrity import check_rows, fingerprint_rows
from privbench_core.backends.registry import open_source
from privbench_core.engines import engine_of, open_engine
from privbench_core.engines.memory import PrivateDatabase
from privbench_core.errors import ReleaseError, SourceError
from privbench_core.files import sweep, write_durably
from privbench_core.pipeline.record import record_observations
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.views import Engine
from privbench_core.schema.identity import canonical_json, column_identity
from privbench_core.schema.tables import Table
from privbench_core.spec.model import Content
from privbench_core.version import __version__

if TYPE_CHECKING:
    from privbench_core.engines.sql.engine import SqlEngine


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


class Snapshot:
    """The source as one run sees it: a table is read when first needed, once, and never changes under the steps.

    Attributes:
        fingerprints: Of the tables that were looked at so far.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._schema = workspace.spec.schema
        self._source = open_source(workspace.spec, workspace.secret)
        self._rows: dict[str, pa.Table] = {}
        self._engine = engine_of(workspace.spec)
        self._folder = workspace.folder / "rows"
        sweep(self._folder)
        self.fingerprints: dict[str, str] = {}

    def fingerprint(self, table: str) -> str:
        """Return the keyed fingerprint of a table: it changes with the rows, as the spec wants, and hides them."""
        if table not in self.fingerprints:
            declared = self._schema.table(table)
            found = fingerprint_of(self._workspace, self._source, declared, partial(self._content, declared))
            record_observations(self._workspace.spec, {table: found})
            self.fingerprints[table] = found
        return self.fingerprints[table]

    @cached_property
    def tables(self) -> dict[str, pa.Table]:
        """All tables, integrity checked."""
        read = {table.name: self._read(table.name) for table in self._schema.tables}
        return check_rows(self._schema, read, self._workspace.spec.orphans)

    @cached_property
    def private(self) -> Engine:
        """The rows behind the session, integrity checked."""
        spec = self._workspace.spec
        if self._engine == "memory":
            return PrivateDatabase(self._schema, self.tables, self._workspace.secret)
        for table in self._schema.private_tables:  # some rows may be gone afterwards
            self.fingerprint(table.name)
        self._loaded.keep(spec.orphans)
        return self._loaded

    @cached_property
    def _loaded(self) -> SqlEngine:
        """The engine, with all rows as the source has them."""
        spec = self._workspace.spec
        for table in spec.changes:
            self.fingerprint(table)  # before the rows: what changes in between is seen as a change the next time
        engine = open_engine(replace(spec, engine=self._engine), self._source, self._workspace.secret, self._folder)
        try:
            engine.load(self.public)
        except BaseException:
            engine.close()
            raise
        return engine

    def _content(self, table: Table) -> str:
        """Return the digest of a table's rows."""
        if self._engine == "memory" or table.public:
            return fingerprint_rows(table, self._read(table.name))
        return self._loaded.fingerprint(table)

    @cached_property
    def public(self) -> dict[str, pa.Table]:
        """The public tables, integrity checked; no private table is read for them."""
        public, empty = self._schema.public_tables, [table.name for table in self._schema.tables if table.empty]
        read = {table.name: self._read(table.name) for table in public}
        checked = check_rows(replace(self._schema, tables=public), read, self._workspace.spec.orphans)
        return checked | {name: self._read(name) for name in empty}

    def forget(self) -> None:
        """Let go of the private rows, when no step needs them any more; fingerprints and public tables stay."""
        if "_loaded" in self.__dict__:
            self._loaded.close()
        for name in ("tables", "private", "_loaded"):
            self.__dict__.pop(name, None)
        for table in self._schema.private_tables:
            self._rows.pop(table.name, None)

    def _read(self, table: str) -> pa.Table:
        if table not in self._rows:
            if table in self._workspace.spec.changes:
                self.fingerprint(table)  # before the rows: what changes in between is seen as a change the next time
            try:
                self._rows[table] = self._source.read(self._schema.table(table))
            except SourceError as error:
                raise self._with_others(table, error) from None
        return self._rows[table]

    def _with_others(self, table: str, error: SourceError) -> SourceError:
        """Return the errors of all tables' columns in one, so that an owner mends a source once.

        For a public table no private one is read: that may not have been paid for.
        """
        if not str(error).startswith(f"{table}."):  # the source itself cannot be read
            return error
        found, public = [error], self._schema.table(table).public
        for other in self._schema.tables:
            if other.name == table or other.name in self._rows or (public and not other.public):
                continue
            try:
                self._source.read(other)
            except SourceError as another:
                found.append(another)
        if len(found) == 1:
            return error
        details = [each.private_detail for each in found if each.private_detail]
        return SourceError("\n".join(map(str, found)), private_detail="\n".join(details) or None)


class Observed(Snapshot):
    """The source as it was last observed: fingerprints, and no rows; what is made from tables without is not found."""

    def __init__(self, fingerprints: Mapping[str, str]) -> None:
        self.fingerprints = dict(fingerprints)

    def fingerprint(self, table: str) -> str:
        """Return what was seen, "" if nothing was."""
        return self.fingerprints.get(table, "")


class GivenRows(Snapshot):
    """Rows in memory in place of the source's, for a rehearsal."""

    def __init__(self, workspace: Workspace, rows: Mapping[str, pa.Table]) -> None:
        self.tables = dict(rows)
        self.private = PrivateDatabase(workspace.spec.schema, rows, workspace.secret)
        self.public = {table.name: rows[table.name] for table in workspace.spec.schema.tables if table.public}

    def fingerprint(self, table: str) -> str:
        """Return nothing: the rows are the same throughout."""
        return ""

    def forget(self) -> None:
        """They belong to the caller."""
