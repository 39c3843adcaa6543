"""All engines find the same rows, codes, weights and counts as the one in memory, on random schemas and values."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from itertools import combinations, permutations, product
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from sqlglot.tokens import TokenType

from privbench_core.backends.integrity import check_rows, fingerprint_rows
from privbench_core.columns.categorical import categorical_codec
from privbench_core.columns.codec import Codec
from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.group_codes import index_coder
from privbench_core.columns.intervals import OrderedCodec, StepCodec, equal_width_codec, log_scale_codec
from privbench_core.columns.opaque import FormCodec
from privbench_core.columns.registry import codec_for
from privbench_core.columns.row_constraints import NOT_APPLICABLE, SATISFIED, VERDICTS, VIOLATED, expected_numbers
from privbench_core.engines import sql as search_module
from privbench_core.engines.duckdb import DuckDBDatabase
from privbench_core.engines.postgres import PostgresDatabase
from privbench_core.engines.sql import engine as engine_module
from privbench_core.engines.stored import Passing, order_key
from privbench_core.errors import SourceError
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.features import (
    AsStored,
    OfParent,
    Own,
    OwnDifference,
    OwnerDifference,
    OwnFanout,
    ParentRow,
    Satisfies,
    UnitRows,
)
from privbench_core.privacy.relations import WEIGHT_SCALE, is_set_null_across_units
from privbench_core.privacy.view_building import build_references, build_values, build_view
from privbench_core.privacy.views import CodedView, ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Relative
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.row_constraints import (
    DatePart,
    Formula,
    InOrder,
    MissingTogether,
    MissingWhere,
    PartOfDate,
    RowConstraint,
    SameValue,
)
from privbench_core.schema.tables import Schema, Table
from tests.helpers import networks
from tests.helpers.databases import (
    SECRET,
    Database,
    Row,
    adversaries,
    career,
    database_from,
    desk,
    fleet,
    forum,
    shop,
    till,
    town,
)
from tests.helpers.depot import depot
from tests.helpers.engines import Cluster, Place, RowsInMemory, engine_of, in_postgres, opened
from tests.helpers.networks import network, random_scale, random_view
from tests.helpers.noise import RecordingNoise, ReplayNoise, SeededNoise
from tests.helpers.plans import Trace, computing_steps, plan_with, run_step
from tests.helpers.postgres import execute, new_database
from tests.helpers.postgres import rows as rows_of
from tests.property.test_privacy_references import staff

_NUMBERS = Discretizer(equal_width_codec(Column("n", ColumnType.INTEGER), 0, 11))
ENGINES = ["duckdb", "source", "spark"]


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where an engine makes its tables: a folder for DuckDB, the URL of an empty PostgreSQL for the source."""
    if request.param == "duckdb":
        yield tmp_path / "rows"
    elif request.param == "spark":
        yield Cluster(request.getfixturevalue("cluster"), tmp_path / "files")
    else:
        yield new_database(request.getfixturevalue("postgres"), f"engines_{uuid4().hex}")


def weights_of(view: CodedView) -> dict[str, Any]:
    """The weights of the rows that refer to none, and to each parent, of which engines need not name those without."""
    sums = view.data.reference_sums()
    return {"none": sums.none, "of": sorted(filter(None, sums.totals.tolist()))}


# In a server of Spark a statement takes tens of milliseconds, however few the rows: most of its cases are slow tests.
_SEEDS = {"duckdb": range(6), "source": (0, 4, 8), "spark": (0,)}  # PostgreSQL's with no scan, one, and two
_NETWORKS = [
    pytest.param(engine, seed, marks=[] if seed in _SEEDS[engine] else pytest.mark.slow)
    for engine in ENGINES
    for seed in range(9)
]


@pytest.mark.parametrize(("place", "seed"), _NETWORKS, indirect=["place"])
def test_engines_agree_on_random_schemas_and_views(seed: int, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "SmallNumbers", lambda: _NUMBERS)
    for database in (DuckDBDatabase, PostgresDatabase):
        monkeypatch.setattr(database, "scans", seed % 3)  # before a view is written down
    rng = np.random.default_rng([seed, 19])
    database = network(rng)
    private = database.private()
    with closing(engine_of(database, place)) as engine:
        for _ in range(6):
            spec = random_view(rng, database.schema)
            one, other = build_view(private, spec), build_view(engine, spec)
            names = list(spec.features)
            asked = [
                *(tuple(names[:width]) for width in range(4)),
                *((name,) for name in names[1:]),
                tuple(names[:-3:-1]),
            ]
            other.data.prepare(asked)
            for columns in asked:
                np.testing.assert_array_equal(one.counts(columns), other.counts(columns), str((spec, columns)))
            for columns in (each for each in asked if one.clipped and each):
                merged = tuple(2 * rng.integers(0, 3, one.sizes[n]) for n in columns)  # groups that no code is in
                for groups in ((), merged):
                    numbers = [int(of.max()) + 1 for of in groups] or [one.sizes[name] for name in columns]
                    for scales in ((), tuple(random_scale(rng, codes) for codes in numbers)):
                        known, found = (v.data.clipped_counts(columns, groups, scales) for v in (one, other))
                        np.testing.assert_array_equal(known, found, str((spec, scales)))
            for what in ("stability", "weight_scale", "touched", "clipped"):
                assert getattr(one, what) == getattr(other, what)
            assert one.data.held().rows == other.data.held().rows
            engine.end_step()
        for key in (key for table in database.schema.tables for key in table.foreign_keys):
            assert weights_of(build_references(private, key, 2)) == weights_of(build_references(engine, key, 2))
            bounded = (1, 3, 4095) if is_set_null_across_units(database.schema, key) else ()
            for most in bounded:  # 4,095 rows and one weigh 2³¹
                one, other = (weights_of(build_references(each, key, 2, most)) for each in (private, engine))
                assert one["of"] == other["of"]


def test_bounded_references_of_units_weigh_as_much_as_in_memory(place: Place) -> None:
    """Rows of the unit's table: without an owner, each weighs 1/T all the same."""
    database = staff(2, 2, 0)
    with closing(engine_of(database, place)) as engine:
        for key, most, bounded in product(database.schema.table("person").foreign_keys, (1, 3), (1, 2)):
            one, other = (build_references(each, key, most, bounded) for each in (database.private(), engine))
            assert weights_of(one) == weights_of(other)
            assert max(weights_of(one)["of"]) == WEIGHT_SCALE // most


@pytest.mark.parametrize("place", ENGINES, indirect=True)
def test_engines_agree_on_how_long_vectors_of_references_are(place: Place) -> None:
    database = shop(0)
    (key,) = (key for key in database.schema.table("item").foreign_keys if key.name == "item.product_id")
    with closing(engine_of(database, place)) as engine:
        for most in (1, 2, 3):
            known, found = (build_references(each, key, most).data for each in (database.private(), engine))
            sums, others = known.clipped_references(), found.clipped_references()
            assert dict(zip(sums.rows.tolist(), sums.totals.tolist(), strict=True)).items() >= {
                (int(row), int(total)) for row, total in zip(others.rows, others.totals, strict=True)
            }
            assert (int(sums.totals.sum()), sums.none) == (int(others.totals.sum()), others.none)
            assert int(sums.totals.sum()) > int(known.reference_sums().totals.sum())


