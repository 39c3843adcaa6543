"""Guess whose rows are protected and which keys lead to them, from names and the graph of keys.

A wrong unit is a wrong promise, so tables of artists, hospitals or countries are never proposed, however many other
tables refer to them; nor is the only table of a source, unless it is called after persons or keyed like them.

A bound on an owner key is enforced, so any number is safe and a proposal can stand. A bound on another key is a promise
of the owner's, which nobody can make for them: such keys stay to be decided, unless they may be declared ``same_unit``,
which is enforced.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from privbench_core.backends.catalogue import Catalogue, FoundKey, FoundTable
from privbench_core.draft.names import (
    ends_with,
    first_match,
    identifying_columns,
    is_called_after_persons,
    own_name,
    singular,
    words_of,
)

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
# Whose members work together, and with nobody of another one: those of a customer of software, and others.
_TENANTS = r"(account|organi[sz]ation|org|tenant|workspace)s?"
_GROUPS = rf"({_TENANTS}|company|companies|household|family|families)"
# What persons do to things of others: the user of a comment is not that of the post.
_REACTIONS = r"(comment|reply|replie|answer|vote|like|reaction|flag|share|bookmark|favou?rite)s?"
# The most rows of a table that one parent row has, by the last words of the table's name. Chosen by hand, generously:
# a few parents have most rows of many tables. An enforced bound that is too large costs some noise, one that is too
# small loses rows (with 50, a real site loses a quarter of its posts and votes); a promise that is too small is broken.
_USUAL = (
    (r"(line|item|detail|entry|position)s?", 500),
    (r"(address|addresse|phone|email|card|account|vehicle|car|child|person|people|member|resident|family)s?", 200),
    (r"(event|log|click|view|hit|session|message|measurement|reading|vital|lab|rating|vote|track|play)s?", 5000),
    (r"(lab(?!el|ou?r)|vital|nurse|med(?!al|ia|ium)|drug) ?\w*", 5000),
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

    It is a table of persons, or that of the tenants they belong to, if rows that are no person's belong to these.
    """
    persons = _guess_persons(catalogue)
    some = [persons] if persons else [table.name for table in catalogue.readable if is_called_after_persons(table.name)]
    return next((found for name in some if (found := _tenants_of(catalogue, name))), persons)


def why_unit(catalogue: Catalogue, unit: str) -> str:
    """Return in words why a table is the guess of `guess_unit`."""
    members = [table.name for table in catalogue.readable if unit == _tenants_of(catalogue, table.name)]
    persons = next(filter(is_called_after_persons, members), None)
    if persons is None:
        return "guessed from the names"
    more = len(_gained(catalogue, unit, persons))
    without = f"{more} more {'table would belong' if more == 1 else 'tables would belong'} to no unit"
    return f"guessed: each row of {persons} belongs to one; with the unit {persons}, {without}"


def most_cover(catalogue: Catalogue) -> str:
    """Return in words which tables could be the unit: of persons first, those with the most tables below them."""
    others = len(catalogue.readable) - 1
    covered = {table.name: len(dependants(catalogue, table.name)) for table in catalogue.readable}
    some = [name for name, number in covered.items() if number]
    # Three are named; chosen by hand.
    best = sorted(some, key=lambda name: (not is_called_after_persons(name), -covered[name]))[:3]
    return ", ".join(f"{name} ({covered[name]} of {others})" for name in best)


def _tenants_of(catalogue: Catalogue, persons: str) -> str | None:
    """Return the table of tenants that each of some persons belongs to, if other tables belong to it alone."""
    table = catalogue.table(persons)
    above = [key.parent for key in table.foreign_keys if not table.is_optional(key) and ends_with(key.parent, _TENANTS)]
    return next((name for name in above if _gained(catalogue, name, persons)), None)


def _gained(catalogue: Catalogue, tenants: str, persons: str) -> set[str]:
    return dependants(catalogue, tenants) - dependants(catalogue, persons) - {persons}


