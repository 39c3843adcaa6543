"""A small database of which everything is learned: its bundle loads with psql and with DuckDB alone, at any noise."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.tables import Schema, Table
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import integer, owner_key, place_of, rows_of
from tests.helpers.postgres import new_database, psql, rows


def orders(customers: int) -> tuple[Schema, dict[str, pa.Table]]:
    """Customers with places too rare to name, and orders with money in a column of type real and codes of 16 bits."""
    rng = np.random.default_rng(0)
    customer = Table(
        "customer",
        (
            integer("id"),
            Column("city", ColumnType.CATEGORY, Learn(), sql_type="character varying(15)"),
            Column("tags", ColumnType.JSON, Learn(), nullable=True, sql_type="text[]"),
            Column("scores", ColumnType.JSON, Learn(), sql_type="integer[]"),
            Column("doc", ColumnType.JSON, Learn(), sql_type="jsonb"),
        ),
        ("id",),
    )
    paid = Column("paid", ColumnType.DECIMAL, Learn(), precision=8, scale=2, sql_type="real", unit="EUR")
    code = Column("code", ColumnType.INTEGER, Learn(listed=True), nullable=True, sql_type="smallint")
    order = Table(
        "order",
        (integer("id"), integer("customer"), Column("ordered", ColumnType.DATE, Learn()), paid, code),
        ("id",),
        (owner_key("order", "customer", "customer", 10),),
    )
    n = 4 * customers
    amounts = [Decimal(int(cents)) * 5 / 100 for cents in rng.integers(1, 4000, n)]
    days = [dt.date(2024, 1, 1) + dt.timedelta(int(day)) for day in rng.integers(0, 300, n)]
    codes = [None if i % 7 == 0 else 200 if i % 2 else -32_000 + i for i in range(n)]
    tables = {
        "customer": rows_of(
            customer,
            id=np.arange(customers),
            city=[f"Town {i}" for i in range(customers)],
            tags=[None if i % 5 == 0 else json.dumps(["new", 'a "b"', "c"][: i % 4]) for i in range(customers)],
            scores=[json.dumps(rng.integers(0, 9, 2).tolist()) for _ in range(customers)],
            doc=[json.dumps({"n": i, "at": f"2026-03-{10 + i % 20}"}) for i in range(customers)],
        ),
        "order": rows_of(
            order, id=np.arange(n), customer=np.arange(n) % customers, ordered=days, paid=amounts, code=codes
        ),
    }
    return Schema("shop", (customer, order), "customer"), tables


@pytest.mark.parametrize(("customers", "epsilon"), [(1, 0.1), (59, 0.1), (400, 40.0)])
def test_a_bundle_of_learned_domains_loads_everywhere(
    customers: int, epsilon: float, tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, tables = orders(customers)
    place = place_of(tmp_path, schema, tables)
    # With real noise a range is made of noise alone once in a thousand runs.
    result = place.run_with(SeededNoise(0), epsilon)
    assert any("all noise" in line or "noise hid" in line for line in result.warnings) is (epsilon < 1)
    url = new_database(postgres, f"learned_{customers}")
    done = psql(url, place.out)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(place.out)
    with duckdb.connect() as connection:
        connection.execute((place.out / "load.duckdb.sql").read_text(encoding="utf-8"))
        for query in (
            'SELECT count(*) FROM "order"',
            "SELECT count(DISTINCT city) FROM customer",
            'SELECT sum(code) FROM "order"',
        ):
            assert connection.execute(query).fetchall() == rows(url, query)
        low, high = connection.execute('SELECT min(ordered), max(ordered) FROM "order"').fetchall()[0]
        assert low is None or dt.date(1990, 1, 1) < low <= high < dt.date(2040, 1, 1)
        if epsilon > 1:
            ((cities,),) = connection.execute("SELECT count(DISTINCT city) FROM customer").fetchall()
            assert cities == pytest.approx(customers, rel=0.25)
            found = connection.execute('SELECT avg((code = 200)::int), typeof(any_value(code)) FROM "order"').fetchall()
            query = f"SELECT len(tags), count(*)::double / {customers} FROM customer GROUP BY 1 ORDER BY 1"
            lengths = {None: 0.2, 0: 0.2, 1: 0.2, 2: 0.2, 3: 0.2}
            assert dict(connection.execute(query).fetchall()) == pytest.approx(lengths, abs=0.1)
            query = "SELECT count(*) FROM customer WHERE len(scores) <> 2 OR doc ->> 'at' NOT BETWEEN '2026' AND '2027'"
            assert connection.execute(query).fetchall() == [(0,)]
            kinds = rows(url, "SELECT array_agg(DISTINCT t) FROM customer, unnest(tags) t")
            assert set(kinds[0][0]) == {"new", 'a "b"', "c"}
            assert found == [(pytest.approx(0.5, abs=0.1), "SMALLINT")]
