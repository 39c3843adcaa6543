"""The kept rows of views, as SQL: the twin of `engines.memory_relations`, which says why.

Of every private table a table of its kept rows is made, where the rows are:

| column | what it holds |
|---|---|
| `n` | a number for the row; in tables that keys refer to |
| `c0`, `c1`, … | stored values of its columns, in spec order |
| `d0`, `d1`, … | of columns that are relative to another one: the stored differences |
| `u` | a number for its unit, the same in all tables |
| `g` | kept children of its owner, itself included; 1 without an owner |
| `s` | kept rows of its unit in this table |
| `v`, `o` | in a database that is near: the `n` of its owner, and its keyed hash; rows are stored by `u`, `v` and `o` |

What a row refers to is found by the columns of keys: a row that is not kept is in none of these tables.

Before that, rows are checked for what the spec declares: the twin of `backends.integrity`, which finds the same
problems, and drops and empties the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
from sqlglot import exp

from privbench_core.backends.integrity import Findings
from privbench_core.engines.sql import Database, Expr, column, is_missing, number, text
from privbench_core.engines.sql.codes import difference_of
from privbench_core.engines.stored import order_key
from privbench_core.privacy.relations import WEIGHT_SCALE, carries
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table


class Tables:
    """The engine's own tables of the rows of a schema.

    Tables and columns are never called by the names of a spec; nor does a table of the spec, which an engine may read
    beside them, ever have a name of theirs.

    Attributes:
        schema: The validated schema.
        database: Where they are.
    """

    def __init__(self, schema: Schema, database: Database, secret: bytes) -> None:
        self.schema = schema
        self.database = database
        self._secret = secret
        self._numbers = {table.name: number for number, table in enumerate(schema.tables)}
        self._start = "privbench"
        while any(table.name.lower().startswith(self._start) for table in schema.tables):
            self._start += "_"
        self._columns = {
            (table.name, column.name): f"c{place}"
            for table in schema.tables
            for place, column in enumerate(table.columns)
        }

    def read(self, table: str) -> str:
        """Return the name of the table of all rows."""
        return self.scratch(table, "read")

    def kept(self, table: str) -> str:
        """Return the name of the table of kept rows; of a public table, of all."""
        return self.scratch(table, "read" if self.schema.table(table).public else "kept")

    def scratch(self, table: str, what: str) -> str:
        """Return a name for what is made of a table."""
        return self.made(what, self._numbers[table])

    def made(self, what: str, number: int) -> str:
        """Return a name for the ``number``-th table of a kind."""
        return f"{self._start}_{what}_{number}"

    def column(self, table: str, name: str) -> str:
        """Return the name of a column."""
        return self._columns[table, name]

    def columns(self, table: str, names: Iterable[str]) -> list[str]:
        """Return the names of some columns."""
        return [self._columns[table, name] for name in names]

    def modelled(self, table: str, name: str) -> str:
        """Return the name of what is coded of a column of kept rows."""
        relative = self.schema.table(table).column(name).relative
        return self.column(table, name) if relative is None else f"d{self.column(table, name)[1:]}"

    def unit_of(self, table: Table) -> str:
        """Return a number for the unit of a row ``r`` without an owner."""
        return f"r.n * {len(self.schema.tables)} + {self._numbers[table.name]}"

    def matches(self, key: ForeignKey, child: str, parent: str) -> Expr:
        """Return the condition that a row refers to another along a key: as in SQL, to none where a column is NULL."""
        pairs = zip(self.columns(key.child, key.columns), self.columns(key.parent, key.parent_columns), strict=True)
        return exp.and_(*(f"{child}.{mine} = {parent}.{its}" for mine, its in pairs))

    def keyed_hash(self, table: str, alias: str) -> Expr:
        """Return the keyed hash of a row's primary key (`keyed_order`): an order in which no other row has a say."""
        here, parts = self.schema.table(table), list[Expr]()
        for name in here.primary_key:
            value: Expr = column(self.column(table, name), alias)
            if pa.types.is_binary(here.column(name).arrow_type):
                value = self.database.hexadecimal(value)
            value = exp.cast(value, exp.DataType.Type.TEXT)
            parts += [exp.cast(exp.Length(this=value), exp.DataType.Type.TEXT), text(":"), value.copy()]
        key = reduce(lambda joined, part: exp.DPipe(this=joined, expression=part), parts)
        return self.database.digest(exp.DPipe(this=text(order_key(self._secret)), expression=key))

    def order_of_kept(self, table: str) -> Expr:
        """Return the keyed hash of a row ``r`` that has an owner and was kept."""
        return column("o", "r") if self.database.near else self.keyed_hash(table, "r")


