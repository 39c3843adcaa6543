"""Say of each table that no key connects with the unit why it may be public, and why that is in doubt.

Nothing here decides: whatever these sentences say or miss, a table is published only where its owner lists it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from privbench_core.backends.catalogue import Catalogue, FoundKey, FoundTable
from privbench_core.draft.keys import undeclared_references
from privbench_core.draft.personal import content_by_name, personal_columns
from privbench_core.draft.unit import dependants, may_be_shared

_LISTED = 3  # tables that refer to a table and are named; the others are counted; chosen by hand


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
    outside = tuple(t.name for t in catalogue.tables if not t.unreadable and t.name not in inside)
    scene = _Scene(catalogue, unit, inside, outside)
    doubts: dict[str, list[str]] = {name: [] for name in scene.outside}
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
    outside: tuple[str, ...]

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


def _one_per_unit(scene: _Scene) -> Iterator[tuple[str, str]]:
    """Yield the tables of which a unit may have a row of its own, as far as keys and unique columns say it."""
    like_units = {scene.unit}  # tables with at most one row per unit
    while (
        more := {
            table.name
            for table in scene.catalogue.tables
            for key in table.foreign_keys
            if key.parent in like_units and _is_single(table, key)
        }
        - like_units
    ):
        like_units |= more
    single: set[str] = set()
    found: dict[tuple[str, str], None] = {}
    size = -1
    while size != len(found):  # through tables outside that are single themselves
        size = len(found)
        for name in scene.outside:
            for table, key in scene.referring(name):
                columns = ", ".join(f"{table.name}.{column}" for column in key.columns)
                if _is_single(table, key) and table.name in scene.inside | single:
                    single.add(name)
                    found[
                        name, f"{columns} is unique, so each of its rows belongs to at most one row of {table.name}"
                    ] = None
                elif table.name in like_units:
                    found[
                        name,
                        f"{table.name} itself refers to it, so each of its rows may be about one row of {scene.unit}",
                    ] = None
    yield from found


def _personal(scene: _Scene) -> Iterator[tuple[str, str]]:
    for name in scene.outside:
        table = scene.catalogue.table(name)
        if what := content_by_name(table):
            yield name, f"its name suggests {what}"
        if phrases := personal_columns(table):
            yield name, f"it has {_listed(phrases)}"


def _shared(scene: _Scene) -> Iterator[tuple[str, str]]:
    """Yield what several units have together, as an account with its orders, and what depends on that."""
    for name in scene.outside:
        referring = list(dict.fromkeys(table.name for table, _ in scene.referring(name)))
        below = [other for other in referring if other in scene.inside - {scene.unit}]
        if scene.unit in referring and may_be_shared(name):  # else it is where a unit lives, or shops
            below = [scene.unit]
        beside = [other for other in referring if other in scene.outside]
        if below and beside:
            both = (
                f"both {_listed(below)} ({scene.unit} data) and {_listed(beside)} (not {scene.unit} data) refer to it"
            )
            todo = f"if its rows are about the same persons, draft again with --unit {name}, which protects them"
            yield name, f"{both}: {todo}"
            yield from _depending(scene, name)


def _not_looked_up(scene: _Scene) -> Iterator[tuple[str, str]]:
    parents = {table.name: {key.parent for key in table.foreign_keys} for table in scene.catalogue.tables}
    reached, more = set[str](), set(scene.inside)
    while more:
        reached |= more
        more = {above for name in more for above in parents.get(name, ())} - reached
    for name in scene.outside:
        if name not in reached:
            unit = scene.unit
            yield name, f"no foreign key leads to it from {unit} data either, so nothing says whose rows these are"


def _unread(scene: _Scene) -> Iterator[tuple[str, str]]:
    readable = {table.name for table in scene.catalogue.tables if not table.unreadable}
    for name in scene.outside:
        parents = {key.parent for key in scene.catalogue.table(name).foreign_keys}
        if unread := sorted(parents - readable):
            which = _listed(unread)
            yield name, f"it refers to {which}, which cannot be read here and may hold persons"
            yield from _depending(scene, name)


def _undeclared(scene: _Scene) -> Iterator[tuple[str, str]]:
    """Yield columns that are called like keys to tables of the unit's data, although no key says so."""
    known = [table for table in scene.catalogue.tables if table.name not in scene.outside]
    for name in scene.outside:
        for column, parent in undeclared_references(scene.catalogue.table(name), known):
            todo = f"if it refers to {parent}, add this foreign key instead of publishing the table"
            yield name, f"{column} is called after the key of {parent}: {todo}"


def _depending(scene: _Scene, name: str) -> Iterator[tuple[str, str]]:
    below = dependants(scene.catalogue, name)
    yield from ((other, f"it depends on {name}, which is in doubt") for other in scene.outside if other in below)


def _is_single(table: FoundTable, key: FoundKey) -> bool:
    """Return whether at most one row of a table refers to each row by this key."""
    return any(set(group) <= set(key.columns) for group in (table.primary_key, *table.unique) if group)


def _listed(names: list[str] | tuple[str, ...]) -> str:
    """Return names as a list in a sentence.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
