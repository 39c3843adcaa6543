"""Say of each table that no key connects with the unit why it may be public, and why that is in doubt.

Nothing here decides: whatever these sentences say or miss, a table is published only where its owner lists it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from privbench_core.backends.catalogue import Catalogue, FoundKey, FoundTable
from privbench_core.draft.keys import undeclared_references
from privbench_core.draft.names import content_by_name, ends_with, personal_columns
from privbench_core.draft.units import dependants

_LISTED = 3  # tables that refer to a table and are named; the others are counted; chosen by hand
# What several units have together: an account rather than a store.
_SHARED = r"(account|contract|policy|policies|household|family|families|company|companies|tenant)s?"

Doubts = Iterator[tuple[str, str]]
"""Tables, and what speaks against publishing them: clauses, none of which has to be right."""


@dataclass(frozen=True)
class Candidate:
    """A table that its owner may publish.

    Attributes:
        table: Its name.
        reason: Why it may be public: a clause.
        doubts: What speaks against it: clauses, none of which has to be right.
    """

    table: str
    reason: str
    doubts: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Return reason and doubts for the owner."""
        doubts = f" In doubt: {'; '.join(self.doubts)}." if self.doubts else ""
        return f"{self.reason}.{doubts}"


def candidates(catalogue: Catalogue, unit: str) -> tuple[Candidate, ...]:
    """Return the tables that no key connects with the unit, in the order of the catalogue."""
    inside = frozenset(dependants(catalogue, unit) | {unit})
    scene = _Scene(catalogue, unit, inside, tuple(t for t in catalogue.readable if t.name not in inside))
    doubts: dict[str, list[str]] = {table.name: [] for table in scene.outside}
    for find in (_one_per_unit, _personal, _shared, _not_looked_up, _unread, _undeclared):
        for name, doubt in find(scene):
            doubts[name].append(doubt)
    return tuple(Candidate(name, _reason(scene, name), tuple(found)) for name, found in doubts.items())


@dataclass(frozen=True)
class _Scene:
    """A catalogue from the unit's point of view.

    Attributes:
        catalogue, unit: As given.
        inside: The unit and all tables that depend on it.
        outside: All other tables that can be read, in the order of the catalogue.
    """

    catalogue: Catalogue
    unit: str
    inside: frozenset[str]
    outside: tuple[FoundTable, ...]

    def referring(self, name: str) -> Iterator[tuple[FoundTable, FoundKey]]:
        """Yield the other tables that refer to a table, and their keys."""
        for table in self.catalogue.tables:
            yield from ((table, key) for key in table.foreign_keys if key.parent == name != table.name)


def _reason(scene: _Scene, name: str) -> str:
    names = list(dict.fromkeys(table.name for table, _ in scene.referring(name)))
    more = len(names) - _LISTED
    shown = names if more <= 0 else [*names[:_LISTED], f"{more} more table{'s' if more > 1 else ''}"]
    who = _listed(shown) if shown else "No table"
    return f"{who} refer{'' if len(names) > 1 else 's'} to it, and no foreign key leads from it to {scene.unit}"


def _one_per_unit(scene: _Scene) -> Doubts:
    """Yield the tables of which a unit may have a row of its own, as far as keys and unique columns say it."""
    single_keys = [(t.name, key.parent) for t in scene.catalogue.tables for key in t.foreign_keys if t.is_single(key)]
    like_units = {scene.unit}  # tables with at most one row per unit
    while more := {name for name, parent in single_keys if parent in like_units} - like_units:
        like_units |= more
    single: set[str] = set()
    found: dict[tuple[str, str], None] = {}
    size = -1
    while size != len(found):  # through tables outside that are single themselves
        size = len(found)
        for name in (table.name for table in scene.outside):
            for table, key in scene.referring(name):
                columns = ", ".join(f"{table.name}.{column}" for column in key.columns)
                if table.is_single(key) and table.name in scene.inside | single:
                    single.add(name)
                    doubt = f"{columns} is unique, so each of its rows belongs to at most one row of {table.name}"
                elif table.name in like_units:
                    doubt = (
                        f"{table.name} itself refers to it, so each of its rows may be about one row of {scene.unit}"
                    )
                else:
                    continue
                found[name, doubt] = None
    yield from found


def _personal(scene: _Scene) -> Doubts:
    for table in scene.outside:
        if what := content_by_name(table):
            yield table.name, f"its name suggests {what}"
        if phrases := personal_columns(table):
            yield table.name, f"it has {_listed(phrases)}"


def _shared(scene: _Scene) -> Doubts:
    """Yield what several units have together, as an account with its orders, and what depends on that."""
    unit, outside = scene.unit, {table.name for table in scene.outside}
    for name in (table.name for table in scene.outside):
        referring = list(dict.fromkeys(table.name for table, _ in scene.referring(name)))
        below = [other for other in referring if other in scene.inside - {unit}]
        if unit in referring and ends_with(name, _SHARED):  # else it is where a unit lives, or shops
            below = [unit]
        beside = [other for other in referring if other in outside]
        if below and beside:
            both = f"both {_listed(below)} ({unit} data) and {_listed(beside)} (not {unit} data) refer to it"
            todo = f"if its rows are about the same persons, draft again with --unit {name}, which protects them"
            yield name, f"{both}: {todo}"
            yield from _depending(scene, name)


def _not_looked_up(scene: _Scene) -> Doubts:
    parents = {table.name: {key.parent for key in table.foreign_keys} for table in scene.catalogue.tables}
    reached, more = set[str](), set(scene.inside)
    while more:
        reached |= more
        more = {above for name in more for above in parents.get(name, ())} - reached
    for name in (table.name for table in scene.outside):
        if name not in reached:
            unit = scene.unit
            yield name, f"no foreign key leads to it from {unit} data either, so nothing says whose rows these are"


def _unread(scene: _Scene) -> Doubts:
    readable = {table.name for table in scene.catalogue.readable}
    for table in scene.outside:
        parents = {key.parent for key in table.foreign_keys}
        if unread := sorted(parents - readable):
            yield table.name, f"it refers to {_listed(unread)}, which cannot be read here and may hold persons"
            yield from _depending(scene, table.name)


def _undeclared(scene: _Scene) -> Doubts:
    """Yield columns that are called like keys to tables of the unit's data, although no key says so."""
    known = [table for table in scene.catalogue.tables if table not in scene.outside]
    for table in scene.outside:
        for column, parent in undeclared_references(table, known):
            todo = f"if it refers to {parent}, add this foreign key instead of publishing the table"
            yield table.name, f"{column} is called after the key of {parent}: {todo}"


def _depending(scene: _Scene, name: str) -> Doubts:
    below = dependants(scene.catalogue, name)
    doubt = f"it depends on {name}, which is in doubt"
    yield from ((table.name, doubt) for table in scene.outside if table.name in below)


def _listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
