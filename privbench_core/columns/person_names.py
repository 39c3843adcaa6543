"""Names of one person in a row: a first name suits the row's gender, and full names and e-mail addresses both names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.columns.made_up import words_of
from privbench_core.columns.opaque import length_limit
from privbench_core.columns.surrogates import draw_faker_text, fitted
from privbench_core.schema.columns import Column, Pattern
from privbench_core.schema.tables import Table

_FIRST_NAMES = {"f": "first_name_female", "m": "first_name_male"}
"""Provider by the first letter of a gender."""


def gendered_names(
    table: Table, columns: Mapping[str, pa.Array], fixed: Collection[str], rng: np.random.Generator
) -> dict[str, pa.Array]:
    """Return generated first names and full names with a first name that suits the row's gender.

    Args:
        table: The table.
        columns: Values of its columns; only genders in text, of which some begin with f and some with m, are one.
        fixed: Columns that stay: they are unique, or stand in checks.
        rng: Sampling only.
    """
    letters = next(_genders(table, columns), None)
    made = {}
    for column in () if letters is None else table.columns:
        if _provider(column) not in {"first_name", "name"} or column.name not in columns or column.name in fixed:
            continue
        texts = columns[column.name].to_pylist()
        for letter, provider in _FIRST_NAMES.items():
            rows = [row for row in np.flatnonzero(letters == letter).tolist() if texts[row] is not None]
            for row, name in zip(rows, draw_faker_text(provider, len(rows), length_limit(column), rng), strict=True):
                texts[row] = " ".join((name, *texts[row].split()[1:]))
        made[column.name] = fitted(column, pa.array(texts, pa.string()))
    return made


def _genders(table: Table, columns: Mapping[str, pa.Array]) -> Iterator[NDArray[np.object_]]:
    """Yield the first letter of each row's gender, shape (rows,), for each column that holds one."""
    for column in table.columns:
        if column.name in columns and column.type.logical.textual and words_of(column.name) & {"gender", "sex"}:
            letters = pc.utf8_lower(pc.utf8_slice_codeunits(columns[column.name].cast(pa.string()), 0, 1))
            if {*_FIRST_NAMES} <= {*pc.unique(letters).to_pylist()}:
                yield np.asarray(letters.fill_null("").to_numpy(zero_copy_only=False))


def _provider(column: Column) -> str | None:
    return column.domain.provider if isinstance(column.domain, Pattern) else None


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
        if (provider := _provider(column)) and column.name in columns:
            named.setdefault(provider, column)
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
