"""Guess whose rows are protected and which keys lead to them, from names and the graph of keys.

A wrong unit is a wrong promise, so tables of artists, hospitals or countries are never proposed, however many other
tables refer to them; nor is the only table of a source, unless it is called after persons or keyed like them.

A bound on an owner key is enforced, so any number is safe and a proposal can stand. A bound on another key is a promise
of the owner's, which nobody can make for them: such keys stay to be decided, unless they may be declared ``same_unit``,
which is enforced.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from privbench_core.backends.catalogue import Catalogue, FoundKey, FoundTable
from privbench_core.draft.names import ends_with, first_match, identifying_columns, is_called_after_persons, words_of

# Whose data a database most often holds, in order of preference; the last words of a table's name.
_SERVED = (
    r"(patient|customer|client|user|member|subscriber|student|pupil|passenger|voter|resident|tenant|donor|guest|"
    r"account ?holder|policy ?holder|citizen|respondent|participant)s?"
)
_EMPLOYED = r"(employee|staff|teacher|worker)s?"
_UNITS = (
    rf"(household|family|families|person|persons|people|individual|individuals|{_SERVED})",
    _EMPLOYED,
)
# The primary key of such a table where the table has another name (``hhpub``).
_KEY_OF_UNITS = re.compile(
    r"(hh|house|household|patient|customer|cust|client|user|member|person|respondent)_?(id|key|no)"
)
# Whose members work together, and with nobody of another one.
_GROUPS = r"(account|organi[sz]ation|org|tenant|workspace|company|companies|household|family|families)s?"
_OF_UNIT = 2  # tables on the way from a table of its own to the unit
# The most rows of a table that one parent row has, by the last words of the table's name. Chosen by hand, generously:
# a few parents have most rows of many tables. An enforced bound that is too large costs some noise, one that is too
# small loses rows (with 50, a real site loses a quarter of its posts and votes); a promise that is too small is broken.
_USUAL = (
    (r"(line|item|detail|entry|position)s?", 500),
    (r"(address|addresse|phone|email|card|account|vehicle|car|child|person|people|member|resident|family)s?", 200),
    (r"(event|log|click|view|hit|session|message|measurement|reading|vital|lab|rating|vote|track|play)s?", 5000),
    (r"(lab|vital|vitals|nurse|med|drug|medication) ?\w*", 5000),
)
_USUAL_OF_OTHERS = 1000  # orders, rentals, visits, payments: chosen by hand as above


def dependants(catalogue: Catalogue, root: str) -> set[str]:
    """Return the tables whose foreign keys lead to ``root``, directly or not; without ``root`` itself."""
    parents = {table.name: {key.parent for key in table.foreign_keys} for table in catalogue.tables}
    found = {root}
    while more := {name for name, above in parents.items() if above & found} - found:
        found |= more
    return found - {root}


def guess_unit(catalogue: Catalogue) -> str | None:
    """Return the table whose rows are probably the privacy units, None where names and keys do not say.

    Of several tables of persons it is the one that all others refer to: the household rather than its persons, the
    person rather than the student that he or she is. Employees count only where there are no others and at
    least half of the tables depend on them: a database of orders has staff as well.
    """
    readable = catalogue.readable
    for names in _UNITS:
        found = [table.name for table in readable if ends_with(table.name, names)]
        tops = [name for name in found if all(other in dependants(catalogue, name) for other in found if other != name)]
        of_most = len(tops) == 1 and 2 * len(dependants(catalogue, tops[0])) >= len(readable) - 1
        if len(tops) == 1 and (names != _EMPLOYED or of_most):
            return tops[0]
        if found:
            return None
    keyed = [
        table.name
        for table in readable
        if len(table.primary_key) == 1 and _KEY_OF_UNITS.fullmatch(table.primary_key[0].casefold())
    ]
    return keyed[0] if len(keyed) == 1 else None


def repeated_persons(table: FoundTable) -> tuple[str, ...]:
    """Return the columns of the unit's table that identify a person although several rows may share a value.

    In a table that is called after persons these are numbers of persons: several persons have one name or address, and
    a key to another person, as to a patient's doctor, says nothing of the row's own.
    """
    persons = is_called_after_persons(table.name)
    distinct: Iterable[tuple[str, ...]] = (table.primary_key, *table.unique)
    fixed = {name for group in distinct if len(group) == 1 for name in group}
    fixed |= {name for key in table.foreign_keys for name in key.columns} if persons else set()
    found = identifying_columns(table, distinct=persons)
    names = [] if persons else [column.name for column in table.columns if words_of(column.name) == "name"]
    return tuple(column.name for column in table.columns if column.name in {*found, *names} - fixed)


def without_tables(catalogue: Catalogue, names: Collection[str]) -> Catalogue:
    """Return the catalogue without some tables.

    Columns that refer to one of them go as well, unless they are part of a primary key or of a key to what stays.
    """
    kept = tuple(_without(table, names) for table in catalogue.tables if table.name not in names)
    notes = tuple(f"the table {table.name}, as you decided" for table in catalogue.tables if table.name in names)
    return replace(catalogue, tables=kept, notes=(*catalogue.notes, *notes))


def _without(table: FoundTable, names: Collection[str]) -> FoundTable:
    gone = [key for key in table.foreign_keys if key.parent in names]
    staying = tuple(key for key in table.foreign_keys if key.parent not in names)
    held = set(table.primary_key).union(*(key.columns for key in staying))
    parents = {column: key.parent for key in gone for column in key.columns if column not in held}
    columns = tuple(
        replace(column, type=None, note=f"refers to {parents[column.name]}, which is left out")
        if column.name in parents
        else column
        for column in table.columns
    )
    notes = tuple(f"the foreign key on ({', '.join(k.columns)}), because {k.parent} is left out" for k in gone)
    return replace(table, columns=columns, foreign_keys=staying, notes=(*table.notes, *notes))


@dataclass(frozen=True)
class Role:
    """What a key is for."""

    owner: bool = False  # whether it is on the ownership path
    same_unit: bool = False  # whether it probably stays inside one unit
    undecided: bool = False  # whether the owner has to declare a bound that is not enforced
    bound: int | None = None  # the proposed one; None for a key that needs none
    per_unit: bool = False  # whether it bounds the rows that refer to all rows of one unit, rather than to one row
    may_stay: bool = False  # whether a row of a required key would remain what it is without its reference
    stays: bool = False  # whether it does, when the row that it refers to goes with its unit: the owner's decision


KeyPlace = tuple[str, tuple[str, ...], str]
"""A key by its table, columns and parent: two keys may be on the same columns."""
Roles = Mapping[KeyPlace, Role]


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
        settled = (name for name in waiting if all(key.parent in paths for key in _leading(tables[name], inside)))
        ready = next(settled, None) or next(name for name in waiting if _leading(tables[name], set(paths)))
        leading = _leading(tables[ready], set(paths))
        owner = max(leading, key=lambda key: (not tables[ready].is_optional(key), len(paths[key.parent])))
        owners[ready], paths[ready] = owner, (*paths[owner.parent], ready)
        waiting.remove(ready)
    return {
        (table.name, key.columns, key.parent): _role(table, key, owners, paths)
        for table in tables.values()
        for key in table.foreign_keys
        if key.parent in inside
    }


def _role(table: FoundTable, key: FoundKey, owners: dict[str, FoundKey], paths: dict[str, tuple[str, ...]]) -> Role:
    owner = owners.get(table.name)
    single = table.is_single(key)
    bound = None if single else first_match(table.name, _USUAL) or _USUAL_OF_OTHERS
    if key == owner:
        return Role(owner=True, bound=bound)
    # A column of the same name on the way from the owner to the unit: the same row most probably, and enforced.
    if owner is not None and key.parent in paths[owner.parent][:-1]:
        below = paths[owner.parent][paths[owner.parent].index(key.parent) + 1]
        if owners[below].columns == key.columns:
            return Role(same_unit=True)
    if owner is not None and (
        _shares_owner(key, owner, owners)
        or _names_owner(key, owner, owners, paths)
        or _is_among_members(key, owner, paths)
    ):
        return Role(same_unit=True)
    if single:
        return Role()
    may_stay = not table.is_optional(key) and key.parent != table.name and _is_apart(table, key)
    return Role(undecided=True, bound=bound, per_unit=len(paths[key.parent]) > 1, may_stay=may_stay)


def _is_apart(table: FoundTable, key: FoundKey) -> bool:
    """Return whether the columns of a key are in no other one: without them, a row is still the same."""
    others = {name for other in table.foreign_keys if other is not key for name in other.columns}
    return bool(table.primary_key) and others.union(table.primary_key).isdisjoint(key.columns)


def _shares_owner(key: FoundKey, owner: FoundKey, owners: dict[str, FoundKey]) -> bool:
    """Return whether the same columns of a row name the owner of both parents, as ``houseid`` in two composite keys."""
    here, there = owners.get(owner.parent), owners.get(key.parent)
    if here is None or there is None or here.parent != there.parent:
        return False
    first = dict(zip(owner.parent_columns, owner.columns, strict=True))
    second = dict(zip(key.parent_columns, key.columns, strict=True))
    mine = [first.get(column) for column in here.columns]
    return None not in mine and mine == [second.get(column) for column in there.columns]


def _names_owner(
    key: FoundKey, owner: FoundKey, owners: dict[str, FoundKey], paths: dict[str, tuple[str, ...]]
) -> bool:
    """Return whether a row names the owner of what it refers to by columns called so on its own way to the unit."""
    above = owners.get(key.parent)
    if above is None or above.parent not in paths[owner.parent][:-1]:
        return False
    mine = dict(zip(key.parent_columns, key.columns, strict=True))
    below = paths[owner.parent][paths[owner.parent].index(above.parent) + 1]
    return owners[below].columns == tuple(mine.get(column) for column in above.columns)


def _is_among_members(key: FoundKey, owner: FoundKey, paths: dict[str, tuple[str, ...]]) -> bool:
    """Return whether a row of a group of persons, which is about none of them, refers to one: to a user of its account.

    Not where it is about a person: friends of persons are in other households.
    """
    unit, persons = paths[key.parent][0], paths[key.parent][-1]
    alone = not any(is_called_after_persons(name) for name in paths[owner.parent][1:])
    return ends_with(unit, _GROUPS) and len(paths[persons]) == _OF_UNIT and is_called_after_persons(persons) and alone


def _leading(table: FoundTable, known: set[str]) -> list[FoundKey]:
    return [key for key in table.foreign_keys if key.parent in known and key.parent != table.name]
