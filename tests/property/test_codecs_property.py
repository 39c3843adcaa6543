"""What holds for every codec and every value."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from privbench_core.columns.discretizer import merge_cells
from privbench_core.columns.intervals import log_scale_codec
from privbench_core.columns.registry import codec_for
from privbench_core.errors import SpecError
from privbench_core.schema.columns import Column, ColumnType, Pattern, Range, Values
from privbench_core.schema.types.durations import duration_text
from privbench_core.stored import restored

T = ColumnType
INT64 = st.integers(-(2**63), 2**63 - 1)
DECIMALS = st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-3))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
# Arrow itself stumbles over a timedelta in the last second of 64 bits.
SPANS = st.integers(-(2**63) + 10**6, 2**63 - 10**6).map(lambda n: timedelta(microseconds=n))
VALUES = {
    T.INTEGER: INT64,
    T.DECIMAL: DECIMALS,
    T.FLOAT: FLOATS,
    T.DATE: st.dates(),
    T.TIMESTAMP: TIMES,
    T.TIMESTAMPTZ: TIMES.map(lambda moment: moment.replace(tzinfo=UTC)),
    T.INTERVAL: SPANS,
}
OPAQUE = {T.TEXT: st.text(), T.JSON: st.text(), T.BYTES: st.binary()}


def as_declared(value):
    match value:
        case date():
            return value.isoformat()
        case timedelta():
            return duration_text(value // timedelta(microseconds=1))
        case Decimal():
            return str(value)
        case _:
            return value


@st.composite
def ordered_columns(draw):
    """A column with a range, values (NULL included) that may lie outside of it, and the ends of the range."""
    kind = draw(st.sampled_from(sorted(VALUES)))
    low, high = sorted([draw(VALUES[kind]), draw(VALUES[kind])])
    cells = draw(st.none() | st.integers(1, 40))
    domain = Range(as_declared(low), as_declared(high), cells)
    inside = VALUES[kind].filter(lambda value: low <= value <= high) if draw(st.booleans()) else VALUES[kind]
    near = st.sampled_from([low, high]) | inside
    values = draw(st.lists(st.none() | near, max_size=20))
    return Column("x", kind, domain, nullable=True, precision=9, scale=3), values, low, high


def arrow(column, values):
    return pa.chunked_array([pa.array(values, column.arrow_type)])


@given(ordered_columns(), st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_values_come_back_in_their_cell_and_outside_ones_clamped(case, seed):
    column, values, low, high = case
    codec = codec_for(column)
    cells = codec.encode(arrow(column, values))
    assert cells.dtype == np.int32
    back = codec.decode(cells, np.random.default_rng(seed))
    back.validate(full=True)
    assert back.type == column.arrow_type
    again = codec.encode(pa.chunked_array([back]))
    for value, cell, returned, cell_again in zip(values, cells, back.to_pylist(), again, strict=True):
        if value is None:
            assert cell == codec.null
            assert returned is None
        elif value < low:
            assert cell == codec.below
            assert returned == low
        elif value > high:
            assert cell == codec.above
            assert returned == high
        else:
            assert cell < codec.ordered
            assert cell == cell_again
            assert low <= returned <= high


@given(ordered_columns(), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_every_cell_decodes_into_itself_and_its_edges(case, seed):
    column = case[0]
    for codec in (codec_for(column), log_scale_codec(column)):
        cells = np.array([*range(codec.ordered), codec.null], np.int32)
        values = codec.decode(cells, np.random.default_rng(seed))
        assert (codec.encode(pa.chunked_array([values])) == cells).all()
        assert (codec.starts[1:] > codec.starts[:-1]).all()
        assert codec.starts[-1] <= codec.last


@given(ordered_columns(), st.data(), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_cells_of_uneven_width_keep_what_holds_for_equal_ones(case, data, seed):
    column, values, low, high = case
    equal = codec_for(column)
    number = equal.values_in
    chosen = data.draw(st.sets(st.integers(0, equal.ordered - 1), max_size=4))
    finer = equal.cut({cell: int(min(number[cell], data.draw(st.integers(2, 50)))) for cell in chosen})
    assert set(equal.starts.tolist()) <= set(finer.starts.tolist())
    kept = sorted({0, *data.draw(st.sets(st.integers(0, finer.ordered - 1), max_size=30))})
    for codec in (finer, finer.joined(np.array(kept))):
        assert (codec.starts[1:] > codec.starts[:-1]).all()
        assert (codec.ends >= codec.starts).all()
        assert (codec.starts[0], codec.last) == (equal.starts[0], equal.last)
        assert restored(json.loads(json.dumps(codec.to_dict()))) == codec
        cells = codec.encode(arrow(column, values))
        back = codec.decode(cells, np.random.default_rng(seed))
        assert (codec.encode(pa.chunked_array([back]))[cells < codec.ordered] == cells[cells < codec.ordered]).all()
        for value, returned in zip(values, back.to_pylist(), strict=True):
            assert (value is None) == (returned is None)
            assert value is None or low <= returned <= high


@given(ordered_columns())
@settings(max_examples=100, deadline=None)
def test_a_cell_does_not_depend_on_other_rows(case):
    column, values, _, _ = case
    codec = codec_for(column)
    together = codec.encode(arrow(column, values)).tolist()
    assert together == [int(codec.encode(arrow(column, [value]))[0]) for value in values]


@given(
    st.lists(st.text(), min_size=1, max_size=6, unique=True),
    st.lists(st.none() | st.text(), max_size=20),
    st.integers(0, 9),
)
@settings(max_examples=150, deadline=None)
def test_listed_values_come_back_as_they_are(listed, values, seed):
    column = Column("s", T.CATEGORY, Values(tuple(listed)), nullable=True)
    codec = codec_for(column)
    cells = codec.encode(arrow(column, values))
    back = codec.decode(cells, np.random.default_rng(seed)).to_pylist()
    for value, returned in zip(values, back, strict=True):
        assert returned == value if value is None or value in listed else returned in listed


@given(st.data(), st.sampled_from(sorted(OPAQUE)), st.integers(2, 200), st.integers(0, 9))
@settings(max_examples=200, deadline=None)
def test_opaque_values_come_back_in_their_cell_of_lengths(data, kind, max_length, seed):
    values = data.draw(st.lists(st.none() | OPAQUE[kind], max_size=20))
    column = Column("s", kind, nullable=True, max_length=max_length)
    codec = codec_for(column)
    cells = codec.encode(arrow(column, values))
    back = codec.decode(cells, np.random.default_rng(seed))
    back.validate(full=True)
    assert back.type == column.arrow_type
    inside = cells != codec.outside[0]
    if kind is T.JSON:  # no JSON is shorter than two characters but for numbers
        assert all(isinstance(json.loads(text), dict) for text in back.drop_null().to_pylist())
        inside &= (cells >= 2) | (cells == codec.null)
    assert (codec.encode(pa.chunked_array([back]))[inside] == cells[inside]).all()
    assert all(len(value) == max_length for value in back.filter(pa.array(cells == codec.outside[0])).to_pylist())


def regexes():
    """Regular expressions that can be followed, with literals that mean something elsewhere."""
    literal = st.text("ab.*é", min_size=1, max_size=3).map(re.escape)
    simple = literal | st.sampled_from(["[a-f]", "[^a-f]", r"\d", r"\w", r"\S", ".", "[é-ü]"])

    def larger(inner):
        counted = st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,40}", "*?", "{2,}"]))
        return st.one_of(
            counted.map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=1, max_size=3).map(lambda options: f"({'|'.join(options)})"),
        )

    return st.recursive(simple, larger, max_leaves=6)


@given(regexes(), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_made_text_matches_its_pattern_and_fits(regex, max_length, seed):
    column = Column("s", T.TEXT, Pattern(regex=regex), nullable=True, max_length=max_length)
    try:
        codec = codec_for(column)
    except SpecError as error:
        assume("matches no text of at most" not in str(error))
        raise
    cells = np.array([0, 1, 0, 0, 0], np.int32)
    texts = codec.decode(cells, np.random.default_rng(seed)).to_pylist()
    assert [text is None for text in texts] == [False, True, False, False, False]
    assert all(text is None or (re.fullmatch(regex, text) and len(text) <= max_length) for text in texts)


@given(st.lists(st.none() | st.uuids().map(str), max_size=20), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_uuids_come_back_as_others(values, seed):
    column = Column("u", T.UUID, nullable=True)
    codec = codec_for(column)
    back = codec.decode(codec.encode(arrow(column, values)), np.random.default_rng(seed)).to_pylist()
    assert [value is None for value in back] == [value is None for value in values]
    present = [value for value in back if value is not None]
    assert len(set(present)) == len(present)
    assert set(present).isdisjoint(values)


@given(
    st.integers(1, 60),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 25.0]),
    st.integers(1, 70),
    st.lists(st.floats(-100, 1000), min_size=1, max_size=8),
    st.integers(0, 2**32),
)
@settings(max_examples=300, deadline=None)
def test_a_binning_covers_every_cell_and_expands_within_codes(cells, ordered, sigma, max_codes, levels, seed):
    rng = np.random.default_rng(seed)
    domain = Range(1, cells) if ordered else Values(tuple(range(cells)))
    codec = codec_for(Column("x", T.INTEGER, domain, nullable=True))
    noisy = rng.choice(levels, codec.size) + rng.normal(0, 1, codec.size) * sigma
    binning = merge_cells(noisy, codec, sigma, max_codes)
    assert set(binning.code_of) == set(range(binning.size))
    assert binning.size <= max_codes + 3
    weights = np.array(binning.weights)
    assert (weights >= 0).all()
    np.testing.assert_allclose(np.bincount(binning.code_of, weights), 1.0)
    if ordered:
        proper = np.array(binning.code_of[:cells])
        assert set(np.diff(proper)) <= {0, 1}
        assert binning.ordered == proper.max() + 1
    codes = rng.integers(0, binning.size, 500).astype(np.int32)
    expanded = binning.expand(codes, rng)
    assert (binning.codes(expanded) == codes).all()
    expected = weights * np.bincount(codes, minlength=binning.size)[list(binning.code_of)]
    assert np.abs(np.bincount(expanded, minlength=codec.size) - expected).max() < 1 + 1e-6
