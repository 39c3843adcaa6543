"""Tables, and the schema that they make up: who owns whose rows, and what is sampled before what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from privbench_core.errors import InternalError, SpecError, did_you_mean
from privbench_core.schema.columns import Column, EnumType, Generated, Pattern
from privbench_core.schema.constraints import Check, Dependency, ForeignKey, Index, reachable
from privbench_core.schema.documents import Leaf, find_leaf
from privbench_core.schema.partitions import Heir, Partitioning
from privbench_core.schema.queried import Queried

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Table:
    """One table: columns in source order, keys as tuples of column names.

    Attributes:
        public: Whether anyone may see its rows: they are published as they are.
        empty: Whether its rows are neither read nor published, so that it has none; it is public then, see `emptied`.
        unique: Column sets that no two rows share, the primary key left out.
        checks, comment: As the source has them.
        indexes: Those that no constraint makes; None asks for one per foreign key, named by the target.
        dependencies: Declared in the spec, for sampling to keep.
        implied_keys: Foreign keys that hold wherever another one on the same columns does (see `implied`): in the DDL
            alone.
        key_names: Columns and name of the primary key and of the unique sets that have names of their own in the DDL.
        generated: Columns that the database computes.
        row_id: Name of the last column where it is not the source's but numbers rows that have no key of their own
            (``row_id: generated``); it is then the whole primary key. None for tables with a key.
        row_order: The attribute in whose order the source has written its rows and numbered them, usually a date; None
            where rows follow their owners.
        partitioned: How the target keeps its rows; None for all in one.
        heirs: Tables that inherit from it in PostgreSQL, where they hold some of its rows.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    foreign_keys: tuple[ForeignKey, ...] = ()
    public: bool = False
    unique: tuple[tuple[str, ...], ...] = ()
    checks: tuple[Check, ...] = ()
    indexes: tuple[Index, ...] | None = None
    dependencies: tuple[Dependency, ...] = ()
    comment: str | None = None
    implied_keys: tuple[ForeignKey, ...] = ()
    key_names: tuple[tuple[tuple[str, ...], str], ...] = ()
    generated: tuple[Generated, ...] = ()
    row_id: str | None = None
    row_order: str | None = None
    partitioned: Partitioning | None = None
    heirs: tuple[Heir, ...] = ()
    empty: bool = False

    @property
    def emptied(self) -> Table:
        """The table without rows: nothing of it is modelled, and its keys say nothing about units."""
        said = ("child", "columns", "parent", "parent_columns", "optional", "constraint", "actions")
        keys = tuple(ForeignKey(**{name: getattr(key, name) for name in said}) for key in self.foreign_keys)
        columns = tuple(replace(column, relative=None) for column in self.columns)
        return replace(self, columns=columns, foreign_keys=keys, public=True, row_order=None, empty=True)

    def column(self, name: str) -> Column:
        """The column of that name, or the leaf of documents; SpecError with a hint if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        leaf = self.leaf(name)
        if leaf is not None:
            return leaf.column
        raise SpecError(f"{self.name}.{name}: no such column; {did_you_mean(name, (c.name for c in self.columns))}")

    def leaf(self, name: str) -> Leaf | None:
        """Return the leaf of documents that a name stands for; None if it is that of a column, or of nothing."""
        named = any(column.name == name for column in self.columns)
        return None if named else find_leaf(self.attributes, name)

    @property
    def referring_columns(self) -> frozenset[str]:
        """Columns of foreign keys."""
        return frozenset[str]().union(*(fk.columns for fk in self.foreign_keys))

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns in which no row has NULL: of the primary key, of required keys, and those that are not nullable.

        A column of a required key may be declared nullable, for an optional key that shares it.
        """
        required = (key.columns for key in self.foreign_keys if not key.optional)
        declared = (column.name for column in self.columns if not column.nullable)
        return frozenset(self.primary_key).union(declared, *required)

    @property
    def key_columns(self) -> frozenset[str]:
        """Columns of the primary key or of a foreign key that are generated, never modelled.

        A column of them with a domain (the season in player, season, stint) holds a meaning and is not among them; of a
        foreign key only if it refers to nothing but public tables, by the rules of specs. The pattern of a primary key
        says how it is generated.
        """
        form = {c.name for c in self.columns if (c.name,) == self.primary_key and isinstance(c.domain, Pattern)}
        meaningful = {column.name for column in self.columns if column.domain is not None} - form
        return self.referring_columns.union(self.primary_key) - meaningful

    def numbered_within(self, name: str) -> tuple[str, ...]:
        """Return the columns within which a numbered column of the primary key counts rows; none if it counts them all.

        One that is made to tell all rows apart (an identity, a UUID, an ``id`` next to the time that a table is
        partitioned by) counts within the references of the key alone. Of others the last one counts within all that is
        not numbered itself.
        """
        column, numbered = self.column(name), self.key_columns - self.referring_columns
        if column.identity or column.logical.surrogate == "uuid":
            return ()
        if is_called_like_key(self.name, name):
            return tuple(each for each in self.primary_key if each in self.referring_columns)
        last = [each for each in self.primary_key if each in numbered][-1:] == [name]
        return tuple(each for each in self.primary_key if each not in numbered) if last else ()

    @property
    def attributes(self) -> tuple[Column, ...]:
        """The columns that hold a meaning, in source order."""
        return tuple(c for c in self.columns if c.name not in self.key_columns)

    @property
    def modelled(self) -> tuple[Column, ...]:
        """The attributes as they are coded: differences in place of columns that are relative to another one."""
        return tuple(column.modelled for column in self.attributes)

    @cached_property
    def owner_bases(self) -> dict[str, str]:
        """Attributes of the owner that columns are relative to, by ``table.attribute``: their name as columns of rows.

        What a column of this table is called is never one of them.
        """
        owner, own = self.owner_key, {column.name for column in self.columns}
        named = {column.relative.to for column in self.attributes if column.relative} - own
        prefix = "" if owner is None else f"{owner.parent}."
        return {name: name.removeprefix(prefix) for name in sorted(named) if prefix and name.startswith(prefix)}

    @cached_property
    def relatives(self) -> tuple[tuple[Column, Column], ...]:
        """Columns that are relative to another one, each with its base, a base before what is relative to it.

        A base that is the owner's stands there as a column of the name that `owner_bases` has for it, and of the same
        type, by the rules of specs.
        """
        waiting = {column: column.relative.to for column in self.attributes if column.relative}
        found: dict[Column, Column] = {}
        while waiting:
            unsettled = {column.name for column in waiting}
            ready = {column: to for column, to in waiting.items() if to not in unsettled}
            if not ready:
                raise InternalError(f"{self.name}: a circle of relative columns, in a validated schema")
            for column, to in ready.items():
                of_owner = to in self.owner_bases
                found[column] = replace(column, name=to, domain=None, relative=None) if of_owner else self.column(to)
                del waiting[column]
        return tuple(found.items())

    @property
    def arrow_schema(self) -> pa.Schema:
        """The canonical Arrow schema: what sources read and bundles hold."""
        import pyarrow as pa

        return pa.schema([pa.field(column.name, column.arrow_type, column.nullable) for column in self.columns])

    def emptied_columns(self, key: ForeignKey) -> tuple[str, ...]:
        """The columns of an optional key that are NULL where it refers to no row: those no other key has a say in."""
        taken = set(self.primary_key).union(*(other.columns for other in self.foreign_keys if other != key))
        return tuple(name for name in key.columns if name not in taken and self.column(name).nullable)

    def columns_set_null(self, key: ForeignKey) -> tuple[str, ...]:
        """Return the columns of a key that become NULL when the row it refers to is gone; none if the key cascades."""
        if key.cascades:
            return ()
        return self.emptied_columns(key) if key.optional else key.columns

    @property
    def owner_key(self) -> ForeignKey | None:
        """The foreign key on this table's ownership path, None for the unit table and public tables."""
        return next((fk for fk in self.foreign_keys if fk.owner), None)


