"""Codes for the metrics: declared domains by their codecs, learned ones by bins of the source."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import SourceError
from privbench_core.evaluation.encode import EncodedTable, SourceBins, encode_tables, value_codes
from privbench_core.evaluation.marginals import column_subsets, mean_distances
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Values
from privbench_core.schema.tables import Schema, Table
from tests.helpers.marginals import marginal_distances

SCHEMA = Schema(
    "s",
    (
        Table(
            "t",
            (
                Column("id", ColumnType.INTEGER),
                Column("age", ColumnType.INTEGER, Range(0, 9)),
                Column("sex", ColumnType.CATEGORY, Values(("f", "m")), nullable=True),
                Column("pay", ColumnType.FLOAT, Learn(), nullable=True),
                Column("city", ColumnType.CATEGORY, Learn(), nullable=True),
                Column("works", ColumnType.BOOLEAN),
            ),
            ("id",),
        ),
    ),
    "t",
)


def _rows(n: int, seed: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    pay = [None if u < 0.1 else float(u) for u in rng.random(n)]
    columns = {
        "id": np.arange(n),
        "age": rng.integers(0, 10, n),
        "sex": pa.array(rng.choice(["f", "m"], n), mask=rng.random(n) < 0.2),
        "pay": pa.array(pay, pa.float64()),
        "city": pa.array(rng.choice(["Ulm", "Bonn", "Köln"], n)),
        "works": rng.random(n) < 0.5,
    }
    return {"t": pa.table(columns)}


def test_attributes_are_coded_and_keys_are_not() -> None:
    coded = encode_tables(SCHEMA, _rows(500, 0))["t"]
    assert coded.names == ("age", "sex", "pay", "city", "works")
    assert coded.ordered == (True, False, True, False, False)
    assert coded.codes.shape == (500, 5)
    assert (coded.codes >= 0).all()
    assert (coded.codes < np.array(coded.sizes)).all()


def test_synthetic_rows_share_the_codes_of_the_source() -> None:
    source = _rows(2000, 0)
    true, same = encode_tables(SCHEMA, source)["t"], encode_tables(SCHEMA, source, source)["t"]
    assert mean_distances(true.codes, same.codes, true.sizes, column_subsets(len(true.sizes), 2)).tvd == 0
    # Twice the pay: in the source's bins that is far away, in bins of its own it would look the same.
    doubled = {"t": source["t"].set_column(3, "pay", pa.array([2 * (v or 0) for v in source["t"]["pay"].to_pylist()]))}
    moved = encode_tables(SCHEMA, doubled, source)["t"]
    assert moved.sizes == true.sizes
    assert _one_way(true, moved, "pay") > 0.4
    assert _one_way(true, encode_tables(SCHEMA, _rows(2000, 1), source)["t"], "pay") < 0.15


def _one_way(a: EncodedTable, b: EncodedTable, name: str) -> float:
    position = a.names.index(name)
    return marginal_distances(a.codes, b.codes, (position,), a.sizes).tvd


def test_a_city_the_source_does_not_have_gets_a_code_of_its_own() -> None:
    source, synthetic = _rows(50, 0), _rows(50, 0)
    position = synthetic["t"].column_names.index("city")
    synthetic["t"] = synthetic["t"].set_column(position, "city", pa.array(["Atlantis"] * 49 + [None]))
    codes = encode_tables(SCHEMA, synthetic, source)["t"].codes[:, 3]
    known = encode_tables(SCHEMA, source)["t"].codes[:, 3]
    assert len(set(codes)) == 2
    assert not set(codes) & set(known)


def test_a_list_to_learn_of_a_column_that_is_always_null_is_coded() -> None:
    empty, full = _rows(5, 0), _rows(5, 0)
    empty["t"] = empty["t"].set_column(4, "city", pa.nulls(5, pa.string()))
    (null,) = set(encode_tables(SCHEMA, empty)["t"].codes[:, 3])
    assert null not in encode_tables(SCHEMA, full, empty)["t"].codes[:, 3]


def test_null_where_none_may_be_is_an_error_that_names_the_column() -> None:
    rows = _rows(5, 0)["t"]
    rows = rows.set_column(1, "age", pa.array([1, None, 2, 3, 4]))
    with pytest.raises(SourceError, match=r"t\.age"):
        encode_tables(SCHEMA, {"t": rows})


def test_tables_that_are_not_given_are_left_out() -> None:
    assert encode_tables(SCHEMA, {}) == {}


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, 2, 3, 4, None], pa.int64()),
        ([Decimal("1.10"), Decimal("2.20"), Decimal("3.30"), Decimal("4.40"), None], pa.decimal128(8, 2)),
        ([dt.date(2020, 1, d) for d in (1, 2, 3, 4)] + [None], pa.date32()),
        ([dt.datetime(2020, 1, d) for d in (1, 2, 3, 4)] + [None], pa.timestamp("us")),
        ([1.0, 2.0, 3.0, float("inf"), float("nan")], pa.float64()),
    ],
)
def test_source_bins_of_every_ordered_type(values: list[object], type_: pa.DataType) -> None:
    column = pa.chunked_array([pa.array(values, type_)])
    bins = SourceBins.of(column, bins=4)
    assert bins.encode(column).tolist() == [0, 1, 2, 3, 4]
    assert (bins.size, bins.ordered) == (5, 4)


def test_source_bins_have_equal_counts_and_keep_frequent_values_together() -> None:
    values = pa.chunked_array([pa.array(np.random.default_rng(0).random(3200))])
    counts = np.bincount(SourceBins.of(values).encode(values))
    assert (counts == 100).all()
    spiked = pa.chunked_array([pa.array([0.0] * 900 + list(range(1, 101)))])
    bins = SourceBins.of(spiked)
    assert len(bins.edges) < 10
    assert (bins.encode(spiked)[:900] == 0).all()


def test_source_bins_of_nothing_but_null() -> None:
    nothing = pa.chunked_array([pa.array([None, None], pa.float64())])
    bins = SourceBins.of(nothing)
    assert bins.encode(nothing).tolist() == [1, 1]
    assert bins.encode(pa.chunked_array([pa.array([3.0])])).tolist() == [0]


def test_value_codes_tell_every_value_apart() -> None:
    a = pa.table({"x": [1.5, 1.6, None], "y": ["u", "v", "u"]})
    b = pa.table({"x": pa.array([1.6], pa.float32()).cast(pa.float64()), "y": ["w"]})
    codes_a, codes_b, sizes = value_codes(a, b, ["x", "y"])
    assert sizes == (4, 4)
    assert len(set(codes_a[:, 0]) | set(codes_b[:, 0])) == 4
    assert codes_a[:, 1].tolist() == [0, 1, 0]
    assert codes_b[:, 1].tolist() == [2]
    assert marginal_distances(codes_a, codes_a, (0, 1), sizes).kld == pytest.approx(0)