def weight(rows_per_unit: Sequence[int]) -> Expr:
    """Return the weight of a row of a table with the column ``s``, see `Relations.weights`."""
    few = " ".join(f"WHEN r.s <= {most} THEN {WEIGHT_SCALE // most}" for most in rows_per_unit)
    return exp.maybe_parse(f"CAST(CASE {few} ELSE FLOOR({WEIGHT_SCALE} / CAST(r.s AS DOUBLE)) END AS INT)")


def keep_rows(tables: Tables, table: Table) -> None:
    """Make the table of a private table's kept rows out of that of all its rows, which is deleted.

    The tables of the rows that it cannot do without have been made before. See `engines.memory_relations`.
    """
    owner = table.owner_key
    if owner is None:
        alive = _alive(tables, table).select("1 AS g", "1 AS s")
        if not alive.args.get("joins"):  # then no row is left out, and nothing need be written
            tables.database.create(tables.kept(table.name), alive, "VIEW")
            return
        tables.database.create(tables.kept(table.name), alive)
        tables.database.drop(tables.read(table.name))
        return
    owners, surplus = (tables.scratch(table.name, what) for what in ("owners", "surplus"))
    bound, siblings = owner.max_children or 1, f"{_alias(table, owner)}.number"
    tables.database.create(owners, _owners(tables, table, owner))
    crowded = _alive(tables, table, owners).where(f"{siblings} > {bound}")
    order = tables.keyed_hash(table.name, "l")
    tables.database.create(surplus, _surplus(crowded, tables.columns(table.name, owner.columns), bound, order))
    stored = tables.columns(table.name, [each.name for each in table.columns])
    if any(key.parent == table.name for other in tables.schema.tables for key in other.foreign_keys):
        stored.insert(0, "n")
    found = _alive(tables, table, owners, stored).select(f"LEAST(COALESCE({siblings}, 1), {bound}) AS g")
    found = found.where(f"NOT EXISTS (SELECT 1 FROM {surplus} AS x WHERE x.n = r.n)")
    if tables.database.near:
        found = found.select(f"{_alias(table, owner)}.n AS v", exp.alias_(tables.keyed_hash(table.name, "r"), "o"))
    if len(tables.schema.ownership_path(table.name)) == 1:  # a unit is one row and its children
        whole = exp.select("k.*", "k.g AS s").from_(found.subquery("k"))
    else:
        whole = exp.select("k.*", "v.number AS s").with_("k", as_=found).from_("k")
        whole = whole.join(_numbers_of("k", ["u"]).subquery("v"), on="v.u = k.u", join_type="left")
    ordered = whole.order_by("u", "v", "o") if tables.database.near else whole
    tables.database.create(tables.kept(table.name), ordered)
    for name in (tables.read(table.name), owners, surplus):
        tables.database.drop(name)


def _owners(tables: Tables, table: Table, owner: ForeignKey) -> exp.Select:
    """Return the kept owners of rows of a table: keys, bases, ``n``, ``u``, and the ``number`` of rows they have."""
    referring = tables.columns(table.name, owner.columns)
    if all(key.owner or not carries(tables.schema, key) for key in table.foreign_keys):
        numbers = _numbers_of(tables.read(table.name), referring)  # no row is taken away but with its owner
    else:
        rows = _alive(tables, table, tables.kept(owner.parent))
        numbers = _numbers_of("l", referring).with_("l", as_=rows)
    looked_at = (*owner.parent_columns, *table.owner_bases.values())
    shown = ["n", "u", *dict.fromkeys(tables.columns(owner.parent, looked_at))]
    found = exp.select(*(f"p.{name}" for name in shown), "l.number").from_(f"{tables.kept(owner.parent)} AS p")
    return found.join(numbers.subquery("l"), on=tables.matches(owner, "l", "p"))


def _alias(table: Table, key: ForeignKey) -> str:
    """Return what the rows that a key refers to are called in `_alive`."""
    return f"p{table.foreign_keys.index(key)}"


