"""The catalogue of PostgreSQL: all schemas of its users that hold tables, unless the URL or the owner names some.

Read from ``pg_catalog``, which every login may read, and not from ``information_schema``, which hides what a login has
no rights on: so a table that cannot be read is reported, and not silently missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from privbench_core.backends.catalogue import (
    Catalogue,
    FoundColumn,
    FoundKey,
    FoundTable,
    FoundView,
    enums_of,
    found_column,
)
from privbench_core.backends.expressions import readable
from privbench_core.backends.postgres import qualified
from privbench_core.backends.postgres.queries import QUERIES, SCHEMAS
from privbench_core.errors import SourceError, did_you_mean
from privbench_core.schema.columns import ColumnType, Generated, IdentitySequence
from privbench_core.schema.constraints import Check, Index, usual_name
from privbench_core.schema.partitions import Heir, HeirKey, Partition, Partitioning
from privbench_core.schema.tables import View, split_name
from privbench_core.schema.types.registry import parse_sql_type
from privbench_core.spec.location import describe, open_engine

if TYPE_CHECKING:
    from sqlalchemy import URL

    Enums = Mapping[tuple[str, str], str]

_ACTIONS = {"r": "RESTRICT", "c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}
_ENUM_TEXT = re.compile(r"('(?:[^']|'')*')::.*")


def postgres_catalogue(url: URL, schemas: Sequence[str] = ()) -> Catalogue:
    """Return the tables of a database, those that the login may not read included and marked.

    Args:
        url: The database. If it names a schema, the tables are those of that schema.
        schemas: Those to read; empty for all that users have made, the current one first.

    Raises:
        SourceError: The server refuses, or there is no such schema, or none that the login may use.
    """
    import sqlalchemy as sa

    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            there = connection.execute(sa.text(SCHEMAS)).fetchall()
            current = tuple(row.name for row in there if row.current)
            chosen = tuple(dict.fromkeys(schemas)) or _all_schemas(there, current, url)
            given = {"schemas": list(chosen)}
            found = {name: connection.execute(sa.text(query), given).fetchall() for name, query in QUERIES.items()}
    except sa.exc.SQLAlchemyError as error:
        kind = type(getattr(error, "orig", None) or error).__name__
        raise SourceError(
            f"source: the catalogue of {describe(url)} cannot be read ({kind}); check your rights"
        ) from None
    finally:
        engine.dispose()
    for name in schemas:
        if name not in [row.name for row in there]:
            known = [row.name for row in there if row.filled]
            raise SourceError(f"source: {describe(url)} has no schema {name}; {did_you_mean(name, known)}")
    if not chosen:
        todo, path = "grant USAGE on it, or name another with ?schema=", there[0].path
        raise SourceError(f"source: {describe(url)} has no schema that the login may use; {todo} (looked for: {path})")
    enums = _enum_names(found["columns"], chosen)
    reflected = {row.called: _Reflected(row, chosen, enums) for row in found["tables"]}
    for row in found["tables"]:
        if split_name(row.called, chosen)[1] != row.relname:
            raise SourceError(
                f"source: {row.called} could be a table of either of two schemas; choose schemas with --schemas"
            )
    for kind in ("partitions", "columns", "domain_checks", "constraints", "indexes"):
        for row in found[kind]:
            getattr(reflected[row.called], kind).append(row)
    heirs = {row.written: reflected[row.called] for row in found["tables"] if row.is_heir}
    tables = tuple(each.table(heirs) for each in reflected.values() if not each.about.is_heir)
    unread = [row for row in there if row.filled and row.name not in chosen and not _names_schema(url)]
    denied = "which this login may not use; grant USAGE on it"
    notes = [f"the schema {row.name}, {'as you decided' if row.usable else denied}" for row in unread]
    name = there[0].database if len(chosen) > 1 or chosen == ("public",) else chosen[0]
    spread = () if chosen == current else chosen
    views = tuple(
        FoundView(
            View(row.called, row.definition.strip(), row.materialized), row.needs, tuple(map(tuple, row.reads or ()))
        )
        for row in found["views"]
    )
    others = tuple((row.kind, row.called) for row in found["others"])
    return Catalogue(name, tables, enums_of(tables), tuple(notes), schemas=spread, views=views, others=others)


def _names_schema(url: URL) -> bool:
    return "search_path" in str(url.query.get("options", ""))


def _all_schemas(there: Sequence[Any], current: tuple[str, ...], url: URL) -> tuple[str, ...]:
    """Return the schemas to read where nobody lists them: the one of the URL, or all with tables.

    The first is the current one even if it has no table, so that all others keep their names in a bundle.
    """
    filled = tuple(row.name for row in there if row.filled and row.usable)
    if _names_schema(url) or set(filled) <= set(current):
        return current
    return tuple(dict.fromkeys((*(current or ("public",)), *filled)))


def _enum_names(columns: Iterable[Any], schemas: Sequence[str]) -> Enums:
    """Return what the enums are called in a spec: as tables are, and with their schema where two would be the same."""
    used = {(row.home, row.enum) for row in columns if row.enum is not None}
    homes = {name: {home for home, other in used if other == name} for _, name in used}
    named = {(home, name): name if homes[name] == {home} else f"{home}_{name}" for home, name in used}
    own = {(home, name): name if home == schemas[0] else f"{home}.{name}" for home, name in used if home in schemas}
    return named | own


@dataclass
class _Reflected:
    """The rows of the catalogue about one table, and notes on what a benchmark cannot have of it."""

    about: Any
    schemas: Sequence[str]
    enums: Enums
    partitions: list[Any] = field(default_factory=list)
    columns: list[Any] = field(default_factory=list)
    domain_checks: list[Any] = field(default_factory=list)
    constraints: list[Any] = field(default_factory=list)
    indexes: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: dict[tuple[str, ...], str] = field(default_factory=dict)  # of keys, where they are not the usual ones
    read_as: dict[str, str] = field(default_factory=dict)  # columns that a benchmark has in another type

    def table(self, others: Mapping[str, _Reflected]) -> FoundTable:
        """Return the table, given all tables that inherit by their names in SQL."""
        name = self.about.called
        self._note(self.about.indexes, f"the indexes {self.about.indexes}, which only partitions of {name} have")
        self._note(self.about.guarded, f"the row security of {name}, which may hide rows from this login")
        columns = tuple(self._column(row) for row in self.columns if not row.generated)
        strange = (column for column in columns if column.type and column.note and not parse_sql_type(column.native))
        self.read_as = {c.name: f"{c.native} of {c.name}, which is read as {c.type}" for c in strange}
        generated = [self._generated(row) for row in self.columns if row.generated]
        primary = next((self._key_columns(row) for row in self.constraints if row.kind == "p"), ())
        indexes = [row for row in self.indexes if self._fits(row)]
        named = [(row, self._key_columns) for row in self.constraints if row.kind == "u"]
        named += [(row, self._unique_index) for row in indexes if row.is_unique]
        unique = [read(row) for row, read in sorted(named, key=lambda pair: pair[0].name)]
        keys, partitioned = tuple(self._foreign_keys()), self._partitioned()
        self.notes += [f"the exclusion constraint {row.name}" for row in self.constraints if row.kind == "x"]
        usable = {column.name: column.type.logical.textual for column in columns if column.type}
        textual = [name for name, is_textual in usable.items() if is_textual]
        checks = sorted(self._checks(usable, textual), key=lambda check: check.name)
        heirs = {each: others[each].heir(self, usable, textual) for each in self.about.heirs if each in others}
        merged = [each for each in self.about.heirs if not heirs.get(each)]
        lost = f", without the columns {self.about.of_heirs}" if self.about.of_heirs else ""
        self._note(merged, f"the tables {', '.join(merged)}, which inherit from {name}: their rows are here{lost}")
        of_merged = ", ".join(row.name for each in merged if each in others for row in others[each].indexes)
        self._note(of_merged, f"the indexes {of_merged} of these tables")
        return FoundTable(
            name,
            columns,
            primary,
            keys,
            tuple(dict.fromkeys(unique)),
            tuple(checks),
            tuple(self._index(row, textual) for row in indexes if not row.is_unique),
            self.about.comment,
            notes=tuple(self.notes),
            unreadable=bool(self.columns) and not any(row.readable for row in self.columns),
            key_names=tuple(self.names.items()),
            generated=tuple(found for found in generated if found is not None),
            partitioned=partitioned,
            heirs=tuple(heir for heir in heirs.values() if heir is not None),
        )

    def heir(self, above: _Reflected, usable: Iterable[str], textual: list[str]) -> Heir | None:
        """Return the table as an heir of another one; None if nothing decides which rows it has.

        So it has checks of its own, all of which a benchmark can have, no columns of its own, and neither other parents
        nor heirs.
        """
        self.read_as = above.read_as
        checks = tuple(self._checks(usable, textual))
        is_simple = self.about.inherits == [above.about.written] and not self.about.has_heirs
        listed, own = sum(row.kind == "c" for row in self.constraints), len(self.columns) - len(above.columns)
        if not (checks and len(checks) == listed and is_simple and own == 0):
            return None
        indexes = [row for row in self.indexes if self._fits(row)]
        keys = [(self._key_columns(row), row.name) for row in self.constraints if row.kind in {"p", "u"}]
        keys += [(self._unique_index(row), row.name) for row in indexes if row.is_unique]
        foreign = tuple(HeirKey(key.columns, key.constraint, key.actions) for key in self._foreign_keys())
        above.notes += self.notes
        return Heir(
            self.about.called,
            checks,
            tuple(keys),
            foreign,
            tuple(self._index(row, textual) for row in indexes if not row.is_unique),
            self.about.comment,
        )

    def _note(self, is_lost: object, what: str) -> None:
        if is_lost:
            self.notes.append(what)

    def _local(self, expression: str) -> str:
        """Return an expression of the source for a database where its schemas and domains are not.

        Casts to an enum of another schema become ones to the enum of the spec; those that take a column out of its
        domain have nothing to do.
        """
        for row in self.columns:
            native = re.escape(re.sub(r"\(.*?\)", "", row.native))
            if row.domain and row.enum is None:
                pattern = rf"\({re.escape(row.quoted)}\)::{native}(?![\w(\[]| with| varying)"
                expression = re.sub(pattern, row.quoted.replace("\\", r"\\"), expression)
            elif row.enum is not None and "." in row.native:
                cast = f"::{qualified(self.enums[row.home, row.enum], self.schemas)}".replace("\\", r"\\")
                expression = re.sub(rf"::{re.escape(row.native)}(?![\w.\[\"])", cast, expression)
        return expression

    def _column(self, row: Any) -> FoundColumn:
        if row.enum is not None:
            named, values = self.enums[row.home, row.enum], tuple(row.labels)
            column = FoundColumn(row.name, ColumnType.CATEGORY, row.native, row.nullable, sql_type=named, values=values)
        else:
            column = found_column(row.name, row.native, nullable=row.nullable)
        if not row.readable:
            return replace(column, type=None, note="may not be read by this login; grant SELECT on it, or do without")
        if column.type is None:
            return column
        domain = f"the name of the domain {row.domain}, the type of {row.name}; its own type and checks are kept"
        self._note(row.domain, domain)
        self._note(row.collation, f"the collation {row.collation} of {row.name}")
        column = replace(column, comment=row.comment)
        if not row.identity and not (row.written or "").startswith("nextval("):
            if row.needs and row.written is not None:
                self.notes.append(f"the default of {row.name}, which needs the {row.needs}")
                return column
            text = _ENUM_TEXT.fullmatch(row.written) if row.enum is not None and row.written else None
            return replace(column, default=text[1] if text else row.written)
        if row.nullable or column.type is not ColumnType.INTEGER:
            self.notes.append(f"the numbering of {row.name}, which may be NULL or is not an integer")
            return column
        return replace(column, identity=True, sequence=self._numbering(row))

    def _numbering(self, row: Any) -> IdentitySequence | None:
        """Return how an identity is numbered, None for the usual way."""
        always = row.identity == "a"
        if row.sequence is None:
            self.notes.append(f"the shared sequence of {row.name}, which gets its own")
            return IdentitySequence(always=always) if always else None
        is_plain = row.plain and row.increment >= 1
        self._note(not is_plain, f"the bounds, cache or direction of the sequence {row.sequence}")
        name = None if row.sequence == usual_name(self.about.relname, (row.name,), "seq") else row.sequence
        found = IdentitySequence(name, max(1, row.increment), always)
        return None if found == IdentitySequence() else found

    def _generated(self, row: Any) -> tuple[Generated, tuple[str, ...]] | None:
        """Return a computed column with those that it is computed from; None if a benchmark cannot have it."""
        named = self.enums.get((row.home, row.enum or ""))
        needs = row.needs or self._other_type(row.made_of)
        if needs or (named is None and row.home != "pg_catalog"):
            self.notes.append(f"the computed column {row.name}, which needs the {needs or f'type {row.native}'}")
            return None
        self._note(row.generated != "s", f"VIRTUAL of {row.name}, which is computed when a row is stored")
        written = self._local(row.written)
        found = Generated(row.name, named or row.native, written, nullable=row.nullable, comment=row.comment)
        return found, tuple(row.made_of or ())

    def _partitioned(self) -> Partitioning | None:
        """Return how the table is partitioned; None if it is not, or a benchmark cannot be."""
        if self.about.partitioned is None:
            return None
        needs = next((row.needs for row in self.partitions if row.needs), None)
        if needs or not self.partitions:
            why = f"which needs the {needs}" if needs else "as it has no partition"
            self.notes.append(f"the partitioning of {self.about.called}, {why}")
            return None
        columns = dict.fromkeys(name for row in self.partitions for name in row.columns or ())
        parts = (
            Partition(row.name, row.bounds, row.above if row.level > 1 else None, row.by) for row in self.partitions
        )
        return Partitioning(self.about.partitioned, tuple(columns), tuple(parts))

    def _key_columns(self, row: Any) -> tuple[str, ...]:
        """Return the columns of a primary or unique key."""
        of, end = ((), "pkey") if row.kind == "p" else (tuple(row.columns), "key")
        if row.name != usual_name(self.about.relname, of, end):
            self.names.setdefault(tuple(row.columns), row.name)
        self._note(row.deferrable, f"DEFERRABLE of the constraint {row.name}")
        self._note(row.includes, f"the INCLUDE of the constraint {row.name}")
        self._note(row.nulls_clash == "true", f"the NULLS NOT DISTINCT of the constraint {row.name}")
        return tuple(row.columns)

    def _other_type(self, columns: Iterable[str] | None) -> str | None:
        """Return the type of a column that a benchmark has in another one, where its functions and operators fail."""
        return next((f"type {self.read_as[name]}" for name in columns or () if name in self.read_as), None)

    def _fits(self, row: Any) -> bool:
        """Return whether an index can be taken over."""
        needs = row.needs or (None if row.definition == row.usual else self._other_type(row.made_of))
        reason = f"needs the {needs}" if needs else None
        if not row.valid:
            reason = "is not valid"
        elif not row.made_of:
            reason = "is on no column"
        elif row.is_unique and (row.expressions or row.predicate is not None):
            kind = "is partial" if row.predicate is not None else "is on an expression"
            reason = f"{kind} and unique, and synthetic rows would violate it"
        self._note(reason, f"the index {row.name}, which {reason}")
        return reason is None

    def _unique_index(self, row: Any) -> tuple[str, ...]:
        """Return the columns of a unique index, which becomes a unique key of the same name."""
        group = tuple(row.columns)
        if row.name != usual_name(self.about.relname, group, "key"):
            self.names.setdefault(group, row.name)
        self._note(row.definition != row.usual, f"the form of the unique index {row.name}, {row.definition}")
        return group

    def _index(self, row: Any, textual: list[str]) -> Index:
        if row.definition == row.usual:
            return Index(row.name, tuple(row.columns))
        using = row.definition
        if row.predicate is not None and using.endswith(f" WHERE {row.predicate}"):
            condition = readable(self._local(row.predicate), textual)
            using = f"{self._local(using.removesuffix(f' WHERE {row.predicate}'))} WHERE {condition}"
        else:
            using = self._local(using)
        return Index(row.name, tuple(sorted(row.made_of)), using)

    def _foreign_keys(self) -> Iterator[FoundKey]:
        """Yield the keys of the table, then those that only partitions declare, once each: they too say whose rows."""
        seen = set()
        for row in self.constraints:
            if row.kind != "f":
                continue
            if row.parent is None:
                self.notes.append(f"the foreign key {row.name} to {row.target}, which is not read")
                continue
            key = self._foreign_key(row)
            if not row.of_partition:
                yield key
            elif (key.columns, key.parent) not in seen:
                only = f"the limit of the foreign key {row.name} to some partitions"
                self.notes.append(f"{only}; here it holds for all of {row.called}")
                yield replace(key, constraint=None)
            seen.add((key.columns, key.parent))

    def _foreign_key(self, row: Any) -> FoundKey:
        events = {"UPDATE": row.on_update, "DELETE": row.on_delete}
        clauses = [f"ON {event} {_ACTIONS[code]}" for event, code in events.items() if code in _ACTIONS]
        if row.deferrable:
            clauses.append("DEFERRABLE INITIALLY DEFERRED" if row.deferred else "DEFERRABLE")
        columns = tuple(row.columns)
        self._note(row.match == "f" and len(columns) > 1, f"the MATCH FULL of the foreign key {row.name}")
        self._note(row.set_columns, f"the list of columns that the foreign key {row.name} sets on delete; all are set")
        self._note(not row.valid, f"NOT VALID of the foreign key {row.name}")
        name = None if row.name == usual_name(row.relname, columns, "fkey") else row.name
        return FoundKey(columns, row.parent, tuple(row.parent_columns), name, " ".join(clauses) or None)

    def _checks(self, usable: Iterable[str], textual: list[str]) -> Iterator[Check]:
        """Yield the checks of the table, and those of its columns' domains with the column for VALUE."""
        for row in self.constraints:
            if row.kind != "c":
                continue
            if row.alone and self.about.heirs:
                self.notes.append(f"the check {row.name}, which does not hold for the tables that inherit")
                continue
            missing = ", ".join(sorted(set(row.columns or ()).difference(usable)))
            needs = row.needs or self._other_type(row.columns)
            if needs or missing:
                reason = f"which needs {missing}" if missing else f"which needs the {needs}"
                self.notes.append(f"the check {row.name}, {reason}")
            else:
                self._note(not row.valid, f"NOT VALID of the check {row.name}")
                yield Check(row.name, readable(self._local(row.expression), textual))
        for row in self.domain_checks:
            if needs := row.needs or self._other_type([row.column]):
                self.notes.append(f"the check {row.name} of the domain of {row.column}, which needs the {needs}")
            elif row.column in usable:
                about = row.quoted.join(re.split(r"\bVALUE\b", row.expression))
                yield Check(f"{row.column}_{row.name}", readable(self._local(about), textual))
