"""Columns that are relative to one of the row that owns theirs: what is declared, coded, written, and depends on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privbench_core import guards
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.registry import codec_for
from privbench_core.errors import InternalError
from privbench_core.evaluation.marginals import encode_tables
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.features import Own
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Relative
from privbench_core.schema.constraints import Check
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import StepKind
from privbench_core.synthesizers.steps.sampled import SampledTable
from tests.helpers import specs
from tests.helpers.depot import depot
from tests.helpers.plans import plan_with
from tests.helpers.planted import (
    broken_expectations,
    door_of,
    draw_exactly,
    integer,
    made_exactly,
    owner_key,
    place_of,
    rows_of,
    samples_of,
    tvd,
)
from tests.helpers.relatives import OWNERS, distances, mail_order, of_owners

DATE, INTEGER, DECIMAL = ColumnType.DATE, ColumnType.INTEGER, ColumnType.DECIMAL
SPEC = """
database: d
source: data
privacy: {unit: client, delta: 1e-9, epsilons: [1], lifetime: {epsilon: 2}}
tables:
  client:
    primary_key: id
    columns:
      id: integer
      since: {type: date, domain: learn}
      left: {type: date, relative_to: since, domain: learn, nullable: true}
      paid: {type: decimal, precision: 8, scale: 2, domain: learn}
      number: {type: integer, domain: learn}
  order:
    primary_key: id
    foreign_keys:
      - {columns: client_id, references: client, max_children: 9, owner: true}
    columns:
      id: integer
      client_id: integer
"""
BY_OPTIONS: dict[str, dict[str, Any]] = {
    "privbench": {},
    "privspn": {"alpha": 0.1},
    "privpetal": {"usefulness": 0.1},
    "privlava": {"latents": 2},
    "relational": {"tables": "independent"},
}


def with_column(line: str) -> str:
    return f"{SPEC}      {line}\n"


def test_a_column_of_the_owner_is_found_by_its_table_and_dumped_again(tmp_path: Path) -> None:
    text = with_column("placed: {type: date, relative_to: client.since, domain: {min: 0, max: 99}}")
    spec = specs.load(tmp_path, text)
    order = spec.schema.table("order")
    assert order.owner_bases == {"client.since": "since"}
    assert [(column.name, base.name) for column, base in order.relatives] == [("placed", "client.since")]


def test_an_own_column_of_that_name_may_close_a_circle(tmp_path: Path) -> None:
    text = with_column("placed: {type: integer, relative_to: client.since, domain: learn}")
    found = specs.problems(tmp_path, text + "      client.since: {type: integer, relative_to: placed, domain: learn}\n")
    assert len(found) == 1
    assert found[0].startswith("order: placed, client.since: relative to each other in a circle; ")


@pytest.mark.parametrize(
    ("kind", "to", "expected"),
    [
        ("date", "client.sinse", "relative to client.sinse, which is not a column; did you mean 'client.since'?"),
        ("date", "since", "relative to since, which is not a column; known: client.left, client.number, client.paid, "),
        ("date", "clients.since", "relative to clients.since, which is not a column; did you mean 'client.since'?"),
        ("integer", "client.id", "relative to the key column client.id, "),
        ("timestamp", "client.since", "of type timestamp, relative to client.since of type date; "),
        ("decimal, precision: 8, scale: 3", "client.paid", "of type decimal(8, 3), relative to client.paid of type d"),
        ("decimal, precision: 9, scale: 2", "client.paid",
         "of type decimal(9, 2), relative to client.paid of type decimal(8, 2); declare the same "),
        ("date", "client.left", "never NULL, but relative to client.left, which may be NULL; "),
    ],
)  # fmt: skip
def test_what_cannot_be_relative_to_the_owner_is_refused_in_one_line(
    tmp_path: Path, kind: str, to: str, expected: str
) -> None:
    text = with_column(f"later: {{type: {kind}, relative_to: {to}, domain: learn}}")
    (found,) = specs.problems(tmp_path, text)
    assert found.startswith(f"order.later: {expected}")


def test_rows_that_may_have_no_owner_have_no_base(tmp_path: Path) -> None:
    text = with_column("placed: {type: date, relative_to: client.since, domain: learn, nullable: true}")
    text = specs.changed(text, "owner: true", "owner: true, optional: true")
    text = specs.changed(text, "client_id: integer", "client_id: {type: integer, nullable: true}")
    (found,) = specs.problems(tmp_path, text)
    expected = (
        "order.placed: relative to client.since, which a row without an owner does not have; make order.client_id"
    )
    assert found.startswith(expected)


def test_only_the_owners_columns_are_found(tmp_path: Path) -> None:
    """Those of the owner's owner are not, and the unit has none."""
    line = "      sent: {type: date, relative_to: client.since, domain: learn}\n"
    parcel = "  parcel:\n    primary_key: id\n    foreign_keys:\n"
    parcel += "      - {columns: order_id, references: order, max_children: 9, owner: true}\n"
    parcel += "    columns:\n      id: integer\n      order_id: integer\n"
    (found,) = specs.problems(tmp_path, SPEC + parcel + line)
    assert found.startswith("parcel.sent: relative to client.since, which is not a column; ")
    (found,) = specs.problems(
        tmp_path, specs.changed(SPEC, "date, relative_to: since,", "date, relative_to: order.placed,")
    )
    assert found.startswith("client.left: relative to order.placed, which is not a column; ")


