"""The ledger: never more than the lifetime, with any caller and any end."""

from __future__ import annotations

import contextlib
import math
import os
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import make_url

from privbench_core.errors import BudgetError, BudgetExhaustedError, LedgerError, ReleaseError
from privbench_core.privacy.budget import Budget, Measure, Price, rho_for
from privbench_core.privacy.ledger import postgres as ledger_postgres
from privbench_core.privacy.ledger.balance import AccountSpend
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.ledger.store import LAYOUT
from tests.helpers.ledgers import DatabaseError, Place, new_place, raw
from tests.helpers.processes import PROCESSES

PURE, BOTH = Budget(2.0), Budget(2.0, 1e-6)
UNIT = "one row of household and all rows that depend on it"


def open_ledger(place: Place, lifetime: Budget = BOTH, unit: str = UNIT) -> Ledger:
    return Ledger(place, "town", unit, lifetime)


def test_the_shortfall_is_exact(place: Place) -> None:
    ledger = open_ledger(place, lifetime=PURE)
    ledger.reserve("a", "first", "run", Price(Measure.PURE, 1.5))
    with pytest.raises(
        BudgetExhaustedError,
        match=r"second: costs 37\.5% of the lifetime budget \(ε=0\.75\), but only 0\.5 of ε=2 is left: short by 0\.25",
    ) as refused:
        ledger.reserve("b", "second", "run", Price(Measure.PURE, 0.75))
    assert refused.value.private_detail is None
    assert len(ledger.entries()) == 1
    ledger.reserve("b", "second", "run", Price(Measure.PURE, 0.5))
    assert ledger.balance().left == 0
    ledger.close()


def test_the_shortfall_is_exact_in_rho(place: Place) -> None:
    ledger = open_ledger(place)
    cap = BOTH.total().amount
    ledger.reserve("a", "first", "run", Price(Measure.GDP, cap / 2))
    with pytest.raises(BudgetExhaustedError) as refused:
        ledger.reserve("b", "second", "run", Price(Measure.GDP, cap))
    assert f"short by {cap / 2:.6g}" in str(refused.value)
    assert f"ρ={cap / 2:.6g} of {cap:.6g}" in str(refused.value)
    ledger.close()


def test_a_pure_lifetime_pays_no_gaussian_noise(place: Place) -> None:
    ledger = open_ledger(place, lifetime=PURE)
    with pytest.raises(BudgetExhaustedError, match="pure"):
        ledger.reserve("a", "s", "run", Price(Measure.GDP, 1e-9))
    ledger.close()


def test_thresholds_delta_is_limited_too(place: Place) -> None:
    ledger = open_ledger(place)
    ledger.reserve("a", "s", "run", Price(Measure.GDP, 1e-6, BOTH.total().delta))
    with pytest.raises(BudgetExhaustedError, match="δ"):
        ledger.reserve("b", "t", "run", Price(Measure.GDP, 1e-6, 1e-9))
    ledger.reserve("c", "u", "run", Price(Measure.GDP, 1e-6))
    ledger.close()


def test_pure_entries_count_in_full_among_others(place: Place) -> None:
    ledger = open_ledger(place)
    cap = BOTH.total().amount
    ledger.reserve("a", "s", "run", Price(Measure.PURE, 2.0))  # all of ε, so ρ = π: far above the cap
    assert ledger.balance().spent == 2.0
    with pytest.raises(BudgetExhaustedError):
        ledger.reserve("b", "t", "run", Price(Measure.GDP, 1e-9))
    with pytest.raises(BudgetExhaustedError):
        ledger.reserve("b", "t", "run", Price(Measure.PURE, 1e-3))
    ledger.close()
    other = Ledger(place, "other town", UNIT, BOTH)
    other.reserve("a", "s", "run", Price(Measure.GDP, cap / 4))
    small = math.sqrt(4 / math.pi * cap / 2)  # a pure ε worth half the cap
    other.reserve("b", "t", "run", Price(Measure.PURE, small))
    assert other.balance().rho_left == pytest.approx(cap / 4)
    with pytest.raises(BudgetExhaustedError):
        other.reserve("c", "u", "run", Price(Measure.PURE, small))
    other.close()


def test_the_unit_of_an_account_never_changes(place: Place) -> None:
    open_ledger(place).close()
    with pytest.raises(BudgetError, match=r"person.*do not add"):
        open_ledger(place, unit="one row of person")
    other = Ledger(place, "another", "one row of person", BOTH)
    assert other.balance().spent == 0
    other.close()