def is_called_like_key(table: str, column: str) -> bool:
    """Return whether a column is called ``id`` or after its table, as one that numbers the table's rows.

    >>> [is_called_like_key("sales.Orders", name) for name in ("id", "order_id", "OrdersID", "line")]
    [True, True, True, False]
    """
    own = table.casefold().rpartition(".")[2]
    names = {own, own.removesuffix("s")}
    return column.casefold() in {"id", *(f"{name}{sep}id" for name in names for sep in ("", "_"))}


def split_name(name: str, schemas: Sequence[str]) -> tuple[str | None, str]:
    """Return the schema in which a table or an enum is, None for the first one or the only one, and its name there.

    >>> split_name("billing.plan", ("public", "billing")), split_name("a.b", ("public", "billing"))
    (('billing', 'plan'), (None, 'a.b'))
    """
    home = next((each for each in schemas[1:] if name.startswith(f"{each}.")), None)
    return (None, name) if home is None else (home, name.removeprefix(f"{home}."))


@dataclass(frozen=True)
class View:
    """A view, in the DDL alone: its name, the SELECT that defines it, and whether its rows are stored."""

    name: str
    sql: str
    materialized: bool = False

    @property
    def kind(self) -> str:
        """What SQL calls it."""
        return "MATERIALIZED VIEW" if self.materialized else "VIEW"


