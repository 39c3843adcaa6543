"""TPC-H's tables: orders and line items private, the rest public. Domains are those of the TPC-H specification."""

from __future__ import annotations

from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

_INT = ColumnType.INTEGER
_DATES = ("1992-01-01", "1998-12-31")
_DAYS = 2557


def _money(name: str, low: int = 0, high: int = 0, cells: int | None = None) -> Column:
    domain = Range(low, high, cells) if high else None
    return Column(name, ColumnType.DECIMAL, domain, precision=15, scale=2)


def _text(name: str, length: int) -> Column:
    return Column(name, ColumnType.TEXT, max_length=length)


def _category(name: str, values: str) -> Column:
    return Column(name, ColumnType.CATEGORY, Values(tuple(values.split(","))))


def _day(name: str) -> Column:
    return Column(name, ColumnType.DATE, Range(*_DATES, _DAYS))


def _size(name: str, high: int) -> Column:
    return Column(name, _INT, Range(0, high))


def _key(child: str, columns: str, parent: str, parent_columns: str) -> ForeignKey:
    return ForeignKey(child, tuple(columns.split(",")), parent, tuple(parent_columns.split(",")))


_PUBLIC = (
    Table(
        "region",
        (Column("r_regionkey", _INT), _text("r_name", 25), _text("r_comment", 152)),
        ("r_regionkey",),
        public=True,
    ),
    Table(
        "nation",
        (Column("n_nationkey", _INT), _text("n_name", 25), Column("n_regionkey", _INT), _text("n_comment", 152)),
        ("n_nationkey",),
        (_key("nation", "n_regionkey", "region", "r_regionkey"),),
        public=True,
    ),
    Table(
        "supplier",
        (
            Column("s_suppkey", _INT), _text("s_name", 25), _text("s_address", 40), Column("s_nationkey", _INT),
            _text("s_phone", 15), _money("s_acctbal", -1000, 10_000), _text("s_comment", 101),
        ),
        ("s_suppkey",),
        (_key("supplier", "s_nationkey", "nation", "n_nationkey"),),
        public=True,
    ),
    Table(
        "customer",
        (
            Column("c_custkey", _INT), _text("c_name", 25), _text("c_address", 40), Column("c_nationkey", _INT),
            _text("c_phone", 15), _money("c_acctbal", -1000, 10_000),
            _category("c_mktsegment", "AUTOMOBILE,BUILDING,FURNITURE,HOUSEHOLD,MACHINERY"), _text("c_comment", 117),
        ),
        ("c_custkey",),
        (_key("customer", "c_nationkey", "nation", "n_nationkey"),),
        public=True,
    ),
    Table(
        "part",
        (
            Column("p_partkey", _INT), _text("p_name", 55), _text("p_mfgr", 25), _text("p_brand", 10),
            _text("p_type", 25), _size("p_size", 50), _text("p_container", 10), _money("p_retailprice", 0, 3_000),
            _text("p_comment", 23),
        ),
        ("p_partkey",),
        public=True,
    ),
    Table(
        "partsupp",
        (
            Column("ps_partkey", _INT), Column("ps_suppkey", _INT), _size("ps_availqty", 10_000),
            _money("ps_supplycost", 0, 1_000), _text("ps_comment", 199),
        ),
        ("ps_partkey", "ps_suppkey"),
        (
            _key("partsupp", "ps_partkey", "part", "p_partkey"),
            _key("partsupp", "ps_suppkey", "supplier", "s_suppkey"),
        ),
        public=True,
    ),
)  # fmt: skip

_ORDERS = Table(
    "orders",
    (
        Column("o_orderkey", _INT), Column("o_custkey", _INT), _category("o_orderstatus", "F,O,P"),
        _money("o_totalprice", 0, 600_000), _day("o_orderdate"),
        _category("o_orderpriority", "1-URGENT,2-HIGH,3-MEDIUM,4-NOT SPECIFIED,5-LOW"), _text("o_clerk", 15),
        _size("o_shippriority", 1), _text("o_comment", 79),
    ),
    ("o_orderkey",),
    (_key("orders", "o_custkey", "customer", "c_custkey"),),
)  # fmt: skip

_LINEITEM = Table(
    "lineitem",
    (
        Column("l_orderkey", _INT), Column("l_partkey", _INT), Column("l_suppkey", _INT), Column("l_linenumber", _INT),
        # Up to 50 in the specification, times the weights of type and brand.
        _money("l_quantity", 0, 100, 200), _money("l_extendedprice", 0, 110_000),
        Column("l_discount", ColumnType.DECIMAL, Range("0.00", "0.10", 11), precision=15, scale=2),
        Column("l_tax", ColumnType.DECIMAL, Range("0.00", "0.08", 9), precision=15, scale=2),
        _category("l_returnflag", "A,N,R"), _category("l_linestatus", "F,O"),
        _day("l_shipdate"), _day("l_commitdate"), _day("l_receiptdate"),
        _category("l_shipinstruct", "COLLECT COD,DELIVER IN PERSON,NONE,TAKE BACK RETURN"),
        _category("l_shipmode", "AIR,FOB,MAIL,RAIL,REG AIR,SHIP,TRUCK"), _text("l_comment", 44),
    ),
    ("l_orderkey", "l_linenumber"),
    (
        ForeignKey("lineitem", ("l_orderkey",), "orders", ("o_orderkey",), 7, owner=True),
        _key("lineitem", "l_partkey,l_suppkey", "partsupp", "ps_partkey,ps_suppkey"),
    ),
)  # fmt: skip

SCHEMA = Schema("tpch", (*_PUBLIC, _ORDERS, _LINEITEM), "orders")