def _alive(tables: Tables, table: Table, owners: str = "", shown: Sequence[str] = ("*",)) -> exp.Select:
    """Return the rows of a private table that no key takes away, and their units; truncation comes after.

    Args:
        tables: Those that there are so far.
        table: Private.
        owners: Name of a table of the rows that its owner key may refer to.
        shown: The columns of the rows that are wanted.
    """
    unit = tables.unit_of(table)
    if table.owner_key is not None:
        unit = f"COALESCE({_alias(table, table.owner_key)}.u, {unit})"
    found = exp.select(*(f"r.{name}" for name in shown)).from_(f"{tables.read(table.name)} AS r")
    for key in (key for key in table.foreign_keys if carries(tables.schema, key)):
        parent = _alias(table, key)
        joined = f"{owners if key.owner else tables.kept(key.parent)} AS {parent}"
        found = found.join(joined, on=tables.matches(key, "r", parent), join_type="left")
        there = [f"{parent}.n IS NOT NULL"]
        if key.optional or not key.owner:  # what a NULL key means
            there += [f"r.{name} IS NULL" for name in tables.columns(table.name, key.columns)]
        found = found.where(exp.or_(*there))
        if key.same_unit:
            found = found.where(f"{parent}.n IS NULL OR {parent}.u = {unit}")
    return found.select(f"{unit} AS u", *_differences(tables, table))


def _differences(tables: Tables, table: Table) -> Iterator[Expr]:
    """Return the differences of columns that are relative to another one, under the names of `Tables.modelled`."""
    owner, of_owner = table.owner_key, table.owner_bases
    for own, base in table.relatives:
        stored: Expr = column(tables.column(table.name, own.name), "r")
        if owner is not None and base.name in of_owner:
            beside: Expr = column(tables.column(owner.parent, of_owner[base.name]), _alias(table, owner))
        else:
            beside = column(tables.column(table.name, base.name), "r")
        yield exp.alias_(difference_of(stored, beside, (own, base)), tables.modelled(table.name, own.name))


def _surplus(crowded: exp.Select, owners: Sequence[str], bound: int, order: Expr) -> exp.Select:
    """Return numbers of the rows beyond ``bound`` per owner in their keyed order; only crowded groups are sorted."""
    place = exp.Window(
        this=exp.RowNumber(), partition_by=[column(name, "l") for name in owners], order=exp.Order(expressions=[order])
    )
    ranked = exp.select("l.n", exp.alias_(place, "place")).from_(crowded.subquery("l"))
    return exp.select("n").from_(ranked.subquery("ranked")).where(f"place > {bound}")


def _numbers_of(rows: str, columns: Sequence[str]) -> exp.Select:
    """Return how many rows have the same values in some columns, by these values."""
    grouped = exp.select(*columns, "COUNT(*) AS number").from_(rows)
    return grouped.where(*(f"{name} IS NOT NULL" for name in columns)).group_by(*columns)


