"""Small private databases of every shape the promise speaks of, and their neighbours."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from privbench_core.engines.memory import PrivateDatabase
from privbench_core.schema.columns import Column, ColumnType, Domain, Learn, Range, Relative, Values
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from tests.helpers import neighbours

SECRET = bytes(range(16))
INTEGER, FLOAT, BOOLEAN = ColumnType.INTEGER, ColumnType.FLOAT, ColumnType.BOOLEAN
COLOURS = ("red", "green", "blue")
CODES = (-1, 200, 404, 185_349_003)
Row = tuple[object, ...]


@dataclass(frozen=True)
class Database:
    """A schema and its rows."""

    schema: Schema
    tables: Mapping[str, pa.Table]

    def private(self) -> PrivateDatabase:
        """The rows as the session holds them, the same for all steps as in a run."""
        return self._private

    @cached_property
    def _private(self) -> PrivateDatabase:
        return PrivateDatabase(self.schema, self.tables, SECRET)

    @property
    def public(self) -> dict[str, pa.Table]:
        """The public tables."""
        return {table.name: self.tables[table.name] for table in self.schema.tables if table.public}

    def units(self) -> list[object]:
        """Keys of the units (which have one column in these databases)."""
        return self.tables[self.schema.unit].column(0).to_pylist()

    def without(self, unit: object, table: str | None = None) -> Database:
        """The neighbour without the unit of that key: a row of the unit's table, or of ``table``; see `removal`."""
        name = table or self.schema.unit
        place = self.tables[name].column(self.schema.table(name).primary_key[0]).to_pylist().index(unit)
        return replace(self, tables=neighbours.without(self.schema, self.tables, (name, place), SECRET))

    def all_units(self) -> list[tuple[str, object]]:
        """Table and key of each row that is a unit: those of the unit's table, and those without an owner."""
        places = neighbours.units(self.schema, neighbours.as_rows(self.schema, self.tables))
        keys = {t.name: self.tables[t.name].column(t.primary_key[0]).to_pylist() for t in self.schema.private_tables}
        return [(name, keys[name][place]) for name, place in places]

    def differences(self) -> dict[tuple[str, int], object]:
        """What is modelled of columns that are relative to another one, by ``table.column`` and key of the row."""
        return {
            (f"{table.name}.{column.name}", number): value
            for table in self.schema.tables
            for column, _ in table.relatives
            for number, value in zip(
                self.tables[table.name].column("id").to_pylist(),
                self.private().column(table.name, column.name).to_pylist(),
                strict=True,
            )
        }

    def shuffled(self, seed: int) -> Database:
        """The same rows of the private tables in another physical order."""
        rng = np.random.default_rng(seed)
        order = {name: rng.permutation(rows.num_rows) for name, rows in self.tables.items()}
        moved = {t.name: self.tables[t.name].take(pa.array(order[t.name])) for t in self.schema.private_tables}
        return replace(self, tables={**self.tables, **moved})


def _arrow(table: Table, rows: list[Row]) -> pa.Table:
    schema = table.arrow_schema
    schema = pa.schema([field.with_nullable(True) for field in schema])
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def database_from(schema: Schema, rows: Mapping[str, list[Row]]) -> Database:
    return Database(schema, {table.name: _arrow(table, rows[table.name]) for table in schema.tables})


def keyed(name: str, *columns: Column, keys: tuple[ForeignKey, ...] = (), **more: Any) -> Table:
    """A table whose primary key is a column ``id``."""
    return Table(name, (Column("id", INTEGER), *columns), ("id",), keys, **more)


def _owner(child: str, column: str, parent: str, most: int) -> ForeignKey:
    return ForeignKey(child, (column,), parent, ("id",), max_children=most, owner=True)


