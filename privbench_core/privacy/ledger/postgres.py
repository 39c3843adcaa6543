"""A ledger in PostgreSQL: for several machines, or to use the server's backups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from time import monotonic, sleep
from typing import Any

import psycopg

from privbench_core.errors import LedgerError
from privbench_core.privacy.ledger.store import LOCK_TIMEOUT, POSTGRES_STATEMENTS, Row
from privbench_core.spec.location import connection_parameters, describe, parse_url, reason_of

_RECONNECT_SECONDS = 0.2  # chosen by hand
_LOCK = int.from_bytes(blake2b(b"privbench ledger", digest_size=8).digest(), signed=True)
# READ COMMITTED, whatever the server's default is: each statement then sees all that was committed before it began. A
# stricter level would take its snapshot before it waits for the lock, and miss what others spent in the meantime.
# The lock needs no privilege and ends with the transaction. The server terminates a session that idles inside of one,
# so that others can go on. Synchronous commit, because a server that acknowledges before it writes may lose entries.
_BEGIN = f"""
begin isolation level read committed read write;
set local lock_timeout = '{LOCK_TIMEOUT:.0f}s';
set local idle_in_transaction_session_timeout = '{LOCK_TIMEOUT / 2:.0f}s';
select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') in ('off', 'local');
select pg_advisory_xact_lock({_LOCK});
"""


class PostgresStore:
    """A connection to PostgreSQL that reconnects if the server was away for a while.

    Args:
        url: ``postgresql://…``, secrets included. No message repeats it; ``?schema=`` names another schema.

    Raises:
        LedgerError: There is no such database, or it refuses the connection.
    """

    durable = True

    creation = POSTGRES_STATEMENTS

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
        """See `LedgerStore`. Reconnects to a server that is away, but never inside a transaction."""
        try:
            return self._run(statement, parameters)
        except LedgerError:
            if self._inside or not self._db.broken:
                raise
            self._reconnect()
            return self._run(statement, parameters)

    def has_tables(self, name: str) -> bool:
        """See `LedgerStore`."""
        # Not to_regclass(): it answers from a cache that may be older than the lock.
        listed = "select 1 from pg_catalog.pg_tables where tablename = ? and schemaname = any(current_schemas(false))"
        return bool(self.query(listed, (name,)))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `LedgerStore`. A transaction is never repeated."""
        try:
            self.query(_BEGIN)
            self._inside = True
            yield
            self._run("commit")
        except BaseException:
            with suppress(LedgerError):  # a server that is away has rolled back
                self._run("rollback")
            raise
        finally:
            self._inside = False

    def _run(self, statements: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run statements with parameters quoted by the client; return the rows of the last one that has any."""
        try:
            cursor = self._db.execute(statements.replace("?", "%s").encode(), parameters or None)
            rows = cursor.fetchall() if cursor.description else []
            while cursor.nextset():
                rows = cursor.fetchall() if cursor.description else rows
        except psycopg.Error as error:
            raise self._refused(error) from None
        return rows

    def _connect(self) -> psycopg.Connection[Any]:
        parameters = connection_parameters(self._url)
        try:
            return psycopg.connect(**parameters, autocommit=True, cursor_factory=psycopg.ClientCursor)
        except psycopg.Error as error:
            raise self._refused(error) from None

    def _reconnect(self) -> None:
        deadline = monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._db = self._connect()
            except LedgerError:
                if monotonic() > deadline:
                    raise
                sleep(_RECONNECT_SECONDS)
            else:
                return

    def _refused(self, error: psycopg.Error) -> LedgerError:
        """Return an error whose public text names the kind only; the owner's detail holds no password either."""
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