def _guess_persons(catalogue: Catalogue) -> str | None:
    """Return the table of the persons whose data a database probably holds, None where names and keys do not say.

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
    tenants = ends_with(table.name, _TENANTS)
    names = [] if persons or tenants else [column.name for column in table.columns if words_of(column.name) == "name"]
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
    why: str = ""  # why it is the owner key, where another one could be
    bound: int | None = None  # the proposed one; None for a key that needs none
    per_unit: bool = False  # whether it bounds the rows that refer to all rows of one unit, rather than to one row
    may_stay: bool = False  # whether a row of a required key would remain what it is without its reference
    stays: bool = False  # whether it does, when the row that it refers to goes with its unit: the owner's decision

    @property
    def noise_in_words(self) -> str:
        """What the proposed bound does to the table's noise where rows go with what they refer to: see `stability`."""
        return f"with {self.bound or 1:,}, noise is {1 + 2 * (self.bound or 1):,} times as large"


KeyPlace = tuple[str, tuple[str, ...], str]
"""A key by its table, columns and parent: two keys may be on the same columns."""
Roles = Mapping[KeyPlace, Role]


def propose_roles(catalogue: Catalogue, unit: str) -> Roles:
    """Return the role of every key between private tables; keys to public tables have none.

    The owner key is the one whose parent the row is about, as `_claims` ranks them.

    Args:
        catalogue: All tables.
        unit: The table whose rows are protected; tables that no key leads from there are taken to be public.
    """
    inside = dependants(catalogue, unit) | {unit}
    tables = {table.name: table for table in catalogue.tables if table.name in inside}
    paths: dict[str, tuple[str, ...]] = {unit: (unit,)}
    owners: dict[str, FoundKey] = {}
    reasons: dict[str, str] = {}
    telling = {name: catalogue.without_implied(table.foreign_keys)[0] for name, table in tables.items()}
    waiting = [name for name in tables if name != unit]

    def leading_to(name: str, known: set[str]) -> list[FoundKey]:
        return [key for key in telling[name] if key.parent in known and key.parent != name]

    while waiting:
        settled = (name for name in waiting if all(key.parent in paths for key in leading_to(name, inside)))
        ready = next(settled, None) or next(name for name in waiting if leading_to(name, set(paths)))
        table, leading = tables[ready], leading_to(ready, set(paths))

        def cost(owner: FoundKey, table: FoundTable = table, leading: Sequence[FoundKey] = leading) -> int:
            roles = [_role(table, key, owners | {table.name: owner}, paths) for key in leading]
            return sum(role.undecided and not table.is_optional(key) for key, role in zip(leading, roles, strict=True))

        claims = {key: _claims(table, key, paths, cost(key)) for key in leading}
        owner = max(leading, key=lambda key: [value for value, _ in claims[key]])
        owners[ready], paths[ready] = owner, (*paths[owner.parent], ready)
        reasons[ready] = _why(claims.pop(owner), claims.values())
        waiting.remove(ready)
    return {
        (table.name, key.columns, key.parent): replace(
            _role(table, key, owners, paths), why=reasons.get(table.name, "") if key == owners.get(table.name) else ""
        )
        for table in tables.values()
        for key in table.foreign_keys
        if key.parent in inside
    }


Claims = tuple[tuple[int, str], ...]
"""What makes a key the owner key, the most important first: how much it has of each, and what in words."""


