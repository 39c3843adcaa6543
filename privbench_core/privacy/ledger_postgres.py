"""A ledger in PostgreSQL: for several machines, or where the server's backups are the better ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from time import monotonic, sleep
from typing import Any

import psycopg

from privbench_core.errors import LedgerError
from privbench_core.privacy.ledger_layout import postgres_statements
from privbench_core.privacy.ledger_store import Row
from privbench_core.schema.location import connection_parameters, describe, parse_url, reason_of

_PATIENCE = 60.0  # seconds
_LOCK = int.from_bytes(blake2b(b"privbench ledger", digest_size=8).digest(), signed=True)
# READ COMMITTED, whatever the server's default is: each statement then sees all that was committed before it began. A
# stricter level would take its snapshot before it waits for the lock, and sum up what was spent before its turn.
# The lock needs no privilege and ends with the transaction, however that ends. Whoever stops in the middle of one is
# thrown out, so that the others can go on. A server that acknowledges before it has written would forget.
_BEGIN = f"""
begin isolation level read committed read write;
set local lock_timeout = '{_PATIENCE:.0f}s';
set local idle_in_transaction_session_timeout = '{_PATIENCE / 2:.0f}s';
select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') in ('off', 'local');
select pg_advisory_xact_lock({_LOCK})"""


class PostgresStore:
    """A connection to PostgreSQL, made again if the server was gone for a while.

    Args:
        url: ``postgresql://…``, secrets included. No message repeats it; ``?schema=`` names another schema.

    Raises:
        LedgerError: No such database, or it does not let us in.
    """

    durable = True

    def __init__(self, url: str) -> None:
        self._url = parse_url(url, "privacy.ledger")
        if self._url.get_backend_name() != "postgresql":
            raise LedgerError("privacy.ledger: not a PostgreSQL URL; write postgresql://user:${PASSWORD}@host/database")
        self._inside = False
        self._db = self._connect()

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def query(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """See `LedgerStore`. Outside of a transaction it waits for a server that is gone."""
        if self._inside:
            return self._run(statement, parameters)
        try:
            return self._run(statement, parameters)
        except LedgerError:
            if not self._db.broken:
                raise
            self._reconnect()
            return self._run(statement, parameters)

    def has_tables(self, name: str) -> bool:
        """See `LedgerStore`."""
        # Not to_regclass(): it answers from a cache that may be older than the lock.
        listed = "select 1 from pg_catalog.pg_tables where tablename = ? and schemaname = any(current_schemas(false))"
        return bool(self.query(listed, (name,)))

    def creation(self) -> list[str]:
        """See `LedgerStore`."""
        return postgres_statements()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `LedgerStore`. It waits for a server that is gone before it begins, and is never repeated."""
        try:
            self.query(_BEGIN)
            self._inside = True
            yield
            self._run("commit")
        except BaseException:
            with suppress(LedgerError):  # the server may be gone; then it has rolled back
                self._run("rollback")
            raise
        finally:
            self._inside = False

    def _run(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        try:
            cursor = self._db.execute(statement.replace("?", "%s").encode(), parameters or None)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._refused(error) from None

    def _connect(self) -> psycopg.Connection[Any]:
        parameters = connection_parameters(self._url)
        try:
            # Nothing prepared, so that connections may come from a pool.
            return psycopg.connect(**parameters, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise self._refused(error) from None

    def _reconnect(self) -> None:
        patience = monotonic() + _PATIENCE
        while True:
            try:
                self._db = self._connect()
            except LedgerError:
                if monotonic() > patience:
                    raise
                sleep(0.2)
            else:
                return

    def _refused(self, error: psycopg.Error) -> LedgerError:
        """What anybody may read is the kind of the error; the rest is for the owner, and holds no password."""
        detail = f"{describe(self._url)}: {reason_of(error, self._url)}"
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return LedgerError(
                "the ledger's role may not do this; let its owner run ledger.sql of deploy/postgres",
                private_detail=detail,
            )
        return LedgerError(
            f"the ledger in PostgreSQL cannot be used ({type(error).__name__}); check privacy.ledger and its server",
            private_detail=detail,
        )