def test_a_changed_lifetime_is_written_down_and_counts(place: Place) -> None:
    first = open_ledger(place, PURE)
    first.reserve("a", "s", "run", Price(Measure.PURE, 1.5))
    first.close()
    for lifetime in (Budget(1.0), Budget(1.0), Budget(5.0)):
        open_ledger(place, lifetime).close()
    assert raw(place, "select epsilon, unit from lifetime order by id") == [(2.0, UNIT), (1.0, UNIT), (5.0, UNIT)]
    smaller = open_ledger(place, Budget(1.0))
    assert smaller.balance().left == 0
    with pytest.raises(BudgetExhaustedError):
        smaller.reserve("b", "t", "run", Price(Measure.PURE, 0.01))
    smaller.close()


@pytest.mark.parametrize("bought", [Price(Measure.GDP, 0.01), Price(Measure.PURE, 0.3, 1e-9)])
@pytest.mark.parametrize("account", ["", "2027"])
def test_a_delta_that_what_was_bought_contradicts_is_refused(place: Place, bought: Price, account: str) -> None:
    with contextlib.closing(open_ledger(place)) as ledger:
        ledger.reserve("a", "s", "run", bought, account)
    with pytest.raises(BudgetError, match=r"delta 0 is less than what was already bought.*back to 1e-06"):
        open_ledger(place, PURE)
    assert raw(place, "select delta from lifetime") == [(1e-6,)]
    with contextlib.closing(open_ledger(place, Budget(2.0, 1e-7))) as smaller:  # still covers it, at a larger ε
        assert smaller.balance(account).delta == 1e-7
    with contextlib.closing(open_ledger(place)) as ledger:
        assert ledger.balance(account).delta == 1e-6


def test_a_delta_that_purchases_of_both_kinds_contradict_is_refused(place: Place) -> None:
    with contextlib.closing(open_ledger(place)) as ledger:
        pure, gaussian = Price(Measure.PURE, 0.1), Price(Measure.GDP, 0.001)
        for number, bought in enumerate([pure, gaussian, pure]):
            ledger.reserve(str(number), "s", "run", bought)
    with pytest.raises(BudgetError, match=r"delta 0 is less than what was already bought.*back to 1e-06"):
        open_ledger(place, PURE)


def test_a_delta_below_that_of_thresholds_is_refused(place: Place) -> None:
    with contextlib.closing(open_ledger(place)) as ledger:
        ledger.reserve("a", "s", "run", Price(Measure.GDP, 0.001, BOTH.threshold_delta))
    with pytest.raises(BudgetError, match=r"delta 1e-09 is less .* back to 1e-06"):
        open_ledger(place, Budget(2.0, 1e-9))


def test_what_was_spent_is_never_understated_under_a_smaller_delta(place: Place) -> None:
    """Two processes with different specs: the one without δ was there first."""
    with contextlib.closing(open_ledger(place, PURE)) as pure, contextlib.closing(open_ledger(place)) as ledger:
        assert (pure.balance().spent, pure.balance().delta) == (0, 0)
        ledger.reserve("a", "s", "run", Price(Measure.GDP, 0.01, 1e-9))
        ledger.reserve("b", "t", "run", Price(Measure.PURE, 0.1))
        there, here = ledger.balance(), pure.balance()
        assert there.spent > math.sqrt(2 * 0.01) > 0
        assert (here.spent, here.delta, here.left, here.rho_left) == (there.spent, 1e-6, 0, 0)
        with pytest.raises(BudgetExhaustedError, match=r"costs ε=1, .* does not cover what was bought under 1e-06"):
            pure.reserve("c", "u", "run", Price(Measure.PURE, 1.0))
    raw(place, "insert into reservation(database, account, release, step, run, measure, amount, rho, delta, at)"
        " values ('town', '', 'r', 's', 'run', 'gdp', 1, 1, 0.5, '')")  # fmt: skip
    with contextlib.closing(open_ledger(place)) as ledger, pytest.raises(LedgerError, match="no lifetime budget"):
        ledger.balance()


