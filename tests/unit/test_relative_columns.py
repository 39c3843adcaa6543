"""Columns that are relative to another one: what is declared, what is coded, and what is written."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.differences import encoded, modelled_values, with_followers, written_values
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.errors import InternalError
from privbench_core.privacy.features import Own
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Relative
from privbench_core.schema.constraints import Check
from privbench_core.schema.identity import column_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.steps.assemble import impossible_checks
from tests.helpers import specs
from tests.helpers.databases import ward
from tests.helpers.planted import door_of, draw_exactly, place_of, tvd
from tests.helpers.relatives import PAIRS, distances, hospital

DATE, INTEGER = ColumnType.DATE, ColumnType.INTEGER
HEAD = """
database: d
source: data
privacy: {unit: a, delta: 1e-9, epsilons: [1], lifetime: {epsilon: 2}}
tables:
  a:
    primary_key: id
    columns:
      id: integer
"""
ADMITTED = "      admitted: {type: date, domain: learn}\n"


def pair(kind: ColumnType, **more: Any) -> Table:
    """A table with a column, and another one that is relative to it."""
    base = Column("base", kind, Learn(), nullable=True, **more)
    later = replace(base, name="later", domain=None, relative=Relative("base", Learn()))
    return Table("row", (Column("id", INTEGER), later, base), ("id",))


def rows_of(table: Table, base: list[Any], later: list[Any]) -> pa.Table:
    types = table.arrow_schema
    columns = {"id": list(range(len(base))), "base": base, "later": later}
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in types})


EAST = dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5)))
CASES = [
    (DATE, {}, dt.date(2020, 2, 28), dt.date(2020, 3, 1), 2),
    (DATE, {}, dt.date(9999, 12, 31), dt.date(1, 1, 1), -3652058),
    (ColumnType.TIMESTAMP, {}, dt.datetime(2020, 1, 1, 23), dt.datetime(2020, 1, 2, 1), dt.timedelta(hours=2)),
    (ColumnType.TIMESTAMPTZ, {}, EAST, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.timedelta(hours=5)),
    (ColumnType.INTERVAL, {}, dt.timedelta(days=2), dt.timedelta(hours=1), -dt.timedelta(hours=47)),
    (INTEGER, {}, 1000, 1234, 234),
    (ColumnType.DECIMAL, {"precision": 8, "scale": 2}, Decimal("10.50"), Decimal("12.49"), Decimal("1.99")),
]


@pytest.mark.parametrize(("kind", "more", "base", "later", "difference"), CASES)
def test_a_difference_is_coded_and_added_again(
    kind: ColumnType, more: dict[str, Any], base: Any, later: Any, difference: Any
) -> None:
    table = pair(kind, **more)
    rows = rows_of(table, [base, None, base, None], [later, later, None, None])
    found = modelled_values(table, rows, "later")
    assert found.type == table.column("later").modelled.arrow_type
    assert found.to_pylist() == [difference, None, None, None]
    drawn = {"base": rows.column("base").combine_chunks(), "later": found.combine_chunks()}
    made = written_values(table, drawn)
    assert made["later"].type == rows.schema.field("later").type
    assert made["later"].to_pylist()[0] == rows.column("later")[0].as_py()
    assert made["later"].to_pylist()[1:] == [None] * 3
    assert made["base"] == drawn["base"]


@pytest.mark.parametrize(
    ("kind", "more", "base", "difference", "end"),
    [
        (DATE, {}, dt.date(9999, 12, 30), 5, dt.date(9999, 12, 31)),
        (DATE, {}, dt.date(1, 1, 2), -(2**62), dt.date(1, 1, 1)),
        (INTEGER, {}, 2**62, 2**62, 2**63 - 1),
        (INTEGER, {}, -(2**62), -(2**63), -(2**63)),
        (INTEGER, {"sql_type": "smallint"}, 32_000, 32_000, 32_767),
        (ColumnType.DECIMAL, {"precision": 4, "scale": 2}, Decimal("99.00"), Decimal("1.00"), Decimal("99.99")),
    ],
)
def test_a_sum_that_does_not_fit_becomes_the_nearest_value_that_does(
    kind: ColumnType, more: dict[str, Any], base: Any, difference: Any, end: Any
) -> None:
    table = pair(kind, **more)
    later = table.column("later")
    drawn = {"base": pa.array([base], later.arrow_type), "later": pa.array([difference], later.modelled.arrow_type)}
    assert written_values(table, drawn)["later"].to_pylist() == [end]


def chain() -> Table:
    """Delivered relative to shipped, shipped relative to ordered; the last one comes first."""
    ordered = Column("ordered", INTEGER, Range(0, 100))
    shipped = Column("shipped", INTEGER, nullable=True, relative=Relative("ordered", Range(0, 9)))
    delivered = Column("delivered", INTEGER, nullable=True, relative=Relative("shipped", Range(0, 9)))
    return Table("row", (Column("id", INTEGER), delivered, shipped, ordered), ("id",))


def test_what_is_relative_follows_its_base_along_a_chain() -> None:
    table = chain()
    assert [column.name for column, _ in table.relatives] == ["shipped", "delivered"]
    drawn = {"ordered": pa.array([10, 20]), "shipped": pa.array([1, None]), "delivered": pa.array([2, 2])}
    written = written_values(table, drawn)
    assert written["shipped"].to_pylist() == [11, None]
    assert written["delivered"].to_pylist() == [13, None]
    moved = with_followers(table, {"ordered": pa.array([50, 60])}, written)
    assert {name: values.to_pylist() for name, values in moved.items()} == {
        "ordered": [50, 60], "shipped": [51, None], "delivered": [53, None],
    }  # fmt: skip
    again = written_values(table, {"ordered": pa.array([0, 0]), "delivered": pa.array([9, 9])}, written)
    assert again["shipped"].to_pylist() == [1, None]
    assert again["delivered"].to_pylist() == [10, None]
    fixed = with_followers(table, {"shipped": pa.array([30, None])}, written)
    assert fixed["delivered"].to_pylist() == [32, None]
    assert "ordered" not in fixed


def test_a_difference_outside_of_its_domain_is_counted_beside_it() -> None:
    table = chain()
    rows = pa.table({"id": [0, 1, 2], "delivered": [5, 4, 99], "shipped": [5, 5, 5], "ordered": [5, 5, 5]})
    codecs = {"delivered": Discretizer(codec_for(table.column("delivered")))}
    codec = codecs["delivered"].codec
    assert encoded(table, rows, codecs)["delivered"].tolist() == [0, *codec.outside]


def column(name: str, content: str) -> str:
    return f"      {name}: {{{content}}}\n"


DAYS = ADMITTED + "      out: {type: %s, relative_to: %s, domain: %s}\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (DAYS % ("date", "admited", "learn"), "a.out: relative to admited, which is not a column; did you mean"),
        (DAYS % ("timestamp", "admitted", "learn"), "a.out: of type timestamp, relative to admitted of type date; "),
        (DAYS % ("date", "admitted", "{min: 2020-01-01, max: 9}"), "a.out: min is '2020-01-01'; write an integer"),
        (DAYS.replace("learn", "learn, nullable: true") % ("date", "admitted", "learn"),
         "a.out: never NULL, but relative to admitted, which may be NULL; "),
        (ADMITTED + column("out", "type: date, relative_to: admitted"), "a.out: relative_to without a domain; "),
        (column("out", "type: integer, relative_to: id, domain: learn"), "a.out: relative to the key column id, "),
        (column("x", "type: decimal, precision: 8, scale: 2, domain: learn")
         + column("y", "type: decimal, precision: 8, scale: 1, relative_to: x, domain: learn"),
         "a.y: of type decimal(8, 1), relative to x of type decimal(8, 2); "),
        (column("x", "type: float, domain: learn") + column("y", "type: float, relative_to: x, domain: learn"),
         "a.y: relative_to on a column of type float; "),
        ("".join(column(own, f"type: integer, relative_to: {base}, domain: learn") for own, base in ("xy", "yz", "zx")),
         "a: x, y, z: relative to each other in a circle; "),
        (column("x", "type: integer, relative_to: x, domain: learn"), "a: x: relative to each other in a circle; "),
    ],
)  # fmt: skip
def test_what_cannot_be_relative_is_refused_in_one_line(tmp_path: Path, lines: str, expected: str) -> None:
    (found,) = specs.problems(tmp_path, HEAD + lines)
    assert found.startswith(expected)


def test_public_tables_and_keys_have_no_relative_columns(tmp_path: Path) -> None:
    shown = "  b: {primary_key: id, public: true, columns: {id: integer, x: integer, y: {type: integer,"
    shown += " relative_to: x, domain: learn}}}\n"
    assert specs.load(tmp_path, HEAD + shown).schema.table("b").relatives == ()
    text = HEAD.replace("primary_key: id", "primary_key: [id, x]") + "      x: {type: integer, relative_to: y, domain:"
    specs.explained(tmp_path, text + " learn}\n      y: {type: integer, domain: learn}\n", "a.x: relative_to on a key")


def test_only_relative_columns_have_another_identity() -> None:
    plain = Column("x", DATE, Learn())
    assert "relative" not in column_identity(plain)
    ours = [column_identity(replace(plain, domain=None, relative=Relative(to, domain)))
            for to, domain in (("a", Learn()), ("b", Learn()), ("a", Range(0, 9)))]  # fmt: skip
    assert len({str(identity) for identity in ours}) == 3


@pytest.mark.parametrize(
    ("check", "low", "high", "impossible"),
    [
        ("base <= later", -9, -1, True),
        ("later > base", -9, -1, True),
        ("later <= base", 1, 9, True),
        ("base <= later", 0, 9, False),
        ("base <= later", -9, 9, False),
        ("later <= base", 0, 9, False),
    ],
)
def test_an_order_that_no_difference_keeps_is_found(check: str, low: int, high: int, impossible: bool) -> None:
    table = pair(DATE)
    later = replace(table.column("later"), relative=Relative("base", Range(low, high)))
    columns = tuple(later if column.name == "later" else column for column in table.columns)
    found = list(impossible_checks(replace(table, columns=columns, checks=(Check("c", check),))))
    assert bool(found) == impossible
    if impossible:
        assert f"later is declared to be {low} to {high} above base" in found[0]


def test_no_view_looks_at_a_base_that_is_a_key_or_has_no_code_for_its_null() -> None:
    table = pair(INTEGER)
    codec = Discretizer(codec_for(replace(table.column("later"), relative=Relative("base", Range(0, 9)))))
    with_code = ViewSpec("row", {"later": (Own("later"), codec)})
    rows = {"row": rows_of(table, [1, None], [2, 3])}
    door_of(Schema("d", (table,), "row"), rows).view(with_code, "fine")
    without = Discretizer(
        codec_for(replace(table.column("later"), nullable=False, relative=Relative("base", Range(0, 9))))
    )
    later = replace(table.column("later"), nullable=False)
    strict = replace(table, columns=tuple(later if c.name == "later" else c for c in table.columns))
    session = door_of(Schema("d", (strict,), "row"), rows)
    with pytest.raises(InternalError, match="no code for it"):
        session.view(ViewSpec("row", {"later": (Own("later"), without)}), "NULL of the base")
    of_key = replace(table.column("later"), relative=Relative("id", Range(0, 9)))
    keyed = replace(table, columns=tuple(of_key if c.name == "later" else c for c in table.columns))
    session = door_of(Schema("d", (keyed,), "row"), rows)
    with pytest.raises(InternalError, match="only columns that are not part of a key"):
        session.view(with_code, "a key as base")


def test_no_unit_moves_a_difference_of_another_one() -> None:
    database = ward(0)
    everything = database.differences()
    for unit in database.units()[:6]:
        left = database.without(unit).differences()
        assert left.items() <= everything.items()
        assert unit == 1 or len(left) <= len(everything) - 3, "a row and its stays are gone"


def test_distances_are_kept_and_every_check_holds() -> None:
    schema, tables = hospital(1500)
    made = draw_exactly(schema, tables)["stay"].table
    for later, earlier in PAIRS.items():
        known = [distances(rows, later, earlier) for rows in (tables["stay"], made)]
        assert np.nanmin(known[1]) >= 0, later
        edges = np.unique(np.nanquantile(known[0], np.arange(1, 20) / 20))
        shares = [np.bincount(np.searchsorted(edges, each[~np.isnan(each)]), minlength=len(edges) + 1) / len(each)
                  for each in known]  # fmt: skip
        assert tvd(*shares) < 0.05, later  # 0.8 and more where each column is learned by itself
        # 0.02, as without checks and differences; without differences, redrawing leaves NULL where it is not: 0.14.
        assert abs(np.isnan(known[0]).mean() - np.isnan(known[1]).mean()) < 0.03
    days = made.column("paid").drop_null().cast(pa.int64()).to_numpy()
    assert (days % 60_000_000 == 0).all(), "whole minutes are learned of both, so sums are whole minutes"


def test_a_difference_that_noise_hides_is_said_to_be_one(tmp_path: Path) -> None:
    schema, tables = hospital(30)
    place = place_of(tmp_path, schema, tables)
    result = place.run(0.01)
    hidden = [
        line for line in result.lost if "noise hid the range of the difference from billed, so PT0S to P30D" in line
    ]
    assert len(hidden) == 1
    assert hidden[0].startswith("stay.paid: ")
