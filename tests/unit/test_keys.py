"""Fresh keys."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import InternalError, PublishError, SpecError
from privbench_core.sampling.keys import fresh_keys, ordinal_within, surrogate_key
from privbench_core.schema.columns import Column, ColumnType, Learn, Pattern
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ColumnType.INTEGER, [1, 2]),
        (ColumnType.DECIMAL, [Decimal("1.00"), Decimal("2.00")]),
        (ColumnType.TEXT, ["t-000001", "t-000002"]),
        (ColumnType.CATEGORY, ["t-000001", "t-000002"]),
        (ColumnType.DATE, [date(2000, 1, 1), date(2000, 1, 2)]),
        (ColumnType.TIMESTAMP, [datetime(2000, 1, 1), datetime(2000, 1, 1, 0, 0, 1)]),
        (ColumnType.TIMESTAMPTZ, [datetime(2000, 1, 1, tzinfo=UTC), datetime(2000, 1, 1, 0, 0, 1, tzinfo=UTC)]),
    ],
)
def test_keys_have_the_type_of_their_column(kind, expected):
    column = Column("id", kind, precision=5, scale=2)
    key = surrogate_key(column, 2, prefix="t")
    assert key.type == column.arrow_type
    assert key.to_pylist() == expected
    assert len(surrogate_key(column, 0, prefix="t")) == 0


def test_uuids_are_distinct_and_follow_from_the_column_alone():
    column = Column("id", ColumnType.UUID)
    keys = surrogate_key(column, 100_000, prefix="t").to_pylist()
    assert len(set(keys)) == 100_000
    assert all(str(UUID(key)) == key and UUID(key).version == 4 for key in keys[:100])
    assert surrogate_key(column, 10, prefix="t").to_pylist() == keys[:10]
    assert set(surrogate_key(column, 10, prefix="u").to_pylist()).isdisjoint(keys)
    assert len(surrogate_key(column, 0, prefix="t")) == 0


@pytest.mark.parametrize(
    ("sql_type", "n", "first", "last"),
    [
        ("varchar(13)", 9, "person-000001", "person-000009"),
        ("varchar(9)", 9, "pe-000001", "pe-000009"),
        ("char(7)", 36, "000001", "000010"),
        ("char(2)", 36**2 - 1, "01", "ZZ"),
        ("varchar(5)", 1_000_000, "00001", "0LFLS"),
    ],
)
def test_text_keys_fit_short_columns(sql_type, n, first, last):
    keys = surrogate_key(Column("id", ColumnType.TEXT, sql_type=sql_type), n, prefix="person")
    assert (keys[0].as_py(), keys[-1].as_py()) == (first, last)
    assert len(keys.unique()) == n


@pytest.mark.parametrize(
    ("regex", "n", "first", "last"),
    [
        ("[1-9][0-9]{8}", 200, "100000001", "100000200"),
        ("INV-(20)21-[0-9]{5}", 99_999, "INV-2021-00001", "INV-2021-99999"),
        ("[A-C]{2}x", 8, "ABx", "CCx"),
    ],
)
def test_text_keys_follow_their_pattern_as_far_as_it_goes(regex, n, first, last):
    column = Column("id", ColumnType.TEXT, Pattern(regex))
    keys = surrogate_key(column, n, prefix="t").to_pylist()
    assert (keys[0], keys[-1], len(set(keys))) == (first, last, n)
    assert keys == sorted(keys)
    assert all(re.fullmatch(regex, key) for key in keys)
    assert surrogate_key(column, 3, prefix="t", first=5, total=8).to_pylist() == keys[5:8]
    if n < 200:
        with pytest.raises(PublishError, match=f"has room for {n} rows"):
            surrogate_key(column, n + 1, prefix="t")


@pytest.mark.parametrize(
    ("regex", "said"),
    [("a+", "classes and {n} alone"), ("ab|c", "alone"), ("a{9}", "shorten"), ("A{3}", "makes one key alone")],
)
def test_patterns_by_which_keys_cannot_be_numbered_are_refused(regex, said):
    with pytest.raises(SpecError, match=re.escape(said)):
        surrogate_key(Column("id", ColumnType.TEXT, Pattern(regex), max_length=8), 2, prefix="t")


@pytest.mark.parametrize("kind", ["boolean", "bytes", "float", "interval", "json"])
def test_types_that_a_spec_refuses_as_private_keys_have_no_surrogates(kind):
    with pytest.raises(InternalError, match=rf"t\.id: no surrogate keys of type {kind}"):
        surrogate_key(Column("id", ColumnType(kind)), 1, prefix="t")


@pytest.mark.parametrize(
    ("column", "n"),
    [
        (Column("id", ColumnType.TEXT, sql_type="char(2)"), 36**2),
        (Column("id", ColumnType.INTEGER, sql_type="smallint"), 2**15),
        (Column("id", ColumnType.DECIMAL, precision=4, scale=2), 100),
        (Column("id", ColumnType.DATE), 3_000_000),
    ],
)
def test_a_type_with_too_little_room_is_refused(column, n):
    with pytest.raises(PublishError, match=rf"t\.id: a key of type {column.type} has room for .* but {n:,} are needed"):
        surrogate_key(column, n, prefix="t")


def test_ordinals_count_within_groups_in_row_order():
    assert ordinal_within(np.array([7, 3, 7, 7, 3], np.int64)).tolist() == [1, 1, 2, 3, 2]
    assert ordinal_within(np.array([], np.int64)).tolist() == []
    groups = np.random.default_rng(0).integers(0, 50, 2000)
    ordinals = ordinal_within(groups)
    for group in range(50):
        assert ordinals[groups == group].tolist() == list(range(1, (groups == group).sum() + 1))


def event(*key: str, **more: ColumnType) -> Table:
    """A table of this primary key: what a tenant does at some time."""
    at = Column("at", ColumnType.TIMESTAMP, Learn())
    others = [Column(name, more.get(name, ColumnType.INTEGER)) for name in ("tenant", "id", "event_id", "no")]
    return Table("events", (at, *others), key, (ForeignKey("events", ("tenant",), "tenants", ("id",)),))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (("id", "at"), {"id": [1, 2, 3, 4]}),  # the time is that of a partition
        (("at", "event_id"), {"event_id": [1, 2, 3, 4]}),
        (("tenant", "id", "at"), {"id": [1, 2, 1, 2]}),
        (("tenant", "at", "no"), {"no": [1, 2, 1, 1]}),
        (("tenant", "no"), {"no": [1, 2, 1, 2]}),
        (("id", "no"), {"id": [1, 2, 3, 4], "no": [1, 2, 3, 4]}),
    ],
)
def test_an_id_tells_all_rows_apart_and_a_number_counts_within_the_rest_of_the_key(key, expected):
    drawn = {"tenant": pa.array([7, 7, 8, 8]), "at": pa.array([1, 1, 1, 2])}
    made = fresh_keys(event(*key), drawn, 4, (0, 4), ())
    assert {name: values.to_pylist() for name, values in made.items()} == expected


def test_a_uuid_tells_all_rows_apart():
    drawn = {"tenant": pa.array([7, 7, 8, 8]), "at": pa.array([1, 1, 1, 2])}
    made = fresh_keys(event("tenant", "no", no=ColumnType.UUID), drawn, 4, (0, 4), ())
    assert len(set(made["no"].to_pylist())) == 4


def test_an_id_counts_on_in_later_ranges_and_in_the_order_of_rows():
    made = fresh_keys(event("id", "at"), {"at": pa.array([5, 3, 4])}, 3, (10, 13), ("at",))
    assert made["id"].to_pylist() == [13, 11, 12]