def owned(kind: ColumnType, **more: Any) -> Schema:
    """A unit with a column, and a table of its rows with one that is relative to it; both may be NULL."""
    base = Column("base", kind, Learn(), nullable=True, **more)
    later = replace(base, name="later", domain=None, relative=Relative("unit.base", Learn()))
    unit = Table("unit", (integer("id"), base), ("id",))
    row = Table("row", (integer("id"), integer("up"), later), ("id",), (owner_key("row", "up", "unit", 9),))
    return Schema("owned", (unit, row), "unit")


@pytest.mark.parametrize("cascades", [False, True])
def test_no_unit_moves_a_difference_from_the_owner_of_another_one(cascades: bool) -> None:
    database = depot(0, cascades=cascades)
    everything = database.differences()
    for unit in database.units()[:8]:
        left = database.without(unit).differences()
        assert left.items() <= everything.items()
        assert unit == 1 or len(left) < len(everything), "its purchases are gone"


LATER = replace(owned(INTEGER).table("row").column("later"), relative=Relative("unit.base", Range(0, 9)))


@pytest.mark.parametrize(
    ("coded", "optional", "column", "message"),
    [
        (LATER, True, LATER, "not there in rows without an owner"),
        (LATER, False, replace(LATER, relative=Relative("unit.id", Learn())), "only columns that are not part of a"),
        (replace(LATER, nullable=False), False, replace(LATER, nullable=False), "no code for it"),
    ],
)
def test_no_view_reads_an_owner_that_may_not_be_there_or_its_keys(
    coded: Column, optional: bool, column: Column, message: str
) -> None:
    schema = owned(INTEGER)
    rows = {
        "unit": pa.table({"id": [7], "base": pa.array([1])}),
        "row": pa.table({"id": [0], "up": [7], "later": pa.array([2])}),
    }
    row = schema.table("row")
    view = ViewSpec("row", {"later": (Own("later"), Discretizer(codec_for(coded)))})
    if coded.nullable:
        door_of(schema, rows).view(view, "fine")
    key = replace(row.foreign_keys[0], optional=optional)
    changed = replace(row, columns=(*row.columns[:2], column), foreign_keys=(key,))
    session = door_of(replace(schema, tables=(schema.table("unit"), changed)), rows)
    with pytest.raises(InternalError, match=message):
        session.view(view, "refused")


