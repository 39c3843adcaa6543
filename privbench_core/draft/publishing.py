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

# What several units have together: an account rather than a store.
_SHARED = r"(account|contract|policy|policies|household|family|families|company|companies|tenant)s?"

Doubts = Iterator[tuple[str, str]]
"""Tables, and what speaks against publishing them: clauses, none of which has to be right."""


@dataclass(frozen=True)
class Candidate:
    """A table that its owner may publish."""

    table: str
    reason: str  # why it may be public: a clause
    doubts: tuple[str, ...]  # what speaks against it: clauses, none of which has to be right

    @property
    def sentence(self) -> str:
        """Return reason and doubts for the owner."""
        doubts = f" In doubt: {'; '.join(self.doubts)}." if self.doubts else ""
        return f"{self.reason}.{doubts}"


def candidates(catalogue: Catalogue, unit: str) -> tuple[Candidate, ...]:
    """Return the tables that no key connects with the unit, in the order of the catalogue."""
    inside = frozenset(dependants(catalogue, unit) | {unit})
    view = _View(catalogue, unit, inside, tuple(t for t in catalogue.readable if t.name not in inside))
    doubts: dict[str, list[str]] = {table.name: [] for table in view.outside}
    for find in (view.one_per_unit, view.personal, view.shared, view.not_looked_up, view.unread, view.undeclared):
        for name, doubt in find():
            doubts[name].append(doubt)
    return tuple(Candidate(name, view.reason(name), tuple(found)) for name, found in doubts.items())


@dataclass(frozen=True)
class _View:
    """A catalogue from the unit's point of view."""

    catalogue: Catalogue
    unit: str
    inside: frozenset[str]  # the unit and all tables that depend on it
    outside: tuple[FoundTable, ...]  # all other tables that can be read, in the order of the catalogue

    def reason(self, name: str) -> str:
        names = list(dict.fromkeys(table.name for table, _ in self._referring(name)))
        more = len(names) - 3
        shown = names if more <= 0 else [*names[:3], f"{more} more table{'s' if more > 1 else ''}"]
        who = f"{_listed(shown) if shown else 'No table'} refer{'' if len(names) > 1 else 's'}"
        return f"{who} to it, and no foreign key leads from it to {self.unit}"

    def one_per_unit(self) -> Doubts:
        """Yield the tables of which a unit may have a row of its own, as far as keys and unique columns say it."""
        single_keys = [
            (t.name, key.parent) for t in self.catalogue.tables for key in t.foreign_keys if t.is_single(key)
        ]
        like_units = {self.unit}  # tables with at most one row per unit
        while more := {name for name, parent in single_keys if parent in like_units} - like_units:
            like_units |= more
        single: set[str] = set()
        found: dict[tuple[str, str], None] = {}
        size = -1
        while size != len(found):  # through tables outside that are single themselves
            size = len(found)
            for name in (table.name for table in self.outside):
                for table, key in self._referring(name):
                    columns = ", ".join(f"{table.name}.{column}" for column in key.columns)
                    if table.is_single(key) and table.name in self.inside | single:
                        single.add(name)
                        doubt = f"{columns} is unique, so each of its rows belongs to at most one row of {table.name}"
                    elif table.name in like_units:
                        about = f"so each of its rows may be about one row of {self.unit}"
                        doubt = f"{table.name} itself refers to it, {about}"
                    else:
                        continue
                    found[name, doubt] = None
        yield from found

    def personal(self) -> Doubts:
        for table in self.outside:
            if what := content_by_name(table):
                yield table.name, f"its name suggests {what}"
            if phrases := personal_columns(table):
                yield table.name, f"it has {_listed(phrases)}"

    def shared(self) -> Doubts:
        """Yield what several units have together, as an account with its orders, and what depends on that."""
        unit, outside = self.unit, {table.name for table in self.outside}
        for name in (table.name for table in self.outside):
            referring = list(dict.fromkeys(table.name for table, _ in self._referring(name)))
            below = [other for other in referring if other in self.inside - {unit}]
            if unit in referring and ends_with(name, _SHARED):  # else it is where a unit lives, or shops
                below = [unit]
            others = [other for other in referring if other in outside]
            if below and others:
                both = f"both {_listed(below)} ({unit} data) and {_listed(others)} (not {unit} data) refer to it"
                todo = f"if its rows are about the same persons, draft again with --unit {name}, which protects them"
                yield name, f"{both}: {todo}"
                yield from self._depending(name)

    def not_looked_up(self) -> Doubts:
        parents = {table.name: {key.parent for key in table.foreign_keys} for table in self.catalogue.tables}
        reached, more = set[str](), set(self.inside)
        while more:
            reached |= more
            more = {above for name in more for above in parents.get(name, ())} - reached
        for name in (table.name for table in self.outside):
            if name not in reached:
                whose = "so nothing says whose rows these are"
                yield name, f"no foreign key leads to it from {self.unit} data either, {whose}"

    def unread(self) -> Doubts:
        readable = {table.name for table in self.catalogue.readable}
        for table in self.outside:
            parents = {key.parent for key in table.foreign_keys}
            if unread := sorted(parents - readable):
                yield table.name, f"it refers to {_listed(unread)}, which cannot be read here and may hold persons"
                yield from self._depending(table.name)

    def undeclared(self) -> Doubts:
        """Yield columns that are called like keys to tables of the unit's data, although no key says so."""
        known = [table for table in self.catalogue.tables if table not in self.outside]
        for table in self.outside:
            for column, parent in undeclared_references(table, known):
                todo = f"if it refers to {parent}, add this foreign key instead of publishing the table"
                yield table.name, f"{column} is named like the key of {parent}: {todo}"

    def _referring(self, name: str) -> Iterator[tuple[FoundTable, FoundKey]]:
        """Yield the other tables that refer to a table, and their keys."""
        for table in self.catalogue.tables:
            yield from ((table, key) for key in table.foreign_keys if key.parent == name != table.name)

    def _depending(self, name: str) -> Doubts:
        below = dependants(self.catalogue, name)
        doubt = f"it depends on {name}, which is in doubt"
        yield from ((table.name, doubt) for table in self.outside if table.name in below)


def _listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
