"""The tables of a ledger, the same in SQLite and PostgreSQL, and the rules that keep them append-only.

Rows are only ever inserted. A reservation is *released* when `result` has a row for it. ``ledger_layout`` says which
layout a ledger has: each version of privbench reads one, mends older ones, and refuses newer ones.

    1   SQLite only; without ``ledger_layout``, ``account``, ``result`` and ``state_folder``: `UPGRADE`
    2   this one
"""

from __future__ import annotations

LAYOUT = 2
"""Raise it with any change of a table, and mend older ones in `Ledger`."""

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
    """What makes the tables in SQLite, where triggers stand guard row by row."""
    guards = [
        f"create trigger {table}_{verb} before {verb} on {table} begin select raise(abort, 'append only'); end"
        for table in TABLES
        for verb in ("update", "delete")
    ]
    return [statement.format(id=_SQLITE_ID) for statement in _CREATE] + guards


def postgres_statements() -> list[str]:
    """What makes the tables in PostgreSQL; ``deploy/postgres/ledger.sql`` holds the same for an owner to run."""
    guards = [
        f"""create trigger {table}_stays before update or delete or truncate on {table}
    for each statement execute function refuse_change()"""
        for table in TABLES
    ]
    return [statement.format(id=_POSTGRES_ID) for statement in _CREATE] + [_REFUSE, *guards]


_OLD = ("lifetime", "reservation", "charge")
UPGRADE = (
    # Renaming keeps triggers and indexes, which would then stand in the way of the new ones.
    *(f"drop trigger {table}_{rule}" for table in _OLD for rule in ("stays", "kept")),
    "drop index by_release",
    *(f"alter table {table} rename to {table}_1" for table in _OLD),
    *sqlite_statements(),
    "insert into lifetime select id, database, unit, epsilon, delta, at from lifetime_1 order by id",
    """insert into reservation select id, database, '', release, step, run, measure, amount, rho, delta, at
    from reservation_1 order by id""",
    "insert into charge select id, reservation, label, amount, delta, at from charge_1 order by id",
    "insert into result select id, digest, at from reservation_1 where state = 'released'",
    *(f"drop table {table}_1" for table in reversed(_OLD)),
)
"""From layout 1 to 2, in SQLite, within one transaction."""
