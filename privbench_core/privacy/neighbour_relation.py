"""The neighbour relation that a schema declares, as facts that can be stored and compared.

A price is a cost for neighbouring databases, and which databases are neighbours follows from the declarations: what
leaves with a unit, what stays and loses a reference. Costs under two relations do not add up, so the ledger stores the
relation of what it has sold (`privacy.ledger.relations`) and refuses to sell under another one.
"""

from __future__ import annotations

from collections.abc import Mapping

from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity, facts
from privbench_core.schema.tables import Schema, Table

Relation = Mapping[str, Identity]
"""Facts by table."""


def neighbour_relation(schema: Schema) -> dict[str, Identity]:
    """Return what the removal of a unit does to each table, as canonical JSON-able facts.

    An empty table is left out: none of its rows is ever read.
    A public table has ``{"public": True}``: removal leaves it as it is. A private one says whether it is the unit's
    table, and of each foreign key its columns, its parent, whether it decides whose row a row is, whether rows go with
    what they refer to, whether it stays inside of a unit, and which columns become NULL otherwise. Keys are in the
    order of their columns; facts that are false or empty are left out. Bounds on children are no part of the relation:
    they decide how much noise it takes, not which databases are neighbours.

    Two relations are compatible if and only if every table that both have has equal facts. Whole tables may be added
    or left out: the facts of a table name all of its keys, and the parent of a key is a table of the same schema, so
    two schemas that share a table share all tables that its rows depend on, with equal facts. What removal does to the
    rows of a table follows from these alone. All tables of compatible schemas together are therefore one relation, and
    each schema sees a part of it that is closed under "depends on": what was released under one of them is a release
    under the common relation, and there costs add up.
    """
    return {table.name: _facts_of(schema, table) for table in schema.tables if not table.empty}


def differences(then: Relation, now: Relation) -> list[str]:
    """Return, in words, how the tables that two relations share differ; nothing if the relations are compatible."""
    return [line for table in then if table in now for line in _compare(table, then[table], now[table])]


def _facts_of(schema: Schema, table: Table) -> Identity:
    if table.public:
        return {"public": True}
    keys = sorted((_facts_of_key(schema, key) for key in table.foreign_keys), key=_target)
    return facts(unit=table.name == schema.unit, keys=keys)


def _facts_of_key(schema: Schema, key: ForeignKey) -> Identity:
    pairs = sorted(zip(key.columns, key.parent_columns, strict=True))
    return facts(
        columns=[column for column, _ in pairs],
        parent=key.parent,
        parent_columns=[column for _, column in pairs],
        owner=key.owner,
        cascades=key.cascades and not schema.table(key.parent).public,  # whose rows never go
        same_unit=key.same_unit,
        becomes_null=sorted(schema.changing_columns(key)),
    )


def _target(key: Identity) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Return what identifies a key within its table."""
    return tuple(key["columns"]), key["parent"], tuple(key["parent_columns"])


def _compare(table: str, then: Identity, now: Identity) -> list[str]:
    if then == now:
        return []
    if then.get("public") != now.get("public"):
        protection = ["public" if given.get("public") else "private" for given in (then, now)]
        return [f"{table}: {protection[0]} then, {protection[1]} now"]
    before, after = ({_target(key): key for key in given.get("keys", ())} for given in (then, now))
    lines = [
        f"{_name(table, target)}: {_terms(before.get(target))} then, {_terms(after.get(target))} now"
        for target in sorted({*before, *after})
        if before.get(target) != after.get(target)
    ]
    if then.get("unit") != now.get("unit"):
        role = ["the unit's table" if given.get("unit") else "not the unit's table" for given in (then, now)]
        lines.insert(0, f"{table}: {role[0]} then, {role[1]} now")
    return lines


def _name(table: str, target: tuple[tuple[str, ...], str, tuple[str, ...]]) -> str:
    columns, parent, _ = target
    inside = columns[0] if len(columns) == 1 else f"({','.join(columns)})"
    return f"{table}.{inside} (to {parent})"


def _terms(key: Identity | None) -> str:
    """Return what removal does along a key, in the words of specs."""
    if key is None:
        return "no key"
    if key.get("owner"):
        terms = "owner"
    elif key.get("cascades"):
        terms = "on_unit_removed: cascade"
    elif nulls := key.get("becomes_null"):
        terms = f"on_unit_removed: set null ({', '.join(nulls)})"
    else:
        terms = "no column becomes NULL"
    return f"{terms}, same_unit" if key.get("same_unit") else terms