def shares(source: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Shares of the cells between quantiles of the source, and of NULL."""
    edges = np.unique(np.nanquantile(source, np.arange(1, 20) / 20))
    cells = np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values))
    return np.bincount(cells, minlength=len(edges) + 2) / max(len(values), 1)


def check_distances(schema: Schema, source: Any, made: Any, most: float) -> None:
    """No distance is negative, and their distribution is as far from the source's at most."""
    for later, base in OWNERS.items():
        column = later.split(".")[1]
        known, drawn = (distances(of_owners(schema, tables, later), column, base) for tables in (source, made))
        assert np.nanmin(drawn) >= 0, later
        assert tvd(shares(known, known), shares(known, drawn)) < most, later


def test_distances_are_kept_along_a_chain_of_owners() -> None:
    schema, tables = mail_order(2000)
    made = {name: sample.table for name, sample in draw_exactly(schema, tables).items()}
    check_distances(schema, tables, made, 0.05)
    signed = distances(made["parcel"], "signed", "shipped")
    assert 0 <= np.nanmin(signed) <= np.nanmax(signed) <= 9
    waiting = [rows["parcel"].column("shipped").null_count / rows["parcel"].num_rows for rows in (tables, made)]
    assert abs(waiting[0] - waiting[1]) < 0.02
    plain, tables = mail_order(2000, relative=False)
    alone = {name: sample.table for name, sample in draw_exactly(plain, tables).items()}
    with pytest.raises(AssertionError):
        check_distances(plain, tables, alone, 0.05)


def test_redrawn_repaired_and_dropped_rows_stay_at_their_distance() -> None:
    """Values that are unique, a bound that the model breaks, and a check that some owners leave no row for."""
    unit = Table("unit", (integer("id"), integer("start", 0, 400)), ("id",))
    middle = Column("middle", INTEGER, relative=Relative("unit.start", Range(-3, 30)))
    end = Column("end", INTEGER, relative=Relative("middle", Range(-3, 30)))
    key = owner_key("span", "up", "unit", 3)
    checks = (Check("late", '"end" <= 400'), Check("order", 'middle <= "end"'))
    span = Table("span", (integer("id"), integer("up"), middle, end), ("id",), (key,), unique=(("middle",),),
                 checks=checks)  # fmt: skip
    rng = np.random.default_rng(0)
    starts = rng.permutation(401)[:300]
    up = np.flatnonzero(starts < 340)
    middles = starts[up] + rng.integers(-3, 30, len(up))
    _, first = np.unique(middles, return_index=True)
    up, middles = up[first], middles[first]
    rows = {
        "unit": rows_of(unit, id=np.arange(300), start=starts),
        "span": rows_of(span, id=np.arange(len(up)), up=up, middle=middles, end=middles + rng.integers(0, 30, len(up))),
    }
    schema = Schema("spans", (unit, span), "unit")
    samples = draw_exactly(schema, rows)
    made = samples["span"].table
    assert made.num_rows > 0.8 * len(up)
    places = samples["span"].parents["span.up"]
    start = samples["unit"].table.column("start").to_numpy()[places]
    assert (samples["unit"].table.column("id").to_numpy()[places] == made.column("up").to_numpy()).all()
    middle_values, end_values = (made.column(name).to_numpy() for name in ("middle", "end"))
    assert len(set(middle_values)) == made.num_rows
    assert (end_values >= middle_values).all()
    assert end_values.max() <= 400
    assert ((middle_values - start >= -3) & (middle_values - start <= 30)).mean() > 0.98  # all but repaired ones
    np.testing.assert_array_equal(samples["span"].bases["unit.start"], start)


@pytest.mark.parametrize("synthesizer", BY_OPTIONS)
def test_whatever_looks_at_such_a_column_depends_on_the_owners_rows(synthesizer: str) -> None:
    """The unit's table as well, of which all rows are kept."""
    schema, _ = mail_order(10)
    plain, _ = mail_order(10, relative=False)
    steps = {each: plan_with(each, Budget(10.0, 1e-6), BY_OPTIONS[synthesizer]).steps for each in (schema, plain)}
    looking = [step for step in steps[schema] if {"purchase", "parcel"} & set(step.reads)]
    assert {step.kind for step in looking} >= {StepKind.PROFILE, StepKind.FANOUT, StepKind.FIDELITY}
    for step in looking:
        assert "customer" in step.reads, step.key
        assert "purchase" in step.reads, step.key
    assert any("customer" not in step.reads for step in steps[plain] if "parcel" in step.reads)


def change_since(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The same rows, but that every second customer is one since an earlier day."""
    rows = tables["customer"]
    days = rows.column("since").cast(pa.int32()).to_numpy() - np.arange(rows.num_rows) % 2
    since = pa.array(days.astype(np.int32)).cast(pa.date32())
    return {"customer": rows.set_column(rows.schema.get_field_index("since"), "since", since)}


@pytest.mark.parametrize("relative", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_change_of_the_owners_column_alone_makes_releases_of_its_children_stale(
    tmp_path: Path, relative: bool
) -> None:
    schema, tables = mail_order(60, relative=relative)
    place = place_of(tmp_path, schema, tables)
    place.run()
    assert place.run().paid == 0
    before = len(place.booked)
    place.write(change_since(tables))
    place.run()
    again = {step for step, _ in place.booked[before:]}
    assert "profile/customer" in again
    assert ("profile/purchase" in again) == relative
    assert ("profile/parcel" in again) == relative, (
        "its base is relative to it, so what purchases show is another thing"
    )


@pytest.mark.parametrize(
    "synthesizer", [pytest.param(name, marks=[pytest.mark.slow] * (name == "relational")) for name in BY_OPTIONS]
)
def test_every_synthesizer_writes_days_that_are_not_before_their_owners(tmp_path: Path, synthesizer: str) -> None:
    schema, tables = mail_order(120)
    options = {"tables": "independent"} if synthesizer == "relational" else {}
    place = place_of(tmp_path, schema, tables, synthesizer=synthesizer, delta=1e-6, options=options)
    result = place.run(8.0)
    assert broken_expectations(result) == []
    made = samples_of(result)
    for table in schema.tables:
        assert made[table.name].schema.equals(table.arrow_schema)
    check_distances(schema, tables, made, 1.0)  # their order alone
    codes = encode_tables(schema, made, tables)
    assert codes["parcel"].names == tuple(column.name for column in schema.table("parcel").attributes)


def test_ranges_of_rows_are_the_same_for_any_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "RANGE_ROWS", 150)
    schema, tables = mail_order(500)
    runs = [made_exactly(schema, tables, workers=workers) for workers in (1, 2)]
    samples = [{name: SampledTable(made["sample", name]) for name in tables} for made in runs]
    for name in tables:
        one, two = (each[name] for each in samples)
        assert len(one.rows) > 2
        assert one.listed == two.listed
    made = {name: each.whole_rows() for name, each in samples[0].items()}
    check_distances(schema, tables, made, 0.1)
    placed = of_owners(schema, made, "parcel.shipped").column("purchase.placed").cast(pa.int32()).to_numpy()
    np.testing.assert_array_equal(samples[0]["parcel"].whole().bases["purchase.placed"], placed)
