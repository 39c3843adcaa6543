"""Databases that somebody might bring, with made-up rows: the schema of Sakila, and a shop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

# A line per table: its rows, then its columns as "name type ! -> parent"; "!" is the primary key, "?" after a type
# allows NULL, and "_" in a type stands for a comma.
SAKILA = """
country 20: country_id int !, country text, last_update timestamp
city 60: city_id int !, city text, country_id int -> country, last_update timestamp
language 6: language_id int !, name char(20), last_update timestamp
category 16: category_id int !, name varchar(25), last_update timestamp
actor 40: actor_id int !, first_name varchar(45), last_name varchar(45), last_update timestamp
address 80: address_id int !, address varchar(50), address2 varchar(50)?, district varchar(20), city_id int -> city,
    postal_code varchar(10)?, phone varchar(20), last_update timestamp
film 100: film_id int !, title varchar(255), description text?, release_year int?, language_id int -> language,
    original_language_id int? -> language, rental_duration smallint, rental_rate numeric(4_2), length smallint?,
    replacement_cost numeric(5_2), rating mpaa_rating?, special_features text[]?, last_update timestamp
film_actor 150: actor_id int ! -> actor, film_id int ! -> film, last_update timestamp
film_category 100: film_id int ! -> film, category_id int ! -> category, last_update timestamp
store 2: store_id int !, manager_staff_id int, address_id int -> address, last_update timestamp
staff 2: staff_id int !, first_name varchar(45), last_name varchar(45), address_id int -> address, email varchar(50)?,
    store_id int -> store, active bool, username varchar(16), password varchar(40)?, picture bytea?, last_update
    timestamp
customer 599: customer_id int !, store_id int -> store, first_name varchar(45), last_name varchar(45), email
    varchar(50)?, address_id int -> address, active bool, create_date date, last_update timestamp
inventory 300: inventory_id int !, film_id int -> film, store_id int -> store, last_update timestamp
rental 4000: rental_id int !, rental_date timestamp, inventory_id int -> inventory, customer_id int -> customer,
    return_date timestamp?, staff_id int -> staff, last_update timestamp
payment 4000: payment_id int !, customer_id int -> customer, staff_id int -> staff, rental_id int -> rental, amount
    numeric(5_2), payment_date timestamp
"""
SHOP = """
product 50: code int !, title text, price numeric(8_2), opens time, place point?, sheet box?
client 400: id int !, name text, email text, phone_type text, street_number int, born date?, joined date, left_on
    date?
orders 1200: id int !, client int -> client, order_date date, shipped_date date?, status text, note text?
order_line 2000: orders int -> orders, product int -> product, amount int, picked_at time?
"""
_COLUMN = re.compile(r'"?(\w+)"? ([\w()\[\]]+)(\?)?( !)?(?: -> (\w+))?$')


@dataclass(frozen=True)
class Database:
    """One of them.

    Attributes:
        name: As a PostgreSQL database.
        text: Its tables, parents first.
        edits: What its owner replaces in the draft.
        before: SQL for types.
        after: SQL once the rows are there.
    """

    name: str
    text: str
    edits: Mapping[str, str]
    before: str = ""
    after: str = ""

    @property
    def tables(self) -> dict[str, tuple[int, str]]:
        """Rows and columns by table."""
        lines = " ".join(self.text.split("\n    ")).strip().splitlines()
        heads = [line.partition(": ") for line in lines]
        return {head.split()[0]: (int(head.split()[1]), columns) for head, _, columns in heads}

    def sql(self, schema: str = "public") -> Iterator[str]:
        """Yield the statements that make the database, rows and keys included."""
        rng = np.random.default_rng(0)
        yield f'CREATE SCHEMA IF NOT EXISTS "{schema}"; SET search_path TO "{schema}"; {self.before}'
        for name, (rows, text) in self.tables.items():
            columns = [_parsed(part) for part in text.split(", ")]
            keys = [f'"{column[0]}"' for column in columns if column[3]]
            lines = [f'"{c[0]}" {c[1]}{"" if c[2] else " NOT NULL"}' for c in columns]
            lines += [f"PRIMARY KEY ({', '.join(keys)})"] if keys else []
            lines += [f'FOREIGN KEY ("{c[0]}") REFERENCES "{c[4]}"' for c in columns if c[4]]
            yield f'CREATE TABLE "{name}" ({", ".join(lines)})'
            numbered = len(keys) == 1
            made = [_values(rng, column, rows, self.tables, numbered=numbered) for column in columns]
            values = dict.fromkeys(zip(*made, strict=True))
            if len(keys) > 1:  # a pair of references: each once
                values = {row[: len(keys)]: row for row in values}.values()  # type: ignore[assignment]
            listed = ",\n".join(f"({', '.join(row)})" for row in values)
            yield f'INSERT INTO "{name}" VALUES {listed}'
        yield self.after or "SELECT 1"


def _parsed(text: str) -> tuple[str, str, bool, bool, str | None]:
    found = _COLUMN.match(text.strip())
    assert found, text
    kind = found[2].replace("_", ",") if "(" in found[2] else found[2]
    return found[1], kind, bool(found[3]), bool(found[4]), found[5]


def _values(
    rng: np.random.Generator,
    column: tuple[str, str, bool, bool, str | None],
    rows: int,
    tables: Mapping[str, tuple[int, str]],
    *,
    numbered: bool,
) -> list[str]:
    _, kind, nullable, key, parent = column
    if key and parent is None and numbered:
        return [str(i + 1) for i in range(rows)]
    numbers = rng.integers(1, tables[parent][0] + 1 if parent and parent in tables else 20, rows)
    texts = [_text(kind, int(number), i) for i, number in enumerate(numbers)]
    empty = rng.random(rows) < 0.1 if nullable else np.zeros(rows, dtype=bool)
    return ["NULL" if none else text for none, text in zip(empty, texts, strict=True)]


def _text(kind: str, number: int, place: int) -> str:
    day = f"20{10 + number % 10}-0{1 + number % 9}-11"
    known = {
        "int": str(number),
        "smallint": str(number),
        "numeric": f"{number}.99",
        "bool": str(number % 2 == 0).lower(),
        "date": f"'{day}'",
        "timestamp": f"'{day} 1{number % 10}:00'",
        "time": f"'{number % 24:02d}:30'",
        "bytea": "'\\x00ff'",
        "point": f"'({number},1)'",
        "box": f"'(1,1),({number},2)'",
        "text[]": "'{a,b}'",
        "mpaa_rating": f"'{('G', 'PG', 'R')[number % 3]}'",
    }
    return known.get(kind.partition("(")[0], f"'w{number % 7 if number < 12 else place % 90}'")


FILM = "[actor, category, city, country, film, film_actor, film_category, inventory, language, address, staff, store]"
DATABASES = (
    Database(
        "sakila",
        SAKILA,
        {"public:\n    - CHOOSE": f"public: {FILM}"},
        "CREATE TYPE mpaa_rating AS ENUM ('G', 'PG', 'R');",
        """UPDATE store SET manager_staff_id = store_id;
        ALTER TABLE store ADD FOREIGN KEY (manager_staff_id) REFERENCES staff;
        UPDATE payment SET customer_id = rental.customer_id FROM rental WHERE rental.rental_id = payment.rental_id;""",
    ),
    Database(
        "shop",
        SHOP,
        {"public:\n    - CHOOSE": "public: [product]"},
        after="COMMENT ON COLUMN client.street_number IS 'of the house'",
    ),
)