class RowChecks:
    """Checks of all private rows of a database, in tables called `Tables.read`; public ones have passed.

    Args:
        tables: Of the database.
        unique: Tables whose primary keys are known to be different.
    """

    def __init__(self, tables: Tables, unique: Collection[str]) -> None:
        self._tables = tables
        self._schema = tables.schema
        self._database = tables.database
        self._unique = unique

    def check(self, orphans: Mapping[str, str]) -> None:
        """Check, and drop the orphans the owner wants dropped: see `backends.integrity.check_rows`.

        Raises:
            SourceError: Rows break the spec; one line per problem, counts only in ``private_detail``.
        """
        findings = Findings()
        private = self._schema.private_tables
        for table in private:
            self._check_nulls(table, findings)
            self._check_unique(table, findings)
        dropped: list[tuple[str, str]] = []
        for key in (key for table in private for key in table.foreign_keys):
            lost = self._count(self._orphans(key))
            if lost and orphans.get(key.name, "refuse") != "drop":
                findings.add_orphans(key, lost, self._rows(self._schema.table(key.child)))
            elif lost:  # all are found before any is dropped
                dropped.append((key.child, self._tables.scratch(key.child, f"lost_{len(dropped)}")))
                self._database.create(dropped[-1][1], self._orphans(key))
        findings.refuse()
        for table_name, lost_rows in dropped:
            self._delete(table_name, exp.select("n").from_(lost_rows))
        self._cascade({table_name for table_name, _ in dropped})

    def _cascade(self, thinned: set[str]) -> None:
        """Drop what depends on rows that some tables have lost, or empty its reference."""
        while thinned:
            parents, thinned = thinned, set()
            for key in (key for table in self._schema.private_tables for key in table.foreign_keys):
                if key.parent not in parents or not self._count(self._orphans(key)):
                    continue
                emptied = self._schema.table(key.child).columns_set_null(key)
                if emptied:
                    self._empty(key, emptied)
                else:
                    self._delete(key.child, self._orphans(key))
                    thinned.add(key.child)

    def _check_nulls(self, table: Table, findings: Findings) -> None:
        asked = [c for c in table.columns if c.name in table.required_columns]
        missing = [is_missing(column(self._tables.column(table.name, each.name)), each.type) for each in asked]
        sums = [exp.alias_(exp.Count(this=exp.case().when(each, number(1))), f"m{i}") for i, each in enumerate(missing)]
        rows, *found = self._row(exp.select("COUNT(*) AS rows", *sums).from_(self._tables.read(table.name)))
        for declared, nulls in zip(asked, found, strict=True):
            if nulls:
                findings.add_nulls(table, declared, nulls, rows)

    def _check_unique(self, table: Table, findings: Findings) -> None:
        for columns, what in (
            dict.fromkeys(table.unique, "declared unique") | {table.primary_key: "primary key"}
        ).items():
            if columns == table.primary_key and table.name in self._unique:
                continue
            if repeated := self._repeated(table, columns):
                findings.add_repeated(table, columns, what, repeated, self._rows(table))

    def _repeated(self, table: Table, columns: tuple[str, ...]) -> int:
        """Return the rows whose values in some columns, none of them NULL, an earlier row has."""
        names = self._tables.columns(table.name, columns)
        complete = [f"{name} IS NOT NULL" for name in names]
        grouped = exp.select("COUNT(*) AS number").from_(self._tables.read(table.name)).where(*complete)
        grouped = grouped.group_by(*names)  # not only of several rows: DuckDB takes longer to find them
        total = "CAST(COALESCE(SUM(number - 1), 0) AS BIGINT) AS repeated"
        return next(self._row(exp.select(total).from_(grouped.subquery("grouped"))))

    def _orphans(self, key: ForeignKey) -> exp.Select:
        """Return the numbers of the rows whose complete key has no match."""
        complete = [f"r.{name} IS NOT NULL" for name in self._tables.columns(key.child, key.columns)]
        found = exp.select("r.n").from_(f"{self._tables.read(key.child)} AS r")
        on = self._tables.matches(key, "r", "p")
        found = found.join(f"{self._tables.read(key.parent)} AS p", on=on, join_type="left")
        # In DuckDB, NOT EXISTS takes half as long again: it groups the rows by their keys first.
        return found.where(*complete, f"p.{self._tables.column(key.parent, key.parent_columns[0])} IS NULL")

    def _delete(self, table: str, rows: exp.Select) -> None:
        self._database.replace(self._tables.read(table), self._beside(table, rows).select("r.*").where("g.n IS NULL"))

    def _empty(self, key: ForeignKey, columns: tuple[str, ...]) -> None:
        here, emptied = self._schema.table(key.child), self._tables.columns(key.child, columns)
        names = ["n", *self._tables.columns(key.child, [column.name for column in here.columns])]
        kept = (
            f"CASE WHEN g.n IS NULL THEN r.{name} END AS {name}" if name in emptied else f"r.{name}" for name in names
        )
        self._database.replace(self._tables.read(key.child), self._beside(key.child, self._orphans(key)).select(*kept))

    def _beside(self, table: str, some: exp.Select) -> exp.Select:
        """Return all rows ``r`` of a table, and beside some of them their numbers, ``g.n``."""
        rows = exp.select().from_(f"{self._tables.read(table)} AS r")
        return rows.join(some.subquery("g"), on="g.n = r.n", join_type="left")

    def _rows(self, table: Table) -> int:
        return next(self._row(exp.select("COUNT(*) AS rows").from_(self._tables.read(table.name))))

    def _count(self, rows: exp.Select) -> int:
        return next(self._row(exp.select("COUNT(*) AS rows").from_(rows.subquery("found"))))

    def _row(self, query: exp.Select) -> Iterator[int]:
        return (int(values[0].as_py()) for values in self._database.fetch(query).columns)
