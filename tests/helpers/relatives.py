"""Databases of which it is known how far columns that belong together are apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Relative
from privbench_core.schema.constraints import Check
from privbench_core.schema.tables import Schema, Table
from tests.helpers.heavy_tails import Database
from tests.helpers.planted import category, integer, owner_key, rows_of, texts

DAY = 86_400_000_000
PAIRS = {"discharged": "admitted", "paid": "billed", "gross": "net"}
"""Columns of a stay by the column that they belong to."""
OWNERS = {"purchase.placed": "customer.since", "parcel.shipped": "purchase.placed"}
"""Columns of `mail_order` by the column of their owner that they belong to."""
_WARDS = 4


def hospital(patients: int = 5000, seed: int = 0, *, relative: bool = True) -> Database:
    """Stays of patients: days from admission to discharge, a time from bill to payment, and a price with its tax.

    Stays are short in the first ward and long in the last; one in twelve is not over, and not paid for.

    Args:
        patients: Number of units.
        seed: Of the rows.
        relative: Whether the later column of each of `PAIRS` is declared relative to the other one, or learned alone.
    """
    rng = np.random.default_rng(seed)
    of_patient = np.repeat(np.arange(patients), rng.poisson(1.5, patients) + 1)
    number = len(of_patient)
    ward = rng.choice(_WARDS, number, p=[0.4, 0.3, 0.2, 0.1])
    admitted = rng.integers(16_000, 19_700, number)  # days of the years 2013 to 2023
    stayed = np.minimum(rng.lognormal(0.6 + 0.6 * ward, 0.7).astype(np.int64), 400)
    billed = (admitted + rng.integers(0, 10, number)) * DAY + rng.integers(8 * 60, 18 * 60, number) * 60_000_000
    paid = billed + (rng.gamma(2.0, 9.0 * 24 * 60, number).astype(np.int64) + 30) * 60_000_000
    net = rng.lognormal(6.5 + 0.5 * ward, 0.6).round(2)
    open_ended = rng.random(number) < 1 / 12
    late = {"nullable": True}
    cents = {"precision": 10, "scale": 2}
    stay = Table(
        "stay",
        (
            integer("id"),
            integer("patient_id"),
            category("ward", _WARDS),
            Column("admitted", ColumnType.DATE, Learn()),
            Column("discharged", ColumnType.DATE, Learn(), **late),
            Column("billed", ColumnType.TIMESTAMP, Learn()),
            Column("paid", ColumnType.TIMESTAMP, Learn(), **late),
            Column("net", ColumnType.DECIMAL, Learn(), **cents),
            Column("gross", ColumnType.DECIMAL, Learn(), **cents),
        ),
        ("id",),
        (owner_key("stay", "patient_id", "patient", 20),),
        checks=tuple(Check(f"{last}_last", f"{first} <= {last}") for last, first in PAIRS.items()),
    )
    if relative:
        stay = replace(stay, columns=tuple(_relative(column) for column in stay.columns))
    patient = Table("patient", (integer("id"), category("sex", 2), integer("age", 0, 99)), ("id",))
    cut = pc.if_else(pa.array(open_ended), pa.scalar(None, pa.int64()), pa.array(admitted + stayed))
    unpaid = pc.if_else(pa.array(open_ended), pa.scalar(None, pa.int64()), pa.array(paid))
    tables = {
        "patient": rows_of(
            patient,
            id=np.arange(patients),
            sex=texts(rng.integers(0, 2, patients)),
            age=rng.integers(0, 100, patients),
        ),
        "stay": rows_of(
            stay,
            id=np.arange(number),
            patient_id=of_patient,
            ward=texts(ward),
            admitted=pa.array(admitted.astype(np.int32)),
            discharged=cut.cast(pa.int32()),
            billed=pa.array(billed),
            paid=unpaid,
            net=pa.array(net),
            gross=pa.array((net * np.where(ward == 0, 1.07, 1.19)).round(2)),
        ),
    }
    return Schema("hospital", (patient, stay), "patient"), tables


def distances(rows: pa.Table, later: str, earlier: str) -> np.ndarray:
    """How far two columns are apart, in days or in what they count, NaN where one is NULL; shape (rows,)."""
    ends, starts = (numbers(rows.column(name)) for name in (later, earlier))
    return np.asarray(ends - starts)


def mail_order(customers: int = 3000, seed: int = 0, *, relative: bool = True) -> Database:
    """Customers since a day, their purchases after it, and the parcels of these: shipped later, or not yet, and signed.

    Parcels of the first channel are shipped within 2 days, of the second within 9; a twelfth is not shipped.

    Args:
        customers: Number of units.
        seed: Of the rows.
        relative: Whether the later column of each of `OWNERS` is declared relative to the other one, or learned alone.
    """
    rng = np.random.default_rng(seed)
    day = ColumnType.DATE
    customer = Table("customer", (integer("id"), category("kind", 2), Column("since", day, Learn())), ("id",))
    placed, shipped = Column("placed", day, Learn()), Column("shipped", day, Learn(), nullable=True)
    if relative:
        placed = replace(placed, domain=None, relative=Relative("customer.since", Range(0, 399)))
        shipped = replace(shipped, domain=None, relative=Relative("purchase.placed", Range(0, 19)))
    purchase = Table(
        "purchase",
        (integer("id"), integer("customer_id"), category("channel", 2), placed),
        ("id",),
        (owner_key("purchase", "customer_id", "customer", 20),),
    )
    signed = Column("signed", day, nullable=True, relative=Relative("shipped", Range(0, 9)))
    parcel = Table(
        "parcel",
        (integer("id"), integer("purchase_id"), category("size", 3), shipped, signed),
        ("id",),
        (owner_key("parcel", "purchase_id", "purchase", 5),),
    )
    since = rng.integers(14_000, 19_700, customers)  # days of the years 2008 to 2023
    of_customer = np.repeat(np.arange(customers), rng.poisson(1.0, customers))
    channel = rng.integers(0, 2, len(of_customer))
    day_placed = since[of_customer] + np.minimum(rng.exponential(60, len(of_customer)).astype(np.int64), 399)
    of_purchase = np.repeat(np.arange(len(of_customer)), rng.integers(0, 3, len(of_customer)))
    n = len(of_purchase)
    slow = np.where(channel[of_purchase] == 0, rng.integers(0, 3, n), rng.integers(0, 10, n))
    day_shipped, waiting = day_placed[of_purchase] + slow, rng.random(n) < 1 / 12
    days_signed = pa.array(day_shipped + rng.integers(0, 4, n), mask=waiting)
    tables = {
        "customer": rows_of(
            customer, id=np.arange(customers), kind=texts(rng.integers(0, 2, customers)), since=_days(since)
        ),
        "purchase": rows_of(
            purchase,
            id=np.arange(len(of_customer)) + 5,
            customer_id=of_customer,
            channel=texts(channel),
            placed=_days(day_placed),
        ),
        "parcel": rows_of(
            parcel,
            id=np.arange(n),
            purchase_id=of_purchase + 5,
            size=texts(rng.integers(0, 3, n)),
            shipped=pa.array(day_shipped, mask=waiting).cast(pa.int32()),
            signed=days_signed.cast(pa.int32()),
        ),
    }
    return Schema("mail_order", (customer, purchase, parcel), "customer"), tables


def of_owners(schema: Schema, tables: Mapping[str, pa.Table], later: str) -> pa.Table:
    """A table with the column of `OWNERS` that ``later`` belongs to beside its rows, as found by their owner key."""
    name, _ = later.split(".")
    parent, base = OWNERS[later].split(".")
    key = schema.table(name).owner_key
    assert key is not None
    ids = tables[parent].column("id").to_numpy()
    places = np.argsort(ids)[np.searchsorted(np.sort(ids), tables[name].column(key.columns[0]).to_numpy())]
    assert (ids[places] == tables[name].column(key.columns[0]).to_numpy()).all()
    return tables[name].append_column(OWNERS[later], tables[parent].column(base).take(pa.array(places)))


def _days(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers.astype(np.int32))


def _relative(column: Column) -> Column:
    base = PAIRS.get(column.name)
    return column if base is None else replace(column, domain=None, relative=Relative(base, Learn()))


def numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Values as days since 1970, or as what they count, NaN for NULL; shape (rows,)."""
    kind, scale = values.type, 1.0
    if pa.types.is_timestamp(kind):
        values, scale = values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()), DAY
    elif pa.types.is_date(kind):
        values = values.cast(pa.date32()).cast(pa.int32())
    return np.asarray(pc.cast(values, pa.float64(), safe=False).fill_null(np.nan).to_numpy() / scale)
