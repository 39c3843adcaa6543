"""Codecs: which values share a cell, what happens outside of the domain, and what is refused."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.grid import Grid
from privbench_core.columns.intervals import OrderedCodec, equal_width_codec, log_scale_codec
from privbench_core.columns.made_up import MadeUp
from privbench_core.columns.registry import codec_for
from privbench_core.errors import InternalError, ReleaseError, SourceError, SpecError
from privbench_core.schema.columns import Column, ColumnType, Learn, Pattern, Range, Values
from privbench_core.stored import restored

T = ColumnType
MAX = 2**63 - 1


def chunks(values, type_=None):
    return pa.chunked_array([pa.array(values, type_)], type=type_)


def decoded(codec, cells, seed=0):
    return codec.decode(np.array(cells, np.int32), np.random.default_rng(seed)).to_pylist()


def day(number, month=1, year=2020):
    return date(year, month, number)


HOURS = Range("2020-01-01", "2020-01-01T23:59:59.999999", cells=24)
AGE = Column("age", T.INTEGER, Range(0, 110), nullable=True)
INCOME = Column("income", T.INTEGER, Range(0, 1_000_000, cells=500))
PRICE = Column("price", T.DECIMAL, Range(0, "0.30"), True, precision=38, scale=2)
DAYS = Column("d", T.DATE, Range("2020-01-01", "2020-01-31"), True)
STAY = Column("t", T.INTERVAL, Range("-1 day", "P2D", cells=3), nullable=True)
MOMENT = Column("t", T.TIMESTAMPTZ, HOURS)
HALVES = Column("t", T.TIMESTAMP, Range("2020-01-01", "2020-01-02", cells=2))
WORD = Column("s", T.CATEGORY, Values(("b", "a", "ü")), nullable=True)
NUMBERS = Column("x", T.INTEGER, Values((3, 1, 2)), nullable=True)
NOTE = Column("note", T.TEXT, nullable=True, max_length=20)
SCAN = Column("scan", T.BYTES, nullable=True, max_length=20)
TRUTH = Column("x", T.BOOLEAN, nullable=True)
CENTS = [Decimal("0.00"), Decimal("0.29"), Decimal("0.30"), Decimal("0.31"), Decimal(10) ** 35, -(Decimal(10) ** 35)]
SPAN = timedelta(days=1)
SPANS = [-SPAN, -SPAN / 2, 0 * SPAN, SPAN / 2, SPAN, 2 * SPAN, 3 * SPAN, -2 * SPAN, None]
ENDS = [-(2**63), -(2**62) - 1, -(2**62), -1, 0, 2**62 - 1, 2**62, MAX]
ONE = datetime(2020, 1, 1, 13)
SIX = datetime(2020, 1, 1, 6)


@pytest.mark.parametrize(
    ("column", "values", "arrow", "cells"),
    [
        (AGE, [0, 7, 110, -1, 111, None], None, [0, 7, 110, 111, 112, 113]),
        (INCOME, [0, 1999, 2000, 998_000, 1_000_000, 1_000_001], None, [0, 1, 2, 500, 500, 502]),
        # Zero has a cell of its own wherever it lies in a coarse range.
        (Column("x", T.INTEGER, Range(-100, 99, cells=2)), [-100, -1, 0, 1, 99], None, [0, 0, 1, 2, 2]),
        (Column("x", T.FLOAT, Range(-1, 2, cells=1)), [-0.5, 0.0, 0.5], None, [0, 1, 2]),
        (Column("x", T.INTEGER, Range(-(2**63), MAX, cells=4)), ENDS, None, [0, 0, 1, 1, 2, 3, 4, 4]),
        (PRICE, [*CENTS, None], pa.decimal128(38, 2), [0, 29, 30, 32, 32, 31, 33]),
        (DAYS, [day(1), day(31), day(31, 12, 2019), None], None, [0, 30, 31, 33]),
        (Column("t", T.TIMESTAMP, HOURS), [datetime(2020, 1, 1, 5, 59, 59, 999_999), SIX], None, [5, 6]),
        (MOMENT, [SIX.replace(tzinfo=UTC)], None, [6]),
        (MOMENT, [SIX.replace(tzinfo=timezone(timedelta(hours=2)))], None, [4]),
        (MOMENT, [0], pa.timestamp("s", "Asia/Tokyo"), [24]),
        (STAY, SPANS, pa.duration("us"), [0, 0, 1, 2, 3, 3, 5, 4, 6]),
        (STAY, [1], pa.duration("s"), [2]),
        *((HALVES, [ONE], pa.timestamp(unit), [1]) for unit in ("s", "ms", "ns")),
        # NaN is NULL, and infinity is outside.
        (Column("x", T.FLOAT, Range(0.0, 1.0, cells=4), nullable=True),
         [0.0, -0.0, 0.25, 1.0, float("inf"), float("-inf"), float("nan"), None], None, [0, 0, 2, 4, 6, 5, 7, 7]),
        (WORD, ["b", "ü", "c", None, ""], None, [0, 2, 3, 4, 3]),
        (WORD, ["a", "c"], pa.dictionary(pa.int32(), pa.string()), [1, 3]),
        (NUMBERS, [1, 2, 3, 4, None], None, [1, 2, 0, 3, 4]),
        (Column("x", T.DECIMAL, Values(("0.5", 2)), precision=3, scale=1),
         [Decimal("0.5"), Decimal("2.0"), Decimal("0.6")], None, [0, 1, 2]),
        (Column("x", T.FLOAT, Values((0.0, 1.5)), nullable=True),
         [-0.0, 1.5, float("nan"), float("inf")], None, [0, 1, 3, 2]),
        (TRUTH, [True, False, None], None, [1, 0, 2]),
        (NOTE, ["", "größe", "x" * 20, "x" * 21, None], None, [0, 5, 20, 21, 22]),
        (SCAN, [b"", b"\xff" * 20, b"\0" * 21, None], None, [0, 20, 21, 22]),
        (Column("form", T.JSON, nullable=True, max_length=40), ['{"é": 1}', None], None, [8, 42]),
        (Column("id", T.UUID, nullable=True), ["whatever", None, "x"], None, [0, 1, 0]),
    ],
)  # fmt: skip
def test_values_have_these_cells(column, values, arrow, cells):
    assert codec_for(column).encode(chunks(values, arrow)).tolist() == cells


@pytest.mark.parametrize(
    ("column", "cells", "values"),
    [
        (AGE, [0, 7, 110, 111, 112, 113], [0, 7, 110, 0, 110, None]),
        (INCOME, [0] * 50, [0] * 50),
        (PRICE, [29, 32, 31, 33], [Decimal("0.29"), Decimal("0.30"), Decimal("0.00"), None]),
        (Column("x", T.DECIMAL, Range("-1.5", "1.5"), precision=5, scale=1), range(31),
         [Decimal(i) / 10 for i in range(-15, 16)]),  # also negative ones survive the two words of 128 bits
        (DAYS, [30, 32, 33], [day(31), day(31), None]),
        (STAY, [1, 4, 5, 6], [0 * SPAN, -SPAN, 2 * SPAN, None]),
        (WORD, [0, 1, 2, 4], ["b", "a", "ü", None]),
        (NUMBERS, [0, 4], [3, None]),
        (Column("x", T.DATE, Values(("2020-02-29",))), [0, 1], [day(29, 2)] * 2),
        (TRUTH, [1, 0, 2], [True, False, None]),
    ],
)  # fmt: skip
def test_cells_have_these_values(column, cells, values):
    array = codec_for(column).decode(np.array(cells, np.int32), np.random.default_rng(0))
    assert array.type == column.arrow_type
    array.validate(full=True)
    assert array.to_pylist() == values


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        (Column("x", T.INTEGER, Range(1, 5000)), 256),
        (Column("x", T.INTEGER, Range(1, 3, cells=10)), 3),
        (Column("x", T.FLOAT, Range(1, 2)), 256),
        (INCOME, 501),
        (Column("x", T.INTEGER, Range(-2, 2)), 5),
        (Column("x", T.DATE, Range("1969-01-01", "1971-01-01", cells=2)), 2),
        (Column("note", T.TEXT, max_length=1000), 65),  # one for none
    ],
)
def test_a_domain_is_cut_into_this_many_cells(column, cells):
    assert codec_for(column).ordered == cells


@pytest.mark.parametrize(
    ("column", "first", "labels"),
    [
        (PRICE, 29, ["0.29"]),
        (STAY, 1, ["PT0S"]),
        (WORD, 0, ["b", "a", "ü", "(other)", "NULL"]),
        (Column("x", T.DECIMAL, Values(("0.5", 2)), precision=3, scale=1), 0, ["0.5", "2.0", "(other)"]),
        (TRUTH, 0, ["false", "true", "NULL"]),
        (Column("note", T.TEXT, max_length=1000), 65, ["> 1000 characters"]),
        (SCAN, 5, ["5 bytes"]),
    ],
)
def test_cells_have_labels(column, first, labels):
    assert codec_for(column).labels()[first : first + len(labels)] == labels


def test_values_are_uniform_inside_of_a_cell():
    values = np.array(decoded(codec_for(INCOME), [2] * 5000))
    assert (values.min(), values.max()) == (2000, 3999)
    assert abs(values.mean() - 2999.5) < 30
    one = codec_for(Column("x", T.INTEGER, Range(-(2**63), MAX, cells=1)))
    assert min(decoded(one, [0] * 100)) < -(2**60)
    assert max(decoded(one, [2] * 100)) > 2**60
    for column in (Column("t", T.TIMESTAMP, HOURS), MOMENT):
        assert {value.hour for value in decoded(codec_for(column), [6] * 50)} == {6}
    others = decoded(codec_for(Column("s", T.CATEGORY, Values(("a", "b")))), [2] * 2000)
    assert 900 < others.count("a") < 1100
    assert set(others) == {"a", "b"}


def test_moments_with_a_zone_are_declared_in_any_and_stored_in_utc():
    east = Range("2020-01-01T02:00:00+02:00", "2020-01-01T23:59:59.999999Z", cells=24)
    assert codec_for(MOMENT) == codec_for(Column("t", T.TIMESTAMPTZ, east))
    assert codec_for(MOMENT).edges(0)[0] == "2020-01-01T00:00:00Z"


def test_integers_fit_the_type_of_the_database():
    grid = log_scale_codec(Column("x", T.INTEGER, sql_type="smallint"))
    assert (grid.edges(0)[0], grid.edges(grid.ordered - 1)[1]) == (-32768, 32767)
    assert log_scale_codec(Column("x", T.INTEGER, sql_type="integer")).ordered == 63
    for name in ("bigint", "int8", "some_enum", None):
        assert log_scale_codec(Column("x", T.INTEGER, sql_type=name)).ordered == 127


def test_null_where_none_may_be_is_refused_and_counts_stay_private():
    codec = codec_for(Column("x", T.FLOAT, Range(0, 1)), table="t")
    with pytest.raises(SourceError, match=r"t\.x: found NULL \(or NaN\)") as caught:
        codec.encode(chunks([0.5, float("nan"), None]))
    assert "2" not in str(caught.value)
    assert "2 of 3" in (caught.value.private_detail or "")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (Column("x", T.INTEGER, Range(0, 1)), ["secret"]),
        (Column("x", T.DATE, Range("2020-01-01", "2020-01-02")), [1]),
        (Column("x", T.TIMESTAMP, Range("2020-01-01", "2020-01-02")), [date(2020, 1, 1)]),
        (Column("x", T.DECIMAL, Range(0, 1), precision=3, scale=1), ["secret"]),
        (Column("x", T.CATEGORY, Values(("a",))), [1]),
        (Column("x", T.BOOLEAN), ["secret"]),
        (Column("x", T.TEXT), [1]),
        (Column("x", T.TIMESTAMPTZ, Range("2020-01-01", "2020-01-02")), [datetime(2020, 1, 1)]),
        (Column("x", T.TIMESTAMP, Range("2020-01-01", "2020-01-02")), [datetime(2020, 1, 1, tzinfo=UTC)]),
        (Column("x", T.INTERVAL, Range("PT0S", "P1D")), [1]),
        (Column("x", T.UUID), [b"secret"]),
        (Column("x", T.BYTES), ["secret"]),
        (Column("x", T.JSON), [1]),
        (Column("x", T.TEXT, Pattern("a")), [1]),
    ],
)
def test_the_wrong_type_is_named(column, values):
    with pytest.raises(SourceError, match=r"x: declared \w+, found .*; correct the type") as caught:
        codec_for(column).encode(chunks(values))
    assert "secret" not in str(caught.value)


def test_values_that_do_not_fit_are_not_quoted():
    codec = codec_for(Column("x", T.DECIMAL, Range(0, 9), precision=3, scale=1))
    with pytest.raises(SourceError, match=r"x: holds values that decimal\(3, 1\) cannot represent") as caught:
        codec.encode(chunks([Decimal("1.2345")]))
    assert "2345" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_columns_of_nothing_but_null_have_no_type_of_their_own():
    nothing = chunks([None, None], pa.null())
    for column in [
        Column("x", T.DECIMAL, Range(0, 9), True, 3, 1),
        Column("x", T.DATE, Range("2020-01-01", "2020-01-02"), nullable=True),
        Column("x", T.CATEGORY, Values(("a",)), nullable=True),
        Column("x", T.BOOLEAN, nullable=True),
        Column("x", T.TEXT, nullable=True),
        Column("x", T.TIMESTAMPTZ, Range("2020-01-01", "2020-01-02"), nullable=True),
        Column("x", T.INTERVAL, Range("PT0S", "P1D"), nullable=True),
        Column("x", T.UUID, nullable=True),
        Column("x", T.BYTES, nullable=True),
        Column("x", T.JSON, nullable=True),
        Column("x", T.TEXT, Pattern("a"), nullable=True),
    ]:
        codec = codec_for(column)
        assert codec.encode(nothing).tolist() == [codec.null] * 2
        assert codec.encode(pa.chunked_array([], nothing.type)).tolist() == []


def test_opaque_text_keeps_its_length_and_nothing_else():
    codec, cells = codec_for(NOTE), [0, 5, 20, 21, 22]
    values = decoded(codec, cells)
    assert [None if value is None else len(value) for value in values] == [0, 5, 20, 20, None]
    assert set("".join(value or "" for value in values)) <= set("abcdefghijklmnopqrstuvwxyz ")
    assert values == decoded(codec, cells) != decoded(codec, cells, seed=1)
    long = codec_for(Column("note", T.TEXT, max_length=1000))
    cells = np.arange(long.ordered, dtype=np.int32)
    texts = pa.chunked_array([long.decode(cells, np.random.default_rng(0))])
    assert long.encode(texts).tolist() == cells.tolist()


def test_opaque_text_that_is_called_a_number_is_digits():
    for name, is_number in {"licence_no": True, "LicenceNo": True, "ssn": True, "piano": False, "notes": False}.items():
        codec = codec_for(Column(name, T.TEXT), table="driver")
        made = codec.decode(np.full(50, 9, np.int32), np.random.default_rng(0)).to_pylist()
        assert all(value.isdecimal() and len(value) == 9 for value in made) is is_number


def test_opaque_text_has_no_blanks_at_its_ends():
    """To `character(n)` "" and " " are one value: a unique index was refused by PostgreSQL."""
    codec = codec_for(Column("note", T.TEXT, max_length=9))
    values = decoded(codec, np.tile(np.arange(10), 200).tolist())
    assert any(" " in value for value in values)
    assert all(value == value.strip() for value in values)


def test_the_type_of_the_database_bounds_the_length():
    for sql_type in ("varchar(9)", "character varying(9)", "CHAR(9)", "nvarchar (9)"):
        assert codec_for(Column("x", T.TEXT, sql_type=sql_type)).max_length == 9
    assert codec_for(Column("x", T.TEXT, sql_type="varchar(900)")).max_length == 64
    assert codec_for(Column("x", T.TEXT, sql_type="numeric(9)", max_length=12)).max_length == 12


def test_opaque_bytes_keep_their_length_and_nothing_else():
    values = decoded(codec_for(SCAN), [0, 5, 20, 21, 22])
    assert [None if value is None else len(value) for value in values] == [0, 5, 20, 20, None]
    assert len(set(b"".join(decoded(codec_for(SCAN), [20] * 100)))) == 256


def test_opaque_json_is_an_object_of_its_length():
    codec = codec_for(Column("form", T.JSON, nullable=True, max_length=40))
    *values, none = decoded(codec, range(codec.size))
    assert none is None
    assert [len(value) for value in values] == [2, 2, *range(2, 41), 40]
    assert all(isinstance(json.loads(value), dict) for value in values)
    assert set(json.loads(values[20])) == {"a"}


def test_uuids_are_made_anew():
    codec = codec_for(Column("id", T.UUID, nullable=True))
    values = decoded(codec, [0, 1, 0, 0])
    assert values[1] is None
    assert all(UUID(value).version == 4 and str(UUID(value)) == value for value in values if value)
    assert values == decoded(codec, [0, 1, 0, 0])
    assert set(values) & set(decoded(codec, [0, 1, 0, 0], seed=1)) == {None}
    assert len(set(decoded(codec, [0] * 50_000))) == 50_000
    assert decoded(codec, [1, 1]) == [None, None]
    with pytest.raises(SourceError, match="found NULL"):
        codec_for(Column("id", T.UUID)).encode(chunks(["x", None]))


def test_magnitudes_are_powers_of_two():
    grid = log_scale_codec(Column("x", T.INTEGER, nullable=True))
    cells = grid.encode(chunks([-4, -3, -2, -1, 0, 1, 2, 3, 4, 7, 8, None]))
    assert [grid.edges(c) for c in cells[:-1]] == [
        *[(-7, -4), (-3, -2), (-3, -2), (-1, -1), (0, 0), (1, 1), (2, 3), (2, 3), (4, 7), (4, 7), (8, 15)]
    ]
    assert cells[-1] == grid.null
    low, high = grid.edges(grid.encode(chunks([-(2**63)]))[0])[0], grid.edges(grid.encode(chunks([MAX]))[0])[1]
    assert (low, high) == (-(2**63), MAX)


def test_magnitudes_of_dates_are_calendar_years():
    noon = datetime(2020, 2, 29, 12)
    for kind, value in ((T.DATE, date(2020, 2, 29)), (T.TIMESTAMP, noon), (T.TIMESTAMPTZ, noon.replace(tzinfo=UTC))):
        grid = log_scale_codec(Column("d", kind))
        low, high = grid.edges(grid.encode(chunks([value]))[0])
        assert str(low).startswith("2020-01-01")
        assert str(high).startswith("2020-12-31")
        assert str(grid.edges(0)[0]).startswith("0001-01-01")
        assert str(grid.edges(grid.ordered - 1)[1]).startswith("9999-12-31")


@pytest.mark.parametrize("kind", [kind for kind in T if kind.ordered])
def test_a_range_can_be_built_from_the_edges_of_cells(kind):
    column = Column("x", kind, precision=12, scale=2)
    grid = log_scale_codec(column)
    for first, last in ((0, grid.ordered - 1), (grid.ordered // 2, grid.ordered // 2 + 3)):
        low, high = grid.edges(first)[0], grid.edges(last)[1]
        codec = equal_width_codec(column, low, high, 16)
        assert codec.edges(0)[0] == low
        assert codec.edges(codec.ordered - 1)[1] == high


def test_every_codec_comes_back_from_json():
    columns = [
        Column("a", T.INTEGER, Range(0, 10**9), nullable=True),
        Column("b", T.DECIMAL, Range("0.1", "9.9"), precision=3, scale=1),
        Column("c", T.FLOAT, Range(-0.1, 1e300)),
        Column("d", T.TIMESTAMP, Range("2020-01-01", "2021-01-01"), nullable=True),
        Column("e", T.CATEGORY, Values(("x", "y"))),
        Column("f", T.DATE, Values(("2020-01-01",))),
        Column("g", T.BOOLEAN, nullable=True),
        Column("h", T.TEXT, max_length=7),
        Column("i", T.TIMESTAMPTZ, Range("2020-01-01", "2021-01-01"), nullable=True),
        Column("j", T.INTERVAL, Range("-P1D", "3 days 04:05:06")),
        Column("k", T.UUID, nullable=True),
        Column("l", T.BYTES, max_length=9),
        Column("m", T.JSON, nullable=True),
        Column("n", T.TEXT, Pattern(regex=r"\d{3}"), nullable=True),
        Column("o", T.TEXT, Pattern(provider="name")),
        Column("p", T.INTEGER, Range(0, 9), sql_type="smallint"),
    ]
    codecs = [codec_for(column, table="t") for column in columns]
    codecs += [log_scale_codec(column) for column in columns if column.type.ordered]
    for codec in codecs:
        assert restored(json.loads(json.dumps(codec.to_dict()))) == codec
        assert len(codec.labels()) == codec.size


def test_an_unknown_description_is_refused():
    with pytest.raises(ReleaseError, match=r"class 'zebra'; known: .*OrderedCodec"):
        restored({"class": "zebra"})


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column("x", T.INTEGER, Range(5, 1)), "begins at 5, after its end 1"),
        (Column("x", T.INTEGER, Range(0, 1, cells=0)), "0 cells"),
        (Column("x", T.INTEGER, Range(0, 1, cells=4097)), "4,097 cells; declare 1 to 4,096"),
        (Column("x", T.INTEGER, Range(0, 32768), sql_type="smallint"), "does not fit type integer"),
        (Column("x", T.TIMESTAMPTZ, Range("noon", "2021-01-01")), "'noon' is not a value of type timestamptz"),
        (Column("x", T.INTERVAL, Range("P1D", "a while")), "'a while' is not a value of type interval"),
        (Column("x", T.INTERVAL, Range("P2D", "PT1H")), "begins at 'P2D', after its end 'PT1H'"),
        (Column("x", T.INTEGER, Range(0, 1.5)), "1.5 is not a value of type integer"),
        (Column("x", T.INTEGER, Range(0, 2**63)), "does not fit type integer"),
        (Column("x", T.INTEGER, Range(False, 1)), "False is not a value"),
        (Column("x", T.FLOAT, Range(0, float("inf"))), "inf is not a value"),
        (Column("x", T.DATE, Range("2020-02-30", "2021-01-01")), "'2020-02-30' is not a value of type date"),
        (Column("x", T.TIMESTAMP, Range("2020-01-01T00:00+01:00", "2021-01-01")), "is not a value of type timestamp"),
        (Column("x", T.DECIMAL, Range("0.123", 1), precision=4, scale=2), r"is not a value of type decimal\(4, 2\)"),
        (Column("x", T.DECIMAL, Range(0, 100), precision=4, scale=2), r"does not fit type decimal\(4, 2\)"),
        (Column("x", T.CATEGORY, Values(())), "is empty"),
        (Column("x", T.CATEGORY, Values(("a", "a"))), "twice"),
    ],
)
def test_bad_domains_are_named(column, message):
    with pytest.raises(SpecError, match=rf"^t\.x: .*{message}"):
        codec_for(column, table="t")


def test_columns_without_a_domain_have_no_codec():
    with pytest.raises(InternalError, match="no profile step has replaced it"):
        codec_for(Column("x", T.INTEGER, Learn()))
    with pytest.raises(InternalError, match="no codec for a column of type integer"):
        codec_for(Column("id", T.INTEGER))
    with pytest.raises(InternalError, match="no number line"):
        log_scale_codec(Column("s", T.CATEGORY, Learn()))


def test_a_huge_value_of_a_float_with_steps_is_outside_and_nothing_warns_of_it(recwarn: pytest.WarningsRecorder):
    codec = codec_for(Column("x", T.FLOAT, Range(-2.0, 2.0, step=0.5)))
    inside, beyond = codec.encode(chunks([0.5, 1e308])).tolist()
    assert inside not in codec.outside
    assert beyond in codec.outside
    assert not recwarn.list


def test_a_described_list_holds_a_value_once():
    described = codec_for(Column("x", T.CATEGORY, Values(("a", "b")))).to_dict()
    with pytest.raises(InternalError, match="x: a list that holds a value twice"):
        restored({**described, "values": ["a", "a"]})


def test_made_up_values_of_two_columns_are_different_words_and_those_of_one_always_the_same():
    made = MadeUp((3, 40), (60.0, 40.0), (0.0,) * 6 + (1.0, 1.0, 1.0), 8)
    cells = np.full(500, 2, np.int32)
    codecs = {where: CategoricalCodec(where, T.CATEGORY, ("Ann", "Bob"), False, made=made) for where in ("t.a", "u.a")}
    drawn = {where: set(codec.decode(cells, np.random.default_rng(0)).to_pylist()) for where, codec in codecs.items()}
    assert all(len(words) > 30 for words in drawn.values())
    assert not drawn["t.a"] & drawn["u.a"]
    again = restored(codecs["t.a"].to_dict()).decode(cells, np.random.default_rng(9)).to_pylist()
    assert len(drawn["t.a"] | set(again)) <= 43


def test_made_up_values_keep_what_all_named_ones_have_in_common():
    made = MadeUp((40,), (40.0,), (0.0,) * 5 + (1.0,), 5)
    for names, kept in (
        (("DX250", "DX401", "DX786"), "DX"),
        (("DX250", "DX401"), ""),
        (("DX251", "DX261", "DX291"), ""),
    ):
        values = made.values(names, "t.code").to_pylist()
        assert len(set(values)) == 40
        assert all(value.startswith(kept) for value in values)
        assert kept or not all(value.startswith("DX") for value in values)


def test_numbers_that_are_written_like_dates_are_dates() -> None:
    """A range is learned in cells of a year or a century; what is drawn from them are days all the same."""
    cuts = (20170101, 20170230, 20170301, 20180101)
    codec = OrderedCodec(Grid.of(Column("check_in_date", ColumnType.INTEGER)), False, cuts, 20191231, dates=True)
    drawn = codec.decode(np.repeat(np.arange(4, dtype=np.int32), 500), np.random.default_rng(0)).to_pylist()
    days = [date.fromisoformat(str(number)) for number in drawn]
    assert len(set(days)) > 600
    assert {day.year for day in days[1500:]} == {2018, 2019}
    assert set(drawn[500:1000]) == {20170228}  # a cell without a day


def test_made_up_values_keep_words_that_several_named_ones_have_and_can_be_pronounced():
    made = MadeUp((40,), (40.0,), (0.0,) * 6 + (1.0,) * 8, 14)
    values = made.values(("San Diego", "San Jose", "Houston", "Phoenix"), "t.place").to_pylist()
    assert len(set(values)) == 40
    assert {value[:4] for value in values if " " in value} == {"San "}
    assert not set("".join(values).lower()) & set("jkqvwxyz")
    assert not any(re.search("[^aeiou ]{5}", value) for value in values)


@pytest.mark.parametrize(
    ("column", "known"), [("ShipCity", True), ("company_name", True), ("capacity", False), ("city_code", False)]
)
def test_cities_and_companies_of_which_none_is_named_are_made_up_as_such(column: str, known: bool):
    made = MadeUp((3, 30), (300.0, 30.0), (0.0,) * 8 + (1.0,), 40)
    values = made.values((), f"customer.{column}").to_pylist()
    assert len(set(values)) == 33
    assert (len({*map(len, values)}) > 1) is known
