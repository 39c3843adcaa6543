"""Rows are numbered and published in the order of a column, and rows without one in the order of their owners."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from privbench_core import guards
from privbench_core.publishing import Bundle, read_bundle
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.heavy_tails import Database
from tests.helpers.planted import broken_expectations, category, integer, owner_key, place_of, rows_of

DAYS = Range("2020-01-01", "2023-12-31")
OPTIONS = {"relational": {"tables": "independent"}}


def shop(clients: int = 600, *, ordered: bool = True) -> Database:
    """Clients, their orders and the orders' lines and calls; a few orders have no day yet."""
    client = Table("client", (integer("id"), Column("since", ColumnType.DATE, DAYS), category("kind", 3)), ("id",))
    order = Table(
        "order",
        (Column("id", ColumnType.TEXT), integer("client_id"), Column("day", ColumnType.DATE, DAYS, nullable=True)),
        ("id",),
        (owner_key("order", "client_id", "client", 20),),
    )
    line_key = ForeignKey("line", ("order_id",), "order", ("id",), 10, owner=True)
    text = Column("order_id", ColumnType.TEXT)
    line = Table("line", (text, integer("number"), integer("pieces", 1, 9)), ("order_id", "number"), (line_key,))
    again = ForeignKey("call", ("earlier",), "call", ("id",), 3, optional=True)
    call = Table(
        "call",
        (integer("id"), text, integer("earlier", nullable=True), Column("day", ColumnType.DATE, DAYS)),
        ("id",),
        (ForeignKey("call", ("order_id",), "order", ("id",), 10, owner=True), again),
    )
    if ordered:
        client, order, call = (
            replace(each, row_order="since" if each is client else "day") for each in (client, order, call)
        )
    rng = np.random.default_rng(0)
    of_client = np.repeat(np.arange(clients), rng.poisson(2.0, clients))
    n = len(of_client)
    names = np.array([f"o{place:06}" for place in range(n)])
    of_line, of_call = np.repeat(np.arange(n), rng.integers(1, 4, n)), np.repeat(np.arange(n), rng.poisson(0.8, n))

    def days(count: int) -> pa.Array:
        return pa.array(rng.integers(18_300, 19_600, count).astype(np.int32))

    earlier = np.where(rng.random(len(of_call)) < 0.3, np.arange(len(of_call)) - 1, -1)
    tables = {
        "client": rows_of(
            client,
            id=np.arange(clients),
            since=days(clients),
            kind=pa.array([f"v{code}" for code in rng.integers(0, 3, clients)]),
        ),
        "order": rows_of(
            order,
            id=pa.array(names),
            client_id=of_client,
            day=pc.if_else(pa.array(rng.random(n) < 0.05), pa.scalar(None, pa.int32()), days(n)),
        ),
        "line": rows_of(
            line,
            order_id=pa.array(names[of_line]),
            number=np.arange(len(of_line)),
            pieces=rng.integers(1, 10, len(of_line)),
        ),
        "call": rows_of(
            call,
            id=np.arange(len(of_call)),
            order_id=pa.array(names[of_call]),
            earlier=pa.array(np.maximum(earlier, 0), mask=earlier < 0),
            day=days(len(of_call)),
        ),
    }
    return Schema("shop", (client, order, line, call), "client"), tables


def made(database: Database, folder: Path, synthesizer: str = "privbench") -> Bundle:
    place = place_of(folder, *database, synthesizer=synthesizer, options=OPTIONS.get(synthesizer, {}))
    result = place.run(8.0)
    assert broken_expectations(result) == []
    return read_bundle(place.out)


def rises(values: pa.ChunkedArray, *, strictly: bool = False) -> bool:
    """Whether values rise, with all NULL behind them."""
    known = values.drop_null().to_pylist()
    behind = values.slice(0, len(known)).null_count == 0
    return behind and all(a < b if strictly else a <= b for a, b in pairwise(known))


@pytest.mark.parametrize("synthesizer", ["privbench", "privlava", "privpetal", "relational"])
def test_rows_are_numbered_and_published_in_the_order_of_their_column(synthesizer: str, tmp_path: Path):
    bundle = made(shop(), tmp_path, synthesizer)
    for name, column in (("client", "since"), ("order", "day"), ("call", "day")):
        rows = bundle.table(name)
        assert rows.num_rows > 100
        assert rises(rows[column]), name
        assert rises(rows["id"], strictly=True), name
    assert bundle.table("order")["day"].null_count > 0
    assert not rises(bundle.table("order")["client_id"])
    lines = bundle.table("line")
    assert rises(lines["order_id"]), "lines are stored like their orders"
    same = pc.equal(lines["order_id"].slice(1), lines["order_id"].slice(0, lines.num_rows - 1)).to_numpy()
    step = np.diff(lines["number"].to_numpy())
    assert (step[same] == 1).all()


def test_rows_without_an_order_of_their_own_are_numbered_with_their_owners(tmp_path: Path):
    schema, tables = shop()
    plain = tuple(
        replace(table, row_order=None) if table.name in {"order", "call"} else table for table in schema.tables
    )
    bundle = made((replace(schema, tables=plain), tables), tmp_path)
    assert rises(bundle.table("client")["since"])
    for name, owner in (("order", "client_id"), ("call", "order_id")):
        assert rises(bundle.table(name)[owner]), name
        assert rises(bundle.table(name)["id"], strictly=True), name


def test_the_order_changes_no_row_and_no_reference(tmp_path: Path):
    """Joined along all keys, there are the same rows with and without it, but for the keys' names."""

    def joined(bundle: Bundle) -> list[tuple[object, ...]]:
        client, order, line = (bundle.table(name) for name in ("client", "order", "line"))
        wide = line.join(order, "order_id", "id").join(client, "client_id", "id")
        wanted = wide.select(["since", "kind", "day", "number", "pieces"]).to_pylist()
        return sorted((tuple(row.values()) for row in wanted), key=repr)

    spec, tables = shop()
    plain, _ = shop(ordered=False)
    place = place_of(tmp_path / "place", plain, tables)
    place.run(8.0)
    before = joined(read_bundle(place.out))
    changed = replace(place, spec=replace(place.spec, schema=spec))
    again = changed.run(8.0)
    assert again.paid == 0
    after = read_bundle(place.out)
    assert rises(after.table("order")["day"])
    assert joined(after) == before


def test_tables_in_ranges_are_in_order_within_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guards, "RANGE_ROWS", 400)
    schema, tables = shop()
    call = next(table for table in schema.tables if table.name == "call")
    plain = replace(call, foreign_keys=call.foreign_keys[:1], columns=(*call.columns[:2], call.columns[3]))
    rows = {**tables, "call": tables["call"].drop_columns(["earlier"])}
    bundle = made((replace(schema, tables=(*schema.tables[:3], plain)), rows), tmp_path)
    several = {name: bundle.files(name) for name in ("client", "order", "line", "call")}
    assert min(map(len, (several["order"], several["line"], several["call"]))) > 1
    for name, column in (("client", "since"), ("order", "day"), ("line", "order_id"), ("call", "day")):
        parts = [pa.parquet.read_table(file) for file in several[name]]
        assert all(rises(part[column]) for part in parts), name
    assert rises(bundle.table("order")["id"], strictly=True)
