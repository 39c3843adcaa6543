"""A ledger in an SQLite file: for one machine, and for tests in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from privbench_core.errors import LedgerError
from privbench_core.privacy.ledger.layout import sqlite_statements
from privbench_core.privacy.ledger.store import Row

MEMORY = ":memory:"
_PATIENCE = 60.0  # seconds
_KIND = 0xFF  # of an error; the other bits say more about it


class SqliteStore:
    """An SQLite file in WAL mode; `BEGIN IMMEDIATE` lets in one writer at a time.

    Args:
        path: The file, made if missing; ":memory:" for tests, which makes the ledger not durable.
    """

    connection = 1  # of a file there is never another one

    def __init__(self, path: Path | str) -> None:
        self.durable = str(path) != MEMORY
        if self.durable:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE)
            self._use_wal()
            self._db.execute("pragma synchronous=full")
        except sqlite3.Error as error:
            raise _refused(error) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def query(self, statement: str, parameters: Sequence[object] = (), *, last: bool = False) -> list[Row]:
        """See `LedgerStore`; the transaction ends with its block, whatever is said to be ``last``."""
        try:
            return self._db.execute(statement, tuple(parameters)).fetchall()
        except sqlite3.Error as error:
            raise _refused(error) from error

    def has_tables(self, name: str) -> bool:
        """See `LedgerStore`."""
        return bool(self.query("select 1 from sqlite_master where type = 'table' and name = ?", (name,)))

    def creation(self) -> list[str]:
        """See `LedgerStore`."""
        return sqlite_statements()

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
        """Another process that makes the same file may lock it, which SQLite's own timeout ignores here."""
        patience = monotonic() + _PATIENCE
        while True:
            try:
                self._db.execute("pragma journal_mode=wal")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & _KIND != sqlite3.SQLITE_BUSY or monotonic() > patience:
                    raise
                sleep(0.01)
            else:
                return


def _refused(error: sqlite3.Error) -> LedgerError:
    return LedgerError(f"the ledger cannot be used ({error}); check the state folder of the spec and the disk")
