"""The store of a ledger's rows: its tables, and all that differs between SQLite and PostgreSQL.

Rows are only ever inserted. A reservation is *released* when `result` has a row for it; a hold has ended when
`hold_end` has one, and `hold_draw` says which reservations were taken out of it. ``ledger_layout`` says which layout a
ledger has. Each version of privbench reads one and refuses all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from privbench_core.errors import LedgerError

Row = tuple[Any, ...]
LOCK_TIMEOUT = 60.0
"""Seconds to wait for another process's transaction or for a server; chosen by hand, far above one transaction."""
LAYOUT = 4
"""Raise it with any change of a table."""
TABLES = (
    "ledger_layout", "lifetime", "reservation", "charge", "result", "state_folder",
    "neighbour_relation", "hold", "hold_draw", "hold_end",
)  # fmt: skip

_CREATE = (
    "create table ledger_layout(version integer not null, at text not null)",
    """create table lifetime(
    id {id}, database text not null, unit text not null, epsilon double precision not null,
    delta double precision not null, at text not null)""",
    """create table reservation(
    id {id}, database text not null, account text not null, release text not null, step text not null,
    run text not null, measure text not null check (measure in ('pure', 'gdp')),
    amount double precision not null check (amount >= 0), rho double precision not null check (rho >= 0),
    delta double precision not null check (delta >= 0), at text not null)""",
    "create index reservation_by_account on reservation(database, account)",
    "create index reservation_by_release on reservation(release)",
    """create table charge(
    id {id}, reservation bigint not null references reservation, label text not null,
    amount double precision not null, delta double precision not null, at text not null)""",
    "create index charge_by_reservation on charge(reservation)",
    """create table result(
    reservation bigint primary key references reservation, digest text not null, at text not null)""",
    "create table state_folder(id {id}, database text not null, mark text not null, at text not null)",
    """create table neighbour_relation(
    id {id}, database text not null, account text not null, name text not null, facts text not null, at text not null,
    unique (database, account, name))""",
    """create table hold(
    id {id}, database text not null, account text not null, purpose text not null, mark text not null,
    measure text not null check (measure in ('pure', 'gdp')), amount double precision not null check (amount >= 0),
    delta double precision not null check (delta >= 0), at text not null)""",
    "create index hold_by_account on hold(database, account)",
    """create table hold_draw(
    id {id}, hold bigint not null references hold, reservation bigint not null references reservation,
    at text not null)""",
    "create index hold_draw_by_hold on hold_draw(hold)",
    "create table hold_end(hold bigint primary key references hold, at text not null)",
)
_REFUSE = """create function refuse_change() returns trigger language plpgsql as
    $$ begin raise exception 'append only'; end $$"""
SQLITE_STATEMENTS = (
    *(statement.format(id="integer primary key") for statement in _CREATE),
    *(
        f"create trigger {table}_{verb} before {verb} on {table} begin select raise(abort, 'append only'); end"
        for table in TABLES
        for verb in ("update", "delete")
    ),
)
"""Create the tables, with a trigger per table and change."""
POSTGRES_STATEMENTS = (
    *(statement.format(id="bigint generated always as identity primary key") for statement in _CREATE),
    _REFUSE,
    *(
        f"""create trigger {table}_stays before update or delete or truncate on {table}
    for each statement execute function refuse_change()"""
        for table in TABLES
    ),
)
"""The same for PostgreSQL, as ``deploy/postgres/ledger.sql`` has them."""


class LedgerStore(Protocol):
    """A connection to the tables of a ledger. Every method raises `LedgerError` if the database refuses.

    Attributes:
        durable: Whether rows outlive the process.
        creation: The statements that create the tables.
    """

    durable: bool
    creation: tuple[str, ...]

    def transaction(self) -> AbstractContextManager[None]:
        """Open a transaction: atomic, durable, and serialized over all processes and hosts.

        It reads what the last such transaction wrote.
        """

    def query(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement, with ``?`` for each parameter; return the rows of a ``select`` or a ``returning``."""

    def has_tables(self, name: str) -> bool:
        """Return whether there is a table of that name."""

    def close(self) -> None:
        """Close the connection."""


def create_tables(store: LedgerStore, at: str) -> None:
    """Create the tables if there are none, and note the time ``at``.

    Raises:
        LedgerError: There are tables of another layout, or tables may not be added.
    """
    if _layout(store) == LAYOUT:
        return
    with store.transaction():
        found = _layout(store)  # another process may have been faster
        if found is None:
            for statement in store.creation:
                store.query(statement)
            store.query("insert into ledger_layout(version, at) values (?, ?)", (LAYOUT, at))
        elif found != LAYOUT:
            raise LedgerError(
                f"the ledger has layout {found}, but this privbench reads {LAYOUT}: use the version that wrote it"
            )


def _layout(store: LedgerStore) -> int | None:
    """Return the layout of the tables, None if there are none."""
    if store.has_tables("ledger_layout"):
        ((version,),) = store.query("select coalesce(max(version), 0) from ledger_layout")
        return int(version)
    return 0 if store.has_tables("reservation") else None
