"""Propose the ownership path: which key of a table leads to the unit, with which bound, and what the other keys are.

A bound on an owner key is enforced, so any number is safe and a proposal can stand. A bound on another key is a promise
of the owner's, which nobody can make for them: such keys stay to be decided, unless they may be declared ``same_unit``,
which is enforced again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from privbench_core.backends.catalogue import Catalogue, FoundKey, FoundTable
from privbench_core.draft.unit import dependants
from privbench_core.draft.words import words_of

# The most rows of a table that one parent row has, by the last words of the table's name. Chosen by hand, generously:
# a few parents have most rows of many tables. An enforced bound that is too large costs some noise, one that is too
# small loses rows (with 50, a real site loses a quarter of its posts and votes); a promise that is too small is broken.
_USUAL = (
    (r"(line|item|detail|entry|position)s?", 500),
    (r"(address|addresse|phone|email|card|account|vehicle|car|child|person|people|member|resident|family)s?", 200),
    (r"(event|log|click|view|hit|session|message|measurement|reading|vital|lab|rating|vote|track|play)s?", 5000),
    (r"(lab|vital|vitals|nurse|med|drug|medication) ?\w*", 5000),
)
_OTHERWISE = 1000  # orders, rentals, visits, payments: chosen by hand as above


@dataclass(frozen=True)
class Role:
    """What a key is for.

    Attributes:
        owner: Whether it is on the ownership path.
        same_unit: Whether it probably stays inside one unit.
        undecided: Whether the owner has to declare a bound that is not enforced.
        bound: The proposed bound; None for a key that needs none.
        per_unit: Whether it bounds the rows that refer to all rows of one unit, rather than to one row.
    """

    owner: bool = False
    same_unit: bool = False
    undecided: bool = False
    bound: int | None = None
    per_unit: bool = False


Roles = Mapping[tuple[str, tuple[str, ...], str], Role]
"""Roles of keys by table, columns and parent: two keys may be on the same columns."""


def propose_roles(catalogue: Catalogue, unit: str) -> Roles:
    """Return the role of every key between private tables; keys to public tables have none.

    The owner key is the one whose parent the row is about: a required key rather than an optional one, then the one
    with the longest path to the unit (a payment is about a rental rather than about its customer).

    Args:
        catalogue: All tables.
        unit: The table whose rows are protected; tables that no key leads from there are taken to be public.
    """
    inside = dependants(catalogue, unit) | {unit}
    tables = {table.name: table for table in catalogue.tables if table.name in inside}
    paths: dict[str, tuple[str, ...]] = {unit: (unit,)}
    owners: dict[str, FoundKey] = {}
    waiting = [name for name in tables if name != unit]
    while waiting:
        ready = next((name for name in waiting if _settled(tables[name], paths, inside)), None)
        ready = ready or next(name for name in waiting if _leading(tables[name], set(paths)))
        leading = _leading(tables[ready], set(paths))
        owner = max(leading, key=lambda key: (not is_optional(tables[ready], key), len(paths[key.parent])))
        owners[ready], paths[ready] = owner, (*paths[owner.parent], ready)
        waiting.remove(ready)
    roles = {}
    for table in tables.values():
        for key in table.foreign_keys:
            if key.parent in inside:
                roles[table.name, key.columns, key.parent] = _role(table, key, owners, paths)
    return roles


def usual_bound(table: str) -> int:
    """Return how many rows of a table one parent row may have, by the name of the table.

    >>> usual_bound("InvoiceLine"), usual_bound("rental"), usual_bound("person")
    (500, 1000, 200)
    """
    words = words_of(table)
    return next((bound for names, bound in _USUAL if re.search(rf"(^| ){names}$", words)), _OTHERWISE)


def is_optional(table: FoundTable, key: FoundKey) -> bool:
    """Return whether a key may be NULL."""
    nullable = {column.name for column in table.columns if column.nullable} - set(table.primary_key)
    return not nullable.isdisjoint(key.columns)


def _role(table: FoundTable, key: FoundKey, owners: dict[str, FoundKey], paths: dict[str, tuple[str, ...]]) -> Role:
    owner = owners.get(table.name)
    groups = [group for group in (table.primary_key, *table.unique) if group]
    single = any(set(group) <= set(key.columns) for group in groups)
    bound = None if single else usual_bound(table.name)
    if key == owner:
        return Role(owner=True, bound=bound)
    # A column of the same name on the way from the owner to the unit: the same row most probably, and enforced.
    if owner is not None and key.parent in paths[owner.parent][:-1]:
        below = paths[owner.parent][paths[owner.parent].index(key.parent) + 1]
        if owners[below].columns == key.columns:
            return Role(same_unit=True)
    if owner is not None and _shares_owner(key, owner, owners):
        return Role(same_unit=True)
    return Role() if single else Role(undecided=True, bound=bound, per_unit=len(paths[key.parent]) > 1)


def _shares_owner(key: FoundKey, owner: FoundKey, owners: dict[str, FoundKey]) -> bool:
    """Return whether the same columns of a row name the owner of both parents, as ``houseid`` in two composite keys."""
    here, there = owners.get(owner.parent), owners.get(key.parent)
    if here is None or there is None or here.parent != there.parent:
        return False
    first = dict(zip(owner.parent_columns, owner.columns, strict=True))
    second = dict(zip(key.parent_columns, key.columns, strict=True))
    mine = [first.get(column) for column in here.columns]
    return None not in mine and mine == [second.get(column) for column in there.columns]


def _leading(table: FoundTable, known: set[str]) -> list[FoundKey]:
    return [key for key in table.foreign_keys if key.parent in known and key.parent != table.name]


def _settled(table: FoundTable, paths: dict[str, tuple[str, ...]], inside: set[str]) -> bool:
    return all(key.parent in paths for key in _leading(table, inside))
