"""Let INSERT, UPDATE and DELETE statements travel: their shape, and none of the values that they write.

==============================  =====================================================================================
part of the statement           becomes
==============================  =====================================================================================
constant that is written        placeholder; ``parameters`` gives an inserted row the values of a synthetic row, and an
                                updated one those of another synthetic row
expression without a constant,  unchanged, such as ``now()`` and ``stock - reserved``; constants in others are hidden
subquery                        as in queries
several rows of VALUES          three rows; with ON CONFLICT one
column that the bundle needs    added to an INSERT, as are those of its partitions, which hold no other values
column of a unique key          a new value at every call; with ON CONFLICT that of a row that is there
==============================  =====================================================================================

Where another row's values would not do, because a CHECK is about more columns than are updated, an updated row keeps
its values. What breaks a CHECK, or deletes rows that others refer to, with the values of all rows that are tried is
left out. So is what cannot be shown to hold: INSERT of a SELECT, MERGE, writes in WITH, and updates of keys to which
rows refer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import sqlglot
from sqlglot import exp

from privbench_core.columns.opaque import length_limit
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import Check, ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload.engine import PLACEHOLDERS, Engine, ResolvedQuery, UnansweredError, is_constant, literal

SET, ROW = "set", "row"
"""The rows whose values an UPDATE and an INSERT write."""


@dataclass(frozen=True)
class Write:
    """A statement that writes.

    Attributes:
        query: It, with resolved names; `outline` has been there.
        schema: The database.
        number: Its position in the workload, from 1.
        engine: Holds the synthetic rows, on which it is tried.
    """

    query: ResolvedQuery
    schema: Schema
    number: int
    engine: Engine

    @property
    def tree(self) -> exp.Expr:
        """The syntax tree."""
        return self.query.tree

    @cached_property
    def table(self) -> Table:
        """The table that is written to."""
        return _target(self.query, self.schema)

    @property
    def conflict(self) -> exp.Expr | None:
        """The ON CONFLICT clause, if there is one."""
        found = self.tree.args.get("conflict")
        return found if isinstance(found, exp.Expr) else None

    def assigned(self) -> Iterator[tuple[str, exp.Expr, str]]:
        """Yield each column that is written, its value, and which row of the statement it is of."""
        for number, row in enumerate(_rows(self.tree)):
            for name, value in zip(_names(self.tree), row.expressions, strict=True):
                yield name, value, f"{ROW} {number}"
        for each in _settings(self.tree):  # ON CONFLICT writes the values that the row has
            yield each.this.name, each.expression, SET if self.conflict is None else f"{ROW} 0"

    @cached_property
    def fresh(self) -> frozenset[str]:
        """Columns that get a value that no row has, so that no unique key repeats.

        Raises:
            UnansweredError: A unique key has no such column.
        """
        if self.conflict is not None:
            return frozenset()
        values = {name: value for name, value, _ in self.assigned() if not isinstance(value, exp.Var)}
        insert, found = isinstance(self.tree, exp.Insert), set[str]()
        for key in (self.table.primary_key, *self.table.unique):
            if not (values.keys() >= {*key} if insert else values.keys() & {*key}):
                continue  # the database numbers the rest, leaves it empty, or keeps it
            if any(isinstance(values.get(name), exp.Uuid) for name in key) or not found.isdisjoint(key):
                continue
            able = [name for name in key if isinstance(values.get(name), PLACEHOLDERS) and self._can_be_new(name)]
            if not able:
                raise UnansweredError(f"{self.table.name}: no column of the key {', '.join(key)} can have a new value")
            found.add(able[0])
        return frozenset(found)

    def _can_be_new(self, name: str) -> bool:
        column = self.table.column(name)
        if name in self.table.referring_columns or name in _fixed(self.table):
            return False
        if column.type is ColumnType.INTEGER:
            return column.sql_type != "smallint"
        has_room = length_limit(column) > 12  # noqa: PLR2004 - characters of a number that makes a text new
        return column.type is ColumnType.UUID or (column.type is ColumnType.TEXT and has_room)

    @cached_property
    def keeps_values(self) -> bool:
        """Whether updated rows keep their values, because others that they depend on are not updated.

        Raises:
            UnansweredError: They depend on each other by a reference.
        """
        if not isinstance(self.tree, exp.Update):
            return False
        written = {name for name, value, _ in self.assigned() if isinstance(value, PLACEHOLDERS)}
        keys = [{*key.columns} for key in self.table.foreign_keys]
        if any(0 < len(written & key) < len(key) for key in keys):
            raise UnansweredError(f"{self.table.name}: a part of a reference is updated")
        return any(0 < len(written & columns) < len(columns) for columns, _ in self._checks)

    @cached_property
    def _checks(self) -> list[tuple[set[str], exp.Expr]]:
        """The checks on what is written, each with its columns."""
        parsed = [_parsed(check) for check in self.table.checks]
        written = {name for name, _, _ in self.assigned()}
        found = [({column.name for column in check.find_all(exp.Column)}, check) for check in parsed]
        return [(columns, check) for columns, check in found if columns & written]

    @cached_property
    def conditions(self) -> list[exp.Expr]:
        """What must not be false of a row that is written, as far as it does not follow from the synthetic rows."""
        values = {name: value for name, value, _ in self.assigned()}
        computed = {name for name, value in values.items() if not isinstance(value, (*PLACEHOLDERS, exp.Var))}
        needed = sorted(computed & self.table.required_columns)
        filled: list[exp.Expr] = [
            exp.Not(this=exp.Is(this=exp.column(name, quoted=True), expression=exp.Null())) for name in needed
        ]
        insert = isinstance(self.tree, exp.Insert)
        open_checks = [
            check for columns, check in self._checks if insert or columns & computed or columns - values.keys()
        ]
        found = [each.copy() for each in [*filled, *open_checks]]
        if not insert:
            for column in (column for each in found for column in each.find_all(exp.Column)):
                column.set("table", exp.to_identifier(self.tree.this.alias_or_name, quoted=True))
        return found

    @property
    def needs_trial(self) -> bool:
        """Whether it depends on the values whether the statement breaks something."""
        update, delete = (isinstance(self.tree, kind) for kind in (exp.Update, exp.Delete))
        return bool(self.conditions or (update and self.fresh) or (delete and self.restricting))

    @cached_property
    def restricting(self) -> list[ForeignKey]:
        """Keys by which rows keep those of the table from being deleted."""
        return _restricting(self.schema, self.table.name, frozenset())

    def rows(self) -> int:
        """Return how many rows it writes; UnansweredError if it fails on the synthetic rows."""
        found = self.engine.try_write(plain(self.tree))
        if self.conflict is not None and self.conflict.args["action"].name == "DO NOTHING":
            return 0
        return len(found) if self.tree.args.get("returning") else int(found[0][0])

    def try_with(self, bound: exp.Expr) -> int | None:
        """Return how many rows the statement writes with ``bound`` values; None if it breaks a check or a reference.

        Raises:
            UnansweredError: It fails on the synthetic rows, or it is not known whether it does.
        """
        tried = plain(bound)
        if not isinstance(self.tree, exp.Delete):
            tried.set("returning", exp.Returning(expressions=[exp.true(), *(each.copy() for each in self.conditions)]))
            rows = self.engine.try_write(tried)
            repeats = isinstance(self.tree, exp.Update) and self.fresh and len(rows) > 1
            return None if repeats or any(held is False for row in rows for held in row) else len(rows)
        keys = self.restricting
        names = sorted({name for key in keys for name in key.parent_columns})
        tried.set("returning", exp.Returning(expressions=[exp.column(name, quoted=True) for name in names]))
        rows = self.engine.try_write(tried)
        if len(rows) > 1000:  # noqa: PLR2004 - looking up what refers to more takes long; chosen by hand
            raise UnansweredError(f"{self.table.name}: deletes many rows, to which others may refer")
        deleted = [dict(zip(names, row, strict=True)) for row in rows]
        return None if any(_refer(key, deleted, self.engine) for key in keys) else len(rows)


def outline(query: ResolvedQuery, schema: Schema, number: int, engine: Engine) -> Write:
    """Put placeholders in place of the values that a statement writes, and name the columns that the bundle requires.

    Args:
        query: The statement, which is changed.
        schema: The database.
        number: Position of the statement in the workload.
        engine: Holds the synthetic rows.

    Raises:
        UnansweredError: It cannot travel; see the module. The message quotes no value.
    """
    table, tree = _target(query, schema), query.tree
    if isinstance(tree, exp.Insert):
        _outline_insert(tree, table)
    referred = {name for key in _keys(schema) if key.parent == table.name for name in key.parent_columns}
    bound = {name for key in (table.primary_key, *table.unique) for name in key} | table.referring_columns
    checked = {column.name for check in table.checks for column in _parsed(check).find_all(exp.Column)}
    bound |= checked if isinstance(tree, exp.Insert) else set()
    for each in _settings(tree):
        column = _column(table, each.this.name if isinstance(each.this, exp.Column) else None)
        if column.name in referred and isinstance(tree, exp.Update):
            raise UnansweredError(f"{table.name}.{column.name}: a key to which rows refer is updated")
        value = _outlined(None if column.name in _fixed(table) else each.expression, column)
        excluded = isinstance(value, exp.Column) and value.table.lower() == "excluded"
        if column.name in bound and not (isinstance(value, (*PLACEHOLDERS, exp.Subquery)) or excluded):
            raise UnansweredError(f"{table.name}.{column.name}: is set to an expression of other values")
        each.set("expression", value)
    write = Write(query, schema, number, engine)
    if write.keeps_values and write.fresh:
        raise UnansweredError(f"{table.name}: a unique value cannot both stay and be new")
    return write


def plain(tree: exp.Expr) -> exp.Expr:
    """Return a copy of a statement without ON CONFLICT, which needs the keys of the bundle."""
    copied = tree.copy()
    copied.set("conflict", None)
    return copied


def _outline_insert(tree: exp.Insert, table: Table) -> None:
    rows, target = _rows(tree), tree.this
    if not rows or any(not isinstance(row, exp.Tuple) for row in rows):
        raise UnansweredError("INSERT of something else than VALUES")
    names = _names(tree) or [column.name for column in table.columns][: len(rows[0].expressions)]
    if len({*names}) != len(names) or any(len(row.expressions) != len(names) for row in rows):
        raise UnansweredError("INSERT of rows that do not fit its columns")
    fixed = _fixed(table)
    needed = [
        column.name
        for column in table.columns
        if column.name not in names
        and (
            column.name in fixed
            or (column.name in table.required_columns and not column.identity and column.default is None)
        )
    ]
    first = {name: value for name, value in zip(names, rows[0].expressions, strict=True) if name not in fixed}
    made = [_outlined(first.get(name), _column(table, name)) for name in [*names, *needed]]
    number = 1 if len(rows) == 1 or tree.args.get("conflict") else 3  # as many as lists of constants have
    tree.expression.set("expressions", [exp.Tuple(expressions=[v.copy() for v in made]) for _ in range(number)])
    listed = [exp.to_identifier(name, quoted=True) for name in [*names, *needed]]
    tree.set("this", exp.Schema(this=target.find(exp.Table).copy(), expressions=listed))
    _check_conflict(tree, table)


def _check_conflict(tree: exp.Insert, table: Table) -> None:
    conflict = tree.args.get("conflict")
    if conflict is None:
        return
    targets = [key.find(exp.Column) for key in conflict.args.get("conflict_keys") or ()]
    named = {target.name for target in targets if target is not None and not target.table}
    parts, keys = table.partitioned, (table.primary_key, *table.unique)
    known = not targets or any(named == {*key} and (not parts or parts.allows_key(key)) for key in keys)
    plain_names = all(isinstance(each.this, exp.Column) for each in conflict.args.get("conflict_keys") or ())
    inside = {column.name for column in conflict.find_all(exp.Column)} <= {column.name for column in table.columns}
    if (
        not (known and plain_names and inside and named <= table.required_columns.intersection(_names(tree)))
        or conflict.args.get("constraint")
        or conflict.args.get("index_predicate")
        or (not targets and _settings(tree))
    ):
        raise UnansweredError("ON CONFLICT of something else than a key of the bundle")


def _outlined(value: exp.Expr | None, column: Column) -> exp.Expr:
    """Return what becomes of a value that is written to a column."""
    if isinstance(value, exp.Column | exp.Var) and value.sql().upper() == "DEFAULT":
        if column.identity or column.default is not None:
            return exp.Var(this="DEFAULT")
        value = None
    if column.sequence is not None and column.sequence.always:
        raise UnansweredError(f"{column.name}: always numbered by the database")
    if column.is_array:
        raise UnansweredError(f"{column.name}: an array is written")
    hidden = (exp.Literal, exp.Boolean, exp.Null, exp.Anonymous, exp.Interval, *PLACEHOLDERS)
    if value is None or (is_constant(value) and (not isinstance(value, exp.Func) or value.find(*hidden) is not None)):
        return exp.Parameter(this=exp.Literal.number(1))
    shown = [item for select in value.find_all(exp.Select) for item in select.expressions] or [value]
    strict = column.stored_type is None or column.type in {ColumnType.JSON, ColumnType.UUID}
    if strict and any(item.find(*hidden) is not None for item in shown):
        raise UnansweredError(f"{column.name}: takes no constant that hides another one")  # an enum, for one
    return value


def _fixed(table: Table) -> frozenset[str]:
    """Return columns whose new values may have no partition, so that they get those of rows that are there."""
    parts = table.partitioned
    default = parts is not None and any(part.of is None and part.values == "DEFAULT" for part in parts.partitions)
    return frozenset(parts.columns if parts and not default else ())


def _parsed(check: Check) -> exp.Expr:
    try:
        return sqlglot.parse_one(check.expression, read="postgres")
    except sqlglot.errors.SqlglotError:
        raise UnansweredError(f"{check.name}: a check that is not understood") from None


def _column(table: Table, name: str | None) -> Column:
    found = next((column for column in table.columns if column.name == name), None)
    if found is None:
        raise UnansweredError(f"{table.name}: a column that it does not have is written")
    return found


def _target(query: ResolvedQuery, schema: Schema) -> Table:
    target = query.tree.this.find(exp.Table) if isinstance(query.tree.this, exp.Expr) else None
    if target is None or target.name not in schema.by_name:
        raise UnansweredError("no table is named")
    return schema.table(target.name)


def _rows(tree: exp.Expr) -> list[exp.Expr]:
    return tree.expression.expressions if isinstance(tree.args.get("expression"), exp.Values) else []


def _names(tree: exp.Expr) -> list[str]:
    return [node.name for node in tree.this.expressions] if isinstance(tree.this, exp.Schema) else []


def _settings(tree: exp.Expr) -> list[exp.Expr]:
    """Return the assignments of UPDATE, or of ON CONFLICT DO UPDATE, each an equation."""
    conflict = tree.args.get("conflict")
    return tree.expressions if isinstance(tree, exp.Update) else conflict.expressions if conflict else []


def _keys(schema: Schema) -> list[ForeignKey]:
    return [key for table in schema.tables for key in (*table.foreign_keys, *table.implied_keys)]


def _restricting(schema: Schema, table: str, above: frozenset[str]) -> list[ForeignKey]:
    found = []
    for key in _keys(schema):
        if key.parent != table or "ON DELETE SET" in (key.actions or ""):
            continue
        cascades = "ON DELETE CASCADE" in (key.actions or "")
        further = above | {table}
        if not cascades or (key.child not in further and _restricting(schema, key.child, further)):
            found.append(key)
    return found


def _refer(key: ForeignKey, rows: Sequence[dict[str, object]], engine: Engine) -> bool:
    """Return whether a row refers to one of these rows."""
    listed = [[literal(row[name]) for name in key.parent_columns] for row in rows]
    values = ", ".join(f"({', '.join(map(str, row))})" for row in listed if None not in row)
    if not values:
        return False
    columns = [exp.column(name, quoted=True).sql() for name in key.columns]
    table = exp.to_identifier(key.child, quoted=True).sql()
    query = f"SELECT 1 FROM {table} WHERE ({', '.join(columns)}) IN ({values}) LIMIT 1"
    return bool(engine.rows(sqlglot.parse_one(query, read="duckdb")))
