"""The store of a ledger's rows: all differences between SQLite and PostgreSQL are in its two implementations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = tuple[Any, ...]
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process's transaction or for a server; chosen by hand, far above one transaction."""


class LedgerStore(Protocol):
    """A connection to the tables of `privacy.ledger.layout`. Every method raises `LedgerError` if the database refuses.

    Attributes:
        durable: Whether rows outlive the process.
        connection: Number of the current connection; another one may lead to another copy of the database.
    """

    durable: bool
    connection: int

    def transaction(self) -> AbstractContextManager[None]:
        """Open a transaction: atomic, durable, and serialized over all processes and hosts.

        It reads what the last such transaction wrote.
        """

    def query(self, statement: str, parameters: Sequence[object] = (), *, last: bool = False) -> list[Row]:
        """Run one statement.

        Args:
            statement: With ``?`` for each parameter.
            parameters: In that order.
            last: Commits the transaction too, which saves a round trip to the server while others wait.

        Returns:
            The rows of a ``select`` or a ``returning``.
        """

    def has_tables(self, name: str) -> bool:
        """Return whether there is a table of that name."""

    def creation(self) -> list[str]:
        """Return the statements that create the tables."""

    def close(self) -> None:
        """Close the connection."""