@pytest.mark.parametrize("place", ENGINES, indirect=True)
def test_engines_agree_on_how_far_days_of_a_row_are_apart(place: Place) -> None:
    """From the year 1 to the year 9999, and where one of them is not there."""
    database = depot(0, relative=False)
    apart = Discretizer(codec_for(Column("apart", ColumnType.INTEGER, Range(-9, 9), nullable=True)))
    spec = ViewSpec(
        "purchase",
        {"late": (OwnDifference("paid", "placed"), apart), "early": (OwnDifference("placed", "paid"), apart)},
    )
    known = build_view(database.private(), spec)
    with closing(engine_of(database, place)) as engine:
        found = build_view(engine, spec)
        for columns in (("late",), ("early",), ("early", "late")):
            np.testing.assert_array_equal(known.counts(columns), found.counts(columns))
    counts = known.counts(("late",))
    assert (counts > 0).sum() > 5
    assert counts[-1] > 0, "of those without a difference"
    assert (counts[:9] == 0).all()
    size = Discretizer(codec_for(database.schema.table("purchase").column("size")))
    assert (
        known.stability == build_view(database.private(), ViewSpec("purchase", {"size": (Own("size"), size)})).stability
    )


@pytest.mark.parametrize("place", ENGINES, indirect=True)
def test_engines_agree_on_how_far_years_days_and_times_are_apart(place: Place) -> None:
    """Of a row from the year 1 to the year 9999, of its owner, and where one of them is not there."""
    days_or_years = Discretizer(codec_for(Column("apart", ColumnType.INTEGER, Range(-9, 9), nullable=True)))
    of_row, _ = _constrained([])
    owned = depot(0, relative=False)
    key = owned.schema.table("purchase").owner_key
    assert key is not None
    pairs = permutations(("day", "time", "whole"), 2)
    of_owner = product(("size", "placed", "paid"), ("since", "seen"))
    for database, table, features in (
        (of_row, "row", [OwnDifference(*pair) for pair in pairs]),
        (owned, "purchase", [OwnerDifference(key, *pair) for pair in of_owner]),
    ):
        spec = ViewSpec(table, {str(n): (each, days_or_years) for n, each in enumerate(features)})
        known = build_view(database.private(), spec)
        with closing(engine_of(database, place)) as engine:
            found = build_view(engine, spec)
            for name, (feature, _) in spec.features.items():
                np.testing.assert_array_equal(known.counts((name,)), found.counts((name,)), str(feature))
        counts = np.array([known.counts((name,)) for name in spec.features])
        assert (counts[:, :19].sum(axis=1) > 0).sum() > len(counts) / 2
        assert (counts[:, -1] > 0).sum() > len(counts) / 2, "of those without a difference"


