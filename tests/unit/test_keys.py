"""Fresh keys."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import PublishError
from privbench_core.sampling.keys import fresh_key, ordinal_within
from privbench_core.schema.model import Column, ColumnType
from privbench_core.source.arrow_types import arrow_type


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ColumnType.INTEGER, [1, 2]),
        (ColumnType.FLOAT, [1.0, 2.0]),
        (ColumnType.DECIMAL, [Decimal("1.00"), Decimal("2.00")]),
        (ColumnType.TEXT, ["t-000001", "t-000002"]),
        (ColumnType.CATEGORY, ["t-000001", "t-000002"]),
        (ColumnType.DATE, [date(2000, 1, 1), date(2000, 1, 2)]),
        (ColumnType.TIMESTAMP, [datetime(2000, 1, 1), datetime(2000, 1, 1, 0, 0, 1)]),
        (ColumnType.BOOLEAN, [False, True]),
    ],
)
def test_keys_have_the_type_of_their_column(kind, expected):
    column = Column("id", kind, precision=5, scale=2)
    key = fresh_key(column, 2, prefix="t")
    assert key.type == arrow_type(column)
    assert key.to_pylist() == expected
    assert len(fresh_key(column, 0, prefix="t")) == 0


def test_text_keys_stay_in_order_beyond_six_digits():
    keys = fresh_key(Column("id", ColumnType.TEXT), 1_000_001, prefix="t")
    assert keys[0].as_py() == "t-0000001"
    assert keys[-1].as_py() == "t-1000001"
    assert len(pa.compute.unique(keys)) == 1_000_001


@pytest.mark.parametrize(
    ("column", "n"),
    [
        (Column("id", ColumnType.BOOLEAN), 3),
        (Column("id", ColumnType.DECIMAL, precision=4, scale=2), 100),
        (Column("id", ColumnType.DATE), 3_000_000),
    ],
)
def test_a_type_with_too_little_room_is_refused(column, n):
    with pytest.raises(PublishError, match=rf"t\.id: a key of type {column.type} has room for .* and {n:,} are needed"):
        fresh_key(column, n, prefix="t")


def test_a_type_is_used_up_to_its_last_value():
    column = Column("id", ColumnType.DECIMAL, precision=4, scale=2)
    assert fresh_key(column, 99, prefix="t")[-1].as_py() == Decimal("99.00")


def test_ordinals_count_within_groups_in_row_order():
    assert ordinal_within(np.array([7, 3, 7, 7, 3], np.int64)).tolist() == [1, 1, 2, 3, 2]
    assert ordinal_within(np.array([], np.int64)).tolist() == []
    groups = np.random.default_rng(0).integers(0, 50, 2000)
    ordinals = ordinal_within(groups)
    for group in range(50):
        assert ordinals[groups == group].tolist() == list(range(1, (groups == group).sum() + 1))
