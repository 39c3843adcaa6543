"""Do the rows keep what the spec declares? The twin of `backends.integrity`, for rows that are in a database.

It finds the same problems, and drops and empties the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from sqlglot import exp

from privbench_core.backends.integrity import Findings
from privbench_core.engines.sql.literals import column, is_missing, number
from privbench_core.engines.sql.relations import Tables
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table


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
