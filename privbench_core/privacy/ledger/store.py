"""Where a ledger's rows are kept. All that differs between SQLite and PostgreSQL is in the two stores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = tuple[Any, ...]


class LedgerStore(Protocol):
    """A connection to the tables of `ledger_layout`. Every method raises `LedgerError` where the database refuses.

    Attributes:
        durable: Whether what is written outlives the process.
        connection: Number of the connection that is used; another one may lead to another copy of the database.
    """

    durable: bool
    connection: int

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing, on the disk when it ends, and one at a time over all processes and hosts.

        What is read inside of it is what the last such transaction left.
        """

    def query(self, statement: str, parameters: Sequence[object] = (), *, last: bool = False) -> list[Row]:
        """Run one statement.

        Args:
            statement: With ``?`` for each parameter.
            parameters: In that order.
            last: Ends the transaction, so that a server need not be asked again while others wait.

        Returns:
            The rows that a ``select`` or a ``returning`` gives.
        """

    def has_tables(self, name: str) -> bool:
        """Whether there is a table of that name."""

    def creation(self) -> list[str]:
        """The statements that make the tables."""

    def close(self) -> None:
        """Let go of the database."""
