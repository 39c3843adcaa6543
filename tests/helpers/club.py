"""A small club over two years, with dates, keys of many kinds and references of each kind: a bundle to continue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from privbench_core.publishing import write_bundle
from privbench_core.schema.columns import Column, ColumnType, EnumType, IdentitySequence
from privbench_core.schema.constraints import Check, ForeignKey
from privbench_core.schema.tables import Schema, Table

T = ColumnType
DAYS = 730  # from 2024-01-01
SCHEMA = Schema(
    "club",
    (
        Table("plan", (Column("code", T.TEXT), Column("price", T.INTEGER)), ("code",), public=True),
        Table(
            "member",
            (
                Column("id", T.INTEGER, identity=True, sequence=IdentitySequence(always=True)),
                Column("email", T.TEXT, max_length=40),
                Column("plan", T.TEXT),
                Column("kind", T.CATEGORY, sql_type="kind"),
                Column("joined", T.TIMESTAMP),
                Column("left_on", T.DATE, nullable=True),
                Column("invited_by", T.INTEGER, nullable=True),
            ),
            ("id",),
            (
                ForeignKey("member", ("plan",), "plan", ("code",)),
                ForeignKey("member", ("invited_by",), "member", ("id",), optional=True),
            ),
            unique=(("email",),),
            row_order="joined",
        ),
        Table(
            "room",
            (Column("id", T.UUID), Column("member_id", T.INTEGER), Column("size", T.INTEGER)),
            ("id",),
            (ForeignKey("room", ("member_id",), "member", ("id",), owner=True, max_children=9),),
        ),
        Table(
            "booking",
            (
                Column("id", T.TEXT, max_length=20),
                Column("member_id", T.INTEGER),
                Column("room_id", T.UUID),
                Column("guest_id", T.INTEGER, nullable=True),
                Column("at", T.TIMESTAMPTZ, default="now()"),
                Column("until", T.TIMESTAMPTZ, nullable=True),
                Column("year", T.INTEGER),
                Column("tags", T.JSON, sql_type="text[]", nullable=True),
                Column("scan", T.BYTES, nullable=True),
                Column("lasts", T.INTERVAL, nullable=True),
                Column("kind", T.CATEGORY, sql_type="kind"),
            ),
            ("id",),
            (
                ForeignKey("booking", ("member_id",), "member", ("id",), owner=True, max_children=99),
                ForeignKey("booking", ("room_id",), "room", ("id",), same_unit=True),
                ForeignKey("booking", ("guest_id",), "member", ("id",), optional=True),
            ),
            checks=(Check("in_order", "until >= at"),),
        ),
        Table(
            "item",
            (Column("booking_id", T.TEXT), Column("line", T.INTEGER), Column("price", T.DECIMAL, precision=9, scale=2)),
            ("booking_id", "line"),
            (ForeignKey("item", ("booking_id",), "booking", ("id",), owner=True, max_children=9),),
        ),
        Table(
            "refund",
            (Column("booking_id", T.TEXT), Column("made_on", T.DATE)),
            ("booking_id",),
            (ForeignKey("refund", ("booking_id",), "booking", ("id",), owner=True, max_children=1),),
            row_order="made_on",
        ),
        Table(
            "visit",
            (Column("member_id", T.INTEGER), Column("number", T.INTEGER), Column("at", T.DATE)),
            ("member_id", "number"),
            (ForeignKey("visit", ("member_id",), "member", ("id",), owner=True, max_children=99),),
        ),
    ),
    unit="member",
    enums=(EnumType("kind", ("adult", "it's a child")),),
)
PLANS = pa.table({"code": ["basic", "full"], "price": [10, 20]})


def club_tables(members: int = 100, seed: int = 0) -> dict[str, pa.Table]:
    """All rows; times are whole seconds."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["adult", "it's a child"], members, p=[0.7, 0.3])
    joined = np.sort(rng.integers(0, DAYS * 86_400, members))
    left = np.where(rng.random(members) < 0.2, (joined // 86_400 + rng.integers(1, 300, members)), DAYS)
    inviting = np.where(np.arange(members) > 0, (rng.random(members) * np.arange(members)).astype(int) + 1, 0)
    own = np.repeat(np.arange(members), rng.integers(1, 4, members))
    uuids = [f"{n:08x}-0000-4000-8000-000000000000" for n in rng.permutation(len(own))]
    booker = rng.integers(0, members, members * 8)
    at = joined[booker] + (rng.random(len(booker)) * (DAYS * 86_400 - joined[booker])).astype(int)
    order = np.argsort(at)
    booker, at = booker[order], at[order]
    begins = np.searchsorted(own, booker)
    room = begins + (rng.random(len(booker)) * (np.searchsorted(own, booker, side="right") - begins)).astype(int)
    number = len(booker)
    lasts = rng.integers(1, 100_000, number) * 1_000_000
    lines = rng.integers(1, 4, number)
    numbers = [f"B-{n + 1:06d}" for n in range(number)]
    refunded = np.flatnonzero(rng.random(number) < 0.3)
    visitor = np.sort(rng.integers(0, members, members * 6))
    visited = (joined[visitor] // 86_400) + (rng.random(len(visitor)) * (DAYS - joined[visitor] // 86_400)).astype(int)
    nth = np.arange(len(visitor)) - np.searchsorted(visitor, visitor) + 1
    start = 19_723 * 86_400  # 2024-01-01
    utc = pa.timestamp("us", "UTC")
    raw = {
        "plan": {"code": PLANS["code"], "price": PLANS["price"]},
        "member": {
            "id": np.arange(1, members + 1),
            "email": [f"m{n}@example.org" for n in range(members)],
            "plan": rng.choice(["basic", "full"], members),
            "kind": kind,
            "joined": _times(joined + start, pa.timestamp("us")),
            "left_on": pa.array((left + 19_723).astype(np.int32), mask=left >= DAYS).cast(pa.date32()),
            "invited_by": pa.array(inviting, mask=(inviting == 0) | (rng.random(members) < 0.5)),
        },
        "room": {"id": uuids, "member_id": own + 1, "size": rng.integers(5, 50, len(own))},
        "booking": {
            "id": numbers,
            "member_id": booker + 1,
            "room_id": np.array(uuids)[room],
            "guest_id": pa.array(rng.integers(1, members + 1, number), mask=rng.random(number) < 0.7),
            "at": _times(at + start, utc),
            "until": pa.array((at + start) * 1_000_000 + lasts, mask=rng.random(number) < 0.1).cast(utc),
            "year": 2024 + (at >= 366 * 86_400).astype(int),
            "tags": ["[\"a, 'b'\", null]" if n % 3 else None for n in range(number)],
            "scan": [b"\x00'\xff" if n % 2 else None for n in range(number)],
            "lasts": pa.array(lasts, mask=lasts % 7 == 0).cast(pa.duration("us")),
            "kind": kind[booker],
        },
        "item": {
            "booking_id": np.repeat(numbers, lines),
            "line": np.arange(lines.sum()) - np.repeat(np.cumsum(lines) - lines, lines) + 1,
            "price": pa.array(rng.integers(1, 9999, lines.sum())).cast(pa.decimal128(21, 2)),
        },
        "refund": {
            "booking_id": np.array(numbers)[refunded],
            "made_on": (at[refunded] // 86_400 + 19_723 + rng.integers(0, 20, len(refunded))).astype("M8[D]"),
        },
        "visit": {"member_id": visitor + 1, "number": nth, "at": (visited + 19_723).astype("M8[D]")},
    }
    return {name: pa.table(columns).cast(SCHEMA.table(name).arrow_schema) for name, columns in raw.items()}


def write_club(folder: Path, members: int = 100, seed: int = 0) -> Path:
    """A bundle of it."""
    return write_bundle(folder, SCHEMA, club_tables(members, seed), {"created": "2026-01-01"})


def _times(seconds: np.ndarray, kind: pa.DataType) -> pa.Array:
    return pa.array(seconds * 1_000_000).cast(kind)
