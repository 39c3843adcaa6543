"""A ledger in an SQLite file: for one machine, and for tests in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from privbench_core.errors import LedgerError
from privbench_core.privacy.ledger.store import LOCK_TIMEOUT, SQLITE_STATEMENTS, Row

MEMORY = ":memory:"
_PRIMARY_CODE = 0xFF  # bits of SQLite's primary result code; the others hold the extended one
_RETRY_SECONDS = 0.01  # chosen by hand


class SqliteStore:
    """An SQLite file in WAL mode; `BEGIN IMMEDIATE` lets in one writer at a time.

    Args:
        path: The file, created if missing; ":memory:" for tests, which makes the ledger not durable.
    """

    creation = SQLITE_STATEMENTS

    def __init__(self, path: Path | str) -> None:
        self.durable = str(path) != MEMORY
        if self.durable:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=LOCK_TIMEOUT)
            self._use_wal()
            self._db.execute("pragma synchronous=full")
        except sqlite3.Error as error:
            raise _refused(error) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def query(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """See `LedgerStore`."""
        try:
            return self._db.execute(statement, tuple(parameters)).fetchall()
        except sqlite3.Error as error:
            raise _refused(error) from error

    def has_tables(self, name: str) -> bool:
        """See `LedgerStore`."""
        return bool(self.query("select 1 from sqlite_master where type = 'table' and name = ?", (name,)))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `LedgerStore`."""
        self.query("begin immediate")
        try:
            yield
            self.query("commit")
        except BaseException:
            with suppress(LedgerError):  # a full disk has rolled back by itself
                self.query("rollback")
            raise

    def _use_wal(self) -> None:
        """Switch to WAL; wait while another process that creates the file locks it (SQLite's timeout does not)."""
        deadline = monotonic() + LOCK_TIMEOUT
        while True:
            try:
                self._db.execute("pragma journal_mode=wal")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _PRIMARY_CODE != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                    raise
                sleep(_RETRY_SECONDS)
            else:
                return


def _refused(error: sqlite3.Error) -> LedgerError:
    return LedgerError(f"the ledger cannot be used ({error}); check the state folder of the spec and the disk")
