"""An account pays under one neighbour relation: another one is refused, whoever asks and whenever it was declared."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from privbench_core.errors import BudgetError, LedgerError
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.ledger.store import LAYOUT, postgres_statements, sqlite_statements
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
    for way in ("Put the declaration back", "another database name", "reported apart", "only for other people"):
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


def make_layout_2(place: Place) -> None:
    """The tables as the version before left them, with a purchase in each of two accounts."""
    statements = postgres_statements if isinstance(place, str) else sqlite_statements
    added = statements(2)
    for statement in statements():
        if statement not in added:
            raw(place, statement)
    raw(place, "insert into ledger_layout(version, at) values (2, 'then')")
    raw(place, f"insert into lifetime(database, unit, epsilon, delta, at) values ('bank', '{UNIT}', 2, 0, 'then')")
    for account in ("", "2027"):
        raw(place, "insert into reservation(database, account, release, step, run, measure, amount, rho, delta, at)"
            f" values ('bank', '{account}', 'r', 's', 'run', 'pure', 0.5, 0.125, 0, 'then')")  # fmt: skip


def test_a_ledger_of_layout_2_is_extended_and_loses_nothing(place: Place) -> None:
    make_layout_2(place)
    with closing(open_ledger(place, SET_NULL)) as ledger:
        assert ledger.balance().spent == 0.5
        assert [entry.account for entry in ledger.entries()] == ["", "2027"]
    assert raw(place, "select version from ledger_layout order by version") == [(2,), (LAYOUT,)]
    # What was bought before counts under the relation of the first spec that opens the account.
    with pytest.raises(BudgetError, match=r"payment\.receiver"):
        open_ledger(place, CASCADE)
    open_ledger(place, CASCADE, "2027").close()
    with pytest.raises(BudgetError, match=r"payment\.receiver"):
        open_ledger(place, SET_NULL, "2027")
    buy(place, SET_NULL)


def test_extending_is_all_or_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    make_layout_2(place)
    module = "postgres" if isinstance(place, str) else "sqlite"
    name = f"privbench_core.privacy.ledger.{module}.{module}_statements"
    broken = [*(postgres_statements if isinstance(place, str) else sqlite_statements)(2), "create nonsense"]
    monkeypatch.setattr(name, lambda _: broken)
    with pytest.raises(
        LedgerError, match=r"layout 2, and the tables of layout 3 could not be added .*ledger_2_to_3\.sql"
    ):
        open_ledger(place, SET_NULL)
    monkeypatch.undo()
    assert raw(place, "select version from ledger_layout") == [(2,)]
    with closing(open_ledger(place, SET_NULL)) as ledger:
        assert ledger.count() == 2
