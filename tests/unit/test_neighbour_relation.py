"""The neighbour relation as facts: what removal does to each table, in one form, and what makes two of them differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from privbench_core.privacy.neighbour_relation import differences, neighbour_relation
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.identity import canonical_json
from privbench_core.schema.tables import Schema, Table


def _columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name.rstrip("?"), ColumnType.INTEGER, nullable=name.endswith("?")) for name in names)


COUNTRY = Table("country", _columns("code"), ("code",), public=True)
PERSON = Table(
    "person",
    _columns("id", "country?"),
    ("id",),
    (ForeignKey("person", ("country",), "country", ("code",), optional=True),),
    unique=(("id", "country"),),
)
OWNER = ForeignKey("payment", ("sender",), "person", ("id",), max_children=9, owner=True)
OTHER = ForeignKey("payment", ("receiver",), "person", ("id",), max_children=9, optional=True)
PAYMENT = Table("payment", _columns("id", "sender", "receiver?"), ("id",), (OWNER, OTHER))
REQUIRED = OnUnitRemoved.SET_NULL


def schema_of(*tables: Table) -> Schema:
    return Schema("bank", (COUNTRY, PERSON, *tables), "person")


def test_the_facts_say_what_removal_does_to_each_table() -> None:
    assert neighbour_relation(schema_of(PAYMENT)) == {
        "country": {"public": True},
        "person": {
            "unit": True,
            "keys": [{"columns": ["country"], "parent": "country", "parent_columns": ["code"]}],
        },
        "payment": {
            "keys": [
                {"columns": ["receiver"], "parent": "person", "parent_columns": ["id"], "becomes_null": ["receiver"]},
                {
                    "columns": ["sender"],
                    "parent": "person",
                    "parent_columns": ["id"],
                    "owner": True,
                    "cascades": True,
                },
            ]
        },
    }


def _with(key: ForeignKey, *columns: Column) -> Table:
    """The table of payments with another key beside the owner's."""
    names = {column.name for column in columns}
    kept = tuple(column for column in PAYMENT.columns if column.name not in names)
    return replace(PAYMENT, columns=(*kept, *columns), foreign_keys=(OWNER, key))


@pytest.mark.parametrize(
    ("key", "effect"),
    [
        (OTHER, {"becomes_null": ["receiver"]}),
        (replace(OTHER, optional=False), {"cascades": True}),
        (replace(OTHER, on_unit_removed=OnUnitRemoved.CASCADE), {"cascades": True}),
        (replace(OTHER, optional=False, on_unit_removed=REQUIRED), {"becomes_null": ["receiver"]}),
        (replace(OTHER, same_unit=True), {"same_unit": True, "becomes_null": ["receiver"]}),
        (replace(OTHER, parent="country", parent_columns=("code",), optional=False), {}),
        (replace(OTHER, parent="country", parent_columns=("code",)), {}),
    ],
)
def test_what_happens_along_a_key_follows_from_what_is_declared(key: ForeignKey, effect: dict[str, object]) -> None:
    (found,) = (
        facts
        for facts in neighbour_relation(schema_of(_with(key)))["payment"]["keys"]
        if facts["columns"] == ["receiver"]
    )
    assert {k: v for k, v in found.items() if k not in {"columns", "parent", "parent_columns"}} == effect


def test_a_column_that_another_key_has_a_say_in_stays() -> None:
    pair = ForeignKey("payment", ("sender", "country"), "person", ("id", "country"), optional=True)
    table = replace(
        PAYMENT, columns=_columns("id", "sender", "country?"), foreign_keys=(OWNER, pair), primary_key=("id",)
    )
    (found,) = (k for k in neighbour_relation(schema_of(table))["payment"]["keys"] if "country" in k["columns"])
    assert found["becomes_null"] == ["country"]


def test_the_order_of_keys_and_the_bounds_are_no_part_of_it() -> None:
    pair = ForeignKey("payment", ("receiver", "country"), "person", ("id", "country"), optional=True)
    turned = replace(pair, columns=("country", "receiver"), parent_columns=("country", "id"), max_children=7)
    columns = _columns("id", "sender", "receiver?", "country?")
    one = replace(PAYMENT, columns=columns, foreign_keys=(OWNER, pair))
    other = replace(PAYMENT, columns=columns[::-1], foreign_keys=(turned, replace(OWNER, max_children=2)))
    assert canonical_json(neighbour_relation(schema_of(one))) == canonical_json(neighbour_relation(schema_of(other)))


def test_whole_tables_may_come_and_go() -> None:
    more = replace(PAYMENT, name="refund", foreign_keys=(replace(OWNER, child="refund"),))
    small, large = neighbour_relation(schema_of()), neighbour_relation(schema_of(PAYMENT, more))
    assert differences(small, large) == differences(large, small) == []


_RECEIVER = "payment.receiver (to person)"
_NULL = "on_unit_removed: set null (receiver)"
CHANGES = {
    "the owner": (_with(replace(OTHER, owner=True, optional=False)), f"{_RECEIVER}: {_NULL} then, owner now"),
    "cascade": (
        _with(replace(OTHER, on_unit_removed=OnUnitRemoved.CASCADE)),
        f"{_RECEIVER}: {_NULL} then, on_unit_removed: cascade now",
    ),
    "same_unit": (_with(replace(OTHER, same_unit=True)), f"{_RECEIVER}: {_NULL} then, {_NULL}, same_unit now"),
    "no key": (replace(PAYMENT, foreign_keys=(OWNER,)), f"{_RECEIVER}: {_NULL} then, no key now"),
    "public": (replace(PAYMENT, public=True), "payment: private then, public now"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_differences_name_the_table_the_key_and_what_changed(what: str) -> None:
    table, expected = CHANGES[what]
    then, now = neighbour_relation(schema_of(PAYMENT)), neighbour_relation(schema_of(table))
    assert differences(then, now) == [expected]
    assert differences(then, then) == differences(now, now) == []


def test_another_table_of_units_is_another_relation() -> None:
    then = neighbour_relation(Schema("bank", (COUNTRY, PERSON), "person"))
    now = {**then, "person": {**then["person"], "unit": False}}
    assert differences(then, now) == ["person: the unit's table then, not the unit's table now"]