def town(seed: int, units: int = 60, *, learned: bool = True) -> Database:
    """Two levels, all types, extremes, NULLs, values outside; household 0 has far more than τ persons, 1 none.

    Args:
        seed: Of the rows.
        units: Number of households, at least 3.
        learned: Whether lists of values are learned (takes δ > 0) or declared.
    """
    rng = np.random.default_rng(seed)
    lists: Domain = Learn() if learned else Values(COLOURS)
    household = keyed(
        "household",
        Column("colour", ColumnType.CATEGORY, lists, nullable=True),
        Column("rooms", INTEGER, Range(1, 8)),
        Column("income", FLOAT, Learn(), nullable=True),
        Column("built", ColumnType.DATE, Learn()),
        Column("note", ColumnType.TEXT, nullable=True, max_length=20),
    )
    person = keyed(
        "person",
        Column("home", INTEGER),
        Column("age", INTEGER, Range(0, 110, cells=11), nullable=True),
        Column("works", BOOLEAN),
        Column("job", ColumnType.CATEGORY, lists, nullable=True),
        Column("weight", ColumnType.DECIMAL, Learn(), precision=8, scale=2),
        keys=(_owner("person", "home", "household", 3),),
    )
    households: list[Row] = [
        (
            100 + i,
            COLOURS[rng.integers(3)] if rng.random() < 0.9 else None,
            int(rng.integers(-2, 12)),
            float(rng.lognormal(8, 2)) if rng.random() < 0.9 else None,
            dt.date(1990, 1, 1) + dt.timedelta(days=int(rng.integers(9000))),
            "x" * int(rng.integers(40)) if rng.random() < 0.8 else None,
        )
        for i in range(units)
    ]
    households[0] = (100, None, 10**9, float("inf"), dt.date(1, 1, 1), "y" * 500)
    households[1] = (101, "never seen", -(10**9), -1e300, dt.date(9999, 12, 31), "")
    persons: list[Row] = []
    for i in range(units):
        for _ in range(40 if i == 0 else 0 if i == 1 else int(rng.integers(6))):
            odd = i in {0, 2}
            persons.append(
                (
                    len(persons),
                    100 + i,
                    None if odd and rng.random() < 0.5 else int(rng.integers(-5, 130)),
                    bool(rng.random() < 0.5),
                    f"job {len(persons)}" if odd else COLOURS[rng.integers(3)],
                    Decimal(int(rng.normal(0, 5000)) if not odd else 99999999).scaleb(-2),
                )
            )
    return database_from(Schema("town", (household, person), "household"), {"household": households, "person": persons})


def shop(seed: int, units: int = 40, *, learned: bool = True) -> Database:
    """A chain user, order, item, and a public parent: an item may name a product, NULL if it does not."""
    rng = np.random.default_rng(seed)
    colour: Domain = Learn() if learned else Values(COLOURS)
    product = Table("product", (Column("id", INTEGER), Column("label", ColumnType.TEXT)), ("id",), public=True)
    user = Table("user", (Column("id", INTEGER), Column("age", INTEGER, Range(0, 100, cells=10))), ("id",))
    order = keyed(
        "order",
        Column("user_id", INTEGER),
        Column("paid", BOOLEAN, nullable=True),
        keys=(_owner("order", "user_id", "user", 3),),
    )
    item = Table(
        "item",
        (
            Column("order_id", INTEGER),
            Column("line", INTEGER),
            Column("product_id", INTEGER, nullable=True),
            Column("count", INTEGER, Range(1, 9)),
            Column("colour", ColumnType.CATEGORY, colour, nullable=True),
            Column("code", INTEGER, Learn(listed=True) if learned else Values(CODES), nullable=True),
        ),
        ("order_id", "line"),
        (
            _owner("item", "order_id", "order", 4),
            ForeignKey("item", ("product_id",), "product", ("id",), optional=True),
        ),
    )
    orders: list[Row] = []
    items: list[Row] = []
    for u in range(units):
        for _ in range(12 if u == 0 else 0 if u == 1 else int(rng.integers(5))):
            orders.append((len(orders), u, [None, True, False][rng.integers(3)]))
            for line in range(15 if u == 0 and rng.random() < 0.5 else int(rng.integers(6))):
                named = int(rng.integers(5)) if rng.random() < 0.7 else None
                code = None if line == 3 else (*CODES, 10**17 + len(items), -len(items))[len(items) % (len(CODES) + 2)]
                items.append((len(orders) - 1, line, named, int(rng.integers(0, 12)), COLOURS[rng.integers(3)], code))
    users: list[Row] = [(u, int(rng.integers(-3, 120))) for u in range(units)]
    rows = {"product": [(i, f"product {i}") for i in range(5)], "user": users, "order": orders, "item": items}
    return database_from(Schema("shop", (product, user, order, item), "user"), rows)


