"""Tell the columns of a primary key that only number rows from those that hold a meaning, by their names and types.

In a key of several columns those that are no reference are attributes (the drug in ``encounter, drug``), unless they
count rows (``line``), number them (``id`` next to the time that a table is partitioned by), or identify persons.
"""

from __future__ import annotations

from collections.abc import Collection

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundTable
from privbench_core.draft.names import ends_with, guess_identifying, orders_rows, words_of
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.tables import is_called_like_key
from privbench_core.schema.types.registry import parse_sql_type

# Numbers that begin anew with each owner, or each combination of the rest of the key: last words of their names, and
# whole names. A ``game_num`` may be a number that others give, as that of a house.
_COUNTING = (
    r"(line|item|row|seq|sequence|part|page|step|stint|version|revision|instal+ment|attempt)"
    r"( ?(no|nr|num|number|index|idx))?|(sort|display) order|ordinal|position|idx|index|counter"
)
_COUNTING_ALONE = frozenset({"no", "nr", "num", "number"})


def numbered_columns(table: FoundTable) -> dict[str, tuple[str, ...]]:
    """Return the columns of the primary key that are numbered, each with remarks for the owner of the draft.

    Args:
        table: With those keys alone that its spec declares.
    """
    references = {name for key in table.foreign_keys for name in key.columns}
    own = [table.column(name) for name in table.primary_key if name not in references]
    if len(table.primary_key) == 1:
        return {column.name: () for column in own}
    found = ((column.name, _why_numbered(table, column)) for column in own)
    return {name: (why,) for name, why in found if why is not None}


def _why_numbered(table: FoundTable, column: FoundColumn) -> str | None:
    """Return why a column of a key of several columns is numbered, None if it holds a meaning."""
    kind = column.type
    from_sequence = column.identity or "nextval" in (column.default or "").casefold()
    if from_sequence or is_called_like_key(table.name, column.name) or kind is ColumnType.UUID:
        return "numbers the rows; declare a domain to keep its values"
    counts = ends_with(column.name, _COUNTING) or words_of(column.name) in _COUNTING_ALONE
    if kind is ColumnType.INTEGER and counts:
        return "numbers the rows within the rest of the key; declare a domain to keep its values"
    stored = parse_sql_type(column.sql_type) if column.sql_type else None
    guess = guess_identifying(column, table.name, stored.length if stored else None)
    if guess is not None and guess.of_persons:
        return f"looks like {guess.what}: numbered"
    return None


def referring_attributes(table: FoundTable, catalogue: Catalogue, outside: Collection[str]) -> frozenset[str]:
    """Return the columns of references to public rows alone that have an order: dates, and numbers that name no row.

    A number names a row where it is the key of a table, or called like one.
    """
    found, others = set[str](), set[str]()
    for key in table.foreign_keys:
        if key.parent not in outside:
            others.update(key.columns)
            continue
        naming = {o.columns[0] for o in catalogue.table(key.parent).foreign_keys if len(o.columns) == 1}
        for name, target in zip(key.columns, key.parent_columns, strict=True):
            kind = table.usable[name].type
            number = kind is ColumnType.INTEGER and target not in naming
            if kind and (kind.logical.calendar or (number and orders_rows(name, alone=len(key.columns) == 1))):
                found.add(name)
    return frozenset(found - others - ({*table.primary_key} if len(table.primary_key) == 1 else set()))
