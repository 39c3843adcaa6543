"""A hospital of which it is known how far columns that belong together are apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.schema.columns import Column, ColumnType, Learn, Relative
from privbench_core.schema.constraints import Check
from privbench_core.schema.tables import Schema, Table
from tests.helpers.heavy_tails import Database
from tests.helpers.planted import category, integer, owner_key, rows_of, texts

DAY = 86_400_000_000
PAIRS = {"discharged": "admitted", "paid": "billed", "gross": "net"}
"""Columns of a stay by the column that they belong to."""
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
