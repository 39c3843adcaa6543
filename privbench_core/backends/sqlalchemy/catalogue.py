"""The catalogue of any database SQLAlchemy can reflect."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundKey, FoundTable
from privbench_core.backends.native_types import found_column
from privbench_core.backends.other_dialects import checks_in_postgres, with_exact_names
from privbench_core.errors import SourceError
from privbench_core.schema.constraints import Check, Index
from privbench_core.spec.location import open_engine

if TYPE_CHECKING:
    from sqlalchemy import URL, Inspector


def sqlalchemy_catalogue(url: URL) -> Catalogue:
    """Return the tables of the default schema. Defaults are left out: they are in the database's own dialect.

    Raises:
        SourceError: The database cannot be connected to, or its catalogue not be read.
    """
    import sqlalchemy as sa

    engine = open_engine(url)
    try:
        # Types that SQLAlchemy does not know are named in the draft; its warnings would only repeat it.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sa.exc.SAWarning)
            inspector = sa.inspect(engine)
            tables = with_exact_names([_table(inspector, name) for name in sorted(inspector.get_table_names())])
    except sa.exc.SQLAlchemyError as error:
        kind = type(error).__name__
        raise SourceError(f"source: the catalogue cannot be read ({kind}); grant access to it") from None
    return Catalogue(Path(url.database or url.get_backend_name()).stem, tables)


def _table(inspector: Inspector, name: str) -> FoundTable:
    columns = tuple(
        replace(
            found_column(column["name"], str(column["type"]), nullable=bool(column["nullable"])),
            comment=column.get("comment"),
        )
        for column in inspector.get_columns(name)
    )
    keys = tuple(
        FoundKey(tuple(key["constrained_columns"]), key["referred_table"], tuple(key["referred_columns"]))
        for key in inspector.get_foreign_keys(name)
    )
    unique = [tuple(found["column_names"]) for found in inspector.get_unique_constraints(name)]
    plain, notes = [], []
    # In SQLite's statements SQLAlchemy misses a UNIQUE after `varchar(50)`; SQLite makes an index for it.
    automatic: dict[str, Any] = {"include_auto_indexes": True} if inspector.dialect.name == "sqlite" else {}
    for index in inspector.get_indexes(name, **automatic):
        names = tuple(column for column in index["column_names"] if column is not None)
        if len(names) < len(index["column_names"]):
            notes.append(f"the index {index['name']}, which is on an expression")
        elif index["unique"]:
            unique.append(names)
        else:
            plain.append(Index(str(index["name"]), names))
    primary = tuple(inspector.get_pk_constraint(name)["constrained_columns"])
    distinct = tuple(group for group in dict.fromkeys(unique) if group != primary)
    checks, strange = _checks(inspector, name, columns)
    return FoundTable(
        name, columns, primary, keys, distinct, checks, tuple(plain), declares_indexes=True, notes=(*notes, *strange)
    )


def _checks(
    inspector: Inspector, table: str, columns: tuple[FoundColumn, ...]
) -> tuple[tuple[Check, ...], tuple[str, ...]]:
    try:
        found = inspector.get_check_constraints(table)
    except NotImplementedError:  # not every dialect reports them
        return (), ()
    named = [(check["name"] or f"{table}_check{number}", check["sqltext"]) for number, check in enumerate(found, 1)]
    return checks_in_postgres(named, inspector.dialect.name, columns)