def test_each_account_may_spend_the_whole_lifetime_and_no_more(place: Place) -> None:
    ledger = open_ledger(place, lifetime=PURE)
    ledger.reserve("a", "s", "run", Price(Measure.PURE, 2.0))
    with pytest.raises(BudgetExhaustedError):
        ledger.require("t", Price(Measure.PURE, 0.5))
    ledger.require("t", Price(Measure.PURE, 0.5), "2027")
    ledger.reserve("b", "t", "run", Price(Measure.PURE, 1.5), "2027")
    with pytest.raises(BudgetExhaustedError, match=r"0\.5 of ε=2 is left"):
        ledger.reserve("c", "u", "run", Price(Measure.PURE, 1.0), "2027")
    assert ledger.balance().spent == 2.0
    assert ledger.balance("2027").spent == 1.5
    assert [(entry.step, entry.account) for entry in ledger.entries()] == [("s", ""), ("t", "2027")]
    assert [entry.step for entry in ledger.entries("2027")] == ["t"]
    assert [entry.step for entry in ledger.entries("")] == ["s"]
    ledger.close()


TAMPERING = [
    "delete from reservation",
    "delete from charge",
    "delete from lifetime",
    "update lifetime set epsilon = 1e9",
    "update charge set amount = 0",
    "update reservation set amount = 0",
    "update reservation set rho = 0",
    "update reservation set delta = 0",
    "update reservation set measure = 'gdp'",
    "update reservation set database = 'elsewhere'",
    "update reservation set account = 'other'",
    "update reservation set release = 'other'",
    "update result set digest = 'other'",
    "delete from result",
    "update ledger_layout set version = 1",
    "delete from ledger_layout",
    "update state_folder set mark = 'other'",
    "delete from state_folder",
]


@pytest.mark.parametrize("statement", TAMPERING)
def test_nothing_is_deleted_or_repriced(place: Place, statement: str) -> None:
    ledger = open_ledger(place)
    done = ledger.reserve("a", "s", "run", Price(Measure.PURE, 1.0))
    ledger.charge(done, "s/view", Price(Measure.PURE, 1.0))
    ledger.release(done, "digest")
    ledger.claim("mark")
    ledger.close()
    with pytest.raises(DatabaseError, match="append only"):
        raw(place, statement)
    again = open_ledger(place)
    assert again.balance().spent == 1.0
    assert again.released("a") == {"digest"}
    again.close()


def test_a_reservation_counts_as_spent_whether_or_not_it_is_released(place: Place) -> None:
    ledger = open_ledger(place, PURE)
    entry = ledger.reserve("a", "s", "run", Price(Measure.PURE, 1.0))
    assert ledger.balance().spent == 1.0
    assert ledger.released("a") == frozenset()
    ledger.release(entry, "digest")
    assert ledger.balance().spent == 1.0
    assert ledger.released("a") == {"digest"}
    assert [e.state for e in ledger.entries()] == ["released"]
    ledger.close()


def test_what_another_connection_enters_counts_at_once(place: Place) -> None:
    with contextlib.closing(open_ledger(place, PURE)) as one, contextlib.closing(open_ledger(place, PURE)) as other:
        first = one.reserve("a", "first", "run", Price(Measure.PURE, 0.5))
        assert (other.balance().spent, other.count()) == (0.5, 1)
        assert not other.spent().bought
        other.reserve("b", "second", "run", Price(Measure.PURE, 0.5), account="cohort")
        one.release(other.reserve("c", "third", "run", Price(Measure.PURE, 1.0)), "digest")
        assert one.spent() == other.spent() == AccountSpend(True, 1.5, math.pi / 4 * 1.25, 0.0, {("run", "third"): 1})
        other.release(first, "digest")  # a result may come later than those of later reservations
        assert one.spent().bought == other.spent().bought == {("run", "first"): 1, ("run", "third"): 1}
        with pytest.raises(BudgetExhaustedError, match=r"0\.5 of ε=2 is left: short by 0\.125"):
            one.reserve("d", "fourth", "run", Price(Measure.PURE, 0.625))
        assert (one.spent("cohort").epsilon, one.count()) == (0.5, 3)


def test_after_a_lost_connection_everything_is_read_anew(postgres: str, tmp_path: Path) -> None:
    place = new_place("postgresql", tmp_path, lambda: postgres)
    ledger = open_ledger(place, PURE)
    for number in range(3):
        ledger.reserve(f"r{number}", "step", "run", Price(Measure.PURE, 0.25))
    assert ledger.balance().spent == 0.75
    # The server comes back with an older copy, in which others go on where that ends.
    raw(place, "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()")
    for statement in (
        "alter table reservation disable trigger all",
        "delete from reservation where id > 1",
        "alter table reservation alter column id restart with 2",
        "alter table reservation enable trigger all",
    ):
        raw(place, statement)
    with contextlib.closing(open_ledger(place, PURE)) as other:
        other.reserve("r", "step", "run", Price(Measure.PURE, 1.5))
    assert ledger.balance().spent == 1.75
    with pytest.raises(BudgetExhaustedError):
        ledger.reserve("s", "step", "run", Price(Measure.PURE, 0.5))
    ledger.close()


