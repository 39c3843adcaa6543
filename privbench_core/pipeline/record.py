"""The record of a database: what each step was made from (its manifest), and what the source was when last looked at.

One SQLite file in the database's folder, so that hundreds of steps are read at once and several processes may write.
Losing it costs no budget: whatever is made again is found in the release store.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from privbench_core.errors import ReleaseError
from privbench_core.pipeline.workspace import record_file
from privbench_core.privacy.ledger.store import LOCK_TIMEOUT
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key, Plan, Step

_TABLES = (
    (
        "create table if not exists made (cohort text, epsilon text, step text, manifest text,"
        " primary key (cohort, epsilon, step))"
    ),
    "create table if not exists observed (source text primary key, fingerprint text, at text)",
)


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
        out: Folder of the bundle, for a publish step.
    """

    release: str
    digest: str
    sources: Mapping[str, str]
    inputs: Mapping[str, str]
    definition: str = ""
    failed: int = 0
    at: str = ""
    synthesizer: str = ""
    out: str = ""

    def is_of(self, plan: Plan, step: Step) -> bool:
        """Return whether the synthesizer of ``plan`` made it: where that is not recorded, the definition proves it."""
        if self.synthesizer:
            return self.synthesizer == plan.synthesizer
        return self.definition == definition_of(plan, step)


def step_name(key: Key) -> str:
    """Return a step in words.

    >>> step_name(("model", "person"))
    'model/person'
    """
    return "/".join(key)


def run_label(epsilon: str) -> str:
    """Return what the record calls the last run at an ε whose bundle is in a folder of its own."""
    return f"run {epsilon}"


def definition_of(plan: Plan, step: Step) -> str:
    """Return a hash of the step's code version, parameters, price and names of inputs; no data is in it."""
    price = [step.price.measure, step.price.amount, step.price.delta]
    inputs = [step_name(key) for key in step.inputs]
    identity = [plan.synthesizer, step.code_version, dict(step.parameters), price, inputs]
    return blake2b(json.dumps(identity, sort_keys=True, default=str).encode(), digest_size=8).hexdigest()


def write_manifests(spec: Spec, epsilon: str, manifests: Mapping[Key, Manifest]) -> None:
    """Keep what some steps were made from, all or none.

    Raises:
        ReleaseError: They cannot be written.
    """
    rows = [
        (spec.cohort, epsilon, step_name(key), json.dumps(asdict(m), sort_keys=True)) for key, m in manifests.items()
    ]
    _write(spec, "insert or replace into made(cohort, epsilon, step, manifest) values (?, ?, ?, ?)", rows)


def read_manifest(spec: Spec, key: Key, epsilon: str) -> Manifest | None:
    """Return what a step was made from, None if it was not made.

    Raises:
        ReleaseError: The record is damaged.
    """
    query = "select manifest from made where cohort = ? and epsilon = ? and step = ?"
    rows = _read(spec, query, (spec.cohort, epsilon, step_name(key)))
    return Manifest(**json.loads(rows[0][0])) if rows else None


def read_manifests(spec: Spec, plan: Plan, epsilon: str) -> dict[Key, Manifest]:
    """Return the manifests of all steps of a plan that were made.

    Raises:
        ReleaseError: The record is damaged.
    """
    query = "select step, manifest from made where cohort = ? and epsilon = ?"
    found = {row[0]: row[1] for row in _read(spec, query, (spec.cohort, epsilon))}
    keys = {step_name(step.key): step.key for step in plan.steps}
    return {key: Manifest(**json.loads(found[name])) for name, key in keys.items() if name in found}


def last_observed(spec: Spec) -> dict[str, str]:
    """Return the last fingerprint of each table that was ever observed, see `observe`.

    Raises:
        ReleaseError: The record is damaged.
    """
    rows = _read(spec, "select source, fingerprint from observed")
    return {source: fingerprint for source, fingerprint in rows if source in spec.schema.by_name}


def record_observations(spec: Spec, fingerprints: Mapping[str, str]) -> None:
    """Keep observed fingerprints, and when a table first had its own.

    Raises:
        ReleaseError: It cannot be written.
    """
    known, at = last_observed(spec), datetime.now(UTC).isoformat(timespec="seconds")
    rows = [(table, found, at) for table, found in fingerprints.items() if known.get(table) != found]
    if rows:
        _write(spec, "insert or replace into observed(source, fingerprint, at) values (?, ?, ?)", rows)


def _read(spec: Spec, query: str, parameters: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Rows of a query; none if nothing was ever recorded."""
    path = record_file(spec)
    if not path.exists():
        return []
    with _refusing(path), closing(sqlite3.connect(path, timeout=LOCK_TIMEOUT)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'observed'").fetchall():
            return []  # the process that began the file was stopped before its last table
        return connection.execute(query, parameters).fetchall()


def _write(spec: Spec, statement: str, rows: Iterable[Sequence[str]]) -> None:
    """Run a statement for each of ``rows``, all or none."""
    path = record_file(spec)
    with _refusing(path), closing(sqlite3.connect(path, timeout=LOCK_TIMEOUT)) as connection, connection:
        for table in _TABLES:
            connection.execute(table)
        connection.executemany(statement, rows)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ReleaseError(f"{path.name} of the state folder cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        raise ReleaseError(
            f"{path.name} of the state folder is damaged. Delete it and run everything again: this costs nothing,"
            " because releases are kept"
        ) from error
