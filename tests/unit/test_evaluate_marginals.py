"""Codes for the metrics, and distances between marginals: against values worked out by hand, dense against sparse."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import combinations
from math import log

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import InternalError, SourceError
from privbench_core.evaluation.marginals import (
    EncodedTable,
    MarginalDistances,
    SourceBins,
    column_subsets,
    encode_tables,
    mean_distances,
    subset_distances,
    value_codes,
)
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Values
from privbench_core.schema.tables import Schema, Table


def distances(a: np.ndarray, b: np.ndarray, columns: Sequence[int], sizes: Sequence[int]) -> MarginalDistances:
    """Of the marginals over some columns."""
    return next(subset_distances(a, b, sizes, [tuple(columns)]))


def test_tvd_of_a_hand_counted_pair() -> None:
    a, b = np.array([[0, 0], [0, 1], [1, 1], [1, 1]]), np.array([[0, 0], [1, 1]])
    assert distances(a, b, (0, 1), (2, 2)).tvd == pytest.approx(0.25)  # (.25, .25, 0, .5) against (.5, 0, 0, .5)
    assert distances(a, b, (0,), (2, 2)).tvd == 0


def test_kld_is_of_the_original_from_the_synthetic_table_and_finite() -> None:
    a, b = np.array([[0], [0], [0], [1]]), np.array([[0], [1]])
    expected = 0.75 * log(0.75 / 0.5) + 0.25 * log(0.25 / 0.5)
    assert distances(a, b, (0,), (2,)).kld == pytest.approx(expected, abs=1e-8)
    assert distances(b, a, (0,), (2,)).kld != pytest.approx(expected, abs=1e-3)
    lacking = np.array([[0], [0]])
    assert distances(b, lacking, (0,), (2,)).kld == pytest.approx(0.5 * log(0.5) + 0.5 * log(0.5 / 1e-10), rel=1e-6)


def test_marginals_counted_after_each_other_are_those_counted_alone() -> None:
    """What neighbours share is kept, across all kinds of counting and of numbers, and cells that do not occur."""
    rng = np.random.default_rng(2)
    sizes = (3, 40, 2**31, 5, 2**31, 2**20)
    a, b = (np.stack([rng.integers(0, min(size, 50), rows) for size in sizes], axis=1) for rows in (400, 300))
    subsets = [(0,), (0, 1), (0, 1, 2), (0, 1, 3), (0, 2, 4), (0, 2, 4, 5), (1, 3), (1, 2, 3, 4, 5), (3,), (2, 4, 5)]
    for subset, found in zip(subsets, subset_distances(a, b, sizes, subsets), strict=True):
        rows = [list(map(tuple, table[:, list(subset)].tolist())) for table in (a, b)]
        p, q = ({cell: n / len(each) for cell, n in Counter(each).items()} for each in rows)
        assert found.tvd == pytest.approx(sum(max(0.0, share - q.get(cell, 0)) for cell, share in p.items()))
        kld = sum((p.get(c, 0) + 1e-10) * log((p.get(c, 0) + 1e-10) / (q.get(c, 0) + 1e-10)) for c in p | q)
        assert found.kld == pytest.approx(kld)


def test_a_product_of_sizes_beyond_64_bits_does_not_overflow() -> None:
    size = 2**31
    a = np.array([[size - 1] * 4, [0] * 4, [size - 1, 0, 0, 0]])
    assert distances(a, a[:1], (0, 1, 2, 3), (size,) * 4).tvd == pytest.approx(2 / 3)


@pytest.mark.parametrize("size", [2, 2**20])
@pytest.mark.parametrize(("rows_a", "rows_b", "distance"), [(0, 0, 0), (0, 3, 1), (3, 0, 1)])
def test_empty_tables(rows_a: int, rows_b: int, distance: float, size: int) -> None:
    found = distances(np.zeros((rows_a, 2), int), np.zeros((rows_b, 2), int), (0, 1), (size, size))
    assert found.tvd == distance


def test_codes_outside_of_the_domain_are_our_bug() -> None:
    with pytest.raises(InternalError, match="column 1"):
        distances(np.array([[0, 2]]), np.array([[0, 0]]), (0, 1), (2, 2))


def test_means_are_over_all_marginals_or_the_given_ones() -> None:
    rng = np.random.default_rng(2)
    a, b, sizes = rng.integers(0, 3, (200, 4)), rng.integers(0, 3, (200, 4)), (3, 3, 2**40, 3)
    for subsets in (column_subsets(4, 2), column_subsets(4, 3), column_subsets(4, 2, limit=3, seed=5)):
        each = [distances(a, b, s, sizes) for s in subsets.subsets]
        assert mean_distances(a, b, sizes, subsets) == pytest.approx(np.mean(each, axis=0))
    assert mean_distances(a[:, :1], b[:, :1], (3,), column_subsets(1, 2)) is None


def test_subsets_are_all_or_a_seeded_sample_and_say_so() -> None:
    some = column_subsets(15, 3, limit=200, seed=3)
    every = list(combinations(range(15), 3))
    assert list(some.subsets) == [s for s in every if s in set(some.subsets)]
    assert len(some.subsets) == 200
    assert some == column_subsets(15, 3, limit=200, seed=3) != column_subsets(15, 3, limit=200, seed=4)
    assert str(some) == "200 of 455 3-way marginals (seed 3)"
    assert str(column_subsets(15, 2, limit=200)) == "all 105 2-way marginals"
    with pytest.raises(InternalError, match="at least one column"):
        column_subsets(3, 0)


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


def _rows(n: int, seed: int, **others: pa.Array) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    columns = {
        "id": np.arange(n),
        "age": rng.integers(0, 10, n),
        "sex": pa.array(rng.choice(["f", "m"], n), mask=rng.random(n) < 0.2),
        "pay": pa.array(rng.random(n), mask=rng.random(n) < 0.1),
        "city": pa.array(rng.choice(["Ulm", "Bonn", "Köln"], n)),
        "works": rng.random(n) < 0.5,
    }
    return {"t": pa.table(columns | others)}


def test_synthetic_rows_share_the_codes_of_the_source() -> None:
    source = _rows(2000, 0)
    true = encode_tables(SCHEMA, source)["t"]

    def pay(other: EncodedTable) -> float:
        return distances(true.codes, other.codes, [true.names.index("pay")], true.sizes).tvd

    assert (encode_tables(SCHEMA, source, source)["t"].codes == true.codes).all()
    # Twice the pay: in the source's bins that is far away, in bins of its own it would be the same.
    doubled = _rows(2000, 0, pay=pa.array([2 * (v or 0) for v in source["t"]["pay"].to_pylist()]))
    moved = encode_tables(SCHEMA, doubled, source)["t"]
    assert moved.sizes == true.sizes
    assert pay(moved) > 0.4
    assert pay(encode_tables(SCHEMA, _rows(2000, 1), source)["t"]) < 0.15


def test_values_that_the_source_does_not_have_and_null_get_codes_of_their_own() -> None:
    source, other = _rows(50, 0), _rows(50, 0, city=pa.array(["Atlantis"] * 49 + [None]))
    codes = encode_tables(SCHEMA, other, source)["t"].codes[:, 3]
    known = encode_tables(SCHEMA, source)["t"].codes[:, 3]
    assert len(set(codes)) == 2
    assert not set(codes) & set(known)
    empty = _rows(50, 0, city=pa.nulls(50, pa.string()))
    (null,) = set(encode_tables(SCHEMA, empty)["t"].codes[:, 3])
    assert null not in encode_tables(SCHEMA, source, empty)["t"].codes[:, 3]


def test_null_where_none_may_be_is_an_error_that_names_the_column() -> None:
    with pytest.raises(SourceError, match=r"t\.age"):
        encode_tables(SCHEMA, _rows(5, 0, age=pa.array([1, None, 2, 3, 4])))


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
    assert (np.bincount(SourceBins.of(values).encode(values)) == 100).all()
    spiked = pa.chunked_array([pa.array([0.0] * 900 + list(range(1, 101)))])
    bins = SourceBins.of(spiked)
    assert len(bins.edges) < 10
    assert (bins.encode(spiked)[:900] == 0).all()
    nothing = pa.chunked_array([pa.array([None, None], pa.float64())])
    assert SourceBins.of(nothing).encode(nothing).tolist() == [1, 1]
    assert SourceBins.of(nothing).encode(values).tolist() == [0] * 3200


def test_every_distinct_value_has_a_code() -> None:
    a = pa.table({"x": [1.5, 1.6, None], "y": ["u", "v", "u"]})
    b = pa.table({"x": pa.array([1.6], pa.float32()).cast(pa.float64()), "y": ["w"]})
    codes_a, codes_b, sizes = value_codes(a, b, ["x", "y"])
    assert sizes == (4, 4)
    assert len(set(codes_a[:, 0]) | set(codes_b[:, 0])) == 4
    assert codes_a[:, 1].tolist() == [0, 1, 0]
    assert codes_b[:, 1].tolist() == [2]
