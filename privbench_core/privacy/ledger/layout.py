"""The tables of a ledger, the same in SQLite and PostgreSQL, and the rules that keep them append-only.

Rows are only ever inserted. A reservation is *released* when `result` has a row for it. ``ledger_layout`` says which
layout a ledger has: each version of privbench reads one, and refuses all others.
"""

from __future__ import annotations

LAYOUT = 2
"""Raise it with any change of a table."""

TABLES = ("ledger_layout", "lifetime", "reservation", "charge", "result", "state_folder")

_SQLITE_ID = "integer primary key"
_POSTGRES_ID = "bigint generated always as identity primary key"
_CREATE = (
    "create table ledger_layout(version integer not null, at text not null)",
    """create table lifetime(
    id {id}, database text not null, unit text not null, epsilon double precision not null,
    delta double precision not null, at text not null)""",
    """create table reservation(
    id {id}, database text not null, account text not null, release text not null, step text not null,
    run text not null, measure text not null check (measure in ('pure', 'zcdp')),
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
)
_REFUSE = """create function refuse_change() returns trigger language plpgsql as
    $$ begin raise exception 'append only'; end $$"""


def sqlite_statements() -> list[str]:
    """Return the statements that create the tables in SQLite, with a trigger per row against changes."""
    guards = [
        f"create trigger {table}_{verb} before {verb} on {table} begin select raise(abort, 'append only'); end"
        for table in TABLES
        for verb in ("update", "delete")
    ]
    return [statement.format(id=_SQLITE_ID) for statement in _CREATE] + guards


def postgres_statements() -> list[str]:
    """Return the statements that create the tables in PostgreSQL; ``deploy/postgres/ledger.sql`` holds the same."""
    guards = [
        f"""create trigger {table}_stays before update or delete or truncate on {table}
    for each statement execute function refuse_change()"""
        for table in TABLES
    ]
    return [statement.format(id=_POSTGRES_ID) for statement in _CREATE] + [_REFUSE, *guards]
