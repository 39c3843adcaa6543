"""Expectations in plain words, for people who read checks and refusals."""

from __future__ import annotations

_PLAIN = {
    "expect_column_values_to_not_be_null": "{column} is never NULL",
    "expect_column_values_to_be_unique": "{column} is unique",
    "expect_compound_columns_to_be_unique": "{column} are unique together",
    "expect_column_values_to_be_in_set": "{column} has declared values only",
    "expect_column_values_to_be_between": "{column} stays within its declared bounds",
    "expect_column_value_lengths_to_be_between": "{column} is no longer than declared",
}
_CHECK = "expect_check_to_hold: "
_DEPENDENCY = "expect_functional_dependency: "
_STATEMENTS = (" has its type", " has its form", " refers to ", " of the same unit")  # derived columns that are one


def expectation_in_words(name: str, column: str | None) -> str:
    """Return an expectation as a sentence.

    Args:
        name: Name of the expectation, as in `ExpectationResult`.
        column: Its column or columns, derived ones included.

    >>> expectation_in_words("expect_column_values_to_not_be_null", "age")
    'age is never NULL'
    >>> expectation_in_words("expect_column_values_to_be_in_set", "household_id refers to household")
    'household_id refers to household'
    >>> expectation_in_words("expect_check_to_hold: adult", "age,works")
    'check adult holds'
    """
    column = column or "the table"
    if name.startswith(_CHECK):
        return f"check {name.removeprefix(_CHECK)} holds"
    if name.startswith(_DEPENDENCY):
        return f"{name.removeprefix(_DEPENDENCY).replace(' -> ', ' determines ')}"
    if any(statement in column for statement in _STATEMENTS):
        return column
    if " rows of the same " in column:
        return f"{column}: no more than declared"
    return _PLAIN.get(name, name.replace("_", " ") + " ({column})").format(column=column)