def test_the_ledger_knows_its_other_databases(place: Place) -> None:
    with contextlib.closing(open_ledger(place)) as town, contextlib.closing(Ledger(place, "village", "u", BOTH)) as one:
        assert town.others() == one.others() == []
        for _ in range(2):
            town.reserve("r", "s", "run", Price(Measure.PURE, 0.5))
        (other,) = one.others()
        assert (other.database, other.entries, other.last) == ("town", 2, town.entries()[-1].at)
        assert town.others() == []


def test_what_another_database_released_is_not_free(place: Place) -> None:
    with contextlib.closing(open_ledger(place)) as town, contextlib.closing(Ledger(place, "village", "u", BOTH)) as one:
        town.release(town.reserve("r", "s", "run", Price(Measure.PURE, 0.5)), "digest")
        assert (town.released("r"), one.released("r")) == ({"digest"}, frozenset())


def _race(places: list[Place], barrier: Any, won: Any) -> None:
    """One of two processes that want the last of each budget. Both even make the tables."""
    for number, place in enumerate(places):
        barrier.wait()
        ledger = open_ledger(place, PURE)
        barrier.wait()
        try:
            ledger.reserve("last", "s", str(os.getpid()), Price(Measure.PURE, 1.5))
            won.put(number)
        except BudgetExhaustedError:
            pass
        ledger.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_of_two_processes_exactly_one_gets_the_last_of_the_budget(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rounds = 12
    places = [new_place(kind, tmp_path, lambda: request.getfixturevalue("postgres")) for _ in range(rounds)]
    barrier, won = PROCESSES.Barrier(2), PROCESSES.Queue()
    racers = [PROCESSES.Process(target=_race, args=(places, barrier, won), daemon=True) for _ in range(2)]
    for racer in racers:
        racer.start()
    winners = sorted(won.get(timeout=300) for _ in range(rounds))
    for racer in racers:
        racer.join(300)
        assert racer.exitcode == 0
    assert winners == list(range(rounds))
    assert won.empty()
    for place in places:
        ledger = open_ledger(place, PURE)
        assert ledger.balance().spent == 1.5
        ledger.close()


def _take_all(place: Place, barrier: Any, got: Any) -> None:
    """One of several processes that reserve until nothing is left."""
    ledger = open_ledger(place, Budget(50.0))
    barrier.wait()
    mine = 0
    with contextlib.suppress(BudgetExhaustedError):
        while True:
            ledger.reserve("r", "s", "run", Price(Measure.PURE, 1.0))
            mine += 1
    got.put(mine)
    ledger.close()


def test_several_processes_get_all_of_the_budget_and_no_more(place: Place) -> None:
    barrier, got = PROCESSES.Barrier(3), PROCESSES.Queue()
    takers = [PROCESSES.Process(target=_take_all, args=(place, barrier, got), daemon=True) for _ in range(3)]
    for taker in takers:
        taker.start()
    assert sum(got.get(timeout=300) for _ in takers) == 50
    for taker in takers:
        taker.join(300)
    ledger = open_ledger(place, Budget(50.0))
    assert (ledger.balance().spent, ledger.balance().left) == (50.0, 0.0)
    assert [entry.id for entry in ledger.entries()] == list(range(1, 51))
    ledger.close()


def _spend(place: Place, acknowledged: Connection) -> None:
    """Spend until killed."""
    ledger = open_ledger(place, Budget(1e6))
    while True:
        entry = ledger.reserve("r", "s", "run", Price(Measure.PURE, 0.5))
        ledger.charge(entry, "look", Price(Measure.PURE, 0.5))
        acknowledged.send(entry)
        ledger.release(entry, "digest")


@pytest.mark.parametrize("kills", [pytest.param(20, id="20"), pytest.param(200, marks=pytest.mark.slow, id="200")])
def test_a_killed_process_never_spends_without_a_trace(place: Place, kills: int) -> None:
    rng = np.random.default_rng(0)
    acknowledged: set[int] = set()
    for _ in range(kills):
        reader, writer = PROCESSES.Pipe(duplex=False)
        spender = PROCESSES.Process(target=_spend, args=(place, writer))
        spender.start()
        writer.close()
        acknowledged |= {reader.recv() for _ in range(int(rng.integers(1, 12)))}
        spender.kill()
        with reader, contextlib.suppress(EOFError):
            while True:
                acknowledged.add(reader.recv())
        spender.join()
        ledger = open_ledger(place, Budget(1e6))
        entries = {entry.id for entry in ledger.entries()}
        assert acknowledged <= entries
        assert len(entries - acknowledged) <= kills
        assert ledger.balance().spent == 0.5 * len(entries) >= 0.5 * len(acknowledged)
        ledger.close()
    if isinstance(place, Path):
        assert raw(place, "pragma integrity_check") == [("ok",)]
    assert raw(place, "select count(*) from charge where reservation not in (select id from reservation)") == [(0,)]


def test_the_cap_in_rho_is_that_of_the_lifetime(place: Place) -> None:
    ledger = open_ledger(place)
    assert ledger.balance().rho_left == pytest.approx(rho_for(BOTH.epsilon, BOTH.delta - BOTH.total().delta))
    ledger.close()


@pytest.mark.parametrize(
    ("layout", "statement"),
    [
        (0, "create table reservation(id integer primary key)"),
        (2, "create table ledger_layout as select 2 as version, 'then' as at"),
        (LAYOUT + 1, f"create table ledger_layout as select {LAYOUT + 1} as version, 'later' as at"),
    ],
)
def test_tables_of_another_layout_are_refused(place: Place, layout: int, statement: str) -> None:
    raw(place, statement)
    refusal = f"layout {layout}, but this privbench reads {LAYOUT}: use the version that wrote it"
    with pytest.raises(LedgerError, match=refusal):
        open_ledger(place, PURE)


def test_a_ledger_is_tied_to_one_state_folder(place: Place) -> None:
    ledger = open_ledger(place)
    ledger.claim("mine")
    ledger.claim("mine")
    with pytest.raises(ReleaseError, match="another state folder"):
        ledger.claim("other")
    ledger.claim("other", replace=True)
    ledger.claim("other", replace=True)
    with pytest.raises(ReleaseError, match="--new-state"):
        ledger.claim("mine")
    assert raw(place, "select mark from state_folder order by id") == [("mine",), ("other",)]
    another = Ledger(place, "another", UNIT, BOTH)
    another.claim("mine")
    another.close()
    ledger.close()


def test_what_is_waited_for_is_given_up_in_the_end(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = new_place("postgresql", tmp_path, lambda: postgres)
    ledger, other = open_ledger(place), open_ledger(place)
    monkeypatch.setattr(ledger_postgres, "_BEGIN", ledger_postgres._BEGIN.replace("'60s'", "'100ms'"))

    def want_it_too(*_: object) -> None:
        other._store.query("select 1")  # now the other one holds the lock
        ledger.reserve("a", "s", "run", Price(Measure.PURE, 1.0))

    monkeypatch.setattr(other, "require", want_it_too)
    with pytest.raises(LedgerError, match="LockNotAvailable"):
        other.reserve("b", "t", "run", Price(Measure.PURE, 1.0))
    assert ledger.entries() == []
    assert ledger.reserve("a", "s", "run", Price(Measure.PURE, 1.0))
    for one in (ledger, other):
        one.close()


def test_no_setting_of_the_server_weakens_the_promise(postgres: str, tmp_path: Path) -> None:
    place = new_place("postgresql", tmp_path, lambda: postgres)
    options = "-csynchronous_commit=off -cdefault_transaction_isolation=serializable -cdefault_transaction_read_only=on"
    ledger = open_ledger(make_url(place).update_query_dict({"options": options}).render_as_string(hide_password=False))
    with ledger._store.transaction():
        shown = [ledger._store.query(f"show {name}")[0][0] for name in ("synchronous_commit", "transaction_isolation")]
    assert shown == ["on", "read committed"]
    assert ledger.reserve("a", "s", "run", Price(Measure.PURE, 1.0)) == 1
    ledger.close()


@pytest.mark.parametrize(
    "url",
    ["postgresql://someone:hunter2@127.0.0.1:1/none", "postgresql://someone@127.0.0.1:1/none?password=hunter2"],
)
def test_no_message_holds_a_password(url: str) -> None:
    with pytest.raises(LedgerError, match="cannot be used") as refused:
        open_ledger(url)
    told = "".join(traceback.format_exception(refused.value)) + str(refused.value.private_detail)
    assert "hunter2" not in told
    assert "someone" not in str(refused.value)
