"""A small private database in which days are relative to days of the rows that own theirs, and its extremes."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np

from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Relative
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from tests.helpers.databases import Database, Row, database_from

INTEGER, DATE, TIMESTAMP = ColumnType.INTEGER, ColumnType.DATE, ColumnType.TIMESTAMP


def depot(seed: int, units: int = 40, *, cascades: bool = False, relative: bool = True) -> Database:
    """Purchases after their customer's first day, parcels after their purchase, bundled with one of another customer.

    Customer 0 has far more of both than τ, at absurd distances; customer 1 has none; parcels of customer 2 are not
    sent. What a parcel is bundled with is looked at along a key, and has a column that is relative to its owner's.

    Args:
        seed: Of the rows.
        units: Number of customers.
        cascades: Whether a parcel goes with the purchase that it is bundled with.
        relative: Whether days are declared relative to those of their owners, or learned by themselves; then a purchase
            has a day on which it was paid, too, days after it or never. Customers were seen on a day relative to the
            first, or at a time.
    """
    rng = np.random.default_rng(seed)
    goes = OnUnitRemoved.CASCADE if cascades else OnUnitRemoved.SET_NULL
    seen = Column("seen", TIMESTAMP, Learn(), nullable=True)
    if relative:
        seen = replace(seen, type=DATE, domain=None, relative=Relative("since", Learn()))
    customer = Table("customer", (Column("id", INTEGER), Column("since", DATE, Learn()), seen), ("id",))
    placed, sent = Column("placed", DATE, Learn()), Column("sent", DATE, Learn(), nullable=True)
    if relative:
        placed = replace(placed, domain=None, relative=Relative("customer.since", Learn()))
        sent = replace(sent, domain=None, relative=Relative("purchase.placed", Range(0, 20, cells=7)))
    paid = () if relative else (Column("paid", DATE, Learn(), nullable=True),)
    purchase = Table(
        "purchase",
        (Column("id", INTEGER), Column("customer_id", INTEGER), placed, Column("size", INTEGER, Range(0, 2)), *paid),
        ("id",),
        (ForeignKey("purchase", ("customer_id",), "customer", ("id",), max_children=3, owner=True),),
    )
    parcel = Table(
        "parcel",
        (Column("id", INTEGER), Column("purchase_id", INTEGER), Column("with_id", INTEGER, nullable=True), sent),
        ("id",),
        (
            ForeignKey("parcel", ("purchase_id",), "purchase", ("id",), max_children=2, owner=True),
            ForeignKey("parcel", ("with_id",), "purchase", ("id",), 2, optional=True, on_unit_removed=goes),
        ),
    )
    since = [dt.date(2010, 1, 1) + dt.timedelta(int(n)) for n in rng.integers(0, 4000, units)]
    since[0], since[2] = dt.date(1, 1, 1), dt.date(9999, 12, 31)
    purchases: list[Row] = []
    parcels: list[Row] = []
    for unit in range(units):
        for _ in range(15 if unit == 0 else 0 if unit == 1 else int(rng.integers(1, 5))):
            day = since[unit] + dt.timedelta(int(rng.integers(300))) if unit != 2 else dt.date(1, 1, 1)
            day = dt.date(9999, 12, 31) if unit == 0 and rng.random() < 0.5 else day
            for _ in range(int(rng.integers(0, 4))):
                late = None if unit in {0, 2} else day + dt.timedelta(int(rng.integers(-2, 25)))
                parcels.append((len(parcels), len(purchases), None, dt.date(9999, 1, 1) if unit == 0 else late))
            purchases.append((len(purchases), unit, day, int(rng.integers(3)), *_later(day, len(purchases), paid)))
    free = rng.permutation(np.repeat(np.arange(len(purchases)), 2))
    beside = [int(free[i]) if rng.random() < 0.7 else None for i in range(len(parcels))]
    rows: dict[str, list[Row]] = {
        "customer": [(unit, day, *_later(day, unit, (seen,))) for unit, day in enumerate(since)],
        "purchase": purchases,
        "parcel": [(number, of, with_id, day) for (number, of, _, day), with_id in zip(parcels, beside, strict=True)],
    }
    return database_from(Schema("depot", (customer, purchase, parcel), "customer"), rows)


def _later(day: dt.date, number: int, columns: tuple[Column, ...]) -> Row:
    """A day or time soon after a day, or none, where there is a column for it."""
    late, hour = dt.timedelta(number % 9), dt.time(number % 24)
    return tuple(
        None
        if number % 5 == 0 or day.year == 9999
        else dt.datetime.combine(day + late, hour)
        if column.type is TIMESTAMP
        else day + late
        for column in columns
    )
