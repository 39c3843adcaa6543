"""Loading a bundle into a real PostgreSQL: keys enforced, all or nothing, passwords kept."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import psycopg
import pyarrow as pa
import pytest

from privbench_core.errors import PublishError
from privbench_core.publishing import load_bundle, write_bundle
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.postgres import new_database, psql, rows

T = ColumnType
SCHEMA = Schema(
    "shop",
    (
        Table(
            "Customer",
            (
                Column("id", T.INTEGER),
                Column('a, "b"', T.TEXT, nullable=True),
                Column("paid", T.DECIMAL, nullable=True, precision=8, scale=2),
                Column("share", T.FLOAT, nullable=True),
                Column("active", T.BOOLEAN, nullable=True),
                Column("born", T.DATE, nullable=True),
                Column("seen", T.TIMESTAMP, nullable=True),
            ),
            ("id",),
        ),
        Table(
            "orders",
            (Column("id", T.INTEGER), Column("customer", T.INTEGER)),
            ("id",),
            (ForeignKey("orders", ("customer",), "Customer", ("id",), max_children=5, owner=True),),
        ),
    ),
    unit="Customer",
)
VACUUMED = "SELECT reltuples, relallvisible FROM pg_class WHERE relname = 'orders'"
ROW = (1, 'q" ,\n\\.', Decimal("-0.05"), 0.1, True, date(1969, 2, 28), datetime(2020, 2, 29, 23, 59, 59, 999_999))


def shop(orders=(1, 1, 2)):
    customers = [ROW, (2, "", *[None] * 5), (3, *[None] * 6)]
    types = [pa.int64(), pa.string(), pa.decimal128(8, 2), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us")]
    columns = [pa.array(values, kind) for values, kind in zip(zip(*customers, strict=True), types, strict=True)]
    customer = pa.table(columns, names=[column.name for column in SCHEMA.table("Customer").columns])
    return {"Customer": customer, "orders": pa.table({"id": range(1, len(orders) + 1), "customer": list(orders)})}


@pytest.fixture
def url(postgres, request):
    """The URL of a database of its own."""
    return new_database(postgres, f"t{abs(hash(request.node.name))}")


def tables_in(url):
    return {name for (name,) in rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


def test_rows_keys_indexes_and_statistics_arrive(url, tmp_path):
    bundle = write_bundle(tmp_path / "shop", SCHEMA, shop(), {})
    assert load_bundle(bundle, url.replace("postgresql://", "postgresql+psycopg://")).rows == {
        "Customer": 3,
        "orders": 3,
    }
    assert rows(url, 'SELECT * FROM "Customer" ORDER BY id') == [ROW, (2, "", *[None] * 5), (3, *[None] * 6)]
    assert rows(url, "SELECT count(*) FROM orders") == [(3,)]
    assert rows(url, "SELECT count(*) FROM pg_indexes WHERE tablename = 'orders'") == [(2,)]
    assert rows(url, VACUUMED) == [(3.0, 1)]
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        rows(url, "INSERT INTO orders VALUES (9, 99) RETURNING id")
    with pytest.raises(psycopg.errors.UniqueViolation):
        rows(url, "INSERT INTO orders VALUES (1, 1) RETURNING id")


def test_existing_tables_are_kept_unless_replaced(url, tmp_path):
    load_bundle(write_bundle(tmp_path / "a", SCHEMA, shop(), {}), url)
    smaller = write_bundle(tmp_path / "b", SCHEMA, shop(orders=[3]), {})
    with pytest.raises(PublishError, match="already has Customer, orders; pass --replace"):
        load_bundle(smaller, url)
    assert rows(url, "SELECT count(*) FROM orders") == [(3,)]
    assert load_bundle(smaller, url, replace=True).rows["orders"] == 1
    assert rows(url, "SELECT customer FROM orders") == [(3,)]


def test_what_depends_on_a_replaced_table_is_not_dropped(url, tmp_path):
    bundle = write_bundle(tmp_path / "a", SCHEMA, shop(), {})
    load_bundle(bundle, url)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE VIEW big AS SELECT * FROM orders")
    with pytest.raises(PublishError, match="nothing was changed: cannot drop"):
        load_bundle(bundle, url, replace=True)
    assert rows(url, "SELECT count(*) FROM big") == [(3,)]


def test_a_failing_load_leaves_nothing_behind(url, tmp_path):
    orphan = write_bundle(tmp_path / "a", SCHEMA, shop(orders=[1, 77]), {})
    with pytest.raises(PublishError, match=r"refused the bundle, and nothing was changed: .*foreign key"):
        load_bundle(orphan, url)
    assert tables_in(url) == set()


def test_passwords_stay_out_of_messages(tmp_path):
    bundle = write_bundle(tmp_path / "a", SCHEMA, shop(), {})
    for target in (
        "postgresql://u:hunter2@127.0.0.1:1/d?connect_timeout=2",
        "postgresql://u:hunter2@127.0.0.1:port/d",
        "postgresql://u:hunter2%zz@127.0.0.1:1/d",
        "postgresql://127.0.0.1:1/d?password=hunter2",
        "postgresql://u:x@127.0.0.1:1/d?hunter2=1&password=hunter2",
    ):
        with pytest.raises(PublishError, match=r"cannot connect|not a database URL") as caught:
            load_bundle(bundle, target)
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_psql_alone_loads_a_bundle(url, tmp_path):
    tables = shop()
    bundle = write_bundle(tmp_path / "bundle", SCHEMA, tables, {})
    done = psql(url, bundle)
    assert (done.returncode, done.stderr) == (0, "")
    for name, expected in tables.items():
        assert len(rows(url, f'SELECT * FROM "{name}"')) == expected.num_rows
    assert rows(url, VACUUMED) == [(3.0, 1)]
    assert rows(url, 'SELECT * FROM "Customer" ORDER BY id')[0] == ROW
    assert rows(url, 'SELECT id FROM "Customer" WHERE "a, ""b""" = \'\'') == [(2,)]
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        rows(url, "INSERT INTO orders VALUES (99, 99) RETURNING id")


def test_psql_loads_all_or_nothing(url, tmp_path):
    bundle = write_bundle(tmp_path / "bundle", SCHEMA, shop(orders=(1, 9)), {})
    assert psql(url, bundle).returncode != 0
    assert rows(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
