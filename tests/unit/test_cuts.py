"""Codecs with cells of uneven width."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa

from privbench_core.columns.registry import codec_for
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.types.registry import parse_sql_type
from privbench_core.stored import restored
from privbench_core.synthesizers.artifact import Artifact

T = ColumnType
WIDE = codec_for(Column("x", T.INTEGER, Range(1, 1000, cells=10), nullable=True))


def test_a_cut_cell_has_cells_for_its_parts_and_the_others_stay():
    finer = WIDE.cut({0: 100, 9: 3})  # type: ignore[arg-type]
    assert finer.ordered == 8 + 100 + 3
    values = pa.chunked_array([[1, 100, 101, 200, 901, 934, 1000, 0, 1001, None]])
    assert finer.encode(values).tolist() == [0, 99, 100, 100, 108, 109, 110, 111, 112, 113]
    assert finer.labels()[98:101] == ["99", "100", "101 to 200"]
    assert finer.values_in[[0, 100]].tolist() == [1, 100]
    assert restored(Artifact.from_bytes(Artifact(finer.to_dict()).to_bytes()).data) == finer


def test_cells_at_the_ends_of_64_bits_are_cut_exactly():
    whole = codec_for(Column("x", T.INTEGER, Range(-(2**63), 2**63 - 1, cells=1)))
    finer = whole.cut({0: 2})  # type: ignore[arg-type]
    assert finer.labels()[:3] == [f"{-(2**63)} to {-(2**62) - 1}", f"{-(2**62)} to -1", "0"]
    assert finer.values_in.tolist() == [2.0**62, 2.0**62, 1.0, 2.0**63]


def test_a_narrow_cell_of_floats_stands_for_the_roundest_of_them():
    codec = codec_for(Column("x", T.FLOAT, Range(0, 100, cells=10)))
    for _ in range(3):
        cell = int(codec.encode(pa.chunked_array([[9.99]]))[0])
        codec = codec.cut({cell: 1024})  # type: ignore[arg-type]
    cells = codec.encode(pa.chunked_array([[9.99, 9.99, 55.5]]))
    narrow, also, wide = codec.decode(cells, np.random.default_rng(0)).to_pylist()
    assert (narrow, also) == (9.99, 9.99)
    assert 50 < wide < 60
    assert wide != 55.5


def test_a_range_in_steps_has_no_values_between():
    prices = codec_for(Column("p", T.DECIMAL, Range("0.99", "100", step="1.00"), precision=8, scale=2))
    assert prices.ordered == 100
    given = [Decimal(text) for text in ("0.98", "0.99", "2.50", "99.99", "100.99")]
    assert prices.encode(pa.chunked_array([pa.array(given, pa.decimal128(8, 2))])).tolist() == [100, 0, 1, 99, 101]
    assert prices.decode(np.array([0, 100, 101], np.int32), np.random.default_rng(0)).to_pylist() == [
        Decimal("0.99"),
        Decimal("0.99"),
        Decimal("99.99"),
    ]
    assert restored(prices.to_dict()) == prices
    days = codec_for(Column("t", T.TIMESTAMP, Range("1950-01-01T06:00:00", "2049-12-31", cells=100, step="P1D")))
    drawn = days.decode(np.arange(100, dtype=np.int32), np.random.default_rng(0)).to_pylist()
    assert {(moment.hour, moment.minute, moment.microsecond) for moment in drawn} == {(6, 0, 0)}
    assert (days.encode(pa.chunked_array([drawn])) == np.arange(100)).all()


def test_floats_with_a_step_are_decimals_to_the_reader():
    """Money in a column of floats: 5,003 prices became 1.39 million without a step."""
    prices = codec_for(Column("price", ColumnType.FLOAT, Range(0.99, 999.99, step=0.05)))
    assert restored(json.loads(json.dumps(prices.to_dict()))) == prices
    singles = pa.array([9.99, 0.99, 999.94], pa.float32()).cast(pa.float64())  # as a column of type real holds them
    drawn = prices.decode(prices.encode(pa.chunked_array([singles])), np.random.default_rng(0)).to_pylist()
    assert {round(value * 100) % 5 for value in drawn} == {4}
    many = prices.decode(np.arange(prices.ordered, dtype=np.int32).repeat(100), np.random.default_rng(1)).to_pylist()
    assert max(len(repr(value)) for value in many) <= len("999.99")
    assert 0.99 <= min(many) <= max(many) <= 999.99
    assert prices.edges(0)[0] == 0.99


def test_a_decimal_may_be_stored_as_a_float():
    column = Column("price", ColumnType.DECIMAL, Range("0", "99.99"), precision=4, scale=2, sql_type="real")
    stored = pa.chunked_array([pa.array([9.99, 0.1, None], pa.float32())])
    assert column.logical.accepts(stored.type)
    read = column.logical.read(stored, column.arrow_type)
    assert read.to_pylist() == [Decimal("9.99"), Decimal("0.10"), None]
    assert str(column.stored_type) == "real"
    assert ColumnType.DECIMAL in parse_sql_type("double precision").stores
