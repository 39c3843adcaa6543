"""Which columns, pairs of columns and foreign keys queries touch: a function of their text, without its constants."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations

from sqlglot import exp

from privbench_core.schema.queried import Place, Queried
from privbench_core.schema.tables import Schema
from privbench_core.workload.engine import Catalogue, ResolvedQuery, UnansweredError, resolve
from privbench_core.workload.statements import Workload


@lru_cache(maxsize=4)
def queried_by(workload: Workload, schema: Schema) -> Queried:
    """Return what the queries of a workload touch; those that are not understood touch nothing.

    Columns that a query only shows are left out: mappers of objects show all of a table's.
    """
    catalogue = {table.name: tuple(column.name for column in table.columns) for table in schema.tables}
    attributes = {(table.name, column.name) for table in schema.tables for column in table.attributes}
    keys = [key for table in schema.tables for key in table.foreign_keys]
    tables, columns, pairs, touched_keys = set[str](), set[Place](), set[frozenset[Place]](), set[str]()
    for statement in workload.statements:
        try:
            query = resolve(statement.sql, workload.dialect, catalogue)
        except UnansweredError:
            continue
        found = set(_places(query, catalogue))
        tables |= set(query.tables)
        touched_keys |= {key.name for key in keys if found.issuperset((key.child, name) for name in key.columns)}
        columns |= found & attributes
        pairs |= {frozenset(pair) for pair in combinations(found & attributes, 2)}
    return Queried(frozenset(tables), frozenset(columns), frozenset(pairs), frozenset(touched_keys))


def _places(query: ResolvedQuery, catalogue: Catalogue) -> Iterator[Place]:
    """Yield the columns of tables that a query names: of every table that has one of the name, if it is not said."""
    aliases: dict[str, set[str]] = {}
    for node in query.tree.find_all(exp.Table):
        aliases.setdefault((node.alias or node.name).lower(), set()).add(node.name)
    shown = _shown(query.tree)
    named = [(node.table, node.name) for node in query.tree.find_all(exp.Column) if id(node) not in shown]
    named += [("", column.name) for join in query.tree.find_all(exp.Join) for column in join.args.get("using") or ()]
    for qualifier, column in named:
        for table in aliases.get(qualifier.lower(), set()) if qualifier else query.tables:
            if column in catalogue.get(table, ()):
                yield table, column


def _shown(tree: exp.Query) -> set[int]:
    """Return the ids of the columns that stand alone in the result of a query that neither groups nor is distinct."""
    if not isinstance(tree, exp.Select) or tree.args.get("group") or tree.args.get("distinct"):
        return set()
    return {id(item.unalias()) for item in tree.expressions}