def forum(
    seed: int,
    units: int = 30,
    *,
    most_votes: int = 3,
    removed: OnUnitRemoved = OnUnitRemoved.SET_NULL,
    required: bool = False,
) -> Database:
    """Several private parents: a vote belongs to its post's author, and its voter is a parent with a declared bound.

    User 0 uses the bound up, on crowded posts, so that others fill the slots that these votes held where votes go with
    their voters.

    Args:
        seed: Of the rows.
        units: Number of users.
        most_votes: Bound on the votes of a voter.
        removed: What becomes of the votes of a removed voter.
        required: Whether each vote has a voter.
    """
    rng = np.random.default_rng(seed)
    user = Table("user", (Column("id", INTEGER), Column("age", INTEGER, Range(0, 100, cells=5))), ("id",))
    post = keyed(
        "post", Column("user_id", INTEGER), Column("long", BOOLEAN), keys=(_owner("post", "user_id", "user", 3),)
    )
    vote = keyed(
        "vote",
        Column("post_id", INTEGER),
        Column("user_id", INTEGER, nullable=not required),
        Column("up", BOOLEAN),
        keys=(
            _owner("vote", "post_id", "post", 2),
            ForeignKey(
                *("vote", ("user_id",), "user", ("id",)),
                max_children=most_votes,
                optional=not required,
                on_unit_removed=removed,
            ),
        ),
    )
    posts: list[Row] = [(i, int(rng.integers(units)), bool(rng.random() < 0.5)) for i in range(2 * units)]
    votes: list[Row] = []
    for voter in range(units):
        for _ in range(most_votes if voter == 0 else int(rng.integers(most_votes + 1))):
            target = int(rng.integers(4)) if voter < 5 else int(rng.integers(len(posts)))
            votes.append((len(votes), target, voter, bool(rng.random() < 0.7)))
    alone = 0 if required else units // 3
    votes += [(len(votes) + i, int(rng.integers(len(posts))), None, False) for i in range(alone)]
    users: list[Row] = [(u, int(rng.integers(100))) for u in range(units)]
    return database_from(Schema("forum", (user, post, vote), "user"), {"user": users, "post": posts, "vote": votes})