@pytest.mark.parametrize("place", ["duckdb"], indirect=True)
def test_no_time_is_too_far_from_others_to_be_counted(place: Place) -> None:
    """Such as 'infinity' in DuckDB, by which one row decided whether a run failed."""
    times = (Column(name, ColumnType.TIMESTAMP, Learn(), nullable=True) for name in ("begun", "ended"))
    table = Table("visit", (Column("id", ColumnType.INTEGER), *times), ("id",))
    ends = pa.array([2**63 - 1, 2**63 - 2**40, -(2**63) + 1, 0, None])
    pairs = [
        column.cast(pa.timestamp("us"))
        for column in (ends.take([i // 5 for i in range(25)]), ends.take([*range(5)] * 5))
    ]
    rows = pa.table({"id": np.arange(25), "begun": pairs[0], "ended": pairs[1]})
    database = Database(Schema("clinic", (table,), "visit"), {"visit": rows})
    span = Discretizer(codec_for(Column("apart", ColumnType.INTERVAL, Range("PT0S", "PT1H"), nullable=True)))
    spec = ViewSpec("visit", {"apart": (OwnDifference("ended", "begun"), span)})
    known = build_view(database.private(), spec).counts(("apart",))
    with closing(engine_of(database, place)) as engine:
        np.testing.assert_array_equal(known, build_view(engine, spec).counts(("apart",)))
    assert (known[-1], known.sum()) == (9, 25), "those without a time"


@pytest.mark.parametrize("place", ENGINES, indirect=True)
def test_engines_agree_on_days_as_they_stand_that_are_modelled_as_differences(place: Place) -> None:
    database = depot(0)
    column = replace(database.schema.table("parcel").column("sent"), relative=None)
    coder = Discretizer(equal_width_codec(column, "2010-01-01", "2021-12-31", 12))
    spec = ViewSpec("parcel", {"sent": (AsStored("sent"), coder)})
    known = build_view(database.private(), spec).counts(("sent",))
    with closing(engine_of(database, place)) as engine:
        np.testing.assert_array_equal(known, build_view(engine, spec).counts(("sent",)))
    assert (known[:10] > 0).all()
    assert known[-1] > 0, "not sent"


def _constrained(constraints: Sequence[RowConstraint]) -> tuple[Database, ViewSpec]:
    """Rows of one table with extreme dates, numbers that may be parts of them, and NULLs, and a view of verdicts."""
    days = [moment.date() for moment in (*MOMENTS, dt.datetime(1900, 2, 28), dt.datetime(2024, 12, 30))] * 3 + [None]
    times = [*MOMENTS, dt.datetime(1900, 2, 28, 23), dt.datetime(2024, 12, 30, 5)] * 3 + [None]
    columns = (
        Column("id", ColumnType.INTEGER),
        Column("day", ColumnType.DATE, Learn(), nullable=True),
        Column("time", ColumnType.TIMESTAMP, Learn(), nullable=True),
        Column("whole", ColumnType.INTEGER, Learn(), nullable=True),
        Column("real", ColumnType.FLOAT, Learn(), nullable=True),
        Column("digits", ColumnType.DECIMAL, Learn(), nullable=True, precision=30, scale=0),
        Column("other", ColumnType.DECIMAL, Learn(), nullable=True, precision=30, scale=0),
        Column("cents", ColumnType.DECIMAL, Learn(), nullable=True, precision=12, scale=2),
        Column("big", ColumnType.FLOAT, Learn(), nullable=True),
        Column("text", ColumnType.CATEGORY, Learn(), nullable=True),
        Column("flag", ColumnType.BOOLEAN, nullable=True),
    )
    table, rows = Table("row", columns, ("id",)), list[Row]()
    for place, (day, time) in enumerate(zip(days, times, strict=True)):
        for part in DatePart:
            values = {"day": pa.chunked_array([pa.array([day], pa.date32())])}
            number = int(expected_numbers(table, PartOfDate("whole", "day", part), values)[0][0])
            real = math.nan if place == 1 else float(number) + (0.5 if place == 2 else 0.0)
            whole = None if place == 3 else number + place % 2
            rows.append(
                (
                    len(rows),
                    day,
                    time,
                    whole,
                    real,
                    Decimal(number),
                    Decimal(number + place % 3 * 10**20),
                    Decimal(number * 200) / 100,
                    FLOATS[len(rows) % len(FLOATS)],
                    None if len(rows) % 7 == 0 else TEXTS[len(rows) % 12],
                    (None, True, False)[len(rows) % 3],
                )
            )
    database = database_from(Schema("constrained", (table,), "row"), {"row": rows})
    coder = index_coder("verdict", VERDICTS)
    return database, ViewSpec("row", {str(n): (Satisfies(each), coder) for n, each in enumerate(constraints)})


@pytest.mark.parametrize("place", ENGINES, indirect=True)
def test_engines_agree_on_which_rows_keep_a_constraint(place: Place) -> None:
    """From the year 1 to the year 9999, of numbers of each type, and where one of them is not there."""
    parts = [
        PartOfDate(column, of, part)
        for column, of, part in product(("whole", "real", "digits"), ("day", "time"), DatePart)
    ]
    others = [
        *(InOrder(*pair) for pair in permutations(("digits", "other"))),
        *(InOrder(*pair) for pair in permutations(("big", "real"))),
        *(
            Formula(a, (b, c), product, 0.5)
            for a, b, c in permutations(("whole", "real", "digits", "big"), 3)
            for product in (True, False)
        ),
        Formula("whole", ("cents", "real", "big", "other"), True, 0.005),
        Formula("cents", ("whole", "real"), False, 0.005),
        SameValue("digits", "other"),
        PartOfDate("day", "time", DatePart.DATE),
        MissingTogether(("whole", "real", "day")),
        MissingTogether(("day", "time")),
        *(MissingWhere("whole", "text", tuple(TEXTS[:4]), null) for null in (True, False)),
        MissingWhere("real", "text", (TEXTS[7],), False),
        *(MissingWhere("day", "flag", (told,), null) for told in ("true", "false") for null in (True, False)),
        MissingWhere("text", "flag", ("true", "false"), False),
    ]
    database, spec = _constrained([*parts, *others])
    known = build_view(database.private(), spec)
    with closing(engine_of(database, place)) as engine:
        found = build_view(engine, spec)
        for name in spec.features:
            np.testing.assert_array_equal(known.counts((name,)), found.counts((name,)), spec.features[name][0])
    seen = np.array([known.counts((name,)) for name in spec.features])
    assert (seen[: len(parts), SATISFIED] > 0).all()
    assert (seen[: len(parts), VIOLATED] > 0).all()
    assert (seen[len(parts) :, SATISFIED] > 0).sum() > len(others) / 2
    assert (seen[:, NOT_APPLICABLE] > 0).sum() > len(parts)


def test_what_is_counted_with_other_columns_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = town(0, learned=False)
    coders = {
        "colour": Discretizer(codec_for(database.schema.table("household").column("colour"))),
        "rooms": Discretizer(codec_for(database.schema.table("household").column("rooms"))),
    }
    names = [*coders, "persons"]
    view = ViewSpec("household", {name: (Own(name), coder) for name, coder in coders.items()})
    view.features["persons"] = OwnFanout(database.schema.table("person").owner_key), Discretizer(FanoutCodec(8))
    known = build_view(database.private(), view)
    with closing(engine_of(database, tmp_path / "rows")) as engine:
        rows = build_view(engine, view).data
        rows.prepare([tuple(names), (names[0],)])
        monkeypatch.setattr(DuckDBDatabase, "batches", lambda *_: pytest.fail("another scan"))
        for columns in [*combinations(names, 1), *combinations(reversed(names), 2), tuple(names)]:
            np.testing.assert_array_equal(rows.counts(columns), known.counts(columns))


TEXTS = ["red", "Red", "RED", "rèd", "re\u0301d", " red", "", "'; DROP TABLE t; --", 'a"b', "back\\slash", "tab\t"]
TEXTS += ["new\nline"]
TEXTS += ["日本", "😀", "ß", "ss", "İ", "\u200b", "%", "$1", "{}", "Ω", "z", "Z", "_", "-", "a b", "ab"]
FLOATS = [0.0, -0.0, 0.1, 0.30000000000000004, 1e-320, -1e300, 1e300, float("inf"), -float("inf"), float("nan")]
FLOATS += [2.5, 3.5, -2.5]
FLOATS += [0.015, 0.025, 9.99, 1e15 + 0.5, 2.0**53, np.nextafter(10.0, 11.0), 10.0, 5e-324]
FLOATS += [float(np.float32(0.3)), float(np.float32(1234.56)), 1234.56, 123456.789, 1e6, 4500.0, 1e8 + 0.01, 1e-9]
INTEGERS = [0, 1, -1, 7, 100, 101, -(2**63), 2**63 - 1, 2**31, -5, 49, 50, 51]
DECIMALS = [Decimal(number).scaleb(-2) for number in (0, 1, -1, 5, 50, 99, 100, -100, 10**9, -(10**9), 12345, 25)]
LONG = [Decimal(number) for number in (0, 2**63, -(2**63) - 1, 2**63 - 1, 10**30, -(10**30), 1000)]
MOMENTS = [dt.datetime(1970, 1, 1), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]
MOMENTS += [dt.datetime(2020, 2, 29, 12, 30, 0, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]
MOMENTS += [dt.datetime(2021, 1, 1)]
SPANS = [dt.timedelta(0), dt.timedelta(days=40, seconds=1), -dt.timedelta(days=1), dt.timedelta(microseconds=7)]


def _column(kind: ColumnType, **more: Any) -> Column:
    return Column("v", kind, nullable=True, **more)


def _cases() -> dict[str, tuple[Column, list[Any], list[Codec]]]:
    """By name: a column, values, and codecs that look at them in different ways."""
    i, f, d = _column(ColumnType.INTEGER), _column(ColumnType.FLOAT), _column(ColumnType.DECIMAL, precision=12, scale=2)
    long, text = _column(ColumnType.DECIMAL, precision=38, scale=0), _column(ColumnType.TEXT, max_length=9)
    category, day = _column(ColumnType.CATEGORY), _column(ColumnType.DATE)
    stamp, zoned, span = (_column(k) for k in (ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ, ColumnType.INTERVAL))
    data, ident = _column(ColumnType.BYTES, max_length=3), _column(ColumnType.UUID)
    grid = equal_width_codec(f, -10.0, 10.0, 7).grid
    uneven = OrderedCodec(grid, True, (-1.0, 0.0, 5e-324, 0.1, 2.5), 10.0)
    stepped = equal_width_codec(stamp, "2000-01-01T00:00:00", "2030-01-01T00:00:00", 50, step="P1D")
    return {
        "integers": (
            i,
            INTEGERS,
            [
                equal_width_codec(i, 0, 100, 3),
                equal_width_codec(i, -5, 60, step=7),
                log_scale_codec(i),
                StepCodec.of(i),
                categorical_codec(i, (7, 0, -1, 100)),
                equal_width_codec(i, -(2**63), 2**63 - 1, 9),
            ],
        ),
        "floats": (
            f,
            FLOATS,
            [
                equal_width_codec(f, -10.0, 10.0, 7),
                equal_width_codec(f, 0.0, 10.0, 40, step=0.01),
                log_scale_codec(f),
                categorical_codec(f, (0.0, 0.1, 2.5)),
                uneven,
                StepCodec.of(f),
            ],
        ),
        "decimals": (
            d,
            DECIMALS,
            [
                equal_width_codec(d, "0", "100", 9),
                equal_width_codec(d, "-1", "100", step="0.25"),
                log_scale_codec(d),
                categorical_codec(d, ("0.01", "1", "-1.00")),
                StepCodec.of(d),
            ],
        ),
        "long decimals": (
            long,
            LONG,
            [equal_width_codec(long, 0, 2**62, 5), log_scale_codec(long), categorical_codec(long, (0, 1000))],
        ),
        "categories": (
            category,
            TEXTS,
            [
                categorical_codec(category, tuple(TEXTS[::2])),
                categorical_codec(category, ("red",)),
                categorical_codec(category, ("absent", "a\0b")),
            ],
        ),
        "forms": (category, ["12", "1.5", ".", "", "1.2.3", "-7", "1e5", "٣", "7\n", "x7"], [FormCodec("v", True)]),
        "text": (text, TEXTS, [codec_for(text)]),
        "bytes": (data, [b"", b"\0", b"abc", b"\xff" * 9], [codec_for(data)]),
        "uuids": (ident, ["0b8b7c2e-5e0f-4d8e-9b1a-000000000001"], [codec_for(ident)]),
        "booleans": (_column(ColumnType.BOOLEAN), [True, False], [categorical_codec(_column(ColumnType.BOOLEAN), ())]),
        "days": (
            day,
            [moment.date() for moment in MOMENTS],
            [
                equal_width_codec(day, "1990-01-01", "2030-01-01", 5),
                equal_width_codec(day, "1990-01-01", "2030-01-01", step="P7D"),
                log_scale_codec(day),
                categorical_codec(day, ("1970-01-01",)),
            ],
        ),
        "moments": (
            stamp,
            MOMENTS,
            [
                equal_width_codec(stamp, "1969-01-01T00:00:00", "2020-12-31T00:00:00", 5),
                stepped,
                log_scale_codec(stamp),
                StepCodec.of(stamp),
            ],
        ),
        "zoned moments": (
            zoned,
            [moment.replace(tzinfo=dt.UTC) for moment in MOMENTS],
            [log_scale_codec(zoned), StepCodec.of(zoned)],
        ),
        "spans": (span, SPANS, [equal_width_codec(span, "P0D", "P50D", 5), log_scale_codec(span)]),
    }


_CODES = [
    pytest.param(engine, name, marks=[pytest.mark.slow] if engine == "spark" and name in {"days", "moments"} else [])
    for engine in ENGINES
    for name in _cases()
    if (engine, name) != ("spark", "spans")  # which are refused
]


@pytest.mark.parametrize(("place", "name"), _CODES, indirect=["place"])
def test_engines_give_a_value_the_same_code(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "_FEW", 0)  # in what is searched as a list, too
    column, values, codecs = _cases()[name]
    table = Table("row", (Column("id", ColumnType.INTEGER), column), ("id",))
    rows: list[tuple[object, ...]] = [(number, value) for number, value in enumerate([*values, None, *values])]
    database = database_from(Schema("values", (table,), "row"), {"row": rows})
    private = database.private()
    with closing(engine_of(database, place)) as engine:
        for codec in codecs:
            merged = Binning(tuple(place % 3 for place in range(codec.size)), (1.0,) * codec.size)
            for discretizer in (Discretizer(codec), Discretizer(codec, merged)):
                spec = ViewSpec("row", {"v": (Own("v"), discretizer)})
                one, other = build_view(private, spec), build_view(engine, spec)
                np.testing.assert_array_equal(one.counts(("v",)), other.counts(("v",)), str(codec))
        if column.type is ColumnType.CATEGORY:
            assert engine.texts("row", "v", ()) == private.texts("row", "v", ())
            named = (*TEXTS[:3], "a\0b")
            one, other = (weights_of(build_values(each, "row", "v", named, 1)) for each in (private, engine))
            assert one == other


def _wide_cases() -> dict[str, tuple[Column, list[Any], Codec]]:
    """By name: a column, values beside many bounds, and a codec of as many."""
    rng = np.random.default_rng(5)
    f, d = _column(ColumnType.FLOAT), _column(ColumnType.DECIMAL, precision=12, scale=2)
    stamp, category = _column(ColumnType.TIMESTAMP), _column(ColumnType.CATEGORY)
    uneven = tuple(np.unique(rng.normal(size=500)).tolist())
    narrow = OrderedCodec(equal_width_codec(f, -9.0, 9.0, 7).grid, True, uneven, 9.0)
    bounds = np.array(uneven)
    floats = np.concatenate([bounds, np.nextafter(bounds, -9), np.nextafter(bounds, 9), FLOATS]).tolist()
    cents = [Decimal(int(number)).scaleb(-2) for number in rng.integers(-(10**7), 10**9, 2000)]
    first = dt.datetime(2020, 1, 1)
    moments = [first + dt.timedelta(microseconds=int(number)) for number in rng.integers(-(10**12), 4 * 10**13, 2000)]
    listed = tuple(dict.fromkeys([*TEXTS, *(chr(number) * (1 + number % 3) for number in range(1, 2000, 3)), "\ue000"]))
    listed_floats = tuple(dict.fromkeys([*FLOATS[2:5], 0.0, *uneven[:99]]))
    return {
        "floats": (f, floats, narrow),
        "listed floats": (f, floats, categorical_codec(f, listed_floats)),
        "decimals": (d, [*DECIMALS, *cents], equal_width_codec(d, "0", "9000000", 300)),
        "moments": (stamp, [*MOMENTS, *moments], equal_width_codec(stamp, "2020-01-01", "2021-04-01", 400)),
        "categories": (category, [*listed, *TEXTS, *(f"{text} " for text in listed), "b\0"], categorical_codec(
            category, (*listed[::2], "b\0"))),
    }  # fmt: skip


@pytest.mark.parametrize("name", _wide_cases())
def test_engines_give_a_value_the_same_of_many_codes(name: str, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's parser keeps what it learns of each nesting of expressions: many bounds would take its server's memory.

    So neither how deep statements are nested there nor of how many parts they are depends on how many bounds they name.
    """
    column, values, codec = _wide_cases()[name]
    if isinstance(place, str):  # PostgreSQL has no such texts
        values = [value for value in values if not isinstance(value, str) or "\0" not in value]
    sent: list[str] = []
    if isinstance(place, Cluster):
        from privbench_core.engines.spark import SparkDatabase

        spell = SparkDatabase._text
        monkeypatch.setattr(SparkDatabase, "_text", lambda *query: sent.append(spell(*query)) or sent[-1])
    table = Table("row", (Column("id", ColumnType.INTEGER), column), ("id",))
    rows: list[tuple[object, ...]] = list(enumerate([*values, None]))
    database = database_from(Schema("values", (table,), "row"), {"row": rows})
    discretizers = [Discretizer(codec)]
    merged = tuple((7 * place) % 151 for place in range(codec.size))
    discretizers.append(Discretizer(codec, Binning(merged, (1.0,) * codec.size)))
    private = database.private()
    with closing(engine_of(database, place)) as engine:
        for discretizer in discretizers:
            spec = ViewSpec("row", {"v": (Own("v"), discretizer)})
            one, other = build_view(private, spec), build_view(engine, spec)
            assert np.count_nonzero(one.counts(("v",))) > 100
            np.testing.assert_array_equal(one.counts(("v",)), other.counts(("v",)))
    for statement in sent:
        tokens = sqlglot.tokenize(statement, dialect="spark")
        kinds = [token.token_type for token in tokens]
        opened = np.isin(kinds, [TokenType.CASE, TokenType.L_PAREN]).astype(int)
        closed = np.isin(kinds, [TokenType.END, TokenType.R_PAREN]).astype(int)
        assert np.cumsum(opened - closed).max() < 12, statement[:2000]
        assert len(tokens) < 250, statement[:2000]


def _steps(column: Column) -> list[Codec]:
    classes = StepCodec.of(column)
    assert classes is not None
    return [classes]


def _relative_cases() -> dict[str, list[Codec]]:
    """Codecs of differences, by the case of `_cases` whose values they are taken between."""
    of = {name: replace(column, relative=Relative("base", Learn())).modelled for name, (column, *_) in _cases().items()
          if column.type.difference}  # fmt: skip
    least, most = -(2**63) + 1, 2**63 - 1
    return {
        "integers": [
            equal_width_codec(of["integers"], least, most, 9),
            equal_width_codec(of["integers"], -60, 60, step=7),
            log_scale_codec(of["integers"]),
            categorical_codec(of["integers"], (0, 1, -1, most, least)),
        ],
        "decimals": [
            equal_width_codec(of["decimals"], "-1", "100", step="0.25"),
            log_scale_codec(of["decimals"]),
            *_steps(of["decimals"]),
        ],
        "long decimals": [log_scale_codec(of["long decimals"]), categorical_codec(of["long decimals"], (0, 1000))],
        "days": [equal_width_codec(of["days"], 0, 365), log_scale_codec(of["days"])],
        "moments": [
            equal_width_codec(of["moments"], "PT0S", "P3650D", 50, step="PT1M"),
            log_scale_codec(of["moments"]),
            *_steps(of["moments"]),
        ],
        "zoned moments": [log_scale_codec(of["zoned moments"])],
        "spans": [log_scale_codec(of["spans"]), equal_width_codec(of["spans"], "-P1D", "P50D", 5)],
    }


_QUICK = {"source": ("integers", "days", "spans"), "spark": ("integers",)}
_DIFFERENCES = [
    pytest.param(engine, name, marks=[] if engine == "duckdb" or name in _QUICK[engine] else pytest.mark.slow)
    for engine in ENGINES
    for name in _relative_cases()
    if (engine, name) != ("spark", "spans")  # which are refused
]


@pytest.mark.parametrize(("place", "name"), _DIFFERENCES, indirect=["place"])
def test_engines_give_a_difference_the_same_code(name: str, place: Place) -> None:
    """Between all pairs of values and NULL: of rows of the unit, of rows that it owns, and of what a row refers to.

    And of rows whose value is relative to one of their owner, along a key of two columns, which is relative itself.
    """
    column, values, _ = _cases()[name]
    column = replace(column, relative=Relative("base", Learn()))
    base = replace(column, name="base", relative=None)
    number = Column("id", ColumnType.INTEGER)
    unit = Table("unit", (number, column, base), ("id",))  # a base may come after what is relative to it
    owner = ForeignKey("row", ("up",), "unit", ("id",), max_children=9, owner=True)
    row = Table("row", (number, base, Column("up", ColumnType.INTEGER), column), ("id",), (owner,))
    along = ForeignKey("below", ("of", "up"), "row", ("id", "up"), max_children=1, owner=True)
    above_it = replace(column, relative=Relative("row.v", Learn()))
    referring = (Column("of", ColumnType.INTEGER), Column("up", ColumnType.INTEGER))
    below = Table("below", (number, *referring, above_it), ("id",), (along,))
    every = product([*values, None], repeat=2)
    pairs = [pair for place, pair in enumerate(every) for _ in range(1 + place % 3)]  # not as often as turned round
    rows: dict[str, list[tuple[object, ...]]] = {
        "unit": [(place, *pair) for place, pair in enumerate(pairs)],
        "row": [(place, one, place, other) for place, (one, other) in enumerate(pairs)],
        "below": [(place, place, place, one) for place, (one, _) in enumerate(pairs)],
    }
    database = database_from(Schema("differences", (unit, row, below), "unit"), rows)
    private = database.private()
    with closing(engine_of(database, place)) as engine:
        for codec in _relative_cases()[name]:
            own: dict[str, Any] = {"v": (Own("v"), Discretizer(codec))}
            above: dict[str, Any] = {"v": (OfParent(owner, "v"), Discretizer(codec))}
            for spec in (*(ViewSpec(each, own) for each in ("unit", "row", "below")), ViewSpec("row", above)):
                one, other = build_view(private, spec), build_view(engine, spec)
                np.testing.assert_array_equal(one.counts(("v",)), other.counts(("v",)), str((spec.table, codec)))
                assert np.count_nonzero(one.counts(("v",))) > 2


@pytest.mark.parametrize("name", ["integers", "decimals", "long decimals", "text", "days", "moments", "zoned moments"])
def test_engines_keep_the_same_children_whatever_their_keys_are(name: str, place: Place) -> None:
    column, values, _ = _cases()[name]
    unit = Table("unit", (Column("id", ColumnType.INTEGER),), ("id",))
    key = Column("k", column.type, precision=column.precision, scale=column.scale)
    owner = ForeignKey("row", ("up",), "unit", ("id",), max_children=3, owner=True)
    number = Column("v", ColumnType.INTEGER)
    row = Table("row", (key, Column("up", ColumnType.INTEGER), number), ("k", "v"), (owner,))
    rows: list[tuple[object, ...]] = [(value, 0, place) for place, value in enumerate(values)]
    database = database_from(Schema("keys", (unit, row), "unit"), {"unit": [(0,)], "row": rows})
    private = database.private()
    kept = sorted(np.flatnonzero(private.kept("row")).tolist())
    assert len(kept) == 3
    numbers = Discretizer(equal_width_codec(number, 0, len(rows) - 1))
    with closing(engine_of(database, place)) as engine:
        found = build_view(engine, ViewSpec("row", {"v": (Own("v"), numbers)})).counts(("v",))
    assert np.flatnonzero(found).tolist() == kept


def _texts_of_units(held: list[list[str | None]], bound: int) -> Database:
    """Units, and rows of theirs with these texts, of which ``bound`` each are kept."""
    unit = Table("unit", (Column("id", ColumnType.INTEGER),), ("id",))
    owner = ForeignKey("row", ("up",), "unit", ("id",), max_children=bound, owner=True)
    columns = (Column("id", ColumnType.INTEGER), Column("up", ColumnType.INTEGER), _column(ColumnType.CATEGORY))
    of_row = [(up, text) for up, texts in enumerate(held) for text in texts]
    rows: dict[str, list[tuple[object, ...]]] = {
        "unit": [(number,) for number in range(len(held))],
        "row": [(number, *values) for number, values in enumerate(of_row)],
    }
    schema = Schema("texts", (unit, Table("row", columns, ("id",), (owner,))), "unit")
    return database_from(schema, rows)


def test_a_unit_counts_once_for_a_text_however_many_rows_have_it(place: Place) -> None:
    database = _texts_of_units([["a", "a", "a"], ["a", "b", None], ["b", "c", "c"], []], 4)
    by_number_of_texts = {"a": {1: 1, 2: 1}, "b": {2: 2}, "c": {2: 1}}
    private = database.private()
    with closing(engine_of(database, place)) as engine:
        for each in (private, engine):
            assert each.texts("row", "v", ()) == by_number_of_texts
            assert each.texts("row", "v", ("a",)) == {"b": {1: 1, 2: 1}, "c": {2: 1}}
        one, other = (weights_of(build_values(each, "row", "v", ("b",), 1)) for each in (private, engine))
        assert one == other
        assert one["none"] > 0


def test_whole_numbers_are_listed_in_their_digits_by_every_engine(place: Place) -> None:
    least, most = -(2**63) + 1, 2**63 - 1
    held = [0, -7, 7, 7, 1_000_000, 185_349_003, least, most, None]
    column = Column("v", ColumnType.INTEGER, Learn(listed=True), nullable=True)
    table = Table("row", (Column("id", ColumnType.INTEGER), column), ("id",))
    database = database_from(Schema("codes", (table,), "row"), {"row": list(enumerate(held))})
    private, named = database.private(), ("7", "-7", "9")
    with closing(engine_of(database, place)) as engine:
        for each in (private, engine):
            assert sorted(each.texts("row", "v", ())) == sorted({str(value) for value in held if value is not None})
            assert each.texts("row", "v", ())["7"] == {1: 2}
            assert named[0] not in each.texts("row", "v", named)
        one, other = (weights_of(build_values(each, "row", "v", named, 1)) for each in (private, engine))
        assert one == other
        assert one["none"] > 0


def test_texts_of_dropped_rows_count_in_no_engine(place: Place) -> None:
    database = _texts_of_units([[f"{unit}.{number}" for number in range(9)] for unit in range(5)], 2)
    private = database.private()
    with closing(engine_of(database, place)) as engine:
        assert private.texts("row", "v", ()) == engine.texts("row", "v", ())
        assert len(private.texts("row", "v", ())) == 5 * 2
        views = [build_values(each, "row", "v", (), 2) for each in (private, engine)]
        assert [weights_of(view)["of"] for view in views] == [[views[0].weight_scale] * 10] * 2


def test_the_fingerprint_does_not_depend_on_the_engine(place: Place) -> None:
    cases = _cases()
    if isinstance(place, Cluster):
        del cases["spans"]
    columns = [
        Column(f"c{number}", column.type, nullable=True, precision=column.precision, scale=column.scale)
        for number, (column, _, _) in enumerate(cases.values())
    ]
    table = Table("row", (Column("id", ColumnType.TEXT), *columns), ("id",))
    longest = max(len(values) for _, values, _ in cases.values())
    rows: list[tuple[object, ...]] = [
        (f"{TEXTS[number % len(TEXTS)]}{number}", *(values[number % len(values)] for _, values, _ in cases.values()))
        for number in range(longest)
    ]
    rows.append(("none", *[None] * len(columns)))
    database = database_from(Schema("values", (table,), "row"), {"row": rows})
    if isinstance(place, str):
        in_postgres(database, place)
    with closing(opened(database, place)) as engine:
        assert engine.fingerprint(table) == fingerprint_rows(table, database.tables["row"])


@pytest.mark.parametrize(
    ("place", "known"),
    [("duckdb", 50), ("duckdb", 49), ("duckdb", None), ("source", 50), ("spark", 50)],
    indirect=["place"],
)
@pytest.mark.parametrize("order", ["ascending", "swapped", "shuffled", "dates"])
def test_the_fingerprint_does_not_depend_on_the_order_of_rows(
    place: Place, order: str, known: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor on whether it is known before how many there are, which a source may be wrong about."""
    monkeypatch.setattr(RowsInMemory, "known_rows", lambda *_: known)
    kind = ColumnType.DATE if order == "dates" else ColumnType.INTEGER
    table = Table("row", (Column("x", ColumnType.INTEGER, Range(0, 9)), Column("id", kind)), ("id",))
    ids = np.arange(-10, 40)
    if order == "swapped":
        ids[[6, 7]] = ids[[7, 6]]
    elif order == "shuffled":
        ids = np.random.default_rng(0).permutation(ids)
    first = dt.date(1970, 1, 5)
    keys = [first + dt.timedelta(int(n)) if order == "dates" else int(n) for n in ids]
    rows = [(number % 10, key) for number, key in enumerate(keys)]
    database = database_from(Schema("values", (table,), "row"), {"row": rows})
    if isinstance(place, str):
        in_postgres(database, place)
    with closing(opened(database, place)) as engine:
        assert engine.fingerprint(table) == fingerprint_rows(table, database.tables["row"])
        if isinstance(place, Path):
            ascending = order in {"ascending", "dates"}
            assert engine._loaded["row"].in_order == ascending
            assert (engine._loaded["row"].fingerprint is not None) == (ascending and known == 50)


def _breaking() -> Database:
    """Rows that break what their schema declares, in all ways."""
    unit = Table("unit", (Column("id", ColumnType.INTEGER), Column("x", ColumnType.FLOAT, Range(0, 1))), ("id",))
    owner = ForeignKey("row", ("up",), "unit", ("id",), max_children=3, owner=True)
    i = ColumnType.INTEGER
    # A column of a required key may be nullable where an optional key shares it, and no row may have NULL there.
    needs = ForeignKey("row", ("v", "w"), "unit", ("id", "z"), max_children=9)
    may = ForeignKey("row", ("w", "y"), "unit", ("z", "id"), max_children=9, optional=True)
    names = (Column("v", i), Column("w", i, nullable=True), Column("y", i, nullable=True))
    unit = replace(unit, columns=(*unit.columns, Column("z", i)), unique=(("id", "z"),))
    row = Table("row", (Column("id", i), Column("up", i), *names), ("id",), (owner, needs, may), unique=(("w",),))
    of_row: list[tuple[object, ...]] = [
        (0, 0, 0, 1, None), (1, 7, 0, 1, None), (2, 8, 0, None, None), (None, 0, 0, None, None)
    ]  # fmt: skip
    of_unit: list[tuple[object, ...]] = [(0, 0.5, 1), (0, float("nan"), 2), (1, None, 3)]
    return database_from(Schema("broken", (unit, row), "unit"), {"unit": of_unit, "row": of_row})


def test_engines_refuse_the_same_rows_in_the_same_words(place: Place) -> None:
    database = _breaking()
    with pytest.raises(SourceError) as expected:
        check_rows(database.schema, database.tables, {})
    if isinstance(place, str):
        in_postgres(database, place)
    assert "row.w: NULL in a required foreign key; declare the key optional: true, or fix the source" in str(
        expected.value
    )
    with closing(opened(database, place)) as engine, pytest.raises(SourceError) as found:
        engine.keep({})
    for said in (str, lambda error: error.private_detail):
        assert sorted(said(found.value).splitlines()) == sorted(said(expected.value).splitlines())


@pytest.mark.parametrize("optional", [True, False], ids=["optional", "required"])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_engines_drop_the_same_orphans_and_what_depends_on_them(seed: int, optional: bool, place: Place) -> None:
    rng = np.random.default_rng(seed)
    column = Column("id", ColumnType.INTEGER)
    up, beside = Column("up", ColumnType.INTEGER), Column("beside", ColumnType.INTEGER, nullable=True)
    above = {"a": "unit", "b": "a"}
    owners = [ForeignKey(child, ("up",), above[child], ("id",), max_children=9, owner=True) for child in above]
    removed = OnUnitRemoved.SET_NULL
    set_null = ForeignKey("b", ("beside",), "a", ("id",), max_children=9, optional=True, on_unit_removed=removed)
    required = ForeignKey("b", ("beside",), "a", ("id",), max_children=9, on_unit_removed=removed)
    set_null, beside = (set_null, beside) if optional else (required, replace(beside, nullable=False))
    tables = (
        Table("unit", (column,), ("id",)),
        Table("a", (column, up), ("id",), (owners[0],)),
        Table("b", (column, up, beside), ("id",), (owners[1], set_null)),
    )
    rows: dict[str, list[tuple[object, ...]]] = {
        "unit": [(number,) for number in range(5)],
        "a": [(number, int(rng.integers(8))) for number in range(12)],
        "b": [
            (number, int(rng.integers(12)), None if optional and number % 2 == 0 else int(rng.integers(12)))
            for number in range(30)
        ],
    }
    database = database_from(Schema("orphans", tables, "unit"), rows)
    checked = check_rows(database.schema, database.tables, {"a.up": "drop"})
    lost = {number for number, up in rows["a"] if isinstance(up, int) and up > 4}
    left = [number for number, up, _ in rows["b"] if up not in lost]
    assert checked["b"].column("id").to_pylist() == left, "rows stay where a key that lets go refers to a dropped one"
    private = Database(database.schema, checked).private()
    if isinstance(place, str):
        in_postgres(database, place)
    with closing(opened(database, place)) as engine:
        engine.keep({"a.up": "drop"})
        for name in ("unit", "a", "b"):
            sizes = Discretizer(FanoutCodec(40))
            features: dict[str, Any] = {"s": (UnitRows(), sizes)}
            if name == "b":
                features["beside"] = (ParentRow(set_null), _NUMBERS)
            spec = ViewSpec(name, features)
            one, other = build_view(private, spec), build_view(engine, spec)
            np.testing.assert_array_equal(one.counts(tuple(features)), other.counts(tuple(features)))


PLANS = {
    "town, pairwise": (town, Budget(100.0, 1e-6), {}),
    "shop, pairwise": (shop, Budget(100.0, 1e-6), {}),
    "forum, splits of rows": (forum, Budget(60.0), {"beta": 12, "alpha": 0.05}),
    "career, pairwise": (career, Budget(100.0, 1e-6), {}),
    "desk, pairwise": (desk, Budget(100.0, 1e-6), {}),
    "till, pairwise": (till, Budget(100.0, 1e-6), {}),
    "depot, pairwise": (depot, Budget(100.0, 1e-6), {}),
    "shop, linked": (shop, Budget(3000.0, 1e-6), {"tables": "independent"}),
    "fleet, linked": (fleet, Budget(8.0, 1e-6), {"tables": "independent"}),
    "forum, linked": (forum, Budget(3000.0, 1e-6), {"tables": "independent"}),
    "town, groups": (town, Budget(3000.0, 1e-6), {"usefulness": 0.1}),
    "shop, latents": (shop, Budget(3000.0, 1e-6), {"latents": 2, "usefulness": 0.01, "iterations": 2}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "shop, pairwise" else pytest.mark.slow) for name in PLANS]
)
def test_whole_plans_get_the_same_numbers_from_every_engine(name: str, place: Place) -> None:
    """Every exact answer that noise is added to, in every step, and with the same noise every released byte."""
    make, budget, options = PLANS[name]
    database = make(0)
    plan = plan_with(database.schema, budget, options)
    with closing(engine_of(database, place)) as engine:
        runs = []
        for chosen in (None, engine):
            noise, trace = RecordingNoise(SeededNoise(7)), Trace()
            for step in computing_steps(plan):
                run_step(step, database, noise, trace, engine=chosen)
                engine.end_step()
            runs.append((noise.tape, {key: artifact.to_bytes() for key, artifact in trace.artifacts.items()}))
    assert len(runs[0][0]) > len(database.schema.private_tables)
    for one, other in zip(runs[0][0], runs[1][0], strict=True):
        np.testing.assert_equal(one.exact, other.exact, str(one.head))
    assert runs[0][1] == runs[1][1]


_REPLAYED = {("duckdb", "town, pairwise"), ("source", "shop, pairwise")}
_NEIGHBOURS = [
    pytest.param(engine, name, marks=[] if (engine, name) in _REPLAYED else pytest.mark.slow)
    for engine in ENGINES
    for name in PLANS
]


@pytest.mark.parametrize(("place", "name"), _NEIGHBOURS, indirect=["place"])
def test_a_neighbour_that_an_engine_counts_moves_nothing_but_what_noise_covers(name: str, place: Place) -> None:
    """Record and replay, see `test_record_replay`, where both databases are counted by the engine."""
    make, budget, options = PLANS[name]
    database = make(0)
    plan = plan_with(database.schema, budget, options)
    recorded, first = RecordingNoise(SeededNoise(0)), Trace()
    with closing(engine_of(database, place)) as engine:
        for step in computing_steps(plan):
            run_step(step, database, recorded, first, engine=engine)
            engine.end_step()
    neighbour = database.without(adversaries(database, 0)[0])
    replayed, second = ReplayNoise(recorded.tape), Trace()
    with closing(engine_of(neighbour, place)) as engine:
        for step in computing_steps(plan):
            before = replayed.loss
            run_step(step, neighbour, replayed, second, engine=engine)
            engine.end_step()
            assert replayed.loss - before <= step.price.amount * (1 + 1e-9), step.key
            assert first.artifacts[step.key].to_bytes() == second.artifacts[step.key].to_bytes(), step.key
    replayed.finish()
    assert replayed.moved > 0


@pytest.mark.parametrize("place", ["source", "spark"], indirect=True)
def test_statements_hold_what_is_public_and_one_derived_key(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server or a cluster may keep the text of statements: no value of a row is in it, nor the secret."""
    sent: list[str] = []
    if isinstance(place, Cluster):
        from privbench_core.engines.spark import SparkDatabase

        written = SparkDatabase._text
        monkeypatch.setattr(SparkDatabase, "_text", lambda *query: sent.append(written(*query)) or sent[-1])
    else:
        for name in ("_statement", "_table"):
            asked = getattr(PostgresDatabase, name)
            monkeypatch.setattr(
                PostgresDatabase, name, lambda self, text, asked=asked: sent.append(text) or asked(self, text)
            )
    database = town(0)
    plan = plan_with(database.schema, Budget(100.0, 1e-6), {})
    with closing(engine_of(database, place)) as engine:
        trace = Trace()
        for step in computing_steps(plan):
            run_step(step, database, SeededNoise(7), trace, engine=engine)
    text = "\n".join(sent)
    assert order_key(SECRET) in text
    assert SECRET.hex() not in text
    names = [f"job {number}" for number in range(100)]  # values of single rows, which are never released
    assert set(names) & set(database.tables["person"].column("job").to_pylist())
    for private in ("never seen", "y" * 20, *(f"'{name}'" for name in names)):
        assert private not in text
        assert private.strip("'").encode().hex().upper() not in text.upper()


def test_tables_with_the_names_that_engines_choose_are_read_and_stay(place: Place) -> None:
    """Whatever the server's search path says of temporary tables."""
    columns = (Column("id", ColumnType.INTEGER), Column("v", ColumnType.INTEGER))
    key = ForeignKey("privbench_read_0", ("v",), "unit", ("id",), max_children=2, owner=True)
    tables = (Table("unit", columns, ("id",)), Table("privbench_read_0", columns, ("id",), (key,)))
    rows = {"unit": [(0, 1), (1, 2), (2, 2)], "privbench_read_0": [(0, 0), (1, 0), (2, 0), (3, 1)]}
    database = database_from(Schema("names", tables, "unit"), rows)
    if isinstance(place, str):
        altered = "format('ALTER DATABASE %I SET search_path = public, pg_temp', current_database())"
        execute(place, f"DO $$ BEGIN EXECUTE {altered}; END $$")
        execute(place, "CREATE TABLE privbench_linked_1 AS SELECT 5 AS n")
    private = database.private()
    with closing(engine_of(database, place)) as engine:
        for name in rows:
            view = ViewSpec(name, {"v": (Own("v"), _NUMBERS)})
            one, other = build_view(private, view), build_view(engine, view)
            np.testing.assert_array_equal(one.counts(("v",)), other.counts(("v",)))
    if isinstance(place, str):
        assert rows_of(place, "SELECT count(*) FROM privbench_linked_1, privbench_read_0") == [(4,)]


def test_no_setting_of_the_server_turns_a_value_into_sql(postgres: str) -> None:
    """A server with standard_conforming_strings off reads a backslash before a quote as part of the text."""
    column = _column(ColumnType.CATEGORY)
    table = Table("row", (Column("id", ColumnType.INTEGER), column), ("id",))
    codes = ")) AS pairs) AS counted GROUP BY key, held UNION ALL SELECT 'other', 1::bigint, 99::bigint --"
    database = database_from(Schema("s", (table,), "row"), {"row": [(0, "a"), (1, "\\"), (2, codes)]})
    url = new_database(postgres, "escapes")
    execute(url, "ALTER DATABASE escapes SET standard_conforming_strings = off")
    execute(url, "ALTER DATABASE escapes SET idle_in_transaction_session_timeout = '1h'")
    with closing(engine_of(database, url)) as engine:
        assert engine.texts("row", "v", ("\\", codes)) == {"a": {1: 1}}
        view = ViewSpec("row", {"v": (Own("v"), Discretizer(categorical_codec(column, ("\\", codes))))})
        assert build_view(engine, view).counts(("v",)).tolist() == [1, 1, 1, 0]
        idle = engine._database._table("SELECT current_setting('idle_in_transaction_session_timeout') AS idle")
        assert idle.column(0).to_pylist() == ["0"]


@pytest.mark.parametrize("values", [("a\0b", "a"), ("\0", "a\0b", "a\0c", "b"), ("a\0b",)])
def test_texts_with_the_character_0_are_found_where_a_source_holds_them(
    values: tuple[str, ...], tmp_path: Path, postgres: str
) -> None:
    column = _column(ColumnType.CATEGORY)
    table = Table("row", (Column("id", ColumnType.INTEGER), column), ("id",))
    texts = ["a\0b", "a\0b", "a\0c", "a", "b", "ab", "\0", "\0\0", "", "a\x01b", None]
    schema = Schema("s", (table,), "row")
    view = ViewSpec("row", {"v": (Own("v"), Discretizer(categorical_codec(column, values)))})
    in_places = ((tmp_path / "rows", texts), (new_database(postgres, f"zero_{uuid4().hex}"), texts[3:6] + texts[8:]))
    for where, held in in_places:  # PostgreSQL has no such texts, but a list may name them
        database = database_from(schema, {"row": list(enumerate(held))})
        private = database.private()
        with closing(engine_of(database, where)) as engine:
            np.testing.assert_array_equal(
                build_view(private, view).counts(("v",)), build_view(engine, view).counts(("v",))
            )
            assert engine.texts("row", "v", values) == private.texts("row", "v", values)
            one, other = (weights_of(build_values(each, "row", "v", values, 1)) for each in (private, engine))
            assert one == other


@pytest.mark.parametrize("values", [(0.0, -0.0), (0.0, 1.0)])
def test_zeros_of_both_signs_are_one_value_to_every_engine(values: tuple[float, ...], place: Place) -> None:
    table = Table("row", (Column("id", ColumnType.INTEGER), _column(ColumnType.FLOAT)), ("id",), unique=(("v",),))
    database = database_from(Schema("s", (table,), "row"), {"row": list(enumerate(values))})
    found: list[str] = []
    for check in (
        lambda: check_rows(database.schema, database.tables, {}),
        lambda: engine_of(database, place).close(),
    ):
        try:
            check()
            found.append("")
        except SourceError as error:
            found.append(str(error))
    assert found[0] == found[1]
    assert ("duplicate values" in found[0]) == (values[1] == 0.0)


def test_keys_with_a_missing_one_are_in_no_order() -> None:
    """Databases differ in where NULL comes."""
    table = Table("row", (Column("a", ColumnType.INTEGER),), ("a",))
    known: list[tuple[list[int | None], bool]] = [([-1, 0, 1], True), ([None, 0], False), ([0, None], False)]
    for values, in_order in [*known, ([0, 0], False), ([1, 0], False)]:
        passing = Passing(table, None)
        for value in values:
            rows = pa.table({"a": pa.array([value], pa.int64())})
            passing.add(rows, rows)
        assert passing.in_order == in_order, values


@pytest.mark.parametrize("first", [False, True], ids=["unread", "fingerprinted"])
def test_repeated_keys_are_counted_alike_whether_or_not_rows_were_read_for_a_fingerprint(
    first: bool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "BLOCK", 3)  # equal keys in two parts, too
    table = Table("row", (Column("a", ColumnType.INTEGER), Column("b", ColumnType.INTEGER)), ("a", "b"))
    low, high = -(2**63), 2**63 - 1
    keys = [(1, 2), (1, 3), (2, 2), (1, 2), (1, 2), (low, 1), (high, 1), (high, 1), (2, 3), (2, 2)]
    keys += [(None, 5), (None, 5)] if isinstance(place, Path) else []  # NULL is another problem, and no repetition
    database = database_from(Schema("s", (table,), "row"), {"row": keys})
    with pytest.raises(SourceError) as expected:
        check_rows(database.schema, database.tables, {})
    if isinstance(place, str):
        in_postgres(database, place)
    with closing(opened(database, place)) as engine:
        if first:
            assert len(engine.fingerprint(table)) == 32
        with pytest.raises(SourceError) as refused:
            engine.keep({})
    found = refused.value
    assert str(found) == str(expected.value)
    assert found.private_detail == expected.value.private_detail
    assert "4" in (found.private_detail or "")