def _claims(table: FoundTable, key: FoundKey, paths: Mapping[str, tuple[str, ...]], cost: int) -> Claims:
    """Return what speaks for a key as the owner key of its table, of what anyone may know.

    A row is about the most detailed thing that it has to refer to: a payment about a rental rather than about its
    customer. A junction that names the unit in its own key is about that (a membership about the account).

    Args:
        table: Its table.
        key: The key.
        paths: Table -> the tables on the way from the unit to it.
        cost: How many required keys would reach into other units if this one were the owner key.
    """
    unit, referring = paths[key.parent][0], {name for other in table.foreign_keys for name in other.columns}
    groups = (group for group in (table.primary_key, *table.unique) if set(group) > set(key.columns))
    direct = key.parent == unit and any(referring.issuperset(group) for group in groups)
    called, parent = words_of(own_name(table.name)), words_of(singular(key.parent))
    others = any(other is not key and other.parent == key.parent for other in table.foreign_keys)
    place = -min((table.primary_key.index(name) for name in key.columns if name in table.primary_key), default=99)
    return (
        (not table.is_optional(key), "this key is never NULL"),
        (direct, f"this key is part of a key of {table.name} and leads straight to {unit}"),
        (-cost, "other keys then stay within one unit and add no noise"),
        (not others, f"{table.name} refers to one row of {key.parent}, and to several of others"),
        (len(paths[key.parent]), f"{key.parent} is the most detailed: the furthest from {unit}"),
        (called.startswith(parent), f"{table.name} is named after {key.parent}"),
        (not is_called_after_persons(key.parent), f"{key.parent} is a thing, not a person who deals with it"),
        (place, f"{', '.join(key.columns)} stands first in the primary key"),
    )


def _why(claims: Claims, others: Iterable[Claims]) -> str:
    """Return what put the claims of a key before those of the next one; nothing where there is none."""
    second = max(others, key=lambda other: [value for value, _ in other], default=claims)
    return next((why for (value, why), (most, _) in zip(claims, second, strict=True) if value > most), "")


def _role(table: FoundTable, key: FoundKey, owners: dict[str, FoundKey], paths: dict[str, tuple[str, ...]]) -> Role:
    owner = owners.get(table.name)
    single = table.is_single(key)
    bound = None if single else first_match(table.name, _USUAL) or _USUAL_OF_OTHERS
    if key == owner:
        return Role(owner=True, bound=bound)
    # A column of the same name on the way from the owner to the unit: the same row most probably, and enforced.
    reaction = ends_with(table.name, _REACTIONS) and is_called_after_persons(key.parent)
    if owner is not None and key.parent in paths[owner.parent][:-1] and not reaction:
        below = paths[owner.parent][paths[owner.parent].index(key.parent) + 1]
        if owners[below].columns == key.columns:
            return Role(same_unit=True)
    if owner is not None and (
        _shares_owner(key, owner, owners)
        or _meets_below_unit(key, owner, paths)
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


def _meets_below_unit(key: FoundKey, owner: FoundKey, paths: dict[str, tuple[str, ...]]) -> bool:
    """Return whether both ways to the unit go through one table below it, or below a tenant: a ticket and its label.

    Both parents are probably of one row of that table: a ticket has labels of its project. Not where one of them is a
    table of persons, or of the unit's rows.
    """
    first, second = paths[owner.parent][:-1], paths[key.parent][:-1]
    unit = paths[key.parent][0]
    shared = first[-1:] == second[-1:] and owner.parent != key.parent
    persons = any(is_called_after_persons(name) for name in (*paths[owner.parent][1:], *paths[key.parent][1:]))
    return shared and not persons and (first[-1] != unit or ends_with(unit, _TENANTS))


def _names_owner(
    key: FoundKey, owner: FoundKey, owners: dict[str, FoundKey], paths: dict[str, tuple[str, ...]]
) -> bool:
    """Return whether a row names the owner of what it refers to by columns called so on its own way to the unit."""
    above, way = owners.get(key.parent), paths[owner.parent]
    if above is None or above.parent not in way:
        return False
    mine = dict(zip(key.parent_columns, key.columns, strict=True))
    down = owner if above.parent == owner.parent else owners[way[way.index(above.parent) + 1]]
    return down.columns == tuple(mine.get(column) for column in above.columns)


def _is_among_members(key: FoundKey, owner: FoundKey, paths: dict[str, tuple[str, ...]]) -> bool:
    """Return whether a row of a group of persons, which is about none of them, refers to one: to a user of its account.

    Not where it is about a person: friends of persons are in other households.
    """
    unit, persons = paths[key.parent][0], paths[key.parent][-1]
    alone = not any(is_called_after_persons(name) for name in paths[owner.parent][1:])
    # Their table is the first below the unit.
    return ends_with(unit, _GROUPS) and len(paths[persons]) == 2 and is_called_after_persons(persons) and alone  # noqa: PLR2004