def club(seed: int, units: int = 40) -> Database:
    """A junction: members and public courses meet in enrolments; one member is in every course, one in none."""
    rng = np.random.default_rng(seed)
    course = Table("course", (Column("id", INTEGER), Column("level", INTEGER)), ("id",), public=True)
    member = Table("member", (Column("id", INTEGER), Column("age", INTEGER, Range(0, 100, cells=4))), ("id",))
    enrolment = Table(
        "enrolment",
        (Column("member_id", INTEGER), Column("course_id", INTEGER), Column("paid", BOOLEAN)),
        ("member_id", "course_id"),
        (_owner("enrolment", "member_id", "member", 3), ForeignKey("enrolment", ("course_id",), "course", ("id",))),
    )
    rows: dict[str, list[Row]] = {
        "course": [(c, c // 2) for c in range(6)],
        "member": [(m, int(rng.integers(100))) for m in range(units)],
        "enrolment": [
            (m, int(c), bool(rng.random() < 0.5))
            for m in range(units)
            for c in rng.permutation(6)[: 6 if m == 0 else 0 if m == 1 else int(rng.integers(4))]
        ],
    }
    return database_from(Schema("club", (course, member, enrolment), "member"), rows)


def fleet(seed: int, planes: int = 80, alone: int = 700) -> Database:
    """Flights of few planes with many of them, and as many without a plane, from other airports and of other kinds.

    What all rows have in common shows only when units with many rows count in full.
    """
    rng, most = np.random.default_rng(seed), 24
    numbers = rng.integers(most // 2, most + 4, planes)
    numbers[:3] = 3 * most, 0, 1
    planes_of = np.append(np.repeat(np.arange(planes), numbers), np.full(alone, -1))
    n, owned = len(planes_of), planes_of >= 0
    common = rng.normal(size=n)
    columns = [
        np.clip(3 + 1.2 * (common + 0.2 * rng.normal(size=n)) + np.where(owned, 0, side), 0, 6).astype(int)
        for side in (1.5, -1.5, 1.5)
    ]
    airport = Table("airport", (Column("id", INTEGER),), ("id",), public=True)
    plane = Table("plane", (Column("id", INTEGER), Column("kind", INTEGER, Values((0, 1, 2)))), ("id",))
    owner = ForeignKey("flight", ("plane_id",), "plane", ("id",), owner=True, optional=True, max_children=most)
    place = ForeignKey("flight", ("airport_id",), "airport", ("id",))
    kinds = (Column(name, INTEGER, Values(tuple(range(7)))) for name in ("dep", "arr", "air"))
    ids = (Column("id", INTEGER), Column("plane_id", INTEGER, nullable=True), Column("airport_id", INTEGER))
    flight = Table("flight", (*ids, *kinds), ("id",), (owner, place))
    airports = np.where(owned, rng.integers(25, 40, n), rng.integers(0, 6, n) * 6)
    return database_from(
        Schema("fleet", (airport, plane, flight), "plane"),
        {
            "airport": [(number,) for number in range(40)],
            "plane": [(number, int(kind)) for number, kind in enumerate(rng.integers(0, 3, planes))],
            "flight": [
                (number, int(of) if of >= 0 else None, int(airports[number]), *(int(c[number]) for c in columns))
                for number, of in enumerate(planes_of)
            ],
        },
    )


def harbour(seed: int, ships: int = 150, alone: int = 20) -> Database:
    """Calls of ships at public ports, of pilots of other ships: whom and where a ship calls follows from its kind.

    Nothing follows from a call's own columns. Some calls have no ship; one ship has many more than are kept, one none.
    """
    rng, most = np.random.default_rng(seed), 8
    port = keyed(
        "port",
        Column("region", ColumnType.CATEGORY, Values(tuple("abcdef")), nullable=True),
        Column("depth", INTEGER, nullable=True),
        public=True,
    )
    ship = Table("ship", (Column("id", INTEGER), Column("kind", INTEGER, Values((0, 1)), nullable=True)), ("id",))
    pilot_columns = (Column("id", INTEGER), Column("ship_id", INTEGER), Column("rank", INTEGER, Values((0, 1))))
    pilot = Table("pilot", pilot_columns, ("id",), (_owner("pilot", "ship_id", "ship", 1),))
    call = keyed(
        "call",
        Column("ship_id", INTEGER, nullable=True),
        Column("port_id", INTEGER),
        Column("pilot_id", INTEGER, nullable=True),
        *(Column(name, INTEGER, Values(tuple(range(7)))) for name in ("cargo", "crew")),
        keys=(
            replace(_owner("call", "ship_id", "ship", most), optional=True),
            ForeignKey("call", ("port_id",), "port", ("id",)),
            ForeignKey("call", ("pilot_id",), "pilot", ("id",), 3, optional=True),
        ),
    )
    numbers = [4 * most, 0, *rng.integers(most // 2, most + 2, ships - 2).tolist()]
    of_ship = [*(s for s, number in enumerate(numbers) for _ in range(number)), *[None] * alone]
    free = {rank: list(np.repeat(np.arange(rank, ships, 2), 3)) for rank in (0, 1)}  # three calls of each at most
    calls: list[Row] = []
    for s in of_ship:
        kind = 0 if s is None else s % 2
        likely = free[kind if rng.random() < 0.95 else 1 - kind]
        pilot_id = int(likely.pop(int(rng.integers(len(likely))))) if likely and rng.random() < 0.3 else None
        port_id = int(rng.integers(15)) * 2 + (kind if rng.random() < 0.95 else 1 - kind)
        calls.append((len(calls), s, port_id, pilot_id, *rng.integers(0, 7, 2).tolist()))
    regions = ["a", "b", "c", "d", "e", None]
    rows: dict[str, list[Row]] = {
        "port": [(p, regions[p % 6], None if p % 7 == 0 else p % 4) for p in range(30)],
        "ship": [(s, None if s % 50 == 2 else s % 2) for s in range(ships)],
        "pilot": [(p, (p + 3) % ships, p % 2) for p in range(ships)],
        "call": calls,
    }
    return database_from(Schema("harbour", (port, ship, pilot, call), "ship"), rows)


def site(seed: int, units: int = 50, *, cascades: bool = False) -> Database:
    """Users with three kinds of rows, as many of one as of the others; comments refer to posts of other users.

    One user has more of each than is kept, one has none.

    Args:
        seed: Of the rows.
        units: Users.
        cascades: Whether a comment goes with the post that it is on.
    """
    rng = np.random.default_rng(seed)
    goes = OnUnitRemoved.CASCADE if cascades else OnUnitRemoved.SET_NULL
    user = Table("user", (Column("id", INTEGER), Column("age", INTEGER, Range(0, 100, cells=4))), ("id",))
    owned = {
        name: keyed(
            name,
            Column("user_id", INTEGER),
            Column("score", INTEGER, Range(0, 3)),
            keys=(_owner(name, "user_id", "user", 4),),
        )
        for name in ("post", "badge", "comment")
    }
    on = ForeignKey("comment", ("post_id",), "post", ("id",), 2, optional=True, on_unit_removed=goes)
    comment = owned["comment"]
    columns = (*comment.columns, Column("post_id", INTEGER, nullable=True))
    owned["comment"] = replace(comment, columns=columns, foreign_keys=(*comment.foreign_keys, on))
    numbers = [9, 0, *rng.integers(0, 6, units - 2).tolist()]
    owners = [u for u, number in enumerate(numbers) for _ in range(number)]
    scored: list[Row] = [(i, u, int(rng.integers(4))) for i, u in enumerate(owners)]
    posts = rng.permutation(np.repeat(np.arange(len(owners)), 2))
    rows: dict[str, list[Row]] = {
        "user": [(u, int(rng.integers(100))) for u in range(units)],
        "post": scored,
        "badge": scored,
        "comment": [(*row, int(posts[i]) if rng.random() < 0.7 else None) for i, row in enumerate(scored)],
    }
    return database_from(Schema("site", (user, *owned.values()), "user"), rows)


def till(seed: int, units: int = 60) -> Database:
    """Wide ranges, declared and learned, in which many rows share a value; one unit has it most often, one never."""
    rng = np.random.default_rng(seed)
    wide = Range(0, 10**9)
    customer = Table("customer", (Column("id", INTEGER), Column("number", INTEGER, wide, nullable=True)), ("id",))
    sale = keyed(
        "sale",
        Column("customer_id", INTEGER),
        Column("price", ColumnType.DECIMAL, Learn(), precision=12, scale=2),
        Column("rate", FLOAT, Range(0, 1)),
        Column("day", ColumnType.TIMESTAMP, Range("2020-01-01", "2020-12-31")),
        keys=(_owner("sale", "customer_id", "customer", 5),),
    )
    customers: list[Row] = [(i, 123_456_789 if rng.random() < 0.6 else int(rng.integers(10**9))) for i in range(units)]
    customers[1] = (1, None)
    sales: list[Row] = []
    for i in range(units):
        for _ in range(20 if i == 0 else 0 if i == 1 else int(rng.integers(1, 5))):
            usual = i == 0 or (i != 2 and rng.random() < 0.7)
            cents = 999 if usual else int(rng.lognormal(7, 2))
            moment = dt.datetime(2020, 3, 1) + dt.timedelta(minutes=0 if usual else int(rng.integers(4 * 10**5)))
            sales.append((len(sales), i, Decimal(cents).scaleb(-2), 0.19 if usual else float(rng.random()), moment))
    return database_from(Schema("till", (customer, sale), "customer"), {"customer": customers, "sale": sales})


def ward(seed: int, units: int = 50) -> Database:
    """Columns relative to others, learned and declared, in a chain, before their base, and with NULL and extremes.

    Unit 0 has far more than τ stays, of absurd lengths; unit 1 has none; those of unit 2 are not over.
    """
    rng = np.random.default_rng(seed)
    day, moment = ColumnType.DATE, ColumnType.TIMESTAMP
    patient = keyed(
        "patient",
        Column("died", day, nullable=True, relative=Relative("born", Range(0, 40_000, cells=20))),
        Column("born", day, Range("1920-01-01", "2025-12-31")),
    )
    cents: dict[str, Any] = {"precision": 9, "scale": 2}
    stay = keyed(
        "stay",
        Column("patient_id", INTEGER),
        Column("arrived", moment, Learn()),
        Column("admitted", moment, nullable=True, relative=Relative("arrived", Learn())),
        Column("left", moment, nullable=True, relative=Relative("admitted", Range("PT0S", "P60D", 30))),
        Column("net", ColumnType.DECIMAL, Learn(), **cents),
        Column("gross", ColumnType.DECIMAL, relative=Relative("net", Learn()), **cents),
        keys=(_owner("stay", "patient_id", "patient", 4),),
    )
    patients: list[Row] = []
    for i in range(units):
        born = dt.date(1930, 1, 1) + dt.timedelta(days=int(rng.integers(30_000)))
        patients.append((i, born + dt.timedelta(days=int(rng.integers(15_000))) if rng.random() < 0.5 else None, born))
    patients[0] = (0, dt.date(9999, 12, 31), dt.date(1, 1, 1))
    patients[1] = (1, dt.date(1, 1, 1), dt.date(9999, 12, 31))
    stays: list[Row] = []
    for i in range(units):
        for _ in range(30 if i == 0 else 0 if i == 1 else int(rng.integers(1, 6))):
            arrived = dt.datetime(2020, 1, 1) + dt.timedelta(minutes=int(rng.integers(10**6)))
            admitted = None if i == 2 else arrived + dt.timedelta(minutes=int(rng.integers(300)))
            left = None if admitted is None else admitted + dt.timedelta(minutes=int(rng.integers(20_000)))
            if i == 0:
                arrived, admitted, left = dt.datetime.max, dt.datetime.min, [None, dt.datetime.max][len(stays) % 2]
            net = Decimal(int(rng.lognormal(9, 1))).scaleb(-2) if i else Decimal("-9999999.99")
            gross = net + Decimal(int(rng.integers(10**4))).scaleb(-2) if i else Decimal("9999999.99")
            stays.append((len(stays), i, arrived, admitted, left, net, gross))
    return database_from(Schema("ward", (patient, stay), "patient"), {"patient": patients, "stay": stays})


def agency(seed: int, units: int = 120) -> Database:
    """Agents with settings that few documents are, and tickets with documents of several shapes, and of none."""
    rng = np.random.default_rng(seed)
    agent = keyed(
        "agent",
        Column("settings", ColumnType.JSON, Learn(), nullable=True),
        Column("prefs", ColumnType.JSON, Learn()),  # of more shapes than can be named
    )
    ticket = keyed(
        "ticket",
        Column("agent_id", INTEGER),
        Column("payload", ColumnType.JSON, Learn(), nullable=True),
        Column("urgent", BOOLEAN),
        keys=(_owner("ticket", "agent_id", "agent", 3),),
    )
    agents: list[Row] = [
        (
            i,
            None if rng.random() < 0.1 else json.dumps({"theme": COLOURS[rng.integers(3)], "tabs": ["a", "b"]}),
            json.dumps({f"k{n}": bool(rng.random() < 0.5) for n in range(9) if rng.random() < 0.5}),
        )
        for i in range(units)
    ]
    agents[0], agents[1] = (0, '{"a": ' * 3000, "{}"), (1, '{"one of": "a kind", "\\u0000": 1e999}', "[[[]]]")
    tickets: list[Row] = []
    for i in range(units):
        for n in range(20 if i == 0 else 0 if i == 1 else int(rng.integers(5))):
            document: object = {"n": int(rng.integers(9)), "by": COLOURS[rng.integers(3)]}
            if rng.random() < 0.4:
                document = {
                    "cost": float(rng.integers(999)) / 4,
                    "at": f"2026-01-{rng.integers(10, 30)}",
                    "ok": bool(n),
                }
            text = "never a document" if i in {0, 2} and n % 2 else json.dumps(document)
            tickets.append((len(tickets), i, text if rng.random() < 0.9 else None, bool(rng.random() < 0.5)))
    return database_from(Schema("desk", (agent, ticket), "agent"), {"agent": agents, "ticket": tickets})


def career(seed: int, units: int = 40) -> Database:
    """Seasons of players in teams of a public table by year and name, whose years rows may not have a team for.

    Player 0 has far more than τ seasons, in one year; player 1 has none.
    """
    rng = np.random.default_rng(seed)
    years, names = range(1990, 2010, 2), ("red", "green", "blue")
    number, text = Column("year", INTEGER), Column("team", ColumnType.TEXT)
    team = Table("team", (number, text, Column("wins", INTEGER)), ("year", "team"), public=True)
    player = Table("player", (Column("id", INTEGER), Column("born", INTEGER, Range(1950, 1990))), ("id",))
    season = keyed(
        "season",
        Column("player_id", INTEGER),
        Column("year", INTEGER, Learn(), nullable=True),
        replace(text, nullable=True),
        Column("games", INTEGER, Range(0, 20), nullable=True),
        keys=(
            _owner("season", "player_id", "player", 5),
            ForeignKey("season", ("year", "team"), "team", ("year", "team"), optional=True),
        ),
    )
    players: list[Row] = [(i, int(rng.integers(1950, 1990))) for i in range(units)]
    seasons: list[Row] = []
    for i, (_, born) in enumerate(players):
        first = min(max(int(born) + 20, 1990), 2004) // 2 * 2  # type: ignore[call-overload]
        for j in range(30 if i == 0 else 0 if i == 1 else int(rng.integers(1, 4))):
            year = None if rng.random() < 0.1 else 2008 if i == 0 else first + 2 * j
            seasons.append((len(seasons), i, year, names[rng.integers(3)], int(rng.integers(20))))
    teams: list[Row] = [(year, name, int(rng.integers(9))) for year in years for name in names]
    rows = {"team": teams, "player": players, "season": seasons}
    return database_from(Schema("career", (team, player, season), "player"), rows)


def desk(seed: int, units: int = 40) -> Database:
    """Tickets of users with labels of their project, their user's account, and comments in their folder: mostly so.

    User 0 has far more than τ tickets; user 1 has none.
    """
    rng = np.random.default_rng(seed)
    number = partial(Column, type=INTEGER)
    account, project = (Table(name, (number("id"),), ("id",), public=True) for name in ("account", "project"))
    of_project = ForeignKey("label", ("project_id",), "project", ("id",))
    label = keyed("label", number("project_id"), keys=(of_project,), public=True)
    user = keyed(
        "user",
        number("account_id", nullable=True),
        keys=(ForeignKey("user", ("account_id",), "account", ("id",), optional=True),),
    )
    folder = keyed("folder", number("user_id"), keys=(_owner("folder", "user_id", "user", 2),))

    def key(child: str, parent: str, *, inside: bool = False) -> ForeignKey:
        return ForeignKey(child, (f"{parent}_id",), parent, ("id",), same_unit=inside)

    ticket = keyed(
        "ticket",
        *(number(f"{name}_id") for name in ("user", "account", "project", "folder")),
        Column("hours", INTEGER, Range(0, 9)),
        keys=(
            _owner("ticket", "user_id", "user", 4),
            key("ticket", "account"),
            key("ticket", "project"),
            key("ticket", "folder", inside=True),
        ),
    )
    tag = Table(
        "tag",
        (number("ticket_id"), number("label_id")),
        ("ticket_id", "label_id"),
        (_owner("tag", "ticket_id", "ticket", 3), key("tag", "label")),
    )
    comment = keyed(
        "comment",
        number("ticket_id"),
        number("folder_id"),
        Column("length", INTEGER, Range(0, 9)),
        keys=(_owner("comment", "ticket_id", "ticket", 3), key("comment", "folder", inside=True)),
    )
    accounts, projects, labels = 5, 4, 12
    users: list[Row] = [(i, int(rng.integers(accounts)) if rng.random() < 0.9 else None) for i in range(units)]
    folders: list[Row] = [(i, i % units) for i in range(3 * units)]
    tickets: list[Row] = []
    tags, comments = list[Row](), list[Row]()
    for i, (_, of_user) in enumerate(users):
        for _ in range(15 if i == 0 else 0 if i == 1 else int(rng.integers(1, 5))):
            mine = int(rng.integers(accounts)) if of_user is None or rng.random() < 0.1 else of_user
            of, kept_in = int(rng.integers(projects)), i + units * int(rng.integers(3))
            for n in range(int(rng.integers(4))):
                fits = int(rng.integers(3)) * projects + of
                tags.append((len(tickets), fits if n == 0 else (fits + n) % labels))
                near = kept_in if rng.random() < 0.8 else (i + rng.integers(2)) % units
                comments.append((len(comments), len(tickets), int(near), int(rng.integers(9))))
            tickets.append((len(tickets), i, mine, of, kept_in, int(rng.integers(9))))
    rows = {
        "account": [(i,) for i in range(accounts)],
        "project": [(i,) for i in range(projects)],
        "label": [(i, i % projects) for i in range(labels)],
        "user": users,
        "folder": folders,
        "ticket": tickets,
        "tag": sorted(set(tags)),
        "comment": comments,
    }
    return database_from(Schema("desk", (account, project, label, user, folder, ticket, tag, comment), "user"), rows)


def poll(seed: int, units: int = 400, *, tied: bool = False) -> Database:
    """One table of six lists of two to seven answers: most follow the last, or none depends on another."""
    rng = np.random.default_rng(seed)
    sizes = np.arange(2, 8)
    columns = [Column(f"answer{size}", INTEGER, Values(tuple(range(size)))) for size in sizes.tolist()]
    table = Table("poll", (Column("id", INTEGER), *columns), ("id",))
    answers = rng.integers(0, sizes, (units, len(sizes)))
    if tied:
        answers = np.where(rng.random(answers.shape) < 0.8, answers[:, -1:] % sizes, answers)
    rows: list[Row] = [(number, *answer) for number, answer in enumerate(answers.tolist())]
    return database_from(Schema("poll", (table,), "poll"), {"poll": rows})


def adversaries(database: Database, seed: int, random_ones: int = 1) -> list[object]:
    """Units worth removing: the one with the most rows, one without rows, the odd third one, and some at random."""
    units = database.units()
    more = np.random.default_rng(seed).choice(len(units), random_ones, replace=False)
    return list(dict.fromkeys([*units[:3], *(units[i] for i in more)]))
