"""Rules on columns that are relative to another one, of the same row or of the row that owns it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from privbench_core.errors import did_you_mean
from privbench_core.schema.columns import Column
from privbench_core.schema.tables import Schema, Table


def find_relative_problems(schema: Schema, broken: Collection[str] = ()) -> list[str]:
    """Return one line per broken rule, except at ``broken`` places."""
    problems: list[str] = []
    for table in schema.private_tables:
        for column in table.columns:
            place = f"{table.name}.{column.name}"
            if column.relative is not None and place not in broken:
                problems += (f"{place}: {problem}" for problem in _of_column(schema, table, column, column.relative.to))
        problems += _circles(table)
    return problems


def _of_column(schema: Schema, table: Table, column: Column, to: str) -> Iterator[str]:
    owner = table.owner_key
    above = None if owner is None else schema.by_name.get(owner.parent)
    of_owner = above is not None and to in table.owner_bases
    known, name = (above, table.owner_bases[to]) if above is not None and of_owner else (table, to)
    base = next((other for other in known.columns if other.name == name), None)
    if column.name in table.key_columns:
        yield "relative_to on a key column; remove it: keys are generated"
    elif base is None:
        candidates = [each.name for each in table.columns]
        candidates += [] if above is None else [f"{above.name}.{each.name}" for each in above.attributes]
        yield f"relative to {to}, which is no column; {did_you_mean(to, candidates)}"
    elif of_owner and owner is not None and owner.optional:
        todo = f"make {owner.name} required, or remove relative_to"
        yield f"relative to {to}, which a row without an owner does not have; {todo}"
    elif base.name in known.key_columns:
        yield f"relative to the key column {to}, whose values are generated; name a column that is no key, or remove it"
    elif (base.type, base.scale) != (column.type, column.scale):
        todo = "differences are taken between columns of one type and scale; change a type, or remove it"
        yield f"of type {column.logical}, relative to {to} of type {base.logical}; {todo}"
    elif of_owner and base.precision != column.precision:
        todo = "declare the same precision for both, or remove relative_to"
        yield f"of type {column.logical}, relative to {to} of type {base.logical}; {todo}"
    elif base.nullable and not column.nullable:
        todo = "there would be nothing to add to; declare it nullable: true, or remove relative_to"
        yield f"never NULL, but relative to {to}, which may be NULL; {todo}"


def _circles(table: Table) -> Iterator[str]:
    """Yield each circle of columns that are relative to each other, once."""
    bases = {column.name: column.relative.to for column in table.columns if column.relative is not None}
    seen: set[str] = set()
    for start in bases:
        path: list[str] = []
        here = start
        while here in bases and here not in seen:
            seen.add(here)
            path.append(here)
            here = bases[here]
        if here in path:
            circle = ", ".join(path[path.index(here) :])
            yield f"{table.name}: {circle}: relative to each other in a circle; remove relative_to from one of them"
