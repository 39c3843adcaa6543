"""Propose what relates two columns of a table, or of it and its owner, from names and types, for the owner to keep.

Columns are sampled so that pairs are about as frequent as in the source, which does not keep an order: a debut may come
after the final game. A declared check or dependency is kept in every row, and a column that is relative to another one
keeps its distance.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import permutations

from privbench_core.backends.catalogue import FoundColumn, FoundTable
from privbench_core.backends.postgres import quote_identifier
from privbench_core.draft.names import words_of
from privbench_core.schema.columns import ColumnType
from privbench_core.spec.yaml_io import flow_yaml

# What comes first, and what comes after it; parts of names.
_ORDERED = (
    ("start", "end"), ("begin", "end"), ("start", "stop"), ("start", "finish"), ("from", "to"), ("first", "last"),
    ("debut", "final"), ("birth", "death"), ("born", "died"), ("birth", "debut"), ("open", "close"), ("hire", "leave"),
    ("hire", "fire"), ("birth", "hire"), ("order", "ship"), ("order", "required"), ("order", "deliver"),
    ("ship", "deliver"), ("ship", "receipt"), ("commit", "receipt"), ("created", "updated"), ("create", "update"),
    ("created", "closed"), ("creation", "closed"), ("creation", "last"), ("rental", "return"), ("admit", "discharge"),
    ("admission", "discharge"), ("check in", "check out"), ("arrival", "departure"), ("departure", "arrival"),
    ("issue", "expiry"), ("issued", "expires"), ("valid from", "valid to"), ("min", "max"), ("low", "high"),
)  # fmt: skip
_TIMES = frozenset({ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ})
_NUMBERS = frozenset({ColumnType.INTEGER, ColumnType.DECIMAL, ColumnType.FLOAT})
# Times that are not those of an event: long before the rows of a table, or said of some other thing.
_LIVES = (
    "birth", "born", "debut", "min", "low", "first", "from", "valid from", "ship", "commit", "departure", "arrival",
)  # fmt: skip
_BEGINS = tuple(dict.fromkeys(early for early, _ in _ORDERED if early not in _LIVES))
_ENDS = tuple(dict.fromkeys(late for _, late in _ORDERED if late not in (*_BEGINS, *_LIVES)))
_DEPENDENT = (("city", "state"), ("city", "province"), ("state", "country"), ("province", "country"), ("zip", "city"))


def related_lines(table: FoundTable) -> Iterator[str]:
    """Yield the proposals as lines of a spec: commented where they claim something of every row."""
    order = _order(table)
    if order is not None:
        yield f"    row_order: {flow_yaml(order)} # guessed from the names: rows were added in this order"
    dependencies = [{"determinant": first, "dependent": last} for first, last in _dependencies(table)]
    for kind, proposed in (("checks", list(_checks(table))), ("dependencies", dependencies)):
        if proposed:
            listed = ", ".join(map(flow_yaml, proposed))
            yield f"    # {kind}: [{listed}] # guessed from the names: uncomment those that hold in every row"


def propose_bases(table: FoundTable) -> dict[str, FoundColumn]:
    """Return the column that each of some columns is probably relative to: one that is never NULL, if there is one."""
    candidates: dict[str, list[FoundColumn]] = {}
    for first, last in _pairs(table):
        exact = first.type is not None and first.type.difference is not None and first.scale == last.scale
        if exact and table.key_columns.isdisjoint((first.name, last.name)) and last.nullable >= first.nullable:
            candidates.setdefault(last.name, []).append(first)
    found: dict[str, FoundColumn] = {}
    for name, bases in candidates.items():
        base = min(bases, key=lambda column: column.nullable)
        above: FoundColumn | None = base
        while above is not None and above.name != name:
            above = found.get(above.name)
        if above is None:  # else they were relative to each other
            found[name] = base
    return found


def is_sound(base: FoundColumn) -> bool:
    """Return whether a column may be relative to ``base`` whatever its rows are: no value is lost for want of a base.

    Numbers are left to the owner: the least and the largest of something may be as far apart as their size says.
    """
    return not base.nullable and base.type in _TIMES


def creation_of(table: FoundTable) -> FoundColumn | None:
    """Return the time at which a row of a table probably begins: one that is never NULL; None if several may be it."""
    found = [column for column in _begins(table) if not column.nullable]
    return found[0] if len(found) == 1 else None


def follows(column: FoundColumn, creation: FoundColumn) -> bool:
    """Return whether a column may be relative to when its owner began: a time of the same type, but of no birth."""
    return column.type is creation.type and column.scale == creation.scale and not _says(column.name, _LIVES[:2])


def _order(table: FoundTable) -> str | None:
    """Return the column in whose order rows were probably added, where they have numbers of their own; else None.

    It is the time at which they begin, or their only time unless it is that of an end, or of a life. Files do not say
    which columns are never NULL.
    """
    numbers = {column.name for column in table.columns if column.type is ColumnType.INTEGER}
    if not numbers.intersection(table.primary_key).difference(*(key.columns for key in table.foreign_keys)):
        return None
    others = [column for column in _times(table) if not _says(column.name, (*_ENDS, *_LIVES))]
    for found in (_begins(table), others):
        for some in ([column for column in found if not column.nullable], found):
            if len(some) == 1:
                return some[0].name
    return None


def _times(table: FoundTable) -> list[FoundColumn]:
    """Return the dates and times of a table that are no references, and no key by themselves."""
    keys = {name for key in table.foreign_keys for name in key.columns}
    keys |= set(table.primary_key) if len(table.primary_key) == 1 else set()
    return [column for column in table.columns if column.type in _TIMES and column.name not in keys]


def _begins(table: FoundTable) -> list[FoundColumn]:
    """Return those of them at which a row begins, by their names."""
    return [c for c in _times(table) if _says(c.name, _BEGINS) and not _says(c.name, _ENDS)]


def _checks(table: FoundTable) -> Iterator[dict[str, str]]:
    """Yield checks that columns of one type probably keep."""
    declared = " ".join(check.expression for check in table.checks)
    for pair in _pairs(table):
        first, last = (column.name for column in pair)
        if not (first in declared and last in declared):
            here, there = (n if re.fullmatch(r"[a-z_][a-z0-9_]*", n) else quote_identifier(n) for n in (first, last))
            yield {"name": f"{first}_before_{last}", "expression": f"{here} <= {there}"}


def _dependencies(table: FoundTable) -> Iterator[tuple[str, str]]:
    """Yield pairs of columns of which the first probably determines the second."""
    plain = [c.name for c in table.columns if c.type is ColumnType.CATEGORY and c.name not in table.key_columns]
    for city, state in _DEPENDENT:
        yield from (
            (first, last)
            for first, last in permutations(plain, 2)
            if re.sub(rf"\b{city}\b", state, words_of(first)) == words_of(last) != words_of(first)
        )


def _pairs(table: FoundTable) -> Iterator[tuple[FoundColumn, FoundColumn]]:
    """Yield columns of one type of which the first probably comes before the last, each two once."""
    found: dict[frozenset[str], tuple[FoundColumn, FoundColumn]] = {}
    for first, last in permutations(table.columns, 2):
        if first.type is last.type and first.type in _TIMES | _NUMBERS and _in_order(first, last):
            found.setdefault(frozenset((first.name, last.name)), (first, last))
    yield from found.values()


def _in_order(first: FoundColumn, last: FoundColumn) -> bool:
    """Return whether the names differ by a pair of words that are in order, or are such a pair with other words."""
    here, there = words_of(first.name), words_of(last.name)
    for early, late in _ORDERED:
        if re.search(rf"\b{early}", here) and re.search(rf"\b{late}", there):
            same = re.sub(rf"\b{early}", late, here, count=1) == there
            # Dates are comparable whatever else they are called; numbers only if nothing else differs.
            if same or (first.type in _TIMES and not re.search(rf"\b{late}", here)):
                return True
    return False


def _says(name: str, words: Iterable[str]) -> bool:
    """Return whether a word of a name begins with one of some words."""
    return any(re.search(rf"\b{word}", words_of(name)) for word in words)
