"""Make the shop: an operational database, with rows that a seed made up.

    python examples/shop/build.py shop.duckdb                    # eight tables
    python examples/shop/build.py postgresql://localhost/shop    # those, and three of support, in an empty database

Nobody in it exists. Rows depend on each other as those of a shop do: a city has one country and a country one currency;
times of an order follow each other and agree with its status; totals are sums; a customer buys mostly what fits the
segment, more before Christmas, and reviews what was delivered.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
from numpy.typing import NDArray

SEED = 51
CUSTOMERS = 15_000

HERE = Path(__file__).resolve().parent
TABLES, SUPPORT = ((HERE / f"{name}.sql").read_text(encoding="utf-8") for name in ("shop", "support"))

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

START, END, DAY = 1_609_459_200, 1_751_241_600, 86_400  # 2021 to the middle of 2025, in seconds
COUNTRIES = {  # share, currency, cities
    "DE": (0.34, "EUR", ("Berlin", "Hamburg", "Leipzig", "Munich")),
    "FR": (0.22, "EUR", ("Lyon", "Nantes", "Paris")),
    "GB": (0.2, "GBP", ("Bristol", "Leeds", "London")),
    "NL": (0.14, "EUR", ("Rotterdam", "Utrecht")),
    "CH": (0.1, "CHF", ("Basel", "Zurich")),
}
CATEGORIES = {  # typical price, brands by product
    "Kitchen": {"Cookware": 40, "Knives": 55, "Coffee": 90},
    "Office": {"Chairs": 210, "Desks": 340, "Lamps": 45, "Paper": 9},
    "Outdoor": {"Tents": 180, "Backpacks": 95, "Bottles": 18},
}
FAVOURITES = {"consumer": (3, 1, 3), "business": (1, 8, 1), "wholesale": (3, 4, 2)}  # of the categories above
SERIES = ("Alto", "Brio", "Corda", "Duna", "Elba", "Fino", "Gala", "Helio")
COLOURS = ("black", "white", "red", "oak", "steel")
FIRST = ("Ada", "Ben", "Chloe", "Dirk", "Elif", "Femke", "Grace", "Hugo", "Ines", "Jonas", "Kira", "Liam", "Noor")
LAST = ("Bakker", "Brandt", "Costa", "Dubois", "Evans", "Fischer", "Garnier", "Hughes", "Jansen", "Keller", "Moreau")
STREETS = ("Mill Lane", "Station Road", "Church Street", "Market Square", "Harbour Way", "Garden Row")
TITLES = {
    1: ("Broke within a week", "Not as described"),
    2: ("Disappointing", "Too small"),
    3: ("It does the job", "Average"),
    4: ("Good value", "Would buy again"),
    5: ("Excellent", "Love it", "Would buy again"),
}
NOTES = ("Leave with a neighbour", "Ring twice", "Gift wrap, please", "Deliver after 5 pm")
TOPICS = ("delivery", "refund", "damaged", "invoice", "question")
TAGS = np.array(["first", "vip", "phone", "escalated", "bulky"])


def tables(customers: int = CUSTOMERS, seed: int = SEED) -> dict[str, pa.Table]:
    """Draw the rows of all tables, by name; parents come before children."""
    rng = np.random.default_rng(seed)
    products = _products(rng)
    people, registered, gone, segment, country = _customers(customers, rng)
    made = {**products, **people} | _orders(products["product"], people, registered, gone, segment, country, rng)
    return made | _support(made, rng)


def _products(rng: np.random.Generator) -> dict[str, pa.Table]:
    tops = list(CATEGORIES)
    below = [(top, name, price) for top, names in CATEGORIES.items() for name, price in names.items()]
    number = 12 * len(below)
    kind = np.repeat(np.arange(len(below)), 12)
    usual = np.array([price for *_, price in below])[kind]
    price = np.maximum(2, np.round(usual * rng.lognormal(0, 0.35, number))) - 0.01
    launched = START + rng.integers(0, 1000, number) * DAY
    ended = rng.random(number) < 0.15
    return {
        "category": pa.table(
            {
                "id": np.arange(1, len(tops) + len(below) + 1),
                "parent_id": pa.array([None] * len(tops) + [tops.index(top) + 1 for top, *_ in below]),
                "name": [*tops, *(name for _, name, _ in below)],
            }
        ),
        "product": pa.table(
            {
                "sku": [f"{below[k][1][:3].upper()}-{n % 12 + 1:03d}" for n, k in enumerate(kind)],
                "category_id": kind + len(tops) + 1,
                "name": [f"{SERIES[n % len(SERIES)]} {below[k][1].rstrip('s').lower()}" for n, k in enumerate(kind)],
                "price": np.round(price, 2),
                "weight_g": (usual * rng.lognormal(3, 0.4, number)).astype(np.int64),
                "launched_on": _times(launched),
                "discontinued_on": _times(launched + 500 * DAY, ended),
                "attributes": _json(colour=rng.choice(COLOURS, number), warranty_years=rng.integers(0, 6, number)),
            }
        ),
    }


def _customers(
    number: int, rng: np.random.Generator
) -> tuple[dict[str, pa.Table], Ints, Ints, NDArray[np.str_], NDArray[np.str_]]:
    """Return customers and addresses; times of first and last visits, segments, and countries."""
    codes = np.array(list(COUNTRIES))
    country = rng.choice(codes, number, p=[share for share, *_ in COUNTRIES.values()])
    segment = rng.choice(["consumer", "business", "wholesale"], number, p=[0.75, 0.2, 0.05])
    person = segment == "consumer"
    registered = np.sort(START + ((END - START - DAY) * rng.beta(1.3, 1.0, number)).astype(np.int64))
    gone = registered + ((END - registered) * rng.beta(1.2, 0.6, number)).astype(np.int64)
    first, last = rng.choice(FIRST, number), rng.choice(LAST, number)
    age = np.clip(rng.normal(41, 13, number), 18, 90)
    lines = np.minimum(1 + rng.poisson(np.where(person, 0.35, 1.2)), 5)
    home = np.repeat(np.arange(number), lines)
    cities = [rng.choice(COUNTRIES[code][2]) for code in country[home]]
    customer = pa.table(
        {
            "id": np.arange(1, number + 1),
            "email": [f"{a}.{b}{n}@example.com".lower() for n, (a, b) in enumerate(zip(first, last, strict=True), 1)],
            "full_name": [f"{a} {b}" for a, b in zip(first, last, strict=True)],
            "segment": segment,
            "company": pa.array([f"{name} {rng.choice(['Ltd', 'GmbH', '& Co'])}" for name in last], mask=person),
            "birth_date": _times((registered - age * 365.25 * DAY).astype(np.int64), person),
            "country": country,
            "currency": [COUNTRIES[code][1] for code in country],
            "registered_at": _times(registered),
            "last_seen_at": _times(gone, rng.random(number) < 0.93),
            "newsletter": rng.random(number) < np.where(person, 0.55, 0.2),
            "settings": _json(
                language=[{"CH": "de", "GB": "en"}.get(code, code.lower()) for code in country],
                theme=rng.choice(["light", "dark"], number, p=[0.7, 0.3]),
                rows=rng.choice([20, 50, 100], number, p=[0.7, 0.2, 0.1]),
            ),
        }
    )
    address = pa.table(
        {
            "customer_id": home + 1,
            "line": _position(home) + 1,
            "street": [
                f"{a} {b}" for a, b in zip(rng.integers(1, 200, len(home)), rng.choice(STREETS, len(home)), strict=True)
            ],
            "postcode": [f"{n:05d}" for n in rng.integers(1000, 99999, len(home))],
            "city": cities,
            "country": country[home],
        }
    )
    return {"customer": customer, "address": address}, registered, gone, segment, country


def _orders(
    product: pa.Table,
    people: dict[str, pa.Table],
    registered: Ints,
    gone: Ints,
    segment: NDArray[np.str_],
    country: NDArray[np.str_],
    rng: np.random.Generator,
) -> dict[str, pa.Table]:
    """Return orders with their lines and payments, and reviews."""
    rate = np.where(segment == "consumer", 2.2, np.where(segment == "business", 4.5, 9.0)) * rng.gamma(
        2.0, 0.5, len(gone)
    )
    buyer = np.repeat(np.arange(len(gone)), np.minimum(rng.poisson(rate), 40))
    at = registered[buyer] + ((gone - registered)[buyer] * rng.beta(0.9, 1.2, len(buyer))).astype(np.int64)
    late = rng.random(len(buyer)) < 0.25  # many buy before Christmas
    christmas = (at // (365 * DAY)) * 365 * DAY + 337 * DAY + rng.integers(0, 20 * DAY, len(buyer))
    at = np.where(late & (christmas > registered[buyer]) & (christmas < END), christmas, at)
    order = np.argsort(at, kind="stable")
    buyer, at = buyer[order], at[order]
    number = len(buyer)
    wide = segment[buyer] != "consumer"

    count = np.minimum(1 + rng.poisson(np.where(wide, 2.2, 0.9)), 12)
    of = np.repeat(np.arange(number), count)
    tops = np.array(product["category_id"]) - len(CATEGORIES) - 1
    sizes = [len(names) for names in CATEGORIES.values()]
    top_of = np.repeat(np.arange(len(sizes)), sizes)[tops]
    popular = rng.pareto(1.3, product.num_rows) + 0.3
    sku = np.empty(len(of), dtype=np.int64)
    for name, weights in FAVOURITES.items():
        rows = np.flatnonzero(segment[buyer[of]] == name)
        chance = popular * np.array(weights)[top_of]
        sku[rows] = rng.choice(product.num_rows, len(rows), p=chance / chance.sum())
    quantity = np.where(wide[of], 1 + rng.geometric(0.25, len(of)), rng.geometric(0.75, len(of)))
    price = np.round(np.array(product["price"])[sku] * np.where(segment[buyer[of]] == "wholesale", 0.8, 1.0), 2)
    amount = np.round(quantity * price, 2)
    goods = np.round(np.bincount(of, amount, number), 2)
    shipping = np.where(goods >= 100, 0, np.where(country[buyer] == "CH", 14.9, 4.9))

    paid = at + (rng.exponential(np.where(wide, 9 * DAY, 0.3 * DAY))).astype(np.int64)
    shipped = paid + rng.integers(DAY // 4, 4 * DAY, number)
    delivered = shipped + rng.integers(DAY, DAY * np.where(country[buyer] == "CH", 9, 5))
    cancelled = rng.random(number) < 0.06
    has_paid, has_shipped, has_arrived = (~cancelled & (time < END) for time in (paid, shipped, delivered))
    status = np.select(
        [cancelled, has_arrived, has_shipped, has_paid], ["cancelled", "delivered", "shipped", "paid"], "placed"
    )
    returned = has_arrived & (rng.random(number) < 0.05)
    status[returned] = "returned"
    lines = np.bincount(np.array(people["address"]["customer_id"]) - 1)[buyer]
    elsewhere = (lines > 1) & (rng.random(number) < 0.4)
    noted = rng.random(number) < 0.12

    rated = np.flatnonzero(has_arrived[of] & (rng.random(len(of)) < 0.12))
    _, once = np.unique(buyer[of[rated]] * product.num_rows + sku[rated], return_index=True)
    rated = rated[np.sort(once)]
    quality = rng.normal(3.9, 0.6, product.num_rows)
    stars = np.clip(np.round(rng.normal(quality[sku[rated]], 0.9)), 1, 5).astype(np.int64)
    silent = rng.random(len(rated)) < 0.3
    written = np.minimum(delivered[of[rated]] + rng.integers(DAY, 60 * DAY, len(rated)), END)
    in_time = np.argsort(written, kind="stable")
    method = np.where(
        wide & (rng.random(number) < 0.7),
        "invoice",
        rng.choice(["card", "paypal", "voucher"], number, p=[0.6, 0.33, 0.07]),
    )
    payer = np.flatnonzero(has_paid)
    return {
        "orders": pa.table(
            {
                "id": np.arange(1, number + 1),
                "customer_id": buyer + 1,
                "billing_line": np.ones(number, dtype=np.int64),
                "shipping_line": pa.array(rng.integers(2, np.maximum(lines, 2) + 1), mask=~elsewhere),
                "status": status,
                "channel": np.where(
                    wide, rng.choice(["web", "phone", "partner"], number), rng.choice(["web", "app"], number)
                ),
                "placed_at": _times(at),
                "paid_at": _times(paid, has_paid),
                "shipped_at": _times(shipped, has_shipped),
                "delivered_at": _times(delivered, has_arrived),
                "currency": np.array([COUNTRIES[code][1] for code in country])[buyer],
                "goods": goods,
                "shipping": shipping,
                "total": np.round(goods + shipping, 2),
                "note": pa.array(rng.choice(NOTES, number), mask=~noted),
            }
        ),
        "order_line": pa.table(
            {
                "order_id": of + 1,
                "line": _position(of) + 1,
                "sku": product["sku"].take(pa.array(sku)),
                "quantity": quantity,
                "unit_price": price,
                "amount": amount,
            }
        ),
        "payment": pa.table(
            {
                "id": np.arange(1, len(payer) + 1),
                "order_id": payer + 1,
                "method": method[payer],
                "amount": np.round(goods + shipping, 2)[payer],
                "made_at": _times(paid[payer]),
                "refunded_at": _times((delivered + rng.integers(DAY, 20 * DAY, number))[payer], returned[payer]),
            }
        ),
        "review": pa.table(
            {
                "customer_id": buyer[of[rated]] + 1,
                "sku": product["sku"].take(pa.array(sku[rated])),
                "rating": stars,
                "title": pa.array([rng.choice(TITLES[star]) for star in stars], mask=silent),
                "written_at": _times(written),
            }
        ).take(in_time),
    }


def _support(made: dict[str, pa.Table], rng: np.random.Generator) -> dict[str, pa.Table]:
    """Return agents, tickets and messages."""
    orders, agents = made["orders"], 12
    status = np.array(orders["status"].to_pylist())
    about = np.flatnonzero(rng.random(len(status)) < np.where(np.isin(status, ["returned", "cancelled"]), 0.6, 0.12))
    placed = np.array(orders["placed_at"].cast(pa.int64()))[about]
    opened = np.minimum(placed + rng.integers(0, 20 * DAY, len(about)), END - DAY)
    order = np.argsort(opened, kind="stable")
    about, opened = about[order], opened[order]
    number = len(about)
    topic = np.where(status[about] == "returned", "refund", rng.choice(TOPICS, number, p=[0.4, 0.1, 0.15, 0.1, 0.25]))
    closed = opened + (DAY * rng.lognormal(0.6, 0.9, number)).astype(np.int64)
    is_closed = (closed < END) & (rng.random(number) < 0.95)
    assigned = is_closed | (rng.random(number) < 0.5)
    of = np.repeat(np.arange(number), 1 + rng.poisson(1.8, number))
    spread = np.sort(rng.random(len(of)) + of) - of  # of one ticket, in order
    sent = opened[of] + (spread * (np.where(is_closed, closed, END) - opened)[of]).astype(np.int64)
    return {
        "agent": pa.table(
            {
                "id": np.arange(1, agents + 1),
                "name": rng.choice(FIRST, agents),
                "team": rng.choice(["first line", "returns"], agents),
            }
        ),
        "ticket": pa.table(
            {
                "id": np.arange(1, number + 1),
                "customer_id": np.array(orders["customer_id"])[about],
                "order_id": pa.array(about + 1, mask=topic == "question"),
                "agent_id": pa.array(rng.integers(1, agents + 1, number), mask=~assigned),
                "topic": topic,
                "tags": [TAGS[row].tolist() for row in rng.random((number, len(TAGS))) < [0.3, 0.1, 0.2, 0.08, 0.1]],
                "opened_at": _times(opened),
                "closed_at": _times(closed, is_closed),
            }
        ),
        "message": pa.table(
            {
                "ticket_id": of + 1,
                "number": _position(of) + 1,
                "by_customer": _position(of) % 2 == 0,
                "sent_at": _times(sent),
                "characters": np.round(rng.lognormal(5, 0.8, len(of))).astype(np.int64),
            }
        ),
    }


def _position(owner: Ints) -> Ints:
    """Return the position of each row among those of its owner, from 0; owners are sorted."""
    return np.arange(len(owner)) - np.searchsorted(owner, owner)


def _times(seconds: Ints, known: Flags | None = None) -> pa.Array:
    return pa.array(seconds, mask=None if known is None else ~known).cast(pa.timestamp("s"))


def _json(**columns: object) -> list[str]:
    rows = zip(*(np.asarray(values).tolist() for values in columns.values()), strict=True)
    return [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]


def build(path: Path, customers: int = CUSTOMERS) -> dict[str, int]:
    """Write the eight tables to a DuckDB file, whole or not at all; return rows by table."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with duckdb.connect(str(unfinished)) as connection:
        connection.execute(TABLES)
        written = {}
        for name, rows in tables(customers).items():
            if f"CREATE TABLE {name} " in TABLES:
                for part in (
                    rows.slice(0, len(CATEGORIES)),
                    rows.slice(len(CATEGORIES)),
                ):  # categories before those below
                    connection.register("part", part)
                    connection.execute(f"INSERT INTO {name} BY NAME FROM part")
                written[name] = rows.num_rows
    unfinished.rename(path)
    return written


def build_postgres(url: str, customers: int = CUSTOMERS // 3) -> dict[str, int]:
    """Make all tables in an empty PostgreSQL database; return rows by table."""
    made = tables(customers)
    with psycopg.connect(url) as connection:
        connection.execute(f"SET TIME ZONE 'UTC'; {TABLES}; {SUPPORT}".encode())
        for name, rows in made.items():
            with connection.cursor().copy(f"COPY {name} ({', '.join(rows.column_names)}) FROM STDIN".encode()) as copy:
                for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                    copy.write_row(row)
    return {name: rows.num_rows for name, rows in made.items()}


def main() -> None:
    """Build what the command line asks for and say what was written."""
    parser = argparse.ArgumentParser(description="Make the shop's database, with rows that a seed made up.")
    parser.add_argument("target", help="a new DuckDB file, or the URL of an empty PostgreSQL database")
    target = parser.parse_args().target
    for table, count in (build_postgres(target) if "://" in target else build(Path(target))).items():
        print(f"{table}: {count:,} rows")


if __name__ == "__main__":
    main()
