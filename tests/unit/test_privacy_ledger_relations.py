"""An account pays under one neighbour relation: another one is refused, whoever asks and whenever it was declared."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from privbench_core.errors import BudgetError
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.neighbour_relation import Relation, neighbour_relation
from privbench_core.schema.constraints import OnUnitRemoved
from privbench_core.schema.identity import canonical_json
from tests.helpers.ledgers import Place, raw
from tests.unit.test_neighbour_relation import OTHER, PAYMENT, _with, schema_of

UNIT = "one row of person and all rows that depend on it"
SET_NULL = neighbour_relation(schema_of(PAYMENT))
CASCADE = neighbour_relation(schema_of(_with(replace(OTHER, on_unit_removed=OnUnitRemoved.CASCADE))))
SMALL = neighbour_relation(schema_of())
PRICE = Price(Measure.PURE, 0.25)


def open_ledger(place: Place, relation: Relation | None, account: str = "") -> Ledger:
    return Ledger(place, "bank", UNIT, Budget(2.0), relation=relation, account=account)


def buy(place: Place, relation: Relation | None, account: str = "") -> None:
    with closing(open_ledger(place, relation, account)) as ledger:
        ledger.reserve("r", "s", "run", PRICE, account)


def test_another_relation_is_refused_with_what_changed_and_the_way_out(place: Place) -> None:
    buy(place, SET_NULL)
    with pytest.raises(BudgetError) as refused:
        open_ledger(place, CASCADE)
    message = str(refused.value)
    assert (
        "payment.receiver (to person): on_unit_removed: set null (receiver) then, on_unit_removed: cascade now"
        in message
    )
    for way in ("Put the declaration back", "another database name", "reported separately", "only for other people"):
        assert way in message
    buy(place, SET_NULL)
    buy(place, CASCADE, "other people")
    with pytest.raises(BudgetError, match="cohort other people of bank"):
        open_ledger(place, SET_NULL, "other people")
    with closing(Ledger(place, "bank apart", UNIT, Budget(2.0), relation=CASCADE)) as apart:
        apart.reserve("r", "s", "run", PRICE)


def test_nothing_is_bound_before_something_is_bought(place: Place) -> None:
    open_ledger(place, CASCADE).close()
    buy(place, SET_NULL)
    with pytest.raises(BudgetError):
        open_ledger(place, CASCADE)


def test_of_two_that_opened_the_ledger_before_one_bought_the_other_is_refused(place: Place) -> None:
    with closing(open_ledger(place, SET_NULL)) as first, closing(open_ledger(place, CASCADE)) as second:
        first.reserve("r", "s", "run", PRICE)
        for attempt in (
            lambda: second.hold("run", PRICE, "purpose", "mark"),
            lambda: second.reserve("r", "s", "run", PRICE),
        ):
            with pytest.raises(BudgetError, match="do not add up"):
                attempt()
        assert first.count() == 1
        assert first.held() == []


def test_a_table_that_is_added_later_is_recorded_with_what_is_bought_then(place: Place) -> None:
    buy(place, SMALL)
    open_ledger(place, CASCADE).close()
    buy(place, SET_NULL)
    buy(place, SMALL)
    with pytest.raises(BudgetError, match=r"payment\.receiver"):
        open_ledger(place, CASCADE)
    rows = raw(place, "select account, name, facts from neighbour_relation order by id")
    assert rows == [("", name, canonical_json(SET_NULL[name])) for name in ("country", "person", "payment")]