@dataclass(frozen=True)
class Schema:
    """A database: its tables and the privacy unit's table.

    Attributes:
        name: Name of the database: asset group, ledger account, bundle title.
        tables: Tables in spec order.
        unit: Name of the primary private table; one of its rows, with all that depends on it, is the privacy unit.
        enums: Named types with a list of values, kept in the DDL.
        schemas: The schemas of PostgreSQL that it is spread over; empty for the one that is current. Tables and enums
            of all but the first are called ``schema.name``.
        views: Each after those that it reads.
        queried: What a published workload touches, where plans spend more; None if everything weighs the same.
    """

    name: str
    tables: tuple[Table, ...]
    unit: str
    enums: tuple[EnumType, ...] = ()
    schemas: tuple[str, ...] = ()
    views: tuple[View, ...] = ()
    queried: Queried | None = None

    @cached_property
    def by_name(self) -> dict[str, Table]:
        """Tables by name."""
        return {table.name: table for table in self.tables}

    def table(self, name: str) -> Table:
        """The table of that name; SpecError with a hint if there is none."""
        if name not in self.by_name:
            raise SpecError(f"{name}: no such table; {did_you_mean(name, self.by_name)}")
        return self.by_name[name]

    @property
    def unit_in_words(self) -> str:
        """The privacy unit, as the ledger, the receipt and reports call it."""
        return f"one row of {self.unit} and all rows that depend on it"

    @property
    def private_tables(self) -> tuple[Table, ...]:
        """All tables that are not public."""
        return tuple(t for t in self.tables if not t.public)

    @property
    def is_dated(self) -> bool:
        """Whether private rows have dates or times, by which further rows can be appended."""
        return any(column.type.logical.calendar for table in self.private_tables for column in table.columns)

    @property
    def public_tables(self) -> tuple[Table, ...]:
        """All tables whose rows are published as they are."""
        return tuple(t for t in self.tables if t.public and not t.empty)

    def changing_columns(self, key: ForeignKey) -> tuple[str, ...]:
        """Return the columns of ``key`` that become NULL when the row it refers to goes with a privacy unit.

        These are the only values that a row may lose while it stays (``docs/privacy.md``, section 2): rows of public
        tables never go.
        """
        return () if self.table(key.parent).public else self.table(key.child).columns_set_null(key)

    def is_stable(self, table: str, column: str) -> bool:
        """Whether no unit's removal changes a column of a row that stays: it refers to public tables, if to any."""
        keys = (key for key in self.table(table).foreign_keys if column in key.columns)
        return all(self.table(key.parent).public for key in keys)

    def keeps(self, key: ForeignKey) -> bool:
        """Whether no unit's removal changes what a row that stays has in the columns of a key."""
        lost = {name for other in self.table(key.child).foreign_keys for name in self.changing_columns(other)}
        return lost.isdisjoint(key.columns)

    def ownership_path(self, table: str) -> tuple[ForeignKey, ...]:
        """The foreign keys from a private table up to the unit; empty for the unit itself."""
        path: list[ForeignKey] = []
        here = self.table(table)
        while here.name != self.unit:
            key = here.owner_key
            if key is None or len(path) > len(self.tables):
                raise InternalError(f"{here.name}: no ownership path to {self.unit} in a validated schema")
            path.append(key)
            here = self.table(key.parent)
        return tuple(path)

    @cached_property
    def tables_of_units(self) -> frozenset[str]:
        """Names of the tables whose rows' units matter to some key with ``same_unit``: both its ends, and their owners.

        Sampling carries the unit of each row along in them, so that references can be drawn inside of it.
        """
        ends = {
            name for t in self.private_tables for k in t.foreign_keys if k.same_unit for name in (k.child, k.parent)
        }
        return frozenset(ends).union(*((key.parent for key in self.ownership_path(name)) for name in ends))

    def max_rows_per_unit(self, table: str) -> int:
        """The enforced bound on rows of ``table`` that one unit owns: the product of τ along the ownership path."""
        return prod(key.max_children or 1 for key in self.ownership_path(table))

    def unit_numbers(
        self, table: str, rows: int, owners: tuple[NDArray[np.int64], NDArray[np.int64]] | None, first: int = 0
    ) -> NDArray[np.int64]:
        """Return a number for the unit of each row, shape (rows,): equal for rows of one unit in all tables.

        A row without an owner, where the owner key may be NULL, is a unit of its own, with all that depends on it.

        Args:
            table: A private table.
            rows: Its number of rows.
            owners: The owner's row of each row, -1 for none, and the numbers of the owners' table; None for the unit's
                table.
            first: How many rows of the table are in the ranges before these rows.
        """
        import numpy as np

        if owners is not None and (owners[0] >= 0).all():
            return owners[1][owners[0]]
        own = np.arange(first, first + rows, dtype=np.int64) * len(self.tables) + list(self.by_name).index(table)
        return own if owners is None else np.where(owners[0] < 0, own, np.append(owners[1], -1)[owners[0]])

    @cached_property
    def deferred_keys(self) -> frozenset[str]:
        """Names of the keys of private tables that sampling fills in a second pass: a matter of order, not of privacy.

        Self-references, and of every other cycle of keys the first one that opens it, in spec order. They are among the
        optional keys that do not cascade, so `sampling_order` has all rows that take others with them before these.
        """
        return self._ordered[1]

    @cached_property
    def sampling_order(self) -> tuple[Table, ...]:
        """Tables such that every referenced table comes before the tables that refer to it.

        Deferred keys do not count, nor do cycles among public tables, whose rows are published as they are.
        """
        return self._ordered[0]

    @cached_property
    def _ordered(self) -> tuple[tuple[Table, ...], frozenset[str]]:
        deferred = {
            key.name
            for table in self.private_tables
            for key in table.foreign_keys
            if key.parent == table.name and key.optional and not key.cascades
        }
        done: dict[str, Table] = {}

        def lacking(table: Table) -> list[ForeignKey]:
            keys = [key for key in table.foreign_keys if not (table.public and key.parent == table.name)]
            return [key for key in keys if key.parent not in done and key.name not in deferred]

        def is_cyclic(key: ForeignKey) -> bool:
            parents = {t.name: [k.parent for k in t.foreign_keys if k.name not in deferred] for t in self.tables}
            return key.child in reachable(key.parent, parents.__getitem__)

        waiting = sorted(self.tables, key=lambda table: not table.public)
        while waiting:
            ready = [table for table in waiting if not lacking(table)]
            if not ready and waiting[0].public:
                ready = waiting[:1]
            if ready:
                done |= {table.name: table for table in ready}
                waiting = [table for table in waiting if table.name not in done]
                continue
            stuck = (key for table in waiting for key in lacking(table) if key.optional and not key.cascades)
            opens = next(filter(is_cyclic, stuck), None)
            if opens is None:
                raise InternalError("a cycle of foreign keys that cannot be opened, in a validated schema")
            deferred.add(opens.name)
        return tuple(done.values()), frozenset(deferred)
