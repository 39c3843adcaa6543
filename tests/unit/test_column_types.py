"""The entries of the column types: what holds across them, so that a new one fits in."""

from __future__ import annotations

import pytest

from privbench_core.backends.catalogue import found_column
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.types.base import OrderedType, is_kind
from privbench_core.schema.types.registry import SqlType, default_sql_type, known_sql_types, parse_sql_type

EXAMPLES = {
    ColumnType.INTEGER: ["-7", "9223372036854775807"],
    ColumnType.DECIMAL: ["-0.05", "123.45"],
    ColumnType.FLOAT: [-0.5, 1e300],
    ColumnType.DATE: ["0001-01-01", "1969-12-31", "9999-12-31"],
    ColumnType.TIMESTAMP: ["0001-01-01T00:00:00", "1969-12-31T23:59:59.999999"],
    ColumnType.TIMESTAMPTZ: ["1970-01-01T01:00:00+02:00", "9999-12-31T23:59:59Z"],
    ColumnType.INTERVAL: ["-PT1.5S", "1 day 02:00:00"],
}


def column(kind: ColumnType) -> Column:
    digits = (9, 2) if kind is ColumnType.DECIMAL else (None, None)
    return Column("x", kind, precision=digits[0], scale=digits[1])


def test_every_sql_name_is_read_as_one_type_and_stored_by_those_that_name_it():
    names = [sql.name for kind in ColumnType for sql in kind.logical.sql]
    synonyms = [word for kind in ColumnType for sql in kind.logical.sql for word in sql.synonyms]
    assert len(known_sql_types()) == len(names) + len(synonyms) == len({*names, *synonyms})
    for kind in ColumnType:
        assert set(kind.logical.also_stored_as) <= set(names)
        for sql in kind.logical.sql:
            assert SqlType(sql.name).read_as is kind


@pytest.mark.parametrize("kind", ColumnType)
def test_the_default_sql_type_stores_the_type_and_is_found_again(kind):
    stored = default_sql_type(column(kind).logical)
    assert kind in stored.stores
    assert parse_sql_type(str(stored)) == stored
    again = ColumnType.CATEGORY if kind is ColumnType.TEXT else kind
    found = found_column("x", str(stored), nullable=False)
    assert (found.type, found.sql_type) == (again, None)


@pytest.mark.parametrize("kind", ColumnType)
def test_the_canonical_arrow_type_is_accepted_and_means_one_type_at_most(kind):
    logical = column(kind).logical
    assert logical.accepts(logical.arrow_type)
    meant = [other for other in ColumnType if is_kind(logical.arrow_type, *other.logical.arrow_kinds)]
    assert meant in ([kind], [ColumnType.CATEGORY])


@pytest.mark.parametrize("kind", EXAMPLES)
def test_numbers_and_values_are_inverse(kind):
    logical = column(kind).logical
    assert isinstance(logical, OrderedType)
    canonical = [logical.parse(value) for value in EXAMPLES[kind]]
    assert None not in canonical
    assert [logical.scalar(logical.number(value)) for value in canonical] == canonical
    assert sorted(canonical, key=logical.sort_key) == canonical
    if not logical.continuous:
        low, high = logical.extent
        assert all(low <= logical.number(value) <= high for value in canonical)
        assert low <= logical.series[0] <= high
