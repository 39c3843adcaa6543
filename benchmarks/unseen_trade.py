"""Loaders of real databases of an airport and of a bank; see `unseen`."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.unseen_columns import child_rows, child_table, learned, listed, number, numbered, read_rows
from privbench_core.schema.columns import Column, ColumnType, Range
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.heavy_tails import Database
from tests.helpers.planted import integer, owner_key, rows_of


def flights(folder: Path) -> Database:
    """Planes and the flights that they left New York on in January 2013, with public airlines and airports."""
    data = folder / "data"
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        flown = read_rows(io.BytesIO(archive.read(archive.namelist()[0])))
    flown = flown.filter(pc.equal(flown["month"], 1))
    planes, airlines = read_rows(data / "planes.csv"), read_rows(data / "airlines.csv")
    airports = pc.unique(flown["dest"])
    places = read_rows(data / "airports.csv")
    plane = Table(
        "plane",
        (
            integer("id"),
            number("year", 1950, 2014, nullable=True),
            learned("manufacturer"),
            number("seats", 0, 500),
            listed("engine", "Turbo-fan Turbo-jet Turbo-prop Turbo-shaft Reciprocating 4-Cycle"),
        ),
        ("id",),
    )
    airline = Table("airline", (integer("id"), Column("code", ColumnType.TEXT)), ("id",), public=True)
    airport = Table("airport", (integer("id"), integer("altitude", -100, 10_000)), ("id",), public=True)
    delays = {name: Range(-120, 1439) for name in ("dep_delay", "arr_delay")}
    flight = Table(
        "flight",
        (
            integer("id"),
            integer("plane_id"),
            integer("airline_id"),
            integer("airport_id"),
            number("day", 1, 31),
            number("hour", 0, 23),
            listed("origin", "EWR JFK LGA"),
            number("distance", 0, 6000, 600),
            *(Column(name, ColumnType.INTEGER, domain, nullable=True) for name, domain in delays.items()),
        ),
        ("id",),
        (
            owner_key("flight", "plane_id", "plane", 200),
            ForeignKey("flight", ("airline_id",), "airline", ("id",)),
            ForeignKey("flight", ("airport_id",), "airport", ("id",)),
        ),
    )
    by, names = numbered(flown["tailnum"], planes["tailnum"].to_pylist()), airports.to_pylist()
    height = dict(zip(places["faa"].to_pylist(), places["alt"].to_pylist(), strict=True))
    kept = flown.filter(pa.array(by >= 0))
    tables = {
        "plane": rows_of(
            plane,
            id=np.arange(planes.num_rows),
            engine=pc.replace_substring(planes["engine"], " ", "-"),
            **{name: planes[name] for name in ("year", "manufacturer", "seats")},
        ),
        "airline": rows_of(airline, id=np.arange(airlines.num_rows), code=airlines["carrier"]),
        "airport": rows_of(
            airport, id=np.arange(len(names)), altitude=pa.array([height.get(name, 0) for name in names])
        ),
        "flight": rows_of(
            flight,
            id=np.arange(kept.num_rows),
            plane_id=by[by >= 0],
            airline_id=numbered(kept["carrier"], airlines["carrier"].to_pylist()),
            airport_id=numbered(kept["dest"], names),
            **{name: kept[name] for name in ("day", "hour", "origin", "distance", *delays)},
        ),
    }
    return Schema("flights", (plane, airline, airport, flight), "plane"), tables


def berka(folder: Path) -> Database:
    """Accounts of a Czech bank with loans, standing orders, and dispositions of clients with their cards."""
    data = folder / "data"
    read = {name: read_rows(data / f"{name}.csv") for name in ("account", "loan", "order", "disp", "client", "card")}
    read["district"] = read_rows(data / "district.csv")
    opened = Range("1993-01-01", "1998-12-31")
    district = Table(
        "district",
        (integer("id"), integer("inhabitants", 0, 2_000_000), integer("salary", 0, 20_000)),
        ("id",),
        public=True,
    )
    account = Table(
        "account",
        (
            integer("id"),
            integer("district_id"),
            listed("frequency", "POPLATEK_MESICNE POPLATEK_TYDNE POPLATEK_PO_OBRATU"),
            Column("date", ColumnType.DATE, opened),
        ),
        ("id",),
        (ForeignKey("account", ("district_id",), "district", ("id",)),),
    )
    loan = child_table(
        "loan",
        "account_id",
        account,
        2,
        (
            Column("date", ColumnType.DATE, opened),
            number("amount", 0, 600_000, 600),
            listed("duration", "12 24 36 48 60"),
            listed("status", "A B C D"),
        ),
    )
    order = child_table(
        "order",
        "account_id",
        account,
        10,
        (
            learned("bank_to"),
            number("amount", 0, 20_000, 2000),
            listed("k_symbol", "SIPO UVER POJISTNE LEASING", nullable=True),
        ),
    )
    disp = child_table(
        "disp",
        "account_id",
        account,
        2,
        (listed("type", "OWNER DISPONENT"), listed("gender", "F M"), number("born", 1900, 1999)),
    )
    card = child_table(
        "card",
        "disp_id",
        disp,
        1,
        (listed("type", "junior classic gold"), Column("issued", ColumnType.DATE, opened)),
    )
    accounts, disps = (read[name][f"{name}_id"].to_pylist() for name in ("account", "disp"))
    client = read["client"].take(pa.array(numbered(read["disp"]["client_id"], read["client"]["client_id"].to_pylist())))
    of_account = {name: numbered(read[name]["account_id"], accounts) for name in ("loan", "order", "disp")}
    districts = read["district"]["district_id"].to_pylist()
    tables = {
        "district": rows_of(
            district, id=np.arange(len(districts)), inhabitants=read["district"]["A4"], salary=read["district"]["A11"]
        ),
        "account": rows_of(
            account,
            id=np.arange(len(accounts)),
            district_id=numbered(read["account"]["district_id"], districts),
            frequency=pc.replace_substring(read["account"]["frequency"], " ", "_"),
            date=read["account"]["date"],
        ),
        "loan": child_rows(
            loan,
            "account_id",
            of_account["loan"],
            {
                **{name: read["loan"][name] for name in ("date", "amount", "status")},
                "duration": read["loan"]["duration"].cast(pa.string()),
            },
        ),
        "order": child_rows(
            order,
            "account_id",
            of_account["order"],
            {
                **{name: read["order"][name] for name in ("bank_to", "k_symbol")},
                "amount": read["order"]["amount"].cast(pa.int64(), safe=False),
            },
        ),
        "disp": child_rows(
            disp,
            "account_id",
            of_account["disp"],
            {"type": read["disp"]["type"], "gender": client["gender"], "born": pc.year(client["birth_date"])},
        ),
        "card": child_rows(
            card,
            "disp_id",
            numbered(read["card"]["disp_id"], disps),
            {name: read["card"][name] for name in ("type", "issued")},
        ),
    }
    return Schema("berka", (district, account, loan, order, disp, card), "account"), tables
