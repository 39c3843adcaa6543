"""The store of a ledger's rows: all differences between SQLite and PostgreSQL are in its two implementations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from privbench_core.errors import LedgerError
from privbench_core.privacy.ledger.layout import LAYOUT, UPGRADABLE

Row = tuple[Any, ...]
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process's transaction or for a server; chosen by hand, far above one transaction."""


class LedgerStore(Protocol):
    """A connection to the tables of `privacy.ledger.layout`. Every method raises `LedgerError` if the database refuses.

    Attributes:
        durable: Whether rows outlive the process.
    """

    durable: bool

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

    def creation(self, found: int | None) -> list[str]:
        """Return the statements that create the tables that layout ``found`` lacks; all of them for None."""

    def close(self) -> None:
        """Close the connection."""


def create_tables(store: LedgerStore, at: str) -> None:
    """Create the tables if there are none, or add those that `UPGRADABLE` lacks, and note the time ``at``.

    Raises:
        LedgerError: There are tables of another layout, or tables may not be added.
    """
    if _layout(store) == LAYOUT:
        return
    with store.transaction():
        found = _layout(store)  # another process may have been faster
        if found == LAYOUT:
            return
        if found not in {None, UPGRADABLE}:
            raise LedgerError(
                f"the ledger has layout {found}, this privbench knows {LAYOUT}: use the version that made it"
            )
        try:
            for statement in store.creation(found):
                store.query(statement)
            store.query("insert into ledger_layout(version, at) values (?, ?)", (LAYOUT, at))
        except LedgerError as error:
            if found is None:
                raise
            message = (
                f"the ledger has layout {found}, and the tables of layout {LAYOUT} could not be added to it. Nothing"
                " was changed. In PostgreSQL let the owner of the tables run deploy/postgres/ledger_2_to_3.sql; for a"
                " file, check the disk"
            )
            raise LedgerError(message, private_detail=error.private_detail or str(error)) from error


def _layout(store: LedgerStore) -> int | None:
    """Return the layout of the tables, None if there are none."""
    if store.has_tables("ledger_layout"):
        ((version,),) = store.query("select coalesce(max(version), 0) from ledger_layout")
        return int(version)
    return 0 if store.has_tables("reservation") else None
