"""What of a spec stands in the DDL alone: computed columns, partitions and views; and names that clash there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from privbench_core.schema.checks import is_contained
from privbench_core.schema.columns import EnumType, Generated
from privbench_core.schema.constraints import Check, Index
from privbench_core.schema.partitions import Heir, HeirKey, Partition, Partitioning
from privbench_core.schema.tables import Schema, Table, View, split_name
from privbench_core.spec import forms
from privbench_core.spec.fields import Node
from privbench_core.spec.yaml_io import flow_yaml

# A type that matches cannot end the definition of its column in the DDL.
_PLAIN_TYPE = re.compile(r"[a-z][a-z0-9_ ]*(\(\d+(,\d+)?\))?[a-z ]*(\[\])*")


def parse_generated(node: Node, enums: Mapping[str, EnumType]) -> tuple[Generated, ...]:
    """Return the columns that the database computes."""
    listed = node.inside("generated")
    found = []
    for name in listed.fields:
        item = listed.inside(name, where=f"{node.where}.{name}")
        column = item.build(forms.GENERATED, partial(Generated, name))
        if column is not None and column.sql_type not in enums and not _PLAIN_TYPE.fullmatch(column.sql_type):
            item.wrong("sql_type", forms.GENERATED.keys["sql_type"].todo)
        elif column is not None:
            found.append(column)
    return tuple(found)


def parse_partitioning(table: Node) -> Partitioning | None:
    """Return how the table is partitioned, None if it is not."""
    node = table.inside("partitioned")
    found = node.read(forms.PARTITIONED) if node.fields else {}
    parts = node.items(found.get("partitions"), forms.PARTITION, Partition)
    return Partitioning(found["by"], found["columns"], parts) if parts and None not in found.values() else None


def parse_heirs(table: Node, listed: Iterable[dict[str, Any]]) -> tuple[Heir, ...]:
    """Return the tables that inherit from one."""

    def make(name: str, checks: Any, keys: Any, foreign: Any, indexes: Any, comment: str | None) -> Heir:
        named = Node(table.where, keys or {}, table.problems)
        groups = [(named.value(each, forms.KEY_COLUMNS), each) for each in named.fields]
        return Heir(
            name,
            table.items(checks, forms.CHECK, Check),
            tuple((group, each) for group, each in groups if group is not None),
            table.items(foreign, forms.HEIR_KEY, HeirKey),
            table.items(indexes, forms.INDEX, Index),
            comment,
        )

    return table.items(listed, forms.HEIR, make)


def parse_views(node: Node) -> tuple[View, ...]:
    """Return the views of the whole database."""
    listed = node.inside("views", where="views")
    found = (listed.inside(name, where=name).build(forms.VIEW, partial(View, name)) for name in listed.fields)
    return tuple(view for view in found if view is not None)


_QUERY = re.compile(r"(SELECT|WITH)\b", re.IGNORECASE)
_PARTED = re.compile(r"(RANGE|LIST|HASH) ?\(", re.IGNORECASE)
_BOUNDS = re.compile(r"(FROM|IN|WITH) ?\(", re.IGNORECASE)


def partition_problems(schema: Schema, table: Table) -> Iterator[str]:
    """Yield why partitions would not load, or lose made-up rows: what follows the name of the table."""
    if table.partitioned is None:
        return
    above: dict[str | None, str | None] = {None: table.partitioned.by}
    for part in table.partitioned.partitions:
        if above.get(part.of) is None:
            todo = "name a partition that is listed before it and has by, or remove of"
            yield f": the partition {part.name} names {part.of} under of, which is not a partitioned table; {todo}"
        if not ((part.values == "DEFAULT" or _BOUNDS.match(part.values)) and is_contained(part.values)):
            todo = "write what follows FOR VALUES in its definition, like \"IN ('a')\", or DEFAULT"
            yield f": the partition {part.name}: values is {part.values!r}; {todo}"
        above[part.name] = part.by
    column = next((column for column in table.columns if column.name == table.partitioned.columns[0]), None)
    if column and not table.public:
        domain = None if column.relative else column.domain
        own, null = split_name(table.name, schema.schemas)[1], column.nullable
        for rest in table.partitioned.missing_partitions(own, domain, column.type, nullable=null):
            todo = (
                f"add {flow_yaml(forms.PARTITION.write(rest))} to its partitions, or declare the domain that they cover"
            )
            yield f": synthetic rows may fall outside the partitions of {rest.of or own}; {todo}"
    for by in filter(None, above.values()):
        if not (_PARTED.match(by) and is_contained(by)):
            yield f": partitioned by {by!r}; write what follows PARTITION BY, like RANGE (ordered)"


def heir_problems(schema: Schema, table: Table) -> Iterator[str]:
    """Yield why tables that inherit would not load or not take the rows: what follows the name of the table."""
    groups, foreign = {table.primary_key, *table.unique}, {key.columns for key in table.foreign_keys}
    if table.heirs and table.partitioned:
        yield ": has both heirs and partitioned; remove one"
    keys = (key for each in schema.tables for key in (*each.foreign_keys, *each.implied_keys) if table.heirs)
    for key in (key for key in keys if key.parent == table.name):
        yield f": {key.name} refers to it, but in PostgreSQL not to rows of its heirs; remove its heirs"
    for heir in table.heirs:
        wrong = [columns for columns, _ in heir.keys if columns not in groups]
        wrong += [key.columns for key in heir.foreign_keys if key.columns not in foreign]
        for columns in wrong:
            yield f": {heir.name} has a key on ({', '.join(columns)}), which is none of the table; remove it"


def view_problems(schema: Schema) -> Iterator[str]:
    """Yield what is wrong with views."""
    for view in schema.views:
        if not (_QUERY.match(view.sql) and is_contained(view.sql)):
            todo = "write it without semicolons, comments and unmatched brackets"
            yield f"{view.name}: the view is not one SELECT; {todo}"


def shared_names(schema: Schema) -> Iterator[str]:
    """Yield names that two things of one schema have which PostgreSQL keeps in one list."""
    kinds: dict[tuple[str | None, str], list[str]] = {}
    places = {table: split_name(table.name, schema.schemas) for table in schema.tables}
    for place in places.values():
        kinds[place] = ["a table"]
    for table, (home, _) in places.items():
        found = [(index.name, "an index") for index in table.indexes or ()]
        found += [(name, "a key") for _, name in table.key_names]
        found += [(part.name, "a partition") for part in table.partitioned.partitions] if table.partitioned else []
        counted = (column.sequence.name for column in table.columns if column.sequence)
        found += [(name, "a sequence") for name in counted if name is not None]
        for name, kind in found:
            kinds.setdefault((home, name), []).append(kind)
        for heir in table.heirs:
            there, own = split_name(heir.name, schema.schemas)
            found = [(own, "a table that inherits"), *((index.name, "an index") for index in heir.indexes)]
            for name, kind in (*found, *((name, "a key") for _, name in heir.keys)):
                kinds.setdefault((there, name), []).append(kind)
    for view in schema.views:
        kinds.setdefault(split_name(view.name, schema.schemas), []).append("a view")
    for (_, name), (first, *others) in kinds.items():
        if others:
            what = f"{others[0]} and {first} have this name" if first != "an index" else "two indexes have this name"
            yield f"{name}: {what}, but PostgreSQL allows a name once per schema; rename one"
