"""Propose keys for a source that declares none, from the names and types of its columns.

A proposal that is wrong is found before anything is paid for: a run checks that primary keys are distinct and that
references have a match.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from privbench_core.backends.catalogue import Catalogue, FoundKey, FoundTable
from privbench_core.draft.words import singular

_ID = re.compile(r".*(id|key|_no|_nr|_num|number|uid)$", re.IGNORECASE)
_ID_ALONE = frozenset({"id", "key", "uid"})


def propose_keys(catalogue: Catalogue) -> Catalogue:
    """Return the catalogue with primary and foreign keys where no table declares a foreign key.

    A column called ``id`` or after its table is the primary key. So are the identifying columns that a table shares
    with others, if some other table has all of them: ``houseid`` of households and ``houseid, personid`` of persons,
    where trips have both.
    """
    if any(table.foreign_keys for table in catalogue.tables):
        return catalogue
    counted = Counter(name for table in catalogue.tables for name in {c.name.casefold() for c in table.columns})
    shared = {table.name: _identifying(table, counted) for table in catalogue.tables}
    keyed = [replace(table, primary_key=_primary(table, shared)) for table in catalogue.tables]
    tables = tuple(_with_keys(table, _references(table, keyed)) for table in keyed)
    return replace(catalogue, tables=tables, proposed=any(table.foreign_keys for table in tables))


def _identifying(table: FoundTable, counted: Counter[str]) -> tuple[str, ...]:
    names = (column.name for column in table.columns if column.type is not None)
    return tuple(
        name for name in names if _ID.match(name) and counted[name.casefold()] > 1 and name.casefold() not in _ID_ALONE
    )


def _own_key(table: FoundTable) -> tuple[str, ...]:
    one = singular(table.name)
    usual = {"id", *(f"{name}{end}" for name in (table.name.casefold(), one) for end in ("id", "_id", "key", "_key"))}
    found = [column.name for column in table.columns if column.name.casefold() in usual and column.type is not None]
    return tuple(found) if len(found) == 1 else ()


def _primary(table: FoundTable, shared: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    own = table.primary_key or _own_key(table)
    mine = frozenset(name.casefold() for name in shared[table.name])
    if own or not mine:
        return own
    others = [frozenset(map(str.casefold, names)) for name, names in shared.items() if name != table.name]
    return shared[table.name] if mine not in others and any(mine < other for other in others) else ()


def _references(table: FoundTable, keyed: list[FoundTable]) -> tuple[FoundKey, ...]:
    """Return the keys of a table to others, without those that follow from a longer one."""
    found = [key for parent in keyed if parent.name != table.name for key in _reference(table, parent)]
    longest = sorted(found, key=lambda key: -len(key.columns))
    kept: list[FoundKey] = []
    for key in longest:
        if not any(set(key.columns) <= set(other.columns) for other in kept):
            kept.append(key)
    return tuple(kept)


def _with_keys(table: FoundTable, keys: tuple[FoundKey, ...]) -> FoundTable:
    """Return the table with its keys; the first is required, as files do not say what may be NULL."""
    required = set(keys[0].columns) if keys else set[str]()
    columns = tuple(replace(c, nullable=c.nullable and c.name not in required) for c in table.columns)
    return replace(table, columns=columns, foreign_keys=keys)


def _reference(table: FoundTable, parent: FoundTable) -> list[FoundKey]:
    here = {column.name.casefold(): column for column in table.columns if column.type is not None}
    primary = [parent.column(name) for name in parent.primary_key]
    if not primary:
        return []
    one = singular(parent.name)
    if len(primary) == 1 and primary[0].name.casefold() in _ID_ALONE:
        names = [f"{name}{sep}{primary[0].name}".casefold() for name in (one, parent.name) for sep in ("_", "")]
        wanted = [[name] for name in dict.fromkeys(names)]
    else:
        wanted = [[column.name.casefold() for column in primary]]
    for group in wanted:
        columns = [here[name] for name in group if name in here]
        same = len(columns) == len(primary) and all(
            mine.type is there.type for mine, there in zip(columns, primary, strict=True)
        )
        mine = tuple(column.name for column in columns)
        if same and mine != table.primary_key:
            return [FoundKey(mine, parent.name, parent.primary_key)]
    return []
