"""The rows that views look at, as SQL: the twin of `engines.memory.relations`, which says why.

Of every private table a table of its kept rows is made, where the rows are:

| column | what it holds |
|---|---|
| `n` | a number for the row; in tables that keys refer to |
| `c0`, `c1`, … | stored values of its columns, in spec order |
| `d0`, `d1`, … | of columns that are relative to another one: the stored differences |
| `u` | a number for its unit, the same in all tables |
| `g` | kept children of its owner, itself included; 1 without an owner |
| `s` | kept rows of its unit in this table |

What a row refers to is found by the columns of keys: a row that is not kept is in none of these tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import pyarrow as pa
from sqlglot import exp

from privbench_core.engines.keyed_order import order_key
from privbench_core.engines.sql.codes import difference_of
from privbench_core.engines.sql.database import Database
from privbench_core.engines.sql.literals import Expr, text
from privbench_core.privacy.relations import WEIGHT_SCALE, carries
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table


class Names:
    """What tables and columns are called in the engine's own tables: never by the names of a spec.

    Nor does a table of the spec, which an engine may read beside them, ever have a name of theirs.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._numbers = {table.name: number for number, table in enumerate(schema.tables)}
        self._start = "privbench"
        while any(table.name.lower().startswith(self._start) for table in schema.tables):
            self._start += "_"
        self._columns = {
            (table.name, column.name): f"c{place}"
            for table in schema.tables
            for place, column in enumerate(table.columns)
        }

    def number(self, table: str) -> int:
        """Return the place of a table in the spec."""
        return self._numbers[table]

    def read(self, table: str) -> str:
        """Return the name of the table of all rows."""
        return self.scratch(table, "read")

    def kept(self, table: str) -> str:
        """Return the name of the table of kept rows; of a public table, of all."""
        public = self._schema.table(table).public
        return self.scratch(table, "read" if public else "kept")

    def scratch(self, table: str, what: str) -> str:
        """Return a name for what is made of a table."""
        return self.made(what, self._numbers[table])

    def made(self, what: str, number: int) -> str:
        """Return a name for the ``number``-th table of a kind."""
        return f"{self._start}_{what}_{number}"

    def column(self, table: str, name: str) -> str:
        """Return the name of a column."""
        return self._columns[table, name]

    def modelled(self, table: str, name: str) -> str:
        """Return the name of what is coded of a column of kept rows."""
        relative = self._schema.table(table).column(name).relative
        return self.column(table, name) if relative is None else f"d{self.column(table, name)[1:]}"

    def columns(self, table: str, names: Iterable[str]) -> list[str]:
        """Return the names of some columns."""
        return [self._columns[table, name] for name in names]


def column(name: str, table: str | None = None) -> exp.Column:
    """Return a column as an expression."""
    return exp.column(name, table)


def count() -> Expr:
    """Return the number of rows."""
    return exp.Count(this=exp.Star())


def matches(names: Names, key: ForeignKey, child: str, parent: str) -> Expr:
    """Return the condition that a row refers to another along a key: as in SQL, to none where a column is NULL."""
    pairs = zip(names.columns(key.child, key.columns), names.columns(key.parent, key.parent_columns), strict=True)
    return exp.and_(*(f"{child}.{mine} = {parent}.{its}" for mine, its in pairs))


def weight(rows_per_unit: Sequence[int]) -> Expr:
    """Return the weight of a row of a table with the column ``s``, see `Relations.weights`."""
    few = " ".join(f"WHEN r.s <= {most} THEN {WEIGHT_SCALE // most}" for most in rows_per_unit)
    return exp.maybe_parse(f"CAST(CASE {few} ELSE FLOOR({WEIGHT_SCALE} / CAST(r.s AS DOUBLE)) END AS INT)")


def key_text(names: Names, database: Database, table: Table, alias: str) -> Expr:
    """Return the text of a row's primary key, see `keyed_order`."""
    parts: list[Expr] = []
    for stored, name in zip(names.columns(table.name, table.primary_key), table.primary_key, strict=True):
        value: Expr = column(stored, alias)
        if pa.types.is_binary(table.column(name).arrow_type):
            value = database.hexadecimal(value)
        value = exp.cast(value, exp.DataType.Type.TEXT)
        parts += [exp.cast(exp.Length(this=value), exp.DataType.Type.TEXT), text(":"), value.copy()]
    return reduce(lambda joined, part: exp.DPipe(this=joined, expression=part), parts)


def keyed_hash(names: Names, database: Database, secret: bytes, table: Table, alias: str) -> Expr:
    """Return the keyed hash of a row's primary key: an order in which no other row has a say."""
    key = key_text(names, database, table, alias)
    return database.digest(exp.DPipe(this=text(order_key(secret)), expression=key))


