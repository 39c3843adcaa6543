"""Guess whose rows are protected, from names and the graph of keys; no guess where a wrong one is likely.

A wrong unit is a wrong promise, so tables of artists, hospitals or countries are never proposed, however many other
tables refer to them; nor is the only table of a source, unless it is called after persons or keyed like them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from privbench_core.backends.catalogue import Catalogue, FoundTable
from privbench_core.draft.personal import identifying_columns, is_called_after_persons, numbers_of_persons
from privbench_core.draft.words import words_of

# Whose data a database most often holds, in order of preference; the last word of a table's name, without its plural.
_SERVED = (
    r"(patient|customer|client|user|member|subscriber|student|pupil|passenger|voter|resident|tenant|donor|guest|"
    r"account ?holder|policy ?holder|citizen|respondent|participant)s?"
)
_EMPLOYED = r"(employee|staff|teacher|worker)s?"
_UNITS = (
    rf"(household|family|families|person|persons|people|individual|individuals|{_SERVED})",
    _EMPLOYED,
)
_SHARED = r"(account|contract|policy|policies|household|family|families|company|companies|tenant)s?"
# The primary key of such a table where the table is called otherwise (``hhpub``).
_KEY_OF_UNITS = re.compile(
    r"(hh|house|household|patient|customer|cust|client|user|member|person|respondent)_?(id|key|no)"
)


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
    readable = [table for table in catalogue.tables if not table.unreadable]
    for names in _UNITS:
        found = [table.name for table in readable if _is_called(table.name, names)]
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
    a key to another person, as to a patient's doctor, says nothing of the row's own. In any other table a name will do.
    """
    persons = is_called_after_persons(table)
    distinct: Iterable[tuple[str, ...]] = (table.primary_key, *table.unique)
    fixed = {name for group in distinct if len(group) == 1 for name in group}
    fixed |= {name for key in table.foreign_keys for name in key.columns} if persons else set()
    found = numbers_of_persons(table) if persons else identifying_columns(table)
    names = [] if persons else [column.name for column in table.columns if words_of(column.name) == "name"]
    return tuple(column.name for column in table.columns if column.name in {*found, *names} - fixed)


def may_be_shared(table: str) -> bool:
    """Return whether a table is called after what several units have together: an account rather than a store."""
    return _is_called(table, _SHARED)


def _is_called(table: str, names: str) -> bool:
    return bool(re.search(rf"(^| ){names}$", words_of(table)))
