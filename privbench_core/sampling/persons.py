"""Generated names of one person agree: the full name and the e-mail address are made of the first and the last name.

All of them follow public rules, so which of them stand together in a row is a rule as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.columns.surrogates import fitted
from privbench_core.schema.columns import Column, Pattern
from privbench_core.schema.tables import Table


def agreeing_names(
    table: Table, columns: Mapping[str, pa.Array], fixed: Collection[str] = frozenset()
) -> dict[str, pa.Array]:
    """Return the first full name and the first e-mail address of each row, made of its first and its last name.

    Args:
        table: The table.
        columns: Values of its columns; a row without one of both names stays as it is.
        fixed: Columns that stay: they are unique, or stand in checks.
    """
    named: dict[str, Column] = {}
    for column in table.columns:
        if isinstance(column.domain, Pattern) and column.domain.provider and column.name in columns:
            named.setdefault(column.domain.provider, column)
    if not {"first_name", "last_name"} <= named.keys():
        return {}
    full = pc.binary_join_element_wise(*(columns[named[each].name] for each in ("first_name", "last_name")), " ")
    found = {}
    for provider in {"name", "email"} & named.keys():
        column = named[provider]
        made, before = full, columns[column.name]
        if provider == "email":
            domains = pc.replace_substring_regex(before, "^[^@]*", "")
            made = pc.binary_join_element_wise(pc.replace_substring(pc.utf8_lower(full), " ", "."), domains, "")
        if column.name not in fixed:
            found[column.name] = fitted(
                column, pc.if_else(pc.and_(pc.is_valid(made), pc.is_valid(before)), made, before)
            )
    return found