def keep_rows(schema: Schema, names: Names, database: Database, secret: bytes, table: Table) -> None:
    """Make the table of a private table's kept rows out of that of all its rows, which is deleted.

    The tables of the rows that it cannot do without have been made before. See `engines.memory.relations.kept`.
    """
    owner = table.owner_key
    if owner is None:
        alive = _alive(schema, names, table).select("1 AS g", "1 AS s")
        if not alive.args.get("joins"):  # then no row is left out, and nothing need be written
            database.create(names.kept(table.name), alive, "VIEW")
            return
        database.create(names.kept(table.name), alive)
        database.drop(names.read(table.name))
        return
    owners, surplus = (names.scratch(table.name, what) for what in ("owners", "surplus"))
    bound, siblings = owner.max_children or 1, f"{_alias(table, owner)}.number"
    database.create(owners, _owners(schema, names, table, owner))
    crowded = _alive(schema, names, table, owners).where(f"{siblings} > {bound}")
    order = keyed_hash(names, database, secret, table, "l")
    database.create(surplus, _surplus(crowded, names.columns(table.name, owner.columns), bound, order))
    stored = names.columns(table.name, [each.name for each in table.columns])
    if any(key.parent == table.name for other in schema.tables for key in other.foreign_keys):
        stored.insert(0, "n")
    found = _alive(schema, names, table, owners, stored).select(f"LEAST(COALESCE({siblings}, 1), {bound}) AS g")
    found = found.where(f"NOT EXISTS (SELECT 1 FROM {surplus} AS x WHERE x.n = r.n)")
    if len(schema.ownership_path(table.name)) == 1:  # the rows of a unit are the children of its row, or one without
        written = names.scratch(table.name, "written")
        database.create(written, found)
        database.create(names.kept(table.name), exp.select("*", "g AS s").from_(written), "VIEW")
    else:
        found = exp.select("k.*", "v.number AS s").with_("k", as_=found).from_("k")
        found = found.join(_numbers_of("k", ["u"]).subquery("v"), on="v.u = k.u", join_type="left")
        database.create(names.kept(table.name), found)
    for name in (names.read(table.name), owners, surplus):
        database.drop(name)


def _owners(schema: Schema, names: Names, table: Table, owner: ForeignKey) -> exp.Select:
    """The kept rows that rows of a table belong to: keys, bases, ``n``, ``u``, and ``number``, of those they have."""
    referring = names.columns(table.name, owner.columns)
    if all(key.owner or not carries(schema, key) for key in table.foreign_keys):
        numbers = _numbers_of(names.read(table.name), referring)  # no row is taken away but with its owner
    else:
        rows = _alive(schema, names, table, names.kept(owner.parent))
        numbers = _numbers_of("l", referring).with_("l", as_=rows)
    looked_at = (*owner.parent_columns, *table.owner_bases.values())
    shown = ["n", "u", *dict.fromkeys(names.columns(owner.parent, looked_at))]
    found = exp.select(*(f"p.{name}" for name in shown), "l.number").from_(f"{names.kept(owner.parent)} AS p")
    return found.join(numbers.subquery("l"), on=matches(names, owner, "l", "p"))


def _alias(table: Table, key: ForeignKey) -> str:
    """What the rows that a key refers to are called in `_alive`."""
    return f"p{table.foreign_keys.index(key)}"


def _alive(schema: Schema, names: Names, table: Table, owners: str = "", shown: Sequence[str] = ("*",)) -> exp.Select:
    """The rows of a table that no key takes away, and their units; truncation comes after.

    Args:
        schema: The database.
        names: Of its tables.
        table: Private.
        owners: Name of a table of the rows that its owner key may refer to.
        shown: The columns of the rows that are wanted.
    """
    unit = f"r.n * {len(schema.tables)} + {names.number(table.name)}"
    if table.owner_key is not None:
        unit = f"COALESCE({_alias(table, table.owner_key)}.u, {unit})"
    found = exp.select(*(f"r.{name}" for name in shown)).from_(f"{names.read(table.name)} AS r")
    for key in (key for key in table.foreign_keys if carries(schema, key)):
        parent = _alias(table, key)
        joined = f"{owners if key.owner else names.kept(key.parent)} AS {parent}"
        found = found.join(joined, on=matches(names, key, "r", parent), join_type="left")
        there = [f"{parent}.n IS NOT NULL"]
        if key.optional or not key.owner:  # what a NULL key means
            there += [f"r.{name} IS NULL" for name in names.columns(table.name, key.columns)]
        found = found.where(exp.or_(*there))
        if key.same_unit:
            found = found.where(f"{parent}.n IS NULL OR {parent}.u = {unit}")
    return found.select(f"{unit} AS u", *_differences(names, table))


def _differences(names: Names, table: Table) -> Iterator[Expr]:
    """The differences of columns that are relative to another one, under the names of `Names.modelled`."""
    owner, of_owner = table.owner_key, table.owner_bases
    for own, base in table.relatives:
        stored: Expr = column(names.column(table.name, own.name), "r")
        if owner is not None and base.name in of_owner:
            beside: Expr = column(names.column(owner.parent, of_owner[base.name]), _alias(table, owner))
        else:
            beside = column(names.column(table.name, base.name), "r")
        yield exp.alias_(difference_of(stored, beside), names.modelled(table.name, own.name))


def _surplus(crowded: exp.Select, owners: Sequence[str], bound: int, order: Expr) -> exp.Select:
    """The numbers of the rows beyond ``bound`` per owner in their keyed order; only crowded groups are put in order."""
    place = exp.Window(
        this=exp.RowNumber(), partition_by=[column(name, "l") for name in owners], order=exp.Order(expressions=[order])
    )
    ranked = exp.select("l.n", exp.alias_(place, "place")).from_(crowded.subquery("l"))
    return exp.select("n").from_(ranked.subquery("ranked")).where(f"place > {bound}")


def _numbers_of(rows: str, columns: Sequence[str]) -> exp.Select:
    """How many rows have the same values in some columns, by these values."""
    grouped = exp.select(*columns, "COUNT(*) AS number").from_(rows)
    return grouped.where(*(f"{name} IS NOT NULL" for name in columns)).group_by(*columns)
