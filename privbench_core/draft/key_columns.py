"""Tell the columns of a primary key that only number rows from those that hold a meaning, by their names and types.

In a key of several columns those that are no reference are attributes (the drug in ``encounter, drug``), unless they
count rows (``line``), number them (``id`` next to the time that a table is partitioned by), or identify persons.
"""

from __future__ import annotations

from privbench_core.backends.catalogue import FoundColumn, FoundTable
from privbench_core.draft.names import FEW_SHARE, ends_with, guess_identifying, words_of
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
        return "numbers the rows; with a domain its values are kept"
    counts = ends_with(column.name, _COUNTING) or words_of(column.name) in _COUNTING_ALONE
    if kind is ColumnType.INTEGER and counts:
        return "counts the rows within the rest of the key; with a domain its values are kept"
    stored = parse_sql_type(column.sql_type) if column.sql_type else None
    guess = guess_identifying(column, table.name, stored.length if stored else None)
    if guess is not None and guess.what != FEW_SHARE:
        return f"looks like {guess.what}: numbered"
    return None
